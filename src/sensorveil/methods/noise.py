"""Plain noise: Gaussian at a signal-to-noise ratio, or Laplace with a local epsilon."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.settings import Settings

_MOST_DECIBELS = 150  # beyond that single precision holds nothing but noise, or none


class NoiseSettings(Settings):
    """Kind of noise and how much.

    `snr` is the ratio of the training signal's variance to the noise's, in decibels. `epsilon` is
    that of local differential privacy for one whole window (Dwork and others 2006, the Laplace
    mechanism): standard units are cut to [-clip, clip], so two windows of d numbers differ by at
    most 2 clip d in sum, and each number gets Laplace noise of scale 2 clip d / epsilon. It holds
    for any attribute. k released windows together have k epsilon, and windows that overlap
    release their common samples several times.
    """

    kind: str = "gaussian"
    snr: float = 0.0
    epsilon: float = 100.0
    clip: float = 3.0

    def check(self) -> None:
        """Refuses an unknown kind, and numbers without sense."""
        if self.kind not in ("gaussian", "laplace"):
            raise refuse_unknown("kind of noise", self.kind, ["gaussian", "laplace"])
        self.require(self.epsilon > 0, "epsilon", "above 0")
        self.require(self.clip > 0, "clip", "above 0")
        self.require(abs(self.snr) <= _MOST_DECIBELS, "snr", f"within {_MOST_DECIBELS} dB")


class Noise(Obfuscator):
    """Adds independent noise to every sample.

    >>> signal = np.random.default_rng(0).normal(size=(50, 1, 64))
    >>> windows = Windows.from_signal(signal, {"activity": [0, 1] * 25, "gender": [1, 0] * 25})
    >>> obfuscator = Noise(snr=10.0).fit(windows, keep="activity", hide="gender")
    >>> added = obfuscator.obfuscate(windows, seed=1).signal - windows.signal
    >>> round(10 * np.log10(windows.signal.var() / added.var()))
    10
    """

    name = "noise"
    summary = "Gaussian noise at a signal-to-noise ratio, or Laplace noise with a local epsilon"
    capabilities = Capabilities(
        strengths={
            "snr": "signal-to-noise ratio in decibels (Gaussian); lower hides more",
            "epsilon": "local epsilon of one whole window (Laplace); lower hides more",
        },
    )
    Settings = NoiseSettings
    settings: NoiseSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        pass

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        unused = "epsilon" if self.settings.kind == "gaussian" else "snr"
        if unused in strength:
            raise Refusal(f"{self.settings.kind} noise takes no strength '{unused}'")
        signal = _parts(windows.signal)
        per_window = (-1,) + (1,) * (signal.ndim - 1)
        if self.settings.kind == "gaussian":
            decibels = strength.get("snr", np.full(len(windows), self.settings.snr))
            # A complex channel's variance is that of both parts together.
            if (np.abs(decibels) > _MOST_DECIBELS).any():
                raise Refusal(f"strength 'snr' must be within {_MOST_DECIBELS} dB")
            power = 10 ** (-decibels / 10) / (2 if windows.is_complex else 1)
            noisy = signal + rng.normal(size=signal.shape) * np.sqrt(power).reshape(per_window)
        else:
            epsilon = strength.get("epsilon", np.full(len(windows), self.settings.epsilon))
            if (epsilon <= 0).any():
                raise Refusal("strength 'epsilon' must be above 0")
            clip, numbers = self.settings.clip, signal[0].size
            with np.errstate(over="ignore"):  # an infinite output is refused by the base
                scale = (2 * clip * numbers / epsilon).reshape(per_window)
            noisy = np.clip(signal, -clip, clip) + rng.laplace(size=signal.shape) * scale
        return _joined(noisy, windows.is_complex)


def _parts(signal: np.ndarray) -> np.ndarray:
    """Real and imaginary parts along a last axis of their own; real signals as they are."""
    if not np.iscomplexobj(signal):
        return signal
    return np.stack([signal.real, signal.imag], axis=-1)


def _joined(signal: np.ndarray, is_complex: bool) -> np.ndarray:
    return signal[..., 0] + 1j * signal[..., 1] if is_complex else signal
