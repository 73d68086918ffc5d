"""Threat models: what an attacker is given, from raw data alone to the method's own condition.

A threat model is a name, a sentence, and a function from an obfuscator and its output to the
attacker's training set and targets. Attackers are not chosen here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from sensorveil.audit.attackers import Budget
from sensorveil.audit.control import plant, planted_share
from sensorveil.audit.insiders import insider_halves
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
from sensorveil.audit.store import Store
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator, Strength
from sensorveil.methods.policy import Policy
from sensorveil.parallel import parallel


@dataclass(frozen=True, eq=False)
class Fold:
    """What is audited on one split: an obfuscator, or output that something else made.

    Parameters
    ----------
    obfuscator
        The method; None where only its output is there.
    split
        The raw windows.
    shadow
        The same method trained with another seed; None for no lazy attackers.
    given_policy
        What is kept and hidden, where there is no obfuscator.
    """

    obfuscator: Obfuscator | None
    split: Split
    shadow: Obfuscator | None = None
    given_policy: Policy | None = None

    @property
    def policy(self) -> Policy:
        """What is kept and what is hidden."""
        if self.obfuscator is not None:
            return self.obfuscator.policy_
        assert self.given_policy is not None
        return self.given_policy

    @property
    def unseen_people(self) -> bool:
        """Whether no person of the test is in training."""
        return not set(self.split.test.subject) & set(self.split.train.subject)


@dataclass(frozen=True, eq=False)
class Output:
    """The output for a fold's windows with one seed.

    Parameters
    ----------
    chosen
        The positions of the training windows that were obfuscated, of all draws.
    train
        Their output: several draws, each with recordings of its own.
    tests
        The output for all test windows: the one that is attacked, then further draws that insiders
        learn from.
    shadow_train
        The shadow's output for the training windows chosen, if there is a shadow.
    looks
        The output of some training and test windows, obfuscated many times (see `Looks`).
    """

    chosen: np.ndarray
    train: Windows
    tests: tuple[Windows, ...]
    shadow_train: Windows | None = None
    looks: Looks | None = None

    @property
    def test(self) -> Windows:
        """The output that is attacked."""
        return self.tests[0]


@dataclass(frozen=True, eq=False)
class Looks:
    """Windows that were obfuscated many times; all output of one window is a "recording".

    `positions` are those of the test windows.
    """

    train: Windows
    test: Windows
    positions: np.ndarray


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
    raw = fold.split.train.select(np.unique(output.chosen))
    return [AttackDataset(raw, {RAW: fold.split.test, IGNORANT: output.test})]


@register_threat_model(LAZY)
def _lazy(fold: Fold, output: Output, budget: Budget, seed: int) -> list[AttackDataset]:
    if output.shadow_train is None:
        return []
    return [AttackDataset(output.shadow_train, {LAZY: output.test})]


@register_threat_model(SEMI)
def _semi_informed(fold: Fold, output: Output, budget: Budget, seed: int) -> list[AttackDataset]:
    return [AttackDataset(output.train, {SEMI: output.test})]


@register_threat_model(INSIDER)
def _insider(fold: Fold, output: Output, budget: Budget, seed: int) -> list[AttackDataset]:
    found = []
    for leaked, attacked in insider_halves(fold.split, fold.policy.keep):
        most = max(1, budget.windows // len(output.tests))
        known = leaked[chosen_windows(fold.split.test.select(leaked), most, seed)]
        train = stacked([test.select(known) for test in output.tests])
        tests = {INSIDER: output.test.select(attacked)}
        found.append(AttackDataset(train, tests, attacked))
    return found


@register_threat_model(FULL)
def _fully_informed(fold: Fold, output: Output, budget: Budget, seed: int) -> list[AttackDataset]:
    if fold.obfuscator is None:
        return []
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
    few = thinned(output.train, CONTROL_WINDOWS, seed)  # weaker attackers, so a harder control
    train, test = (
        plant(part, part.codes(attribute), classes, share, rng) for part in (few, output.test)
    )
    return AttackDataset(train, {CONTROL: test}, attributes=(attribute,))


CONTROL_WINDOWS = 8_000
"""The most training windows of a control."""


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


def obfuscate_fold(
    fold: Fold,
    strength: Strength | None,
    seed: int,
    budget: Budget,
    store: Store | None = None,
    key: str = "",
    workers: int = 1,
) -> Output:
    """The output for all test windows, and for as many training windows as attackers need.

    Parameters
    ----------
    fold, strength, seed, budget
        What is obfuscated, how strongly, and how much of it.
    store, key
        Where the output is kept, and the part of its name that says which fold and seed it is.
    workers
        Draws that are made at the same time.
    """
    obfuscator, train, test = fold.obfuscator, fold.split.train, fold.split.test
    store = store or Store()
    if obfuscator is None:
        raise Refusal("there is no method to obfuscate with")
    jobs: list[Callable[[], Windows]] = []

    def draw(one: Obfuscator, windows: Windows, part: np.ndarray, seed: int) -> int:
        """Plan one draw; its number among all."""
        name = f"{key}, {one.name} {one.seed}, seed {seed} of {len(windows)}, {part.tobytes()!r}"
        make = partial(obfuscate_some, one, windows, part, strength, seed)
        jobs.append(partial(store.output, name, windows.select(part), make))
        return len(jobs) - 1

    most = max(1, budget.windows // budget.draws)
    parts = [chosen_windows(train, most, seed + 1_000 * n) for n in range(budget.draws)]
    trained, shadows = (
        [
            draw(one, train, part, first + 2 * seed + 100_000 * n)
            for n, part in enumerate(parts)
            if one is not None
        ]
        for one, first in ((obfuscator, 0), (fold.shadow, 10_000))
    )
    everything = np.arange(len(test))
    tests = [
        draw(obfuscator, test, everything, 2 * seed + 1 + 100_000 * n) for n in range(budget.draws)
    ]
    positions = [
        thinned_positions(len(windows), budget.look_windows, 0) for windows in (train, test)
    ]
    looks = [
        [
            draw(obfuscator, windows, own, 50_000_000 + 2 * seed + side + 1_000 * n)
            for n in range(budget.looks)
        ]
        for side, (windows, own) in enumerate(zip((train, test), positions, strict=True))
        if budget.looks > 1
    ]
    made = parallel(jobs, f"obfuscating by {obfuscator.name}", workers)

    def of(numbers: Sequence[int]) -> list[Windows]:
        return [made[number] for number in numbers]

    again = [same_windows(of(side)) for side in looks]
    return Output(
        chosen=np.concatenate(parts),
        train=stacked(of(trained)),
        tests=tuple(of(tests)),
        shadow_train=stacked(of(shadows)) if shadows else None,
        looks=Looks(again[0], again[1], positions[1]) if again else None,
    )


def same_windows(draws: Sequence[Windows]) -> Windows:
    """Several draws of the same windows: all output of one window is one "recording", in order."""
    count = len(draws[0])
    return replace(
        stacked(draws),
        recording=np.tile(np.arange(count), len(draws)),
        start=np.repeat(np.arange(len(draws)), count),
        recordings=tuple(str(number) for number in range(count)),
    )


def stacked(parts: Sequence[Windows]) -> Windows:
    """Windows of several draws, one after the other; each draw has recordings of its own.

    Examples
    --------
    >>> one = Windows.from_signal(np.zeros((3, 1, 4)))
    >>> both = stacked([one, one])
    >>> len(both), both.recording.tolist()
    (6, [0, 1, 2, 3, 4, 5])
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    sizes = np.cumsum([0, *(part.store.shape[-1] for part in parts)])
    recordings = len(first.recordings)
    return replace(
        first,
        store=np.concatenate([part.store for part in parts], axis=-1),
        offset=np.concatenate(
            [part.offset + size for part, size in zip(parts, sizes, strict=False)]
        ),
        start=np.concatenate([part.start for part in parts]),
        recording=np.concatenate([part.recording + n * recordings for n, part in enumerate(parts)]),
        recordings=first.recordings * len(parts),
        labels={
            name: np.concatenate([part.labels[name] for part in parts]) for name in first.labels
        },
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


_STRETCH = 60
"""Windows that follow each other and are chosen together, since attackers learn from sequences."""


def chosen_windows(windows: Windows, count: int, seed: int) -> np.ndarray:
    """Positions of at most about `count` windows: random stretches of recordings.

    >>> chosen_windows(Windows.from_signal(np.zeros((5, 1, 4))), 3, seed=0).tolist()
    [0, 3, 4]
    """
    if len(windows) <= count:
        return np.arange(len(windows))
    order = np.lexsort([windows.start, windows.recording])
    _, first, inverse = np.unique(windows.recording[order], return_index=True, return_inverse=True)
    stretch = (np.arange(len(order)) - first[inverse]) // _STRETCH
    number = inverse * (stretch.max() + 1) + stretch
    _, number = np.unique(number, return_inverse=True)
    rank = np.random.default_rng(seed).permutation(number.max() + 1)[number]
    chosen = order[np.argsort(rank, kind="stable")[:count]]
    return np.sort(chosen)


def thinned(windows: Windows, count: int, seed: int) -> Windows:
    """At most `count` of the windows, drawn at random, in their order."""
    return windows.select(thinned_positions(len(windows), count, seed))


def thinned_positions(total: int, count: int, seed: int) -> np.ndarray:
    """The positions of the windows that `thinned` takes."""
    return np.sort(np.random.default_rng(seed).permutation(total)[:count])
