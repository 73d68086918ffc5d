"""Applications: models of several designs that predict a kept attribute.

An application is a class with `fit` and `predict`. Registered ones take part in every audit. None of
the designs here trains or chooses anything in a method, so no method can fit its output to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from torch import nn

from sensorveil.audit.features import RandomConvolutions, spectral_features
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal, refuse_unknown

RESIDUAL, CONVOLUTIONS, TREES = "residual network", "random convolutions", "boosted trees"

_CELLS = 4
"""Cells of an image, down and across, in which a residual network's features are pooled."""

_APPLICATIONS: dict[str, type[ApplicationModel]] = {}

A = TypeVar("A", bound="type[ApplicationModel]")


def register_application(name: str) -> Callable[[A], A]:
    """Class decorator that adds an application to every audit.

    Parameters
    ----------
    name
        The name in results.
    """

    def register(cls: A) -> A:
        if name in _APPLICATIONS and _APPLICATIONS[name].__qualname__ != cls.__qualname__:
            raise Refusal(f"an application is named '{name}' already")
        cls.name = name
        _APPLICATIONS[name] = cls
        return cls

    return register


def list_applications() -> tuple[str, ...]:
    """The names of all registered applications.

    Examples
    --------
    >>> list_applications()[:3]
    ('residual network', 'random convolutions', 'boosted trees')
    """
    return tuple(_APPLICATIONS)


def application_class(name: str) -> type[ApplicationModel]:
    """The registered application of a name.

    Examples
    --------
    >>> windows = Windows.from_signal(np.arange(40.0).reshape(40, 1, 1) * np.ones(8))
    >>> codes = np.repeat([0, 1], 20)
    >>> application = application_class("residual network")(quick=True)
    >>> float((application.fit(windows, codes, num_classes=2).predict(windows) == codes).mean())
    1.0
    """
    if name not in _APPLICATIONS:
        raise refuse_unknown("application", name, list(_APPLICATIONS))
    return _APPLICATIONS[name]


class ApplicationModel(ABC):
    """Predicts a kept attribute from windows.

    Parameters
    ----------
    quick
        Whether it has to be small enough for two cores.
    seed
        Of everything random.
    device
        Where it works.
    """

    name: ClassVar[str]

    def __init__(self, quick: bool = False, seed: int = 0, device: str = "cpu") -> None:
        self.quick = quick
        self.seed = seed
        self.device = device

    @abstractmethod
    def fit(self, windows: Windows, codes: np.ndarray, num_classes: int) -> ApplicationModel:
        """Learn from windows and their classes; some classes may not occur."""

    @abstractmethod
    def predict(self, windows: Windows) -> np.ndarray:
        """The class of each window, (n,)."""


