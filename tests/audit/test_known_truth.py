"""Leaks that only one part of the audit can see: each test fails where that part is taken out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.audit.attackers import CONVOLUTIONS, DIFFERENCES, TREES, Budget
from sensorveil.audit.results import (
    HIDDEN,
    INCONCLUSIVE,
    LOOKS,
    NOT_HIDDEN,
    SEMI,
    AttributeAudit,
    SessionPoint,
)
from sensorveil.audit.runner import run_attacks
from sensorveil.audit.session_attackers import SEQUENCE, SET, SessionBudget
from sensorveil.audit.threat_models import Fold, obfuscate_fold
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.baselines import NoObfuscation

WINDOWS = 40
"""Windows of a recording."""
SESSIONS = replace(SessionBudget.quick(), kernels=40, components=16, width=24, sets=960)
BUDGET = Budget(
    windows=20_000,
    draws=1,
    kernels=40,
    rounds=15,
    attackers=(CONVOLUTIONS, DIFFERENCES, TREES),
    sessions=SESSIONS,
    looks=0,
)


def people(levels: np.ndarray, recordings: int = 2) -> Split:
    """Windows whose two channels are noise around levels (people, recordings, WINDOWS, 2).

    People with even numbers have gender 0. The second half of the people is the test.
    """
    rng = np.random.default_rng(7)
    count = len(levels)
    person, recording, place = (
        axis.ravel() for axis in np.indices((count, recordings, WINDOWS)).astype(int)
    )
    signal = levels.reshape(-1, 2, 1) + 0.1 * rng.normal(size=(len(person), 2, 24))
    labels = {"activity": recording % 2, "gender": person % 2, "subject": person}
    whole = replace(
        Windows.from_signal(signal, labels),
        recording=person * recordings + recording,
        start=place * 24,
        recordings=tuple(str(number) for number in range(count * recordings)),
    )
    test = person >= count // 2
    train = whole.select(~test)
    held = train.subject % 5 == 0
    return Split(train, whole.select(test), train.select(~held), train.select(held))


def attacked(split: Split, budget: Budget, method: Obfuscator | None = None) -> AttributeAudit:
    """The audit of gender in the output."""
    method = (method or NoObfuscation()).fit(split.train, "activity", "gender")
    fold = Fold(method, split)
    output = {(0, 0): obfuscate_fold(fold, None, 0, budget)}
    (found,) = run_attacks([fold], output, ["gender"], [0], budget)
    return found


def leaks(found: AttributeAudit) -> list[SessionPoint]:
    return [point for point in found.sessions if point.significant]


def spread_within_recordings() -> np.ndarray:
    """Single windows are alike for both genders; how much those of a recording differ is not."""
    rng = np.random.default_rng(3)
    within = np.where(np.arange(160) % 2, 0.7, 0.3)[:, None, None, None]  # share of the variance
    base = rng.normal(size=(160, 2, 1, 2)) * np.sqrt(1 - within)
    return base + rng.normal(size=(160, 2, WINDOWS, 2)) * np.sqrt(within)


def turns_in_order() -> np.ndarray:
    """Levels turn left or right by a quarter of a circle, one gender more often to the left.

    All windows, all sets of windows, and all differences of consecutive ones are alike.
    """
    rng = np.random.default_rng(4)
    left = np.where(np.arange(160) % 2, 0.75, 0.25)[:, None, None]
    turns = np.where(rng.random((160, 2, WINDOWS)) < left, 1, -1)
    turns[..., 0] = rng.integers(4, size=(160, 2))
    angle = np.pi / 2 * turns.cumsum(-1)
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


@pytest.mark.slow
def test_a_leak_in_the_spread_of_windows_is_found_by_sets_and_missed_by_adding_up() -> None:
    split = people(spread_within_recordings())
    attackers = (CONVOLUTIONS, TREES)
    added_up = attacked(split, replace(BUDGET, attackers=attackers, session_attackers=()))
    assert not leaks(added_up)
    assert added_up.verdict.status != NOT_HIDDEN
    learnt = attacked(split, replace(BUDGET, attackers=attackers, session_attackers=(SET,)))
    assert {point.attacker for point in leaks(learnt)} == {SET}
    assert max(point.accuracy.value for point in leaks(learnt)) > 0.85
    assert learnt.verdict.status == NOT_HIDDEN


@pytest.mark.slow
def test_a_leak_in_the_order_of_windows_is_found_by_the_sequence_network_alone() -> None:
    split = people(turns_in_order())
    others = attacked(split, replace(BUDGET, session_attackers=(SET,)))
    assert not leaks(others)
    assert others.verdict.status != NOT_HIDDEN
    found = attacked(split, BUDGET)
    assert {point.attacker for point in leaks(found)} == {SEQUENCE}
    assert max(point.accuracy.value for point in leaks(found)) > 0.85
    assert found.verdict.status == NOT_HIDDEN


class SteadyForOne(Obfuscator):
    """Standard normal levels; how far they are drawn anew for the same window tells the gender."""

    name = "steady-for-one"
    summary = "test only"
    capabilities = Capabilities(needs_wearer=True)

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        return None

    def _obfuscate(self, windows, strength, rng):
        own = windows.signal.mean(-1)  # standard normal, drawn anew for each raw window
        share = np.where(windows.codes("gender"), 0.8, 0.2)[:, None]
        level = np.sqrt(share) * own + np.sqrt(1 - share) * rng.normal(size=own.shape)
        return level[..., None] + 0.1 * rng.normal(size=windows.signal.shape)


@pytest.mark.slow
def test_a_leak_in_several_obfuscations_of_the_same_window_is_found_by_looks() -> None:
    levels = np.random.default_rng(5).normal(size=(120, 2, WINDOWS, 2))
    split, method = people(levels), SteadyForOne()
    once = attacked(split, BUDGET, method)
    assert not leaks(once)
    assert once.verdict.status != NOT_HIDDEN
    again = attacked(split, replace(BUDGET, looks=20, look_windows=800), method)
    assert {point.group for point in leaks(again)} == {LOOKS}
    accuracy = {p.windows: p.accuracy.value for p in again.sessions if p.group == LOOKS}
    assert accuracy[1] < 0.56
    assert accuracy[20] > 0.85
    assert again.verdict.status == NOT_HIDDEN


@pytest.mark.parametrize("seed", [0, 1])
def test_output_that_leaks_nothing_is_never_not_hidden(seed: int) -> None:
    """Raw windows show the gender; the output is noise. 12 people are too few to be sure."""
    rng = np.random.default_rng(seed)
    levels = np.stack(np.broadcast_arrays(np.arange(24)[:, None, None] % 2 - 0.5, 0.0), axis=-1)
    split = people(levels + 0.3 * rng.normal(size=(24, 2, WINDOWS, 2)))
    found = attacked(split, replace(BUDGET, sessions=replace(SESSIONS, sets=160)), PureNoise())
    assert found.verdict.status in (HIDDEN, INCONCLUSIVE), found.verdict
    assert {one.threat_model for one in found.attacks} >= {SEMI}


class PureNoise(Obfuscator):
    """Gaussian noise in place of every window."""

    name = "pure-noise"
    summary = "test only"
    capabilities = Capabilities()

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        return None

    def _obfuscate(self, windows, strength, rng):
        return rng.normal(size=windows.signal.shape)
