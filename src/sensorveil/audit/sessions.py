"""Sessions: attackers who add up what they predict from many windows of one recording or person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sensorveil.audit.results import MAX_ADVANTAGE, SessionPoint
from sensorveil.data.windows import UNKNOWN
from sensorveil.statistics import accuracy, bootstrap, confusion_by_person, majority

SIZES: tuple[int | None, ...] = (1, 5, 20, 60, None)
_SHUFFLES = 999


@dataclass(frozen=True, eq=False)
class Predictions:
    """What one attacker predicts of the test windows: log-probabilities (seeds, n, classes).

    `beyond` is what windows say beyond their kept class: log-probabilities minus those of an
    attacker who knows the kept class alone. Sessions add that up, since how much a person walks and
    sits is the application's to know, and would tell people apart on its own.
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
    """The fold of each window; each fold has attackers of its own."""
    kept: np.ndarray
    """The kept class of each window, as one number."""


def session_points(truth: Truth, predictions: Sequence[Predictions]) -> tuple[SessionPoint, ...]:
    """The worst attacker for every number of windows, by recording and by person."""
    plans = list(_plans(truth))
    return tuple(_point(truth, predictions, *plan, level=0.05 / len(plans)) for plan in plans)


def _plans(truth: Truth) -> Iterator[tuple[str, int | None, np.ndarray]]:
    """Which windows are added up: (group, size, chunk number of each window or -1)."""
    for group, member in (("recording", truth.recording), ("person", truth.person)):
        constant = _one_class(member, truth.codes)
        if not constant.any():
            continue
        order = np.lexsort([truth.start, truth.recording, member])
        place = np.empty(len(order), int)
        sizes = np.bincount(member)
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        place[order] = np.arange(len(order)) - first[member[order]]
        for size in SIZES:
            if size is None:
                yield group, size, np.where(constant, member, -1)
            elif sizes[member[constant]].max() >= size and not (group == "person" and size == 1):
                whole = constant & (place < sizes[member] // size * size)
                number = member * (sizes.max() + 1) + place // size
                yield group, size, np.where(whole, number, -1)


def _one_class(member: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Which windows are of a group with one class; for others adding up makes no sense."""
    known = codes != UNKNOWN
    pairs = np.unique(np.stack([member[known], codes[known]]), axis=1)
    groups, classes = np.unique(pairs[0], return_counts=True)
    return np.isin(member, groups[classes == 1])


def _point(
    truth: Truth,
    predictions: Sequence[Predictions],
    group: str,
    size: int | None,
    chunk: np.ndarray,
    level: float,
) -> SessionPoint:
    used = (chunk >= 0) & (truth.codes != UNKNOWN)
    _, first, index = np.unique(chunk[used], return_index=True, return_inverse=True)
    codes, person, fold = (part[used][first] for part in (truth.codes, truth.person, truth.fold))
    attackers = [(one, centred) for one in predictions for centred in (False, True)]
    predicted = np.array(  # (attackers, seeds, sessions)
        [
            [
                _predict_added(
                    log_ratio[used], index, truth.log_prior[used], truth.fold[used], first, centred
                )
                for log_ratio in one.beyond
            ]
            for one, centred in attackers
        ]
    )
    right = (predicted == codes).mean((1, 2))
    worst = int(right.argmax())
    table = np.stack(
        [confusion_by_person(codes, one, person, truth.classes) for one in predicted[worst]]
    )
    estimate = bootstrap(table, accuracy)
    baseline = float(majority(table.sum((0, 1))))
    member = person if _one_class(person, codes).all() else truth.recording[used][first]
    return SessionPoint(
        group=group,
        windows=size,
        sessions=len(codes),
        majority=baseline,
        threat_model=attackers[worst][0].threat_model,
        attacker=attackers[worst][0].attacker,
        accuracy=estimate,
        advantage=estimate.above(baseline),
        significant=estimate.value > baseline + MAX_ADVANTAGE
        and _exchange_p_value(predicted, codes, member, fold, truth.classes) < level,
    )


def _exchange_p_value(
    predicted: np.ndarray, codes: np.ndarray, member: np.ndarray, fold: np.ndarray, classes: int
) -> float:
    """How often the best of all attackers is as good if classes are exchanged between people.

    Classes are exchanged between the people (or recordings) of a fold, and the attacker that is
    best then counts. So neither many attackers nor few people make a leak out of luck.
    """
    _, first, unit = np.unique(member, return_index=True, return_inverse=True)
    own, fold_of = codes[first], fold[first]
    share = np.zeros((len(predicted), len(own), classes))  # of sessions predicted as each class
    for seed in range(predicted.shape[1]):
        for number, one in enumerate(predicted[:, seed]):
            np.add.at(share[number], (unit, one), 1)
    share /= predicted.shape[1] * len(codes)
    rng = np.random.default_rng(0)
    exchanged = np.tile(own, (_SHUFFLES, 1))
    for place in np.unique(fold_of):
        here = np.flatnonzero(fold_of == place)
        exchanged[:, here] = rng.permuted(exchanged[:, here], axis=1)

    def best_accuracy(given: np.ndarray) -> float:
        return float(share[:, np.arange(len(given)), given].sum(1).max())

    true = best_accuracy(own) - 1e-9
    as_good = sum(best_accuracy(given) >= true for given in exchanged)
    return float((1 + as_good) / (1 + _SHUFFLES))


def _predict_added(
    log_ratio: np.ndarray,
    index: np.ndarray,
    log_prior: np.ndarray,
    fold: np.ndarray,
    first: np.ndarray,
    centred: bool,
) -> np.ndarray:
    """The class of each chunk by Bayes' rule for windows that are independent given the class.

    A wrong prior, or any other leaning to one class, would be multiplied by the number of windows.
    So the prior is that of the attacker's own fold, and `centred` takes out what all windows of a
    fold have in common.
    """
    if centred:
        log_ratio = log_ratio.copy()
        for place in np.unique(fold):
            log_ratio[fold == place] -= log_ratio[fold == place].mean(0)
    total = np.zeros((index.max() + 1, log_ratio.shape[1]))
    np.add.at(total, index, log_ratio)
    return (total + log_prior[first]).argmax(1)
