"""Attackers: they learn an attribute from labelled windows and predict it for other windows.

An attacker is a class with `fit` and `predict_log_proba`. Registered ones take part in every audit,
under every threat model that the audit runs.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch.nn import functional

from sensorveil.audit.features import RandomConvolutions, spectral_features
from sensorveil.audit.linear import LinearClassifier, recording_groups
from sensorveil.audit.session_attackers import (
    SessionBudget,
    list_session_attackers,
    session_attacker_class,
)
from sensorveil.classifiers import ClassifierSettings, JointClassifier
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal, refuse_unknown

CNN, MLP = "convolutional network", "dense network"
CONVOLUTIONS, DIFFERENCES = "random convolutions", "differences of windows"
TREES, MATCHING = "boosted trees", "matching"

CONDITION = ("condition",)
"""The channel of windows that hold a method's condition (see `condition_windows`)."""

_SMALLEST = 1e-9
"""The probability of a class that did not occur in training."""
_MATCHED = 256
"""Windows that are compared with all training windows at once."""

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
    ('convolutional network', 'dense network', 'random convolutions')
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
        The most windows that an attacker is trained on, over all draws.
    draws
        How often training windows are obfuscated.
    network
        Size and training of the networks.
    kernels
        Random convolutions.
    rounds
        Boosting rounds of trees.
    attackers
        Names of the attackers; default: all that are registered.
    sessions
        Size and training of session attackers.
    session_attackers
        Their names; default: all that are registered.
    looks
        How often one test window is obfuscated, at most; 0 for no such attack.
    look_windows
        The most windows that are obfuscated so often.
    """

    windows: int = 200_000
    draws: int = 3
    network: ClassifierSettings = field(
        default_factory=lambda: ClassifierSettings(64, 25, batch_size=512, learning_rate=3e-3)
    )
    kernels: int = 500
    rounds: int = 100
    attackers: tuple[str, ...] = field(default_factory=list_attackers)
    sessions: SessionBudget = field(default_factory=SessionBudget)
    session_attackers: tuple[str, ...] = field(default_factory=list_session_attackers)
    looks: int = 20
    look_windows: int = 1_000

    def __post_init__(self) -> None:
        if not self.attackers:
            raise Refusal(f"no attacker is named; known: {', '.join(_ATTACKERS)}")
        for name in self.attackers:
            attacker_class(name)
        for name in self.session_attackers:
            session_attacker_class(name)
        for name in ("windows", "draws"):
            if getattr(self, name) < 1:
                raise Refusal(f"{name} is {getattr(self, name)}; give 1 or more")

    @classmethod
    def quick(cls) -> Budget:
        """For two cores: a minute instead of hours."""
        network = ClassifierSettings(width=16, epochs=8, batch_size=64, learning_rate=5e-3)
        return cls(
            windows=5_000,
            draws=2,
            network=network,
            kernels=300,
            rounds=40,
            attackers=(CNN, CONVOLUTIONS, TREES),
            sessions=SessionBudget.quick(),
            look_windows=100,
        )

    def look_attackers(self) -> tuple[str, ...]:
        """Those that see several obfuscations of the same window: a cheap one, and sessions'."""
        cheap = CONVOLUTIONS if CONVOLUTIONS in self.attackers else self.attackers[0]
        return (cheap, *self.session_attackers)


