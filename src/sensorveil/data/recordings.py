"""What a loader returns: recordings as the authors publish them, before any protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sensorveil.errors import Refusal


@dataclass(frozen=True)
class Recording:
    """One continuous signal of one person, with its labels.

    `signal` is (channels, samples), for an image (channels, height, width): the last axis is the
    one that windows are cut along. A label is one value for the whole recording (text or number,
    None where unknown) or an array with one value per sample. `time` (seconds, one per sample) is
    given only where the samples are not evenly spaced.
    """

    name: str
    subject: str
    signal: np.ndarray
    labels: Mapping[str, Any] = field(default_factory=dict)
    time: np.ndarray | None = None


@dataclass(frozen=True)
class Recordings:
    """All recordings of a dataset, with the names of their channels and their rate in Hz.

    >>> walk = Recording("walk-1", "ann", np.zeros((2, 500), "float32"), {"activity": "walking"})
    >>> Recordings((walk,), channels=("acc", "gyro"), sample_rate=50.0).hours
    0.002777777777777778
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

    @property
    def hours(self) -> float:
        """Recorded time of all recordings together."""
        return sum(item.signal.shape[-1] for item in self.items) / self.sample_rate / 3600


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
