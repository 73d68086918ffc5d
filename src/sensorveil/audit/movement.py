"""What a cadence display, a pedometer and an activity tracker get from accelerations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sensorveil.data.signal_features import (
    acceleration_channels,
    energy,
    step_counts,
    step_frequency,
    within_correlation,
)
from sensorveil.data.streams import streams
from sensorveil.data.windows import Windows

_BATCH = 1024
_SHORTEST = 2.0  # seconds below which a signal holds too few steps for a cadence
_INTENSITIES = 3  # low, moderate, high


class Cadence(NamedTuple):
    """How well the cadence of walking people survives; None where there is none to compare.

    Parameters
    ----------
    correlation
        With the raw cadence, within recordings.
    error
        The median distance from the raw cadence, in steps a minute.
    reference
        The same, where each person is given the median of all other people.
    """

    correlation: float | None = None
    error: float | None = None
    reference: float | None = None


def compare_cadence(raw: Windows, hidden: Windows, walking: np.ndarray | None) -> Cadence:
    """Steps a minute of walking people over time, before and after.

    Parameters
    ----------
    raw, hidden
        Windows and their output, in the same order, in the units recorded.
    walking
        Which windows are of walking people; None if nobody walks.

    Examples
    --------
    >>> from dataclasses import replace
    >>> time = np.arange(128) / 50
    >>> slow, fast = (np.sin(2 * np.pi * f * time)[None, None] for f in (1.5, 2.0))
    >>> raw, hidden = (Windows.from_signal(1 + s, sample_rate=50.0) for s in (slow, fast))
    >>> raw = replace(raw, channels=("acceleration",))
    >>> round(compare_cadence(raw, hidden, np.array([True])).error)
    30
    """
    channels = acceleration_channels(raw.channels)
    if walking is None or not channels:
        return Cadence()
    raw, hidden = raw.select(walking), hidden.select(walking)
    before, place = _cadences(raw, channels)
    after, _ = _cadences(hidden, channels)
    known = before > 0
    before, after, place = before[known], after[known], place[known]
    if not len(before):
        return Cadence()
    return Cadence(
        within_correlation(before, after, raw.recording[place]),
        float(np.median(np.abs(after - before))),
        _others_error(before, raw.subject[place]),
    )


def _cadences(windows: Windows, channels: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Steps a minute over time, and the position of a window that says whose they are.

    There is one for each window. Where windows are too short, they are played one after the other,
    and there is one for every two seconds.
    """
    rate = windows.sample_rate
    if windows.length >= _SHORTEST * rate:
        found = [step_frequency(b[:, channels], rate) for b in windows.batches(_BATCH)]
        return 60 * np.concatenate(found), np.arange(len(windows))
    values, places = [], []
    for first, signal in streams(windows):
        count = int(signal.shape[-1] / (_SHORTEST * rate))
        for part in np.array_split(signal[channels], count, axis=-1) if count else ():
            values.append(float(step_frequency(part[None], rate)[0]))
            places.append(first)
    return 60 * np.array(values), np.array(places, int)


def _others_error(cadence: np.ndarray, subject: np.ndarray) -> float | None:
    """Median distance of each person's cadence from the median of all other people."""
    people = np.unique(subject)
    if len(people) < 2:
        return None
    own = [subject == person for person in people]
    far = [np.abs(cadence[mine] - np.median(cadence[~mine])) for mine in own]
    return float(np.median(np.concatenate(far)))


def recording_step_error(raw: Windows, hidden: Windows, walking: np.ndarray | None) -> float | None:
    """Relative error of the steps counted over a whole recording: the median over recordings.

    Windows are played one after the other, so that no step counts twice where they overlap.

    Parameters
    ----------
    raw, hidden, walking
        As in `compare_cadence`.

    Examples
    --------
    >>> from dataclasses import replace
    >>> time = np.arange(1000) / 50
    >>> slow, fast = (np.sin(2 * np.pi * f * time)[None, None] for f in (1.5, 1.8))
    >>> raw, hidden = (Windows.from_signal(1 + s, sample_rate=50.0) for s in (slow, fast))
    >>> raw = replace(raw, channels=("acceleration",))
    >>> round(recording_step_error(raw, hidden, np.array([True])), 2)
    0.2
    """
    channels = acceleration_channels(raw.channels)
    if walking is None or not channels:
        return None
    before, after = (
        _steps_of_recordings(windows.select(walking), channels) for windows in (raw, hidden)
    )
    some = before > 0
    return float(np.median(np.abs(after - before)[some] / before[some])) if some.any() else None


def _steps_of_recordings(windows: Windows, channels: list[int]) -> np.ndarray:
    """Steps of each recording; none in those of which there is no window."""
    steps = np.zeros(len(windows.recordings), int)
    for first, signal in streams(windows):
        steps[windows.recording[first]] += step_counts(signal[None, channels], windows.sample_rate)[
            0
        ]
    return steps


def intensity_error(raw: Windows, hidden: Windows) -> float | None:
    """How far shares of time in low, moderate and high intensity are from raw: the mean distance.

    The intensity is the energy of the acceleration. Its terciles over all raw windows divide the
    three, and the mean is over people and intensities.

    Parameters
    ----------
    raw, hidden
        Windows and their output, in the same order, in the units recorded.

    Examples
    --------
    >>> from dataclasses import replace
    >>> signal = np.array([1.0, 2.0, 3.0])[:, None, None] * np.array([1.0, -1.0])
    >>> raw = replace(Windows.from_signal(signal), channels=("acceleration",))
    >>> round(intensity_error(raw, raw.replaced(3 * signal)), 2)  # all are high
    0.44
    """
    channels = acceleration_channels(raw.channels)
    if not channels:
        return None
    before, after = (
        np.concatenate([energy(batch[:, channels]) for batch in windows.batches(_BATCH)])
        for windows in (raw, hidden)
    )
    cuts = np.quantile(before, np.arange(1, _INTENSITIES) / _INTENSITIES)
    if np.ptp(cuts) == 0:  # nearly all windows are alike, so that there is nothing to divide
        return None
    shares = [_shares(np.searchsorted(cuts, one), raw.subject) for one in (before, after)]
    return float(np.abs(shares[1] - shares[0]).mean())


def _shares(intensity: np.ndarray, subject: np.ndarray) -> np.ndarray:
    """The share of each person's windows in each intensity: (people, intensities)."""
    _, person = np.unique(subject, return_inverse=True)
    table = np.zeros((person.max() + 1, _INTENSITIES))
    np.add.at(table, (person, intensity), 1)
    return table / table.sum(1, keepdims=True)
