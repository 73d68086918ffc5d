"""Prints how tight the counted bound is, as two Markdown tables: python -m benchmarks.seal_bound.

Simulated people, whose codes are made from the very values behind their windows. The first table
has a code that tells nothing, the second one absolute bins that tell a known amount.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from sensorveil.data.population import Truth
from sensorveil.data.simulated import Simulated
from sensorveil.methods.seal_bound import Bound, bound_code


def simulated_code(truth: Truth, bins: int, relative: bool) -> np.ndarray:
    """Activity x bin of cadence x bin of intensity, among everybody or in one's own past."""
    values, activity = truth.values[:, :2], truth.labels["activity"]
    if relative:
        each = values.reshape(-1, truth.per_recording, 2)
        earlier = np.tri(truth.per_recording, k=-1, dtype=bool)[None, :, :, None]
        below = ((each[:, None] < each[:, :, None]) & earlier).sum(2)
        rank = (below + 0.5) / (np.arange(truth.per_recording)[:, None] + 1)
        cadence, intensity = (rank.reshape(-1, 2) * bins).astype(int).T
    else:
        offset = values - truth.population.centres({"activity": activity})[:, :2]
        spread = math.hypot(truth.population.identity, truth.population.jitter)
        cuts = [NormalDist(0, spread).inv_cdf(part / bins) for part in range(1, bins)]
        cadence, intensity = np.searchsorted(cuts, offset).T
    return (activity * bins + cadence) * bins + intensity


def simulated_truth(bins: int, relative: bool, **options: float) -> tuple[float, float]:
    """Advantage and telling share of the code, mean over six times ten thousand people."""
    found = []
    for seed in range(900, 906):
        truth = Simulated(people=10_000, seed=seed, **options).truth
        codes = simulated_code(truth, bins, relative)
        joint = np.zeros((codes.max() + 1, 2))
        np.add.at(joint, (codes, truth.labels["gender"]), 1 / len(codes))
        prior = joint.sum(0)
        found.append((joint.max(1).sum() - prior.max(), 1 - (joint / prior).min(1).sum()))
    advantage, telling = np.mean(found, axis=0)
    return float(advantage), float(telling)


def simulated_bounds(
    count: int, bins: int, relative: bool, people: int = 500, **options: float
) -> list[Bound]:
    """The bounds of so many samples of people."""
    found = []
    for seed in range(count):
        truth = Simulated(people=people, seed=seed, **options).truth
        codes = simulated_code(truth, bins, relative)
        found.append(bound_code(codes, truth.labels["gender"], truth.labels["subject"]))
    return found


def row_of_no_leak(people: int) -> str:
    """A row of the first table: a code relative to the past, ten samples."""
    bounds = simulated_bounds(10, 3, True, people=people, gender=2.0)
    vacuous = " (vacuous)" if all(bound.vacuous for bound in bounds) else ""
    return f"| {people} | {100 * np.mean([bound.advantage for bound in bounds]):.1f}{vacuous} |"


def row_of_leak(gender: float, people: int, count: int = 200) -> str:
    """A row of the second table: absolute bins and an effect of gender on gait.

    Truth in points, people, mean and worst ratio of bound to truth, how often the bound is at most
    twice the truth, and the number of samples in which it was below the truth.
    """
    advantage, telling = simulated_truth(3, False, gender=gender)
    bounds = simulated_bounds(count, 3, False, people=people, gender=gender)
    ratio = np.array([bound.advantage for bound in bounds]) / advantage
    within = f"{np.mean(ratio <= 2):.1%} of the samples" if (ratio > 2).any() else "all"
    below = sum(b.advantage < advantage or b.telling < telling for b in bounds)
    shown = (f"{100 * advantage:.1f}", people, f"{ratio.mean():.2f}", f"{ratio.max():.2f}")
    return " ".join(f"| {cell}" for cell in (*shown, within, below)) + " |"


if __name__ == "__main__":
    for people in (6, 12, 24, 100, 500):
        print(row_of_no_leak(people), flush=True)
    print()
    for gender, people in ((0.56, 500), (0.6, 500), (0.7, 500), (0.6, 750), (0.6, 1000)):
        print(row_of_leak(gender, people), flush=True)
