"""Codes come from the wearer's past alone, and donors are placed among all."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import percentileofscore

from sensorveil.data.signal_features import dominant_frequency, energy, power_spectrum
from sensorveil.data.windows import Scaling, Windows
from sensorveil.methods.seal_code import (
    DONORS_PER_CODE,
    MAX_RUNNER_UP,
    EarlierValues,
    Encoder,
    Movement,
    clear_rhythm,
    donor_mask,
    feasible_bins,
    features_of,
    filter_classes,
    movement_features,
    random_tie_breaks,
    runner_up_ratio,
    samples_since_previous,
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
def test_filtering_is_the_sum_over_all_sequences(dwell: float) -> None:
    start, changed = np.cumsum([0, 3, 3, 10, 25, 3]), 0
    for seed in range(10):
        probabilities = drawn(6, seed=seed)
        found = filter_classes(probabilities, np.zeros(6, int), start, 10, dwell)
        wanted = [by_enumeration(probabilities[: n + 1], start[: n + 1], dwell) for n in range(6)]
        assert found.tolist() == wanted
        changed += int((found != probabilities.argmax(1)).sum())
    assert changed > 0


def test_filtering_does_not_mix_recordings_nor_depend_on_the_order_of_rows() -> None:
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


def test_filtering_never_rules_a_class_out() -> None:
    sure = np.array([[1.0, 0.0], *[[0.0, 1.0]] * 3])
    assert filter_classes(sure, np.zeros(4, int), np.arange(4) * 10, 10, 1e6)[-1] == 1


# Features of the movement.


def random_signals(length: int, count: int = 40) -> np.ndarray:
    """Waves of any frequency in three channels, with noise, of very different loudness."""
    rng, time = np.random.default_rng(length), np.arange(length)
    wave = np.sin(time * rng.uniform(0.05, 2.5, (count, 1, 1)) + rng.uniform(0, 6, (count, 3, 1)))
    signal = wave * rng.uniform(0, 2, (count, 3, 1)) + 0.3 * rng.normal(size=(count, 3, length))
    return np.exp(rng.normal(size=(count, 1, 1))) * signal + rng.normal(size=(count, 3, 1))


def features(signal: np.ndarray, rate: float = RATE) -> np.ndarray:
    return movement_features(torch.from_numpy(signal), rate).numpy()


def slow_sharpness(window: np.ndarray) -> float:
    """Channel by channel and frequency by frequency, without a fast Fourier transform."""
    length, logs = window.shape[-1], []
    for channel in window:
        tapered = (channel - channel.mean()) * np.hanning(length + 1)[:-1]
        for low, high in itertools.pairwise((1 / 6, 0.3, 0.55, 1.0)):
            power = 0.0
            for number in range(1, length // 2 + 1):
                if low < number / (length / 2) <= high:
                    turns = np.exp(-2j * np.pi * number * np.arange(length) / length)
                    power += abs((tapered * turns).sum()) ** 2
            logs.append(math.log(power))
    return float(np.mean(logs))


@pytest.mark.parametrize("length", [8, 50, 64, 128, 129])
def test_features_are_those_of_independent_functions(length: int) -> None:
    signal = random_signals(length)
    rhythm, strength, sharpness = features(signal).T
    strongest = dominant_frequency(power_spectrum(signal), RATE, length)
    np.testing.assert_allclose(rhythm, np.log(strongest), atol=1e-5)
    np.testing.assert_allclose(strength, np.log(energy(signal)), atol=1e-9)
    np.testing.assert_allclose(sharpness, [slow_sharpness(one) for one in signal], atol=1e-5)


@pytest.mark.parametrize("length", [50, 128])
def test_features_in_single_precision_are_those_in_double(length: int) -> None:
    """A generator's candidates are in single precision, and its donors in double."""
    signal = random_signals(length)
    single = features(signal.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, features(signal), atol=2e-4)