class NetworkApplication(ApplicationModel):
    """A network, trained like all classifiers; subclasses give its design."""

    @abstractmethod
    def network(self, shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """The network, not trained, for real windows of a shape."""

    @abstractmethod
    def settings(self, count: int) -> ClassifierSettings:
        """How long it is trained on so many windows, and with which batches."""

    def fit(self, windows: Windows, codes: np.ndarray, num_classes: int) -> NetworkApplication:
        """Train the network."""
        self.classifier_ = _Trained(
            self.network, self.settings(len(windows)), self.seed, self.device
        )
        self.classifier_.fit_codes(windows, codes, num_classes)
        return self

    def predict(self, windows: Windows) -> np.ndarray:
        """The most likely class of each window."""
        return self.classifier_.predict(windows)


class _Trained(Classifier):
    """A classifier with a network of another design."""

    def __init__(
        self,
        network: Callable[[tuple[int, ...], int], nn.Module],
        settings: ClassifierSettings,
        seed: int,
        device: str,
    ) -> None:
        super().__init__(settings, seed, device)
        self.network = network

    def _build(self, shape: tuple[int, ...]) -> nn.Module:
        if self.has_pairs_:
            shape = (shape[0] * 3 // 2, *shape[1:])
        return self.network(shape, self.num_classes_)


@register_application(RESIDUAL)
class ResidualApplication(NetworkApplication):
    """A residual network without pooling or dense layers."""

    def network(self, shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """The network, not trained."""
        return ResidualNetwork(shape, num_classes, width=12 if self.quick else 48)

    def settings(self, count: int) -> ClassifierSettings:
        """Few epochs in quick mode; more where windows are few, so that there are enough steps."""
        epochs, batch, steps, rate = (6, 128, 140, 1e-2) if self.quick else (40, 256, 400, 4e-3)
        epochs = max(epochs, steps * min(batch, count) // count)
        return ClassifierSettings(epochs=epochs, batch_size=batch, learning_rate=rate)


class EstimatorApplication(ApplicationModel):
    """A scikit-learn classifier on features of windows; subclasses give the `estimator`."""

    @abstractmethod
    def estimator(self, num_classes: int) -> Any:
        """The classifier, not fitted, for the number of classes that occur in training."""

    def features(self, windows: Windows) -> np.ndarray:
        """Spectra, quantiles and correlations of each window, (n, features)."""
        return spectral_features(windows, self.device)

    def fit(self, windows: Windows, codes: np.ndarray, num_classes: int) -> EstimatorApplication:
        """Fit the estimator."""
        classifier = self.estimator(len(np.unique(codes)))
        self.estimator_ = classifier.fit(self.features(windows), codes)
        return self

    def predict(self, windows: Windows) -> np.ndarray:
        """The most likely class of each window."""
        return np.asarray(self.estimator_.predict(self.features(windows)))


@register_application(CONVOLUTIONS)
class RandomConvolutionApplication(EstimatorApplication):
    """Logistic regression on random convolutions."""

    def fit(self, windows: Windows, codes: np.ndarray, num_classes: int) -> EstimatorApplication:
        """Draw the kernels and fit the regression."""
        kernels = RandomConvolutions(200 if self.quick else 1000, self.seed, self.device)
        self.kernels_ = kernels.fit(windows)
        return super().fit(windows, codes, num_classes)

    def features(self, windows: Windows) -> np.ndarray:
        """Two numbers of each convolution."""
        return self.kernels_.transform(windows)

    def estimator(self, num_classes: int) -> Any:
        """Softmax regression; features far outside the training windows' range are limited."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import FunctionTransformer, StandardScaler

        limited = FunctionTransformer(np.clip, kw_args={"a_min": -4, "a_max": 4})
        regression = LogisticRegression(C=0.01, tol=1e-3, max_iter=300)
        return make_pipeline(StandardScaler(), limited, regression)


@register_application(TREES)
class TreeApplication(EstimatorApplication):
    """Gradient-boosted trees on spectra and quantiles."""

    def estimator(self, num_classes: int) -> Any:
        """Many classes get fewer rounds, since each round grows a tree for each class."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        rounds = 30 if self.quick else 400
        return HistGradientBoostingClassifier(
            max_iter=max(10, int(rounds * min(1.0, 4 / num_classes))),
            learning_rate=0.2 if self.quick else 0.15,
            max_leaf_nodes=15 if self.quick else 31,
            early_stopping=False,
            random_state=self.seed,
        )


class ResidualNetwork(nn.Module):
    """Three residual blocks, then the mean and the maximum over time.

    Images have both in each cell of a grid of 4 by 4. Strides halve the resolution three times, as
    long as at least 8 samples are left.

    Parameters
    ----------
    shape
        Shape of a window: (channels, length) or (channels, height, width).
    num_classes
        Number of classes.
    width
        Filters of the first block; the others have twice as many.

    Examples
    --------
    >>> ResidualNetwork(shape=(2, 128), num_classes=4)(torch.zeros(3, 2, 128)).shape
    torch.Size([3, 4])
    """

    def __init__(self, shape: tuple[int, ...], num_classes: int, width: int = 48) -> None:
        super().__init__()
        dimensions = len(shape) - 1
        sizes = (shape[0], width, width, 2 * width, 2 * width)
        left, layers = min(shape[1:]), []
        for number, (before, after) in enumerate(pairwise(sizes)):
            stride = 2 if left >= 16 and number != 1 else 1
            block = _filters if number == 0 else StridedResidualBlock
            layers.append(block(before, after, stride, dimensions))
            left //= stride
        self.layers = nn.Sequential(*layers)
        features = 2 * sizes[-1] * (_CELLS**2 if dimensions == 2 else 1)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(features, num_classes))

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Logits, (n, classes)."""
        found = self.layers(signal)
        if found.ndim == 3:
            pooled = [found.mean(-1), found.amax(-1)]
        else:
            pooled = [
                nn.functional.adaptive_avg_pool2d(found, _CELLS).flatten(1),
                nn.functional.adaptive_max_pool2d(found, _CELLS).flatten(1),
            ]
        return cast(torch.Tensor, self.head(torch.cat(pooled, dim=1)))


class StridedResidualBlock(nn.Module):
    """Two convolutions, added to their input.

    Examples
    --------
    >>> StridedResidualBlock(8, 16, stride=2, dimensions=1)(torch.zeros(3, 8, 50)).shape
    torch.Size([3, 16, 25])
    """

    def __init__(self, before: int, after: int, stride: int, dimensions: int) -> None:
        super().__init__()
        self.filters = nn.Sequential(
            _filters(before, after, stride, dimensions),
            nn.ReLU(),
            _filters(after, after, 1, dimensions),
        )
        convolution = nn.Conv2d if dimensions == 2 else nn.Conv1d
        same = before == after and stride == 1
        self.shortcut = nn.Identity() if same else convolution(before, after, 1, stride)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """From (n, before, ...) to (n, after, ...)."""
        summed: torch.Tensor = self.filters(signal) + self.shortcut(signal)
        return nn.functional.relu(summed)


def _filters(before: int, after: int, stride: int, dimensions: int) -> nn.Sequential:
    """Convolutions of 7 samples, or of 3 by 3 pixels, in standard units."""
    if dimensions == 2:
        image = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        return nn.Sequential(image, nn.BatchNorm2d(after))
    signal = nn.Conv1d(before, after, 7, stride, 3, bias=False)
    return nn.Sequential(signal, nn.BatchNorm1d(after))
