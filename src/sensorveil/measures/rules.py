"""The worst of all rules, from codes to classes, that a confidence bound has to reckon with.

There are more rules than can be tried. What is found here is never below the largest of them. X_i
is the share of a person's windows in which a rule is right, c_i its centre, l a step in (0, 1), and
p(x) = -log(1 - l x) / l - x, all of them as in `bounds`.
"""

from __future__ import annotations

import numpy as np


def largest_of_rules(shares: np.ndarray, usual: np.ndarray, step: float) -> float:
    """At least the mean of X_i + p(X_i - c_i) of any rule, and seldom much more.

    The mean is convex in the rule. So to read every code as the class that is best along its slope
    makes it larger, and soon ends in a rule that is hard to beat. For any other rule, each person's
    p lies below a parabola that touches p at this rule: the mean is at most that of this rule, less
    what is lost along the slope, plus squares.
    """
    table, residuals = shares.mean(0), shares - usual
    # Before anybody was seen, the centre lies half way between right and wrong for every rule.
    half = residuals.sum((1, 2)) / 2
    codes, better = np.arange(len(table)), table.argmax(1)
    for _ in range(9):  # two or three, as a rule
        rule, off = better, residuals[:, codes, better].sum(1) - half
        gain = table + np.tensordot(step * off / (1 - step * off), residuals, 1) / len(shares)
        better = gain.argmax(1)
        if (better == rule).all():
            break
    here = table[codes, rule].sum() + _price(off, step).mean()
    top = np.maximum(residuals.max(2).sum(1) - half, off)
    other = np.arange(table.shape[1]) != rule[:, None]
    loss = (gain[codes, rule][:, None] - gain)[other].reshape(len(table), -1)
    moves = (residuals - residuals[:, codes, rule][:, :, None])[:, other]
    squares = (moves * _bend(off, top, step)[:, None]).T @ moves / len(shares)
    return float(here + _above(loss, squares))


def _price(off: np.ndarray, step: float) -> np.ndarray:
    """p(x): what a deviation from the centre adds to the bound."""
    return -np.log1p(-step * off) / step - off


def _bend(off: np.ndarray, top: np.ndarray, step: float) -> np.ndarray:
    """A b such that p(z) <= p(x) + p'(x) (z - x) + b (z - x)^2 for all z up to `top`, x = `off`.

    The b that z needs is a mean of p'' / 2 between x and z. p'' grows: so top needs the largest b,
    and none needs more than p''(top) / 2, which serves where x and top are too close to divide by.
    """
    far = np.maximum(top - off, 1e-3)
    beyond = _price(off + far, step) - _price(off, step) - step * off / (1 - step * off) * far
    return np.where(top - off < far, step / 2 / (1 - step * top) ** 2, beyond / far**2)


def _above(loss: np.ndarray, squares: np.ndarray) -> float:
    """At least the most of v' squares v - loss v, over all ways v to read some codes otherwise.

    v has a 1 where a code (row of `loss`) is read as that other class (column), at most one in a
    row. One more 1 adds its own square and twice its products with the other 1s, less its loss.
    Where that is at most 0 whatever the others are, some best v is without it: it is struck out,
    and so are then others that only it could help. In a v of what remains, each 1 counts its own
    square and its products once, less its loss; at most the sum of what is positive of these.
    """
    codes, others = loss.shape
    own = np.diag(squares).reshape(loss.shape)
    pairs = np.maximum(squares, 0).reshape(codes, others, codes, others)
    pairs[np.arange(codes), :, np.arange(codes)] = 0
    possible = np.ones(loss.shape, bool)
    while True:
        products = (pairs * possible).max(3).sum(2)
        remain = possible & (own + 2 * products > loss)
        if (remain == possible).all():
            return float((np.maximum(own + products - loss, 0) * possible).max(1).sum())
        possible = remain