def test_features_in_other_units_are_moved() -> None:
    """Three times the amplitude has nine times the energy; rhythm alone knows of seconds."""
    signal = random_signals(64)
    plain = features(signal)
    louder = plain + np.array([0, math.log(9), math.log(9)])
    np.testing.assert_allclose(features(3 * signal), louder, atol=1e-6)
    np.testing.assert_allclose(features(signal + 5), plain, atol=1e-6)
    np.testing.assert_allclose(
        features(signal, 2 * RATE), plain + np.array([math.log(2), 0, 0]), atol=1e-6
    )
    np.testing.assert_allclose(features(signal[:, ::-1].copy()), plain, atol=1e-6)


def test_features_of_windows_are_those_of_their_units_batch_by_batch() -> None:
    signal = np.tile(random_signals(64), (30, 1, 1)).astype(np.float32)
    windows = Windows.from_signal(signal, sample_rate=RATE)
    assert len(windows) > 1024
    np.testing.assert_allclose(features_of(windows), features(signal.astype(float)), atol=1e-9)
    scaling = Scaling.of(windows)
    wanted = features(scaling.apply(signal).astype(float))
    np.testing.assert_allclose(features_of(windows.standardized(scaling)), wanted, atol=1e-5)


def test_complex_windows_by_their_magnitude() -> None:
    real = random_walk(1, 5)
    turned = real.replaced((np.abs(real.signal) * np.exp(0.3j)).astype(np.complex64))
    plain = features_of(real.replaced(np.abs(real.signal)))
    np.testing.assert_allclose(features_of(turned), plain, atol=1e-3)
    np.testing.assert_allclose(features_of(replace(turned, real=True)), plain, atol=1e-3)


def test_images_have_no_features_and_those_of_silence_are_finite() -> None:
    assert features_of(Windows.from_signal(np.ones((3, 1, 16, 16)))).shape == (3, 0)
    assert features_of(Windows.from_signal(np.ones((3, 1, 7)))).shape == (3, 0)  # too short
    for level in (0.0, 0.1, 1e6):
        silence = Windows.from_signal(np.full((2, 3, 64), level, np.float32), sample_rate=RATE)
        found = features_of(silence)
        assert np.isfinite(found).all()
        np.testing.assert_array_equal(found[0], found[1])
    assert np.isfinite(features(np.zeros((1, 3, 64), np.float32))).all()


# Ranks.


@pytest.mark.parametrize("memory", [1, 4, 30, 1000])
@pytest.mark.parametrize("pseudo", [0.0, 1.0, 12.8])
def test_a_rank_is_the_share_below_with_equal_ones_half(memory: int, pseudo: float) -> None:
    """Against counting; small whole numbers, so that many are equal."""
    rng, past, earlier = np.random.default_rng(memory), EarlierValues(memory), []
    for value in rng.integers(6, size=300).tolist():
        mine = earlier[-memory:]
        below = sum(1.0 if one < value else 0.5 if one == value else 0.0 for one in mine)
        wanted = (below + 0.5 + pseudo / 2) / (len(mine) + 1 + pseudo)
        assert past.rank(float(value), pseudo) == pytest.approx(wanted, abs=1e-12)
        assert 0 < wanted < 1
        earlier.append(value)


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


def ranks_of(movement: Movement) -> np.ndarray:
    assert movement.ranks is not None
    return movement.ranks


def test_rhythm_and_energy_are_those_of_the_wave() -> None:
    windows = walk(np.array([2.0, 5.0]), np.array([1.0, 3.0]), np.zeros(2, int))
    rhythm, strength, _ = np.exp(of(windows).values).T
    np.testing.assert_allclose(rhythm, [2.0, 5.0], atol=0.05)
    np.testing.assert_allclose(strength, [0.5, 4.5], rtol=0.02)


@pytest.mark.parametrize("memory", [1, 4, 1000])
def test_ranks_are_those_among_earlier_windows(memory: int) -> None:
    """Against counting the earlier windows that lie below, and one in the middle."""
    windows = random_walk(3, 12)
    found = of(windows, memory=memory)
    for row in range(len(windows)):
        mine = windows.recording == windows.recording[row]
        earlier = np.flatnonzero(mine & (windows.start < windows.start[row]))[-memory:]
        below = (found.values[earlier] < found.values[row]).sum(0)
        np.testing.assert_allclose(ranks_of(found)[row], (below + 1) / (len(earlier) + 2))


