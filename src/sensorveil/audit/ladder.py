"""The ladder of attackers on one split: from one who never saw the output to one who knows all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from sensorveil.audit.attackers import TREES, AttackDataset, Budget
from sensorveil.audit.control import PLANTED, plant, planted_share
from sensorveil.audit.criterion import judge
from sensorveil.audit.folds import (
    Fold,
    Output,
    condition_of_part,
    insider_halves,
    thin_places,
)
from sensorveil.audit.results import (
    CONTROL,
    FULL,
    IGNORANT,
    INSIDER,
    LAZY,
    RAW,
    SEMI,
    Attack,
    AttributeAudit,
)
from sensorveil.audit.sessions import Reading, Truth, session_points
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.measures.estimate import bootstrap
from sensorveil.measures.roc import auc_over_people
from sensorveil.measures.scores import (
    accuracy,
    balanced_accuracy,
    confusion_by_person,
    majority,
)
from sensorveil.progress import track

Found = dict[tuple[str, str], list[list[np.ndarray]]]
"""Readings of an attribute by level and family, for each seed and fold: (2, n, classes)."""


def run_attacks(
    folds: Sequence[Fold],
    outputs: Mapping[tuple[int, int], Output],
    attributes: Sequence[str],
    seeds: Sequence[int],
    budget: Budget,
    device: str,
) -> tuple[AttributeAudit, ...]:
    """Attacks every attribute on every rung; folds are pooled, seeds are averaged.

    `outputs` holds the output of each (fold, seed).
    """
    readings: dict[str, Found] = {n: {} for n in attributes}
    work = [(number, seed) for seed in seeds for number in range(len(folds))]
    # The share of marks is that of all folds: one with a single class would else be all marked.
    shares = {name: planted_share(_largest(_pooled_codes(folds, name))) for name in attributes}
    insiders = all(insider_halves(fold.split, fold.obfuscator.policy_.keep) for fold in folds)
    with ThreadPoolExecutor(torch.get_num_threads()) as workers:
        for number, seed in track(work, "attackers: folds and seeds"):
            fold, output = folds[number], outputs[number, seed]
            rungs = _rungs(fold, output, budget, seed, device, insiders)
            for name in track(attributes, "attackers: attributes"):
                found = _fold_readings(
                    fold, output, rungs, name, seed, budget, shares[name], workers
                )
                for key, scores in found.items():
                    per_seed = readings[name].setdefault(key, [[] for _ in seeds])
                    per_seed[list(seeds).index(seed)].append(scores)
    return tuple(_summary(folds, name, readings[name]) for name in attributes)


@dataclass(frozen=True, eq=False)
class _Rung:
    """AttackDataset, the windows whose true labels come with it, and which test windows it is about."""

    evidence: AttackDataset
    labelled: Windows
    rows: np.ndarray | None = None


def _rungs(
    fold: Fold, output: Output, budget: Budget, seed: int, device: str, insiders: bool
) -> list[_Rung]:
    """The evidence of each rung; features are worked out once for all attributes."""
    chosen = thin_places(fold.split.train, budget.windows, seed)
    raw = fold.split.train.select(chosen)

    def rung(train: Windows, tests: dict[str, Windows], rows: np.ndarray | None = None) -> _Rung:
        return _Rung(AttackDataset(train, tests, budget, seed, device), train, rows)

    rungs = [
        rung(raw, {RAW: fold.split.test, IGNORANT: output.test}),
        rung(output.lazy, {LAZY: output.test}),
        rung(output.train, {SEMI: output.test}),
    ]
    keep = fold.obfuscator.policy_.keep
    for known, attacked in insider_halves(fold.split, keep) if insiders else ():
        test = output.test.select(attacked)
        rungs.append(rung(output.test.select(known), {INSIDER: test}, attacked))
    code = condition_of_part(fold.obfuscator, fold.split.train, chosen)
    if code is not None:
        test_code = fold.obfuscator.condition(fold.split.test)
        assert test_code is not None
        informed = AttackDataset(
            output.train, {FULL: output.test}, budget, seed, device, code, {FULL: test_code}
        )
        rungs.append(_Rung(informed, output.train))
    return rungs


def _fold_readings(
    fold: Fold,
    output: Output,
    rungs: Sequence[_Rung],
    name: str,
    seed: int,
    budget: Budget,
    share: float,
    workers: Executor,
) -> dict[tuple[str, str], np.ndarray]:
    """Log-probabilities and evidence beyond the kept class (2, n, classes), by level and family."""
    classes = len(output.test.classes[name])
    prior = np.minimum(_log_prior(fold.split.train.codes(name), classes), 0)
    keep = fold.obfuscator.policy_.keep
    found: dict[tuple[str, str], np.ndarray] = {}
    control = _control(output, name, classes, seed, rungs[0].evidence, share)
    asked = [(rung, family) for rung in (*rungs, control) for family in budget.families]

    def attacked(rung: _Rung, family: str) -> dict[str, np.ndarray]:
        codes = rung.labelled.codes(name)
        return rung.evidence.attack(family, codes, classes, codes != UNKNOWN)

    # Trees grow on cores that would else wait for the networks. Their features are made here, since
    # nobody else may use a GPU while a network's training step is recorded.
    for rung, family in asked:
        rung.evidence.prepare(family)
    grown = {r: workers.submit(attacked, r, TREES) for r, family in asked if family == TREES}
    for rung, family in asked:
        read = grown[rung].result() if family == TREES else attacked(rung, family)
        for level, scores in read.items():
            rows = np.arange(len(output.test)) if rung.rows is None else rung.rows
            learnt = rung.evidence.train
            shape = (2, len(output.test), classes)
            whole = found.setdefault((level, family), np.zeros(shape))
            # As if it had learnt from the shares of all of training: what it did learn from has
            # others, by chance or because it is a part of the test.
            whole[0, rows] = scores - _log_prior(learnt.codes(name), classes) + prior
            whole[1, rows] = scores - kept_prior(learnt, output.test.select(rows), name, keep)
    return found


def _control(
    output: Output, name: str, classes: int, seed: int, like: AttackDataset, share: float
) -> _Rung:
    generator = np.random.default_rng(seed)
    train, test = (
        plant(part, part.codes(name), classes, share, generator)
        for part in (output.train, output.test)
    )
    return _Rung(AttackDataset(train, {CONTROL: test}, like.budget, seed, like.device), train)


def _pooled_codes(folds: Sequence[Fold], name: str) -> np.ndarray:
    return np.concatenate([fold.split.test.codes(name) for fold in folds])


def _largest(codes: np.ndarray) -> float:
    known = codes[codes != UNKNOWN]
    return float(np.bincount(known).max() / len(known))


def _summary(folds: Sequence[Fold], name: str, readings: Found) -> AttributeAudit:
    """Estimates over people and seeds, sessions, and the verdict on one attribute."""
    truth = _truth(folds, name)
    pooled = [
        Reading(level, family, *np.stack([np.concatenate(parts, axis=1) for parts in per_seed], 1))
        for (level, family), per_seed in readings.items()
    ]
    tables = {(r.threat_model, r.attacker): _read_tables(truth, r) for r in pooled}
    attacks = {
        (r.threat_model, r.attacker): _attack(truth, r, tables[r.threat_model, r.attacker])
        for r in pooled
    }
    tried = [a for a in attacks.values() if a.threat_model not in (RAW, CONTROL)]
    controls = [a for a in attacks.values() if a.threat_model == CONTROL]
    control = max(controls, key=lambda attack: attack.advantage.value)
    sessions = session_points(truth, [r for r in pooled if r.threat_model not in (RAW, CONTROL)])
    worst = max(tried, key=lambda attack: attack.advantage.value)
    test = folds[0].split.test
    known = truth.codes[truth.codes != UNKNOWN]
    planted = min(PLANTED, 1 - _largest(known))
    shown = [a for a in attacks.values() if a.threat_model != CONTROL]
    return AttributeAudit(
        attribute=name,
        role=folds[0].obfuscator.policy_.role(name),
        classes=tuple(test.classes[name]),
        windows=len(known),
        people=len(np.unique(truth.person)),
        chance=1 / truth.classes,
        majority=_largest(known),
        attacks=tuple(shown),
        worst=worst,
        control=control,
        planted=planted,
        sessions=sessions,
        verdict=judge(shown, control, planted, sessions, _largest(known)),
        by_person=_by_person(
            truth, tables[worst.threat_model, worst.attacker], test.classes["subject"]
        ),
    )


def _by_person(truth: Truth, tables: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """The share of windows that were read right, by person, mean over seeds."""
    whole = tables.sum(0)  # the people in order
    right = np.trace(whole, axis1=1, axis2=2) / np.maximum(whole.sum((1, 2)), 1)
    people = np.unique(truth.person[truth.codes != UNKNOWN])
    shown = right[whole.sum((1, 2)) > 0]
    return {names[one]: float(value) for one, value in zip(people, shown, strict=True)}


def _truth(folds: Sequence[Fold], name: str) -> Truth:
    tests = [fold.split.test for fold in folds]
    classes = len(tests[0].classes[name])
    priors = [
        np.tile(_log_prior(fold.split.train.codes(name), classes), (len(fold.split.test), 1))
        for fold in folds
    ]
    return Truth(
        codes=_pooled_codes(folds, name),
        person=np.concatenate([test.subject for test in tests]),
        recording=np.concatenate([test.recording for test in tests]),
        start=np.concatenate([test.start for test in tests]),
        classes=classes,
        log_prior=np.concatenate(priors),
        fold=np.repeat(np.arange(len(tests)), [len(test) for test in tests]),
        kept=np.concatenate([test.joint_codes(folds[0].obfuscator.policy_.keep) for test in tests]),
    )


def kept_prior(learnt: Windows, windows: Windows, name: str, keep: Sequence[str]) -> np.ndarray:
    """Log shares (n, classes) of an attribute among learnt windows of each window's kept class.

    A class that never occurs counts so much that it is never read; a kept class that hardly
    occurs has the shares of all, by and by (as if one window of them had been seen with it).
    """
    codes, classes = learnt.codes(name), len(learnt.classes[name])
    overall = _log_prior(codes, classes)
    shares = np.where(overall > 0, 0, np.exp(np.minimum(overall, 0)))
    known = codes != UNKNOWN
    kept, own = (part.joint_codes(keep) for part in (learnt, windows))
    found = np.tile(overall, (len(windows), 1))
    for cell in np.unique(own[own >= 0]):
        counts = np.bincount(codes[known & (kept == cell)], minlength=classes) + shares
        with np.errstate(divide="ignore"):
            logs = np.log(counts / counts.sum())
        found[own == cell] = np.where(shares > 0, logs, 50.0)
    return found


def _log_prior(codes: np.ndarray, classes: int) -> np.ndarray:
    """Log shares of the classes; one that never occurs counts so much that it is never read."""
    counts = np.bincount(codes[codes != UNKNOWN], minlength=classes).astype(float)
    return np.where(counts > 0, np.log(np.maximum(counts, 1) / counts.sum()), 50.0)


def _read_tables(truth: Truth, reading: Reading) -> np.ndarray:
    """Confusion tables (seeds, people, classes, classes) of the better of two readings.

    Folds have other shares of the classes in training. The second reading swaps each fold's shares
    for those of all.
    """
    evidence = reading.scores - truth.log_prior
    pooled = np.minimum(_log_prior(truth.codes, truth.classes), 0)
    both = [_tables(truth, scores) for scores in (reading.scores, evidence + pooled)]
    return max(both, key=lambda table: float(accuracy(table.sum((0, 1)))))


def _attack(truth: Truth, reading: Reading, tables: np.ndarray) -> Attack:
    def draws() -> np.random.Generator:
        return np.random.default_rng(0)  # the same people for every figure

    right = bootstrap(tables, accuracy, draws())
    # Windows of one fold and kept class are compared: other folds have other attackers, and what
    # the kept class itself tells is the application's to know.
    strata = truth.fold * (truth.kept.max() + 2) + truth.kept + 1
    shares = _shares(reading.scores - truth.log_prior)
    return Attack(
        threat_model=reading.threat_model,
        attacker=reading.attacker,
        accuracy=right,
        advantage=right.above(float(majority(tables.sum((0, 1))))),
        balanced_accuracy=bootstrap(tables, balanced_accuracy, draws()),
        auc=auc_over_people(shares, truth.codes, truth.person, draws(), strata),
        overall_auc=auc_over_people(shares, truth.codes, truth.person, draws(), truth.fold),
    )


def _tables(truth: Truth, scores: np.ndarray) -> np.ndarray:
    """Confusion tables (seeds, people, classes, classes)."""
    return np.stack(
        [
            confusion_by_person(truth.codes, table.argmax(1), truth.person, truth.classes)
            for table in scores
        ]
    )


def _shares(evidence: np.ndarray) -> np.ndarray:
    """Probabilities as they would be if all classes were equally frequent in training."""
    powers = np.exp(evidence - evidence.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
