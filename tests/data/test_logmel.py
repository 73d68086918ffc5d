"""Log-mel spectra against a slow reference and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.data.logmel import BANDS, FLOOR_DB, FRAME, HOP, RATE, log_mel
from sensorveil.errors import Refusal


def _slow_log_mel(waveform: np.ndarray) -> np.ndarray:
    """The definition, one sum after the other, without an FFT."""

    def mel(hertz: float) -> float:
        return 2595 * np.log10(1 + hertz / 700)

    step = (mel(7600) - mel(60)) / 41
    edges = [700 * (10 ** ((mel(60) + i * step) / 2595) - 1) for i in range(42)]
    sample = np.arange(512)
    hann = np.sin(np.pi * sample / 512) ** 2
    columns = []
    for first in range(0, len(waveform) - 511, 256):
        frame = waveform[first : first + 512] * hann
        power = [
            abs(np.sum(frame * np.exp(-2j * np.pi * k * sample / 512))) ** 2 for k in range(257)
        ]
        bands = []
        for low, middle, high in zip(edges, edges[1:], edges[2:], strict=False):
            total = 0.0
            for k in range(257):
                hertz = k * 31.25
                if low < hertz <= middle:
                    total += power[k] * (hertz - low) / (middle - low)
                elif middle < hertz < high:
                    total += power[k] * (high - hertz) / (high - middle)
            bands.append(10 * np.log10(max(total, 1e-9)))
        columns.append(bands)
    return np.array(columns).T


def test_agrees_with_the_slow_definition():
    waveform = np.random.default_rng(0).normal(0, 0.1, FRAME + HOP + 17)
    expected = _slow_log_mel(waveform)
    assert expected.shape == (BANDS, 2)
    np.testing.assert_allclose(log_mel(waveform), expected, atol=1e-4)


def test_silence_has_the_floor_and_only_whole_frames_count():
    levels = log_mel(np.zeros(RATE))
    assert levels.shape == (40, 1 + (RATE - 512) // 256)
    assert (levels == FLOOR_DB).all()


@pytest.mark.parametrize("shape", [(511,), (0,), (2, 600)])
def test_refuses_what_holds_no_frame(shape):
    with pytest.raises(Refusal, match="no whole frame"):
        log_mel(np.zeros(shape))
