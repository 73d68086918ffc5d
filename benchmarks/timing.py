"""How long something takes."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter


def median_seconds(work: Callable[[], object], repeats: int, warm: bool = True) -> float:
    """The median time of some calls, after one that does not count where it is to be `warm`."""
    if warm:
        work()
    times = []
    for _ in range(repeats):
        started = perf_counter()
        work()
        times.append(perf_counter() - started)
    return median(times)
