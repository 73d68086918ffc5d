"""Sessions: what attackers learn when they may add up many windows of one recording or person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sensorveil.audit.results import MAX_ADVANTAGE, SessionPoint
from sensorveil.data.windows import UNKNOWN
from sensorveil.measures.estimate import bootstrap
from sensorveil.measures.scores import accuracy, confusion_by_person, majority

SIZES: tuple[int | None, ...] = (1, 5, 20, 60, None)
_SHUFFLES = 999


@dataclass(frozen=True, eq=False)
class Reading:
    """What one attacker made of the test windows: log-probabilities (seeds, n, classes).

    `beyond` is what windows say beyond their kept class, as log-probabilities less those of who
    knows the kept class and nothing else. Sessions add that up: how much somebody walks and how
    much they sit is the application's to know, and would tell people apart on its own.
    """

    threat_model: str
    attacker: str
    scores: np.ndarray
    beyond: np.ndarray


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
    fold: np.ndarray
    """Which fold each window is of: its attackers are others than those of other folds."""
    kept: np.ndarray
    """The kept class of each window, as one number."""


def session_points(truth: Truth, readings: Sequence[Reading]) -> tuple[SessionPoint, ...]:
    """The worst attacker for every number of windows, by recording and by person."""
    plans = list(_plans(truth))
    return tuple(_point(truth, readings, *plan, level=0.05 / len(plans)) for plan in plans)


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
            elif sizes[member[steady]].max() >= size and not (group == "person" and size == 1):
                whole = steady & (place < sizes[member] // size * size)
                number = member * (sizes.max() + 1) + place // size
                yield group, size, np.where(whole, number, -1)


def _one_class(member: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Which windows are of a group whose class never changes; else adding up makes no sense."""
    known = codes != UNKNOWN
    pairs = np.unique(np.stack([member[known], codes[known]]), axis=1)
    groups, classes = np.unique(pairs[0], return_counts=True)
    return np.isin(member, groups[classes == 1])


def _point(
    truth: Truth,
    readings: Sequence[Reading],
    group: str,
    size: int | None,
    chunk: np.ndarray,
    level: float,
) -> SessionPoint:
    used = (chunk >= 0) & (truth.codes != UNKNOWN)
    _, first, index = np.unique(chunk[used], return_index=True, return_inverse=True)
    codes, person, fold = (part[used][first] for part in (truth.codes, truth.person, truth.fold))
    attackers = [(reading, centred) for reading in readings for centred in (False, True)]
    read = np.array(  # (attackers, seeds, sessions)
        [
            [
                _added(
                    evidence[used], index, truth.log_prior[used], truth.fold[used], first, centred
                )
                for evidence in reading.beyond
            ]
            for reading, centred in attackers
        ]
    )
    right = (read == codes).mean((1, 2))
    worst = int(right.argmax())
    table = np.stack(
        [confusion_by_person(codes, one, person, truth.classes) for one in read[worst]]
    )
    estimate = bootstrap(table, accuracy, np.random.default_rng(0))
    guess = float(majority(table.sum((0, 1))))
    member = person if _one_class(person, codes).all() else truth.recording[used][first]
    return SessionPoint(
        group=group,
        windows=size,
        sessions=len(codes),
        majority=guess,
        threat_model=attackers[worst][0].threat_model,
        attacker=attackers[worst][0].attacker,
        accuracy=estimate,
        advantage=estimate.above(guess),
        significant=estimate.value > guess + MAX_ADVANTAGE
        and _by_chance(read, codes, member, fold, truth.classes) < level,
    )


def _by_chance(
    read: np.ndarray, codes: np.ndarray, member: np.ndarray, fold: np.ndarray, classes: int
) -> float:
    """How often the best of all attackers would be as good if classes meant nothing.

    Classes are exchanged between the people (or recordings) of a fold, and whichever attacker is
    best then counts, as it does in truth: so it costs nothing to have many of them, and people who
    are few, or all read right by luck, cannot pass for many.
    """
    _, first, unit = np.unique(member, return_index=True, return_inverse=True)
    own, fold_of = codes[first], fold[first]
    share = np.zeros((len(read), len(own), classes))
    for seed in range(read.shape[1]):
        for number, one in enumerate(read[:, seed]):
            np.add.at(share[number], (unit, one), 1)
    share /= read.shape[1] * len(codes)
    generator = np.random.default_rng(0)
    exchanged = np.tile(own, (_SHUFFLES, 1))
    for place in np.unique(fold_of):
        here = np.flatnonzero(fold_of == place)
        exchanged[:, here] = generator.permuted(exchanged[:, here], axis=1)

    def best(given: np.ndarray) -> float:
        return float(share[:, np.arange(len(given)), given].sum(1).max())

    true = best(own) - 1e-9
    return float((1 + sum(best(given) >= true for given in exchanged)) / (1 + _SHUFFLES))


def _added(
    evidence: np.ndarray,
    index: np.ndarray,
    log_prior: np.ndarray,
    fold: np.ndarray,
    first: np.ndarray,
    centred: bool,
) -> np.ndarray:
    """The class of each chunk by Bayes' rule for windows that are independent given the class.

    An attacker's prior is that of the fold it was trained on. Were another taken out, its error
    would be multiplied by the number of windows, and always away from the truth. So would be any
    other leaning to one class: `centred` takes out what all windows of a fold have in common.
    """
    if centred:
        evidence = evidence.copy()
        for place in np.unique(fold):
            evidence[fold == place] -= evidence[fold == place].mean(0)
    total = np.zeros((index.max() + 1, evidence.shape[1]))
    np.add.at(total, index, evidence)
    return (total + log_prior[first]).argmax(1)