class Attacker(ABC):
    """Predicts an attribute from windows.

    One object attacks all attributes of one training set. What it learns without labels
    (`fit_features`) serves all of them. An attacker that learns all attributes at once overrides
    `fit_all` and `predict_all`; others learn one after the other.

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
        return windows if condition is None else condition_windows(condition, windows)

    @abstractmethod
    def fit(self, windows: Any, codes: np.ndarray, num_classes: int) -> Attacker:
        """Learn from features and their classes; some classes may not occur."""

    @abstractmethod
    def predict_log_proba(self, windows: Any) -> np.ndarray:
        """Log-probability of each class, (n, num_classes)."""

    def fit_all(
        self, windows: Any, labels: Mapping[str, np.ndarray], num_classes: Mapping[str, int]
    ) -> Attacker:
        """Learn several attributes; a class may be UNKNOWN."""
        self.each_ = {}
        for name, codes in labels.items():
            known = np.flatnonzero(codes != UNKNOWN)
            own = copy.copy(self)
            self.each_[name] = own.fit(_rows(windows, known), codes[known], num_classes[name])
        return self

    def predict_all(self, windows: Any) -> dict[str, np.ndarray]:
        """Log-probability of each class of every attribute learnt, (n, classes)."""
        return {name: own.predict_log_proba(windows) for name, own in self.each_.items()}


_ONLY = "only"


class JointAttacker(Attacker):
    """An attacker that learns all attributes at once; subclasses give `fit_all`, `predict_all`."""

    def fit(self, windows: Any, codes: np.ndarray, num_classes: int) -> JointAttacker:
        """Learn one attribute."""
        self.fit_all(windows, {_ONLY: codes}, {_ONLY: num_classes})
        return self

    def predict_log_proba(self, windows: Any) -> np.ndarray:
        """Log-probability of each class of the only attribute, (n, num_classes)."""
        return self.predict_all(windows)[_ONLY]


def _rows(features: Any, index: np.ndarray) -> Any:
    return features.select(index) if isinstance(features, Windows) else features[index]


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


@register_attacker(CNN)
class NetworkAttacker(JointAttacker):
    """The papers' inference model; dense layers for a condition, which has no neighbours in time."""

    summary = "four convolutional and three dense layers, as in the papers"

    def fit_all(
        self, windows: Windows, labels: Mapping[str, np.ndarray], num_classes: Mapping[str, int]
    ) -> NetworkAttacker:
        """Train one network with outputs for all attributes."""
        settings = self.budget.network
        if windows.channels == CONDITION:
            settings = replace(settings, network="mlp")
        self.classifier_ = JointClassifier(settings, self.seed, self.device)
        self.classifier_.fit_labels(windows, labels, num_classes)
        return self

    def predict_all(self, windows: Windows) -> dict[str, np.ndarray]:
        """Log-probability of each class of each attribute."""
        return self.classifier_.log_probabilities_of(windows)


@register_attacker(MLP)
class DenseAttacker(NetworkAttacker):
    """The inference model of ObscureNet's code: dense layers alone."""

    summary = "dense layers alone, as in the code of ObscureNet"

    def __init__(self, budget: Budget | None = None, seed: int = 0, device: str = "cpu") -> None:
        super().__init__(budget, seed, device)
        network = replace(self.budget.network, network="mlp", learning_rate=1e-3)
        self.budget = replace(self.budget, network=network)


@register_attacker(CONVOLUTIONS)
class RandomConvolutionAttacker(JointAttacker):
    """A linear classifier on random convolutions, or on the condition."""

    summary = "random convolutions with a linear head, as in Rocket"

    def fit_features(self, train: Windows, condition: np.ndarray | None) -> None:
        """Draw the kernels."""
        self.groups_ = recording_groups(train.recording, train.recordings)
        if condition is None:
            kernels = RandomConvolutions(self.budget.kernels, self.seed, self.device)
            self.kernels_ = kernels.fit(self._seen(train))

    def features(self, windows: Windows, condition: np.ndarray | None) -> torch.Tensor:
        """Two numbers of each convolution, or the condition."""
        if condition is not None:
            return torch.as_tensor(condition, dtype=torch.float32, device=self.device)
        return self.kernels_.transform_tensor(self._seen(windows))

    def _seen(self, windows: Windows) -> Windows:
        return windows

    def fit_all(
        self,
        windows: torch.Tensor,
        labels: Mapping[str, np.ndarray],
        num_classes: Mapping[str, int],
    ) -> RandomConvolutionAttacker:
        """Fit one linear classifier for all attributes."""
        linear = LinearClassifier(self.device)
        self.linear_ = linear.fit(windows, labels, num_classes, self.groups_)
        return self

    def predict_all(self, windows: torch.Tensor) -> dict[str, np.ndarray]:
        """Log-probability of each class of each attribute."""
        return self.linear_.predict_log_proba(windows)


@register_attacker(DIFFERENCES)
class DifferenceAttacker(RandomConvolutionAttacker):
    """Random convolutions of what changes from the window before in the same recording."""

    summary = "random convolutions of the difference from the window before"

    def _seen(self, windows: Windows) -> Windows:
        return differences(windows)


