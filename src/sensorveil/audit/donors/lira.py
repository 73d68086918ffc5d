"""LiRA, the likelihood ratio attack of Carlini and others (2022).

Many shadow models, each trained on a random half of the windows, show for every single window how
it scores in models that were trained on it and in models that were not. The attack finds few
members with confidence rather than many perhaps, so its figure is the true positive rate at 1%
false positives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from sensorveil.audit.donors.membership import (
    MembershipAttack,
    Target,
    Trainer,
    evaluate_attack,
)
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.csi import ClassGenerator
from sensorveil.progress import track
from sensorveil.train import derived_seed

MIN_MODELS_FOR_OWN_VARIANCE = 64
"""With fewer shadow models, all windows share one variance; their own would be too noisy."""

Score = Callable[[Any, Windows], np.ndarray]
"""How well a model fits each window, (n,): higher for those that it was trained on."""

Ratios = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From the shadows' scores (models, n), which windows they were trained on (models, n), and the
target's scores (n,) to numbers (n,) that are higher for its members."""


def logit_score(attribute: str) -> Score:
    """The score of classifiers: log p_y - log(1 - p_y) of the true class y, close to normal."""

    def score(model: Target, windows: Windows) -> np.ndarray:
        logs = model.log_probabilities(windows).astype(np.float64)
        is_true = np.eye(logs.shape[1], dtype=bool)[windows.codes(attribute)]
        return logs[is_true] - logsumexp(np.where(is_true, -np.inf, logs), axis=1)

    return score


def reconstruction_score(generator: ClassGenerator, windows: Windows) -> np.ndarray:
    """The score of generators: minus the log of the reconstruction error."""
    return -np.log(np.maximum(generator.reconstruction_errors(windows), 1e-30))


def lira(
    train: Trainer,
    score: Score,
    windows: Windows,
    shadows: int = 16,
    seed: int = 0,
    groups: np.ndarray | None = None,
) -> MembershipAttack:
    """Train shadow models and one target, each on half of the windows, and attack the target.

    Parameters
    ----------
    train, score
        What is attacked: classifiers with `logit_score`, generators with `reconstruction_score`.
    windows
        Members and nonmembers.
    shadows
        Number of shadow models.
    seed
        Of the halves and of the trainings.
    groups
        Which windows stay together, (n,); those of one recording by default.
    """
    if shadows < 2:
        raise Refusal(f"{shadows} shadow models cannot show both sides; take 2 or more")
    inside = balanced_halves(windows.recording if groups is None else groups, shadows + 1, seed)
    (scores,) = _scores(train, [score], windows, inside, seed)
    return _attack(scores, inside, shadows, np.arange(shadows))


def lira_in_turn(
    train: Trainer,
    scores: Mapping[str, Score],
    windows: Windows,
    models: int = 8,
    seed: int = 0,
    groups: np.ndarray | None = None,
) -> dict[str, list[MembershipAttack]]:
    """Every model is the target once, so that every training gives an attack.

    Models come in pairs, each trained on what the other was not. The shadows of a target are all
    models but its pair; so every window is in half of them, whether or not the target was trained
    on it. (With its partner as a shadow, a member would have fewer shadows that were trained on it,
    hence a noisier centre, and would look like a nonmember.) The parameters are those of `lira`,
    with several scores of the same models.
    """
    check_models(models)
    inside = complementary_halves(
        windows.recording if groups is None else groups, models // 2, seed
    )
    found = _scores(train, list(scores.values()), windows, inside, seed)
    return {name: attacks_in_turn(own, inside) for name, own in zip(scores, found, strict=True)}


