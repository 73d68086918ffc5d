"""Intermediate results of an audit in a folder, so that an interrupted audit goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.files import written_file

Arrays = Mapping[str, np.ndarray]


def digest_of(*arrays: np.ndarray) -> str:
    """A hash of shapes, types and values.

    >>> digest_of(np.zeros(2)) == digest_of(np.zeros(2))
    True
    >>> digest_of(np.zeros(2)) == digest_of(np.ones(2))
    False
    """
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.shape} {array.dtype}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def windows_digest(windows: Windows) -> str:
    """A hash of the samples, labels and places of windows.

    >>> one = Windows.from_signal(np.zeros((2, 1, 4)), {"gender": [0, 1]})
    >>> other = Windows.from_signal(np.zeros((2, 1, 4)), {"gender": [1, 0]})
    >>> windows_digest(one) == windows_digest(one), windows_digest(one) == windows_digest(other)
    (True, False)
    """
    places = (windows.offset, windows.start, windows.recording)
    labels = (windows.labels[name] for name in sorted(windows.labels))
    text = repr((sorted(windows.classes.items()), windows.recordings, windows.channels))
    numbers = digest_of(windows.store, *places, *labels)
    return hashlib.sha256(f"{text} {windows.sample_rate} {numbers}".encode()).hexdigest()


class Store:
    """Arrays by key, in a folder or nowhere.

    Parameters
    ----------
    folder
        Where to keep them; None keeps nothing, and everything is made anew.
    about
        What everything depends on: settings, the run, the data. Another `about` finds nothing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     first = Store(Path(place), {"seed": 0}).arrays("one", lambda: {"x": np.zeros(2)})
    ...     again = Store(Path(place), {"seed": 0}).arrays("one", lambda: {"x": np.ones(2)})
    >>> again["x"].tolist()
    [0.0, 0.0]
    """

    def __init__(self, folder: Path | None = None, about: Any = None) -> None:
        self.folder = folder
        self.about = json.dumps(about, sort_keys=True, default=_plain)

    def arrays(self, key: str, make: Callable[[], Arrays]) -> Arrays:
        """The arrays of a key: those in the folder, or new ones."""
        if self.folder is None:
            return make()
        digest = hashlib.sha256(f"{self.about}\n{key}".encode()).hexdigest()[:24]
        place = self.folder / f"{digest}.npz"
        if place.exists():
            with np.load(place, allow_pickle=False) as found:
                return dict(found)
        made = make()
        self.folder.mkdir(parents=True, exist_ok=True)
        with written_file(place) as temporary, open(temporary, "wb") as handle:
            np.savez(handle, allow_pickle=False, **made)
        return made

    def output(self, key: str, windows: Windows, make: Callable[[], Windows]) -> Windows:
        """The output for some windows: their labels, and a signal that is kept."""
        if self.folder is None:
            return make()
        found = self.arrays(key, lambda: {"signal": make().signal})
        return replace(windows.recorded.replaced(found["signal"]), origin=windows.origin)


def _plain(value: Any) -> str:
    return digest_of(value) if isinstance(value, np.ndarray) else str(value)
