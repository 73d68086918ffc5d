"""Sessions: what attackers learn when they may add up many windows of one recording or person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sensorveil.audit.results import MOST_ADVANTAGE, SessionPoint
from sensorveil.data.windows import UNKNOWN
from sensorveil.measures.estimate import bootstrap
from sensorveil.measures.scores import accuracy, confusion_by_person, majority

SIZES: tuple[int | None, ...] = (1, 5, 20, 60, None)
_DRAWS = 4000  # the corrected intervals look far into the tails


@dataclass(frozen=True, eq=False)
class Reading:
    """What one attacker made of the test windows: log-probabilities (seeds, n, classes)."""

    level: str
    family: str
    scores: np.ndarray


@dataclass(frozen=True, eq=False)
class Truth:
    """The test windows' true classes, and where each lies."""

    codes: np.ndarray
    person: np.ndarray
    recording: np.ndarray
    start: np.ndarray
    classes: int
    log_prior: np.ndarray
    """Log shares of the classes in the training windows of each test window's own fold."""


def session_points(truth: Truth, readings: Sequence[Reading]) -> tuple[SessionPoint, ...]:
    """The worst attacker for every number of windows, by recording and by person."""
    plans = list(_plans(truth))
    found = []
    for group, size, chunk in plans:
        point = _worst(truth, readings, group, size, chunk, points=len(plans) * len(readings))
        found.append(point)
    return tuple(found)


def _plans(truth: Truth) -> Iterator[tuple[str, int | None, np.ndarray]]:
    """Which windows are added up: (group, size, chunk number of each window or -1)."""
    for group, member in (("recording", truth.recording), ("person", truth.person)):
        steady = _one_class(member, truth.codes)
        if not steady.any():
            continue
        order = np.lexsort([truth.start, truth.recording, member])
        place = np.empty(len(order), int)
        sizes = np.bincount(member)
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        place[order] = np.arange(len(order)) - first[member[order]]
        for size in SIZES:
            if size is None:
                yield group, size, np.where(steady, member, -1)
            elif sizes.max() >= size and not (group == "person" and size == 1):
                whole = steady & (place < sizes[member] // size * size)
                number = member * (sizes.max() + 1) + place // size
                yield group, size, np.where(whole, number, -1)


def _one_class(member: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Which windows are of a group whose class never changes; else adding up makes no sense."""
    known = codes != UNKNOWN
    pairs = np.unique(np.stack([member[known], codes[known]]), axis=1)
    groups, classes = np.unique(pairs[0], return_counts=True)
    return np.isin(member, groups[classes == 1])


def _worst(
    truth: Truth,
    readings: Sequence[Reading],
    group: str,
    size: int | None,
    chunk: np.ndarray,
    points: int,
) -> SessionPoint:
    used = (chunk >= 0) & (truth.codes != UNKNOWN)
    chunks, first, index = np.unique(chunk[used], return_index=True, return_inverse=True)
    codes, person = truth.codes[used][first], truth.person[used][first]
    tables = {
        number: np.stack(
            [
                confusion_by_person(
                    codes,
                    _added(scores[used], index, truth.log_prior[used], first),
                    person,
                    truth.classes,
                )
                for scores in reading.scores
            ]
        )
        for number, reading in enumerate(readings)
    }
    worst = max(tables, key=lambda number: float(accuracy(tables[number].sum((0, 1)))))
    table = tables[worst]
    right = bootstrap(table, accuracy, np.random.default_rng(0), _DRAWS)
    guess = float(majority(table.sum((0, 1))))
    # Many points and attackers are looked at, so each must stand out the more (Bonferroni); only
    # the upper side counts, so the whole of it may lie in that tail.
    tail = 2 * 0.05 / max(points, 1)
    strict = [
        bootstrap(t, accuracy, np.random.default_rng(0), _DRAWS, tail) for t in tables.values()
    ]
    return SessionPoint(
        group=group,
        windows=size,
        sessions=len(chunks),
        majority=guess,
        level=readings[worst].level,
        family=readings[worst].family,
        accuracy=right,
        advantage=right.above(guess),
        found=any(one.low > guess and one.value > guess + MOST_ADVANTAGE for one in strict),
    )


def _added(
    scores: np.ndarray, index: np.ndarray, log_prior: np.ndarray, first: np.ndarray
) -> np.ndarray:
    """The class of each chunk by Bayes' rule for windows that are independent given the class.

    An attacker's prior is that of the fold it was trained on. Were another taken out, its error
    would be multiplied by the number of windows, and always away from the truth.
    """
    total = np.zeros((index.max() + 1, scores.shape[1]))
    np.add.at(total, index, scores - log_prior)
    return (total + log_prior[first]).argmax(1)
