"""Paired comparison of two methods on the same people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sensorveil.errors import Refusal


class PairedDifference(NamedTuple):
    """Mean difference over people, its 95% interval, and the chance of one as large by luck."""

    value: float
    low: float
    high: float
    p_value: float


def paired_difference(
    first: Mapping[str, float], second: Mapping[str, float], seed: int = 0, draws: int = 10_000
) -> PairedDifference:
    """First minus second over the people that both have: bootstrap and sign-flip test.

    If the methods were alike, each person's difference could as well have the other sign.

    >>> many = {str(person): 0.9 for person in range(20)}
    >>> few = {str(person): 0.5 for person in range(20)}
    >>> paired_difference(many, few).p_value < 0.001
    True
    """
    people = sorted(set(first) & set(second))
    if len(people) < 2:
        raise Refusal("fewer than two people are in both results; nothing can be compared")
    gap = np.array([first[person] - second[person] for person in people])
    generator = np.random.default_rng(seed)
    drawn = gap[generator.integers(len(gap), size=(draws, len(gap)))].mean(1)
    signs = generator.choice([-1.0, 1.0], size=(draws, len(gap)))
    as_large = (np.abs((signs * gap).mean(1)) >= abs(gap.mean()) - 1e-12).sum()
    low, high = np.quantile(drawn, [0.025, 0.975])
    return PairedDifference(
        float(gap.mean()), float(low), float(high), float((as_large + 1) / (draws + 1))
    )
