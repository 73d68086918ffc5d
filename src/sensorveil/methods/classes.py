"""The classes that a policy's attributes make together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sensorveil.data.windows import UNKNOWN, Windows

READER = 1
"""What a method's own readers are seeded for: they must not be the networks that judge it."""


def joint_classes(windows: Windows, attributes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """One class for each combination that occurs: a code for each window, and the combinations.

    A window that lacks one of the labels has code UNKNOWN.

    >>> labels = {"activity": [0, 0, 2], "gender": [1, 0, 1]}
    >>> windows = Windows.from_signal(np.zeros((3, 1, 4)), labels)
    >>> codes, combinations = joint_classes(windows, ["activity", "gender"])
    >>> codes.tolist(), combinations.tolist()
    ([1, 0, 2], [[0, 0], [0, 1], [2, 1]])
    """
    columns = np.stack([windows.codes(name) for name in attributes], axis=1)
    known = (columns != UNKNOWN).all(1)
    combinations, inverse = np.unique(columns[known], axis=0, return_inverse=True)
    codes = np.full(len(windows), UNKNOWN)
    codes[known] = inverse.reshape(-1)
    return codes, combinations


def balanced_rows(kept: np.ndarray, hidden: np.ndarray, seed: int) -> np.ndarray:
    """Rows, of which as many have each hidden class that occurs within a kept class.

    Those of a rarer class are taken more than once, none of them more than once oftener than
    another; rows of code UNKNOWN are a class like others.

    >>> kept, hidden = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    >>> sorted(balanced_rows(kept, hidden, seed=0).tolist())
    [0, 1, 2, 2, 3]
    """
    generator, rows = np.random.default_rng(seed), []
    for one in np.unique(kept):
        among = hidden[kept == one]
        classes, counts = np.unique(among, return_counts=True)
        own = np.flatnonzero(kept == one)
        rows += [
            np.resize(generator.permutation(own[among == name]), counts.max()) for name in classes
        ]
    return np.concatenate(rows)
