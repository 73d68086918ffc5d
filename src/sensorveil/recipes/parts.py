"""All that can be measured of a recipe, by name."""

from __future__ import annotations

from typing import Any

from sensorveil.recipes import cloak_parts as cloak
from sensorveil.recipes import csi_parts as csi
from sensorveil.recipes import diffusion_parts as diffusion
from sensorveil.recipes import obscurenet_parts as obscurenet
from sensorveil.recipes.plan import Done, Plan
from sensorveil.recipes.recipe import Recipe
from sensorveil.recipes.reproduce import accuracies

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