def test_ranks_do_not_depend_on_the_order_of_rows_nor_on_later_windows() -> None:
    windows = random_walk(3, 12)
    order = np.random.default_rng(0).permutation(36)
    found = ranks_of(of(windows))
    np.testing.assert_array_equal(ranks_of(of(windows.select(order))), found[order])
    early = windows.start < 5 * LENGTH
    np.testing.assert_array_equal(ranks_of(of(windows.select(early))), found[early])


def test_ranks_of_overlapping_windows_count_what_they_hold() -> None:
    """At a quarter of the stride, four windows lie in the middle instead of one."""
    windows = random_walk(1, 12)
    dense = ranks_of(of(replace(windows, start=windows.start // 4)))
    below = ranks_of(of(windows)) * (np.arange(12) + 2)[:, None] - 1
    wanted = (below + 2.5) / (np.arange(12) + 5)[:, None]
    np.testing.assert_allclose(dense[1:], wanted[1:])
    assert (dense[0] == 0.5).all()


def test_people_of_few_rhythms_have_the_bins_of_everybody() -> None:
    """One rhythm, two, or many: with equal ones in the middle, bins would tell how many."""
    rng = np.random.default_rng(0)
    recording, shares = np.repeat(np.arange(60), 40), []
    for rhythms in ([4.0], [4.0, 5.0], np.linspace(3, 6, 500)):
        rhythm = rng.choice(rhythms, len(recording))
        windows = walk(rhythm, np.exp(rng.normal(size=len(recording))), recording)
        values = features_of(windows)[:, 0].round(6)  # waves of one rhythm measure alike
        assert len(np.unique(values)) <= 2 * len(rhythms)
        late = np.tile(np.arange(40) >= 10, 60)
        bins = (ranks_of(of(windows))[late, 0] * 3).astype(int)
        shares.append(np.bincount(bins, minlength=3) / late.sum())
    np.testing.assert_allclose(shares, 1 / 3, atol=0.06)


def test_tie_breaks_are_uniform_and_always_the_same() -> None:
    windows = random_walk(20, 50)
    found = random_tie_breaks(windows)
    assert found.shape == (1000, 3)
    for which in range(3):
        assert abs(np.sort(found[:, which]) - (np.arange(1000) + 0.5) / 1000).max() < 0.06
    assert abs(np.corrcoef(found.T) - np.eye(3)).max() < 0.1
    order = np.random.default_rng(0).permutation(1000)
    np.testing.assert_array_equal(random_tie_breaks(windows.select(order)), found[order])
    assert (random_tie_breaks(replace(windows, start=windows.start + 1)) != found).all()
    louder = windows.replaced(windows.signal * np.float32(1.001))
    assert (random_tie_breaks(louder) != found).all()


def test_classes_have_pasts_of_their_own() -> None:
    windows = random_walk(1, 10)
    classes = np.arange(10) % 2
    both = ranks_of(Movement.of(windows, classes, "recording", 100))
    for one in (0, 1):
        alone = ranks_of(of(windows.select(classes == one)))
        np.testing.assert_allclose(both[classes == one], alone)


def test_single_clips_rank_among_earlier_clips_of_the_person() -> None:
    clips = random_walk(2, 6)
    clips = replace(clips, recording=np.arange(12), start=np.zeros(12, int))
    assert (ranks_of(of(clips)) == 0.5).all()
    np.testing.assert_allclose(ranks_of(of(clips, "person")), ranks_of(of(random_walk(2, 6))))


def test_samples_since_the_previous_window() -> None:
    recording, start = np.array([0, 1, 0, 0]), np.array([30, 5, 0, 10])
    assert samples_since_previous(recording, start).tolist() == [20, math.inf, math.inf, 10]


# Codes and donors.


def donors_of(count: int = 600, num_features: int = 3, seed: int = 0) -> Movement:
    """Two classes whose features are distributed otherwise."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(2, size=count)
    values = rng.normal(size=(count, num_features)) ** 3 + 2 * rng.random((count, num_features))
    return Movement(values * (1 + classes[:, None]) + classes[:, None], None, classes)


def among_all(movement: Movement, values: np.ndarray, one: int) -> np.ndarray:
    """The empirical distribution function of a class by scipy, equal values half: (n, features)."""
    donors = movement.values[movement.classes == one]
    by_feature = [
        percentileofscore(donors[:, which], values[:, which], kind="mean")
        for which in range(values.shape[1])
    ]
    return np.stack(by_feature, 1) / 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_among_donors_are_their_distribution_function(dtype: torch.dtype) -> None:
    movement = donors_of()
    encoder = Encoder((3, 3, 3)).fit(movement, 2)
    asked = np.random.default_rng(1).normal(size=(500, 3)) * 4
    asked[0], asked[1] = -1e6, 1e6
    for one in (0, 1):
        ranks = encoder.class_ranks(torch.from_numpy(asked).to(dtype), torch.full((500,), one))
        assert ranks.dtype == dtype
        np.testing.assert_allclose(ranks, among_all(movement, asked, one), atol=0.013)
        assert ranks[0].tolist() == pytest.approx([0, 0, 0])
        assert ranks[1].tolist() == pytest.approx([1, 1, 1])
        for which in range(3):
            assert (np.diff(ranks[np.argsort(asked[:, which]), which]) >= 0).all()


@pytest.mark.parametrize("count", [30, 600])
def test_ranks_of_donors_are_uniform(count: int) -> None:
    movement = donors_of(count)
    ranks = Encoder((3, 3, 3)).fit(movement, 2).donor_ranks(movement)
    for one in (0, 1):
        mine = np.sort(ranks[movement.classes == one], axis=0)
        wanted = np.linspace(0, 1, len(mine))[:, None]
        np.testing.assert_allclose(mine, np.repeat(wanted, 3, 1), atol=0.011 + 0.5 / len(mine))


def test_donors_of_few_rhythms_fill_every_bin() -> None:
    """Four in five slow windows have the lowest frequency that there is, to the bit.

    The ranks of wearers are uniform, so there must be donors of all ranks. And a value that has been
    computed otherwise, so that its last bit differs, has the same rank.
    """
    rng = np.random.default_rng(0)
    slow = np.where(rng.random(500) < 0.8, 0.5, rng.uniform(3, 6, 500))
    windows = walk(slow, np.exp(rng.normal(size=500)), np.zeros(500, int))
    values, counts = np.unique(features_of(windows)[:, 0], return_counts=True)
    lowest = values[counts.argmax()]
    share = counts.max() / 500
    assert share > 0.75
    movement = of(windows)
    encoder = Encoder((5, 1, 1)).fit(movement, 1)
    np.testing.assert_allclose(np.bincount(encoder.donor_codes(movement)), 100, atol=3)
    for dtype in (np.float32, np.float64):
        near = np.nextafter(dtype(lowest), np.array([-9, 9], dtype))
        asked = torch.from_numpy(np.tile(np.array([*near, lowest], dtype)[:, None], (1, 3)))
        rank = encoder.class_ranks(asked, torch.zeros(3, dtype=torch.int64))[:, 0]
        np.testing.assert_allclose(rank, share / 2, atol=0.02)


@pytest.mark.parametrize("bins", [(), (4,), (3, 2), (3, 1, 2)])
def test_codes_have_parts(bins: tuple[int, ...]) -> None:
    encoder = Encoder(bins).fit(donors_of(num_features=len(bins)), 2)
    assert encoder.shape == (2, *bins)
    assert encoder.count == 2 * math.prod(bins)
    codes = np.arange(encoder.count)
    classes, parts = encoder.parts(codes)
    assert parts.shape == (encoder.count, len(bins))
    assert len({(one, *rest) for one, rest in zip(classes, map(tuple, parts), strict=True)}) == (
        encoder.count
    )
    assert (np.bincount(classes) == math.prod(bins)).all()
    np.testing.assert_array_equal(encoder.codes(classes, parts), codes)


def test_bins_have_equal_shares_and_the_first_window_is_in_the_middle() -> None:
    movement = of(random_walk(40, 30))
    encoder = Encoder((3, 5, 3)).fit(movement, 1)
    codes = encoder.encode(movement)
    late = np.tile(np.arange(30) >= 10, 40)  # a short past is near the middle
    for which, (bins, limit) in enumerate([(3, 0.05), (5, 0.07), (3, 0.05)]):
        shares = np.bincount(encoder.parts(codes)[1][late, which]) / 800
        np.testing.assert_allclose(shares, 1 / bins, atol=limit)
    assert encoder.parts(codes[::30])[1].tolist() == [[1, 2, 1]] * 40


def test_donors_are_placed_among_all_and_every_bin_has_its_share() -> None:
    movement = of(random_walk(40, 30))
    encoder = Encoder((3, 4, 2)).fit(movement, 1)
    bins = encoder.parts(encoder.donor_codes(movement))[1]
    for which, count in enumerate(encoder.bins):
        values = [movement.values[bins[:, which] == one, which] for one in range(count)]
        assert all(low.max() <= high.min() for low, high in itertools.pairwise(values))
        np.testing.assert_allclose([len(one) for one in values], 1200 / count, atol=8)


def test_absolute_bins_are_those_of_donors_and_classes_do_not_mix() -> None:
    movement = of(random_walk(10, 20), "none")
    encoder = Encoder((3, 3, 3)).fit(movement, 1)
    np.testing.assert_array_equal(encoder.encode(movement), encoder.donor_codes(movement))
    classes = np.random.default_rng(0).integers(2, size=200)
    movement = Movement.of(random_walk(10, 20), classes, "recording", 100)
    encoder = Encoder((3, 1, 2)).fit(movement, 2)
    for codes in (encoder.encode(movement), encoder.donor_codes(movement)):
        np.testing.assert_array_equal(encoder.parts(codes)[0], classes)


@pytest.mark.parametrize("num_features", [0, 3])
def test_a_restored_encoder_is_the_same(num_features: int) -> None:
    movement = donors_of(num_features=num_features)
    encoder = Encoder((3, 2, 4)[:num_features]).fit(movement, 2)
    again = Encoder.restored(encoder.state())
    assert again.shape == encoder.shape
    np.testing.assert_array_equal(again.donor_ranks(movement), encoder.donor_ranks(movement))
    np.testing.assert_array_equal(again.encode(movement), encoder.encode(movement))


def test_the_nearest_code_is_of_the_class_where_possible() -> None:
    """Against looking at all of them; bins are far apart where there are few."""
    encoder = Encoder((3, 2, 4)).fit(donors_of(), 2)
    classes, bins = encoder.parts(np.arange(48))
    rng = np.random.default_rng(0)
    for share in (0.05, 0.2, 0.8):
        available = rng.random(48) < share
        available[rng.integers(48)] = True
        nearest = encoder.nearest(available)
        assert available[nearest].all()
        np.testing.assert_array_equal(nearest[available], np.flatnonzero(available))
        for code in range(48):
            alike = available & (classes == classes[code])
            among = np.flatnonzero(alike if alike.any() else available)
            distance = np.abs((bins[among] - bins[code]) / [3, 2, 4]).sum(1)
            found = np.abs((bins[nearest[code]] - bins[code]) / [3, 2, 4]).sum()
            assert nearest[code] in among
            assert found == pytest.approx(distance.min())
    alone = Encoder(()).fit(donors_of(num_features=0), 2)
    assert alone.nearest(np.array([True, True])).tolist() == [0, 1]
    assert alone.nearest(np.array([False, True])).tolist() == [1, 1]


@pytest.mark.parametrize("wanted", [(9, 5, 3), (99, 99, 99), (1, 1, 1), (4, 4), (7,), ()])
def test_codes_are_no_more_than_donors_fill(wanted: tuple[int, ...]) -> None:
    for windows in (0, 5, 10, 27, 100, 400, 1349, 1350, 10**7):
        found = feasible_bins(wanted, windows)
        enough = max(1, windows // DONORS_PER_CODE)
        assert all(1 <= bins <= most for bins, most in zip(found, wanted, strict=True))
        assert math.prod(found) <= enough
        if found != wanted:  # not one bin fewer than needed: the last step was too much
            largest = max(bins for bins, most in zip(found, wanted, strict=True) if bins < most)
            assert any(
                math.prod(found) // bins * (bins + 1) > enough
                for bins, most in zip(found, wanted, strict=True)
                if bins < most and bins == largest
            )


def test_extremes_of_each_class_are_not_emitted() -> None:
    movement = replace(of(random_walk(10, 40)), classes=np.arange(400) % 2)
    mask = typical(movement)
    for one in (0, 1):
        values, mine = movement.values[movement.classes == one], mask[movement.classes == one]
        ranks = values.argsort(0).argsort(0)
        np.testing.assert_array_equal(mine, ((ranks >= 10) & (ranks < 190)).all(1))
    assert typical(movement.select(np.arange(20))).all()  # of ten a class nothing can be spared
    assert typical(replace(movement, values=np.zeros((400, 0)))).all()  # images


def two_waves(count: int, seed: int = 0) -> Windows:
    """Two channels with a wave and its octave in each, in shares that differ."""
    rng, time = np.random.default_rng(seed), np.arange(LENGTH) / RATE
    waves = np.sin(2 * np.pi * np.array([[4.0], [8.0]]) * time)
    return Windows.from_signal(rng.uniform(0, 1, (count, 2, 2)) @ waves, sample_rate=RATE)


def test_clear_rhythms_stay_the_same_in_other_units() -> None:
    windows = two_waves(400)
    clear, changes = runner_up_ratio(windows) <= MAX_RUNNER_UP, np.zeros(400, bool)
    for factor in (MAX_RUNNER_UP, 1 / MAX_RUNNER_UP):  # of the power of one channel
        other = windows.replaced(windows.signal * np.sqrt([[1.0], [factor]]))
        shift = features_of(other)[:, 0] - features_of(windows)[:, 0]
        changes |= np.abs(shift) > np.log(1.5)
    assert not changes[clear].any()
    assert changes[~clear].any()
    assert 0.3 < clear.mean() < 0.95
    np.testing.assert_array_equal(clear_rhythm(windows, np.zeros(400, int)), clear)
    # Extremes are those among windows with a clear rhythm.
    movement, mask = of(windows), donor_mask(windows, of(windows))
    np.testing.assert_array_equal(mask[clear], typical(movement.select(clear)))
    assert not mask[~clear].any()


def test_runner_up_ratio_by_amplitudes() -> None:
    time = np.arange(LENGTH) / RATE
    waves = np.sin(2 * np.pi * np.array([[4.0], [8.0]]) * time)
    signal = np.array([[1.0, 0.0], [1.0, 0.5], [0.9, 1.0]]) @ waves
    plain = Windows.from_signal(signal[:, None], sample_rate=RATE)
    np.testing.assert_allclose(runner_up_ratio(plain), [0.0, 0.25, 0.81], atol=1e-6)
    turned = plain.replaced(((signal + 3)[:, None] * np.exp(0.3j)).astype(np.complex64))
    np.testing.assert_allclose(runner_up_ratio(turned), [0.0, 0.25, 0.81], atol=1e-4)
    for nothing in (np.zeros((2, 1, LENGTH)), np.ones((3, 1, 16, 16))):
        assert not runner_up_ratio(Windows.from_signal(nothing)).any()


def test_half_of_a_class_without_rhythm_remains() -> None:
    noise = np.random.default_rng(0).normal(size=(100, 1, LENGTH))
    noise[:50] = np.sin(2 * np.pi * 4 * np.arange(LENGTH) / RATE)
    windows = Windows.from_signal(noise, sample_rate=RATE)
    assert (runner_up_ratio(windows)[50:] > MAX_RUNNER_UP).mean() > 0.5
    mask = clear_rhythm(windows, np.repeat([0, 1], 50))
    assert mask[:50].all()
    assert mask[50:].sum() == 25
