"""Recordings as the authors of a dataset publish them, before any protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sensorveil.errors import Refusal


@dataclass(frozen=True)
class Recording:
    """One continuous signal of one person, with its labels.

    Parameters
    ----------
    name : str
        A name that no other recording of the dataset has.
    subject : str
        The person.
    signal : array of shape (channels, samples) or (channels, height, width)
        Windows are cut along the last axis.
    labels : mapping of str to value or array
        One value for the whole recording (text, a number, or None where unknown), or an array with
        one value a sample.
    time : array of shape (samples,), optional
        Seconds; only where the samples are not evenly spaced.
    """

    name: str
    subject: str
    signal: np.ndarray
    labels: Mapping[str, Any] = field(default_factory=dict)
    time: np.ndarray | None = None


@dataclass(frozen=True, repr=False)
class Recordings:
    """All recordings of a dataset.

    Parameters
    ----------
    items : tuple of Recording
        The recordings.
    channels : tuple of str
        The names of the channels, the same in every recording.
    sample_rate : float
        Samples a second.

    Examples
    --------
    >>> walk = Recording("walk-1", "ann", np.zeros((2, 500), "float32"), {"activity": "walking"})
    >>> Recordings((walk,), channels=("acc", "gyro"), sample_rate=50.0)
    <Recordings: 1 of 1 people, 0.00 hours at 50 Hz, channels acc, gyro>
    """

    items: tuple[Recording, ...]
    channels: tuple[str, ...]
    sample_rate: float

    def __post_init__(self) -> None:
        if not self.items:
            raise Refusal("no recording was found; check the folder and its layout")
        seen: set[str] = set()
        for item in self.items:
            _check(item, len(self.channels))
            if item.name in seen:
                raise Refusal(f"recording '{item.name}' appears twice; names must be unique")
            seen.add(item.name)

    @classmethod
    def by_name(
        cls, items: Iterable[Recording], channels: tuple[str, ...], sample_rate: float
    ) -> Recordings:
        """The recordings in the order of their names."""
        return cls(tuple(sorted(items, key=lambda item: item.name)), channels, sample_rate)

    def __repr__(self) -> str:
        people = len({item.subject for item in self.items})
        return (
            f"<Recordings: {len(self.items)} of {people} people, {self.hours:.2f} hours at"
            f" {self.sample_rate:g} Hz, channels {shortened(self.channels)}>"
        )

    @property
    def hours(self) -> float:
        """Recorded time of all recordings together."""
        return sum(item.signal.shape[-1] for item in self.items) / self.sample_rate / 3600


def shortened(names: tuple[str, ...], most: int = 8) -> str:
    """Some names in one line.

    Examples
    --------
    >>> shortened(("a", "b", "c"), most=2)
    'a, b, ... (3)'
    """
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])}, ... ({len(names)})"


def _check(item: Recording, channels: int) -> None:
    """Refuses a signal that would spoil everything after it."""
    signal, where = item.signal, f"recording '{item.name}'"
    if signal.ndim < 2 or signal.shape[0] != channels:
        raise Refusal(f"{where} has shape {signal.shape}, but {channels} channels are named")
    if signal.shape[-1] == 0:
        raise Refusal(f"{where} is empty")
    bad = ~np.isfinite(signal)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        kind = "NaN" if np.isnan(signal[place]) else "an infinite value"
        raise Refusal(
            f"{where} holds {kind} at channel {place[0]}, sample {place[-1]};"
            " repair or leave out the recording"
        )
    for name, value in item.labels.items():
        if isinstance(value, np.ndarray) and len(value) != signal.shape[-1]:
            raise Refusal(
                f"{where}: label '{name}' has {len(value)} values for {signal.shape[-1]} samples"
            )
