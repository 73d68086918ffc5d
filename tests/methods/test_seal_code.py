"""Codes come from the wearer's past alone, and donors are placed among all."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from sensorveil.data.windows import Windows
from sensorveil.methods.seal_code import (
    MAX_RUNNER_UP,
    Encoder,
    Movement,
    clear_rhythm,
    donor_mask,
    epsilon_within_budget,
    filter_classes,
    private_accuracy,
    random_tie_breaks,
    randomize_codes,
    rhythm_and_energy,
    runner_up_ratio,
    typical,
)

LENGTH, RATE = 64, 32.0


# The class, filtered over time.


def drawn(count: int, classes: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(classes), size=count)


def by_enumeration(probabilities: np.ndarray, start: np.ndarray, dwell: float) -> int:
    """The likeliest class of the last window, adding up the weights of all sequences of classes."""
    classes = probabilities.shape[1]
    total = np.zeros(classes)
    for sequence in itertools.product(range(classes), repeat=len(probabilities)):
        weight = probabilities[0, sequence[0]]
        for row in range(1, len(probabilities)):
            since = start[row] - start[row - 1]
            stay = math.exp(-since / dwell)
            same = sequence[row] == sequence[row - 1]
            weight *= (stay if same else 0) + (1 - stay) / classes
            weight *= probabilities[row, sequence[row]] ** min(since / 10, 1)
        total[sequence[-1]] += weight
    return int(total.argmax())


@pytest.mark.parametrize("dwell", [2.0, 15.0, 200.0])
def test_filtering_is_the_sum_over_all_sequences(dwell):
    start, changed = np.cumsum([0, 3, 3, 10, 25, 3]), 0
    for seed in range(10):
        probabilities = drawn(6, seed=seed)
        found = filter_classes(probabilities, np.zeros(6, int), start, 10, dwell)
        wanted = [by_enumeration(probabilities[: n + 1], start[: n + 1], dwell) for n in range(6)]
        assert found.tolist() == wanted
        changed += int((found != probabilities.argmax(1)).sum())
    assert changed > 0


def test_filtering_does_not_mix_recordings_nor_depend_on_the_order_of_rows():
    probabilities, recording = drawn(40), np.arange(40) % 3
    start = np.arange(40) // 3 * 4
    whole = filter_classes(probabilities, recording, start, 10, 30.0)
    for one in range(3):
        mine = recording == one
        alone = filter_classes(probabilities[mine], recording[mine], start[mine], 10, 30.0)
        np.testing.assert_array_equal(whole[mine], alone)
    order = np.random.default_rng(1).permutation(40)
    shuffled = filter_classes(probabilities[order], recording[order], start[order], 10, 30.0)
    np.testing.assert_array_equal(shuffled, whole[order])


def test_filtering_never_rules_a_class_out():
    sure = np.array([[1.0, 0.0], *[[0.0, 1.0]] * 3])
    assert filter_classes(sure, np.zeros(4, int), np.arange(4) * 10, 10, 1e6)[-1] == 1


# Rhythm and energy, and their ranks.


def walk(rhythm: np.ndarray, strength: np.ndarray, recording: np.ndarray) -> Windows:
    """Windows of pure waves, one after the other within each recording."""
    time = np.arange(LENGTH) / RATE
    signal = strength[:, None] * np.sin(2 * np.pi * rhythm[:, None] * time)
    start = np.zeros(len(rhythm), int)
    for one in np.unique(recording):
        mine = recording == one
        start[mine] = np.arange(mine.sum()) * LENGTH
    windows = Windows.from_signal(signal[:, None], {"subject": recording}, RATE)
    return replace(windows, recording=recording, start=start)


def random_walk(people: int, each: int, seed: int = 0) -> Windows:
    rng = np.random.default_rng(seed)
    recording = np.repeat(np.arange(people), each)
    own = rng.uniform(-0.5, 0.5, (2, people))[:, recording]
    moment = rng.normal(size=(2, people * each)) * 0.1
    return walk(4 * np.exp(own[0] + moment[0]), np.exp(own[1] + moment[1]), recording)


def of(windows: Windows, reference: str = "recording", memory: int = 100) -> Movement:
    return Movement.of(windows, np.zeros(len(windows), int), reference, memory)


def test_rhythm_and_energy_are_those_of_the_wave():
    windows = walk(np.array([2.0, 5.0]), np.array([1.0, 3.0]), np.zeros(2, int))
    rhythm, energy = np.exp(rhythm_and_energy(windows)).T
    np.testing.assert_allclose(rhythm, [2.0, 5.0], atol=0.05)
    np.testing.assert_allclose(energy, [0.5, 4.5], rtol=0.02)


def test_complex_windows_by_their_magnitude_images_and_silence_by_nothing():
    real = random_walk(1, 5)
    turned = real.replaced((np.abs(real.signal) * np.exp(0.3j)).astype(np.complex64))
    plain = rhythm_and_energy(real.replaced(np.abs(real.signal)))
    np.testing.assert_allclose(rhythm_and_energy(turned), plain, atol=1e-3)
    np.testing.assert_allclose(rhythm_and_energy(replace(turned, real=True)), plain, atol=1e-3)
    assert not rhythm_and_energy(Windows.from_signal(np.ones((3, 1, 16, 16)))).any()
    silence = Windows.from_signal(np.zeros((2, 1, 64)), sample_rate=RATE)
    assert np.isfinite(rhythm_and_energy(silence)).all()


@pytest.mark.parametrize("memory", [1, 4, 1000])
def test_ranks_are_those_among_earlier_windows(memory):
    """Against counting the earlier windows that lie below, and one in the middle."""
    windows = random_walk(3, 12)
    found = of(windows, memory=memory)
    for row in range(len(windows)):
        mine = windows.recording == windows.recording[row]
        earlier = np.flatnonzero(mine & (windows.start < windows.start[row]))[-memory:]
        below = (found.values[earlier] < found.values[row]).sum(0)
        np.testing.assert_allclose(found.ranks[row], (below + 1) / (len(earlier) + 2))


def test_ranks_of_overlapping_windows_count_what_they_hold():
    """At a quarter of the stride, four windows lie in the middle instead of one."""
    windows = random_walk(1, 12)
    dense = of(replace(windows, start=windows.start // 4))
    below = of(windows).ranks * (np.arange(12) + 2)[:, None] - 1
    wanted = (below + 2.5) / (np.arange(12) + 5)[:, None]
    np.testing.assert_allclose(dense.ranks[1:], wanted[1:])
    assert (dense.ranks[0] == 0.5).all()


def test_people_of_few_rhythms_have_the_bins_of_everybody():
    """One rhythm, two, or many: with equal ones in the middle, bins would tell how many."""
    rng = np.random.default_rng(0)
    recording, shares = np.repeat(np.arange(60), 40), []
    for rhythms in ([4.0], [4.0, 5.0], np.linspace(3, 6, 500)):
        rhythm = rng.choice(rhythms, len(recording))
        windows = walk(rhythm, np.exp(rng.normal(size=len(recording))), recording)
        values = rhythm_and_energy(windows)[:, 0].round(6)  # waves of one rhythm measure alike
        assert len(np.unique(values)) <= 2 * len(rhythms)
        late = np.tile(np.arange(40) >= 10, 60)
        bins = (of(windows).ranks[late, 0] * 3).astype(int)
        shares.append(np.bincount(bins, minlength=3) / late.sum())
    np.testing.assert_allclose(shares, 1 / 3, atol=0.06)


def test_tie_breaks_are_uniform_and_always_the_same():
    windows = random_walk(20, 50)
    found = random_tie_breaks(windows)
    assert found.shape == (1000, 2)
    for which in (0, 1):
        assert abs(np.sort(found[:, which]) - (np.arange(1000) + 0.5) / 1000).max() < 0.06
    assert abs(np.corrcoef(found.T)[0, 1]) < 0.1
    order = np.random.default_rng(0).permutation(1000)
    np.testing.assert_array_equal(random_tie_breaks(windows.select(order)), found[order])
    assert (random_tie_breaks(replace(windows, start=windows.start + 1)) != found).all()
    louder = windows.replaced(windows.signal * np.float32(1.001))
    assert (random_tie_breaks(louder) != found).all()


def test_classes_have_pasts_of_their_own():
    windows = random_walk(1, 10)
    classes = np.arange(10) % 2
    both = Movement.of(windows, classes, "recording", 100)
    for one in (0, 1):
        alone = of(windows.select(classes == one))
        np.testing.assert_allclose(both.ranks[classes == one], alone.ranks)


def test_single_clips_rank_among_earlier_clips_of_the_person():
    clips = random_walk(2, 6)
    clips = replace(clips, recording=np.arange(12), start=np.zeros(12, int))
    assert (of(clips).ranks == 0.5).all()
    np.testing.assert_allclose(of(clips, "person").ranks, of(random_walk(2, 6)).ranks)


# Codes and donors.


def test_bins_have_equal_shares_and_the_first_window_is_in_the_middle():
    movement = of(random_walk(40, 30))
    encoder = Encoder(3, 5).fit(movement, 1)
    codes = encoder.encode(movement)
    assert encoder.count == 15
    late = np.tile(np.arange(30) >= 10, 40)  # a short past is near the middle
    np.testing.assert_allclose(np.bincount(codes[late] // 5) / 800, 1 / 3, atol=0.05)
    np.testing.assert_allclose(np.bincount(codes[late] % 5) / 800, 1 / 5, atol=0.07)
    assert (codes[::30] == 1 * 5 + 2).all()


def test_donors_are_placed_among_all_and_every_code_has_its_share():
    movement = of(random_walk(40, 30))
    codes = Encoder(3, 3).fit(movement, 1).donor_codes(movement)
    rhythm = [movement.values[codes // 3 == part, 0] for part in range(3)]
    assert rhythm[0].max() <= rhythm[1].min() <= rhythm[1].max() <= rhythm[2].min()
    for part in range(3):
        calm, strong = (movement.values[codes == 3 * part + end, 1] for end in (0, 2))
        assert calm.max() < strong.min()
    # Even where the fast are strong too, no code is made of the few exceptions.
    linked = replace(movement, values=np.stack([movement.values[:, 0]] * 2, axis=1))
    for one in (movement, linked):
        counts = np.bincount(Encoder(5, 3).fit(one, 1).donor_codes(one), minlength=15)
        assert 1200 / 15 - 2 <= counts.min() <= counts.max() <= 1200 / 15 + 2


def test_extremes_of_each_class_are_not_emitted():
    movement = replace(of(random_walk(10, 40)), classes=np.arange(400) % 2)
    mask = typical(movement)
    for one in (0, 1):
        values, mine = movement.values[movement.classes == one], mask[movement.classes == one]
        ranks = values.argsort(0).argsort(0)
        np.testing.assert_array_equal(mine, ((ranks >= 10) & (ranks < 190)).all(1))
    assert typical(movement.select(np.arange(20))).all()  # of ten a class nothing can be spared
    assert typical(replace(movement, values=np.zeros((400, 2)))).all()  # images


def two_waves(count: int, seed: int = 0) -> Windows:
    """Two channels with a wave and its octave in each, in shares that differ."""
    rng, time = np.random.default_rng(seed), np.arange(LENGTH) / RATE
    waves = np.sin(2 * np.pi * np.array([[4.0], [8.0]]) * time)
    return Windows.from_signal(rng.uniform(0, 1, (count, 2, 2)) @ waves, sample_rate=RATE)


def test_clear_rhythms_stay_the_same_in_other_units():
    windows = two_waves(400)
    clear, changes = runner_up_ratio(windows) <= MAX_RUNNER_UP, np.zeros(400, bool)
    for factor in (MAX_RUNNER_UP, 1 / MAX_RUNNER_UP):  # of the power of one channel
        other = windows.replaced(windows.signal * np.sqrt([[1.0], [factor]]))
        shift = rhythm_and_energy(other)[:, 0] - rhythm_and_energy(windows)[:, 0]
        changes |= np.abs(shift) > np.log(1.5)
    assert not changes[clear].any()
    assert changes[~clear].any()
    assert 0.3 < clear.mean() < 0.95
    np.testing.assert_array_equal(clear_rhythm(windows, np.zeros(400, int)), clear)
    # Extremes are those among windows with a clear rhythm.
    movement, mask = of(windows), donor_mask(windows, of(windows))
    np.testing.assert_array_equal(mask[clear], typical(movement.select(clear)))
    assert not mask[~clear].any()


def test_runner_up_ratio_by_amplitudes():
    time = np.arange(LENGTH) / RATE
    waves = np.sin(2 * np.pi * np.array([[4.0], [8.0]]) * time)
    signal = np.array([[1.0, 0.0], [1.0, 0.5], [0.9, 1.0]]) @ waves
    plain = Windows.from_signal(signal[:, None], sample_rate=RATE)
    np.testing.assert_allclose(runner_up_ratio(plain), [0.0, 0.25, 0.81], atol=1e-6)
    turned = plain.replaced(((signal + 3)[:, None] * np.exp(0.3j)).astype(np.complex64))
    np.testing.assert_allclose(runner_up_ratio(turned), [0.0, 0.25, 0.81], atol=1e-4)
    for nothing in (np.zeros((2, 1, LENGTH)), np.ones((3, 1, 16, 16))):
        assert not runner_up_ratio(Windows.from_signal(nothing)).any()


def test_half_of_a_class_without_rhythm_remains():
    noise = np.random.default_rng(0).normal(size=(100, 1, LENGTH))
    noise[:50] = np.sin(2 * np.pi * 4 * np.arange(LENGTH) / RATE)
    windows = Windows.from_signal(noise, sample_rate=RATE)
    assert (runner_up_ratio(windows)[50:] > MAX_RUNNER_UP).mean() > 0.5
    mask = clear_rhythm(windows, np.repeat([0, 1], 50))
    assert mask[:50].all()
    assert mask[50:].sum() == 25


def test_absolute_bins_are_those_of_donors_and_classes_do_not_mix():
    movement = of(random_walk(10, 20), "none")
    encoder = Encoder(3, 3).fit(movement, 1)
    np.testing.assert_array_equal(encoder.encode(movement), encoder.donor_codes(movement))
    classes = np.random.default_rng(0).integers(2, size=200)
    movement = Movement.of(random_walk(10, 20), classes, "recording", 100)
    encoder = Encoder(3, 1).fit(movement, 2)
    np.testing.assert_array_equal(encoder.encode(movement) // 3, classes)
    again = Encoder.restored(encoder.state())
    assert again.count == encoder.count
    np.testing.assert_array_equal(again.encode(movement), encoder.encode(movement))


def test_the_nearest_code_is_of_the_class_where_possible():
    encoder = Encoder(3, 3)
    encoder.num_classes_ = 2
    available = np.zeros(18, bool)
    available[[0, 8, 17]] = True
    nearest = encoder.nearest(available)
    assert nearest[[0, 8, 17]].tolist() == [0, 8, 17]
    assert nearest[1] == 0  # one bin away, against three
    assert nearest[5] == 8
    assert (nearest[9:] == 17).all()
    available[9:] = False
    assert available[encoder.nearest(available)].all()


# Randomised response.


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_randomized_codes_have_warners_probabilities(epsilon):
    """And so no output is more than e^epsilon times as likely for one code as for another."""
    count, draws = 4, 40_000
    rng = np.random.default_rng(0)
    other = 1 / (math.exp(epsilon) + count - 1)
    table = np.full((count, count), other) + np.eye(count) * (1 - count * other)
    assert np.max(table[:, None] / table[None]) == pytest.approx(math.exp(epsilon))
    for code in range(count):
        released = randomize_codes(np.full(draws, code), count, np.full(draws, epsilon), rng)
        share = np.bincount(released, minlength=count) / draws
        error = np.sqrt(table[code] * (1 - table[code]) / draws)
        assert (np.abs(share - table[code]) < 5 * error).all()


def test_no_group_spends_more_than_its_budget():
    rng = np.random.default_rng(0)
    group, start = rng.integers(5, size=200), rng.permutation(200)
    epsilon = rng.uniform(0.1, 1.0, 200)
    allowed = epsilon_within_budget(epsilon, np.full(200, 4.0), group, start)
    for one in range(5):
        order = np.flatnonzero(group == one)[np.argsort(start[group == one])]
        assert allowed[order].sum() <= 4.0
        stopped = np.flatnonzero(allowed[order] == 0)
        # From the first that is stopped on, all are; and it would have been too much.
        assert (np.diff(stopped) == 1).all()
        assert stopped[-1] == len(order) - 1
        assert epsilon[order][: stopped[0] + 1].sum() > 4.0
    exact = epsilon_within_budget(np.full(12, 0.1), np.ones(12), np.zeros(12, int), np.arange(12))
    assert (exact > 0).sum() == 10


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_randomised_response_stays_below_its_accuracy(epsilon):
    """Two classes, released by randomised response over all runs of three: by enumeration."""
    honest = math.exp(epsilon) / (1 + math.exp(epsilon))
    prior = (0.7, 0.3)
    joint = [
        [prior[y] * math.prod(honest if c == y else 1 - honest for c in run) for y in (0, 1)]
        for run in itertools.product((0, 1), repeat=3)
    ]
    assert np.max(joint, axis=1).sum() <= private_accuracy(0.7, 3 * epsilon)
