"""Plain baselines: no obfuscation, noise, a lower sampling rate, and other people's windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch.nn.functional import interpolate

from sensorveil.classifiers import Ensemble
from sensorveil.data.windows import UNKNOWN, Windows, joint_classes
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.settings import ClassifierGroup, Settings
from sensorveil.train import derived_seed

_CLASSIFIER = 1  # use of the seed


class NoObfuscation(Obfuscator):
    """Gives windows back as they are: what every other method is compared with.

    Examples
    --------
    >>> windows = Windows.from_signal(np.ones((2, 1, 4)), {"activity": [0, 1], "gender": [1, 0]})
    >>> obfuscator = NoObfuscation().fit(windows, keep="activity", hide="gender")
    >>> bool((obfuscator.obfuscate(windows).signal == windows.signal).all())
    True
    """

    name = "none"
    summary = "the data as it is"
    capabilities = Capabilities(random=False, learns=False)

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        pass

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        return windows.signal


_MAX_DECIBELS = 150  # beyond that single precision holds nothing but noise, or none


class NoiseSettings(Settings):
    """Settings of the noise.

    Parameters
    ----------
    kind
        "gaussian" takes `snr`, "laplace" takes `epsilon` and `clip`.
    snr
        Ratio of the training signal's variance to the noise's, in decibels.
    epsilon
        Of local differential privacy for one whole window, by the Laplace mechanism (Dwork and
        others 2006). Standard units are clipped to [-clip, clip], so two windows of d numbers
        differ by at most 2 clip d in sum, and each number gets Laplace noise of scale
        2 clip d / epsilon. It holds for any attribute. k windows together have k epsilon, and
        windows that overlap release their common samples several times.
    clip
        Largest number in standard units.
    """

    kind: Literal["gaussian", "laplace"] = "gaussian"
    snr: float = Field(0.0, ge=-_MAX_DECIBELS, le=_MAX_DECIBELS)
    epsilon: PositiveFloat = 100.0
    clip: PositiveFloat = 3.0


class Noise(Obfuscator):
    """Adds independent noise to every sample.

    Examples
    --------
    >>> signal = np.random.default_rng(0).normal(size=(50, 1, 64))
    >>> windows = Windows.from_signal(signal, {"activity": [0, 1] * 25, "gender": [1, 0] * 25})
    >>> obfuscator = Noise(snr=10.0).fit(windows, keep="activity", hide="gender")
    >>> added = obfuscator.obfuscate(windows, seed=1).signal - windows.signal
    >>> round(10 * np.log10(windows.signal.var() / added.var()))
    10
    """

    name = "noise"
    summary = "Gaussian noise, or Laplace noise with a local epsilon"
    capabilities = Capabilities(
        strengths={
            "snr": "signal-to-noise ratio in decibels (Gaussian); lower hides more",
            "epsilon": "local epsilon of one whole window (Laplace); lower hides more",
        },
        learns=False,
    )
    Settings = NoiseSettings
    settings: NoiseSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        pass

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        settings, signal = self.settings, windows.signal
        unused = "epsilon" if settings.kind == "gaussian" else "snr"
        if unused in strength:
            raise Refusal(f"{settings.kind} noise takes no strength '{unused}'")
        per_window = (-1,) + (1,) * (signal.ndim - 1)
        if settings.kind == "gaussian":
            decibels = strength.get("snr", np.full(len(windows), settings.snr))
            if (np.abs(decibels) > _MAX_DECIBELS).any():
                raise Refusal(f"strength 'snr' must be within {_MAX_DECIBELS} dB")
            # A recorded channel has variance 1; a complex one shares it between its two parts.
            variance = 10 ** (-decibels / 10) * len(windows.channels) / windows.shape[0]
            return signal + rng.normal(size=signal.shape) * np.sqrt(variance).reshape(per_window)
        epsilon = strength.get("epsilon", np.full(len(windows), settings.epsilon))
        if (epsilon <= 0).any():
            raise Refusal("strength 'epsilon' must be above 0")
        with np.errstate(over="ignore"):  # an infinite output is refused by the base
            scale = (2 * settings.clip * signal[0].size / epsilon).reshape(per_window)
        clipped = np.clip(signal, -settings.clip, settings.clip)
        return clipped + rng.laplace(size=signal.shape) * scale


class DownsampleSettings(Settings):
    """Settings of the downsampling.

    Parameters
    ----------
    factor
        Neighbouring samples, or pixels each way, that become one mean.
    """

    factor: float = Field(8.0, ge=1)


class Downsample(Obfuscator):
    """Averages blocks of samples, then draws straight lines between the means.

    Examples
    --------
    >>> signal = np.arange(16.0).reshape(2, 1, 8)
    >>> windows = Windows.from_signal(signal, {"activity": [0, 1], "gender": [1, 0]})
    >>> obfuscator = Downsample(factor=4).fit(windows, keep="activity", hide="gender")
    >>> obfuscator.obfuscate(windows).signal[0, 0].round(2).tolist()
    [1.5, 1.5, 2.0, 3.0, 4.0, 5.0, 5.5, 5.5]
    """

    name = "downsample"
    summary = "a lower sampling rate, interpolated to the old one"
    capabilities = Capabilities(
        random=False,
        learns=False,
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
            signal[chosen] = downsampled(torch.from_numpy(signal[chosen]), float(factor)).numpy()
        return signal


def downsampled(signal: torch.Tensor, factor: float) -> torch.Tensor:
    """Block means, linearly interpolated to the old size.

    >>> downsampled(torch.tensor([[[0.0, 2.0, 4.0, 6.0]]]), 2).flatten().tolist()
    [1.0, 2.0, 4.0, 5.0]
    """
    size = list(signal.shape[2:])
    means = interpolate(signal, size=[max(1, round(edge / factor)) for edge in size], mode="area")
    mode = "bilinear" if len(size) == 2 else "linear"
    return interpolate(means, size=size, mode=mode, align_corners=False)


class ResampleSettings(Settings):
    """Settings of the resampling.

    Parameters
    ----------
    ensemble_size
        Number of classifiers of the kept attributes, whose probabilities are averaged.
    classifier
        Size and training of each.
    """

    ensemble_size: PositiveInt = 1
    classifier: ClassifierGroup = ClassifierGroup()


class Resample(Obfuscator):
    """Predicts the kept attributes and gives back a random training window of that class.

    It is the plainest method that meets the papers' two measures: nothing of the wearer's window is
    left but the class that the application needs. A generative method has to keep more than this,
    or hide as much with less. The windows that it gives back are other people's, who must have
    agreed to that.

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> Resample(epochs=2).fit(windows, "activity", "gender").obfuscate(windows).shape
    (2, 32)
    """

    name = "resample"
    summary = "a random training window of the predicted class"
    capabilities = Capabilities(emits_donors=True)
    Settings = ResampleSettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {},
        "paper": {  # about the size of the papers' inference models, for a GPU
            "ensemble_size": 5,
            "classifier": {"width": 64, "epochs": 20, "batch_size": 512, "learning_rate": 3e-3},
        },
    }
    settings: ResampleSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        codes, self.kept_classes_ = joint_classes(windows, self.policy_.keep)
        known = codes != UNKNOWN
        windows, self.donor_classes_ = windows.select(known), codes[known]
        self.classifier_ = self._new_classifier().fit_codes(
            windows, self.donor_classes_, len(self.kept_classes_)
        )
        self.donors_ = windows.compact().recorded
        self.metrics_["classifier_loss"] = [
            [round(loss, 5) for loss in member.losses_] for member in self.classifier_.members
        ]
        self.metrics_["donors_by_class"] = np.bincount(self.donor_classes_).tolist()

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        predicted = self.classifier_.predict(windows)
        drawn = np.empty(len(windows), int)
        for code in np.unique(predicted):
            donors, chosen = np.flatnonzero(self.donor_classes_ == code), predicted == code
            drawn[chosen] = donors[rng.integers(len(donors), size=int(chosen.sum()))]
        return self.donors_.standardized(self.scaling_).batch(drawn)

    def _condition(self, windows: Windows) -> np.ndarray:
        return np.eye(len(self.kept_classes_), dtype=np.float32)[self.classifier_.predict(windows)]

    def _new_classifier(self) -> Ensemble:
        settings, seed = self.settings, derived_seed(self.seed, _CLASSIFIER)
        return Ensemble(settings.ensemble_size, settings.classifier.settings(), seed, self.device)

    def _state(self) -> dict[str, np.ndarray]:
        donors = {
            "donors.store": self.donors_.store,
            "donors.offset": self.donors_.offset,
            "donors.class": self.donor_classes_,
            "kept_classes": self.kept_classes_,
        }
        return donors | {f"classifier.{k}": v for k, v in self.classifier_.state().items()}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.kept_classes_, self.donor_classes_ = state["kept_classes"], state["donors.class"]
        count = len(self.donor_classes_)
        self.donors_ = Windows(
            store=state["donors.store"],
            offset=state["donors.offset"],
            length=self.shape_[-1],
            start=np.zeros(count, int),
            recording=np.zeros(count, int),
            recordings=("donors",),
            labels={},
            classes={},
            sample_rate=self.sample_rate_,
            channels=self.channels_,
        )
        self.classifier_ = self._new_classifier().restore(
            part_of(state, "classifier."), self.hook_shape, len(self.kept_classes_)
        )
