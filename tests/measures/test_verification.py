"""Equal error rate and rank 1 against closed forms and against slow, plain searches."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.errors import Refusal
from sensorveil.measures.verification import (
    equal_error_rate,
    equal_error_rate_of_counts,
    rank1,
    rank1_hits,
    rank_counts,
)


@pytest.mark.parametrize("apart", [0.0, 0.5, 1.0, 2.0, 4.0])
def test_two_gaussians(apart: float) -> None:
    """Scores of deviation 1 with means `apart`: the threshold lies in the middle."""
    quantiles = np.array([NormalDist().inv_cdf((i + 0.5) / 4000) for i in range(4000)])
    found = equal_error_rate(quantiles + apart, quantiles)
    assert found == pytest.approx(NormalDist().cdf(-apart / 2), abs=5e-4)


def slow_bounds(genuine: list[float], impostor: list[float]) -> tuple[float, float]:
    """Trying every threshold: the rate lies where the larger error is least, or just below."""
    errors = []
    for threshold in sorted({*genuine, *impostor, max(genuine + impostor) + 1}):
        missed = sum(s < threshold for s in genuine) / len(genuine)
        false = sum(s >= threshold for s in impostor) / len(impostor)
        errors.append((missed, false))
    return max(min(pair) for pair in errors), min(max(pair) for pair in errors)


scores = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=12)


@given(scores, scores)
@settings(max_examples=200, deadline=None)
def test_every_threshold_tried(genuine: list[float], impostor: list[float]) -> None:
    low, high = slow_bounds(genuine, impostor)
    found = equal_error_rate(np.array(genuine), np.array(impostor))
    assert low - 1e-9 <= found <= high + 1e-9


def test_ends() -> None:
    low, high = np.array([0.0, 0.1]), np.array([0.8, 0.9])
    assert equal_error_rate(high, low) == 0
    assert equal_error_rate(low, high) == 1
    assert equal_error_rate(np.ones(5), np.ones(3)) == 0.5
    with pytest.raises(Refusal, match="pairs of one person"):
        equal_error_rate(np.array([]), low)


def test_counts_of_people_add_up_to_the_rate_of_all() -> None:
    generator = np.random.default_rng(0)
    genuine = generator.random(3000) < 0.2
    values = generator.normal(size=3000) + genuine
    person = generator.integers(5, size=3000)
    exact = equal_error_rate(values[genuine], values[~genuine])
    counts = rank_counts(values, genuine, person)
    assert counts.sum() == 3000
    assert counts.shape[0] == 5
    assert float(equal_error_rate_of_counts(counts.sum(0))) == pytest.approx(exact, abs=3e-3)
    np.testing.assert_array_equal(counts, rank_counts(np.exp(3 * values), genuine, person))
    one = person == 1
    alone = equal_error_rate(values[genuine & one], values[~genuine & one])
    both = equal_error_rate_of_counts(counts[:2])  # any leading axes
    assert float(both[1]) == pytest.approx(alone, abs=1e-2)


def test_rank_one_against_loops() -> None:
    generator = np.random.default_rng(1)
    similarity = generator.random((30, 12))
    probe, gallery = generator.integers(4, size=30), generator.integers(4, size=12)
    hits = 0
    for row, person in zip(similarity.tolist(), probe, strict=True):
        hits += gallery[row.index(max(row))] == person
    assert rank1(similarity, probe, gallery) == pytest.approx(hits / 30)


def test_ties_and_sessions_that_may_not_be_compared() -> None:
    gallery = np.array([0, 0, 1])
    assert rank1(np.zeros((1, 3)), np.array([0]), gallery) == pytest.approx(2 / 3)
    barred = np.array([[-np.inf, -np.inf, 0.1], [0.2, -np.inf, 0.1]])
    assert rank1_hits(barred, np.array([0, 0]), gallery).tolist() == [0, 1]
    with pytest.raises(Refusal, match="do not fit"):
        rank1(np.zeros((2, 2)), np.array([0, 1]), gallery)
