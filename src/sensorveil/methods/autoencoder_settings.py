"""The modifier of hidden classes that Blinder shares with ObscureNet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def modified(
    modifier: str,
    sizes: Sequence[int],
    read: np.ndarray | None,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """What the decoder is told of each hidden attribute, side by side: (count, sum of sizes).

    `deterministic` is the class after the one that was read, the first after the last: no class
    stays, and no two become one. `probabilistic` is a class drawn uniformly. `randomized` is a
    stochastic vector; the paper does not say how it is drawn, here uniformly among all of them
    (Dirichlet with ones). The last two need no `read` (count, attributes).

    >>> modified("deterministic", [2, 3], np.array([[1, 0]]), 1, np.random.default_rng(0))
    array([[1., 0., 0., 1., 0.]], dtype=float32)
    """
    parts = []
    for which, size in enumerate(sizes):
        if modifier == "randomized":
            parts.append(rng.dirichlet(np.ones(size), count))
            continue
        if modifier == "probabilistic":
            codes = rng.integers(size, size=count)
        elif read is None:
            raise ValueError("the deterministic modifier needs what was read")
        else:
            codes = (read[:, which] + 1) % size
        parts.append(np.eye(size)[codes])
    return np.concatenate(parts, axis=1).astype(np.float32)
