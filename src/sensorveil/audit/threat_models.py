"""Threat models: what an attacker is given, from raw data alone to the method's own condition.

A threat model is a name, a sentence, and a function from an obfuscator and its output to the
attacker's training set and targets. Attackers are not chosen here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sensorveil.audit.attackers import Budget
from sensorveil.audit.control import plant, planted_share
from sensorveil.audit.results import (
    CONTROL,
    FULL,
    IGNORANT,
    INSIDER,
    LAZY,
    RAW,
    SEMI,
    THREAT_MODELS,
)
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator, Strength


@dataclass(frozen=True, eq=False)
class Fold:
    """An obfuscator, its split, and a shadow: the same method trained with another seed."""

    obfuscator: Obfuscator
    split: Split
    shadow: Obfuscator


@dataclass(frozen=True, eq=False)
class Output:
    """What a fold's obfuscators made of its windows with one seed.

    `chosen` are the positions of the training windows that were obfuscated, `train` their output,
    `shadow_train` the shadow's output for them.
    """

    chosen: np.ndarray
    train: Windows
    test: Windows
    shadow_train: Windows


@dataclass(frozen=True, eq=False)
class AttackDataset:
    """What one attacker is given.

    Parameters
    ----------
    train
        Labelled windows to learn from.
    tests
        Windows to attack, by the threat model that the result is filed under.
    positions
        The attacked windows among the test windows; default: all.
    train_condition, test_conditions
        The method's condition, (n, numbers), where the attacker has it.
    attributes
        The attributes that can be attacked; default: all.
    """

    train: Windows
    tests: Mapping[str, Windows]
    positions: np.ndarray | None = None
    train_condition: np.ndarray | None = None
    test_conditions: Mapping[str, np.ndarray] = field(default_factory=dict)
    attributes: tuple[str, ...] | None = None


Builder = Callable[[Fold, Output, Budget, int], Sequence[AttackDataset]]


@dataclass(frozen=True)
class ThreatModel:
    """A name, one sentence, and what builds the attack datasets of a fold and seed."""

    name: str
    summary: str
    build: Builder


_REGISTERED: dict[str, ThreatModel] = {}


def register_threat_model(name: str, summary: str = "") -> Callable[[Builder], Builder]:
    """Function decorator that adds a threat model to every audit.

    Parameters
    ----------
    name
        The name in results.
    summary
        One sentence for the page; those of the package have one already.
    """

    def register(build: Builder) -> Builder:
        THREAT_MODELS.setdefault(name, summary)
        _REGISTERED[name] = ThreatModel(name, THREAT_MODELS[name], build)
        return build

    return register


def list_threat_models() -> tuple[str, ...]:
    """The names of all threat models, the least informed first.

    Examples
    --------
    >>> list_threat_models()
    ('ignorant', 'lazy', 'semi-informed', 'insider', 'fully informed')
    """
    return tuple(_REGISTERED)


def attack_datasets(fold: Fold, output: Output, budget: Budget, seed: int) -> list[AttackDataset]:
    """The attack datasets of all threat models."""
    return [
        dataset
        for model in _REGISTERED.values()
        for dataset in model.build(fold, output, budget, seed)
    ]


@register_threat_model(IGNORANT)
def _ignorant(fold: Fold, output: Output, budget: Budget, seed: int) -> list[AttackDataset]:
    raw = fold.split.train.select(output.chosen)
    return [AttackDataset(raw, {RAW: fold.split.test, IGNORANT: output.test})]


@register_threat_model(LAZY)
def _lazy(fold: Fold, output: Output, budget: Budget, seed: int) -> list[AttackDataset]:
    return [AttackDataset(output.shadow_train, {LAZY: output.test})]


@register_threat_model(SEMI)
def _semi_informed(fold: Fold, output: Output, budget: Budget, seed: int) -> list[AttackDataset]:
    return [AttackDataset(output.train, {SEMI: output.test})]


@register_threat_model(INSIDER)
def _insider(fold: Fold, output: Output, budget: Budget, seed: int) -> list[AttackDataset]:
    found = []
    for leaked, attacked in insider_halves(fold.split, fold.obfuscator.policy_.keep):
        known = leaked[thinned_positions(len(leaked), budget.windows, seed)]
        tests = {INSIDER: output.test.select(attacked)}
        found.append(AttackDataset(output.test.select(known), tests, attacked))
    return found


@register_threat_model(FULL)
def _fully_informed(fold: Fold, output: Output, budget: Budget, seed: int) -> list[AttackDataset]:
    train = condition_of(fold.obfuscator, fold.split.train, output.chosen)
    test = fold.obfuscator.condition(fold.split.test)
    if train is None or test is None:
        return []
    # The numbers of a condition differ in scale.
    mean, deviation = train.mean(0), train.std(0)
    deviation = np.where(deviation > 1e-6, deviation, 1)
    return [
        AttackDataset(
            output.train,
            {FULL: output.test},
            train_condition=(train - mean) / deviation,
            test_conditions={FULL: (test - mean) / deviation},
        )
    ]


def control_dataset(
    output: Output, attribute: str, largest_share: float, seed: int
) -> AttackDataset:
    """The positive control: a semi-informed attacker on output with a planted leak."""
    rng = np.random.default_rng(seed)
    share = planted_share(largest_share)
    classes = len(output.test.classes[attribute])
    train, test = (
        plant(part, part.codes(attribute), classes, share, rng)
        for part in (output.train, output.test)
    )
    return AttackDataset(train, {CONTROL: test}, attributes=(attribute,))


def train_shadow_obfuscator(
    obfuscator: Obfuscator, split: Split, given: Sequence[Obfuscator] = ()
) -> Obfuscator:
    """The same method and settings with another seed: one of those `given`, or trained here."""
    for other in given:
        if _is_shadow(other, obfuscator):
            return other
    again = type(obfuscator)(
        obfuscator.preset, obfuscator.seed + 1, obfuscator.device, **obfuscator.about()
    )
    windows = split.training_windows(obfuscator.origin_)
    return again.fit(windows, obfuscator.policy_.keep, obfuscator.policy_.hide)


def check_shadows(obfuscators: Sequence[Obfuscator], shadows: Sequence[Obfuscator]) -> None:
    """Refuse a shadow that does not belong to any of the obfuscators to be audited."""
    for shadow in shadows:
        if not any(_is_shadow(shadow, obfuscator) for obfuscator in obfuscators):
            raise Refusal(
                f"the other run, {shadow.name} with seed {shadow.seed}, must have the method,"
                " settings, policy and training windows of a run to be audited, and another seed"
            )


def _is_shadow(other: Obfuscator, obfuscator: Obfuscator) -> bool:
    alike = all(
        getattr(other, name) == getattr(obfuscator, name)
        for name in ("name", "settings", "policy_", "origin_")
    )
    return alike and other.seed != obfuscator.seed


def obfuscate_fold(fold: Fold, strength: Strength | None, seed: int, budget: Budget) -> Output:
    """The output for all test windows, and for as many training windows as attackers need."""
    train = fold.split.train
    chosen = thinned_positions(len(train), budget.windows, seed)
    return Output(
        chosen=chosen,
        train=obfuscate_some(fold.obfuscator, train, chosen, strength, seed=2 * seed),
        test=fold.obfuscator.obfuscate(fold.split.test, strength, seed=2 * seed + 1),
        shadow_train=obfuscate_some(fold.shadow, train, chosen, strength, seed=2 * seed + 10_000),
    )


def obfuscate_some(
    obfuscator: Obfuscator,
    windows: Windows,
    chosen: np.ndarray,
    strength: Strength | None,
    seed: int,
) -> Windows:
    """Some of the windows; a method that looks back is given all of them, as in use."""
    if obfuscator.capabilities.looks_back:
        return obfuscator.obfuscate(windows, strength, seed=seed).select(chosen).compact()
    return obfuscator.obfuscate(windows.select(chosen), strength, seed=seed)


def condition_of(obfuscator: Obfuscator, windows: Windows, chosen: np.ndarray) -> np.ndarray | None:
    """The method's condition for some of the windows, likewise."""
    if not obfuscator.capabilities.looks_back:
        return obfuscator.condition(windows.select(chosen))
    whole = obfuscator.condition(windows)
    return None if whole is None else whole[chosen]


