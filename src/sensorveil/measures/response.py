"""Randomised response: a code that is told wrongly by chance, with a local epsilon.

Warner's mechanism (1965) for k codes: the true one is told with probability

    e^epsilon / (e^epsilon + k - 1),

and else any other one, all alike. No output is more than e^epsilon times as likely for one code as
for another; so it is epsilon-locally differentially private, whatever the code was made from.
"""

from __future__ import annotations

import numpy as np


def response_table(count: int, epsilon: float) -> np.ndarray:
    """How often each code is told, (true code, told code).

    >>> response_table(3, float(np.log(2))).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    other = 1 / (np.exp(epsilon) + count - 1)
    return np.full((count, count), other) + np.eye(count) * (1 - count * other)


def randomised(
    codes: np.ndarray, count: int, epsilon: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Each code told with its own epsilon; at 0 what is told has nothing to do with the code."""
    told = rng.random(len(codes)) < 1 / (1 + (count - 1) * np.exp(-epsilon))
    # Any other one: so many steps further round, of 1 to count - 1.
    steps = rng.integers(1, max(count, 2), size=len(codes))
    return np.where(told, codes, (codes + steps) % count)


def within_budget(
    epsilon: np.ndarray, budget: np.ndarray, group: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """The epsilon of each window, and 0 from where its group's budget would be overdrawn.

    Epsilons add up (basic composition): the windows of a group together are as private as the
    sum says, however they depend on each other. Once stopped, a group stays stopped.

    >>> group, start = np.zeros(4, int), np.arange(4)
    >>> within_budget(np.full(4, 0.5), np.full(4, 1.2), group, start)
    array([0.5, 0.5, 0. , 0. ])
    """
    order = np.lexsort([start, group])
    spent: dict[int, float] = {}
    allowed = np.zeros(len(epsilon))
    for place in order:
        whose = int(group[place])
        after = spent.get(whose, 0.0) + float(epsilon[place])
        if after <= budget[place] * (1 + 1e-12):
            allowed[place] = epsilon[place]
            spent[whose] = after
        else:
            spent[whose] = np.inf
    return allowed
