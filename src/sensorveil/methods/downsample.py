"""Downsampling: fewer samples a second, drawn out to the old rate again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch.nn.functional import interpolate

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.settings import Settings


class DownsampleSettings(Settings):
    """`factor`: how many neighbouring samples (or pixels each way) become one mean."""

    factor: float = 8.0

    def check(self) -> None:
        """Refuses to draw samples apart."""
        self.require(self.factor >= 1, "factor", "at least 1")


class Downsample(Obfuscator):
    """Averages blocks of samples, then draws straight lines between the means.

    >>> signal = np.arange(16.0).reshape(2, 1, 8)
    >>> windows = Windows.from_signal(signal, {"activity": [0, 1], "gender": [1, 0]})
    >>> obfuscator = Downsample(factor=4).fit(windows, keep="activity", hide="gender")
    >>> obfuscator.obfuscate(windows).signal[0, 0].round(2).tolist()
    [1.5, 1.5, 2.0, 3.0, 4.0, 5.0, 5.5, 5.5]
    """

    name = "downsample"
    summary = "a lower sampling rate, drawn out to the old one"
    capabilities = Capabilities(
        random=False,
        strengths={"factor": "samples that become one mean, at least 1; higher hides more"},
    )
    Settings = DownsampleSettings
    settings: DownsampleSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        pass

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        factors = strength.get("factor", np.full(len(windows), self.settings.factor))
        if (factors < 1).any():
            raise Refusal("strength 'factor' must be at least 1")
        signal = windows.signal
        for factor in np.unique(factors):
            chosen = factors == factor
            signal[chosen] = _coarse(signal[chosen], float(factor))
        return signal


def _coarse(signal: np.ndarray, factor: float) -> np.ndarray:
    if np.iscomplexobj(signal):
        return _coarse(signal.real, factor) + 1j * _coarse(signal.imag, factor)
    tensor = torch.from_numpy(np.ascontiguousarray(signal))
    size = tensor.shape[2:]
    small = [max(1, round(edge / factor)) for edge in size]
    means = interpolate(tensor, size=small, mode="area")
    mode = "bilinear" if len(size) == 2 else "linear"
    return interpolate(means, size=list(size), mode=mode, align_corners=False).numpy()
