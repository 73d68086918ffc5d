"""Intermediate results: an interrupted audit goes on, and another one finds nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sensorveil
from sensorveil.audit import attackers
from sensorveil.audit.attackers import Budget, TreeAttacker, register_attacker
from sensorveil.audit.audit import AuditSettings, audit_runs
from sensorveil.audit.given import audit_windows
from sensorveil.audit.results import AttributeAudit
from sensorveil.audit.runner import run_attacks
from sensorveil.audit.store import Store
from sensorveil.audit.threat_models import Fold, obfuscate_fold
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.methods.baselines import Noise

COUNTED = "counted"
SMALL = Budget(windows=300, draws=1, kernels=8, rounds=10, session_attackers=(), looks=0)


class Counter:
    """How often the counted attacker was trained, and after how many times it stops the audit."""

    trained, stops_after = 0, 10_000


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> type[Counter]:
    monkeypatch.setattr(attackers, "_ATTACKERS", dict(attackers._ATTACKERS))
    monkeypatch.setattr(Counter, "trained", 0)
    monkeypatch.setattr(Counter, "stops_after", 10_000)

    class Counted(TreeAttacker):
        """Boosted trees that are stopped as by Ctrl-C."""

        def fit_all(self, windows, labels, num_classes):
            if Counter.trained >= Counter.stops_after:
                raise KeyboardInterrupt
            Counter.trained += 1
            return super().fit_all(windows, labels, num_classes)

    register_attacker(COUNTED)(Counted)
    return Counter


@pytest.fixture(scope="module")
def split() -> Split:
    return sensorveil.load("simulated", "recording", people=8, windows=6, recordings=1)


@pytest.fixture(scope="module")
def noise(split: Split) -> Noise:
    return Noise(snr=5.0).fit(split.train, "activity", "gender")


def attacked(noise: Noise, split: Split, store: Store) -> tuple[AttributeAudit, ...]:
    fold, budget = Fold(noise, split), replace(SMALL, attackers=(COUNTED,))
    output = {(0, 0): obfuscate_fold(fold, None, 0, budget, store, "fold 0, seed 0")}
    return run_attacks([fold], output, ["gender", "weight"], [0], budget, "cpu", store)


def test_an_interrupted_audit_goes_on_and_finds_the_same(
    counter: type[Counter], noise: Noise, split: Split, tmp_path: Path
) -> None:
    whole = attacked(noise, split, Store())
    jobs = counter.trained
    assert jobs >= 4  # raw, the output, and two controls
    counter.trained, counter.stops_after = 0, 2
    with pytest.raises(KeyboardInterrupt):
        attacked(noise, split, Store(tmp_path, "a run"))
    counter.stops_after = 10_000
    again = attacked(noise, split, Store(tmp_path, "a run"))
    assert counter.trained == jobs  # two before, the others afterwards, none twice
    assert again == whole
    assert attacked(noise, split, Store(tmp_path, "a run")) == whole
    assert counter.trained == jobs
    attacked(noise, split, Store(tmp_path, "another run"))
    assert counter.trained == 2 * jobs


def test_output_that_was_kept_has_its_labels_and_places(split: Split, tmp_path: Path) -> None:
    made = []

    def make() -> Windows:
        made.append(1)
        return split.test.replaced(split.test.signal + 1)

    first, again = (Store(tmp_path, 0).output("key", split.test, make) for _ in range(2))
    assert made == [1]
    np.testing.assert_array_equal(again.signal, first.signal)
    np.testing.assert_array_equal(again.start, split.test.start)
    np.testing.assert_array_equal(again.codes("gender"), split.test.codes("gender"))
    assert again.origin == split.test.origin


def test_other_settings_policies_windows_and_shadows_find_nothing(
    counter: type[Counter],
    noise: Noise,
    split: Split,
    tmp_path: Path,
    small_audit: Callable[..., AuditSettings],
) -> None:
    budget = replace(SMALL, attackers=(COUNTED,))

    def count(method: Noise, parts: Split, budget: Budget, shadows: tuple[Noise, ...] = ()) -> int:
        before = counter.trained
        audit_runs([([method], [parts])], small_audit(budget), shadows=shadows, folder=tmp_path)
        return counter.trained - before

    jobs = count(noise, split, budget)
    assert jobs > 0
    assert count(noise, split, budget) == 0
    assert count(noise, split, replace(budget, rounds=11)) == jobs
    labels = {**split.test.labels, "gender": 1 - split.test.labels["gender"]}
    assert count(noise, replace(split, test=replace(split.test, labels=labels)), budget) == jobs
    keeps_more = Noise(snr=5.0).fit(split.train, ("activity", "weight"), "gender")
    assert count(keeps_more, split, budget) == jobs - 1  # one attribute less has a control
    shadow = Noise(snr=5.0, seed=1).fit(split.train, "activity", "gender")
    assert count(noise, split, budget, (shadow,)) == jobs + 1


def test_given_output_with_other_labels_or_training_windows_finds_nothing(
    counter: type[Counter], tmp_path: Path, small_audit: Callable[..., AuditSettings]
) -> None:
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(6), 20)
    signal = rng.normal(size=(120, 1, 16))
    labels = {"activity": np.arange(120) % 2, "gender": person % 2, "subject": person}
    settings = small_audit(replace(SMALL, attackers=(COUNTED,)))

    def count(labels: dict, **training) -> int:
        before = counter.trained
        audit_windows(
            signal,
            signal,
            "activity",
            "gender",
            labels=labels,
            settings=settings,
            folder=tmp_path,
            **training,
        )
        return counter.trained - before

    jobs = count(labels)
    assert jobs > 0
    assert count(labels) == 0
    assert count({**labels, "gender": person % 3 % 2}) == jobs
    for seed in (1, 2):
        own = np.random.default_rng(seed).normal(size=signal.shape)
        training = {"train_original": own, "train_obfuscated": own, "train_labels": labels}
        assert count(labels, **training) > 0
        assert count(labels, **training) == 0
