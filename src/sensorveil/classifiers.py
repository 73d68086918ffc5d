"""Networks that predict an attribute from windows, and ensembles of them.

The papers' inference models are such classifiers, and so is every network here that predicts a
class: an application's, an attacker's, or one inside a method.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

import numpy as np
import torch
from torch import nn

from sensorveil.data.windows import UNKNOWN, Scaling, Windows
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.progress import track
from sensorveil.train import TrainConfig, derived_seed, seeded, train_network

_BATCH_SIZE = 2048
"""Windows that are classified at once."""


class CNN(nn.Module):
    """The papers' inference model: four convolutional and three dense layers.

    The papers give the number of layers and no more. Filters of five samples and the dense sizes
    follow Malekzadeh and others (2018, "Protecting sensory data against sensitive inferences"),
    with one width for all convolutions.

    Parameters
    ----------
    shape
        Shape of a window: (channels, length) or (channels, height, width).
    num_classes
        Number of classes.
    width
        Filters of each convolution.

    Examples
    --------
    >>> CNN(shape=(2, 128), num_classes=4)(torch.zeros(3, 2, 128)).shape
    torch.Size([3, 4])
    """

    def __init__(self, shape: tuple[int, ...], num_classes: int, width: int = 64) -> None:
        super().__init__()
        is_image = len(shape) == 3
        convolution = nn.Conv2d if is_image else nn.Conv1d
        norm = nn.BatchNorm2d if is_image else nn.BatchNorm1d
        pool = nn.MaxPool2d if is_image else nn.MaxPool1d
        adaptive_pool = nn.AdaptiveAvgPool2d if is_image else nn.AdaptiveAvgPool1d
        layers: list[nn.Module] = []
        channels, size = shape[0], min(shape[1:])
        for _ in range(4):
            layers += [convolution(channels, width, 5, padding=2), norm(width), nn.ReLU()]
            if size >= 16:  # short windows keep the resolution that they have
                layers.append(pool(2))
                size //= 2
            layers.append(nn.Dropout(0.1))
            channels = width
        cells = 4 if is_image else 8
        self.features = nn.Sequential(*layers, adaptive_pool(cells), nn.Flatten())
        self.head = nn.Sequential(
            nn.Linear(width * cells ** (2 if is_image else 1), 256),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(256, 64),
            nn.ReLU(),
            nn.Linear(64, num_classes),
        )

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Logits, (n, classes)."""
        return cast(torch.Tensor, self.head(self.features(signal)))


class MLP(nn.Module):
    """Dense layers alone, with the sizes in ObscureNet's code for MotionSense.

    The paper speaks of convolutional networks; its code has these, and drops half of the units in
    training.

    Parameters
    ----------
    shape
        Shape of a window.
    num_classes
        Number of classes.

    Examples
    --------
    >>> MLP(shape=(2, 128), num_classes=4)(torch.zeros(3, 2, 128)).shape
    torch.Size([3, 4])
    """

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        sizes = (math.prod(shape), 256, 512, 256, 256, 128, 16)
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(0.5 if after > 16 else 0.0)]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], num_classes))

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Logits, (n, classes)."""
        return cast(torch.Tensor, self.layers(signal))


class ResNet18(nn.Module):
    """ResNet18 of He and others (2016), with convolutions along time.

    A stem, four stages of two blocks of two convolutions, and one dense layer: the classifier of the
    CSI paper's experiments, which states no more than the name.

    Parameters
    ----------
    channels
        Channels of a window (channels, length).
    num_classes
        Number of classes.
    width
        Filters of the first stage, 64 in the original.

    Examples
    --------
    >>> ResNet18(channels=90, num_classes=8, width=8)(torch.zeros(3, 90, 64)).shape
    torch.Size([3, 8])
    """

    def __init__(self, channels: int, num_classes: int, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv1d(channels, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.MaxPool1d(3, stride=2, padding=1),
        ]
        before = width
        for stage in range(4):
            after = width * 2**stage
            layers += [ResidualBlock(before, after, stride=1 if stage == 0 else 2)]
            layers += [ResidualBlock(after, after, stride=1)]
            before = after
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.head = nn.Linear(before, num_classes)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Logits, (n, classes)."""
        return cast(torch.Tensor, self.head(self.layers(signal)))


