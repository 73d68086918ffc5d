"""Log-mel spectra of a waveform, in plain numpy."""

from __future__ import annotations

from functools import cache

import numpy as np

from sensorveil.errors import Refusal

RATE = 16_000
"""Samples a second of the waveforms."""
FRAME = 512
"""Samples in a frame (32 ms), weighted by a Hann window."""
HOP = 256
"""Samples from one frame to the next (16 ms)."""
BANDS = 40
"""Mel bands between `LOWEST` and `HIGHEST` Hz."""
LOWEST, HIGHEST = 60.0, 7600.0
FLOOR_DB = -90.0
"""The level of silence."""


def log_mel(waveform: np.ndarray) -> np.ndarray:
    """Power in 40 mel bands, in dB, as (bands, frames); only whole frames are taken.

    The waveform is at 16 kHz, between -1 and 1. Nothing is normalised: a clip that was recorded
    louder has higher values.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 1000 * np.arange(16_000) / RATE)
    >>> levels = log_mel(tone)
    >>> levels.shape, int(levels[:, 0].argmax())
    ((40, 61), 13)
    """
    if waveform.ndim != 1 or len(waveform) < FRAME:
        raise Refusal(
            f"a waveform of shape {waveform.shape} has no whole frame of {FRAME} samples"
            f" ({1000 * FRAME // RATE} ms); leave the clip out"
        )
    frames = np.lib.stride_tricks.sliding_window_view(waveform, FRAME)[::HOP]
    power = np.abs(np.fft.rfft(frames * _hann(), axis=-1)) ** 2
    in_bands = triangles() @ power.T
    return (10 * np.log10(np.maximum(in_bands, 10 ** (FLOOR_DB / 10)))).astype(np.float32)


@cache
def triangles() -> np.ndarray:
    """The weight of each frequency in each band, (bands, frequencies).

    A band rises from the centre of the band below to 1 at its own and falls to the centre of the
    band above, so between the first and the last centre the weights of a frequency add up to 1.

    Examples
    --------
    >>> triangles().shape, round(float(triangles()[:, 100].sum()), 6)
    ((40, 257), 1.0)
    """
    edges = _edges()[:, None]
    frequencies = np.fft.rfftfreq(FRAME, 1 / RATE)
    below, centre, above = edges[:-2], edges[1:-1], edges[2:]
    rising = (frequencies - below) / (centre - below)
    falling = (above - frequencies) / (above - centre)
    return np.maximum(0.0, np.minimum(rising, falling))


def _edges() -> np.ndarray:
    """Frequencies that are evenly spaced on the mel scale 2595 log10(1 + f / 700)."""
    lowest, highest = (2595 * np.log10(1 + f / 700) for f in (LOWEST, HIGHEST))
    return 700 * (10 ** (np.linspace(lowest, highest, BANDS + 2) / 2595) - 1)


@cache
def _hann() -> np.ndarray:
    """The periodic Hann window, the usual one for spectra."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)
