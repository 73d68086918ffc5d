"""The papers' measures, as functions of a confusion table (..., true class, read class)."""

from __future__ import annotations

import numpy as np

from sensorveil.data.windows import UNKNOWN


def confusion_by_person(
    true: np.ndarray, read: np.ndarray, person: np.ndarray, classes: int
) -> np.ndarray:
    """Counts (people, classes, classes) of windows whose true class is known.

    >>> confusion_by_person(np.array([0, 1, 1]), np.array([0, 1, 0]), np.array([7, 7, 9]), 2)
    array([[[1, 0], [0, 1]], [[0, 0], [1, 0]]])
    """
    known = true != UNKNOWN
    people, index = np.unique(person[known], return_inverse=True)
    counts = np.zeros((len(people), classes, classes), int)
    np.add.at(counts, (index, true[known], read[known]), 1)
    return counts


def accuracy(confusion: np.ndarray) -> np.ndarray:
    """Share of windows whose class was read right.

    >>> float(accuracy(np.array([[8, 2], [1, 9]])))
    0.85
    """
    return np.trace(confusion, axis1=-2, axis2=-1) / confusion.sum((-2, -1))


def majority(confusion: np.ndarray) -> np.ndarray:
    """Accuracy of always guessing the most frequent true class: what an attacker gets for free."""
    return confusion.sum(-1).max(-1) / confusion.sum((-2, -1))


def balanced_accuracy(confusion: np.ndarray) -> np.ndarray:
    """Mean share of each class that was read right, over the classes that occur."""
    return np.nanmean(recall_by_class(confusion), axis=-1)


def recall_by_class(confusion: np.ndarray) -> np.ndarray:
    """Share of each true class that was read right; NaN where a class does not occur."""
    with np.errstate(invalid="ignore"):
        return np.diagonal(confusion, axis1=-2, axis2=-1) / confusion.sum(-1)


def f1_by_class(confusion: np.ndarray) -> np.ndarray:
    """F1 of each class, 2 TP / (2 TP + FP + FN); NaN where a class neither occurs nor is read.

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

    The papers compare with guessing among equally likely classes; `majority` is what an intruder
    who knows the shares gets, and stands beside it in every result.

    >>> float(privacy_loss(np.array([[8, 2], [1, 9]])).round(2))
    0.35
    """
    return np.abs(accuracy(confusion) - 1 / confusion.shape[-1])
