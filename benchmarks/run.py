"""All that can be measured of a recipe, by name.

    python -m benchmarks.run obscurenet-motionsense-gender --out measured

is `sensorveil papers reproduce`.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import cloak as cloak
from benchmarks import csi as csi
from benchmarks import diffusion as diffusion
from benchmarks import obscurenet as obscurenet
from benchmarks.accuracy import accuracies
from benchmarks.plan import Done, Plan
from benchmarks.recipe import Recipe
from sensorveil.cli.main import main

_WORK = {
    "grid": obscurenet.grid,
    "timing": obscurenet.timing,
    "training": obscurenet.training,
    "tradeoff": diffusion.tradeoff,
    "chosen": diffusion.chosen,
    "validated": diffusion.validated,
    "information": diffusion.information,
    "cost": diffusion.cost,
    "growth": diffusion.growth,
    "over_training": cloak.over_training,
    "overhead": cloak.costs,
    "tuned": cloak.tuned,
    "donors": csi.donors,
}
_VARIANTS = ("samplers", "avoided")


def measure(part: str, recipe: Recipe, plan: Plan, done: Done, leaks: int = 0) -> dict[str, Any]:
    """Measures one part; `done` is given what there is so far, and at the end all of it."""
    if part == "accuracy":
        return accuracies(recipe, plan, done, leaks)
    if part in _VARIANTS:
        return diffusion.variants(recipe, plan, done, part)
    if part in csi.GAINS:
        return csi.gains(recipe, plan, done, part)
    return _WORK[part](recipe, plan, done)


if __name__ == "__main__":
    sys.argv[1:1] = ["papers", "reproduce"]
    main()
