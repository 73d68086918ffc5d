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
