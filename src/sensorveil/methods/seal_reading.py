"""Seal's reading of what is kept: what earlier windows of a recording showed counts as well.

People go on with what they do for seconds, and windows overlap. So what a classifier reads in one
window is weighed against what it read before, by the forward recursion of a hidden Markov model:
after a time t the class is the same with probability e^(-t / steady), and else any. A sample that
several windows share is evidence once: a window counts by the part of it that is new. Nothing of
later windows is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def elapsed(recording: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Samples since the window before in the same recording began; infinite for the first.

    >>> elapsed(np.array([0, 1, 0]), np.array([10, 0, 0])).tolist()
    [10.0, inf, inf]
    """
    since = np.full(len(start), np.inf)
    if len(start) < 2:  # a stream asks for every window
        return since
    order = np.lexsort([start, recording])
    same = recording[order[1:]] == recording[order[:-1]]
    since[order[1:]] = np.where(same, np.diff(start[order]), np.inf)
    return since


def followed(
    shares: np.ndarray, recording: np.ndarray, start: np.ndarray, length: int, steady: float
) -> np.ndarray:
    """The likeliest class of each window, after all that its recording has shown up to there.

    `shares` (n, classes) are the probabilities that single windows give, `steady` is in samples
    like `start` and `length`. With 0 every window is read by itself.

    >>> shares = np.array([[0.9, 0.1], [0.4, 0.6], [0.05, 0.95], [0.05, 0.95]])
    >>> recording, start = np.zeros(4, int), np.arange(4) * 64
    >>> followed(shares, recording, start, 128, 256).tolist()
    [0, 0, 1, 1]
    >>> followed(shares, recording, start, 128, 0).tolist()
    [0, 1, 1, 1]
    """
    if not steady or len(shares) < 2:
        return shares.argmax(1)
    since = elapsed(recording, start)
    same = np.exp(-since / steady)[:, None]
    belief = np.maximum(shares, 1e-12)  # what is never ruled out can come back
    evidence = belief ** np.minimum(since / length, 1.0)[:, None]
    for here, before in _in_step(recording, start):
        now = (same[here] * belief[before] + (1 - same[here]) / shares.shape[1]) * evidence[here]
        belief[here] = now / now.sum(1, keepdims=True)
    return belief.argmax(1)


def _in_step(recording: np.ndarray, start: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places and the places before them: the second ones of all recordings, then the third, ...

    >>> [(here.tolist(), before.tolist()) for here, before in
    ...     _in_step(np.array([0, 0, 1, 1, 0]), np.array([9, 0, 0, 5, 20]))]
    [([0, 3], [1, 2]), ([4], [0])]
    """
    order = np.lexsort([start, recording])
    _, sizes = np.unique(recording, return_counts=True)
    first = np.cumsum(sizes) - sizes
    for step in range(1, sizes.max()):
        here = first[sizes > step] + step
        yield order[here], order[here - 1]
