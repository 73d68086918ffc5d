"""The attacks of an audit: every threat model, attacker, fold and seed, on every attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sensorveil.audit.attackers import (
    Budget,
    attacker_class,
    condition_windows,
)
from sensorveil.audit.session_attackers import session_attacker_class
from sensorveil.audit.threat_models import (
    AttackDataset,
)
from sensorveil.data.windows import UNKNOWN, Windows

_LEAST = -70.0
"""The least log-probability that counts: minus infinity could not be added up."""


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
    names = attributes if dataset.attributes is None else dataset.attributes
    learnt = _learnable(train, names)
    if learnt:
        features = model.features(train, dataset.train_condition)
        model.fit_all(features, learnt, {name: len(train.classes[name]) for name in learnt})
    found = {}
    for threat_model, windows in dataset.tests.items():
        predicted = {}
        if learnt:
            condition = dataset.test_conditions.get(threat_model)
            asked = model.features(windows, condition)
            predicted = {
                name: np.maximum(scores, _LEAST)
                for name, scores in model.predict_all(asked).items()
            }
        for name in names:
            nothing = np.zeros((len(windows), len(train.classes[name])))
            found[name, threat_model] = predicted.get(name, nothing)
    return found


def attack_sessions(
    dataset: AttackDataset,
    attacker: str,
    attributes: Sequence[str],
    groups: Sequence[np.ndarray],
    plans: Mapping[str, np.ndarray],
    keep: Sequence[str],
    budget: Budget,
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, np.ndarray]:
    """What one session attacker predicts: log-ratios (n, classes) by "attribute|threat model|plan".

    Parameters
    ----------
    dataset, attacker, attributes, budget, seed, device
        As in `attack`.
    groups
        The groups of training windows that sets and sequences are drawn from.
    plans
        The number of each test window's chunk, or -1.
    keep
        The kept attributes.
    """
    model = session_attacker_class(attacker)(budget.sessions, seed, device)
    train = dataset.train
    learnt = _learnable(train, attributes)
    if not learnt:
        return {}
    num_classes = {name: len(train.classes[name]) for name in learnt}
    kept = train.joint_codes(keep) + 1
    within = [_within(group, kept) for group in groups]
    seen = _seen(train, dataset.train_condition)
    model.fit(seen, within, learnt, num_classes, np.zeros(len(train), int))
    priors = {
        name: _group_priors(within[0], codes, kept, num_classes[name])
        for name, codes in learnt.items()
    }
    found = {}
    for threat_model, windows in dataset.tests.items():
        seen = _seen(windows, dataset.test_conditions.get(threat_model))
        own_kept = windows.joint_codes(keep) + 1
        for plan, chunk in plans.items():
            own = chunk if dataset.positions is None else chunk[dataset.positions]
            used = np.flatnonzero(own >= 0)
            if not len(used):
                continue
            part = _within(own, own_kept)
            _, first = np.unique(part[used], return_index=True)
            _, whole, of_window = np.unique(own[used], return_index=True, return_inverse=True)
            for name, log_proba in model.predict_log_proba(seen, part).items():
                log_ratio = log_proba - priors[name][own_kept[used][first]]
                total = np.zeros((len(whole), log_proba.shape[1]), np.float32)
                np.add.at(total, of_window[first], log_ratio)
                ratio = np.zeros((len(own), log_proba.shape[1]), np.float32)
                ratio[used] = total[of_window]
                found[f"{name}|{threat_model}|{plan}"] = ratio
    return found


def _within(group: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Groups of one kept class each, numbered from 0; -1 stays.

    How often a person walks is the application's to know, and must not tell people apart.

    >>> _within(np.array([0, 0, 1, -1]), np.array([2, 1, 2, 2])).tolist()
    [1, 0, 2, -1]
    """
    used = group >= 0
    number = np.full(len(group), -1)
    rows = np.stack([group[used], kept[used]], axis=1)
    number[used] = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    return number


def _group_priors(
    group: np.ndarray, codes: np.ndarray, kept: np.ndarray, num_classes: int
) -> np.ndarray:
    """Log shares (kept classes, classes) of training groups; all groups count as one more."""
    known = codes != UNKNOWN
    rows = np.unique(np.stack([group[known], kept[known], codes[known]], axis=1), axis=0)
    counts = np.zeros((kept.max() + 1, num_classes))
    np.add.at(counts, (rows[:, 1], rows[:, 2]), 1)
    counts += np.maximum(counts.sum(0), 1e-3) / counts.sum()
    return np.asarray(np.log(counts / counts.sum(1, keepdims=True)))


def _seen(windows: Windows, condition: np.ndarray | None) -> Windows:
    """The windows, or the method's condition in their place."""
    if condition is None:
        return windows
    own = condition_windows(condition, windows)
    return replace(own, labels=windows.labels, classes=windows.classes)


def _learnable(train: Windows, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The classes of attributes that have two or more in training."""
    codes = {name: train.codes(name) for name in names}
    return {name: own for name, own in codes.items() if len(np.unique(own[own != UNKNOWN])) > 1}


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
