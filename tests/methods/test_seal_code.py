"""Codes count from the wearer's past alone, and donors are placed among all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.data.windows import Windows
from sensorveil.methods.seal_code import (
    RIVAL,
    Encoder,
    Movement,
    Past,
    afforded,
    distinct,
    lots,
    measured,
    offered,
    rivals,
    usual,
)

LENGTH, RATE = 64, 32.0


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
    generator = np.random.default_rng(seed)
    recording = np.repeat(np.arange(people), each)
    own = generator.uniform(-0.5, 0.5, (2, people))[:, recording]
    moment = generator.normal(size=(2, people * each)) * 0.1
    return walk(4 * np.exp(own[0] + moment[0]), np.exp(own[1] + moment[1]), recording)


def of(windows: Windows, past: str = "recording", memory: int = 100) -> Movement:
    return Movement.of(windows, np.zeros(len(windows), int), past, memory)


def test_rhythm_and_intensity_are_those_of_the_wave():
    windows = walk(np.array([2.0, 5.0]), np.array([1.0, 3.0]), np.zeros(2, int))
    rhythm, intensity = np.exp(measured(windows)).T
    np.testing.assert_allclose(rhythm, [2.0, 5.0], atol=0.05)
    np.testing.assert_allclose(intensity, [0.5, 4.5], rtol=0.02)


def test_magnitudes_of_complex_windows_and_nothing_of_images():
    real = random_walk(1, 5)
    turned = real.replaced((np.abs(real.signal) * np.exp(0.3j)).astype(np.complex64))
    plain = real.replaced(np.abs(real.signal))
    np.testing.assert_allclose(measured(turned), measured(plain), atol=1e-3)
    assert not measured(Windows.from_signal(np.ones((3, 1, 16, 16)))).any()


def test_silence_is_finite():
    assert np.isfinite(measured(Windows.from_signal(np.zeros((2, 1, 64)), sample_rate=RATE))).all()


@pytest.mark.parametrize("memory", [1, 4, 1000])
def test_ranks_are_those_among_earlier_windows(memory):
    """Against counting the earlier windows that lie below, and one in the middle."""
    windows = random_walk(3, 12)
    found = of(windows, memory=memory)
    for place in range(len(windows)):
        mine = windows.recording == windows.recording[place]
        earlier = np.flatnonzero(mine & (windows.start < windows.start[place]))[-memory:]
        below = (found.values[earlier] < found.values[place]).sum(0)
        np.testing.assert_allclose(found.ranks[place], (below + 1) / (len(earlier) + 2))


def test_a_past_of_overlapping_windows_counts_as_what_they_hold():
    """At a quarter of the stride, four windows lie in the middle instead of one."""
    windows = random_walk(1, 12)
    dense = of(replace(windows, start=windows.start // 4))
    below = of(windows).ranks * (np.arange(12) + 2)[:, None] - 1
    wanted = (below + 2.5) / (np.arange(12) + 5)[:, None]
    np.testing.assert_allclose(dense.ranks[1:], wanted[1:])
    assert (dense.ranks[0] == 0.5).all()


def test_where_nothing_is_measured_all_rank_in_the_middle():
    past = Past(10)
    assert [past.rank(1.0) for _ in range(5)] == [0.5] * 5
    images = Windows.from_signal(np.random.default_rng(0).normal(size=(6, 1, 16, 16)))
    together = replace(images, recording=np.zeros(6, int), start=np.arange(6))
    assert (of(together).ranks == 0.5).all()


def test_who_moves_in_few_ways_has_the_levels_of_everybody():
    """One rhythm, two, or many: were equal ones in the middle, levels would tell how many."""
    generator = np.random.default_rng(0)
    recording = np.repeat(np.arange(60), 40)
    shares = []
    for rhythms in ([4.0], [4.0, 5.0], np.linspace(3, 6, 500)):
        rhythm = generator.choice(rhythms, len(recording))
        windows = walk(rhythm, np.exp(generator.normal(size=len(recording))), recording)
        values = measured(windows)[:, 0].round(6)  # waves of one rhythm measure alike
        assert len(np.unique(values)) <= 2 * len(rhythms)
        ranks = of(windows).ranks
        late = np.tile(np.arange(40) >= 10, 60)
        shares.append(np.bincount((ranks[late, 0] * 3).astype(int), minlength=3) / late.sum())
    np.testing.assert_allclose(shares, 1 / 3, atol=0.06)


def test_lots_are_even_their_own_and_always_the_same():
    windows = random_walk(20, 50)
    drawn = lots(windows)
    assert drawn.shape == (1000, 2)
    for which in (0, 1):
        assert abs(np.sort(drawn[:, which]) - (np.arange(1000) + 0.5) / 1000).max() < 0.06
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.1
    shuffled = np.random.default_rng(0).permutation(1000)
    np.testing.assert_array_equal(lots(windows.select(shuffled)), drawn[shuffled])
    moved = replace(windows, start=windows.start + 1)
    assert (lots(moved) != drawn).all()
    louder = windows.replaced(windows.signal * np.float32(1.001))
    assert (lots(louder) != drawn).all()


def test_levels_of_windows_in_no_order_tell_nobody_apart():
    """Calm and lively people, with few or many rhythms: all levels, and all pairs, are alike."""
    generator = np.random.default_rng(0)
    draws = [
        lambda size: generator.normal(size=size),
        lambda size: 50 + 30 * generator.standard_t(2, size=size),
        lambda size: np.where(generator.random(size) < 0.8, 0, 9) + generator.random(size),
    ]
    for draw in draws:
        pairs = np.zeros((3, 3))
        for _ in range(300):
            past = Past(600)
            levels = (np.array([past.rank(value) for value in draw(60)])[12:] * 3).astype(int)
            np.add.at(pairs, (levels[:-1], levels[1:]), 1)
        np.testing.assert_allclose(pairs / pairs.sum(), 1 / 9, atol=0.012)


def test_later_windows_change_nothing():
    windows = random_walk(2, 20)
    signal = windows.signal
    late = windows.start >= 10 * LENGTH
    signal[late] = np.random.default_rng(1).normal(size=signal[late].shape)
    one, other = of(windows), of(windows.replaced(signal))
    np.testing.assert_array_equal(one.ranks[~late], other.ranks[~late])
    assert (one.ranks[late] != other.ranks[late]).any()


def test_the_order_in_which_windows_lie_does_not_matter():
    windows = random_walk(3, 10)
    shuffled = np.random.default_rng(0).permutation(len(windows))
    np.testing.assert_allclose(of(windows.select(shuffled)).ranks, of(windows).ranks[shuffled])


def test_a_stream_gives_what_all_at_once_gives():
    windows = random_walk(1, 15)
    past, whole = Past(100), of(windows)
    np.testing.assert_array_equal([past.rank(v, 1) for v in whole.values[:, 0]], whole.ranks[:, 0])


def test_how_fast_strong_and_varied_somebody_is_leaves_no_trace():
    """Twice as strong and as fast, and three times as varied: other values, the same ranks."""
    recording = np.zeros(30, int)
    moment = np.random.default_rng(0).normal(size=(2, 30)) * 0.05
    calm = of(walk(3 * np.exp(moment[0]), np.exp(moment[1]), recording))
    lively = of(walk(6 * np.exp(3 * moment[0]), 2 * np.exp(3 * moment[1]), recording))
    assert (lively.values > calm.values).all()
    # Windows hold no whole number of waves, so both are measured a little wrong.
    assert np.abs(lively.ranks - calm.ranks).mean() < 0.05


def test_classes_have_pasts_of_their_own():
    windows = random_walk(1, 10)
    read = np.arange(10) % 2
    both = Movement.of(windows, read, "recording", 100)
    for one in (0, 1):
        alone = of(windows.select(read == one))
        np.testing.assert_allclose(both.ranks[read == one], alone.ranks)


def test_single_clips_count_from_earlier_clips_of_the_person():
    clips = random_walk(2, 6)
    clips = replace(clips, recording=np.arange(12), start=np.zeros(12, int))
    assert (of(clips).ranks == 0.5).all()
    np.testing.assert_allclose(of(clips, "person").ranks, of(random_walk(2, 6)).ranks)


def test_levels_have_equal_shares_and_the_first_window_is_in_the_middle():
    movement = of(random_walk(40, 30))
    encoder = Encoder(3, 5).fit(movement, 1)
    codes = encoder.encode(movement)
    assert encoder.count == 15
    late = np.tile(np.arange(30) >= 10, 40)  # a short past is near the middle
    np.testing.assert_allclose(np.bincount(codes[late] // 5) / 800, 1 / 3, atol=0.05)
    np.testing.assert_allclose(np.bincount(codes[late] % 5) / 800, 1 / 5, atol=0.07)
    assert (codes[::30] == 1 * 5 + 2).all()


def test_donors_are_placed_by_what_they_are_among_all():
    movement = of(random_walk(40, 30))
    encoder = Encoder(3, 3).fit(movement, 1)
    given = encoder.donated(movement)
    rhythm = [movement.values[given // 3 == level, 0] for level in range(3)]
    assert rhythm[0].max() <= rhythm[1].min() <= rhythm[1].max() <= rhythm[2].min()
    for level in range(3):
        calm, strong = (movement.values[given == 3 * level + part, 1] for part in (0, 2))
        assert calm.max() < strong.min()


def test_extremes_of_each_class_are_not_given_out():
    movement = of(random_walk(10, 40))
    movement = replace(movement, read=np.arange(400) % 2)
    kept = usual(movement)
    for one in (0, 1):
        values, mine = movement.values[movement.read == one], kept[movement.read == one]
        ranks = values.argsort(0).argsort(0)
        np.testing.assert_array_equal(mine, ((ranks >= 10) & (ranks < 190)).all(1))
    few = movement.select(np.arange(20))  # ten of each class: nothing can be spared
    assert usual(few).all()
    still = replace(movement, values=np.zeros((400, 2)))  # images have no movement
    assert usual(still).all()


def two_waves(count: int, seed: int = 0) -> Windows:
    """Two channels with a wave and its octave in each, in shares that differ."""
    generator, time = np.random.default_rng(seed), np.arange(LENGTH) / RATE
    waves = np.sin(2 * np.pi * np.array([[4.0], [8.0]]) * time)
    share = generator.uniform(0, 1, (count, 2, 2))
    return Windows.from_signal(share @ waves, sample_rate=RATE)


def test_distinct_windows_have_their_rhythm_in_other_units_too():
    windows = two_waves(400)
    certain = rivals(windows) <= RIVAL
    flips = np.zeros(400, bool)
    for factor in (RIVAL, 1 / RIVAL):  # of the power of one channel
        other = windows.replaced(windows.signal * np.sqrt([[1.0], [factor]]))
        flips |= np.abs(measured(other)[:, 0] - measured(windows)[:, 0]) > np.log(1.5)
    assert not flips[certain].any()
    assert flips[~certain].any()
    assert 0.3 < certain.mean() < 0.95
    np.testing.assert_array_equal(distinct(windows, np.zeros(400, int)), certain)


def test_what_is_strong_elsewhere_is_measured_by_amplitudes():
    time = np.arange(LENGTH) / RATE
    waves = np.sin(2 * np.pi * np.array([[4.0], [8.0]]) * time)
    signal = np.array([[1.0, 0.0], [1.0, 0.5], [0.9, 1.0]]) @ waves
    expected = [0.0, 0.25, 0.81]
    plain = Windows.from_signal(signal[:, None], sample_rate=RATE)
    np.testing.assert_allclose(rivals(plain), expected, atol=1e-6)
    turned = plain.replaced(((signal + 3)[:, None] * np.exp(0.3j)).astype(np.complex64))
    np.testing.assert_allclose(rivals(turned), expected, atol=1e-4)
    assert not rivals(Windows.from_signal(np.zeros((2, 1, LENGTH)))).any()
    assert not rivals(Windows.from_signal(np.ones((3, 1, 16, 16)))).any()


def test_of_a_class_without_rhythm_half_stays():
    noise = np.random.default_rng(0).normal(size=(100, 1, LENGTH))
    read = np.repeat([0, 1], 50)
    noise[:50] = np.sin(2 * np.pi * 4 * np.arange(LENGTH) / RATE)
    windows = Windows.from_signal(noise, sample_rate=RATE)
    assert (rivals(windows)[50:] > RIVAL).mean() > 0.5
    chosen = distinct(windows, read)
    assert chosen[:50].all()
    assert chosen[50:].sum() == 25
    assert rivals(windows)[50:][chosen[50:]].max() <= np.median(rivals(windows)[50:])


def test_extremes_are_those_of_the_distinct():
    windows = two_waves(400)
    movement = of(windows)
    kept, certain = offered(windows, movement), distinct(windows, movement.read)
    np.testing.assert_array_equal(kept[certain], usual(movement.select(certain)))
    assert not kept[~certain].any()


def test_every_code_has_its_share_of_donors():
    """Even where who is fast is strong too: no code is made of the few who are an exception."""
    movement = of(random_walk(40, 30))
    linked = replace(movement, values=np.stack([movement.values[:, 0]] * 2, axis=1))
    for one in (movement, linked):
        counts = np.bincount(Encoder(5, 3).fit(one, 1).donated(one), minlength=15)
        assert counts.min() >= 1200 / 15 - 2
        assert counts.max() <= 1200 / 15 + 2


def test_without_a_past_a_level_is_that_of_a_donor():
    movement = of(random_walk(10, 20), "none")
    encoder = Encoder(3, 3).fit(movement, 1)
    np.testing.assert_array_equal(encoder.encode(movement), encoder.donated(movement))


def test_codes_of_classes_do_not_mix():
    windows = random_walk(10, 20)
    read = np.random.default_rng(0).integers(2, size=200)
    movement = Movement.of(windows, read, "recording", 100)
    encoder = Encoder(3, 1).fit(movement, 2)
    np.testing.assert_array_equal(encoder.encode(movement) // 3, read)


def test_nearest_stays_in_the_class_where_it_can():
    encoder = Encoder(3, 3)
    encoder.classes_ = 2
    there = np.zeros(18, bool)
    there[[0, 8, 17]] = True
    nearest = encoder.nearest(there)
    assert nearest[[0, 8, 17]].tolist() == [0, 8, 17]
    assert nearest[1] == 0  # one level away, against three
    assert nearest[5] == 8
    assert (nearest[9:] == 17).all()
    there[9:] = False
    assert there[encoder.nearest(there)].all()


def test_an_encoder_comes_back_from_its_arrays():
    movement = of(random_walk(5, 20))
    encoder = Encoder(5, 1).fit(movement, 1)
    again = Encoder.restored(encoder.state())
    assert again.count == encoder.count
    np.testing.assert_array_equal(again.encode(movement), encoder.encode(movement))


@pytest.mark.parametrize("windows", [1, 9, 10, 57, 449, 450, 10_000])
def test_as_many_levels_as_donors_allow(windows):
    rhythm, intensity = afforded(9, 5, windows)
    assert rhythm * intensity <= max(1, windows // 10)
    assert 1 <= intensity <= 5
    assert intensity <= rhythm <= 9
    assert (rhythm, intensity) == (9, 5) or 10 * rhythm * intensity > windows // 2 - 10
