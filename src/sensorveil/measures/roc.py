"""Area under the ROC curve, with an interval over people."""

from __future__ import annotations

import numpy as np

from sensorveil.data.windows import UNKNOWN
from sensorveil.measures.estimate import Estimate
from sensorveil.measures.verification import rank_counts

DRAWS = 200


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
    rng: np.random.Generator,
    strata: np.ndarray | None = None,
) -> Estimate:
    """Mean over classes of one against the rest; scores (seeds, n, classes).

    Two classes give one curve, so their mean is the usual area. Only windows of one of the `strata`
    are compared with each other, where there are several.
    """
    known = true != UNKNOWN
    people, index = np.unique(person[known], return_inverse=True)
    draws = rng.multinomial(len(people), np.full(len(people), 1 / len(people)), size=DRAWS)
    weights = np.concatenate([np.ones((1, len(people)), int), draws])
    places = np.zeros(known.sum(), int) if strata is None else strata[known]
    classes = np.unique(true[known])
    each = np.array(
        [
            _mean(
                [
                    _area(table[known][:, c], true[known] == c, index, weights, places)
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


def _area(
    scores: np.ndarray,
    positive: np.ndarray,
    person: np.ndarray,
    weights: np.ndarray,
    strata: np.ndarray,
) -> np.ndarray:
    """The area for each row of people's weights, from counts of ranks within each of the strata.

    The first row, where each person counts once, is exact.
    """
    won, pairs = np.zeros(len(weights)), np.zeros(len(weights))
    for place in np.unique(strata):
        here = strata == place
        there, positives = person[here], positive[here]
        if positives.all() or not positives.any():
            continue  # nobody to compare with
        people = np.unique(there)
        counts = rank_counts(scores[here], positives, there)
        pos, neg = (weights[:, people] @ counts[:, side].astype(float) for side in (0, 1))
        won_here = (pos * (np.cumsum(neg, axis=1) - neg / 2)).sum(1)
        pairs_here = pos.sum(1) * neg.sum(1)
        exact = auc(scores[here], positives, np.ones((1, len(there))))[0]
        won_here[0] = exact * pairs_here[0]
        won, pairs = won + won_here, pairs + pairs_here
    with np.errstate(invalid="ignore", divide="ignore"):
        return won / pairs
