"""Rhythm, energy, spectrum and steps of signals that were made with known ones."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.data.signal_features import (
    acceleration_channels,
    band_levels,
    dominant_frequency,
    power_spectrum,
    spectrum_distance,
    step_counts,
    step_frequency,
    within_correlation,
)
from sensorveil.data.simulated import Simulated

RATE, LENGTH = 50.0, 128
TIME = np.arange(LENGTH) / RATE


def waves(frequency: np.ndarray, seed: int = 0, noise: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 2 * np.pi, len(frequency))
    wave = np.sin(2 * np.pi * frequency[:, None] * TIME + phase[:, None])
    return wave[:, None] + noise * rng.normal(size=(len(frequency), 1, LENGTH))


def test_the_frequency_of_sines_between_the_bins() -> None:
    frequency = np.linspace(1.2, 20, 60)
    found = dominant_frequency(power_spectrum(waves(frequency)), RATE, LENGTH)
    np.testing.assert_allclose(found, frequency, atol=0.03)  # bins lie 0.39 Hz apart
    noisy = dominant_frequency(power_spectrum(waves(frequency, noise=0.3)), RATE, LENGTH)
    np.testing.assert_allclose(noisy, frequency, atol=0.12)


def test_channels_are_added_and_their_level_does_not_count() -> None:
    quiet, loud = waves(np.array([2.0])), 2 * waves(np.array([6.0]), seed=1)
    both = np.concatenate([quiet, loud], axis=1) + 1000
    assert dominant_frequency(power_spectrum(both), RATE, LENGTH)[0] == pytest.approx(6, abs=0.05)


def test_distance_between_spectra() -> None:
    slow, fast = (power_spectrum(waves(np.full(4, f))).mean(0) for f in (2.0, 9.0))
    assert spectrum_distance(slow, slow) == 0
    assert spectrum_distance(slow, 7 * slow) == pytest.approx(0, abs=1e-12)
    assert spectrum_distance(slow, fast) > 0.99
    assert spectrum_distance(slow, slow + fast) == pytest.approx(0.5, abs=0.01)
    silent = np.zeros_like(slow)
    assert spectrum_distance(slow, silent) == 1
    assert spectrum_distance(silent, silent) == 0


@pytest.mark.parametrize("cadence", [1.0, 1.6, 1.9, 2.5])
def test_steps_of_a_recording(cadence: float) -> None:
    """A minute of gait with a second harmonic, sway, noise and gravity: one peak for each step."""
    rng = np.random.default_rng(2)
    time = np.arange(3000) / RATE
    turn = 2 * np.pi * cadence * time
    up = 9.81 + 2 * np.sin(turn) + 0.8 * np.sin(2 * turn + 0.8) + 0.5 * np.sin(0.1 * time)
    forward = 0.7 * np.cos(turn + 0.4)
    signal = np.stack([up, forward, 0.2 * np.sin(turn / 2)])[None]
    signal += 0.3 * rng.normal(size=signal.shape)
    assert abs(int(step_counts(signal, RATE)[0]) - round(60 * cadence)) <= 1


@pytest.mark.parametrize("cadence", [1.2, 1.6, 1.9, 2.5, 2.9])
def test_cadence_of_short_signals(cadence: float) -> None:
    """Sway and a slow turn of the phone below the band, harmonics above it, and noise."""
    rng = np.random.default_rng(1)
    turn = 2 * np.pi * (cadence * TIME + rng.uniform(size=(200, 1)))
    up = 9.81 + 2 * np.sin(turn) + 0.8 * np.sin(2 * turn + 0.8) + 3 * np.sin(2 * np.pi * 0.3 * TIME)
    signal = np.stack([up, 0.7 * np.cos(turn + 0.4)], axis=1)
    signal += 0.3 * rng.normal(size=signal.shape)
    found = step_frequency(signal, RATE)
    assert np.median(np.abs(found - cadence)) < 0.03


def test_cadence_of_simulated_people() -> None:
    simulation = Simulated(people=20, recordings=1, windows=10)
    windows = simulation.corpus().windows(128, 128)
    truth = simulation.truth
    values = truth.values[:, truth.population.parameters.index("cadence")]
    true = np.exp(np.log(1.9) + 0.05 * values)  # as the table of the simulation says
    channels = acceleration_channels(windows.channels)
    found = step_frequency(windows.signal[:, channels], windows.sample_rate)
    assert np.median(np.abs(found - true)) < 0.03
    assert np.corrcoef(found, true)[0, 1] > 0.9


def test_no_power_no_cadence() -> None:
    still = np.full((2, 3, LENGTH), 9.81)
    assert step_frequency(still, RATE).tolist() == [0, 0]
    assert step_frequency(waves(np.full(2, 0.9)), 1.5).tolist() == [0, 0]  # no bin in the band


def test_levels_of_bands_are_sums_of_power() -> None:
    rng = np.random.default_rng(0)
    power = power_spectrum(rng.normal(size=(3, 2, LENGTH)))
    levels = np.exp(band_levels(power)).reshape(3, 2, -1)
    np.testing.assert_allclose(levels.sum(-1), power.sum(-1))
    np.testing.assert_allclose(levels[..., 0], power[..., 0])
    # 3.125 Hz is the eighth bin; the bands below begin with the bins 1, 2, 3, 4 and 6.
    assert band_levels(power_spectrum(waves(np.array([3.125])))).argmax() == 5
    assert band_levels(np.ones((1, 1, 4))).shape == (1, 4)
    assert np.isfinite(band_levels(np.zeros((1, 1, 64)))).all()


def test_which_channels_are_accelerations() -> None:
    names = ("rotation rate magnitude", "acceleration magnitude")
    assert acceleration_channels(names) == [1]
    assert acceleration_channels(("ax", "ay", "az", "wx", "wy", "wz")) == [0, 1, 2]
    assert acceleration_channels(("antenna 0 subcarrier 3",)) == []


def test_correlation_within_recordings_against_numpy() -> None:
    rng = np.random.default_rng(4)
    raw, other = rng.normal(size=(2, 60))
    recording = np.arange(60) // 20
    other += raw
    expected = np.mean(
        [np.corrcoef(raw[r == recording], other[r == recording])[0, 1] for r in range(3)]
    )
    assert within_correlation(raw, other, recording) == pytest.approx(expected)


def test_correlation_of_many_values_is_the_mean_over_those_that_vary() -> None:
    rng = np.random.default_rng(5)
    raw, other = rng.normal(size=(2, 60, 4))
    other += raw * np.array([0.0, 1.0, 2.0, 3.0])
    raw[:, 3] = 7.0
    recording = rng.integers(0, 3, 60)
    each = [within_correlation(raw[:, k], other[:, k], recording) for k in range(4)]
    assert each[3] is None
    assert within_correlation(raw, other, recording) == pytest.approx(np.mean(each[:3]))


def test_recordings_that_say_nothing() -> None:
    rising, still = np.arange(10.0), np.full(10, 3.3)
    together, apart = np.zeros(10, int), np.arange(10)
    assert within_correlation(rising, rising, apart) is None
    assert within_correlation(still, rising, together) is None
    assert within_correlation(rising, still, together) == 0
    assert within_correlation(rising, -rising, together) == -1
