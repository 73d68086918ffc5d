"""The attacks of an audit: every threat model, attacker, fold and seed, on every attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sensorveil.audit.attackers import (
    CONVOLUTIONS,
    Budget,
    attacker_class,
    condition_windows,
)
from sensorveil.audit.control import PLANTED
from sensorveil.audit.results import CONTROL, SEMI, AttributeAudit
from sensorveil.audit.session_attackers import session_attacker_class
from sensorveil.audit.sessions import (
    Predictions,
    SessionPredictions,
    look_plans,
    session_plans,
    training_groups,
)
from sensorveil.audit.store import Store
from sensorveil.audit.summary import summarize
from sensorveil.audit.threat_models import (
    AttackDataset,
    Fold,
    Looks,
    Output,
    attack_datasets,
    control_dataset,
)
from sensorveil.audit.truth import (
    kept_prior,
    largest_share,
    log_prior,
    looks_truth,
    pooled_codes,
    truth,
)
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.progress import track

CONTROL_ATTACKERS = "attackers in turn"
"""The name under which the control is filed: the first attacker that finds the planted leak."""

Key = tuple[str, str, str]
"""Attribute, threat model, attacker."""
Scores = dict[Key, list[dict[int, np.ndarray]]]
"""For each seed, scores (2, n, classes) by fold."""
PlanScores = dict[Key, list[dict[int, dict[str, np.ndarray]]]]
"""For each seed and fold, log-ratios (n, classes) by plan."""


def run_attacks(
    folds: Sequence[Fold],
    outputs: Mapping[tuple[int, int], Output],
    attributes: Sequence[str],
    seeds: Sequence[int],
    budget: Budget,
    device: str = "cpu",
    store: Store | None = None,
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
    store
        Where predictions are kept, so that an interrupted audit goes on.
    """
    runner = _Runner(folds, outputs, attributes, seeds, budget, device, store or Store())
    runner.run()
    return tuple(runner.summary(name) for name in attributes)