class ResidualBlock(nn.Module):
    """Two convolutions of three samples, added to their input."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv1d(before, after, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm1d(after),
            nn.ReLU(),
            nn.Conv1d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm1d(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if before != after or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv1d(before, after, 1, stride=stride, bias=False), nn.BatchNorm1d(after)
            )

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """From (n, before, length) to (n, after, length / stride)."""
        summed: torch.Tensor = self.residual(signal) + self.shortcut(signal)
        return nn.functional.relu(summed)


@dataclass(frozen=True)
class ClassifierSettings:
    """Size and training of a classifier; the defaults are for results on a GPU.

    Parameters
    ----------
    width
        Filters of a CNN's convolutions; an MLP has sizes of its own.
    epochs, batch_size, learning_rate
        As in `TrainConfig`.
    network
        "cnn", "mlp" or "resnet18".
    """

    width: int = 128
    epochs: int = 40
    batch_size: int = 512
    learning_rate: float = 2e-3
    network: Literal["cnn", "mlp", "resnet18"] = "cnn"

    @classmethod
    def quick(cls) -> ClassifierSettings:
        """For two cores: a smaller network and fewer epochs."""
        return cls(width=24, epochs=12, batch_size=64, learning_rate=4e-3)

    @classmethod
    def resnet18(cls, quick: bool = False) -> ClassifierSettings:
        """The CSI paper's classifier; `quick` is for two cores."""
        if quick:
            return cls(8, epochs=30, batch_size=64, learning_rate=4e-3, network="resnet18")
        return cls(64, epochs=60, batch_size=128, learning_rate=2e-3, network="resnet18")


