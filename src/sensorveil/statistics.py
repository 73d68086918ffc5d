"""Statistics of predictions: scores of confusion tables, intervals over people, ROC, matching.

None of this knows attackers, methods or datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal

DRAWS, AUC_DRAWS = 1000, 200
"""Bootstrap draws; with 1,000 the ends of a 95% interval vary by about a tenth of its width."""

Statistic = Callable[[np.ndarray], np.ndarray]
"""Takes tables with any leading axes and returns one value for each of them."""


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that would hold it in 95 of 100 samples of people and seeds.

    `spread` is the standard deviation over seeds, where there are several. With fewer than about
    fifteen people the interval is too narrow (it then covers 80 to 90%), and `people` says so.

    >>> print(Estimate(0.971, 0.955, 0.983, people=24, seeds=3))
    97.1% (95.5 to 98.3)
    """

    value: float
    low: float
    high: float
    people: int
    seeds: int = 1
    spread: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.1%} ({100 * self.low:.1f} to {100 * self.high:.1f})"

    def above(self, level: float) -> Estimate:
        """The same estimate counted from a fixed level, as an advantage over the majority baseline is."""
        return replace(self, value=self.value - level, low=self.low - level, high=self.high - level)

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON."""
        return asdict(self)


def bootstrap(
    tables: np.ndarray,
    statistic: Statistic,
    rng: np.random.Generator | None = None,
    draws: int = DRAWS,
    tail: float = 0.05,
) -> Estimate:
    """An estimate from tables (seeds, people, ...), resampling people and seeds.

    Windows of one person are alike, so people, not windows, are drawn. Each draw adds up the
    tables of the people drawn (and averages over the seeds drawn) before the statistic is taken.

    Parameters
    ----------
    tables
        One table for each seed and person.
    statistic
        From tables with any leading axes to one value for each.
    rng
        Default: a fixed seed, so that the same people are drawn for every figure.
    draws, tail
        The number of draws, and the share of them outside the interval.

    Examples
    --------
    >>> tables = np.array([[[9, 10], [8, 10], [10, 10]]])  # right answers and windows, 3 people
    >>> share = lambda table: table[..., 0] / table[..., 1]
    >>> estimate = bootstrap(tables, share)
    >>> estimate.value, estimate.low, estimate.high
    (0.9, 0.8, 1.0)
    """
    seeds, people = tables.shape[:2]
    if people == 0:
        raise Refusal("no person to estimate from")
    rng = rng or np.random.default_rng(0)
    flat = tables.reshape(seeds, people, -1).astype(np.float64)
    rest = tables.shape[2:]
    person = rng.multinomial(people, np.full(people, 1 / people), size=draws)
    seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws) / seeds
    drawn = np.einsum("ds,dp,spk->dk", seed, person, flat, optimize=True)
    values = statistic(drawn.reshape(draws, *rest))
    low, high = np.nanquantile(values, [tail / 2, 1 - tail / 2])
    each = statistic(flat.sum(1).reshape(seeds, *rest))
    whole = statistic(flat.sum(1).mean(0).reshape(1, *rest))[0]
    return Estimate(
        value=float(whole),
        low=float(low),
        high=float(high),
        people=people,
        seeds=seeds,
        spread=float(np.std(each, ddof=1)) if seeds > 1 else None,
    )


def confusion_by_person(
    true: np.ndarray, predicted: np.ndarray, person: np.ndarray, classes: int
) -> np.ndarray:
    """Counts (people, classes, classes) of windows whose true class is known.

    >>> confusion_by_person(np.array([0, 1, 1]), np.array([0, 1, 0]), np.array([7, 7, 9]), 2)
    array([[[1, 0], [0, 1]], [[0, 0], [1, 0]]])
    """
    known = true != UNKNOWN
    people, index = np.unique(person[known], return_inverse=True)
    counts = np.zeros((len(people), classes, classes), int)
    np.add.at(counts, (index, true[known], predicted[known]), 1)
    return counts


def accuracy(confusion: np.ndarray) -> np.ndarray:
    """Share of windows whose class was predicted.

    >>> float(accuracy(np.array([[8, 2], [1, 9]])))
    0.85
    """
    return np.trace(confusion, axis1=-2, axis2=-1) / confusion.sum((-2, -1))


def majority(confusion: np.ndarray) -> np.ndarray:
    """The majority baseline: the accuracy of always predicting the most frequent true class."""
    return confusion.sum(-1).max(-1) / confusion.sum((-2, -1))


def balanced_accuracy(confusion: np.ndarray) -> np.ndarray:
    """Mean share of each class that was predicted, over the classes that occur."""
    return np.nanmean(recall_by_class(confusion), axis=-1)


def recall_by_class(confusion: np.ndarray) -> np.ndarray:
    """Share of each true class that was predicted; NaN where a class does not occur."""
    with np.errstate(invalid="ignore"):
        return np.diagonal(confusion, axis1=-2, axis2=-1) / confusion.sum(-1)


def f1_by_class(confusion: np.ndarray) -> np.ndarray:
    """F1 of each class, 2 TP / (2 TP + FP + FN); NaN where a class neither occurs nor is predicted.

    >>> f1_by_class(np.array([[8, 2], [1, 9]])).round(4).tolist()
    [0.8421, 0.8571]
    """
    hits = np.diagonal(confusion, axis1=-2, axis2=-1)
    with np.errstate(invalid="ignore"):
        return 2 * hits / (confusion.sum(-1) + confusion.sum(-2))


def macro_f1(confusion: np.ndarray) -> np.ndarray:
    """Mean F1 over the classes that occur."""
    occurs = confusion.sum(-1) > 0
    values = np.where(occurs, np.nan_to_num(f1_by_class(confusion)), 0.0)
    return values.sum(-1) / occurs.sum(-1)


def privacy_loss(confusion: np.ndarray) -> np.ndarray:
    """|accuracy - 1 / classes|, as in PrivDiffuser 5.3.1 and CLOAK V-B.

    The papers compare with a uniform guess among the classes. An attacker who knows the shares
    of the classes reaches `majority`, so every result has that too.

    >>> float(privacy_loss(np.array([[8, 2], [1, 9]])).round(2))
    0.35
    """
    return np.abs(accuracy(confusion) - 1 / confusion.shape[-1])


def equal_error_rate_of_counts(counts: np.ndarray) -> np.ndarray:
    """The error at the threshold where false matches are as frequent as missed ones.

    It is 0 where scores of one person and of two are apart, and 0.5 where they say nothing. Between
    two thresholds the errors run on a straight line.

    Parameters
    ----------
    counts
        Numbers (..., 2, bins) of genuine and of impostor scores, the lowest bin first.

    Examples
    --------
    >>> float(equal_error_rate_of_counts(np.array([[1, 3], [3, 1]])))
    0.25
    """
    totals = counts.sum(-1, keepdims=True)
    if (totals == 0).any():
        raise Refusal("an equal error rate needs pairs of one person and pairs of two")
    below = np.cumsum(counts, axis=-1) / totals
    below = np.concatenate([np.zeros((*below.shape[:-1], 1)), below], axis=-1)
    missed, false = below[..., 0, :], 1 - below[..., 1, :]
    # The difference never falls as the threshold rises, from -1 to 1: find where it crosses 0.
    after = np.argmax(missed - false >= 0, axis=-1)[..., None]

    def at(errors: np.ndarray, place: np.ndarray) -> np.ndarray:
        return np.take_along_axis(errors, place, axis=-1)[..., 0]

    gap_before = at(false, after - 1) - at(missed, after - 1)
    gap_after = at(missed, after) - at(false, after)
    part = gap_before / (gap_before + gap_after)
    return at(missed, after - 1) * (1 - part) + at(missed, after) * part


BINS = 1000
"""Ranks are counted in so many bins."""


def rank_counts(scores: np.ndarray, genuine: np.ndarray, person: np.ndarray) -> np.ndarray:
    """Counts (people, 2, BINS) of the ranks of genuine and impostor scores of each person's probes.

    An equal error rate depends on the order of scores alone. Ranks run from 0 to 1, equal scores
    share one, and counts can be added up, over people and over matchers of other scales.

    >>> counts = rank_counts(np.array([0.1, 0.9]), np.array([False, True]), np.array([7, 7]))
    >>> counts.shape, float(equal_error_rate_of_counts(counts.sum(0)))
    ((1, 2, 1000), 0.0)
    """
    ordered = np.sort(scores)
    below = np.searchsorted(ordered, scores, side="left")
    up_to = np.searchsorted(ordered, scores, side="right")
    where = ((below + up_to) / 2 / len(scores) * BINS).astype(int)  # always below BINS
    return _counts_by_person(where, genuine, person)


def _counts_by_person(where: np.ndarray, genuine: np.ndarray, person: np.ndarray) -> np.ndarray:
    """Counts (people, 2, BINS) of each person's genuine and impostor scores in each bin."""
    people, index = np.unique(person, return_inverse=True)
    counts = np.zeros((len(people), 2, BINS), int)
    np.add.at(counts, (index, np.where(genuine, 0, 1), where), 1)
    return counts


