"""Windows played one after the other: what a program gets that knows no windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sensorveil.data.windows import Windows


def stretches(windows: Windows) -> list[np.ndarray]:
    """Positions of windows that follow one another without a gap, in order of time.

    Examples
    --------
    >>> from dataclasses import replace
    >>> windows = Windows.from_signal(np.zeros((3, 1, 4)))
    >>> windows = replace(windows, recording=np.zeros(3, int), start=np.array([2, 20, 0]))
    >>> [stretch.tolist() for stretch in stretches(windows)]
    [[2, 0], [1]]
    """
    order = np.lexsort((windows.start, windows.recording))
    starts, recording = windows.start[order], windows.recording[order]
    is_apart = (np.diff(recording) != 0) | (np.diff(starts) > windows.length)
    return np.split(order, np.flatnonzero(is_apart) + 1) if len(order) else []


def streams(windows: Windows) -> Iterator[tuple[int, np.ndarray]]:
    """The signal of each stretch of windows, and the position of its first window.

    Each sample comes from one window. When a window ends, the one goes on that begins last of those
    that hold the next sample. So the streams of raw windows are what was recorded, whatever their
    stride, and those of an output have a seam about once a window.

    Parameters
    ----------
    windows
        In any order.

    Yields
    ------
    int, array of shape (channels, samples)
        The position of the first window, and the signal.

    Examples
    --------
    >>> from dataclasses import replace
    >>> windows = Windows.from_signal(np.array([[[0.0, 1, 2, 3]], [[2, 3, 4, 5]], [[4, 5, 6, 7]]]))
    >>> windows = replace(windows, recording=np.zeros(3, int), start=np.array([0, 2, 4]))
    >>> [(first, signal.tolist()) for first, signal in streams(windows)]
    [(0, [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]])]
    """
    for stretch in stretches(windows):
        places, known = _pieces(windows.start[stretch], windows.length)
        signals = windows.batch(stretch[places])
        parts = [signal[..., first:] for signal, first in zip(signals, known, strict=True)]
        yield int(stretch[0]), np.concatenate(parts, axis=-1)


def _pieces(starts: np.ndarray, length: int) -> tuple[list[int], list[int]]:
    """Which windows of a stretch are played, and how many samples of each have been played."""
    places, known, now = [], [], int(starts[0])
    while now < starts[-1] + length:
        place = int(np.searchsorted(starts, now, side="right")) - 1
        places.append(place)
        known.append(now - int(starts[place]))
        now = int(starts[place]) + length
    return places, known
