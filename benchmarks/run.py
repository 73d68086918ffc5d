"""All that can be measured of a recipe, by name."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from benchmarks import cloak, csi, diffusion, obscurenet
from benchmarks.accuracy import accuracies
from benchmarks.plan import Done, Plan
from benchmarks.recipe import Recipe

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


def commit() -> str | None:
    """The commit of this checkout, "+" where files were changed since; None without git."""
    if shutil.which("git") is None:
        return None
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    found = subprocess.run(
        command, cwd=Path(__file__).parent, check=False, capture_output=True, text=True
    )
    return found.stdout.strip() or None
