"""Probes: what a short code of windows says of an attribute beyond the class it is made for."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.measures.linear import LinearReader

_FEWEST = 4
"""People or recordings that it takes to hold some out, and to divide those again."""


@dataclass(frozen=True)
class Probe:
    """How often a class is read right: from the code, and from the kept class alone.

    The difference is what the code says beyond the kept class, as far as a probe that is linear
    within each kept class finds it. `majority` is what guessing gets.
    """

    accuracy: float
    class_alone: float
    majority: float


def held_out_people(windows: Windows, attribute: str, seed: int) -> np.ndarray | None:
    """A mask of the windows of half of the people, and of half of each class of the attribute.

    Where there are fewer than four people, recordings take their place; None where these are too
    few as well.

    >>> labels = {"subject": [0, 0, 1, 2, 3], "gender": [0, 0, 0, 1, 1]}
    >>> windows = Windows.from_signal(np.zeros((5, 1, 4)), labels)
    >>> held = held_out_people(windows, "gender", seed=0)
    >>> [len(np.unique(windows.select(held).labels[name])) for name in ("subject", "gender")]
    [2, 2]
    """
    for unit in (windows.subject, windows.recording):
        units, first, place = np.unique(unit, return_index=True, return_inverse=True)
        if len(units) >= _FEWEST:
            chance = np.random.default_rng(seed).random(len(units))
            order = np.lexsort([chance, windows.codes(attribute)[first]])
            held = np.zeros(len(units), bool)
            held[order[::2]] = True
            return held[place]
    return None


def probe(code: np.ndarray, cells: np.ndarray, windows: Windows, attribute: str) -> Probe | None:
    """Reads an attribute from codes (n, size), of which `cells` (n,) is the kept class they tell.

    Half of the recordings teach the probe and the other half is read, and then the other way
    round: who attacks has labelled recordings of the very people. None where nothing can be read.
    """
    labels = windows.codes(attribute)
    known = labels != UNKNOWN
    half = _halves(windows.recording)
    parts = [known & half, known & ~half]
    if min(len(np.unique(labels[part])) for part in parts) < 2:
        return None
    classes = len(windows.classes[attribute])
    kept = np.eye(int(cells.max()) + 1, dtype=np.float32)[cells]
    # A weight of its own for each kept class: what betrays a walker need not betray a runner.
    both = np.concatenate([kept, (kept[:, :, None] * code[:, None, :]).reshape(len(code), -1)], 1)
    right = {"accuracy": 0, "class_alone": 0}
    for name, rows in (("accuracy", both), ("class_alone", kept)):
        for teach, test in (parts, parts[::-1]):
            reader = LinearReader().fit(rows[teach], labels[teach], classes)
            read = reader.log_probabilities(rows[test]).argmax(1)
            right[name] += int((read == labels[test]).sum())
    total = int(known.sum())
    majority = np.bincount(labels[known]).max() / total
    return Probe(right["accuracy"] / total, right["class_alone"] / total, float(majority))


def probes(code: np.ndarray, cells: np.ndarray, windows: Windows) -> dict[str, dict[str, float]]:
    """`probe` for every attribute that can be read, as plain values."""
    found = {name: probe(code, cells, windows, name) for name in windows.attributes}
    return {name: asdict(one) for name, one in found.items() if one}


def _halves(recording: np.ndarray) -> np.ndarray:
    """A mask of every second recording."""
    _, place = np.unique(recording, return_inverse=True)
    return place % 2 == 0
