"""Independent work on several processor cores."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from sensorveil.progress import listen, track

Result = TypeVar("Result")

_jobs: Sequence[Callable[[], Any]] = ()
"""What the workers of the pool in use choose from; they inherit it and all that it refers to."""


def parallel(jobs: Sequence[Callable[[], Result]], what: str, workers: int = 1) -> list[Result]:
    """The results of all jobs, in order.

    Parameters
    ----------
    jobs
        Functions without arguments. A result is sent between processes, so it must be picklable.
    what
        The name of the progress bar.
    workers
        Processes at work. They are forked, which Linux alone does safely: elsewhere it is one.

    Examples
    --------
    >>> parallel([lambda: 1, lambda: 2], "counting")
    [1, 2]
    """
    global _jobs
    workers = min(workers, len(jobs)) if sys.platform == "linux" else 1
    if workers < 2:
        return [job() for job in track(jobs, what)]
    _jobs = jobs
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(workers, context, initializer=_begin) as pool:
            running = [pool.submit(_work, number) for number in range(len(jobs))]
            try:
                return [one.result() for one in track(running, what)]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        _jobs = ()


def _begin() -> None:
    """A worker has one thread: the other cores have workers of their own."""
    import torch

    torch.set_num_threads(1)


def _work(number: int) -> Any:
    with listen(_silence):
        return _jobs[number]()


def _silence(what: str, done: int, total: int) -> None:
    """The progress of a worker is not shown."""


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
