"""The attacks of an audit: every threat model, attacker, fold and seed, on every attribute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sensorveil.audit.attackers import Budget, attacker_class
from sensorveil.audit.control import PLANTED
from sensorveil.audit.criterion import judge
from sensorveil.audit.results import CONTROL, RAW, Attack, AttributeAudit
from sensorveil.audit.sessions import Predictions, Truth, session_points
from sensorveil.audit.threat_models import (
    AttackDataset,
    Fold,
    Output,
    attack_datasets,
    control_dataset,
)
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.progress import track
from sensorveil.statistics import (
    accuracy,
    auc_over_people,
    balanced_accuracy,
    bootstrap,
    confusion_by_person,
    majority,
)

_NEVER = 50.0
"""The log prior of a class that does not occur in training: scores minus it are never largest."""

Found = dict[tuple[str, str, str], list[dict[int, np.ndarray]]]
"""By attribute, threat model and attacker: for each seed, scores (2, n, classes) by fold."""


def run_attacks(
    folds: Sequence[Fold],
    outputs: Mapping[tuple[int, int], Output],
    attributes: Sequence[str],
    seeds: Sequence[int],
    budget: Budget,
    device: str = "cpu",
) -> tuple[AttributeAudit, ...]:
    """Attack every attribute under every threat model; folds are pooled, seeds averaged.

    A threat model that cannot be built for every fold is left out: the windows of the others would
    have no prediction.

    Parameters
    ----------
    folds
        Obfuscators with their splits.
    outputs
        The output for each (fold, seed).
    attributes
        The attributes to attack.
    seeds
        Attackers are trained anew for each.
    budget
        How much attackers learn from.
    device
        Where they work.
    """
    found: Found = {}
    # The share of planted windows is that of all folds: a fold may have a single class.
    largest = {name: _largest_share(_pooled_codes(folds, name)) for name in attributes}
    work = [(fold, seed) for seed in seeds for fold in range(len(folds))]
    for number, seed in track(work, "attackers: folds and seeds"):
        fold, output = folds[number], outputs[number, seed]
        for dataset in _datasets(fold, output, attributes, largest, budget, seed):
            for attacker in track(budget.attackers, "attackers"):
                predicted = attack(dataset, attacker, attributes, budget, seed, device)
                for (name, threat_model), log_proba in predicted.items():
                    key = (name, threat_model, attacker)
                    by_fold = found.setdefault(key, [{} for _ in seeds])[seeds.index(seed)]
                    shape = (2, len(fold.split.test), log_proba.shape[1])
                    scores = by_fold.setdefault(number, np.zeros(shape))
                    _file_scores(scores, fold, output, dataset, name, log_proba)
    pooled = {
        key: per_seed
        for key, per_seed in found.items()
        if all(len(by_fold) == len(folds) for by_fold in per_seed)
    }
    return tuple(_summarize(folds, name, pooled) for name in attributes)


def _datasets(
    fold: Fold,
    output: Output,
    attributes: Sequence[str],
    largest_shares: Mapping[str, float],
    budget: Budget,
    seed: int,
) -> Iterator[AttackDataset]:
    """Those of all threat models, then the controls one at a time, since each copies the output."""
    yield from attack_datasets(fold, output, budget, seed)
    for name in attributes:
        yield control_dataset(output, name, largest_shares[name], seed)


def attack(
    dataset: AttackDataset,
    attacker: str,
    attributes: Sequence[str],
    budget: Budget,
    seed: int = 0,
    device: str = "cpu",
) -> dict[tuple[str, str], np.ndarray]:
    """What one attacker predicts of each attribute: log-probabilities (n, classes).

    Parameters
    ----------
    dataset
        What it is given.
    attacker
        Its registered name.
    attributes
        The attributes to attack, of which the dataset may allow some only.
    budget, seed, device
        As in `Attacker`.

    Returns
    -------
    dict
        By (attribute, threat model). An attribute with fewer than two classes in training gives
        zeros: nothing can be learnt.
    """
    model = attacker_class(attacker)(budget, seed, device)
    train = dataset.train
    model.fit_features(train, dataset.train_condition)
    learnt = model.features(train, dataset.train_condition)
    targets = {
        name: model.features(windows, dataset.test_conditions.get(name))
        for name, windows in dataset.tests.items()
    }
    found = {}
    for attribute in attributes if dataset.attributes is None else dataset.attributes:
        codes, num_classes = train.codes(attribute), len(train.classes[attribute])
        known = np.flatnonzero(codes != UNKNOWN)
        can_learn = len(np.unique(codes[known])) > 1
        if can_learn:
            model.fit(_rows(learnt, known), codes[known], num_classes)
        for name, windows in dataset.tests.items():
            found[attribute, name] = (
                model.predict_log_proba(targets[name])
                if can_learn
                else np.zeros((len(windows), num_classes))
            )
    return found


def attack_accuracy(
    train: Windows,
    test: Windows,
    attribute: str,
    attacker: str,
    budget: Budget,
    seed: int = 0,
    device: str = "cpu",
) -> float:
    """The accuracy of one attacker who learns an attribute from `train`, on `test`."""
    dataset = AttackDataset(train, {"test": test})
    predicted = attack(dataset, attacker, [attribute], budget, seed, device)
    codes = test.codes(attribute)
    known = codes != UNKNOWN
    return float((predicted[attribute, "test"].argmax(1) == codes)[known].mean())


def _rows(features: Any, index: np.ndarray) -> Any:
    return features.select(index) if isinstance(features, Windows) else features[index]


def _file_scores(
    whole: np.ndarray,
    fold: Fold,
    output: Output,
    dataset: AttackDataset,
    name: str,
    log_proba: np.ndarray,
) -> None:
    """Put log-probabilities, and what they say beyond the kept class, where they belong."""
    test, num_classes = output.test, log_proba.shape[1]
    positions = np.arange(len(test)) if dataset.positions is None else dataset.positions
    # As if the attacker had learnt from the class shares of all training windows.
    prior = np.minimum(log_prior(fold.split.train.codes(name), num_classes), 0)
    own_prior = log_prior(dataset.train.codes(name), num_classes)
    whole[0, positions] = log_proba - own_prior + prior
    keep = fold.obfuscator.policy_.keep
    whole[1, positions] = log_proba - kept_prior(dataset.train, test.select(positions), name, keep)


def log_prior(codes: np.ndarray, num_classes: int) -> np.ndarray:
    """Log shares of the classes; 50 for a class that does not occur, so that it never wins."""
    counts = np.bincount(codes[codes != UNKNOWN], minlength=num_classes).astype(float)
    return np.where(counts > 0, np.log(np.maximum(counts, 1) / counts.sum()), _NEVER)


def kept_prior(learnt: Windows, windows: Windows, name: str, keep: Sequence[str]) -> np.ndarray:
    """Log shares (n, classes) of an attribute among learnt windows of each window's kept class.

    The shares of all windows count as one more window of each kept class, so that a kept class that
    hardly occurs has nearly those.
    """
    codes, num_classes = learnt.codes(name), len(learnt.classes[name])
    overall = log_prior(codes, num_classes)
    shares = np.where(overall > 0, 0, np.exp(np.minimum(overall, 0)))
    known = codes != UNKNOWN
    learnt_kept, kept = (part.joint_codes(keep) for part in (learnt, windows))
    found = np.tile(overall, (len(windows), 1))
    for kept_class in np.unique(kept[kept >= 0]):
        of_class = codes[known & (learnt_kept == kept_class)]
        counts = np.bincount(of_class, minlength=num_classes) + shares
        with np.errstate(divide="ignore"):
            logs = np.log(counts / counts.sum())
        found[kept == kept_class] = np.where(shares > 0, logs, _NEVER)
    return found


def _summarize(folds: Sequence[Fold], name: str, found: Found) -> AttributeAudit:
    """Estimates over people and seeds, sessions, and the verdict on one attribute."""
    truth = _truth(folds, name)
    predictions = [
        Predictions(
            threat_model,
            attacker,
            *np.stack(
                [
                    np.concatenate([by_fold[number] for number in range(len(folds))], axis=1)
                    for by_fold in per_seed
                ],
                axis=1,
            ),
        )
        for (attribute, threat_model, attacker), per_seed in found.items()
        if attribute == name
    ]
    tables = [confusion_tables(truth, one) for one in predictions]
    attacks = [attack_estimates(truth, *both) for both in zip(predictions, tables, strict=True)]
    is_reference = [one.threat_model in (RAW, CONTROL) for one in predictions]
    worst = max(np.flatnonzero(~np.array(is_reference)), key=lambda i: attacks[i].advantage.value)
    control = max(
        (one for one in attacks if one.threat_model == CONTROL), key=lambda a: a.advantage.value
    )
    sessions = session_points(
        truth, [p for p, reference in zip(predictions, is_reference, strict=True) if not reference]
    )
    known = truth.codes[truth.codes != UNKNOWN]
    largest = _largest_share(known)
    planted = min(PLANTED, 1 - largest)
    shown = tuple(one for one in attacks if one.threat_model != CONTROL)
    test = folds[0].split.test
    return AttributeAudit(
        attribute=name,
        role=folds[0].obfuscator.policy_.role(name),
        classes=tuple(test.classes[name]),
        windows=len(known),
        people=len(np.unique(truth.person)),
        chance=1 / truth.classes,
        majority=largest,
        attacks=shown,
        worst=attacks[worst],
        control=control,
        planted=planted,
        sessions=sessions,
        verdict=judge(shown, control, planted, sessions, largest),
        by_person=_accuracy_by_person(truth, tables[worst], test.classes["subject"]),
    )


def attack_estimates(truth: Truth, predictions: Predictions, tables: np.ndarray) -> Attack:
    """Accuracy, advantage and AUC of one attacker, with intervals over people."""
    right = bootstrap(tables, accuracy)
    # Windows of one fold and kept class are compared: other folds have other attackers, and what
    # the kept class itself tells is the application's to know.
    strata = truth.fold * (truth.kept.max() + 2) + truth.kept + 1
    log_ratio = predictions.scores - truth.log_prior
    balanced = np.exp(log_ratio - log_ratio.max(-1, keepdims=True))
    balanced /= balanced.sum(-1, keepdims=True)
    return Attack(
        threat_model=predictions.threat_model,
        attacker=predictions.attacker,
        accuracy=right,
        advantage=right.above(float(majority(tables.sum((0, 1))))),
        balanced_accuracy=bootstrap(tables, balanced_accuracy),
        auc=auc_over_people(balanced, truth.codes, truth.person, strata),
        overall_auc=auc_over_people(balanced, truth.codes, truth.person, truth.fold),
    )


def confusion_tables(truth: Truth, predictions: Predictions) -> np.ndarray:
    """Confusion tables (seeds, people, classes, classes) of the better of two decisions.

    The second replaces the class shares of each fold's training windows by those of all test
    windows, since folds differ in their shares.
    """
    pooled = np.minimum(log_prior(truth.codes, truth.classes), 0)
    decisions = (predictions.scores, predictions.scores - truth.log_prior + pooled)
    tables = [
        np.stack(
            [
                confusion_by_person(truth.codes, one.argmax(1), truth.person, truth.classes)
                for one in scores
            ]
        )
        for scores in decisions
    ]
    return max(tables, key=lambda table: float(accuracy(table.sum((0, 1)))))


def _truth(folds: Sequence[Fold], name: str) -> Truth:
    tests = [fold.split.test for fold in folds]
    num_classes = len(tests[0].classes[name])
    priors = [
        np.tile(log_prior(fold.split.train.codes(name), num_classes), (len(fold.split.test), 1))
        for fold in folds
    ]
    keep = folds[0].obfuscator.policy_.keep
    return Truth(
        codes=_pooled_codes(folds, name),
        person=np.concatenate([test.subject for test in tests]),
        recording=np.concatenate([test.recording for test in tests]),
        start=np.concatenate([test.start for test in tests]),
        classes=num_classes,
        log_prior=np.concatenate(priors),
        fold=np.repeat(np.arange(len(tests)), [len(test) for test in tests]),
        kept=np.concatenate([test.joint_codes(keep) for test in tests]),
    )


def _accuracy_by_person(truth: Truth, tables: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """The accuracy on each person's windows, mean over seeds."""
    whole = tables.sum(0)  # the people in order
    right = np.trace(whole, axis1=1, axis2=2) / np.maximum(whole.sum((1, 2)), 1)
    people = np.unique(truth.person[truth.codes != UNKNOWN])
    shown = right[whole.sum((1, 2)) > 0]
    return {names[one]: float(value) for one, value in zip(people, shown, strict=True)}


def _pooled_codes(folds: Sequence[Fold], name: str) -> np.ndarray:
    return np.concatenate([fold.split.test.codes(name) for fold in folds])


def _largest_share(codes: np.ndarray) -> float:
    known = codes[codes != UNKNOWN]
    return float(np.bincount(known).max() / len(known))
