"""What attackers are given: an obfuscator, its split, its output, and a second one like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sensorveil.audit.attackers import Budget
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator, Strength


@dataclass(frozen=True, eq=False)
class Fold:
    """One obfuscator and its split, with a second obfuscator of another seed for the lazy."""

    obfuscator: Obfuscator
    split: Split
    other: Obfuscator


@dataclass(frozen=True, eq=False)
class Output:
    """What an obfuscator made of a fold with one seed."""

    train: Windows
    test: Windows
    lazy: Windows


def second(obfuscator: Obfuscator, split: Split, others: Sequence[Obfuscator] = ()) -> Obfuscator:
    """The same method and settings with another seed: one of `others`, or else trained for it."""
    for other in others:
        if _is_second(other, obfuscator):
            return other
    again = type(obfuscator)(
        obfuscator.preset, obfuscator.seed + 1, obfuscator.device, **obfuscator.about()
    )
    return again.fit(
        split.training_windows(obfuscator.origin_), obfuscator.policy_.keep, obfuscator.policy_.hide
    )


def check_others(obfuscators: Sequence[Obfuscator], others: Sequence[Obfuscator]) -> None:
    """Refuses a second obfuscator that is none for any of those to be audited."""
    for other in others:
        if not any(_is_second(other, obfuscator) for obfuscator in obfuscators):
            raise Refusal(
                f"the other run, {other.name} with seed {other.seed}, must have the method,"
                " settings, policy and training windows of a run to be audited, and another seed"
            )


def _is_second(other: Obfuscator, obfuscator: Obfuscator) -> bool:
    alike = all(
        getattr(other, name) == getattr(obfuscator, name)
        for name in ("name", "settings", "policy_", "origin_")
    )
    return alike and other.seed != obfuscator.seed


def obfuscated(fold: Fold, strength: Strength | None, seed: int, budget: Budget) -> Output:
    """The fold's output: of the test windows, and of as many training windows as are needed."""
    train, chosen = fold.split.train, thin_places(fold.split.train, budget.windows, seed)
    return Output(
        train=obfuscated_part(fold.obfuscator, train, chosen, strength, seed=2 * seed),
        test=fold.obfuscator.obfuscate(fold.split.test, strength, seed=2 * seed + 1),
        lazy=obfuscated_part(fold.other, train, chosen, strength, seed=2 * seed + 10_000),
    )


def obfuscated_part(
    obfuscator: Obfuscator,
    windows: Windows,
    chosen: np.ndarray,
    strength: Strength | None,
    seed: int,
) -> Windows:
    """Some of the windows; a method that looks back is given all, as it is where it is used."""
    if obfuscator.capabilities.looks_back:
        return obfuscator.obfuscate(windows, strength, seed=seed).select(chosen).compact()
    return obfuscator.obfuscate(windows.select(chosen), strength, seed=seed)


def condition_of_part(
    obfuscator: Obfuscator, windows: Windows, chosen: np.ndarray
) -> np.ndarray | None:
    """What a method makes the output of some of the windows from, likewise."""
    if not obfuscator.capabilities.looks_back:
        return obfuscator.condition(windows.select(chosen))
    whole = obfuscator.condition(windows)
    return None if whole is None else whole[chosen]


def thinned(windows: Windows, count: int, seed: int) -> Windows:
    """A random part of the windows, in their order."""
    return windows.select(thin_places(windows, count, seed))


def thin_places(windows: Windows, count: int, seed: int) -> np.ndarray:
    """Which windows `thinned` takes."""
    return np.sort(np.random.default_rng(seed).permutation(len(windows))[:count])


_FEWEST = 300  # windows below which half of the test teaches nobody anything


def insider_halves(split: Split, keep: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Which test windows leak with labels, and which are then attacked: (positions, positions).

    Where people are new to the obfuscator, half of them leak; where they are not, one half of each
    recording, less what overlaps with the other half; where a recording is one window, one half of
    each person's windows of each `keep` class. There is none if the test is too small.
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
        middle = ((begin + end) // 2)[test.recording]
        late = test.start >= middle
        halves = [
            (test.start + test.length <= middle, late),
            (test.start >= middle + test.length, ~late),
        ]
        if (end - begin <= test.length).all():  # a recording is one window: deal them
            dealt = _dealt(test.joint_codes(["subject", *keep]))
            halves = [(dealt, ~dealt), (~dealt, dealt)]
    found = [(np.flatnonzero(known), np.flatnonzero(attacked)) for known, attacked in halves]
    return found if min(len(known) for known, _ in found) >= _FEWEST else []


def _dealt(cells: np.ndarray) -> np.ndarray:
    """Which windows are in the first of two halves, each of half of every cell, drawn at random.

    What the leaked half tells of a kept class is taken off from what attackers read. Were the
    halves left to chance, somebody of whom much of a class leaked would have little of it left to
    be attacked, and be told by that alone.

    >>> np.bincount(np.array([0, 0, 0, 0, 1, 1])[_dealt(np.array([0, 0, 0, 0, 1, 1]))]).tolist()
    [2, 1]
    """
    generator = np.random.default_rng(0)
    order = generator.permutation(len(cells))
    order = order[np.argsort(cells[order], kind="stable")]
    _, begin, sizes = np.unique(cells[order], return_index=True, return_counts=True)
    place = np.arange(len(cells)) - np.repeat(begin - generator.integers(2, size=len(begin)), sizes)
    first = np.empty(len(cells), bool)
    first[order] = place % 2 == 0
    return first