class _Runner:
    """Collects what all attackers predict."""

    def __init__(
        self,
        folds: Sequence[Fold],
        outputs: Mapping[tuple[int, int], Output],
        attributes: Sequence[str],
        seeds: Sequence[int],
        budget: Budget,
        device: str,
        store: Store,
    ) -> None:
        self.folds, self.outputs, self.attributes = folds, outputs, attributes
        self.seeds, self.budget, self.device, self.store = seeds, budget, device, store
        self.window: Scores = {}
        self.session: PlanScores = {}
        self.looks: Scores = {}
        self.look_sessions: PlanScores = {}

    def run(self) -> None:
        """All folds, seeds, threat models and attackers."""
        # The share of planted windows is that of all folds: a fold may have a single class.
        largest = {name: largest_share(pooled_codes(self.folds, name)) for name in self.attributes}
        work = [(fold, seed) for seed in self.seeds for fold in range(len(self.folds))]
        for number, seed in track(work, "attackers: folds and seeds"):
            output = self.outputs[number, seed]
            datasets = attack_datasets(self.folds[number], output, self.budget, seed)
            jobs: list[tuple[int, AttackDataset, str]] = [
                (place, dataset, attacker)
                for place, dataset in enumerate(datasets)
                for attacker in (*self.budget.attackers, *self.budget.session_attackers)
            ]
            for place, dataset, attacker in track(jobs, "attackers"):
                key = f"fold {number}, seed {seed}, dataset {place}, {attacker}"
                if attacker in self.budget.attackers:
                    self._attack_windows(self.window, number, seed, dataset, attacker, key)
                else:
                    self._attack_sessions(number, seed, dataset, attacker, key)
            if output.looks:
                self._attack_looks(number, seed, output.looks)
            for name in track(self.attributes, "control"):
                self._find_control(number, seed, name, largest[name])

    def _predict(
        self, dataset: AttackDataset, attacker: str, seed: int, key: str
    ) -> dict[tuple[str, str], np.ndarray]:
        names = dataset.attributes or self.attributes

        def make() -> dict[str, np.ndarray]:
            found = attack(dataset, attacker, names, self.budget, seed, self.device)
            return {f"{name}|{model}": scores for (name, model), scores in found.items()}

        stored = self.store.arrays(key, make)
        return {
            (name, model): stored[f"{name}|{model}"] for name in names for model in dataset.tests
        }

    def _attack_windows(
        self, into: Scores, number: int, seed: int, dataset: AttackDataset, attacker: str, key: str
    ) -> None:
        fold, output = self.folds[number], self.outputs[number, seed]
        for (name, model), log_proba in self._predict(dataset, attacker, seed, key).items():
            by_fold = into.setdefault((name, model, attacker), [{} for _ in self.seeds])
            shape = (2, len(fold.split.test), log_proba.shape[1])
            scores = by_fold[self.seeds.index(seed)].setdefault(number, np.zeros(shape))
            _file_scores(scores, fold, output, dataset, name, log_proba)

    def _attack_sessions(
        self, number: int, seed: int, dataset: AttackDataset, attacker: str, key: str
    ) -> None:
        test = self.folds[number].split.test
        plans = {
            f"{group}, {size}": chunk
            for (group, size), chunk in session_plans(test.subject, test.recording, test.start)
        }
        groups = training_groups(dataset.train)
        self._learn_sessions(self.session, number, seed, dataset, attacker, key, groups, plans)

    def _learn_sessions(
        self,
        into: PlanScores,
        number: int,
        seed: int,
        dataset: AttackDataset,
        attacker: str,
        key: str,
        groups: Sequence[np.ndarray],
        plans: Mapping[str, np.ndarray],
    ) -> None:
        def make() -> dict[str, np.ndarray]:
            return attack_sessions(
                dataset,
                attacker,
                self.attributes,
                groups,
                plans,
                self.folds[number].policy.keep,
                self.budget,
                seed,
                self.device,
            )

        for full, log_ratio in self.store.arrays(key, make).items():
            name, model, plan = full.split("|")
            by_fold = into.setdefault((name, model, attacker), [{} for _ in self.seeds])
            by_plan = by_fold[self.seeds.index(seed)].setdefault(number, {})
            whole = by_plan.setdefault(plan, np.zeros((len(plans[plan]), log_ratio.shape[1])))
            positions = slice(None) if dataset.positions is None else dataset.positions
            whole[positions] += log_ratio

    def _attack_looks(self, number: int, seed: int, looks: Looks) -> None:
        dataset = AttackDataset(looks.train, {SEMI: looks.test})
        for attacker in track(self.budget.look_attackers(), "several looks"):
            key = f"fold {number}, seed {seed}, looks, {attacker}"
            if attacker in self.budget.attackers:
                for (name, model), scores in self._predict(dataset, attacker, seed, key).items():
                    by_fold = self.looks.setdefault(
                        (name, model, attacker), [{} for _ in self.seeds]
                    )
                    keep = self.folds[number].policy.keep
                    beyond = scores - kept_prior(looks.train, looks.test, name, keep)
                    by_fold[self.seeds.index(seed)][number] = np.stack([scores, beyond])
            else:
                test = looks.test
                plans = {
                    f"{group}, {size}": chunk
                    for (group, size), chunk in look_plans(test.recording, test.start)
                }
                self._learn_sessions(
                    self.look_sessions,
                    number,
                    seed,
                    dataset,
                    attacker,
                    key,
                    [looks.train.recording],
                    plans,
                )

    def _find_control(self, number: int, seed: int, name: str, largest: float) -> None:
        """Attackers in turn, until one finds half of the planted leak."""
        fold, output = self.folds[number], self.outputs[number, seed]
        dataset = control_dataset(output, name, largest, seed)
        codes = output.test.codes(name)
        known = codes != UNKNOWN
        own_share = largest_share(codes)
        best, best_accuracy = None, -1.0
        for attacker in sorted(self.budget.attackers, key=lambda one: one != CONVOLUTIONS):
            key = f"fold {number}, seed {seed}, control {name}, {attacker}"
            found = self._predict(dataset, attacker, seed, key)[name, CONTROL]
            accuracy = float((found.argmax(1) == codes)[known].mean())
            if accuracy > best_accuracy:
                best, best_accuracy = found, accuracy
            if accuracy - own_share >= min(PLANTED, 1 - own_share) / 2:
                break
        assert best is not None
        key_of = (name, CONTROL, CONTROL_ATTACKERS)
        by_fold = self.window.setdefault(key_of, [{} for _ in self.seeds])
        scores = np.zeros((2, *best.shape))
        _file_scores(scores, fold, output, dataset, name, best)
        by_fold[self.seeds.index(seed)][number] = scores

    def summary(self, name: str) -> AttributeAudit:
        """The result of one attribute."""
        looks = [self.outputs[n, self.seeds[0]].looks for n in range(len(self.folds))]
        looked = [one for one in looks if one is not None]
        whole = truth(self.folds, name)
        return summarize(
            self.folds,
            name,
            whole,
            self._windows_of(self.window, name),
            self._sessions_of(self.session, name),
            looks_truth(whole, self.folds, looked, name) if len(looked) == len(looks) else None,
            self._windows_of(self.looks, name),
            self._sessions_of(self.look_sessions, name),
        )

    def _windows_of(self, found: Scores, name: str) -> list[Predictions]:
        return [
            Predictions(
                model,
                attacker,
                *np.stack(
                    [
                        np.concatenate([own[n] for n in range(len(self.folds))], axis=1)
                        for own in per_seed
                    ],
                    axis=1,
                ),
            )
            for (attribute, model, attacker), per_seed in found.items()
            if attribute == name and all(len(own) == len(self.folds) for own in per_seed)
        ]

    def _sessions_of(self, found: PlanScores, name: str) -> list[SessionPredictions]:
        made = []
        for (attribute, model, attacker), per_seed in found.items():
            if attribute != name or any(len(own) < len(self.folds) for own in per_seed):
                continue
            folds = [own[n] for own in per_seed for n in range(len(self.folds))]
            shape = next(iter(folds[0].values())).shape[1:]
            sizes = [len(next(iter(one.values()))) for one in folds]
            by_plan = {}
            for plan in dict.fromkeys(plan for one in folds for plan in one):
                # A fold without a recording so long has no chunk of this size.
                parts = [
                    one.get(plan, np.zeros((size, *shape)))
                    for one, size in zip(folds, sizes, strict=True)
                ]
                group, size = plan.split(", ")
                by_plan[group, None if size == "None" else int(size)] = np.stack(
                    [
                        np.concatenate(parts[first : first + len(self.folds)])
                        for first in range(0, len(parts), len(self.folds))
                    ]
                )
            made.append(SessionPredictions(model, attacker, by_plan))
        return made


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
            predicted = model.predict_all(model.features(windows, condition))
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
    keep = fold.policy.keep
    whole[1, positions] = log_proba - kept_prior(dataset.train, test.select(positions), name, keep)
