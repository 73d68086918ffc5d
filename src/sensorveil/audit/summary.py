"""From predictions to the result of one attribute: estimates, the exchange test, the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sensorveil.audit.control import PLANTED
from sensorveil.audit.criterion import judge
from sensorveil.audit.exchange import Units, exchange_p_values
from sensorveil.audit.results import (
    ALPHA,
    CONTROL,
    MAX_ADVANTAGE,
    MAX_AUC,
    RAW,
    Attack,
    AttributeAudit,
    SessionPoint,
)
from sensorveil.audit.sessions import Predictions, SessionPredictions, SessionStudy
from sensorveil.audit.threat_models import Fold
from sensorveil.audit.truth import Truth, largest_share, log_prior
from sensorveil.data.windows import UNKNOWN
from sensorveil.statistics import (
    accuracy,
    auc_over_people,
    balanced_accuracy,
    bootstrap,
    confusion_by_person,
    majority,
    tpr_at_fpr,
)

_HALVES = 50
"""Halves of people on which attackers are ranked, to be judged on the others."""


def summarize(
    folds: Sequence[Fold],
    name: str,
    truth: Truth,
    predictions: Sequence[Predictions],
    learnt: Sequence[SessionPredictions],
    looks: tuple[Truth, np.ndarray] | None = None,
    look_predictions: Sequence[Predictions] = (),
    look_learnt: Sequence[SessionPredictions] = (),
) -> AttributeAudit:
    """Estimates over people and seeds, sessions, and the verdict on one attribute.

    Parameters
    ----------
    folds, name
        What was attacked.
    truth
        The true classes.
    predictions, learnt
        What attackers of single windows and session attackers predict.
    looks
        The truth about windows that were obfuscated again, and their positions among all.
    look_predictions, look_learnt
        What attackers predict of those.
    """
    units = truth.units()
    raw = [_attack(truth, units, one) for one in predictions if one.threat_model == RAW]
    controls = [_attack(truth, units, one) for one in predictions if one.threat_model == CONTROL]
    own = [one for one in predictions if one.threat_model not in (RAW, CONTROL)]
    attacks = [_attack(truth, units, one) for one in own]
    learnt = [one for one in learnt if one.threat_model != RAW]
    studies = [SessionStudy.of(truth, units, own, learnt)]
    if looks is not None:
        again, positions = looks
        same = replace(units, of_window=units.of_window[positions])
        studies.append(SessionStudy.of(again, same, look_predictions, look_learnt))
    candidates = [one for study in studies for one in study.candidates]
    tables = [table for one in attacks for table in (*one.tables, one.ranks)]
    tables += [one.table for one in candidates]
    p_values = exchange_p_values(units, np.stack(tables))
    judged = [
        one.tested(p_values[3 * number : 3 * number + 3]) for number, one in enumerate(attacks)
    ]
    sessions: list[SessionPoint] = []
    first = 3 * len(attacks)
    for study in studies:
        last = first + len(study.candidates)
        sessions += study.points(p_values[first:last])
        first = last
    control = max(controls, key=lambda one: one.estimates.advantage.value)
    found = control.tested(exchange_p_values(units, np.stack([*control.tables, control.ranks])))
    worst = _worst(judged)
    known = truth.codes[truth.codes != UNKNOWN]
    largest = largest_share(known)
    cross_fitted = _cross_fitted(units, [table for one in attacks for table in one.tables])
    shown = (*(one.estimates for one in raw), *judged)
    planted = min(PLANTED, 1 - largest)
    test = folds[0].split.test
    return AttributeAudit(
        attribute=name,
        role=folds[0].policy.role(name),
        classes=tuple(test.classes[name]),
        windows=len(known),
        people=len(np.unique(truth.person)),
        chance=1 / truth.classes,
        majority=largest,
        attacks=shown,
        worst=judged[worst],
        control=found,
        planted=planted,
        sessions=tuple(sessions),
        verdict=judge(shown, found, planted, sessions, largest, cross_fitted),
        by_person=_accuracy_by_person(truth, attacks[worst].confusion, test.classes["subject"]),
        cross_fitted=cross_fitted,
    )


def _worst(attacks: Sequence[Attack]) -> int:
    """The attacker with the largest advantage, among those that found a leak if any did."""
    return max(range(len(attacks)), key=lambda i: (attacks[i].found, attacks[i].advantage.value))


@dataclass(frozen=True, eq=False)
class _Attacked:
    """One attacker of single windows, with tables for the exchange test."""

    estimates: Attack
    confusion: np.ndarray
    tables: tuple[np.ndarray, np.ndarray]
    """Predicted classes by unit, by both decisions (see `decisions`)."""
    ranks: np.ndarray
    """The rank of each class's score among windows of one fold and kept class, by unit."""

    def tested(self, p_values: np.ndarray) -> Attack:
        """The estimates with p-values of both decisions and of the ranks."""
        one = self.estimates
        right, ranked = float(p_values[:2].min()), float(p_values[2])
        found = (one.advantage.value > MAX_ADVANTAGE and right <= ALPHA) or (
            one.auc.value > MAX_AUC and ranked <= ALPHA
        )
        return replace(one, p_value=min(right, ranked), found=bool(found))


