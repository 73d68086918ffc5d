"""The estimate of the Bayes risk against best accuracies that are known in closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import chi2

from sensorveil.audit.bayes_risk import (
    _folds,
    _groups,
    bayes_risk,
    best_predictions,
    predict_attributes,
    risk_of_predictions,
)
from sensorveil.data.simulated import Simulated
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows

COUNT = 4000


def gaussians(dimensions: int, best: float) -> tuple[np.ndarray, np.ndarray]:
    """Two classes of unit covariance, `COUNT` windows to learn from and as many to predict."""
    rng = np.random.default_rng(dimensions)
    true = rng.integers(0, 2, 2 * COUNT)
    way = rng.normal(size=dimensions)
    half = ndtri(best) * way / np.linalg.norm(way)  # half of the distance between the means
    return rng.normal(size=(2 * COUNT, dimensions)) + np.outer(2 * true - 1, half), true


def found(features: np.ndarray, true: np.ndarray) -> float:
    predicted = best_predictions(features[:COUNT], true[:COUNT], features[COUNT:])
    return float((predicted == true[COUNT:]).mean())


@pytest.mark.parametrize("dimensions", [2, 16, 64])
@pytest.mark.parametrize("best", [0.75, 0.9])
def test_two_gaussians(dimensions: int, best: float) -> None:
    assert found(*gaussians(dimensions, best)) == pytest.approx(best, abs=0.02)


@pytest.mark.parametrize("best", [0.75, 0.9])
def test_windows_of_64_samples(best: float) -> None:
    signal, true = gaussians(64, best)
    labels = {"gender": true, "subject": np.arange(2 * COUNT) % 100}
    windows = Windows.from_signal(signal[:, None].astype(np.float32), labels)
    half = np.arange(2 * COUNT) < COUNT
    risk = bayes_risk(windows.select(half), windows.select(~half), "gender")
    assert risk.accuracy.value == pytest.approx(best, abs=0.02)
    assert risk.accuracy.low < risk.accuracy.value < risk.accuracy.high
    majority = np.bincount(true[~half]).max() / COUNT
    assert risk.advantage.value == pytest.approx(risk.accuracy.value - majority)


@pytest.mark.parametrize(("dimensions", "spread"), [(2, 3.0), (16, 1.35)])
def test_equal_means_and_another_spread(dimensions: int, spread: float) -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 2 * COUNT)
    features = rng.normal(size=(2 * COUNT, dimensions)) * np.where(true, spread, 1)[:, None]
    square = 2 * dimensions * np.log(spread) / (1 - spread**-2)  # of the radius between the classes
    inside, outside = chi2.cdf(square, dimensions), chi2.sf(square / spread**2, dimensions)
    assert found(features, true) == pytest.approx((inside + outside) / 2, abs=0.02)


def test_eight_classes() -> None:
    rng = np.random.default_rng(3)
    true, means = rng.integers(0, 8, 2 * COUNT), 0.7 * rng.normal(size=(8, 16))
    features = means[true] + rng.normal(size=(2 * COUNT, 16))
    nearest = ((features[:, None] - means) ** 2).sum(2).argmin(1)
    best = float((nearest == true)[COUNT:].mean())
    assert 0.5 < best < 0.9
    assert found(features, true + 3) > best - 0.02  # codes need not begin at 0


def halves(windows: Windows, seed: int = 0) -> tuple[Windows, Windows]:
    """Half of the people, and the others."""
    people = np.random.default_rng(seed).permutation(np.unique(windows.subject))
    first = np.isin(windows.subject, people[: len(people) // 2])
    return windows.select(first), windows.select(~first)


@pytest.mark.parametrize(
    "strength", [2.0, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.0, 1.0, 3.0, 4.0))]
)
def test_simulated_gait_of_unseen_people(strength: float) -> None:
    options = {"people": 1500, "recordings": 1, "windows": 1, "identity": 0.0}
    simulation = Simulated(gender=strength, **options)
    train, test = halves(simulation.corpus().windows(128, 128))
    best = simulation.truth.population.best_accuracy("gender").accuracy
    accuracy = bayes_risk(train, test, "gender").accuracy
    assert accuracy.value == pytest.approx(best, abs=0.03)
    assert accuracy.people == 750


@pytest.mark.slow
def test_three_attributes_at_once() -> None:
    simulation = Simulated(people=1500, recordings=1, windows=1, identity=0.0)
    train, test = halves(simulation.corpus().windows(128, 128))
    names = ["gender", "activity", "weight"]
    predicted = predict_attributes(train, test, names)
    best = simulation.truth.population.best_accuracy("activity").accuracy
    assert (predicted["activity"] == test.codes("activity")).mean() > best - 0.02


def test_nothing_is_predicted_from_constant_features() -> None:
    codes = np.array([1, 0, 1, 1, UNKNOWN] * 20)
    predicted = best_predictions(np.ones((100, 5)), codes, np.ones((3, 5)))
    assert predicted.tolist() == [1, 1, 1]
    with pytest.raises(Refusal, match="two classes"):
        best_predictions(np.ones((100, 5)), np.minimum(codes, 0), np.ones((3, 5)))


def test_windows_of_unknown_class_play_no_part() -> None:
    features, true = gaussians(2, 0.9)
    strange = np.concatenate([np.full((500, 2), np.nan), features[:1000]])
    codes = np.concatenate([np.full(500, UNKNOWN), true[:1000]])
    without = best_predictions(features[:1000], true[:1000], features[COUNT:])
    np.testing.assert_array_equal(best_predictions(strange, codes, features[COUNT:]), without)


@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
def test_every_kind_of_window(kind: str) -> None:
    windows = example_windows(kind)
    predicted = predict_attributes(windows, windows, ["activity"])["activity"]
    assert (predicted == windows.codes("activity")).mean() > 0.9


def test_folds_are_like_the_test() -> None:
    """Whatever the test windows do not share with training ones stays whole."""
    windows = Simulated(people=8, windows=20).corpus().windows(128, 64)
    people = halves(windows)
    np.testing.assert_array_equal(_groups(*people), people[0].subject)
    first = windows.recording % 2 == 0
    of_people = [windows.select(first), windows.select(~first)]
    np.testing.assert_array_equal(_groups(*of_people), of_people[0].recording)
    early = windows.start < windows.start.max() / 2
    pieces = _groups(windows.select(early), windows.select(~early))
    assert len(np.unique(pieces)) == 2 * len(windows.recordings)
    fold = _folds(people[0].subject, seed=0)
    assert all(len(set(fold[people[0].subject == p])) == 1 for p in set(people[0].subject))
    assert len(set(fold)) == 4


def test_people_who_stand_out_do_not_mislead() -> None:
    """Folds by windows would trust features that recognise people, of whom the test has others."""
    rng = np.random.default_rng(1)
    person = np.arange(3000) % 80
    true, seen = person % 2, person < 40
    own = (2 * true + rng.normal(size=3000))[:, None]  # says Phi(1) = 84%
    places = rng.normal(size=(80, 4))[person] + 0.1 * rng.normal(size=(3000, 4))
    train, test = ([own[part], places[part]] for part in (seen, ~seen))
    alike, apart = (
        (best_predictions(train, true[seen], test, groups=groups) == true[~seen]).mean()
        for groups in (None, person[seen])
    )
    assert apart > 0.75 > alike + 0.1


def test_the_estimate_counts_windows_of_known_class() -> None:
    true = np.array([0, 0, 1, 1, 1, UNKNOWN])
    predicted = np.array([[0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1]])
    risk = risk_of_predictions(true, predicted, np.array([0, 0, 1, 1, 2, 2]), 2)
    assert risk.accuracy.value == pytest.approx(8 / 10)
    assert risk.advantage.value == pytest.approx(8 / 10 - 3 / 5)
    assert (risk.accuracy.people, risk.accuracy.seeds) == (3, 2)


def test_an_attribute_of_one_class_is_refused() -> None:
    windows = example_windows()
    same = replace(windows, labels=windows.labels | {"gender": np.zeros(len(windows), int)})
    with pytest.raises(Refusal, match="'gender' has one class only"):
        bayes_risk(same, windows, "gender")
    assert list(predict_attributes(same, windows, ["gender", "activity"])) == ["activity"]
