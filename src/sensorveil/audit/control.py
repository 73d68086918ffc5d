"""The positive control: a leak of known size, planted in the very output that is audited."""

from __future__ import annotations

import numpy as np

from sensorveil.data.windows import UNKNOWN, Scaling, Windows

PLANTED = 0.10
"""The advantage over the majority that the planted leak gives to a perfect attacker."""


def planted_share(largest: float, planted: float = PLANTED) -> float:
    """The share of windows that must carry the mark: share * (1 - majority) = planted.

    >>> planted_share(0.6)
    0.25
    """
    return min(1.0, planted / max(1 - largest, 1e-9))


def plant(
    windows: Windows, codes: np.ndarray, classes: int, share: float, generator: np.random.Generator
) -> Windows:
    """Adds to a random share of the windows a tone whose pitch tells the class.

    Nothing else is changed, so who finds nothing in the output but finds this has looked well.
    """
    marked = (generator.random(len(windows)) < share) & (codes != UNKNOWN)
    deviation = Scaling.of(windows).deviation
    # Pitches lie evenly between zero and half the sampling rate, in cycles per sample.
    pitch = (codes[marked] + 1) / (2 * (classes + 1))
    phase = generator.random(int(marked.sum()))
    time = np.arange(windows.length)
    tone = np.sin(2 * np.pi * (pitch[:, None] * time + phase[:, None]))
    signal = windows.signal
    shape = (len(tone), *(1,) * (signal.ndim - 2), windows.length)
    signal[marked] = signal[marked] + 1.5 * deviation * tone.reshape(shape)
    return windows.replaced(signal)
