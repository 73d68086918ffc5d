"""Attacks on several windows at once: of one recording, of one person, or of one and the same window.

Attackers of single windows add up what they predict; session attackers learn from many windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sensorveil.audit.exchange import Units
from sensorveil.audit.results import (
    ALPHA,
    LOOKS,
    MAX_ADVANTAGE,
    PERSON,
    RECORDING,
    SessionPoint,
)
from sensorveil.audit.truth import Truth
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.statistics import accuracy, bootstrap, confusion_by_person, majority

SIZES: tuple[int | None, ...] = (1, 5, 20, 60, None)
LOOK_SIZES = (1, 5, 20)

Plan = tuple[str, int | None]
"""Which windows are attacked together: what they have in common, and how many (None: all)."""


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
class SessionPredictions:
    """What one session attacker predicts for each plan: log-ratios (seeds, n, classes).

    All windows that are attacked together have the same values: the log-probabilities of their
    class minus the log shares of the classes in training.
    """

    threat_model: str
    attacker: str
    by_plan: Mapping[Plan, np.ndarray]


def plans_of(truth: Truth) -> list[tuple[Plan, np.ndarray]]:
    """Each plan with the number of each window's chunk, or -1."""
    if truth.same_window is not None:
        return list(look_plans(truth.same_window, truth.start))
    return list(session_plans(truth.person, truth.recording, truth.start))


def session_plans(
    person: np.ndarray, recording: np.ndarray, start: np.ndarray
) -> Iterator[tuple[Plan, np.ndarray]]:
    """Chunks of consecutive windows, by recording and by person, for every size that occurs."""
    for group, member in ((RECORDING, recording), (PERSON, person)):
        for size in SIZES:
            if group == RECORDING or size != 1:
                chunk = chunks(member, recording, start, size)
                if (chunk >= 0).any():
                    yield (group, size), chunk


def look_plans(window: np.ndarray, draw: np.ndarray) -> Iterator[tuple[Plan, np.ndarray]]:
    """Several obfuscations of one window."""
    for size in LOOK_SIZES:
        chunk = np.where(draw < size, window, -1)
        if size <= draw.max() + 1:
            yield (LOOKS, size), chunk


