"""Pictures of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sensorveil.data.windows import UNKNOWN, Windows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LINES = 12
"""More channels than this are drawn as a map."""


def plot_window(windows: Windows, index: int, ax: Axes | None = None) -> Axes:
    """Draws one window: its channels over time, or an image (see `Windows.plot`)."""
    from matplotlib import pyplot

    axes = ax or pyplot.subplots()[1]
    signal = windows.batch(np.array([index]))[0]
    if windows.is_complex:
        signal = np.abs(signal)
    seconds = np.arange(windows.length) / windows.sample_rate
    if signal.ndim == 3:
        axes.imshow(signal.mean(0), cmap="gray")
        axes.set_axis_off()
    elif len(signal) > _MOST_LINES:
        end = windows.length / windows.sample_rate
        axes.imshow(signal, aspect="auto", extent=(0, end, len(signal), 0))
        axes.set(xlabel="seconds", ylabel="channel")
    else:
        names = windows.channels if len(signal) == len(windows.channels) else range(len(signal))
        for channel, name in zip(signal, names, strict=True):
            axes.plot(seconds, channel, label=str(name))
        axes.set(xlabel="seconds")
        axes.legend()
    axes.set_title(_title(windows, index))
    return axes


def _title(windows: Windows, index: int) -> str:
    recording = windows.recordings[windows.recording[index]]
    start = windows.start[index] / windows.sample_rate
    known = [
        f"{name} {windows.classes[name][codes[index]]}"
        for name, codes in windows.labels.items()
        if name != "subject" and codes[index] != UNKNOWN
    ]
    return ", ".join([f"{recording}, from {start:g} s", *known])
