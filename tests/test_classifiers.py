"""Classifiers learn each kind of window, in recorded and in standard units, and come back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sensorveil.classifiers import (
    Classifier,
    ClassifierSettings,
    Ensemble,
    labelled_windows,
    with_magnitudes,
)
from sensorveil.data.windows import UNKNOWN, Scaling, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows

TINY = ClassifierSettings(width=8, epochs=12, batch_size=16, learning_rate=5e-3)


def simple(modality: str = "signal", seed: int = 0) -> Windows:
    """Windows whose activity is easily seen: one class is larger than the other."""
    windows = example_windows(modality, seed=seed)
    factor = 1 + 2 * windows.labels["activity"].reshape(-1, *[1] * (windows.signal.ndim - 1))
    return windows.replaced((windows.signal * factor).astype(windows.store.dtype))


MLP = ClassifierSettings(epochs=40, batch_size=16, learning_rate=2e-3, network="mlp")
KINDS = {"signal": TINY, "complex": TINY, "image": TINY, "mlp": MLP}


@pytest.fixture(scope="module", params=KINDS)
def fitted(request: pytest.FixtureRequest) -> tuple[Classifier, Windows]:
    windows = simple("signal" if request.param == "mlp" else request.param)
    return Classifier(KINDS[request.param], seed=1).fit(windows, "activity"), windows


def test_learns_and_returns_from_its_state(fitted: tuple[Classifier, Windows]) -> None:
    classifier, windows = fitted
    assert (classifier.predict(windows) == windows.labels["activity"]).mean() > 0.9
    probabilities = np.exp(classifier.log_probabilities(windows))
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    shape = windows.standardized(classifier.scaling_).shape
    again = Classifier(classifier.settings, seed=99).restore(classifier.state(), shape, 2)
    np.testing.assert_array_equal(np.exp(again.log_probabilities(windows)), probabilities)


def test_standardises_recorded_windows_by_its_training_windows(
    fitted: tuple[Classifier, Windows],
) -> None:
    classifier, windows = fitted
    scaling = Scaling.of(windows)
    np.testing.assert_array_equal(classifier.scaling_.mean, scaling.mean)
    whole = classifier.log_probabilities(windows)
    alone = classifier.log_probabilities(windows.select([5]))
    np.testing.assert_allclose(alone[0], whole[5], rtol=1e-4, atol=1e-5)


def test_shares_the_standard_units_of_its_training_windows(
    fitted: tuple[Classifier, Windows],
) -> None:
    fitted_on_recorded, windows = fitted
    units = Scaling(Scaling.of(windows).mean + 3, 2 * Scaling.of(windows).deviation)
    standard = windows.standardized(units)
    classifier = Classifier(fitted_on_recorded.settings, seed=1).fit(standard, "activity")
    scores = classifier.scores(torch.from_numpy(standard.signal))
    expected = classifier.log_probabilities(windows)
    np.testing.assert_allclose(scores.log_softmax(1).detach().numpy(), expected, atol=1e-4)


def test_magnitudes_are_added_to_pairs() -> None:
    pairs = torch.tensor([[[3.0], [4.0], [5.0], [12.0]]])
    assert with_magnitudes(pairs).flatten().tolist() == [3, 4, 5, 12, 5, 13]


def test_seed_decides() -> None:
    windows, quick = simple(), replace(TINY, epochs=1)
    states = [Classifier(quick, seed).fit(windows, "activity").state() for seed in (4, 4, 5)]
    for name in states[0]:
        np.testing.assert_array_equal(states[0][name], states[1][name])
    assert any((states[0][name] != states[2][name]).any() for name in states[0])


def test_fine_tuning_follows_other_windows_and_leaves_the_original() -> None:
    windows = simple()
    classifier = Classifier(TINY, seed=1).fit(windows, "activity")
    before = classifier.log_probabilities(windows)
    swapped = replace(windows, labels={"activity": 1 - windows.labels["activity"]})
    tuned = classifier.fine_tuned(swapped, "activity", epochs=12)
    assert (tuned.predict(windows) == swapped.labels["activity"]).mean() > 0.9
    np.testing.assert_array_equal(classifier.log_probabilities(windows), before)


def test_unknown_classes_are_left_out() -> None:
    windows = simple()
    codes = windows.labels["activity"].copy()
    codes[::3] = UNKNOWN
    holes = replace(windows, labels={**windows.labels, "activity": codes})
    quick = replace(TINY, epochs=1)
    with_holes = Classifier(quick).fit(holes, "activity").state()
    without = Classifier(quick).fit(holes.select(codes != UNKNOWN), "activity").state()
    for name in without:
        np.testing.assert_array_equal(with_holes[name], without[name])


def test_a_class_that_does_not_occur_keeps_its_place() -> None:
    windows = simple()
    wide = replace(windows, classes={**windows.classes, "activity": ("a", "b", "never")})
    classifier = Classifier(replace(TINY, epochs=4)).fit(wide, "activity")
    assert classifier.log_probabilities(wide).shape[1] == 3
    assert set(classifier.predict(wide)) <= {0, 1}


def test_bad_attributes_are_refused() -> None:
    windows = simple()
    one = replace(windows, labels={**windows.labels, "gender": np.zeros(len(windows), int)})
    with pytest.raises(Refusal, match="'gender' has one class only"):
        labelled_windows(one, "gender")
    with pytest.raises(Refusal, match="attribute 'age' is unknown; known: activity, gender"):
        Classifier(TINY).fit(windows, "age")


def test_ensemble_averages_probabilities() -> None:
    windows = example_windows()
    ensemble = Ensemble(3, ClassifierSettings(width=4, epochs=1, batch_size=16))
    ensemble.fit_codes(windows, windows.codes("activity"), 2)
    each = [np.exp(member.log_probabilities(windows)) for member in ensemble.members]
    np.testing.assert_allclose(ensemble.probabilities(windows), np.mean(each, axis=0), atol=1e-6)
    assert (each[0] != each[1]).any()
    scores = ensemble.scores(torch.from_numpy(windows.standardized(Scaling.of(windows)).signal))
    np.testing.assert_allclose(
        scores.softmax(2).detach().numpy(), np.stack(each), rtol=1e-3, atol=1e-5
    )
    again = Ensemble(3, ensemble.members[0].settings).restore(ensemble.state(), windows.shape, 2)
    np.testing.assert_array_equal(again.predict(windows), ensemble.predict(windows))
