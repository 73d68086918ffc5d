"""LiRA of Carlini and others (2022): is a window's score that of models which saw it, or not?

Many shadow models, each trained on a random half, show for every single window how it scores when
it was in and when it was out. That finds few members for sure rather than many perhaps, so it is
judged by how many members it finds where 1% of others are accused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sensorveil.audit.membership import Attack, Classifier, judged
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.generator import ClassGenerator
from sensorveil.progress import track
from sensorveil.train import derived_seed

POOLED_BELOW = 64
"""With fewer shadow models, all windows share one variance: their own would be too rough."""

Score = Callable[[Any, Windows], np.ndarray]
"""How well a model knows each window, (n,): higher for those that it was trained on."""


def confidence(attribute: str) -> Score:
    """log p_y - log of all other classes, y being the true class: near to normal."""

    def score(model: Classifier, windows: Windows) -> np.ndarray:
        logs = model.log_probabilities(windows).astype(np.float64)
        own = np.eye(logs.shape[1], dtype=bool)[windows.codes(attribute)]
        rest = np.where(own, -np.inf, logs).max(1)
        others = rest + np.log(np.exp(np.where(own, -np.inf, logs) - rest[:, None]).sum(1))
        return logs[own] - others

    return score


def memory(generator: ClassGenerator, windows: Windows) -> np.ndarray:
    """How well a generator knows each window, whatever its training: the score of generators."""
    return -np.log(np.maximum(generator.errors(windows), 1e-30))


def lira(
    train: Callable[[Windows, int], Any],
    score: Score,
    windows: Windows,
    shadows: int = 16,
    seed: int = 0,
    groups: np.ndarray | None = None,
) -> Attack:
    """Trains so many shadow models and one target, each on half of the recordings, and attacks it.

    What is in or out as a whole is a recording, or one of the `groups`.
    `train` and `score` go together: a classifier by `confidence`, and a generator by `memory`. The
    classifier may be one that is trained on what any method made.
    """
    if shadows < 2:
        raise Refusal(f"{shadows} shadow models cannot show both sides; take 2 or more")
    inside = halves(windows.recording if groups is None else groups, shadows + 1, seed)
    (scores,) = _scored(train, [score], windows, inside, seed)
    return _attacked(scores, inside, target=shadows)


def check_models(models: int) -> None:
    """Refuses a number of models that cannot be the target in turn."""
    if models < 4 or models % 2:
        raise Refusal(f"{models} models are no pairs that attack each other; take 4, 6, 8 or more")


def lira_in_turn(
    train: Callable[[Windows, int], Any],
    scores: Mapping[str, Score],
    windows: Windows,
    models: int = 8,
    seed: int = 0,
    groups: np.ndarray | None = None,
) -> dict[str, list[Attack]]:
    """Each of so many models is the target once, so that every training gives an attack.

    Models come in pairs, each trained on what the other was not. A target's shadows are all models
    but its own pair: then every window is in half of them, whether the target saw it or not. (Were
    its partner a shadow, a member would have fewer shadows that saw it, hence a rougher centre of
    these, and would look like no member.) The same models are asked by each of the `scores`.
    """
    check_models(models)
    inside = complements(windows.recording if groups is None else groups, models // 2, seed)
    found = _scored(train, list(scores.values()), windows, inside, seed)
    return {
        name: [_attacked(own, inside, target, pair=True) for target in range(models)]
        for name, own in zip(scores, found, strict=True)
    }


def _scored(
    train: Callable[[Windows, int], Any],
    scores: Sequence[Score],
    windows: Windows,
    inside: np.ndarray,
    seed: int,
) -> list[np.ndarray]:
    """A model for each row of `inside`, and what each score says of it: (models, n) each."""
    rows: list[list[np.ndarray]] = [[] for _ in scores]
    for which in track(range(len(inside)), "shadow models"):
        model = train(windows.select(inside[which]), derived_seed(seed, which))
        for own, score in zip(rows, scores, strict=True):
            own.append(score(model, windows))
    return [np.array(own) for own in rows]


def _attacked(scores: np.ndarray, inside: np.ndarray, target: int, pair: bool = False) -> Attack:
    """One model attacked by all others, or by those of other pairs."""
    number = np.arange(len(scores))
    others = number // 2 != target // 2 if pair else number != target
    found = likelihood_ratios(scores[others], inside[others], scores[target])
    return judged("LiRA", found, inside[target])


def halves(groups: np.ndarray, models: int, seed: int) -> np.ndarray:
    """Who is in for each model, (models, n): every group in half of the shadow models.

    So no window is without models that saw it, or without those that did not. The last row, of the
    target, is drawn by itself.

    >>> halves(np.array([0, 0, 1, 2]), 5, seed=0)[:4].sum(0).tolist()
    [2, 2, 2, 2]
    """
    generator = np.random.default_rng(seed)
    names, index = np.unique(groups, return_inverse=True)
    shadows = np.arange(models - 1) % 2 == 0
    columns = [generator.permutation(shadows) for _ in names]
    target = generator.permutation(np.arange(len(names)) % 2 == 0)
    return np.vstack([np.stack(columns, axis=1), target])[:, index]


def complements(groups: np.ndarray, pairs: int, seed: int) -> np.ndarray:
    """Who is in for each model, (2 pairs, n): a random half of the groups, then all others.

    >>> complements(np.array([0, 0, 1, 2, 3]), 3, seed=0).sum(0).tolist()
    [3, 3, 3, 3, 3]
    """
    generator = np.random.default_rng(seed)
    names, index = np.unique(groups, return_inverse=True)
    firsts = [generator.permutation(np.arange(len(names)) % 2 == 0) for _ in range(pairs)]
    return np.stack([side for half in firsts for side in (half, ~half)])[:, index]


def likelihood_ratios(scores: np.ndarray, inside: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """log N(asked; in) - log N(asked; out) for each window, of shadows (models, n).

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
        if len(scores) < POOLED_BELOW:
            variance = np.full_like(variance, variance.mean())
        variance = np.maximum(variance, 1e-12)
        logs.append(-((asked - centre) ** 2) / (2 * variance) - np.log(variance) / 2)
    return logs[0] - logs[1]
