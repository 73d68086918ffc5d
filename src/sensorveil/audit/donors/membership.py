"""Membership inference: was a window used to train a model?

The attack of the CSI paper is the first of Salem and others (ML-Leaks, 2018): a shadow model,
trained as the target was, shows how confident models are on windows that they were trained on, and
on others. It sees the target's posteriors only, so the target may be any classifier: one trained on
raw windows, or (`study.py`) on those that a method released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.train import derived_seed

TOP_POSTERIORS = 3
"""How many of the largest posteriors the attack sees."""

_TARGET_SEED, _SHADOW_SEED = 31, 32


class Target(Protocol):
    """A classifier under attack."""

    def log_probabilities(self, windows: Windows) -> np.ndarray:
        """Log-probability of each class for each window, (n, classes)."""


Trainer = Callable[[Windows, int], Any]
"""Trains a model on windows, with a seed; for `shadow_attack` a `Target`."""


@dataclass(frozen=True)
class MembershipAttack:
    """How well an attack tells members from nonmembers: equations (21) and (22), and beyond.

    Parameters
    ----------
    name
        Of the attack.
    auc
        Area under the ROC curve.
    success_rate
        Share of right answers among as many members as nonmembers.
    tpr_at_1pct, tpr_at_01pct
        Share of members found at a false positive rate of 1% and of 0.1%; the second needs 1,000
        nonmembers.
    members, nonmembers
        Number of windows.
    """

    name: str
    auc: float
    success_rate: float
    tpr_at_1pct: float
    tpr_at_01pct: float | None
    members: int
    nonmembers: int


def evaluate_attack(
    name: str, scores: np.ndarray, is_member: np.ndarray, threshold: float | None = None
) -> MembershipAttack:
    """Evaluate scores that should be higher for members; without a threshold, at the best one.

    >>> is_member = np.array([True, True, False, False])
    >>> evaluate_attack("perfect", np.array([3.0, 2.0, 1.0, 0.0]), is_member).auc
    1.0
    """
    members, nonmembers = scores[is_member], scores[~is_member]
    if not len(members) or not len(nonmembers):
        raise Refusal("an attack on membership needs members and nonmembers")
    false_positives, true_positives, _ = roc_curve(is_member, scores, drop_intermediate=False)
    if threshold is None:
        success = ((true_positives + 1 - false_positives) / 2).max()
    else:
        success = ((members >= threshold).mean() + (nonmembers < threshold).mean()) / 2
    at_1pct, at_01pct = (
        float(true_positives[false_positives <= rate].max()) for rate in (0.01, 0.001)
    )
    return MembershipAttack(
        name,
        float(roc_auc_score(is_member, scores)),
        float(success),
        at_1pct,
        at_01pct if len(nonmembers) >= 1000 else None,
        len(members),
        len(nonmembers),
    )


def shadow_attack(
    train: Trainer, windows: Windows, seed: int = 0, groups: np.ndarray | None = None
) -> tuple[MembershipAttack, Any]:
    """Train a target and a shadow model on a quarter of the windows each, and attack the target.

    Parameters
    ----------
    train
        Trains the target and its shadow.
    windows
        They are divided into members and nonmembers of the target and of its shadow.
    seed
        Of the division and of the trainings.
    groups
        Which windows stay together, (n,); by default those of one recording, as overlapping windows
        would be near copies of members.

    Returns
    -------
    tuple of MembershipAttack and Target
        The attack, and the target.
    """
    quarter = divide(windows.recording if groups is None else groups, 4, seed)
    parts = [windows.select(quarter == number) for number in range(4)]
    target = train(parts[0], derived_seed(seed, _TARGET_SEED))
    shadow = train(parts[2], derived_seed(seed, _SHADOW_SEED))
    # The inference model m of equations (1) to (3): logistic regression maximises the gain (2).
    known = np.concatenate([top_posteriors(shadow, part) for part in parts[2:]])
    attacker = make_pipeline(StandardScaler(), LogisticRegression(C=1e4 / len(known)))
    attacker.fit(known, np.repeat([1, 0], [len(parts[2]), len(parts[3])]))
    asked = np.concatenate([top_posteriors(target, part) for part in parts[:2]])
    is_member = np.repeat([True, False], [len(parts[0]), len(parts[1])])
    scores = attacker.decision_function(asked)
    return evaluate_attack("shadow", scores, is_member, threshold=0.0), target


def top_posteriors(target: Target, windows: Windows) -> np.ndarray:
    """The largest posteriors of each window in descending order, (n, 3)."""
    posteriors = np.exp(target.log_probabilities(windows).astype(np.float64))
    return np.sort(posteriors, axis=1)[:, ::-1][:, :TOP_POSTERIORS]


def divide(groups: np.ndarray, parts: int, seed: int) -> np.ndarray:
    """A random part for each window, with equally many groups; groups stay together.

    >>> divide(np.array([0, 0, 1, 1]), 2, seed=0).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    True
    """
    names, index = np.unique(groups, return_inverse=True)
    if len(names) < parts:
        raise Refusal(f"{len(names)} recordings are too few for {parts} parts")
    return np.random.default_rng(seed).permutation(np.arange(len(names)) % parts)[index]
