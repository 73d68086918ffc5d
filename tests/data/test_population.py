"""Best accuracies against closed forms, posteriors against a slow, obvious reference."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from sensorveil.data.population import Attribute, Population
from sensorveil.errors import Refusal

ACTIVITY = Attribute(
    "activity",
    {
        "a": {"x": -0.5, "y": -0.5},
        "b": {"x": -0.5, "y": 0.5},
        "c": {"x": 0.5, "y": -0.5},
        "d": {"x": 0.5, "y": 0.5},
    },
    of_person=False,
)
GENDER = Attribute("gender", {"f": {"x": 0.3, "z": 0.4}, "m": {"x": -0.3, "z": -0.4}})
WEIGHT = Attribute(
    "weight", {"light": {"y": -0.6, "z": -0.8}, "medium": {}, "heavy": {"y": 0.6, "z": 0.8}}
)


def phi(x: float) -> float:
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def make(
    people: int = 60,
    identity: float = 0.5,
    jitter: float = 1.0,
    male: float = 0.5,
    seed: int = 0,
    **strengths: float,
) -> Population:
    return Population.draw(
        ("x", "y", "z"),
        (ACTIVITY, GENDER, WEIGHT),
        {"activity": 0.0, "gender": 0.0, "weight": 0.0} | strengths,
        people=people,
        identity=identity,
        jitter=jitter,
        rng=np.random.default_rng(seed),
        shares={"gender": male},
    )


def agrees(population: Population, expected: float, attribute: str, windows: int = 1) -> None:
    best = population.best_accuracy(attribute, windows)
    assert abs(best.accuracy - expected) < 4 * best.error
    assert best.error < 0.005


@pytest.mark.parametrize(
    ("strength", "identity", "jitter", "windows"),
    [(0.5, 0, 1, 1), (2, 0, 1, 1), (2, 0.7, 1, 1), (2, 0.7, 1, 10), (1, 0.3, 2, 30), (3, 2, 1, 5)],
)
def test_two_classes_have_the_closed_form(
    strength: float, identity: float, jitter: float, windows: int
) -> None:
    d = strength / math.sqrt(identity**2 + jitter**2 / windows)
    population = make(identity=identity, jitter=jitter, gender=strength)
    agrees(population, phi(d / 2), "gender", windows)


def test_two_classes_of_unequal_size_have_the_closed_form() -> None:
    male, d = 0.25, 1.5
    population = make(identity=0.0, male=male, gender=d)
    shift = math.log((1 - male) / male) / d
    expected = (1 - male) * phi(d / 2 + shift) + male * phi(d / 2 - shift)
    agrees(population, expected, "gender")


def test_classes_on_a_line_and_on_a_square_have_closed_forms() -> None:
    agrees(make(identity=0.0, weight=1.8), (4 * phi(0.9) - 1) / 3, "weight")
    agrees(make(identity=0.0, activity=2.5), phi(1.25) ** 2, "activity")


@pytest.mark.parametrize("windows", [1, 50])
def test_no_effect_leaves_exactly_the_majority(windows: int) -> None:
    # 50 people do not divide by 2 x 3: a strong weight must still say nothing about gender.
    population = make(people=50, male=0.3, activity=6.0, weight=3.0)
    best = population.best_accuracy("gender", windows)
    assert best.accuracy == pytest.approx(0.7, abs=1e-12)
    assert best.accuracy == pytest.approx(population.share("gender").max(), abs=1e-12)
    population = make(people=50, gender=3.0, weight=3.0)
    assert population.best_accuracy("activity", windows).accuracy == pytest.approx(0.25, abs=1e-12)


@pytest.mark.parametrize("identity", [0.0, 0.8])
def test_posterior_equals_that_of_all_windows_together(identity: float) -> None:
    # The slow way: the joint Gaussian of three windows with the person's deviation in common,
    # with nothing averaged, for each kind of person and activity.
    from scipy.stats import multivariate_normal

    population = make(identity=identity, jitter=1.2, activity=2.0, gender=1.5, weight=1.0)
    windows = 3
    values = np.random.default_rng(3).normal(0, 1.5, (windows, 3))
    shared, own = identity**2 * np.ones((windows, windows)), 1.2**2 * np.eye(windows)
    covariance = np.kron(shared + own, np.eye(3))
    likelihood = np.zeros(2)
    for activity, gender, weight in product(range(4), range(2), range(3)):
        codes = {"activity": activity, "gender": gender, "weight": weight}
        mean = sum(population.means(name)[code] for name, code in codes.items())
        whole = np.tile(mean, windows)
        likelihood[gender] += multivariate_normal.pdf(values.ravel(), whole, covariance)
    posterior = population.posterior("gender", values.mean(axis=0)[None], windows)
    assert posterior[0] == pytest.approx(likelihood / likelihood.sum(), rel=1e-9)


def test_people_are_spread_evenly_and_shares_move_nothing_else() -> None:
    population = make(people=36, male=0.5)
    pairs = np.stack([population.codes["gender"], population.codes["weight"]])
    assert np.unique(pairs, axis=1, return_counts=True)[1].tolist() == [6] * 6
    fewer = make(people=36, male=0.25)
    assert fewer.codes["gender"].sum() == 9
    assert np.array_equal(fewer.codes["weight"], population.codes["weight"])
    assert np.array_equal(fewer.deviations, population.deviations)


def test_what_cannot_be_asked_is_refused() -> None:
    population = make()
    with pytest.raises(Refusal, match="'gendr' is unknown; known: activity, gender, weight"):
        population.best_accuracy("gendr")
    with pytest.raises(Refusal, match="0 windows"):
        population.best_accuracy("gender", 0)