def differences(windows: Windows) -> Windows:
    """Each window minus the one before it in its recording; the first of a recording becomes zero.

    Examples
    --------
    >>> windows = Windows.from_signal(np.array([[[1.0, 1.0]], [[3.0, 4.0]]]))
    >>> one = replace(windows, recording=np.array([0, 0]), start=np.array([0, 2]))
    >>> differences(one).signal[1].tolist()
    [[2.0, 3.0]]
    """
    order = np.lexsort([windows.start, windows.recording])
    before = np.arange(len(windows))
    same = windows.recording[order][1:] == windows.recording[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    signal = windows.recorded.signal
    return windows.replaced(signal - signal[before])


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


@register_attacker(MATCHING)
class MatchingAttacker(RandomConvolutionAttacker):
    """Nearest neighbours in an embedding that is learnt to tell people apart.

    The embedding is the linear discriminant of the people where they are among the attributes, and
    of each attribute itself otherwise.
    """

    summary = "nearest neighbours in an embedding of people"

    def fit_all(
        self,
        windows: torch.Tensor,
        labels: Mapping[str, np.ndarray],
        num_classes: Mapping[str, int],
    ) -> MatchingAttacker:
        """Learn the embedding, and keep the embedded training windows."""
        from sklearn.preprocessing import StandardScaler

        self.scaler_ = StandardScaler().fit(windows.cpu().numpy())
        units = self.scaler_.transform(windows.cpu().numpy())
        people = "subject" in labels
        self.embedding_of_ = {name: "subject" if people else name for name in labels}
        self.directions_, self.embedded_ = {}, {}
        for name in dict.fromkeys(self.embedding_of_.values()):
            self.directions_[name] = _discriminant(units, labels[name])
            self.embedded_[name] = self._embedded(windows, name)
        self.classes_ = {
            name: torch.from_numpy(own).to(windows.device) for name, own in labels.items()
        }
        self.num_classes_ = dict(num_classes)
        return self

    def predict_all(self, windows: torch.Tensor) -> dict[str, np.ndarray]:
        """The log share of each class among neighbours, and of all training windows as one more."""
        neighbours = {name: self._neighbours(windows, name) for name in self.embedded_}
        found = {}
        for name, codes in self.classes_.items():
            count = self.num_classes_[name]
            one_hot = functional.one_hot(codes + 1, count + 1)[:, 1:].float()  # UNKNOWN is -1
            prior = one_hot.sum(0) / one_hot.sum()
            near = neighbours[self.embedding_of_[name]]
            votes = torch.cat([one_hot[part].sum(1) for part in near.split(_MATCHED)])
            shares = (votes + prior) / (votes.sum(1, keepdim=True) + 1)
            found[name] = shares.clamp_min(_SMALLEST).log().cpu().numpy()
        return found

    def _neighbours(self, windows: torch.Tensor, name: str) -> torch.Tensor:
        """Positions (n, neighbours) of the nearest training windows in one embedding."""
        learnt = self.embedded_[name]
        near = min(len(learnt), max(5, round(len(learnt) ** 0.5 / 2)))
        return torch.cat(
            [
                torch.cdist(part, learnt).topk(near, largest=False).indices
                for part in self._embedded(windows, name).split(_MATCHED)
            ]
        )

    def _embedded(self, features: torch.Tensor, name: str) -> torch.Tensor:
        embedded = self.scaler_.transform(features.cpu().numpy()) @ self.directions_[name]
        return torch.from_numpy(embedded.astype(np.float32)).to(features.device)


def _discriminant(units: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Directions (features, classes - 1) of the linear discriminant of the known classes."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    known = codes != UNKNOWN
    discriminant = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1)
    discriminant.fit(units[known], codes[known])
    return np.asarray(discriminant.scalings_[:, : len(discriminant.classes_) - 1])


def condition_windows(condition: np.ndarray, place: Windows | None = None) -> Windows:
    """A method's condition (n, numbers) as windows of one channel.

    `place` are the windows that it belongs to, in order: their recordings and starts are taken over.

    Examples
    --------
    >>> condition_windows(np.zeros((3, 20))).shape
    (1, 20)
    """
    made = replace(Windows.from_signal(condition[:, None].astype(np.float32)), channels=CONDITION)
    if place is None:
        return made
    return replace(made, start=place.start, recording=place.recording, recordings=place.recordings)
