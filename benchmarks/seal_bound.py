"""Whether Seal's counted bound holds, and how far it is above the truth: samples of simulated people.

    python -m benchmarks.seal_bound --out benchmarks/results/seal-bound.json

Codes are drawn from a known table of p(code | class), or made from simulated gait whose distribution
is known. So the truth, the posterior Bayes vulnerability, is computed and not estimated.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from benchmarks.run import commit
from sensorveil.conditions import conditions
from sensorveil.data.population import Truth
from sensorveil.data.simulated import Simulated
from sensorveil.files import write_json
from sensorveil.methods.seal_bound import CONFIDENCE, bound_code

WINDOWS = 20
"""Windows of each person."""
GENDER = 2.0
"""Strength of gender in simulated gait."""
BINS = 3
"""Bins of cadence, and of intensity, in codes of simulated gait."""

Sample = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Code, class and person of each window."""


@dataclass(frozen=True)
class Case:
    """A kind of codes.

    Parameters
    ----------
    name
        The row's name.
    truth
        Posterior Bayes vulnerability of the class.
    draw
        Makes a sample from a number of people and a seed.
    """

    name: str
    truth: float
    draw: Callable[[int, int], Sample]


def draw_codes(channel: np.ndarray, windows: int, own: float, people: int, seed: int) -> Sample:
    """People of evenly frequent classes, whose codes have the distribution of their class.

    Parameters
    ----------
    channel
        p(code | class), (classes, codes).
    windows
        Number of windows of each person.
    own
        How likely a window has the person's own code, which is drawn once; others draw anew. 1: one
        code a person, 0: independent windows.
    people, seed
        Number of people, and the seed.

    Examples
    --------
    >>> codes, label, person = draw_codes(np.eye(2), 3, 0.5, people=2, seed=0)
    >>> codes, person
    (array([0, 0, 0, 1, 1, 1]), array([0, 0, 0, 1, 1, 1]))
    """
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), windows)
    label = person % len(channel)
    own_draw, new_draw = rng.random(people)[person], rng.random(len(person))
    drawn = np.where(rng.random(len(person)) < own, own_draw, new_draw)
    cuts = np.cumsum(channel, axis=1)[:, :-1]
    return (drawn[:, None] > cuts[label]).sum(1), label, person


def vulnerability(channel: np.ndarray) -> float:
    """Posterior Bayes vulnerability of evenly frequent classes.

    >>> vulnerability(np.array([[0.75, 0.25], [0.25, 0.75]]))
    0.75
    """
    return float(channel.max(0).sum() / len(channel))


def draw_gait(own_past: bool, people: int, seed: int) -> Sample:
    """Codes of simulated gait: absolute bins, or ranks in the recording's own past."""
    simulated = Simulated(
        people=people, seed=seed, gender=GENDER, recordings=1, windows=WINDOWS // 4
    )
    truth = simulated.truth
    bins = _ranks(truth) if own_past else _absolute(truth)
    codes = np.ravel_multi_index((truth.labels["activity"], *bins.T), (4, BINS, BINS))
    return codes, truth.labels["gender"], truth.labels["subject"]


def _ranks(truth: Truth) -> np.ndarray:
    """Bins of the rank of cadence and intensity among earlier windows: gender cancels out."""
    each = truth.values[:, :2].reshape(-1, truth.per_recording, 2)
    earlier = np.tri(truth.per_recording, k=-1, dtype=bool)[None, :, :, None]
    below = ((each[:, None] < each[:, :, None]) & earlier).sum(2)
    rank = (below + 0.5) / (np.arange(truth.per_recording)[:, None] + 1)
    return (rank.reshape(-1, 2) * BINS).astype(int)


def _absolute(truth: Truth) -> np.ndarray:
    """Bins of cadence and intensity among all people in one activity."""
    activity = {"activity": truth.labels["activity"]}
    offset = truth.values[:, :2] - truth.population.centres(activity)[:, :2]
    return np.searchsorted(_cuts(truth), offset)


def _cuts(truth: Truth) -> list[float]:
    spread = math.hypot(truth.population.identity, truth.population.jitter)
    return [NormalDist(0, spread).inv_cdf(part / BINS) for part in range(1, BINS)]


def gait_vulnerability() -> float:
    """Posterior Bayes vulnerability of gender in absolute bins.

    In each class the cadence is normal. Activity and intensity do not depend on gender.
    """
    truth = Simulated(people=6, gender=GENDER, windows=1).truth
    population = truth.population
    spread = math.hypot(population.identity, population.jitter)
    classes = [NormalDist(mean, spread) for mean in population.means("gender")[:, 0]]
    below = [[0.0, *(one.cdf(cut) for cut in _cuts(truth)), 1.0] for one in classes]
    return vulnerability(np.diff(below, axis=1))


def cases() -> list[Case]:
    """All kinds of codes, by how windows of a person depend on each other."""
    channels = {
        "6 codes that tell nothing": np.full((2, 6), 1 / 6),
        "6 codes that tell": np.array(
            [[0.30, 0.25, 0.15, 0.15, 0.10, 0.05], [0.05, 0.10, 0.15, 0.15, 0.25, 0.30]]
        ),
        "45 codes that tell nothing": np.full((2, 45), 1 / 45),
    }
    owns = {"one for each person": 1.0, "half of the windows": 0.5, "independent windows": 0.0}
    found = [
        Case(f"{name}, {how}", vulnerability(table), partial(draw_codes, table, WINDOWS, own))
        for name, table in channels.items()
        for how, own in owns.items()
    ]
    # Ranks depend on jitter alone, which has the same distribution in both classes.
    gait = "36 codes of simulated gait"
    found.append(Case(f"{gait}, ranks in one's own past", 0.5, partial(draw_gait, True)))
    absolute = partial(draw_gait, False)
    return [*found, Case(f"{gait}, absolute bins", gait_vulnerability(), absolute)]


def measure(case: Case, people: int, samples: int) -> dict[str, Any]:
    """A row of the table: how often the bound holds, and its median beside the truth.

    >>> measure(cases()[0], 500, 2)["bound holds, %"]
    100.0
    """
    found = [bound_code(*case.draw(people, seed)) for seed in range(samples)]
    accuracy = np.array([bound.accuracy for bound in found])
    median = float(np.median(accuracy))
    return {
        "codes": case.name,
        "majority baseline": float(np.median([bound.guess for bound in found])),
        "truth": case.truth,
        "bound holds, %": 100 * float(np.mean(accuracy >= case.truth)),
        "median bound": median,
        "median above truth": median - case.truth,
    }


def main() -> None:
    """Measure all kinds of codes, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=500)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    rows = [measure(case, asked.people, asked.samples) for case in cases()]
    title = (
        f"Seal's counted bound at {CONFIDENCE:.0%} confidence, {asked.people} people with"
        f" {WINDOWS} windows each, {asked.samples} samples (as shares, where no % is named)"
    )
    result = {
        "conditions": {**conditions("cpu"), "commit": commit()},
        "data": "simulated people",
        "seeds": [f"0 to {asked.samples - 1}"],
        "tables": {title: rows},
    }
    write_json(asked.out, result)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
