"""What survives of the signal itself: rhythm, energy, spectrum, steps, and a few windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sensorveil.audit.results import Example, SignalUtility
from sensorveil.data.signal_features import (
    acceleration_channels,
    dominant_frequency,
    energy,
    power_spectrum,
    spectrum_distance,
    step_counts,
    within_correlation,
)
from sensorveil.data.windows import Scaling, Windows

_BATCH = 1024
_SHORTEST = 8  # samples of a window below which it has no spectrum worth a word
_QUIET = 1e-6  # energy in standard units below which a window counts as still


def walking_windows(windows: Windows, attributes: Sequence[str]) -> np.ndarray | None:
    """Which windows are of a class with 'walk' in its name; None if there is no such class.

    >>> windows = Windows.from_signal(np.zeros((3, 1, 8)), {"activity": [0, 1, 1]})
    >>> windows = replace(windows, classes={"activity": ("Sitting", "Walking")})
    >>> walking_windows(windows, ["activity"])
    array([False,  True,  True])
    """
    found = np.zeros(len(windows), bool)
    for name in attributes:
        walks = [i for i, label in enumerate(windows.classes[name]) if "walk" in label.lower()]
        found |= np.isin(windows.codes(name), walks)
    return found if found.any() else None


def signal_utility(raw: Windows, hidden: Windows, keep: Sequence[str] = ()) -> SignalUtility:
    """What is left of rhythm, energy, spectrum and steps; of images, nothing is said.

    Complex channels count by their magnitude, and all are in standard units of the raw windows.
    Steps are compared where some channel is an acceleration, in windows of people who walk, by
    the class of an attribute in `keep`.
    """
    if len(raw.shape) > 2 or raw.length < _SHORTEST or len(raw) == 0:
        return SignalUtility()
    raw, hidden = _as_magnitude(raw), _as_magnitude(hidden)
    scaling = Scaling.of(raw)
    before, after = (_Described.of(windows.scaled(scaling)) for windows in (raw, hidden))
    quiet = [np.log(np.maximum(one.energy, _QUIET)) for one in (before, after)]
    return SignalUtility(
        frequency_error=float(np.abs(before.frequency - after.frequency).mean()),
        frequency_correlation=within_correlation(before.frequency, after.frequency, raw.recording),
        energy_error=float(np.abs(quiet[0] - quiet[1]).mean()),
        energy_correlation=within_correlation(before.energy, after.energy, raw.recording),
        spectrum_distance=spectrum_distance(before.spectrum, after.spectrum),
        step_error=_step_error(raw, hidden, walking_windows(raw, keep)),
    )


def _as_magnitude(windows: Windows) -> Windows:
    return replace(windows, store=np.abs(windows.store)) if windows.is_complex else windows


@dataclass(frozen=True)
class _Described:
    """Frequency and energy of each window, and the mean spectrum of all."""

    frequency: np.ndarray
    energy: np.ndarray
    spectrum: np.ndarray

    @classmethod
    def of(cls, windows: Windows) -> _Described:
        frequencies, energies, spectra = [], [], []
        for batch in windows.batches(_BATCH):
            power = power_spectrum(batch)
            frequencies.append(dominant_frequency(power, windows.sample_rate, windows.length))
            energies.append(energy(batch))
            spectra.append(power.sum(0, dtype=np.float64))
        return cls(np.concatenate(frequencies), np.concatenate(energies), np.sum(spectra, axis=0))


def _step_error(raw: Windows, hidden: Windows, walking: np.ndarray | None) -> float | None:
    """Mean of |steps after - steps before| / steps before, where there were any."""
    channels = acceleration_channels(raw.channels)
    if walking is None or not channels:
        return None
    before, after = (
        np.concatenate(
            [
                step_counts(batch[:, channels], raw.sample_rate)
                for batch in windows.select(walking).scaled(None).batches(_BATCH)
            ]
        )
        for windows in (raw, hidden)
    )
    some = before > 0
    return float((np.abs(after - before)[some] / before[some]).mean()) if some.any() else None


def examples(raw: Windows, hidden: Windows, count: int) -> tuple[Example, ...]:
    """A few windows before and after, with at most four channels.

    Parameters
    ----------
    raw, hidden
        Windows and their output, in the same order.
    count
        How many; none of images, or with 0.
    """
    if len(raw.shape) == 3 or not count:
        return ()
    chosen = np.linspace(0, len(raw) - 1, count).astype(int)
    before, after = (_drawn(windows.batch(chosen)) for windows in (raw, hidden))
    return tuple(
        Example(
            title=raw.recordings[raw.recording[place]],
            channels=raw.channels[:4],
            sample_rate=raw.sample_rate,
            before=_rows(before[number]),
            after=_rows(after[number]),
        )
        for number, place in enumerate(chosen)
    )


def _drawn(signal: np.ndarray) -> np.ndarray:
    return np.abs(signal) if np.iscomplexobj(signal) else signal


def _rows(window: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(float(value), 4) for value in row) for row in window[:4])
