"""Estimates: the bootstrap against a slow loop, and its interval against the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.errors import Refusal
from sensorveil.measures.estimate import DRAWS, Estimate, bootstrap
from sensorveil.measures.scores import accuracy, macro_f1


def share(table: np.ndarray) -> np.ndarray:
    return table[..., 0] / table[..., 1]


def windows_of_a_person(table: np.ndarray) -> np.ndarray:
    """Unlike a share, it notices when tables are added where they should be averaged."""
    return table.sum((-2, -1))


def slow_bootstrap(tables: np.ndarray, statistic, generator, draws: int) -> list[float]:
    """People drawn one by one and added up one by one."""
    seeds, people = tables.shape[:2]
    person = generator.multinomial(people, np.full(people, 1 / people), size=draws)
    seed = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws)
    values = []
    for draw in range(draws):
        total = np.zeros(tables.shape[2:])
        for s in range(seeds):
            for p in range(people):
                total += tables[s, p] * person[draw, p] * seed[draw, s] / seeds
        values.append(float(statistic(total[None])[0]))
    return values


@settings(max_examples=20, deadline=None)
@given(
    seeds=st.integers(1, 3), people=st.integers(1, 6), classes=st.integers(2, 3), at=st.integers(0)
)
def test_draws_against_a_slow_loop(seeds: int, people: int, classes: int, at: int) -> None:
    tables = np.random.default_rng(at).integers(1, 20, (seeds, people, classes, classes))
    for statistic in (accuracy, macro_f1, windows_of_a_person):
        got = bootstrap(tables, statistic, np.random.default_rng(7), draws=40)
        values = slow_bootstrap(tables, statistic, np.random.default_rng(7), draws=40)
        low, high = np.quantile(values, [0.025, 0.975])
        assert got.low == pytest.approx(low)
        assert got.high == pytest.approx(high)
        whole = tables.sum(1).mean(0)
        assert got.value == pytest.approx(float(statistic(whole[None])[0]))
        assert (got.people, got.seeds) == (people, seeds)
        assert got.low - 1e-9 <= got.high


def test_the_spread_is_over_seeds() -> None:
    tables = np.array([[[8, 10], [6, 10]], [[9, 10], [9, 10]], [[5, 10], [5, 10]]])
    estimate = bootstrap(tables, share, np.random.default_rng(0))
    assert estimate.value == pytest.approx(0.7)
    assert estimate.spread == pytest.approx(np.std([0.7, 0.9, 0.5], ddof=1))
    assert bootstrap(tables[:1], share, np.random.default_rng(0)).spread is None


def test_people_who_are_alike_leave_no_doubt() -> None:
    estimate = bootstrap(np.full((1, 9, 2), [3, 4]), share, np.random.default_rng(0))
    assert (estimate.value, estimate.low, estimate.high) == (0.75, 0.75, 0.75)


def test_the_generator_decides() -> None:
    tables = np.random.default_rng(0).integers(1, 9, (2, 5, 2, 2))
    first, second, other = (
        bootstrap(tables, accuracy, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert first == second
    assert first.value == other.value
    assert (first.low, first.high) != (other.low, other.high)


def covered(people: int, seeds: int, repetitions: int = 200) -> float:
    """How often the interval holds the truth, for people who differ and windows that are alike."""
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(repetitions):
        skill = generator.beta(8, 2, size=people)  # the truth is 0.8
        windows = np.full(people, 200)
        right = generator.binomial(windows, skill, size=(seeds, people))
        tables = np.stack([right, np.broadcast_to(windows, right.shape)], axis=-1)
        estimate = bootstrap(tables, share, generator, draws=300)
        hits += estimate.low <= 0.8 <= estimate.high
    return hits / repetitions


@pytest.mark.parametrize(("people", "seeds"), [(24, 1), (40, 3)])
def test_the_interval_covers_the_truth(people: int, seeds: int) -> None:
    assert 0.90 <= covered(people, seeds) <= 0.99


def test_drawing_windows_would_not_cover_it() -> None:
    """Why people are drawn: counting windows as independent gives far too narrow intervals."""
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(100):
        right = generator.binomial(200, generator.beta(8, 2, size=24))
        rate = right.sum() / (200 * 24)
        half = 1.96 * np.sqrt(rate * (1 - rate) / (200 * 24))
        hits += abs(rate - 0.8) <= half
    assert hits / 100 < 0.5


def test_a_person_without_answers_does_no_harm() -> None:
    tables = np.array([[[0, 0], [3, 4]]])
    with np.errstate(invalid="ignore"):
        estimate = bootstrap(tables, share, np.random.default_rng(0))
    assert (estimate.value, estimate.low, estimate.high) == (0.75, 0.75, 0.75)


def test_nobody_is_refused() -> None:
    with pytest.raises(Refusal, match="no person"):
        bootstrap(np.zeros((1, 0, 2)), share, np.random.default_rng(0))


def test_for_people_and_for_json() -> None:
    estimate = Estimate(0.5, 0.25, 0.625, people=24, seeds=3, spread=0.125)
    assert str(estimate) == "50.0% (25.0 to 62.5)"
    assert Estimate(**estimate.as_dict()) == estimate  # type: ignore[arg-type]
    assert DRAWS >= 1000
