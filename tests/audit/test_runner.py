"""Attacks against known truth: each test fails when that part of the audit is taken out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.audit.attackers import CONVOLUTIONS, TREES, Budget, list_attackers
from sensorveil.audit.results import (
    FULL,
    HIDDEN,
    IGNORANT,
    INCONCLUSIVE,
    INSIDER,
    LAZY,
    NOT_HIDDEN,
    RAW,
    SEMI,
    AttributeAudit,
)
from sensorveil.audit.runner import run_attacks
from sensorveil.audit.threat_models import (
    Fold,
    obfuscate_fold,
    thinned,
    train_shadow_obfuscator,
)
from sensorveil.classifiers import ClassifierSettings
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.baselines import NoObfuscation, Resample

FAST = Budget(
    windows=2000,
    draws=2,
    kernels=50,
    rounds=15,
    attackers=(CONVOLUTIONS, TREES),
    session_attackers=(),
    looks=0,
)
CHEAP = replace(FAST, attackers=(CONVOLUTIONS,))


def made(people: int, windows: int, gender_level: float, noise: float) -> Split:
    """Half of the people are the test. The levels of two channels are the activity and the gender."""
    rng = np.random.default_rng(3)
    person = np.repeat(np.arange(people), windows)
    activity, gender = np.arange(len(person)) % 2, person % 2
    levels = np.stack([activity - 0.5, gender_level * (gender - 0.5)], axis=1)
    levels += noise * rng.normal(size=levels.shape)
    signal = levels[..., None] + 0.1 * rng.normal(size=(len(person), 2, 32))
    whole = replace(
        Windows.from_signal(signal, {"activity": activity, "gender": gender, "subject": person}),
        recording=person,
        start=np.arange(len(person)) % windows,
        recordings=tuple(str(number) for number in range(people)),
    )
    test = person >= people // 2
    train = whole.select(~test)
    held = train.subject % 5 == 0
    return Split(train, whole.select(test), train.select(~held), train.select(held))


def fold_of(obfuscator: Obfuscator, split: Split) -> Fold:
    obfuscator.fit(split.train, "activity", "gender")
    return Fold(obfuscator, split, train_shadow_obfuscator(obfuscator, split))


def attacked(fold: Fold, budget: Budget = FAST) -> AttributeAudit:
    output = {(0, 0): obfuscate_fold(fold, None, 0, budget)}
    (found,) = run_attacks([fold], output, ["gender"], [0], budget, "cpu")
    return found


def best(found: AttributeAudit, *threat_models: str) -> float:
    return max(a.accuracy.value for a in found.attacks if a.threat_model in threat_models)


@pytest.fixture(scope="module")
def people() -> Split:
    """80 people whose gender shows clearly; 40 of them are never seen in training."""
    return made(80, 90, gender_level=1.0, noise=0.2)


@pytest.fixture(scope="module")
def resampled(people: Split) -> Fold:
    return fold_of(Resample(width=8, epochs=3), people)


class Relabelled(Obfuscator):
    """Emits a window of the other gender: a bijection of what is to be hidden."""

    name = "relabelled"
    summary = "test only"
    capabilities = Capabilities(needs_wearer=True)

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        self.pool_ = windows

    def _obfuscate(self, windows, strength, rng):
        drawn = np.empty(len(windows), int)
        for gender in (0, 1):
            donors = np.flatnonzero(self.pool_.labels["gender"] == 1 - gender)
            chosen = windows.labels["gender"] == gender
            drawn[chosen] = rng.choice(donors, int(chosen.sum()))
        return self.pool_.batch(drawn)


def test_a_bijection_fools_the_ignorant_and_not_the_semi_informed(people):
    found = attacked(fold_of(Relabelled(), people))
    assert best(found, IGNORANT) <= 0.05
    assert min(best(found, model) for model in (RAW, LAZY, SEMI)) >= 0.95
    assert found.verdict.status == NOT_HIDDEN
    assert found.worst.threat_model in (LAZY, SEMI, INSIDER)


def test_resampling_by_label_is_hidden(resampled):
    found = attacked(resampled)
    assert best(found, RAW) > 0.95
    assert found.worst.advantage.value <= 0.02
    assert found.control.advantage.value >= 0.05
    assert found.verdict.status == HIDDEN, found.verdict
    assert {a.threat_model for a in found.attacks} == {RAW, IGNORANT, LAZY, SEMI, INSIDER, FULL}


def test_attackers_that_learnt_too_little_are_inconclusive(resampled):
    weak = replace(CHEAP, windows=10, draws=1, kernels=2)
    found = attacked(resampled, weak)
    assert found.worst.advantage.value <= 0.02  # by these attackers alone, gender is hidden
    assert found.control.advantage.value < 0.05
    assert found.verdict.status == INCONCLUSIVE, found.verdict
    assert "too weak" in found.verdict.reason


class ByPerson(Obfuscator):
    """Noise for the people of training; a fixed change that keeps everything for all others."""

    name = "by-person"
    summary = "test only"
    capabilities = Capabilities()

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        self.people_ = np.unique(windows.subject)

    def _obfuscate(self, windows, strength, rng):
        noise = rng.normal(size=(len(windows), *windows.shape))
        known = np.isin(windows.subject, self.people_)
        return np.where(known[:, None, None], noise, 300 - 5 * windows.signal[:, ::-1])


def test_only_the_insider_finds_what_leaks_of_new_people(people):
    found = attacked(fold_of(ByPerson(), people))
    assert best(found, IGNORANT, LAZY, SEMI) < found.majority + 0.02
    assert best(found, INSIDER) > 0.9
    assert found.worst.threat_model == INSIDER
    assert found.verdict.status == NOT_HIDDEN


class BySeed(Obfuscator):
    """Puts the hidden class on a channel, in a code that its seed decides."""

    name = "by-seed"
    summary = "test only"
    capabilities = Capabilities(needs_wearer=True)

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        return None

    def _obfuscate(self, windows, strength, rng):
        signal = rng.normal(size=(len(windows), *windows.shape))
        signal[:, 1] += np.where((windows.codes("gender") + self.seed) % 2, 3, -3)[:, None]
        return signal


def test_the_lazy_attacker_learns_from_another_obfuscator(people):
    found = attacked(fold_of(BySeed(), people))
    assert best(found, LAZY) < 0.05
    assert best(found, SEMI) > 0.95


def test_raw_data_is_not_hidden_and_every_attacker_takes_part(people):
    tiny = ClassifierSettings(width=8, epochs=2, batch_size=64, learning_rate=5e-3)
    budget = replace(
        FAST, windows=400, network=tiny, kernels=20, rounds=5, attackers=list_attackers()
    )
    found = attacked(fold_of(NoObfuscation(), people), budget)
    assert {a.attacker for a in found.attacks} == set(budget.attackers)
    assert found.verdict.status == NOT_HIDDEN
    assert FULL not in {a.threat_model for a in found.attacks}  # there is no condition


def test_a_leak_that_shows_over_many_windows_only_is_found_by_sessions():
    """The level differs between genders by a twelfth of its spread over windows."""
    split = made(240, 120, gender_level=0.08, noise=1.0)
    budget = replace(CHEAP, windows=12_000, draws=1, kernels=30)
    found = attacked(fold_of(NoObfuscation(), split), budget)
    single = [p for p in found.sessions if p.windows == 1 and p.group == "recording"]
    many = [p for p in found.sessions if p.windows in (60, None)]
    assert not any(point.significant for point in single)
    assert any(point.significant for point in many), found.sessions
    assert found.worst.advantage.value <= 0.02
    assert max(a.auc.value for a in found.attacks if a.threat_model != RAW) <= 0.55
    assert found.verdict.status == NOT_HIDDEN
    assert "windows of one" in found.verdict.reason


@pytest.mark.parametrize("small", [0, 1])
def test_a_threat_model_that_a_fold_is_too_small_for_is_left_out(people: Split, small: int) -> None:
    """Insiders need 300 windows in each half: one fold has them, the other one has not."""
    splits = [replace(people, test=thinned(people.test, count, 0)) for count in (1500, 200)]
    method = NoObfuscation().fit(people.train, "activity", "gender")
    budget = replace(CHEAP, windows=400, kernels=10)
    folds = [Fold(method, split, method) for split in (splits[::-1] if small == 0 else splits)]
    outputs = {(n, 0): obfuscate_fold(fold, None, 0, budget) for n, fold in enumerate(folds)}
    (found,) = run_attacks(folds, outputs, ["gender"], [0], budget)
    assert found.windows == 1700
    assert {one.threat_model for one in found.attacks} == {RAW, IGNORANT, LAZY, SEMI}
