"""Random draws of torch that depend on a seed and on nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derived(seed: int, use: int) -> int:
    """Another seed for another use, so that two networks of one seed are not the same network.

    >>> derived(0, 1) != derived(0, 2) != derived(1, 1)
    True
    """
    return int(np.random.SeedSequence([seed, use]).generate_state(1)[0])


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
