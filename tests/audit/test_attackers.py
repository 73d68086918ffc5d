"""Attackers by themselves, and their registry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.audit import attackers, measures
from sensorveil.audit.attack import attack, attack_accuracy
from sensorveil.audit.attackers import (
    CNN,
    CONVOLUTIONS,
    DIFFERENCES,
    MATCHING,
    MLP,
    TREES,
    Attacker,
    Budget,
    attacker_class,
    condition_windows,
    list_attackers,
    register_attacker,
)
from sensorveil.audit.audit import AuditSettings, audit_run
from sensorveil.audit.threat_models import AttackDataset
from sensorveil.classifiers import ClassifierSettings
from sensorveil.data.catalog import load
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.baselines import NoObfuscation

TINY = Budget(
    windows=400,
    network=ClassifierSettings(width=8, epochs=8, batch_size=32, learning_rate=5e-3),
    kernels=40,
    rounds=10,
    session_attackers=(),
    looks=0,
)


def shifted(count: int, seed: int, num_classes: int = 3) -> Windows:
    """The level of the signal is the class, without doubt."""
    rng = np.random.default_rng(seed)
    codes = np.arange(count) % num_classes
    signal = 3 * codes[:, None, None] + rng.normal(size=(count, 1, 32))
    return Windows.from_signal(signal, {"gender": codes})


@pytest.mark.parametrize("name", [CNN, MLP, CONVOLUTIONS, TREES, MATCHING])
def test_every_attacker_learns_what_shows(name: str) -> None:
    assert attack_accuracy(shifted(240, 0), shifted(90, 1), "gender", name, TINY) > 0.9


@pytest.mark.parametrize("name", [CNN, MLP, CONVOLUTIONS, TREES, MATCHING])
def test_a_condition_is_used_where_the_attacker_has_it(name: str) -> None:
    """The windows are noise; the condition is the class."""
    rng = np.random.default_rng(2)
    codes = np.arange(300) % 2
    windows = Windows.from_signal(rng.normal(size=(300, 1, 32)), {"gender": codes})
    condition = np.eye(2)[codes] + 0.1 * rng.normal(size=(300, 2))
    dataset = AttackDataset(
        windows.select(slice(0, 200)),
        {"full": windows.select(slice(200, 300))},
        train_condition=condition[:200],
        test_conditions={"full": condition[200:]},
    )
    predicted = attack(dataset, name, ["gender"], TINY)["gender", "full"]
    assert (predicted.argmax(1) == codes[200:]).mean() > 0.9
    assert condition_windows(condition).signal[:, 0] == pytest.approx(condition, abs=1e-6)


@pytest.mark.parametrize("name", [CONVOLUTIONS, TREES, MATCHING])
def test_a_class_that_never_occurs_is_nearly_impossible(name: str) -> None:
    whole = shifted(300, 0)
    some = whole.select(whole.codes("gender") != 1)
    dataset = AttackDataset(some, {"test": whole})
    log_proba = attack(dataset, name, ["gender"], TINY)["gender", "test"]
    assert log_proba.shape == (300, 3)
    assert log_proba[:, 1].max() < -15
    one_class = AttackDataset(whole.select(whole.codes("gender") == 1), {"test": whole})
    assert (attack(one_class, name, ["gender"], TINY)["gender", "test"] == 0).all()


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attackers, "_ATTACKERS", dict(attackers._ATTACKERS))
    monkeypatch.setattr(measures, "_MEASURES", dict(measures._MEASURES))


@pytest.mark.usefixtures("registries")
def test_registered_attackers_and_measures_take_part_in_audits() -> None:
    class Oracle(Attacker):
        """Knows the true class of every window, whatever was done to it."""

        def fit(self, windows: Windows, codes: np.ndarray, num_classes: int) -> Oracle:
            self.num_classes_ = num_classes
            return self

        def predict_log_proba(self, windows: Windows) -> np.ndarray:
            right = np.eye(self.num_classes_)[windows.codes("gender")]
            return np.log(np.where(right, 0.9, 0.1 / (self.num_classes_ - 1)))

    register_attacker("oracle")(Oracle)
    assert list_attackers()[-1] == "oracle"
    assert Budget().attackers == list_attackers()
    measures.register_measure("windows", "Number of windows.")(lambda raw, hidden: float(len(raw)))
    split = load("simulated", "subject", people=8, recordings=1, windows=6)
    method = NoObfuscation().fit(split.train, "activity", "gender")
    quick = AuditSettings(replace(TINY, attackers=("oracle",)), (0,), True, 0, (), 0)
    (part,) = audit_run(method, split, quick).splits
    gender = part.attribute("gender")
    assert {one.attacker for one in gender.attacks} == {"oracle"}
    assert gender.worst.accuracy.value == 1
    assert [(one.name, one.value) for one in part.measures] == [("windows", len(split.test))]


@pytest.mark.usefixtures("registries")
def test_names_are_taken_once_and_unknown_ones_are_refused() -> None:
    with pytest.raises(Refusal, match="an attacker is named 'convolutional network' already"):
        register_attacker(CNN)(type("Other", (Attacker,), {}))
    with pytest.raises(Refusal, match="attacker 'netwrk' is unknown; known: "):
        attacker_class("netwrk")
    with pytest.raises(Refusal, match="attacker 'netwrk' is unknown"):
        Budget(attackers=("netwrk",))
    with pytest.raises(Refusal, match="no attacker is named"):
        Budget(attackers=())
    with pytest.raises(Refusal, match="at least one seed"):
        AuditSettings(seeds=())
    measures.register_measure("size", "")(lambda raw, hidden: 1.0)
    with pytest.raises(Refusal, match="a measure is named 'size' already"):
        measures.register_measure("size", "")(len)  # type: ignore[arg-type]