def chunks(
    member: np.ndarray, recording: np.ndarray, start: np.ndarray, size: int | None
) -> np.ndarray:
    """The number of each window's chunk of `size` windows of one member, in order; -1 for the rest.

    >>> chunks(np.zeros(5, int), np.zeros(5, int), np.arange(5), 2).tolist()
    [0, 0, 1, 1, -1]
    """
    _, member = np.unique(member, return_inverse=True)
    if size is None:
        return np.asarray(member)
    order = np.lexsort([start, recording, member])
    sizes = np.bincount(member)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    place = np.empty(len(order), int)
    place[order] = np.arange(len(order)) - first[member[order]]
    number = member * (sizes.max(initial=0) // size + 1) + place // size
    return np.where(place < sizes[member] // size * size, number, -1)


def training_groups(train: Windows) -> list[np.ndarray]:
    """The recording and the person of each training window; each draw has people of its own."""
    names = train.recordings
    once = names.index(names[0], 1) if names[0] in names[1:] else len(names)
    draw = train.recording // once
    return [train.recording, draw * (train.subject.max() + 1) + train.subject]


@dataclass(frozen=True, eq=False)
class Candidate:
    """One attacker on one plan.

    `predicted` are the classes (seeds, chunks); `table` is for the exchange test.
    """

    plan: Plan
    threat_model: str
    attacker: str
    predicted: np.ndarray
    table: np.ndarray
    accuracy: float


@dataclass(frozen=True, eq=False)
class SessionStudy:
    """All attackers on all plans of one attribute."""

    truth: Truth
    windows: Mapping[Plan, np.ndarray]
    """The first window of each chunk."""
    candidates: Sequence[Candidate] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        truth: Truth,
        units: Units,
        predictions: Sequence[Predictions],
        learnt: Sequence[SessionPredictions],
    ) -> SessionStudy:
        """Predict the class of every chunk by every attacker."""
        first_windows, candidates = {}, []
        for plan, chunk in plans_of(truth):
            used = (chunk >= 0) & _of_one_class(chunk, truth.codes)
            if not used.any():
                continue
            _, first, index = np.unique(chunk[used], return_index=True, return_inverse=True)
            window = np.flatnonzero(used)[first]
            first_windows[plan] = window
            ratios = [(p.threat_model, p.attacker, p.beyond, False) for p in predictions] + [
                (p.threat_model, p.attacker, p.by_plan[plan], True)
                for p in learnt
                if plan in p.by_plan
            ]
            for threat_model, attacker, log_ratio, is_mean in ratios:
                for centred in (False, True):
                    predicted = np.stack(
                        [
                            _predict(truth, one, used, index, window, is_mean, centred)
                            for one in log_ratio
                        ]
                    )
                    right = float((predicted == truth.codes[window]).mean())
                    table = np.mean([units.counts(one, window) for one in predicted], axis=0)
                    candidates.append(
                        Candidate(plan, threat_model, attacker, predicted, table, right)
                    )
        return cls(truth, first_windows, candidates)

    def points(self, p_values: np.ndarray) -> tuple[SessionPoint, ...]:
        """The worst attacker of each plan; p-values are those of the candidates."""
        return tuple(
            self._point(
                window,
                [
                    (one, p)
                    for one, p in zip(self.candidates, p_values, strict=True)
                    if one.plan == plan
                ],
            )
            for plan, window in self.windows.items()
        )

    def _point(self, window: np.ndarray, own: Sequence[tuple[Candidate, float]]) -> SessionPoint:
        truth = self.truth
        codes, person = truth.codes[window], truth.person[window]
        largest = float(np.bincount(codes).max() / len(codes))
        leaks = [
            (one, p) for one, p in own if one.accuracy > largest + MAX_ADVANTAGE and p <= ALPHA
        ]
        worst, p_value = max(leaks or own, key=lambda both: both[0].accuracy)
        tables = np.stack(
            [confusion_by_person(codes, one, person, truth.classes) for one in worst.predicted]
        )
        estimate = bootstrap(tables, accuracy)
        baseline = float(majority(tables.sum((0, 1))))
        return SessionPoint(
            group=worst.plan[0],
            windows=worst.plan[1],
            sessions=len(codes),
            majority=baseline,
            threat_model=worst.threat_model,
            attacker=worst.attacker,
            accuracy=estimate,
            advantage=estimate.above(baseline),
            significant=bool(leaks),
            p_value=float(p_value),
        )


def _of_one_class(chunk: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Which windows are in chunks of one known class; for others a common class makes no sense."""
    pairs = np.unique(np.stack([chunk, codes]), axis=1)
    groups, classes = np.unique(pairs[0], return_counts=True)
    return np.asarray(np.isin(chunk, groups[classes == 1]) & (codes != UNKNOWN))


def _predict(
    truth: Truth,
    log_ratio: np.ndarray,
    used: np.ndarray,
    index: np.ndarray,
    window: np.ndarray,
    is_mean: bool,
    centred: bool,
) -> np.ndarray:
    """The class of each chunk by Bayes' rule; single windows count as independent.

    A wrong prior, or any other leaning to one class, would be multiplied by the number of windows.
    So the prior is that of the attacker's own fold, and `centred` takes out what all windows of a
    fold have in common.
    """
    ratio, fold = log_ratio[used], truth.fold[used]
    if centred:
        ratio = ratio.copy()
        for place in np.unique(fold):
            ratio[fold == place] -= ratio[fold == place].mean(0)
    total = np.zeros((index.max() + 1, ratio.shape[1]))
    np.add.at(total, index, ratio)
    if is_mean:
        total /= np.bincount(index)[:, None]
    return np.asarray((total + truth.log_prior[window]).argmax(1))