def rank1_hits(similarity: np.ndarray, probe: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    """For each probe 1 where the most similar session is the person's own, else 0.

    Sessions that are equally similar share the hit, as if one of them were drawn; those that may
    not be compared have similarity minus infinity. With all of them equal this is chance.

    >>> rank1_hits(np.zeros((1, 4)), np.array([0]), np.array([0, 1, 2, 3])).tolist()
    [0.25]
    """
    if similarity.shape != (len(probe), len(gallery)) or not similarity.size:
        raise Refusal(f"{similarity.shape} similarities do not fit the probes and the gallery")
    best = similarity == similarity.max(1, keepdims=True)
    own = probe[:, None] == gallery[None, :]
    return (best & own).sum(1) / best.sum(1)


def auc(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Chance that a positive scores above a negative, ties counting half; weights (draws, n).

    >>> truth = np.array([False, True, False, True])
    >>> float(auc(np.array([0.1, 0.4, 0.35, 0.8]), truth, np.ones((1, 4)))[0])
    1.0
    """
    order = np.argsort(scores, kind="stable")
    _, group = np.unique(scores[order], return_inverse=True)
    edges = np.flatnonzero(np.diff(group, prepend=-1))
    weights = weights[:, order]
    pos = np.add.reduceat(weights * positive[order], edges, axis=1)
    neg = np.add.reduceat(weights * ~positive[order], edges, axis=1)
    below = np.cumsum(neg, axis=1) - neg / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return (pos * below).sum(1) / (pos.sum(1) * neg.sum(1))


def auc_over_people(
    scores: np.ndarray,
    true: np.ndarray,
    person: np.ndarray,
    strata: np.ndarray | None = None,
) -> Estimate:
    """Area under the ROC curve, the mean over classes of one against the rest.

    Two classes give one curve, so their mean is the usual area.

    Parameters
    ----------
    scores
        Of each class, (seeds, n, classes).
    true, person
        The class and the person of each window.
    strata
        Only windows of the same stratum are compared with each other.
    """
    return _mean_over_classes(_won_pairs, scores, true, person, strata)


def tpr_at_fpr(
    scores: np.ndarray,
    true: np.ndarray,
    person: np.ndarray,
    strata: np.ndarray | None = None,
    fpr: float = 0.01,
) -> Estimate:
    """True positive rate at a low false positive rate, mean over classes of one against the rest.

    The threshold is the lowest one at which the false positive rate is at most `fpr`. Windows with
    equal scores are all above it or all below it, and nothing is interpolated, so the rate is never
    too high. With fewer than 1 / `fpr` negatives, none of them may lie above.

    Parameters
    ----------
    scores
        Of each class, (seeds, n, classes).
    true, person
        The class and the person of each window.
    strata
        Each stratum has a threshold of its own: folds have other attackers, and an attacker who
        knows the kept class can set the threshold by it. Default: one threshold.
    fpr
        The false positive rate.

    Examples
    --------
    >>> true = np.repeat([0, 1], 200)
    >>> score = np.arange(400) % 200 + 100 * true
    >>> scores = np.stack([-score, score], axis=1)[None]
    >>> round(tpr_at_fpr(scores, true, np.arange(400) % 10).value, 3)  # 102 of 200 lie above 197
    0.51
    """
    part = partial(_true_positives, fpr=fpr)
    return _mean_over_classes(part, scores, true, person, strata)


Part = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From scores, positives, persons and weights (draws, people) to hits and how many can be."""


def _mean_over_classes(
    part: Part,
    scores: np.ndarray,
    true: np.ndarray,
    person: np.ndarray,
    strata: np.ndarray | None,
) -> Estimate:
    """A share of hits over all strata, the mean over classes and seeds; people are drawn."""
    rng = np.random.default_rng(0)  # the same people for every figure
    known = true != UNKNOWN
    people, index = np.unique(person[known], return_inverse=True)
    draws = rng.multinomial(len(people), np.full(len(people), 1 / len(people)), size=AUC_DRAWS)
    weights = np.concatenate([np.ones((1, len(people)), int), draws])
    places = np.zeros(known.sum(), int) if strata is None else strata[known]
    classes = np.unique(true[known])
    each = np.array(
        [
            _mean(
                [
                    _share(part, table[known][:, c], true[known] == c, index, weights, places)
                    for c in classes
                ]
            )
            for table in scores
        ]
    )
    mean = each.mean(0)
    low, high = np.nanquantile(mean[1:], [0.025, 0.975])
    spread = float(np.std(each[:, 0], ddof=1)) if len(each) > 1 else None
    return Estimate(float(mean[0]), float(low), float(high), len(people), len(scores), spread)


def _mean(curves: list[np.ndarray]) -> np.ndarray:
    """Over the classes that were drawn; NaN where none of them was."""
    table = np.array(curves)
    drawn = np.isfinite(table)
    with np.errstate(invalid="ignore"):
        return np.where(drawn, table, 0).sum(0) / drawn.sum(0)


def _share(
    part: Part,
    scores: np.ndarray,
    positive: np.ndarray,
    person: np.ndarray,
    weights: np.ndarray,
    strata: np.ndarray,
) -> np.ndarray:
    """The share of hits for each row of people's weights, added up over the strata."""
    hits, total = np.zeros(len(weights)), np.zeros(len(weights))
    for place in np.unique(strata):
        here = strata == place
        if positive[here].all() or not positive[here].any():
            continue  # nobody to compare with
        people, index = np.unique(person[here], return_inverse=True)
        hits_here, total_here = part(scores[here], positive[here], index, weights[:, people])
        hits, total = hits + hits_here, total + total_here
    with np.errstate(invalid="ignore", divide="ignore"):
        return hits / total


def _won_pairs(
    scores: np.ndarray, positive: np.ndarray, person: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs in which the positive scores higher, by counts of ranks, and the number of pairs.

    The first row, where each person counts once, is exact.
    """
    counts = rank_counts(scores, positive, person)
    pos, neg = (weights @ counts[:, side].astype(float) for side in (0, 1))
    won = (pos * (np.cumsum(neg, axis=1) - neg / 2)).sum(1)
    pairs = pos.sum(1) * neg.sum(1)
    won[0] = auc(scores, positive, np.ones((1, len(scores))))[0] * pairs[0]
    return won, pairs


def _true_positives(
    scores: np.ndarray, positive: np.ndarray, person: np.ndarray, weights: np.ndarray, fpr: float
) -> tuple[np.ndarray, np.ndarray]:
    """Positives above the threshold, and the number of positives.

    Windows are counted by how many negatives score as high or higher, on a logarithmic scale: up to
    about a hundred of them, each number has a bin of its own.
    """
    negatives = np.sort(-scores[~positive])
    as_high = np.searchsorted(negatives, -scores, side="right")
    where = (np.log1p(as_high) / np.log1p(len(negatives)) * (BINS - 1)).astype(int)
    counts = _counts_by_person(where, positive, person)
    pos, neg = (weights @ counts[:, side].astype(float) for side in (0, 1))
    false = np.cumsum(neg, axis=1)
    above = false <= fpr * false[:, -1:] + 1e-9
    drawn = false[:, -1] > 0  # without a negative there is no threshold
    return (pos * above).sum(1) * drawn, pos.sum(1) * drawn


class PairedDifference(NamedTuple):
    """Mean difference over people, its 95% interval, and the chance of one as large by luck."""

    value: float
    low: float
    high: float
    p_value: float


def paired_difference(
    first: Mapping[str, float], second: Mapping[str, float], seed: int = 0, draws: int = 10_000
) -> PairedDifference:
    """First minus second over the people that both have: bootstrap and sign-flip test.

    If the methods were alike, each person's difference could as well have the other sign.

    >>> many = {str(person): 0.9 for person in range(20)}
    >>> few = {str(person): 0.5 for person in range(20)}
    >>> paired_difference(many, few).p_value < 0.001
    True
    """
    people = sorted(set(first) & set(second))
    if len(people) < 2:
        raise Refusal("fewer than two people are in both results; nothing can be compared")
    gap = np.array([first[person] - second[person] for person in people])
    generator = np.random.default_rng(seed)
    drawn = gap[generator.integers(len(gap), size=(draws, len(gap)))].mean(1)
    signs = generator.choice([-1.0, 1.0], size=(draws, len(gap)))
    as_large = (np.abs((signs * gap).mean(1)) >= abs(gap.mean()) - 1e-12).sum()
    low, high = np.quantile(drawn, [0.025, 0.975])
    return PairedDifference(
        float(gap.mean()), float(low), float(high), float((as_large + 1) / (draws + 1))
    )
