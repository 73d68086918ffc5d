"""Random draws of torch that depend on a seed and on nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Everything drawn inside (initial weights, dropout) comes from `seed`; outside is untouched.

    >>> before = torch.get_rng_state()
    >>> with seeded(1):
    ...     first = torch.rand(1)
    >>> with seeded(1):
    ...     second = torch.rand(1)
    >>> bool(first == second), bool((before == torch.get_rng_state()).all())
    (True, True)
    """
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
