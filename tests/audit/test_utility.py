"""What survives: known accuracies, known rhythms, and information on both sides."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from sensorveil.audit.utility import (
    MINE,
    NEIGHBOURS,
    _places,
    information,
    kept_attribute,
)
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.catalog import load
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows

TINY = ClassifierSettings(width=6, epochs=6, batch_size=16, learning_rate=5e-3)


def separable(count: int, seed: int, first_person: int = 0) -> Windows:
    """The sign of the signal is the activity: no doubt is left."""
    generator = np.random.default_rng(seed)
    activity = np.arange(count) % 2
    signal = generator.normal(size=(count, 1, 16)) * 0.1 + (2 * activity - 1)[:, None, None]
    labels = {"activity": activity, "subject": first_person + np.arange(count) // 4 % 5}
    return Windows.from_signal(signal, labels)


def toy(first_person: int = 0) -> Split:
    train, test = separable(80, 0), separable(40, 1, first_person)
    return Split(train, test, train, test)


def mirrored(windows: Windows, part: float) -> Windows:
    signal = windows.signal
    signal[: round(part * len(windows))] *= -1
    return windows.replaced(signal)


def test_the_four_ways_to_train_and_test() -> None:
    """All windows upside down: the unchanged model is always wrong, the retrained one right."""
    split = toy()
    hidden_train, hidden_test = mirrored(split.train, 1.0), mirrored(split.test, 1.0)
    kept = kept_attribute([split], [[hidden_train]], [[hidden_test]], "activity", TINY)
    assert (kept.attribute, kept.classes, kept.majority) == ("activity", ("0", "1"), 0.5)
    assert [e.value for e in (kept.raw, kept.unchanged, kept.retrained, kept.retrained_on_raw)] == [
        1,
        0,
        1,
        0,
    ]
    assert (kept.unchanged_f1.value, kept.retrained_f1.value) == (0, 1)
    assert kept.recall_by_class == {"0": 0.0, "1": 0.0}
    assert kept.raw.people == 5


def test_figures_by_class_and_by_person() -> None:
    split = toy()
    kept = kept_attribute([split], [[split.train]], [[mirrored(split.test, 0.3)]], "activity", TINY)
    assert kept.unchanged.value == kept.retrained.value == pytest.approx(0.7)
    assert (kept.raw.value, kept.retrained_on_raw.value) == (1.0, 1.0)
    assert kept.f1_by_class == pytest.approx({"0": 0.7, "1": 0.7})
    assert kept.unchanged.low < 0.7 < kept.unchanged.high


def test_folds_are_pooled_and_seeds_averaged() -> None:
    folds = [toy(), toy(first_person=5)]
    train = [[fold.train for fold in folds]] * 2
    # Seed 0 mirrors half of the first fold's test windows, seed 1 nothing: 3/4 and 1 in all.
    test = [
        [mirrored(folds[0].test, 0.5), folds[1].test],
        [folds[0].test, folds[1].test],
    ]
    kept = kept_attribute(folds, train, test, "activity", TINY, seeds=(0, 1))
    assert kept.unchanged.people == 10
    assert kept.unchanged.seeds == 2
    assert kept.unchanged.value == pytest.approx(0.875)
    assert kept.unchanged.spread == pytest.approx(np.std([0.75, 1.0], ddof=1))
    assert kept.raw.value == 1


def test_models_that_are_at_hand_are_not_trained_again() -> None:
    split = toy()
    wrong = Classifier(TINY).fit(mirrored(split.train, 1.0), "activity")
    kept = kept_attribute(
        [split], [[split.train]], [[split.test]], "activity", TINY, raw_models=[[wrong]]
    )
    assert (kept.raw.value, kept.unchanged.value) == (0, 0)
    assert (kept.retrained.value, kept.retrained_on_raw.value) == (1, 1)


@pytest.fixture(scope="module")
def gait() -> Windows:
    return load("simulated", people=12, recordings=1, windows=12, gender=4.0).test


def test_information_on_both_sides(gait: Windows) -> None:
    noise = np.random.default_rng(0).normal(size=gait.signal.shape)
    found = information(gait, gait.replaced(noise), ["activity", "gender"], seed=0, quick=True)
    assert [(one.attribute, one.estimator) for one in found] == [
        (attribute, estimator)
        for attribute in ("activity", "gender")
        for estimator in (MINE, NEIGHBOURS)
    ]
    for one in found:
        assert abs(one.obfuscated) < 0.25
        assert one.raw <= one.entropy + 0.1
        assert one.entropy == pytest.approx(2 if one.attribute == "activity" else 1, abs=0.1)
    assert found[0].raw > 0.25  # of 86 windows to train on
    assert found[1].raw > 1.2
    json.dumps([asdict(one) for one in found], allow_nan=False)


def test_an_attribute_of_one_class_is_left_out(gait: Windows) -> None:
    same = replace(gait, labels={**gait.labels, "gender": np.zeros(len(gait), int)})
    assert information(same, same, ["gender"], quick=True) == ()
    few = gait.select(np.arange(0, len(gait), 4))
    assert information(few, few, ["gender"], quick=True) == ()


def test_one_recording_is_divided_all_the_same() -> None:
    windows = Windows.from_signal(np.random.default_rng(0).normal(size=(60, 1, 16)))
    windows = replace(
        windows,
        recording=np.zeros(60, int),
        labels={**windows.labels, "activity": np.arange(60) % 2},
    )
    assert len(information(windows, windows, ["activity"], quick=True)) == 2


def test_places_keep_recordings_apart() -> None:
    windows = Windows.from_signal(np.zeros((6, 1, 10)))
    windows = replace(
        windows, recording=np.array([0, 0, 0, 1, 1, 2]), start=np.array([0, 5, 50, 0, 39, 0])
    )
    place, stretch = _places(windows)
    near = np.abs(place[:, None] - place) < 10
    assert near.sum() == 6 + 2  # each itself, and the first two, which overlap
    assert near[0, 1]
    assert [int(np.unique(stretch).searchsorted(s)) for s in stretch] == [0, 0, 1, 2, 2, 3]
