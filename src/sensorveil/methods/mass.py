"""MaSS: a transform that keeps what windows say about each attribute within limits.

In this order: networks, losses, settings, training in three stages, obfuscation. CLOAK compares with
it. The paper was not at hand; this follows the authors' code in its form for MotionSense.

Reference
---------
Y. Chen and others: MaSS: Multi-attribute Selective Suppression for Utility-preserving Data
Transformation from an Information-theoretic Perspective. ICML 2024. "The authors' code" is
github.com/jpmorganchase/MaSS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from sensorveil.data.windows import UNKNOWN, DeviceWindows, Windows
from sensorveil.diffusion.batched import run_in_batches
from sensorveil.files import part_of
from sensorveil.methods.base import (
    RECONSTRUCTION,
    Capabilities,
    Obfuscator,
    reconstruction_scores,
)
from sensorveil.methods.settings import Settings
from sensorveil.train import TrainConfig, TrainingTarget, derived_seed, seeded, train, train_network

_FEATURES, _TRANSFORM, _CLASSIFIER = 31, 32, 3000  # uses of the seed


# Networks.


class Transform(nn.Module):
    """Windows and as many random numbers to windows: a residual block of two dense layers, and one.

    Examples
    --------
    >>> network = Transform((2, 16))
    >>> network(torch.zeros(3, 2, 16), torch.randn(3, 2, 16)).shape
    torch.Size([3, 2, 16])
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        size = math.prod(shape)
        # No bias before a batch norm: it cancels there.
        self.block = nn.Sequential(
            nn.Linear(2 * size, size, bias=False),
            nn.BatchNorm1d(size),
            nn.ReLU(),
            nn.Linear(size, size, bias=False),
            nn.BatchNorm1d(size),
        )
        self.output = nn.Linear(size, size)

    def forward(self, signal: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """The transformed windows, of the same shape."""
        flat = signal.flatten(1)
        residual = self.block(torch.cat([flat, noise.flatten(1)], dim=1)) + flat
        transformed: torch.Tensor = self.output(residual.relu())
        return transformed.view_as(signal)


class AttributeNetwork(nn.Module):
    """Convolutions, each with batch normalisation, ReLU and pooling, and two dense layers.

    It predicts an attribute; with 128 outputs it is the feature network F.

    Parameters
    ----------
    shape
        Shape of a window.
    outputs
        Number of classes, or of features.
    widths
        Filters of each convolution.
    dense_size
        Size of the first dense layer.

    Examples
    --------
    >>> AttributeNetwork((2, 128), outputs=4)(torch.zeros(3, 2, 128)).shape
    torch.Size([3, 4])
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        outputs: int,
        widths: Sequence[int] = (16, 32, 64, 64),
        dense_size: int = 256,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        length = shape[1]
        for before, after in pairwise((shape[0], *widths)):
            layers += [nn.Conv1d(before, after, 3, padding=1, bias=False), nn.BatchNorm1d(after)]
            layers.append(nn.ReLU())
            if length > 1:
                layers.append(nn.MaxPool1d(2))
                length //= 2
        self.layers = nn.Sequential(
            *layers,
            nn.Flatten(),
            nn.Linear(widths[-1] * length, dense_size, bias=False),
            nn.BatchNorm1d(dense_size),
            nn.ReLU(),
            nn.Linear(dense_size, outputs),
        )

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Logits or features, (n, outputs)."""
        found: torch.Tensor = self.layers(signal)
        return found


# Losses. H(A) - CE stands for the mutual information of an attribute A and the output.


def known_cross_entropy(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of the windows whose class is known, in nats; 0 where none is.

    >>> round(float(known_cross_entropy(torch.zeros(2, 4), torch.tensor([1, UNKNOWN])).exp()), 4)
    4.0
    """
    total = cross_entropy(scores.float(), labels, ignore_index=UNKNOWN, reduction="sum")
    return total / (labels != UNKNOWN).sum().clamp(min=1)


def label_entropy(labels: torch.Tensor) -> float:
    """H(A) of the classes that are known, in nats.

    >>> round(math.exp(label_entropy(torch.tensor([0, 1, 2, 3, UNKNOWN]))), 4)
    4.0
    """
    counts = torch.bincount(labels[labels != UNKNOWN]).double()
    share = counts[counts > 0] / counts.sum()
    return float(-(share * share.log()).sum())


def upper_limit_loss(loss: torch.Tensor, entropy: float, limit: float) -> torch.Tensor:
    """The penalty of I(X'; S) <= m: |v| + v^2 of v = min(CE - H + m, 0)."""
    return _penalty((loss - entropy + limit).clamp(max=0))


def lower_limit_loss(loss: torch.Tensor, entropy: float, limit: float) -> torch.Tensor:
    """The penalty of I(X'; U) >= n: |v| + v^2 of v = max(CE - H + n, 0)."""
    return _penalty((loss - entropy + limit).clamp(min=0))


def _penalty(violation: torch.Tensor) -> torch.Tensor:
    return violation.abs() + violation.square()


def info_nce(first: torch.Tensor, second: torch.Tensor, temperature: float = 0.07) -> torch.Tensor:
    """InfoNCE of two views, both ways: each window is to find itself in the other view.

    >>> equal = torch.zeros(8, 3)
    >>> round(float(info_nce(equal, equal).exp()), 4)  # nothing to tell eight apart by
    8.0
    """
    similarity = normalize(first.float()) @ normalize(second.float()).T / temperature
    own = torch.arange(len(similarity), device=similarity.device)
    return (cross_entropy(similarity, own) + cross_entropy(similarity.T, own)) / 2


# Settings.


class MassSettings(Settings):
    """Settings of MaSS; the defaults are the authors' for MotionSense.

    Parameters
    ----------
    max_hidden_information
        m: nats that the output may hold about each hidden attribute.
    min_kept_information
        n: what the output must hold about each kept attribute, as a share of its entropy.
    width
        Multiplies 1-2-4-4, the filters of the attribute networks.
    dense_size
        Their dense layer.
    feature_size
        Outputs of the feature network F.
    classifier_epochs, classifier_batch_size, classifier_learning_rate
        Of the first stage; F takes batches and learning rate too.
    feature_epochs
        Of the second stage.
    epochs, batch_size, learning_rate, weight_decay
        Of the third stage.
    """

    max_hidden_information: NonNegativeFloat = 0.0
    min_kept_information: float = Field(1.0, ge=0, le=1)
    width: PositiveInt = 16
    dense_size: PositiveInt = 256
    feature_size: PositiveInt = 128
    classifier_epochs: PositiveInt = 100
    classifier_batch_size: PositiveInt = 256
    classifier_learning_rate: PositiveFloat = 5e-4
    feature_epochs: PositiveInt = 100
    epochs: PositiveInt = 200
    batch_size: PositiveInt = 128
    learning_rate: PositiveFloat = 5e-5
    weight_decay: NonNegativeFloat = 1e-3


@dataclass(frozen=True)
class Attribute:
    """An attribute's classifier, the labels of the training windows and their entropy."""

    classifier: AttributeNetwork
    labels: torch.Tensor
    entropy: float

    def loss(self, signal: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """The classifier's cross-entropy on windows that come from those at some positions."""
        return known_cross_entropy(self.classifier(signal), self.labels[index])


class Mass(Obfuscator):
    """A transform of windows and noise, trained against classifiers of the hidden attributes.

    First, classifiers of all listed attributes are trained on raw windows, then features that tell
    windows apart. At last the transform learns to keep these features, within the limits of each
    attribute, in turns with the hidden attributes' classifiers. What is not listed is kept: it is
    for applications that nobody thought of.

    Preset `paper` has the sizes and settings of the authors' code for MotionSense. What differs:

    - One cycle of the learning rate for their cosine; AdamW for F, where they take SGD.
    - The kept attributes' classifiers stay as they are on raw windows, so that the transform works
      for an unchanged application; the authors' run on MotionSense lists no kept attribute.
    - They stop where the limits cannot be met; here the loss weighs them against each other.

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> obfuscator = Mass(epochs=1, classifier_epochs=1).fit(windows, "activity", "gender")
    >>> obfuscator.obfuscate(windows, seed=1).shape
    (2, 32)
    """

    name = "mass"
    summary = "a transform with a limit on what each attribute leaks"
    capabilities = Capabilities(modalities=("signal",))
    Settings = MassSettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {
            "width": 8,
            "dense_size": 64,
            "feature_size": 32,
            "classifier_epochs": 8,
            "classifier_batch_size": 64,
            "classifier_learning_rate": 2e-3,
            "feature_epochs": 4,
            "epochs": 15,
            "batch_size": 64,
            "learning_rate": 1e-3,
        },
        "paper": {},
    }
    membership_score = RECONSTRUCTION
    settings: MassSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        signals = windows.on(self.device)
        attributes = {
            name: self._train_classifier(name, windows.codes(name), signals)
            for name in (*self.policy_.keep, *self.policy_.hide)
        }
        features = self._train_features(signals)
        self._train_transform(signals, attributes, features)

    def _train_classifier(self, name: str, codes: np.ndarray, signals: DeviceWindows) -> Attribute:
        """Stage 1: a classifier of raw windows."""
        seed = derived_seed(self.seed, _CLASSIFIER + sorted(self.classes_).index(name))
        labels = torch.from_numpy(codes.astype(np.int64)).to(self.device)
        with seeded(seed):
            network = self._new_network(len(self.classes_[name]))
        attribute = Attribute(network, labels, label_entropy(labels))
        self.metrics_[f"classifier_loss_{name}"] = train_network(
            f"classifier-{name}",
            network,
            lambda index: attribute.loss(signals[index], index),
            len(signals),
            self._config(self.settings.classifier_epochs),
            seed,
            self.device,
            self.checkpoint,
        )
        return attribute

    def _train_features(self, signals: DeviceWindows) -> AttributeNetwork:
        """Stage 2: features that tell windows apart; both views are the window itself."""
        seed = derived_seed(self.seed, _FEATURES)
        with seeded(seed):
            network = self._new_network(self.settings.feature_size)

        def loss(index: torch.Tensor) -> torch.Tensor:
            features = network(signals[index])
            return info_nce(features, features)

        self.metrics_["features_loss"] = train_network(
            "features",
            network,
            loss,
            len(signals),
            self._config(self.settings.feature_epochs),
            seed,
            self.device,
            self.checkpoint,
        )
        return network

    def _train_transform(
        self,
        signals: DeviceWindows,
        attributes: Mapping[str, Attribute],
        features: AttributeNetwork,
    ) -> None:
        """Stage 3: the transform and F in turns with the hidden attributes' classifiers."""
        settings, hide = self.settings, self.policy_.hide
        seed = derived_seed(self.seed, _TRANSFORM)
        with seeded(seed):
            self.network_ = Transform(self.hook_shape).to(self.device)

        def transform_loss(index: torch.Tensor) -> torch.Tensor:
            signal = signals[index]
            output = self.network_(signal, torch.randn_like(signal))
            total = info_nce(features(signal), features(output))
            for name, attribute in attributes.items():
                loss, entropy = attribute.loss(output, index), attribute.entropy
                if name in hide:
                    total += upper_limit_loss(loss, entropy, settings.max_hidden_information)
                else:
                    limit = settings.min_kept_information * entropy
                    total += lower_limit_loss(loss, entropy, limit)
            return total

        def adversary_loss(index: torch.Tensor) -> torch.Tensor:
            signal = signals[index]
            with torch.no_grad():
                output = self.network_(signal, torch.randn_like(signal))
            return torch.stack([attributes[name].loss(output, index) for name in hide]).sum()

        adversaries = nn.ModuleList(attributes[name].classifier for name in hide)
        targets = [
            TrainingTarget(nn.ModuleList([self.network_, features]), transform_loss),
            TrainingTarget(adversaries, adversary_loss),
        ]
        config = TrainConfig(
            settings.epochs, settings.batch_size, settings.learning_rate, settings.weight_decay
        )
        losses = train(
            "transform", targets, len(signals), config, seed, self.device, self.checkpoint
        )
        self.metrics_["transform_loss"], self.metrics_["adversary_loss"] = losses
        self.network_.eval()

    def _config(self, epochs: int) -> TrainConfig:
        settings = self.settings
        return TrainConfig(
            epochs, settings.classifier_batch_size, settings.classifier_learning_rate
        )

    def _new_network(self, outputs: int) -> AttributeNetwork:
        widths = [self.settings.width * factor for factor in (1, 2, 4, 4)]
        network = AttributeNetwork(self.hook_shape, outputs, widths, self.settings.dense_size)
        return network.to(self.device)

    @torch.no_grad()
    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        signal = windows.signal
        noise = rng.standard_normal(signal.shape, dtype=np.float32)
        inputs = {"signal": torch.from_numpy(signal), "noise": torch.from_numpy(noise)}
        return run_in_batches(lambda batch: self.network_(**batch), inputs, self.device)

    def _membership_scores(self, windows: Windows) -> np.ndarray:
        made = self._obfuscate(windows, {}, np.random.default_rng(0))
        return reconstruction_scores(windows, made)

    def _state(self) -> dict[str, np.ndarray]:
        return {f"network.{k}": v.cpu().numpy() for k, v in self.network_.state_dict().items()}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.network_ = Transform(self.hook_shape).to(self.device).eval()
        weights = part_of(state, "network.")
        self.network_.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
