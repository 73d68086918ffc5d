"""What the paper of CLOAK measures beside its tables of accuracies: figure 5, table VI, MaSS."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.accuracy import trained_rows
from benchmarks.diffusion_costs import information_over_training, overhead
from benchmarks.plan import Done, Plan, fixed_scores, made, outputs_of, raw_models, scores_of
from benchmarks.recipe import Recipe
from benchmarks.timing import median_seconds
from sensorveil.audit.threat_models import thinned
from sensorveil.methods.cloak import Cloak
from sensorveil.methods.negative_guidance import NegativelyGuided
from sensorveil.progress import track


def over_training(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """Figure 5: bits about every attribute in z_U after each epoch of the encoder.

    They are estimated on `windows` test windows, for all runs or the first `seeds` of them.
    """
    asked = recipe.parts["over_training"]
    held = thinned(plan.split.test, asked["windows"], seed=0)
    obfuscators = _cloaks(recipe, plan)[: asked.get("seeds")]
    found: dict[str, Any] = {
        "seeds": [obfuscator.seed for obfuscator in obfuscators],
        "windows": len(held),
        "seeds_bits": [],
    }
    for obfuscator in track(obfuscators, "seeds"):
        bits = information_over_training(
            obfuscator, plan.split.train, held, quick=asked.get("quick", False)
        )
        found["seeds_bits"].append(bits)
        done(found)
    return found


def costs(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """Table VI: parameters, size and time of each method, in a batch and window by window.

    The method is that of the last row. Speed and size do not depend on the weights, so that little
    training will do.
    """
    asked = recipe.parts["overhead"]
    some = thinned(plan.split.train, asked["windows"], seed=0)
    single = some.select([0]).compact()
    found: dict[str, Any] = {"paper": dict(recipe.paper), "windows": len(some), "rows": []}
    for preset in track(asked["presets"], "presets"):
        brief = {"epochs": 1, "encoder_epochs": 1, "autoencoder_epochs": 1, **plan.overrides}
        name = recipe.rows[-1].method
        obfuscator = made(recipe, name, preset, plan.seeds[0], plan.device, brief)
        assert isinstance(obfuscator, NegativelyGuided), f"{name} is not guided"
        obfuscator.fit(some, recipe.keep, recipe.hide)
        one = median_seconds(partial(obfuscator.obfuscate, single, seed=1), asked["repeats"])
        found["rows"].append({"preset": preset, **overhead(obfuscator, some), "seconds_alone": one})
        done(found)
    return found


def tuned(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """Each row with the application as it is, and with one that was tuned to the output.

    The paper gives MaSS an application that is trained for 100 epochs more, on obfuscated training
    windows with true labels and at its own settings; here all rows have one.
    """
    epochs, test, models = recipe.parts["tuned"]["epochs"], plan.test, raw_models(recipe, plan)
    found: dict[str, Any] = {"epochs": epochs, "windows": len(test), "rows": []}
    for row, obfuscators in trained_rows(recipe, plan):
        hidden = outputs_of(obfuscators, test, row.strength)
        learnt = outputs_of(obfuscators, plan.split.train, row.strength, first_seed=1_000)
        tuned_codes = {name: list[np.ndarray]() for name in recipe.keep}
        for name, predicted in tuned_codes.items():
            for seed, before, after in zip(plan.seeds, learnt, hidden, strict=True):
                model = models["read", seed, name].fine_tuned(before, name, epochs)
                predicted.append(model.predict(after))
        found["rows"].append(
            {
                "label": row.label,
                "paper": dict(row.paper),
                "tuned": {n: scores_of(test, n, recipe.keep[0], p) for n, p in tuned_codes.items()},
                **fixed_scores(recipe, plan, models, hidden),
            }
        )
        done(found)
    return found


def _cloaks(recipe: Recipe, plan: Plan) -> list[Cloak]:
    *_, (_, obfuscators) = trained_rows(recipe.only_last(), plan)
    found = [obfuscator for obfuscator in obfuscators if isinstance(obfuscator, Cloak)]
    assert found, f"the last row of {recipe.name} is not CLOAK"
    return found