def attacks_in_turn(
    scores: np.ndarray, inside: np.ndarray, ratios: Ratios | None = None
) -> list[MembershipAttack]:
    """The attack on each model by means of all others but its pair; see `lira_in_turn`.

    Parameters
    ----------
    scores
        How well each model fits each window, (models, n).
    inside
        Which windows each model was trained on, as `complementary_halves` gives it.
    ratios
        Default: `likelihood_ratios`.

    Examples
    --------
    >>> inside = complementary_halves(np.arange(40), pairs=2, seed=0)
    >>> attacks = attacks_in_turn(3.0 * inside + np.arange(40), inside)
    >>> [attack.auc for attack in attacks]
    [1.0, 1.0, 1.0, 1.0]
    """
    number = np.arange(len(scores))
    return [
        _attack(scores, inside, target, np.flatnonzero(number // 2 != target // 2), ratios)
        for target in range(len(scores))
    ]


def check_models(models: int) -> None:
    """Refuse a number of models that cannot be the target in turn."""
    if models < 4 or models % 2:
        raise Refusal(f"{models} models are no pairs that attack each other; take 4, 6, 8 or more")


def _scores(
    train: Trainer, scores: Sequence[Score], windows: Windows, inside: np.ndarray, seed: int
) -> list[np.ndarray]:
    """Train a model for each row of `inside`; every score of all models, (models, n)."""
    rows: list[list[np.ndarray]] = [[] for _ in scores]
    for number in track(range(len(inside)), "shadow models"):
        model = train(windows.select(inside[number]), derived_seed(seed, number))
        for own, score in zip(rows, scores, strict=True):
            own.append(score(model, windows))
    return [np.array(own) for own in rows]


def _attack(
    scores: np.ndarray,
    inside: np.ndarray,
    target: int,
    shadows: np.ndarray,
    ratios: Ratios | None = None,
) -> MembershipAttack:
    found = (ratios or likelihood_ratios)(scores[shadows], inside[shadows], scores[target])
    return evaluate_attack("LiRA", found, inside[target])


def likelihood_ratios(scores: np.ndarray, inside: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """log N(asked; in) - log N(asked; out) for each window, from shadows (models, n).

    >>> scores = np.array([[2.0], [2.2], [0.0], [0.2]])
    >>> inside = np.array([[True], [True], [False], [False]])
    >>> [float(likelihood_ratios(scores, inside, np.array([x]))[0]) > 0 for x in (2.1, 0.1)]
    [True, False]
    """
    logs = []
    for side in (inside, ~inside):
        own = np.where(side, scores, np.nan)
        centre = np.nanmedian(own, axis=0)
        variance = np.nanmean((own - centre) ** 2, axis=0)
        if len(scores) < MIN_MODELS_FOR_OWN_VARIANCE:
            variance = np.full_like(variance, variance.mean())
        logs.append(norm.logpdf(asked, centre, np.sqrt(np.maximum(variance, 1e-12))))
    return logs[0] - logs[1]


def above_nonmembers(scores: np.ndarray, inside: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The target's score above the mean score of shadows that were not trained on the window.

    It needs no model of members. So it finds them where few of them stand out at all, as the windows
    that a method happened to copy.

    >>> scores = np.array([[9.0], [1.0], [2.0]])
    >>> above_nonmembers(scores, np.array([[True], [False], [False]]), np.array([4.0])).tolist()
    [2.5]
    """
    return np.asarray(asked - np.nanmean(np.where(inside, np.nan, scores), axis=0))


def balanced_halves(groups: np.ndarray, models: int, seed: int) -> np.ndarray:
    """Which windows each model is trained on, (models, n).

    Every group is in half of the shadow models; the last row, the target's, is independent.

    >>> balanced_halves(np.array([0, 0, 1, 2]), 5, seed=0)[:4].sum(0).tolist()
    [2, 2, 2, 2]
    """
    rng = np.random.default_rng(seed)
    names, index = np.unique(groups, return_inverse=True)
    shadows = np.arange(models - 1) % 2 == 0
    columns = [rng.permutation(shadows) for _ in names]
    target = rng.permutation(np.arange(len(names)) % 2 == 0)
    return np.vstack([np.stack(columns, axis=1), target])[:, index]


def complementary_halves(
    groups: np.ndarray, pairs: int, seed: int, strata: np.ndarray | None = None
) -> np.ndarray:
    """Which windows each model is trained on, (2 pairs, n): a random half, then the other one.

    Parameters
    ----------
    groups
        Which windows stay together, (n,).
    pairs, seed
        Number of pairs of models, and the seed of the halves.
    strata
        Windows' strata, (n, levels), the most important one first. Each half has half of the groups of
        each stratum, as nearly as can be. A group is of the stratum of its first window.

    Examples
    --------
    >>> complementary_halves(np.array([0, 0, 1, 2, 3]), 3, seed=0).sum(0).tolist()
    [3, 3, 3, 3, 3]
    >>> activity = np.repeat([0, 1], 4)
    >>> halves = complementary_halves(np.arange(8), 1, seed=0, strata=activity[:, None])
    >>> np.bincount(activity[halves[0]]).tolist()
    [2, 2]
    """
    rng = np.random.default_rng(seed)
    names, first, index = np.unique(groups, return_index=True, return_inverse=True)
    if strata is None:
        firsts = [rng.permutation(np.arange(len(names)) % 2 == 0) for _ in range(pairs)]
    else:
        firsts = [_half_of_strata(strata[first], rng) for _ in range(pairs)]
    return np.stack([side for half in firsts for side in (half, ~half)])[:, index]


def _half_of_strata(strata: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Groups that follow each other, in an order by stratum, are dealt one to each half."""
    keys = [rng.permutation(column.max() + 1)[column] for column in strata.T]
    order = np.lexsort([rng.random(len(strata)), *reversed(keys)])
    half = np.empty(len(strata), bool)
    swaps = np.repeat(rng.integers(2, size=len(order)), 2)[: len(order)]
    half[order] = (np.arange(len(order)) + swaps) % 2 == 0
    return half