def _attack(truth: Truth, units: Units, predictions: Predictions) -> _Attacked:
    known = np.flatnonzero(truth.codes != UNKNOWN)
    tables = [
        np.mean([units.counts(one[known].argmax(1), known) for one in scores], axis=0)
        for scores in decisions(truth, predictions)
    ]
    balanced = balanced_scores(truth, predictions).mean(0)
    ranks = _ranks(balanced, strata(truth))
    confusion = confusion_tables(truth, predictions)
    estimates = attack_estimates(truth, predictions, confusion)
    return _Attacked(estimates, confusion, (tables[0], tables[1]), units.sums(ranks))


def _ranks(scores: np.ndarray, stratum: np.ndarray) -> np.ndarray:
    """The rank from 0 to 1 of each window's score of each class, within its stratum."""
    from scipy.stats import rankdata

    ranks = np.zeros(scores.shape)
    for one in np.unique(stratum):
        here = stratum == one
        ranks[here] = (rankdata(scores[here], axis=0) - 0.5) / here.sum()
    return ranks


def _cross_fitted(units: Units, tables: Sequence[np.ndarray]) -> float:
    """The advantage on half of the units of the attacker that is best on the other half.

    The mean over many halves; 0 where there are too few units to divide.
    """
    if len(units) < 4:
        return 0.0
    place = np.arange(len(units))
    right = np.stack([table[place, units.codes] for table in tables])
    weight = tables[0].sum(1)
    share = np.bincount(units.codes, weights=weight)
    usual = np.where(units.codes == share.argmax(), weight, 0)
    gained = right - usual
    rng = np.random.default_rng(0)
    found = []
    for _ in range(_HALVES):
        half = rng.permutation(len(units)) < len(units) // 2
        for ranked, judged in ((half, ~half), (~half, half)):
            best = gained[:, ranked].sum(1).argmax()
            found.append(gained[best, judged].sum() / weight[judged].sum())
    return float(np.mean(found))


def strata(truth: Truth) -> np.ndarray:
    """Windows of one fold and kept class.

    They are compared with each other: other folds have other attackers, and what the kept class
    itself tells is the application's to know.
    """
    return truth.fold * (truth.kept.max() + 2) + truth.kept + 1


def balanced_scores(truth: Truth, predictions: Predictions) -> np.ndarray:
    """Probabilities (seeds, n, classes) as if all classes were equally frequent in training."""
    log_ratio = predictions.scores - truth.log_prior
    balanced = np.exp(log_ratio - log_ratio.max(-1, keepdims=True))
    balanced /= balanced.sum(-1, keepdims=True)
    return np.asarray(balanced)


def attack_estimates(truth: Truth, predictions: Predictions, tables: np.ndarray) -> Attack:
    """Accuracy, advantage and AUC of one attacker, with intervals over people."""
    right = bootstrap(tables, accuracy)
    balanced = balanced_scores(truth, predictions)
    return Attack(
        threat_model=predictions.threat_model,
        attacker=predictions.attacker,
        accuracy=right,
        advantage=right.above(float(majority(tables.sum((0, 1))))),
        balanced_accuracy=bootstrap(tables, balanced_accuracy),
        auc=auc_over_people(balanced, truth.codes, truth.person, strata(truth)),
        overall_auc=auc_over_people(balanced, truth.codes, truth.person, truth.fold),
        tpr_at_1pct=tpr_at_fpr(balanced, truth.codes, truth.person, truth.fold),
    )


def decisions(truth: Truth, predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """Two scores to decide by, (seeds, n, classes).

    The second replaces the class shares of each fold's training windows by those of all test
    windows, since folds differ in their shares.
    """
    pooled = np.minimum(log_prior(truth.codes, truth.classes), 0)
    return predictions.scores, predictions.scores - truth.log_prior + pooled


def confusion_tables(truth: Truth, predictions: Predictions) -> np.ndarray:
    """Confusion tables (seeds, people, classes, classes) of the better of two decisions."""
    tables = [
        np.stack(
            [
                confusion_by_person(truth.codes, one.argmax(1), truth.person, truth.classes)
                for one in scores
            ]
        )
        for scores in decisions(truth, predictions)
    ]
    return max(tables, key=lambda table: float(accuracy(table.sum((0, 1)))))


def _accuracy_by_person(truth: Truth, tables: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """The accuracy on each person's windows, mean over seeds."""
    whole = tables.sum(0)  # the people in order
    right = np.trace(whole, axis1=1, axis2=2) / np.maximum(whole.sum((1, 2)), 1)
    people = np.unique(truth.person[truth.codes != UNKNOWN])
    shown = right[whole.sum((1, 2)) > 0]
    return {names[one]: float(value) for one, value in zip(people, shown, strict=True)}