def thinned(windows: Windows, count: int, seed: int) -> Windows:
    """At most `count` of the windows, drawn at random, in their order."""
    return windows.select(thinned_positions(len(windows), count, seed))


def thinned_positions(total: int, count: int, seed: int) -> np.ndarray:
    """The positions of the windows that `thinned` takes."""
    return np.sort(np.random.default_rng(seed).permutation(total)[:count])


_FEWEST = 300
"""Windows below which half of the test is too little to learn from."""


def insider_halves(split: Split, keep: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Which test windows leak with labels, and which are then attacked: (positions, positions).

    Where people are new to the obfuscator, half of them leak. Where they are not, it is one half of
    each recording, without windows that overlap with the other half. Where a recording is one
    window, it is half of each person's windows of each `keep` class. A test that is too small
    gives no halves.
    """
    test = split.test
    if not set(test.subject) & set(split.train.subject):
        people = np.random.default_rng(0).permutation(np.unique(test.subject))
        first = np.isin(test.subject, people[: len(people) // 2])
        halves = [(first, ~first), (~first, first)]
    else:
        begin = np.full(len(test.recordings), np.iinfo(np.int64).max)
        end = np.zeros(len(test.recordings), np.int64)
        np.minimum.at(begin, test.recording, test.start)
        np.maximum.at(end, test.recording, test.start + test.length)
        if (end - begin <= test.length).all():  # a recording is one window
            first = _random_half(test.joint_codes(["subject", *keep]))
            halves = [(first, ~first), (~first, first)]
        else:
            middle = ((begin + end) // 2)[test.recording]
            late = test.start >= middle
            halves = [
                (test.start + test.length <= middle, late),
                (test.start >= middle + test.length, ~late),
            ]
    found = [(np.flatnonzero(known), np.flatnonzero(attacked)) for known, attacked in halves]
    return found if min(len(known) for known, _ in found) >= _FEWEST else []


def _random_half(groups: np.ndarray) -> np.ndarray:
    """Which windows are in the first of two halves, each with half of every group.

    Were the halves left to chance, a person of whom many windows of a class leaked would have few
    left to be attacked, and could be recognised by that alone.

    >>> np.bincount(np.array([0, 0, 0, 0, 1, 1])[_random_half(np.array([0, 0, 0, 0, 1, 1]))])
    array([2, 1])
    """
    rng = np.random.default_rng(0)
    order = rng.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    _, begin, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    place = np.arange(len(groups)) - np.repeat(begin - rng.integers(2, size=len(begin)), sizes)
    first = np.empty(len(groups), bool)
    first[order] = place % 2 == 0
    return first
