"""How well sessions are matched to people: equal error rate and rank 1, as functions of scores."""

from __future__ import annotations

import numpy as np

from sensorveil.errors import Refusal


def equal_error_rate(genuine: np.ndarray, impostor: np.ndarray) -> float:
    """The error at the threshold where false matches are as frequent as missed ones.

    `genuine` are scores of pairs of one person, `impostor` of two; higher means more alike. It is
    0 where the two are apart, and 0.5 where scores say nothing. Between two thresholds the errors
    run on a straight line.

    >>> equal_error_rate(np.array([0.9, 0.8, 0.3]), np.array([0.1, 0.2, 0.4]))
    0.3333333333333333
    """
    places = np.unique(np.concatenate([genuine, impostor]))
    counts = np.zeros((2, len(places)), int)
    for row, scores in zip(counts, (genuine, impostor), strict=True):
        np.add.at(row, np.searchsorted(places, scores), 1)
    return float(equal_error_rate_of_counts(counts))


def equal_error_rate_of_counts(counts: np.ndarray) -> np.ndarray:
    """The same from counts (..., 2, bins) of genuine and impostor scores, the lowest bin first.

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
    people, index = np.unique(person, return_inverse=True)
    counts = np.zeros((len(people), 2, BINS), int)
    np.add.at(counts, (index, np.where(genuine, 0, 1), where), 1)
    return counts


def rank1(similarity: np.ndarray, probe: np.ndarray, gallery: np.ndarray) -> float:
    """Share of probes whose most similar gallery session is of the same person.

    >>> similarity = np.array([[0.9, 0.1], [0.8, 0.3]])
    >>> rank1(similarity, np.array([0, 1]), np.array([0, 1]))
    0.5
    """
    return float(rank1_hits(similarity, probe, gallery).mean())


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
