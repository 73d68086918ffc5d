"""What ObscureNet's paper measures beside its tables of accuracies."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sensorveil.measures.timing import median_seconds
from sensorveil.methods.obscurenet import ObscureNet
from sensorveil.methods.together import training_seconds
from sensorveil.recipes.plan import Done, Plan, raw_models, read_by
from sensorveil.recipes.recipe import Recipe
from sensorveil.recipes.reproduce import fitted


def grid(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """Figures 5 and 6: the fixed models for every alpha and beta, deterministic modifier."""
    asked = recipe.parts["grid"]
    pairs = [(alpha, beta) for alpha in asked["alpha"] for beta in asked["beta"]]
    models = raw_models(recipe, plan)
    obfuscators = [
        plan.made(
            recipe,
            "obscurenet",
            seed,
            {"modifier": "deterministic", "alpha": alpha, "beta": beta},
        )
        for alpha, beta in pairs
        for seed in plan.seeds
    ]
    fitted(obfuscators, recipe, plan, {})
    found: dict[str, Any] = {"points": []}
    for number, (alpha, beta) in enumerate(pairs):
        own = obfuscators[number * len(plan.seeds) : (number + 1) * len(plan.seeds)]
        hidden = [obfuscator.obfuscate(plan.split.test, seed=obfuscator.seed) for obfuscator in own]
        read = read_by(recipe, plan, models, hidden)
        found["points"].append({"alpha": alpha, "beta": beta, **read})
    done(found)
    return found


def timing(recipe: Recipe, plan: Plan, done: Done, windows: int = 10_000) -> dict[str, Any]:
    """Table 5: seconds a window of each stage, and of one window and many through all of them."""
    given = {"modifier": "probabilistic", "read_hidden": True, "epochs": 1, "reader_epochs": 1}
    obfuscator = plan.made(recipe, "obscurenet", plan.seeds[0], given)
    assert isinstance(obfuscator, ObscureNet)
    obfuscator.fit(
        plan.split.train, recipe.keep, recipe.hide
    )  # speed does not depend on the weights
    some = plan.split.test.select(np.arange(windows) % len(plan.split.test))
    single, randomized = some.select([0]).compact(), obfuscator.with_modifier("randomized")
    stages = {
        "in one batch": obfuscator.with_modifier("deterministic").stage_seconds(some),
        "one by one": obfuscator.with_modifier("deterministic").stage_seconds(single, repeats=500),
    }
    found = {
        "paper": dict(recipe.paper),
        "threads": torch.get_num_threads(),
        "seconds_a_window": stages,
        "randomized_one_window": median_seconds(lambda: randomized.obfuscate(single, seed=1), 500),
        "randomized_windows_a_second": windows
        / median_seconds(lambda: randomized.obfuscate(some, seed=1), 5),
    }
    done(found)
    return found


def training(recipe: Recipe, plan: Plan, done: Done, epochs: int = 10) -> dict[str, Any]:
    """All class networks in one batched pass against one by one, twice each, in one run."""
    obfuscator = plan.made(recipe, "obscurenet", plan.seeds[0], {"reader_epochs": 1})
    assert isinstance(obfuscator, ObscureNet)
    obfuscator.settings = obfuscator.settings.with_changes(dict(epochs=epochs))
    found: dict[str, Any] = {"epochs": epochs, "threads": torch.get_num_threads()}
    found |= training_seconds(obfuscator, plan.split.train, recipe.keep, recipe.hide)
    found["ratio"] = found["one by one"] / found["batched"]
    done(found)
    return found
