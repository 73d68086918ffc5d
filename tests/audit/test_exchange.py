"""The exchange test: p-values mean what they say when nothing leaks, and are small where it does."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.audit.exchange import Units, exchange_p_values, exchange_units

PEOPLE, WINDOWS, ATTACKERS = 24, 10, 12


def people(strata: np.ndarray | None = None, classes: int = 2) -> Units:
    """Ten windows of each person; classes are equally frequent."""
    person = np.repeat(np.arange(PEOPLE), WINDOWS)
    places = np.zeros(PEOPLE, int) if strata is None else strata
    return exchange_units(person % classes, person, places[person], classes)


def alike_attackers(rng: np.random.Generator, units: Units, leak: float = 0.0) -> np.ndarray:
    """Scores of attackers that agree with each other, and who say the same of one person's windows.

    A binomial test over windows would find a leak in nearly every draw.
    """
    common = rng.normal(size=(1, len(units), units.classes))
    own = rng.normal(size=(ATTACKERS, len(units), units.classes))
    tables = 0.8 * common + 0.6 * own
    tables[-1] += leak * np.eye(units.classes)[units.codes]
    return tables * np.exp(rng.normal(size=(ATTACKERS, 1, 1)))  # on scales of their own


def shares_below(draws: int, limits: np.ndarray, make) -> np.ndarray:
    """How often the smallest of all p-values is at most each limit."""
    rng = np.random.default_rng(7)
    smallest = [exchange_p_values(*make(rng)).min() for _ in range(draws)]
    return (np.array(smallest)[:, None] <= limits).mean(0)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_smallest_p_value_is_uniform_when_nothing_leaks(classes: int) -> None:
    """Of many attackers that are alike: neither too small nor, as Bonferroni's, far too large."""
    limits, draws = np.array([0.02, 0.1, 0.3, 0.6]), 300
    units = people(classes=classes)
    found = shares_below(draws, limits, lambda rng: (units, alike_attackers(rng, units)))
    assert (np.abs(found - limits) < 4 * np.sqrt(limits * (1 - limits) / draws)).all(), found


def test_p_values_of_classes_that_were_predicted_are_never_too_small() -> None:
    """Each attacker predicts one class for most windows of a person, whatever the true class is."""
    limits, draws = np.array([0.02, 0.1, 0.3]), 200
    units, window = people(), np.arange(PEOPLE * WINDOWS)

    def predicted(rng: np.random.Generator) -> tuple[Units, np.ndarray]:
        often = rng.beta(0.3, 0.3, size=(ATTACKERS, PEOPLE)).repeat(WINDOWS, axis=1)
        guesses = (rng.random(often.shape) < often).astype(int)
        return units, np.stack([units.counts(one, window) for one in guesses])

    found = shares_below(draws, limits, predicted)
    assert (found < limits + 4 * np.sqrt(limits * (1 - limits) / draws)).all(), found


def test_a_leak_is_found_among_many_attackers_and_named() -> None:
    units, rng = people(), np.random.default_rng(0)
    p_values = exchange_p_values(units, alike_attackers(rng, units, leak=3.0))
    assert p_values[-1] <= 0.001
    assert p_values[:-1].min() > 0.02
    faint = exchange_p_values(units, alike_attackers(rng, units, leak=0.3))
    assert faint[-1] > 0.005


def test_classes_stay_in_their_stratum() -> None:
    """Activity tells the gender of most people, and an attacker who knows it alone is no leak."""
    place = np.arange(PEOPLE) // (PEOPLE // 2)
    person = np.arange(PEOPLE)
    codes = np.where(person % (PEOPLE // 2) < 10, place, 1 - place)
    together = exchange_units(codes, person, 0 * place, 2)
    apart = exchange_units(codes, person, place, 2)
    known = together.counts(place, person)
    assert exchange_p_values(together, known[None])[0] < 0.01  # there it would be found
    # Members of a stratum are numbered one after the other.
    assert exchange_p_values(apart, apart.counts(place, person)[None])[0] == 1
    right = apart.counts(codes, person)
    assert exchange_p_values(apart, right[None])[0] < 0.001  # more than the activity is a leak


def test_one_p_value_is_the_exact_one() -> None:
    """Three of each of two classes: an attacker who is always right is as good in 1 of 20 draws."""
    person = np.arange(6)
    units = exchange_units(person % 2, person, 0 * person, 2)
    assert exchange_p_values(units, units.counts(person % 2, person)[None])[0] == pytest.approx(
        1 / 20, abs=0.02
    )


@pytest.mark.parametrize("spread", [1.0, 1e-4, 1e-7, 1e-8])
def test_two_people_prove_nothing(spread: float) -> None:
    """There are two exchanges, and rounding of shares that hardly differ makes no third one."""
    person, rng = np.arange(2), np.random.default_rng(2)
    units = exchange_units(person, person, 0 * person, 2)
    tables = (0.3 + spread * rng.normal(size=(200, 2, 2))).astype(np.float32)
    assert exchange_p_values(units, tables).min() > 0.4


def test_many_recordings_are_taken_together_within_class_and_stratum() -> None:
    rng = np.random.default_rng(1)
    member = np.repeat(np.arange(1700), 2)
    codes, strata = rng.integers(3, size=1700)[member], rng.integers(2, size=1700)[member]
    codes[:7] = -1
    units = exchange_units(codes, member, strata, 3)
    known = codes >= 0
    assert 300 <= len(units) <= 600
    assert (units.of_window[~known] == -1).all()
    np.testing.assert_array_equal(units.codes[units.of_window[known]], codes[known])
    np.testing.assert_array_equal(units.strata[units.of_window[known]], strata[known])
    pairs = np.stack([member[known], units.of_window[known]])
    assert len(np.unique(pairs, axis=1).T) == len(np.unique(pairs[0]))  # none is divided
    values = rng.normal(size=(len(codes), 3))
    np.testing.assert_allclose(
        units.sums(values).sum(0), values[known].sum(0) / known.sum(), atol=1e-12
    )
