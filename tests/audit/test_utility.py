"""What survives: known accuracies, known rhythms, and information on both sides."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from sensorveil.audit import applications, utility
from sensorveil.audit.applications import ApplicationModel
from sensorveil.audit.results import Transitions, TransitionsSeen
from sensorveil.audit.utility import (
    MINE,
    NEIGHBOURS,
    _places,
    information,
    kept_attribute,
)
from sensorveil.data.catalog import load
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal


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


class Sign(ApplicationModel):
    """Whether the mean is positive, or the other way round if that was so in training."""

    way = 1

    def fit(self, windows, codes, num_classes):
        self.way_ = self.way * np.sign(((windows.signal.mean((1, 2)) > 0) == codes).mean() - 0.5)
        self.learnt_ = len(windows)
        return self

    def predict(self, windows):
        return (self.way_ * windows.signal.mean((1, 2)) > 0).astype(int)


class Never(Sign):
    """The first class always."""

    way = 0


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two applications that make no error of their own, and one that learns nothing."""
    monkeypatch.setattr(applications, "_APPLICATIONS", {})
    for name, cls in (("sign", Sign), ("sign again", type("Again", (Sign,), {})), ("never", Never)):
        applications.register_application(name)(cls)


def four(found) -> list[float]:
    return [e.value for e in (found.raw, found.unchanged, found.retrained, found.retrained_on_raw)]


def test_the_four_ways_to_train_and_test() -> None:
    """All windows upside down: the unchanged model is always wrong, the retrained one right."""
    split = toy()
    train, test = mirrored(split.train, 1.0), mirrored(split.test, 1.0)
    kept = kept_attribute([split], [[train]], [[test]], "activity", applications=["sign"])
    assert (kept.attribute, kept.classes, kept.majority) == ("activity", ("0", "1"), 0.5)
    assert four(kept) == four(kept.applications[0]) == [1, 0, 1, 0]
    assert (kept.unchanged_f1.value, kept.retrained_f1.value) == (0, 1)
    assert kept.recall_by_class == {"0": 0.0, "1": 0.0}
    assert kept.raw.people == 5


def test_figures_are_means_over_applications_and_the_worst_loses_most() -> None:
    split = toy()
    kept = kept_attribute([split], [[split.train]], [[mirrored(split.test, 0.3)]], "activity")
    assert [one.name for one in kept.applications] == ["sign", "sign again", "never"]
    assert [one.unchanged.value for one in kept.applications] == pytest.approx([0.7, 0.7, 0.5])
    assert four(kept) == pytest.approx([2.5 / 3, 1.9 / 3, 1.9 / 3, 2.5 / 3])
    assert kept.worst
    assert kept.worst.name == "sign"
    # Always one of two classes: F1 is 2/3 and 0.
    assert kept.unchanged_f1.value == pytest.approx((0.7 + 0.7 + 1 / 3) / 3)
    assert kept.recall_by_class == pytest.approx({"0": 2.4 / 3, "1": 1.4 / 3})
    assert kept.unchanged.low < 1.9 / 3 < kept.unchanged.high


def test_intervals_are_over_people_and_not_over_applications() -> None:
    split = toy()
    kept = kept_attribute([split], [[split.train]], [[split.test]], "activity")
    assert (kept.raw.low, kept.raw.high) == pytest.approx((2.5 / 3, 2.5 / 3))
    assert (kept.raw.people, kept.raw.seeds) == (5, 1)


def test_folds_are_pooled_and_seeds_averaged() -> None:
    folds = [toy(), toy(first_person=5)]
    train = [[fold.train for fold in folds]] * 2
    # Seed 0 mirrors half of the first fold's test windows, seed 1 nothing: 3/4 and 1 in all.
    test = [
        [mirrored(folds[0].test, 0.5), folds[1].test],
        [folds[0].test, folds[1].test],
    ]
    kept = kept_attribute(
        folds, train, test, "activity", seeds=(0, 1), applications=["sign", "sign again"]
    )
    assert kept.unchanged.people == 10
    assert kept.unchanged.seeds == 2
    assert kept.unchanged.value == pytest.approx(0.875)
    assert kept.unchanged.spread == pytest.approx(np.std([0.75, 1.0], ddof=1))
    assert kept.raw.value == 1


def test_transitions_are_those_of_unchanged_applications() -> None:
    """Two recordings of one change each; the output is of the class before for four windows more."""
    split = toy()
    activity = np.tile(np.repeat([0, 1], 10), 2)
    test = replace(
        split.test,
        labels={**split.test.labels, "activity": activity},
        recording=np.repeat([0, 1], 20),
        start=np.tile(4 * np.arange(20), 2),
        sample_rate=2.0,
    )
    raw, hidden = (
        test.replaced(np.ones(test.shape) * (2 * code - 1)[:, None, None])
        for code in (activity, np.tile(np.repeat([0, 1], [14, 6]), 2))
    )
    many = replace(split, test=raw)
    found = kept_attribute(
        [many], [[split.train]], [[hidden]], "activity", applications=["sign", "sign again"]
    ).transitions
    assert found == Transitions(1, TransitionsSeen(1, 1, 0), TransitionsSeen(1, 1, 8))
    none = kept_attribute([split], [[split.train]], [[split.test]], "activity")
    assert none.transitions is None  # each window is its own recording


def test_training_windows_are_limited_and_may_come_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(utility, "QUICK_WINDOWS", 30)
    learnt = []
    monkeypatch.setattr(
        Sign, "predict", lambda self, w: learnt.append(self.learnt_) or w.codes("activity")
    )
    split = toy()
    twice = split.train.select(np.random.default_rng(0).permutation(160) % 80)
    kept_attribute([split], [[twice]], [[split.test]], "activity", applications=["sign"])
    kept_attribute(
        [split], [[twice]], [[split.test]], "activity", quick=True, applications=["sign"]
    )
    assert learnt == [80, 80, 160, 160, 30, 30, 30, 30]


def test_no_application_is_refused() -> None:
    split = toy()
    for names in ([], ["unheard of"]):
        with pytest.raises(Refusal, match="application"):
            kept_attribute([split], [[split.train]], [[split.test]], "activity", applications=names)


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
