"""Randomised response has the epsilon it claims, exactly and on samples."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sensorveil.measures.response import randomised, response_table, within_budget


@pytest.mark.parametrize("count", [2, 5, 100])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_epsilon_of_all_pairs_of_codes(count, epsilon):
    """The largest ratio of any output between any two codes is e^epsilon: no more, no less."""
    table = response_table(count, epsilon)
    np.testing.assert_allclose(table.sum(1), 1)
    ratios = [table[a] / table[b] for a, b in itertools.permutations(range(count), 2)]
    assert np.max(ratios) == pytest.approx(math.exp(epsilon))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_samples_follow_the_table(epsilon):
    count, draws = 4, 40_000
    table = response_table(count, epsilon)
    generator = np.random.default_rng(0)
    for code in range(count):
        told = randomised(np.full(draws, code), count, np.full(draws, epsilon), generator)
        share = np.bincount(told, minlength=count) / draws
        error = np.sqrt(table[code] * (1 - table[code]) / draws)
        assert (np.abs(share - table[code]) < 5 * error).all()


def test_epsilon_of_samples_is_not_above_the_claim():
    """The ratio that samples show, with the error of its logarithm, for the worst pair."""
    count, draws, epsilon = 5, 60_000, 1.0
    generator = np.random.default_rng(1)
    counts = np.stack(
        [
            np.bincount(
                randomised(np.full(draws, code), count, np.full(draws, epsilon), generator),
                minlength=count,
            )
            for code in range(count)
        ]
    )
    logs = np.log(counts[:, None] / counts[None])
    error = np.sqrt(1 / counts[:, None] + 1 / counts[None])
    assert (logs - 5 * error).max() <= epsilon
    assert logs.max() == pytest.approx(epsilon, abs=0.1)


def test_each_window_has_its_own_epsilon():
    codes = np.zeros(20_000, int)
    epsilon = np.where(np.arange(20_000) % 2, 50.0, 0.0)
    told = randomised(codes, 4, epsilon, np.random.default_rng(0))
    assert (told[1::2] == 0).all()
    assert np.mean(told[::2] == 0) == pytest.approx(0.25, abs=0.02)


def test_one_code_is_told_as_it_is():
    told = randomised(np.zeros(5, int), 1, np.full(5, 0.1), np.random.default_rng(0))
    assert (told == 0).all()


def test_no_group_spends_more_than_its_budget():
    generator = np.random.default_rng(0)
    group, start = generator.integers(5, size=200), generator.permutation(200)
    epsilon = generator.uniform(0.1, 1.0, 200)
    allowed = within_budget(epsilon, np.full(200, 4.0), group, start)
    for one in range(5):
        order = np.flatnonzero(group == one)[np.argsort(start[group == one])]
        assert allowed[order].sum() <= 4.0
        stopped = np.flatnonzero(allowed[order] == 0)
        # From the first that is stopped on, all are; and it would have been too much.
        assert (np.diff(stopped) == 1).all()
        assert stopped[-1] == len(order) - 1
        assert epsilon[order][: stopped[0] + 1].sum() > 4.0


def test_a_budget_that_is_met_exactly_is_not_overdrawn():
    allowed = within_budget(np.full(12, 0.1), np.full(12, 1.0), np.zeros(12, int), np.arange(12))
    assert (allowed > 0).sum() == 10
