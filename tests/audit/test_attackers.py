"""Attackers by themselves, and their registry."""

from __future__ import annotations

from collections.abc import Callable
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
    differences,
    list_attackers,
    register_attacker,
)
from sensorveil.audit.audit import AuditSettings, audit_run
from sensorveil.audit.threat_models import AttackDataset
from sensorveil.classifiers import ClassifierSettings
from sensorveil.data.catalog import load
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.baselines import NoObfuscation

TINY = Budget(
    windows=400,
    network=ClassifierSettings(width=8, epochs=16, batch_size=32, learning_rate=5e-3),
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


def test_a_network_learns_all_attributes_at_once_and_leaves_unknown_classes_out() -> None:
    """Age is not known of most windows; counted as any class, these would decide what age is."""
    rng = np.random.default_rng(4)
    gender, age = rng.integers(2, size=600), rng.integers(3, size=600)
    signal = rng.normal(size=(600, 2, 32))
    signal += 3 * np.stack([gender, age], axis=1)[..., None]
    test = Windows.from_signal(signal[:200], {"gender": gender[:200], "age": age[:200]})
    shown = np.where(rng.random(600) < 0.25, age, UNKNOWN)[200:]
    signal[200:, 1][shown == UNKNOWN] = 3 + rng.normal(size=(int((shown == UNKNOWN).sum()), 32))
    train = Windows.from_signal(signal[200:], {"gender": gender[200:], "age": shown})
    dataset = AttackDataset(train, {"test": test})
    for name in (CNN, MLP, CONVOLUTIONS, MATCHING):
        found = attack(dataset, name, ["gender", "age"], TINY)
        for attribute, codes in (("gender", gender), ("age", age)):
            log_proba = found[attribute, "test"]
            assert np.exp(log_proba).sum(1) == pytest.approx(np.ones(200), abs=1e-5)
            assert (log_proba.argmax(1) == codes[:200]).mean() > 0.8, (name, attribute)


def drifting(count: int, seed: int) -> Windows:
    """The level of each window wanders; the step from the one before it is the class."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(2, size=count)
    recording, start = np.arange(count) // 20, np.arange(count) % 20 * 32
    level = np.cumsum(2.0 * codes - 1) + 50 * rng.normal(size=count // 20)[recording]
    signal = level[:, None, None] + 0.1 * rng.normal(size=(count, 1, 32))
    return replace(
        Windows.from_signal(signal, {"gender": codes}),
        recording=recording,
        start=start,
        recordings=tuple(str(one) for one in range(count // 20)),
    )


def test_differences_show_what_single_windows_do_not() -> None:
    train, test = drifting(800, 0), drifting(400, 1)
    assert attack_accuracy(train, test, "gender", CONVOLUTIONS, TINY) < 0.65
    assert attack_accuracy(train, test, "gender", DIFFERENCES, TINY) > 0.9


def test_differences_are_of_the_window_before_in_the_same_recording() -> None:
    windows = drifting(60, 2)
    shuffled = np.random.default_rng(3).permutation(60)
    found = differences(windows.select(shuffled)).signal[np.argsort(shuffled)]
    signal = windows.signal
    first = np.arange(60) % 20 == 0
    assert (found[first] == 0).all()
    np.testing.assert_allclose(
        found[~first], np.diff(signal, axis=0)[~first[1:]], rtol=1e-5, atol=1e-4
    )


def test_matching_compares_in_directions_that_tell_people_apart() -> None:
    """People differ in a faint channel; all others are loud. What is asked is the gender."""
    rng = np.random.default_rng(5)
    subject = np.arange(900) % 12
    level = rng.normal(size=12)[subject]
    gender = rng.permutation(np.arange(12) % 2)[subject]  # no direction of its own
    signal = rng.normal(size=(900, 4, 32)) * np.array([1, 1, 1, 0.05])[:, None]
    signal[:, :3] += 5 * rng.normal(size=(900, 3, 1))
    signal[:, 3] += 0.5 * level[:, None]
    windows = Windows.from_signal(signal, {"gender": gender, "subject": subject})
    dataset = AttackDataset(
        windows.select(slice(0, 600)), {"test": windows.select(slice(600, 900))}
    )
    found = attack(dataset, MATCHING, ["gender", "subject"], TINY)
    assert (found["gender", "test"].argmax(1) == gender[600:]).mean() > 0.9
    # By the attribute itself it has one direction, in which people of both genders mix.
    alone = attack(dataset, MATCHING, ["gender"], TINY)["gender", "test"]
    assert np.exp(alone).sum(1) == pytest.approx(np.ones(300), abs=1e-5)


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attackers, "_ATTACKERS", dict(attackers._ATTACKERS))
    monkeypatch.setattr(measures, "_MEASURES", dict(measures._MEASURES))


@pytest.mark.usefixtures("registries")
def test_registered_attackers_and_measures_take_part_in_audits(
    small_audit: Callable[..., AuditSettings],
) -> None:
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
    split = load("simulated", "recording", people=8, recordings=1, windows=6)
    method = NoObfuscation().fit(split.train, "activity", "gender")
    settings = small_audit(replace(TINY, attackers=("oracle", CONVOLUTIONS)))
    (part,) = audit_run(method, split, settings).splits
    gender = part.attribute("gender")
    assert {one.attacker for one in gender.attacks} == {"oracle", CONVOLUTIONS}
    assert (gender.worst.attacker, gender.worst.accuracy.value) == ("oracle", 1)
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


@pytest.mark.usefixtures("registries")
def test_an_attacker_that_is_certain_can_be_added_up() -> None:
    """Minus infinity minus minus infinity would be no number."""

    class Certain(Attacker):
        def fit(self, windows: Windows, codes: np.ndarray, num_classes: int) -> Certain:
            self.num_classes_ = num_classes
            return self

        def predict_log_proba(self, windows: Windows) -> np.ndarray:
            with np.errstate(divide="ignore"):
                return np.log(np.eye(self.num_classes_)[windows.codes("gender")])

    register_attacker("certain")(Certain)
    windows = shifted(30, 0)
    (found,) = attack(
        AttackDataset(windows, {"test": windows}), "certain", ["gender"], TINY
    ).values()
    assert np.isfinite(found).all()
    assert (found.argmax(1) == windows.codes("gender")).all()
