"""Attackers: they learn an attribute from labelled windows and predict it for other windows.

An attacker is a class with `fit` and `predict_log_proba`. Registered ones take part in every audit,
under every threat model that the audit runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from sensorveil.audit.features import RandomConvolutions, spectral_features
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal, refuse_unknown

NETWORK, CONVOLUTIONS, TREES = "network", "random convolutions", "boosted trees"

CONDITION = ("condition",)
"""The channel of windows that hold a method's condition (see `condition_windows`)."""

_SMALLEST = 1e-9
"""The probability of a class that did not occur in training."""

_ATTACKERS: dict[str, type[Attacker]] = {}

A = TypeVar("A", bound="type[Attacker]")


def register_attacker(name: str) -> Callable[[A], A]:
    """Class decorator that adds an attacker to every audit.

    Parameters
    ----------
    name
        The name in results, and in `Budget.attackers`.
    """

    def register(cls: A) -> A:
        if name in _ATTACKERS and _ATTACKERS[name].__qualname__ != cls.__qualname__:
            raise Refusal(f"an attacker is named '{name}' already")
        cls.name = name
        _ATTACKERS[name] = cls
        return cls

    return register


def list_attackers() -> tuple[str, ...]:
    """The names of all registered attackers.

    Examples
    --------
    >>> list_attackers()[:3]
    ('network', 'random convolutions', 'boosted trees')
    """
    return tuple(_ATTACKERS)


def attacker_class(name: str) -> type[Attacker]:
    """The registered attacker of a name."""
    if name not in _ATTACKERS:
        raise refuse_unknown("attacker", name, list(_ATTACKERS))
    return _ATTACKERS[name]


@dataclass(frozen=True)
class Budget:
    """How much attackers learn from and how large they are; a positive control finds out too small.

    Parameters
    ----------
    windows
        The most windows that an attacker is trained on.
    network
        Size and training of the networks.
    kernels
        Random convolutions.
    rounds
        Boosting rounds of trees.
    attackers
        Names of the attackers; default: all that are registered.
    """

    windows: int = 8_000
    network: ClassifierSettings = field(
        default_factory=lambda: ClassifierSettings(64, 25, batch_size=512, learning_rate=3e-3)
    )
    kernels: int = 500
    rounds: int = 100
    attackers: tuple[str, ...] = field(default_factory=list_attackers)

    def __post_init__(self) -> None:
        if not self.attackers:
            raise Refusal(f"no attacker is named; known: {', '.join(_ATTACKERS)}")
        for name in self.attackers:
            attacker_class(name)

    @classmethod
    def quick(cls) -> Budget:
        """For two cores: minutes instead of hours."""
        network = ClassifierSettings(width=16, epochs=8, batch_size=64, learning_rate=5e-3)
        return cls(windows=3_000, network=network, kernels=300, rounds=40)


