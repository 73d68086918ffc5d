"""Whose windows a model learnt from: membership inference, and how it is scored.

The attack of the CSI paper is the first of Salem and others (ML-Leaks): a shadow model, trained as
the target was, shows how sure models are of windows that they saw, and of others. It asks nothing
of the target but its posteriors, so the target may be any classifier: one that was trained on raw
windows, or (`donors.py`) on those that any method made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.measures.linear import LinearReader
from sensorveil.measures.roc import auc
from sensorveil.train import derived_seed

TOP = 3
"""How many of the largest posteriors the attack looks at."""

_TARGET, _SHADOW = 31, 32  # what seeds are for


class Classifier(Protocol):
    """What a target must answer: log-probabilities of each class, (n, classes)."""

    def log_probabilities(self, windows: Windows) -> np.ndarray:
        """For each window, of each class."""
        ...


Trainer = Callable[[Windows, int], Classifier]
"""Trains a target from windows, all of them members, and a seed."""


@dataclass(frozen=True)
class Attack:
    """How well an attacker tells members from others: equations (21) and (22), and beyond.

    `success` is the share of right answers among as many members as others. `at_1` is the share of
    members found where 1% of others are accused, `at_01` where 0.1% are; that needs 1,000 others.
    """

    name: str
    auc: float
    success: float
    at_1: float
    at_01: float | None
    members: int
    others: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def judged(
    name: str, scores: np.ndarray, inside: np.ndarray, threshold: float | None = None
) -> Attack:
    """The attack that gives members higher scores; without a threshold, at the best one.

    >>> judged("guess", np.array([3.0, 2.0, 1.0, 0.0]), np.array([True, True, False, False])).auc
    1.0
    """
    members, others = scores[inside], scores[~inside]
    if not len(members) or not len(others):
        raise Refusal("an attack on membership needs members and others")
    tried = np.unique(scores) if threshold is None else np.array([threshold])
    found = 1 - np.searchsorted(np.sort(members), tried) / len(members)
    accused = 1 - np.searchsorted(np.sort(others), tried) / len(others)
    return Attack(
        name=name,
        auc=float(auc(scores, inside, np.ones((1, len(scores))))[0]),
        success=float(((found + 1 - accused) / 2).max()),
        at_1=found_at(scores, inside, 0.01),
        at_01=found_at(scores, inside, 0.001) if len(others) >= 1000 else None,
        members=len(members),
        others=len(others),
    )


def found_at(scores: np.ndarray, inside: np.ndarray, accused: float) -> float:
    """The share of members above a threshold that at most this share of others is above.

    >>> found_at(np.array([9.0, 5.0, 4.0, 8.0, 1.0]), np.array([1, 1, 0, 0, 0]) > 0, 0.4)
    1.0
    """
    members, others = scores[inside], np.sort(scores[~inside])[::-1]
    allowed = int(accused * len(others))
    return float((members > others[allowed]).mean()) if allowed < len(others) else 1.0


def shadow_attack(
    train: Trainer, windows: Windows, seed: int = 0, groups: np.ndarray | None = None
) -> Attack:
    """Trains a target and a shadow on a quarter each, and attacks the target by the shadow.

    Recordings, or `groups` of windows, are dealt to the quarters as a whole: windows that overlap,
    or that several receivers heard, would be near members.
    """
    quarter = dealt(windows.recording if groups is None else groups, 4, seed)
    parts = [windows.select(quarter == which) for which in range(4)]
    target = train(parts[0], derived_seed(seed, _TARGET))
    shadow = train(parts[2], derived_seed(seed, _SHADOW))
    attacker = LinearReader(shrinkage=1e-4).fit(
        np.concatenate([largest(shadow, parts[2]), largest(shadow, parts[3])]),
        np.repeat([1, 0], [len(parts[2]), len(parts[3])]),
        2,
    )
    logs = attacker.log_probabilities(
        np.concatenate([largest(target, parts[0]), largest(target, parts[1])])
    )
    inside = np.repeat([True, False], [len(parts[0]), len(parts[1])])
    return judged("shadow", logs[:, 1] - logs[:, 0], inside, threshold=0.0)


def largest(model: Classifier, windows: Windows) -> np.ndarray:
    """The largest posteriors of each window, the largest first: (n, 3)."""
    found = np.exp(model.log_probabilities(windows).astype(np.float64))
    return np.sort(found, axis=1)[:, ::-1][:, :TOP]


def dealt(groups: np.ndarray, parts: int, seed: int) -> np.ndarray:
    """A part for each window, those of one group together; as many groups in each, or nearly.

    >>> dealt(np.array([0, 0, 1, 1]), 2, seed=0).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    True
    """
    names, index = np.unique(groups, return_inverse=True)
    if len(names) < parts:
        raise Refusal(f"{len(names)} recordings are too few for {parts} parts")
    cards = np.arange(len(names)) % parts
    return np.random.default_rng(seed).permutation(cards)[index]
