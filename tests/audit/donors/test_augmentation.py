"""Augmentation: generated windows that carry the class help where real ones are few."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.audit.donors.augmentation import Augmentation, measure_augmentation
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Capabilities
from sensorveil.methods.baselines import NoObfuscation


def windows(count: int, seed: int, spread: float = 1.0) -> Windows:
    """Two classes around -1 and 1, four people."""
    chance = np.random.default_rng(seed)
    codes = chance.integers(2, size=count)
    signal = (2 * codes - 1)[:, None, None] + spread * chance.normal(size=(count, 1, 4))
    labels = {"activity": codes, "subject": np.arange(count) % 4}
    return replace(Windows.from_signal(signal, labels), classes={
        "activity": ("low", "high"), "subject": tuple("abcd")
    })  # fmt: skip


def split(train: Windows, test: Windows) -> Split:
    return Split(train, test, train, test)


class Nearest:
    """Predicts the class whose mean is nearest."""

    def __init__(self, some: Windows):
        codes, flat = some.codes("activity"), some.signal.reshape(len(some), -1)
        self.centres = np.stack([flat[codes == code].mean(0) for code in (0, 1)])

    def predict(self, some: Windows) -> np.ndarray:
        flat = some.signal.reshape(len(some), 1, -1)
        return ((flat - self.centres) ** 2).sum(2).argmin(1)


class Perfect(NoObfuscation):
    """Makes windows that are their class and nothing else: what no real method could do."""

    capabilities = Capabilities()

    def _obfuscate(self, windows, strength, rng):
        wanted = (2 * windows.codes("activity") - 1)[:, None, None] * 50.0
        return self.scaling_.apply(np.broadcast_to(wanted, windows.signal.shape))


MAKES = {
    "none": lambda seed: NoObfuscation(seed=seed),
    "perfect": lambda seed: Perfect(seed=seed),
}


def measured(names, folds, seeds=(0,), train=lambda some, seed: Nearest(some), **rest):
    makes = {name: MAKES[name] for name in names}
    return measure_augmentation(
        makes, folds, "activity", "subject", train=train, seeds=seeds, **rest
    )


def test_the_table_against_counting():
    """With one seed and one fold the values are plain accuracies."""
    train, test = windows(8, 0, spread=3.0), windows(400, 1, spread=3.0)
    found = measured(["perfect"], [split(train, test)])["perfect"]
    real = (Nearest(train).predict(test) == test.codes("activity")).mean()
    assert found.real.value == pytest.approx(real)
    assert found.gain.value == pytest.approx(found.mixed.value - found.real.value)
    assert found.gain.value > 0.02
    assert found.real.people == 4
    assert found.real.low <= found.real.value <= found.real.high
    written = found.as_dict()
    assert written["gain"]["value"] == found.gain.value
    assert written["paper_on_widar3"]["cross-domain activity"]["real"] == 0.652
    again = Augmentation.join([written, written])
    assert (again.gain.seeds, again.gain.spread) == (2, 0.0)
    assert again.gain.value == pytest.approx(found.gain.value)


def test_folds_bring_their_own_people():
    whole = windows(400, 2)
    folds = [
        split(whole.select(whole.subject != person), whole.select(whole.subject == person))
        for person in range(4)
    ]
    found = measured(["none"], folds, seeds=(0, 1))["none"]
    assert (found.real.people, found.real.seeds) == (4, 2)
    assert found.gain.value == 0  # the same windows twice have the same means


def test_parts_of_other_people_are_not_joined():
    tables = [np.ones((1, people, 3), int) for people in (2, 3)]
    with pytest.raises(Refusal, match="other people"):
        Augmentation.join([Augmentation("activity", table).as_dict() for table in tables])
    parts = [Augmentation(name, tables[0]).as_dict() for name in ("activity", "subject")]
    with pytest.raises(Refusal, match="another attribute"):
        Augmentation.join(parts)


def test_both_are_trained_equally_long():
    learnt: list[Windows] = []

    def train(some: Windows, seed: int) -> Nearest:
        learnt.append(some)
        return Nearest(some)

    own = windows(20, 4)
    measured(["none"], [split(own, windows(12, 5))], train=train)
    assert [len(some) for some in learnt] == [40, 40]
    for some in learnt:
        assert (some.classes["activity"], some.channels) == (("low", "high"), own.channels)
        np.testing.assert_allclose(some.signal, np.tile(own.signal, (2, 1, 1)), atol=1e-5)


def test_several_generators_share_the_classifier_of_real_windows():
    """Each has the table that it has alone; the results so far are given after each seed."""
    folds = [split(windows(8, 0, spread=3.0), windows(400, 1, spread=3.0))]
    trained, seen = [], []

    def train(some: Windows, seed: int) -> Nearest:
        trained.append(seed)
        return Nearest(some)

    def on_result(found):
        seen.append({name: one.real.seeds for name, one in found.items()})

    both = measured(MAKES, folds, (0, 1), train, on_result=on_result)
    assert trained == [0, 0, 0, 1, 1, 1]  # one of real windows, and one for each generator
    assert seen == [{"none": 1, "perfect": 1}, {"none": 2, "perfect": 2}]
    for name, found in both.items():
        np.testing.assert_array_equal(found.table, measured([name], folds, (0, 1))[name].table)
    assert both["perfect"].gain.value > both["none"].gain.value == 0
