"""Steps, cadence and intensity of walkers who were made with known ones, and of real ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sensorveil.audit.movement import (
    Cadence,
    compare_cadence,
    intensity_error,
    recording_step_error,
)
from sensorveil.audit.signals import signal_utility, walking_windows
from sensorveil.data.catalog import load
from sensorveil.data.signal_features import step_counts
from sensorveil.data.streams import streams
from sensorveil.data.windows import Windows
from sensorveil.methods.baselines import Resample

RATE = 50.0
RAMP = np.linspace(95, 125, 1508)
"""Half a minute that gets faster, in steps a minute."""


def walkers(cadences: Sequence[np.ndarray], length: int = 128, stride: int = 10) -> Windows:
    """Windows of a person and recording for each cadence (samples,), in steps a minute."""
    parts = []
    for cadence in cadences:
        phase = 2 * np.pi * np.cumsum(cadence / 60) / RATE
        size = 1 + 0.3 * np.sin(phase) + 0.1 * np.sin(2 * phase + 0.8)
        parts.append(np.lib.stride_tricks.sliding_window_view(size, length)[::stride])
    recording = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    start = stride * np.concatenate([np.arange(len(part)) for part in parts])
    labels = {"activity": np.zeros(len(recording), int), "subject": recording}
    windows = Windows.from_signal(np.concatenate(parts)[:, None], labels, RATE)
    return replace(
        windows,
        recording=recording,
        start=start,
        channels=("acceleration magnitude",),
        classes={**windows.classes, "activity": ("walking",)},
    )


def everyone(windows: Windows) -> np.ndarray:
    return np.ones(len(windows), bool)


def test_nothing_is_lost_where_nothing_was_done() -> None:
    raw = walkers([np.full(1508, 100.0), np.full(1508, 120.0), RAMP])
    found = compare_cadence(raw, raw, everyone(raw))
    assert found[:2] == (1, 0)
    assert recording_step_error(raw, raw, everyone(raw)) == 0
    assert intensity_error(raw, raw) == 0


def test_the_reference_is_the_median_of_all_other_people() -> None:
    raw = walkers([np.full(1508, cadence) for cadence in (90.0, 100.0, 102.0, 120.0)])
    # Medians of the others: 102, 102, 100, 100.
    expected = np.median([12, 2, 2, 20])
    assert compare_cadence(raw, raw, everyone(raw)).reference == pytest.approx(expected, abs=0.3)
    alone = raw.select(raw.subject == 0)
    assert compare_cadence(alone, alone, everyone(alone)).reference is None


def test_a_constant_cadence_says_nothing_of_the_raw_one() -> None:
    raw = walkers([np.full(1508, 100.0), np.full(1508, 100.0)])
    hidden = raw.replaced(walkers([np.full(1508, 112.0)] * 2).signal)
    assert compare_cadence(raw, hidden, everyone(raw)).error == pytest.approx(12, abs=0.2)
    faster = walkers([RAMP, RAMP])
    same = faster.replaced(np.repeat(hidden.signal[:1], len(faster), axis=0))
    assert compare_cadence(faster, same, everyone(faster)).correlation == 0


@pytest.mark.parametrize(("length", "stride"), [(128, 10), (128, 64), (100, 100), (48, 8)])
def test_a_walk_played_faster_by_a_tenth(length: int, stride: int) -> None:
    """In the last case windows of one second are played one after the other."""
    raw, fast = (walkers([RAMP * warp, RAMP[::-1] * warp], length, stride) for warp in (1, 1.1))
    hidden = raw.replaced(fast.signal)
    found = compare_cadence(raw, hidden, everyone(raw))
    assert found.error == pytest.approx(11, abs=0.5)  # a tenth of the mean, 110
    assert found.correlation == pytest.approx(1, abs=0.03)
    assert recording_step_error(raw, hidden, everyone(raw)) == pytest.approx(0.1, abs=0.03)


def test_phases_do_not_matter_to_a_cadence_display() -> None:
    """Each window of the output begins anywhere in a step."""
    raw = walkers([RAMP, RAMP[::-1]])
    turn = np.random.default_rng(0).integers(0, 27, len(raw))
    shifted = np.stack([np.roll(one, k, axis=-1) for one, k in zip(raw.signal, turn, strict=True)])
    found = compare_cadence(raw, raw.replaced(shifted), everyone(raw))
    assert found.error < 3
    assert found.correlation > 0.7


@pytest.mark.parametrize("stride", [10, 64, 128])
def test_a_known_number_of_steps_whatever_the_stride(stride: int) -> None:
    """One minute and 90, 100 or 150 steps, of windows that overlap or not."""
    raw = walkers([np.full(3072, 100.0)] * 3, stride=stride)
    other = walkers([np.full(3072, cadence) for cadence in (90.0, 100.0, 150.0)], stride=stride)
    played = [step_counts(signal[None], RATE)[0] for _, signal in streams(other)]
    np.testing.assert_allclose(played, (90, 100, 150), atol=4)
    for number, expected in enumerate((0.1, 0.0, 0.5)):
        mine = raw.recording == number
        error = recording_step_error(raw, raw.replaced(other.signal), mine)
        assert error == pytest.approx(expected, abs=0.015)
    error = recording_step_error(raw, raw.replaced(other.signal), everyone(raw))
    assert error == pytest.approx(0.1, abs=0.015)  # the median


def test_steps_of_all_stretches_of_a_recording_are_added() -> None:
    """A walk, a rest that counts as nothing, and a walk."""
    raw = walkers([np.full(3072, 100.0)])
    slow = walkers([np.concatenate([np.full(1536, 100.0), np.full(1536, 80.0)])])
    walking = (raw.start < 1200) | (raw.start > 1600)
    error = recording_step_error(raw, raw.replaced(slow.signal), walking)
    assert error == pytest.approx(0.1, abs=0.02)


def test_intensity_of_known_shares() -> None:
    """Amplitudes 1, 2, 3 for a third of the time each; then one person has 3 and the other 1."""
    wave = np.sin(2 * np.pi * np.arange(50) / 25)
    level = np.tile([1.0, 2.0, 3.0], 40)[:, None, None]
    windows = Windows.from_signal(1 + level * wave, {"subject": np.repeat([0, 1], 60)}, RATE)
    raw = replace(windows, channels=("acc",))
    level[:60], level[60:] = 3.0, 1.0
    # Shares of one third each become 0, 0, 1 and 1, 0, 0.
    expected = np.mean([1 / 3, 1 / 3, 2 / 3, 2 / 3, 1 / 3, 1 / 3])
    assert intensity_error(raw, raw.replaced(1 + level * wave)) == pytest.approx(expected)
    alike = raw.select(np.arange(1, 120, 3))
    assert intensity_error(alike, alike) is None


def test_a_still_output_has_no_steps() -> None:
    raw = walkers([RAMP, RAMP[::-1]])
    still = raw.replaced(np.ones_like(raw.signal))
    found = compare_cadence(raw, still, everyone(raw))
    assert (found.correlation, recording_step_error(raw, still, everyone(raw))) == (0, 1)
    assert found.error == pytest.approx(110, abs=1)
    assert compare_cadence(still, raw, everyone(raw)) == Cadence()
    assert recording_step_error(still, raw, everyone(raw)) is None


def test_where_movement_means_nothing() -> None:
    raw = walkers([RAMP])
    turns = replace(raw, channels=("rotation rate magnitude",))
    for windows, walking in ((raw, None), (turns, everyone(raw))):
        assert compare_cadence(windows, windows, walking) == Cadence()
        assert recording_step_error(windows, windows, walking) is None
    assert intensity_error(turns, turns) is None
    short = walkers([RAMP[:90]], length=90)  # 1.8 s
    assert compare_cadence(short, short, everyone(short)) == Cadence()


def test_all_three_stand_in_the_signal_utility() -> None:
    raw = walkers([RAMP, RAMP[::-1]])
    hidden = raw.replaced(walkers([RAMP * 1.1, RAMP[::-1] * 1.1]).signal)
    found = signal_utility(raw, hidden, ["activity"])
    assert (found.cadence_correlation, found.cadence_error, found.cadence_reference) == (
        compare_cadence(raw, hidden, everyone(raw))
    )
    assert found.recording_step_error == recording_step_error(raw, hidden, everyone(raw))
    assert found.intensity_error == intensity_error(raw, hidden)


@pytest.mark.data
def test_cadence_of_real_walkers(real_data: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORVEIL_DATA", str(real_data))
    split = load("motionsense", "paper")
    test, train = split.test, split.train.select(slice(None, None, 5))
    # An output without power is off by the raw cadence itself.
    walking = walking_windows(test, ["activity"])
    silent = compare_cadence(test, test.replaced(np.zeros_like(test.signal)), walking)
    assert 90 < silent.error < 130
    method = Resample(epochs=2).fit(train, keep="activity", hide="gender")
    found = signal_utility(test, method.obfuscate(test, seed=1), ["activity"])
    assert abs(found.cadence_correlation) < 0.1
    assert abs(found.spectrum_correlation) < 0.05
    assert found.cadence_error > found.cadence_reference
