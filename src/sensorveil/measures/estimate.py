"""Figures with their intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np

from sensorveil.errors import Refusal

DRAWS = 1000
"""Bootstrap draws; the ends of a 95% interval then vary by about a tenth of its width."""

Statistic = Callable[[np.ndarray], np.ndarray]
"""Takes tables with any leading axes and returns one value for each of them."""


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that would hold it in 95 of 100 samples of people and seeds.

    `spread` is the standard deviation over seeds, where there are several. With fewer than about
    fifteen people the interval is too narrow (it then covers 80 to 90%), and `people` says so.

    >>> print(Estimate(0.971, 0.955, 0.983, people=24, seeds=3))
    97.1% (95.5 to 98.3)
    """

    value: float
    low: float
    high: float
    people: int
    seeds: int = 1
    spread: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.1%} ({100 * self.low:.1f} to {100 * self.high:.1f})"

    def above(self, level: float) -> Estimate:
        """The same estimate counted from a fixed level, as an advantage over guessing is."""
        return replace(self, value=self.value - level, low=self.low - level, high=self.high - level)

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON."""
        return asdict(self)


def bootstrap(
    tables: np.ndarray,
    statistic: Statistic,
    rng: np.random.Generator,
    draws: int = DRAWS,
    tail: float = 0.05,
) -> Estimate:
    """An estimate from tables (seeds, people, ...), resampling people and seeds.

    Windows of one person are alike, so people, not windows, are drawn. Each draw adds up the
    tables of the people drawn (and averages over the seeds drawn) before the statistic is taken.
    `tail` is the part of the draws outside the interval.

    >>> tables = np.array([[[9, 10], [8, 10], [10, 10]]])  # right answers and windows, 3 people
    >>> share = lambda table: table[..., 0] / table[..., 1]
    >>> estimate = bootstrap(tables, share, np.random.default_rng(0))
    >>> estimate.value, estimate.low, estimate.high
    (0.9, 0.8, 1.0)
    """
    seeds, people = tables.shape[:2]
    if people == 0:
        raise Refusal("no person to estimate from")
    flat = tables.reshape(seeds, people, -1).astype(np.float64)
    rest = tables.shape[2:]
    person = rng.multinomial(people, np.full(people, 1 / people), size=draws)
    seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws) / seeds
    drawn = np.einsum("ds,dp,spk->dk", seed, person, flat, optimize=True)
    values = statistic(drawn.reshape(draws, *rest))
    low, high = np.nanquantile(values, [tail / 2, 1 - tail / 2])
    each = statistic(flat.sum(1).reshape(seeds, *rest))
    whole = statistic(flat.sum(1).mean(0).reshape(1, *rest))[0]
    return Estimate(
        value=float(whole),
        low=float(low),
        high=float(high),
        people=people,
        seeds=seeds,
        spread=float(np.std(each, ddof=1)) if seeds > 1 else None,
    )
