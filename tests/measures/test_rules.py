"""No rule is above what is found: against all of them, one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sensorveil.measures.rules import _above, _bend, _price, largest_of_rules


def drawn(seed: int, people: int, codes: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares and centres of people; those with an odd number have windows of several classes."""
    generator = np.random.default_rng(seed)
    shares = generator.dirichlet(np.full(codes * classes, 0.3), people)
    shares = shares.reshape(people, codes, classes)
    for person in shares[::2]:
        person[:] = person.sum(1)[:, None] * np.eye(classes)[generator.integers(classes)]
    usual = generator.dirichlet(np.ones(codes), people)[:, :, None] * generator.random()
    return shares, usual * shares.sum(1, keepdims=True)


def all_rules(shares: np.ndarray, usual: np.ndarray, step: float, sign: int = 1) -> list[float]:
    """The mean of X_i + p(X_i - c_i), with p from its series and half of what is missing added."""
    _, codes, classes = shares.shape
    found = []
    for rule in itertools.product(range(classes), repeat=codes):
        right = sum(shares[:, code, read] for code, read in enumerate(rule))
        centre = sum(usual[:, code, read] for code, read in enumerate(rule))
        off = sign * (right - centre - (1 - usual.sum((1, 2))) / 2)
        price = sum(step ** (k - 1) * off**k / k for k in range(2, 400))
        found.append(float((sign * right + price).mean()))
    return found


@pytest.mark.parametrize("sign", [1, -1])  # the smallest share bounds what classes share
@pytest.mark.parametrize("step", [0.05, 0.4, 0.9])
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("classes", [2, 3])
def test_no_rule_is_above(classes, seed, step, sign):
    shares, usual = drawn(seed, 9, 4, classes)
    found = largest_of_rules(sign * shares, sign * usual, step)
    assert max(all_rules(shares, usual, step, sign)) <= found + 1e-9


@pytest.mark.parametrize("step", [0.02, 0.1])
@pytest.mark.parametrize("seed", range(10))
def test_where_deviations_cost_little_it_is_the_best_rule_itself(seed, step):
    shares, usual = drawn(seed, 400, 4, 2)
    best = max(all_rules(shares, usual, step))
    assert largest_of_rules(shares, usual, step) == pytest.approx(best, abs=step / 100)


@pytest.mark.parametrize("size", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("others", [1, 2])
def test_no_way_to_read_codes_otherwise_gains_more(others, seed, size):
    generator = np.random.default_rng(seed)
    codes = 5 if others == 1 else 4
    rows = generator.normal(size=(6, codes * others)) * size
    squares, loss = rows.T @ rows, 5 * generator.random((codes, others)) - 0.5
    best = 0.0
    for read in itertools.product(range(others + 1), repeat=codes):
        v = np.eye(others + 1)[list(read)][:, 1:].ravel()
        best = max(best, v @ squares @ v - loss.ravel() @ v)
    assert best <= _above(loss, squares) + 1e-9
    assert _above(loss, np.zeros_like(squares)) == pytest.approx(np.maximum(-loss, 0).max(1).sum())


@pytest.mark.parametrize("top", [-0.2, 0.3001, 0.3, 1.0])
def test_the_parabola_is_above_up_to_the_top_and_touches_there(top):
    step, off = 0.9, min(0.3, top)
    bend = _bend(np.array([off]), np.array([top]), step)
    where = np.linspace(-1, top, 2001)
    parabola = _price(np.array([off]), step) + step * off / (1 - step * off) * (where - off)
    parabola = parabola + bend * (where - off) ** 2
    assert (parabola >= _price(where, step) - 1e-12).all()
    assert parabola[-1] == pytest.approx(_price(where, step)[-1], abs=1e-6)
