"""Windows on their way through networks: so many at once, and as real numbers."""

from __future__ import annotations

from collections.abc import Iterator

import torch

PIECE = 2048
"""Windows that go through the networks at once."""


def as_real(signal: torch.Tensor) -> torch.Tensor:
    """A complex channel as two real ones, one after the other.

    >>> as_real(torch.tensor([[[1 + 2j], [3 + 4j]]])).flatten().tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    if not signal.is_complex():
        return signal
    parts = torch.view_as_real(signal).movedim(-1, 2)
    return parts.flatten(1, 2)


def pieces(count: int) -> Iterator[slice]:
    """Rows that go through a network at once.

    >>> [(rows.start, rows.stop) for rows in pieces(5000)]
    [(0, 2048), (2048, 4096), (4096, 5000)]
    """
    for first in range(0, count, PIECE):
        yield slice(first, min(first + PIECE, count))
