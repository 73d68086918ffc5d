"""Which test windows insiders learn from, and which they attack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sensorveil.data.splits import Split

_FEWEST = 300
"""Windows below which half of the test is too little to learn from."""


def insider_halves(split: Split, keep: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Which test windows leak with labels, and which are then attacked: (positions, positions).

    Where people are new to the obfuscator, half of them leak. Where they are not, it is one half of
    each recording, without windows that overlap with the other half. Where a recording is one
    window, it is half of each person's windows of each `keep` class. A test that is too small
    gives no halves.
    """
    test = split.test
    if not set(test.subject) & set(split.train.subject):
        people = np.random.default_rng(0).permutation(np.unique(test.subject))
        first = np.isin(test.subject, people[: len(people) // 2])
        halves = [(first, ~first), (~first, first)]
    else:
        begin = np.full(len(test.recordings), np.iinfo(np.int64).max)
        end = np.zeros(len(test.recordings), np.int64)
        np.minimum.at(begin, test.recording, test.start)
        np.maximum.at(end, test.recording, test.start + test.length)
        if (end - begin <= test.length).all():  # a recording is one window
            first = _random_half(test.joint_codes(["subject", *keep]))
            halves = [(first, ~first), (~first, first)]
        else:
            middle = ((begin + end) // 2)[test.recording]
            late = test.start >= middle
            halves = [
                (test.start + test.length <= middle, late),
                (test.start >= middle + test.length, ~late),
            ]
    found = [(np.flatnonzero(known), np.flatnonzero(attacked)) for known, attacked in halves]
    return found if min(len(known) for known, _ in found) >= _FEWEST else []


def _random_half(groups: np.ndarray) -> np.ndarray:
    """Which windows are in the first of two halves, each with half of every group.

    Were the halves left to chance, a person of whom many windows of a class leaked would have few
    left to be attacked, and could be recognised by that alone.

    >>> np.bincount(np.array([0, 0, 0, 0, 1, 1])[_random_half(np.array([0, 0, 0, 0, 1, 1]))])
    array([2, 1])
    """
    rng = np.random.default_rng(0)
    order = rng.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    _, begin, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    place = np.arange(len(groups)) - np.repeat(begin - rng.integers(2, size=len(begin)), sizes)
    first = np.empty(len(groups), bool)
    first[order] = place % 2 == 0
    return first