class Classifier:
    """Predicts one attribute from windows.

    It standardises recorded windows with the statistics of its training windows. Where those are
    in standard units already, as inside a method, it uses the same units.

    Parameters
    ----------
    settings
        Size and training.
    seed
        Of the initial weights, the batches and dropout.
    device
        Where the network is.

    Examples
    --------
    >>> signal = np.random.default_rng(0).normal(size=(64, 1, 32)).astype("float32")
    >>> signal[::2] += 3
    >>> windows = Windows.from_signal(signal, {"gender": [0, 1] * 32})
    >>> classifier = Classifier(ClassifierSettings(width=8, epochs=3, batch_size=16))
    >>> classifier.fit(windows, "gender").predict(windows).shape
    (64,)
    """

    def __init__(
        self, settings: ClassifierSettings | None = None, seed: int = 0, device: str = "cpu"
    ) -> None:
        self.settings = settings or ClassifierSettings()
        self.seed = seed
        self.device = device

    def fit(self, windows: Windows, attribute: str) -> Classifier:
        """Train on all windows whose class is known."""
        return self.fit_codes(*labelled_windows(windows, attribute))

    def fit_codes(self, windows: Windows, codes: np.ndarray, num_classes: int) -> Classifier:
        """Train on given classes, one for each window."""
        self.scaling_ = windows.scaling or Scaling.of(windows)
        self.num_classes_ = num_classes
        self.has_pairs_ = windows.recorded.is_complex
        with seeded(self.seed):
            self.network_ = self._build(windows.standardized(self.scaling_).shape).to(self.device)
        return self._train(windows, codes, self.settings.epochs)

    def fine_tuned(self, windows: Windows, attribute: str, epochs: int) -> Classifier:
        """A copy of this classifier, trained further on other windows."""
        known, codes, _ = labelled_windows(windows, attribute)
        other = copy.copy(self)
        other.network_ = copy.deepcopy(self.network_)
        return other._train(known, codes, epochs)

    def _train(self, windows: Windows, codes: np.ndarray, epochs: int) -> Classifier:
        signals = windows.standardized(self.scaling_).on(self.device)
        labels = torch.from_numpy(codes.astype(np.int64)).to(self.device)
        config = TrainConfig(
            epochs=epochs,
            batch_size=self.settings.batch_size,
            learning_rate=self.settings.learning_rate,
            weight_decay=1e-2,
            max_grad_norm=None,
        )
        self.losses_ = train_network(
            "classifier",
            self.network_,
            lambda index: self._loss(self.scores(signals[index]), labels[index]),
            len(labels),
            config,
            self.seed,
            self.device,
        )
        return self

    def scores(self, signal: torch.Tensor) -> torch.Tensor:
        """Logits of real windows in the classifier's standard units, with gradients."""
        if self.has_pairs_:
            signal = with_magnitudes(signal)
        return cast(torch.Tensor, self.network_(signal))

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, labels)

    @torch.no_grad()
    def _logits(self, windows: Windows) -> torch.Tensor:
        own = windows.standardized(self.scaling_)
        logits = [
            self.scores(torch.from_numpy(batch).to(self.device)).float()
            for batch in own.batches(_BATCH_SIZE)
        ]
        return torch.cat(logits)

    def log_probabilities(self, windows: Windows) -> np.ndarray:
        """Log-probability of each class for each window, (n, classes)."""
        return self._logits(windows).log_softmax(1).cpu().numpy()

    def predict(self, windows: Windows) -> np.ndarray:
        """The most likely class of each window."""
        return self.log_probabilities(windows).argmax(1)

    def state(self) -> dict[str, np.ndarray]:
        """Everything learnt, as arrays."""
        weights = {f"network.{k}": v.cpu().numpy() for k, v in self.network_.state_dict().items()}
        return weights | {
            "mean": self.scaling_.mean,
            "deviation": self.scaling_.deviation,
            "pairs": np.array(self.has_pairs_),
        }

    def restore(
        self, state: Mapping[str, np.ndarray], shape: tuple[int, ...], num_classes: int
    ) -> Classifier:
        """The classifier that `state` was taken from, for real windows of a shape."""
        self.scaling_ = Scaling(state["mean"], state["deviation"])
        self.num_classes_, self.has_pairs_ = num_classes, bool(state["pairs"])
        self.network_ = self._build(shape)
        weights = {k: torch.from_numpy(v) for k, v in part_of(state, "network.").items()}
        self.network_.load_state_dict(weights)
        self.network_.to(self.device).eval()
        return self

    def _build(self, shape: tuple[int, ...]) -> nn.Module:
        if self.has_pairs_:
            shape = (shape[0] * 3 // 2, *shape[1:])
        if self.settings.network == "mlp":
            return MLP(shape, self.num_classes_)
        if self.settings.network == "resnet18":
            if len(shape) != 2:
                raise Refusal("a ResNet18 takes signals, not images; use a CNN")
            return ResNet18(shape[0], self.num_classes_, self.settings.width)
        return CNN(shape, self.num_classes_, self.settings.width)


class JointClassifier(Classifier):
    """Predicts several attributes at once: one network with an output for each class of each.

    Parameters
    ----------
    settings, seed, device
        As in `Classifier`.

    Examples
    --------
    >>> signal = np.random.default_rng(0).normal(size=(64, 1, 32)).astype("float32")
    >>> labels = {"gender": np.arange(64) % 2, "age": np.arange(64) % 3}
    >>> joint = JointClassifier(ClassifierSettings(width=8, epochs=1, batch_size=16))
    >>> joint.fit_labels(Windows.from_signal(signal), labels, {"gender": 2, "age": 3})
    >>> {k: v.shape for k, v in joint.log_probabilities_of(Windows.from_signal(signal)).items()}
    {'gender': (64, 2), 'age': (64, 3)}
    """

    def fit_labels(
        self, windows: Windows, labels: Mapping[str, np.ndarray], num_classes: Mapping[str, int]
    ) -> None:
        """Train on the classes of each attribute; UNKNOWN ones are left out of the loss."""
        ends = np.cumsum([num_classes[name] for name in labels]).tolist()
        self.outputs_ = {
            name: slice(end - num_classes[name], end)
            for name, end in zip(labels, ends, strict=True)
        }
        codes = np.stack([labels[name] for name in labels], axis=1)
        self.fit_codes(windows, codes, ends[-1])

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses = [
            nn.functional.cross_entropy(
                logits[:, own], labels[:, number], ignore_index=UNKNOWN, reduction="sum"
            )
            / (labels[:, number] != UNKNOWN).sum().clamp_min(1)
            for number, own in enumerate(self.outputs_.values())
        ]
        return torch.stack(losses).mean()

    def log_probabilities_of(self, windows: Windows) -> dict[str, np.ndarray]:
        """Log-probability of each class of each attribute, (n, classes)."""
        logits = self._logits(windows)
        return {
            name: logits[:, own].log_softmax(1).cpu().numpy() for name, own in self.outputs_.items()
        }


def with_magnitudes(signal: torch.Tensor) -> torch.Tensor:
    """Add the magnitude of each pair of channels (real part, imaginary part).

    The magnitude follows from the other two, but a network finds it hard to form, and an attacker
    should not be weak for want of it.

    >>> with_magnitudes(torch.tensor([[[3.0], [4.0]]])).flatten().tolist()
    [3.0, 4.0, 5.0]
    """
    return torch.cat([signal, torch.hypot(signal[:, ::2], signal[:, 1::2])], dim=1)


def labelled_windows(windows: Windows, attribute: str) -> tuple[Windows, np.ndarray, int]:
    """The windows whose class is known, their classes, and the number of classes.

    >>> windows = Windows.from_signal(np.zeros((3, 1, 8)), {"gender": [0, UNKNOWN, 1]})
    >>> labelled_windows(windows, "gender")[1:]
    (array([0, 1]), 2)
    """
    known = windows.select(windows.codes(attribute) != UNKNOWN)
    codes = known.codes(attribute)
    if len(np.unique(codes)) < 2:
        raise Refusal(f"attribute '{attribute}' has one class only in the training windows")
    return known, codes, len(windows.classes[attribute])


class Ensemble:
    """Classifiers that differ in their seed alone; their probabilities are averaged.

    Parameters
    ----------
    size
        Number of classifiers.
    settings, seed, device
        As in `Classifier`; the first member has the seed itself.

    Examples
    --------
    >>> signal = np.random.default_rng(0).normal(size=(64, 1, 32)).astype("float32")
    >>> signal[::2] += 3
    >>> ensemble = Ensemble(2, ClassifierSettings(width=8, epochs=3, batch_size=16))
    >>> windows = Windows.from_signal(signal)
    >>> ensemble.fit_codes(windows, np.array([0, 1] * 32), num_classes=2).predict(windows).shape
    (64,)
    """

    def __init__(
        self,
        size: int,
        settings: ClassifierSettings | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        seeds = [seed, *(derived_seed(seed, number) for number in range(1, size))]
        self.members = [Classifier(settings, one, device) for one in seeds]

    def fit_codes(self, windows: Windows, codes: np.ndarray, num_classes: int) -> Ensemble:
        """Train every member on given classes, one for each window."""
        for member in track(self.members, "ensemble"):
            member.fit_codes(windows, codes, num_classes)
        return self

    def probabilities(self, windows: Windows) -> np.ndarray:
        """Mean probability of each class for each window, (n, classes)."""
        return np.mean([np.exp(one.log_probabilities(windows)) for one in self.members], axis=0)

    def scores(self, signal: torch.Tensor) -> torch.Tensor:
        """Logits of real windows in standard units by every member, (members, n, classes)."""
        return torch.stack([member.scores(signal) for member in self.members])

    def predict(self, windows: Windows) -> np.ndarray:
        """The class of each window with the largest mean probability."""
        return self.probabilities(windows).argmax(1)

    def state(self) -> dict[str, np.ndarray]:
        """Everything learnt, as arrays."""
        return {
            f"{number}.{name}": array
            for number, member in enumerate(self.members)
            for name, array in member.state().items()
        }

    def restore(
        self, state: Mapping[str, np.ndarray], shape: tuple[int, ...], num_classes: int
    ) -> Ensemble:
        """The ensemble that `state` was taken from, for real windows of a shape."""
        for number, member in enumerate(self.members):
            member.restore(part_of(state, f"{number}."), shape, num_classes)
        return self
