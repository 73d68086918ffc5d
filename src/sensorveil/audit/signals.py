"""What survives of the signal itself: rhythm, energy, spectrum, movement, and a few windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sensorveil.audit.movement import compare_cadence, intensity_error, recording_step_error
from sensorveil.audit.results import Example, SignalUtility
from sensorveil.data.signal_features import (
    acceleration_channels,
    band_levels,
    dominant_frequency,
    energy,
    power_spectrum,
    spectrum_distance,
    step_counts,
    within_correlation,
)
from sensorveil.data.windows import Scaling, Windows

if TYPE_CHECKING:
    import pandas as pd

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
    """What is left of rhythm, energy, spectrum and movement; of images, nothing is said.

    Complex channels count by their magnitude, and all are in standard units of the raw windows.
    Movement is compared where some channel is an acceleration, in the units recorded: steps and
    cadence in windows of people who walk, intensity in all.

    Parameters
    ----------
    raw, hidden
        Windows and their output, in the same order.
    keep
        The attributes whose true class says who walks.

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> signal_utility(windows, windows).frequency_error
    0.0
    """
    if len(raw.shape) > 2 or raw.length < _SHORTEST or len(raw) == 0:
        return SignalUtility()
    raw, hidden = _as_magnitude(raw), _as_magnitude(hidden)
    scaling = Scaling.of(raw)
    before, after = (_Described.of(windows.scaled(scaling)) for windows in (raw, hidden))
    quiet = [np.log(np.maximum(one.energy, _QUIET)) for one in (before, after)]
    walking = walking_windows(raw, keep)
    recorded, output = raw.recorded, hidden.recorded
    cadence = compare_cadence(recorded, output, walking)
    return SignalUtility(
        frequency_error=float(np.abs(before.frequency - after.frequency).mean()),
        frequency_correlation=within_correlation(before.frequency, after.frequency, raw.recording),
        energy_error=float(np.abs(quiet[0] - quiet[1]).mean()),
        energy_correlation=within_correlation(before.energy, after.energy, raw.recording),
        spectrum_distance=spectrum_distance(before.spectrum, after.spectrum),
        spectrum_correlation=within_correlation(before.levels, after.levels, raw.recording),
        step_error=_step_error(recorded, output, walking),
        recording_step_error=recording_step_error(recorded, output, walking),
        cadence_correlation=cadence.correlation,
        cadence_error=cadence.error,
        cadence_reference=cadence.reference,
        intensity_error=intensity_error(recorded, output),
    )


def utility_table(
    raw: Windows, outputs: Mapping[str, Windows], keep: Sequence[str] = ()
) -> pd.DataFrame:
    """The signal utility of several outputs of the same windows: one row each, by name.

    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> float(utility_table(windows, {"none": windows}).loc["none", "frequency_error"])
    0.0
    """
    import pandas as pd

    rows = {name: asdict(signal_utility(raw, hidden, keep)) for name, hidden in outputs.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def _as_magnitude(windows: Windows) -> Windows:
    return replace(windows, store=np.abs(windows.store)) if windows.is_complex else windows


@dataclass(frozen=True)
class _Described:
    """Frequency, energy and levels of bands of each window, and the mean spectrum of all."""

    frequency: np.ndarray
    energy: np.ndarray
    levels: np.ndarray
    spectrum: np.ndarray

    @classmethod
    def of(cls, windows: Windows) -> _Described:
        frequencies, energies, levels, spectra = [], [], [], []
        for batch in windows.batches(_BATCH):
            power = power_spectrum(batch)
            frequencies.append(dominant_frequency(power, windows.sample_rate, windows.length))
            energies.append(energy(batch))
            levels.append(band_levels(power))
            spectra.append(power.sum(0, dtype=np.float64))
        return cls(
            np.concatenate(frequencies),
            np.concatenate(energies),
            np.concatenate(levels),
            np.sum(spectra, axis=0),
        )


def _step_error(raw: Windows, hidden: Windows, walking: np.ndarray | None) -> float | None:
    """Mean of |steps after - steps before| / steps before, where there were any."""
    channels = acceleration_channels(raw.channels)
    if walking is None or not channels:
        return None
    before, after = (
        np.concatenate(
            [
                step_counts(batch[:, channels], raw.sample_rate)
                for batch in windows.select(walking).batches(_BATCH)
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
