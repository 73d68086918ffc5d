"""What survives: known accuracies, known rhythms, and information on both sides."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, astuple, replace

import numpy as np
import pytest

from sensorveil.audit.results import SignalUtility
from sensorveil.audit.signals import signal_utility, walking_windows
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
from sensorveil.measures.inference import InferenceModel, InferenceSettings
from sensorveil.methods.conformance import example_windows

TINY = InferenceSettings(width=6, epochs=6, batch=16, rate=5e-3)


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
    assert [e.value for e in (kept.raw, kept.unchanged, kept.retrained, kept.back)] == [1, 0, 1, 0]
    assert (kept.unchanged_f1.value, kept.retrained_f1.value) == (0, 1)
    assert kept.recall_by_class == {"0": 0.0, "1": 0.0}
    assert kept.raw.people == 5


def test_figures_by_class_and_by_person() -> None:
    split = toy()
    kept = kept_attribute([split], [[split.train]], [[mirrored(split.test, 0.3)]], "activity", TINY)
    assert kept.unchanged.value == kept.retrained.value == pytest.approx(0.7)
    assert (kept.raw.value, kept.back.value) == (1.0, 1.0)
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
    wrong = InferenceModel(TINY).fit(mirrored(split.train, 1.0), "activity")
    kept = kept_attribute(
        [split], [[split.train]], [[split.test]], "activity", TINY, raw_models=[[wrong]]
    )
    assert (kept.raw.value, kept.unchanged.value) == (0, 0)
    assert (kept.retrained.value, kept.back.value) == (1, 1)


@pytest.fixture(scope="module")
def gait() -> Windows:
    return load("simulated", people=12, recordings=1, windows=12, gender=4.0).test


def test_nothing_is_lost_where_nothing_was_done(gait: Windows) -> None:
    same = signal_utility(gait, gait, ["activity"])
    assert astuple(same) == (0, 1, 0, 1, 0, 0)


def test_louder_windows(gait: Windows) -> None:
    louder = signal_utility(gait, gait.replaced(gait.signal * 3), ["activity"])
    assert louder.frequency_error == pytest.approx(0, abs=1e-4)
    assert louder.energy_error == pytest.approx(2 * np.log(3), rel=1e-3)
    assert louder.energy_correlation == pytest.approx(1)
    assert louder.spectrum_distance == pytest.approx(0, abs=1e-4)
    assert louder.step_error == 0


def test_a_rhythm_that_is_twice_as_fast() -> None:
    base = np.random.default_rng(0).uniform(1.0, 1.4, 64)
    count = np.arange(128) / 50
    signals = [np.sin(2 * np.pi * (times * base)[:, None] * count)[:, None] for times in (1, 2)]
    raw, hidden = (
        replace(
            Windows.from_signal(signal, {"activity": np.zeros(64, int)}, rate=50.0),
            recording=np.arange(64) // 16,
            channels=("acc",),
            classes={"activity": ("Walk slowly",), "subject": ("0",)},
        )
        for signal in signals
    )
    found = signal_utility(raw, hidden, ["activity"])
    assert found.frequency_error == pytest.approx(base.mean(), abs=0.05)
    assert found.frequency_correlation is not None
    assert found.frequency_correlation > 0.98
    assert found.spectrum_distance is not None
    assert found.spectrum_distance > 0.9
    assert found.step_error == pytest.approx(1.0, abs=0.25)


def test_windows_that_changed_places_keep_no_rhythm(gait: Windows) -> None:
    order = np.random.default_rng(0).permutation(len(gait))
    found = signal_utility(gait, gait.replaced(gait.signal[order]), ["activity"])
    assert found.frequency_correlation is not None
    assert found.energy_correlation is not None
    assert abs(found.frequency_correlation) < 0.3
    assert abs(found.energy_correlation) < 0.3
    assert found.spectrum_distance == pytest.approx(0, abs=1e-4)
    assert found.frequency_error is not None
    assert found.frequency_error > 0.05


def test_still_windows_are_counted(gait: Windows) -> None:
    found = signal_utility(gait, gait.replaced(np.zeros_like(gait.signal)), ["activity"])
    assert found.spectrum_distance == 1
    assert found.step_error == 1
    assert found.energy_correlation == 0
    assert np.isfinite([value for value in astuple(found) if value is not None]).all()


def test_where_measures_mean_nothing(gait: Windows) -> None:
    images = example_windows("image")
    assert signal_utility(images, images, ["activity"]) == SignalUtility()
    waves = example_windows("complex")
    found = signal_utility(waves, waves, ["activity"])
    assert (found.frequency_error, found.step_error) == (0, None)
    assert found.frequency_correlation is None  # each window is its own recording
    turned = waves.replaced(waves.signal * 1j)  # the magnitude stays
    assert signal_utility(waves, turned).energy_error == pytest.approx(0, abs=1e-3)
    assert signal_utility(gait, gait).step_error is None
    nameless = replace(gait, channels=("a", "b", "c"))
    assert signal_utility(nameless, nameless, ["activity"]).step_error is None


def test_walking_windows(gait: Windows) -> None:
    found = walking_windows(gait, ["activity", "gender"])
    np.testing.assert_array_equal(found, gait.labels["activity"] == 2)
    assert walking_windows(gait, ["gender"]) is None
    assert walking_windows(gait, []) is None


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


def test_both_are_quick() -> None:
    """Processor time, so that other work on the machine does not count."""
    generator = np.random.default_rng(0)
    labels = {"activity": generator.integers(0, 4, 1000), "gender": generator.integers(0, 2, 1000)}
    windows = Windows.from_signal(generator.normal(size=(1000, 6, 128)), labels, rate=50.0)
    start = time.process_time()
    signal_utility(windows, windows, ["activity"])
    assert time.process_time() - start < 2
    start = time.process_time()
    information(windows, windows, ["gender"], quick=True)
    assert time.process_time() - start < 8