class Attacker(ABC):
    """Predicts an attribute from windows.

    One object attacks all attributes of one training set, one after the other. What it learns
    without labels (`fit_features`) serves all of them.

    Parameters
    ----------
    budget
        How much it may learn from, and how large it may be.
    seed
        Of everything random.
    device
        Where it works.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""

    def __init__(self, budget: Budget | None = None, seed: int = 0, device: str = "cpu") -> None:
        self.budget = budget or Budget()
        self.seed = seed
        self.device = device

    def fit_features(self, train: Windows, condition: np.ndarray | None) -> None:
        """Learn features from the training windows without their labels; default: nothing."""
        return None

    def features(self, windows: Windows, condition: np.ndarray | None) -> Any:
        """What `fit` and `predict_log_proba` are given: windows, or an array (n, features).

        A fully informed attacker also has the method's own condition, (n, numbers) in standard
        units. The output is made from it and from noise, so by default the condition is all that
        the attacker looks at.
        """
        return windows if condition is None else condition_windows(condition)

    @abstractmethod
    def fit(self, windows: Any, codes: np.ndarray, num_classes: int) -> Attacker:
        """Learn from features and their classes; some classes may not occur."""

    @abstractmethod
    def predict_log_proba(self, windows: Any) -> np.ndarray:
        """Log-probability of each class, (n, num_classes)."""


class EstimatorAttacker(Attacker):
    """A scikit-learn classifier on spectral features; subclasses give the `estimator`."""

    @abstractmethod
    def estimator(self, num_classes: int) -> Any:
        """The classifier, not fitted, for the number of classes that occur in training."""

    def features(self, windows: Windows, condition: np.ndarray | None) -> np.ndarray:
        """Spectra, quantiles and correlations, and the condition."""
        spectra = spectral_features(windows, self.device)
        return spectra if condition is None else np.hstack([spectra, condition])

    def fit(self, windows: np.ndarray, codes: np.ndarray, num_classes: int) -> EstimatorAttacker:
        """Fit the estimator."""
        self.num_classes_ = num_classes
        self.estimator_ = self.estimator(len(np.unique(codes))).fit(windows, codes)
        return self

    def predict_log_proba(self, windows: np.ndarray) -> np.ndarray:
        """Log-probability of each class; one that did not occur is nearly impossible."""
        shares = np.full((len(windows), self.num_classes_), _SMALLEST)
        shares[:, self.estimator_.classes_] = self.estimator_.predict_proba(windows)
        return np.log(np.maximum(shares, _SMALLEST))


@register_attacker(NETWORK)
class NetworkAttacker(Attacker):
    """The papers' inference model; dense layers for a condition, which has no neighbours in time."""

    summary = "four convolutional and three dense layers, as in the papers"

    def fit(self, windows: Windows, codes: np.ndarray, num_classes: int) -> NetworkAttacker:
        """Train the network."""
        settings = self.budget.network
        if windows.channels == CONDITION:
            settings = replace(settings, network="mlp")
        self.classifier_ = Classifier(settings, self.seed, self.device)
        self.classifier_.fit_codes(windows, codes, num_classes)
        return self

    def predict_log_proba(self, windows: Windows) -> np.ndarray:
        """Log-probability of each class."""
        return self.classifier_.log_probabilities(windows)


@register_attacker(CONVOLUTIONS)
class RandomConvolutionAttacker(EstimatorAttacker):
    """Logistic regression on random convolutions, or on the condition."""

    summary = "random convolutions with a linear head"

    def fit_features(self, train: Windows, condition: np.ndarray | None) -> None:
        """Draw the kernels."""
        if condition is None:
            kernels = RandomConvolutions(self.budget.kernels, self.seed, self.device)
            self.kernels_ = kernels.fit(train)

    def features(self, windows: Windows, condition: np.ndarray | None) -> np.ndarray:
        """Two numbers of each convolution, or the condition."""
        return self.kernels_.transform(windows) if condition is None else condition

    def estimator(self, num_classes: int) -> Any:
        """Softmax regression, with strong shrinkage: nearly as many features as windows."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        strength = 0.02 if num_classes == 2 else 0.01  # two classes have one weight vector, not two
        regression = LogisticRegression(C=strength, tol=1e-3, max_iter=300)
        return make_pipeline(StandardScaler(), regression)


@register_attacker(TREES)
class TreeAttacker(EstimatorAttacker):
    """Gradient-boosted trees on spectra, and on the condition where there is one."""

    summary = "gradient-boosted trees on spectra and quantiles"

    def estimator(self, num_classes: int) -> Any:
        """Many classes get fewer rounds, since each round grows a tree for each class."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(
            max_iter=max(10, int(self.budget.rounds * min(1.0, 4 / num_classes))),
            learning_rate=0.15,
            max_leaf_nodes=15,
            early_stopping=False,
            random_state=self.seed,
        )


def condition_windows(condition: np.ndarray) -> Windows:
    """A method's condition (n, numbers) as windows of one channel.

    Examples
    --------
    >>> condition_windows(np.zeros((3, 20))).shape
    (1, 20)
    """
    windows = Windows.from_signal(condition[:, None].astype(np.float32))
    return replace(windows, channels=CONDITION)
