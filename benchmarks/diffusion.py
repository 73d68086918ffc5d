"""What the papers of guided diffusion measure beside their tables of accuracies.

Strengths, samplers and negative targets change without training again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import numpy as np

from benchmarks.accuracy import trained_rows
from benchmarks.diffusion_costs import sampling_seconds
from benchmarks.plan import (
    Done,
    Models,
    Plan,
    adjusted,
    fixed_scores,
    outputs_of,
    raw_models,
    scores_of,
)
from benchmarks.recipe import Recipe
from benchmarks.timing import median_seconds
from sensorveil.audit.attackers import Budget
from sensorveil.audit.results import AttributeAudit
from sensorveil.audit.runner import run_attacks
from sensorveil.audit.threat_models import Fold, obfuscate_fold, thinned
from sensorveil.audit.utility import kept_attribute
from sensorveil.classifiers import Classifier
from sensorveil.data.windows import Windows
from sensorveil.information import mutual_information_mine, window_features
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.negative_guidance import NegativelyGuided
from sensorveil.progress import track


def tradeoff(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """Accuracy of fixed models for every pair of strengths, with the same noise for all pairs."""
    asked = recipe.parts["tradeoff"]
    test, obfuscators = _test_windows(plan, asked), _trained(recipe, plan, asked)
    models = raw_models(recipe, plan)
    found: dict[str, Any] = {
        "seeds": [obfuscator.seed for obfuscator in obfuscators],
        "settings": obfuscators[0].about(),
        "windows": len(test),
        "raw": fixed_scores(recipe, plan, models, [test] * len(obfuscators)),
        "points": [],
    }
    pairs = [*product(asked["guidance_scale"], asked["negative_scale"])]
    for towards, away in track(pairs, "strengths"):
        strength = {"guidance_scale": towards, **dict.fromkeys(recipe.hide, away)}
        scores = fixed_scores(recipe, plan, models, outputs_of(obfuscators, test, strength))
        found["points"].append({"guidance_scale": towards, "negative_scale": away, **scores})
        done(found)
    return found


def variants(recipe: Recipe, plan: Plan, done: Done, part: str) -> dict[str, Any]:
    """Other settings on the same weights: scores on their output, and seconds a window.

    Hidden attributes are predicted by fixed models, and by models that are trained on the output of
    `windows` training windows with true labels (`retrained`).
    """
    asked = recipe.parts[part]
    obfuscators, models = _trained(recipe, plan, asked), raw_models(recipe, plan)
    train = thinned(plan.split.train, asked["windows"], seed=0)
    found: dict[str, Any] = {
        "seeds": [obfuscator.seed for obfuscator in obfuscators],
        "windows": len(plan.test),
        "training_windows": len(train),
        "rows": [],
    }
    for settings in track(asked["each"], part):
        others = [adjusted(obfuscator, plan.split.train, settings) for obfuscator in obfuscators]
        hidden = outputs_of(others, plan.test)
        found["rows"].append(
            {
                "settings": settings,
                "all_settings": others[0].about(),
                "seconds_a_window": sampling_seconds(_guided(others[0]), plan.test),
                "retrained": {
                    name: _retrained(recipe, plan, others, train, hidden, name)
                    for name in recipe.hide
                },
                **fixed_scores(recipe, plan, models, hidden),
            }
        )
        done(found)
    return found


def _retrained(
    recipe: Recipe,
    plan: Plan,
    obfuscators: Sequence[Obfuscator],
    train: Windows,
    hidden: Sequence[Windows],
    name: str,
) -> Mapping[str, Any]:
    """Scores of models trained on obfuscated windows with true labels."""
    predicted = [
        Classifier(plan.inference, obfuscator.seed, plan.device).fit(learnt, name).predict(output)
        for obfuscator, learnt, output in zip(
            obfuscators, outputs_of(obfuscators, train, first_seed=1_000), hidden, strict=True
        )
    ]
    return scores_of(hidden[0], name, recipe.keep[0], predicted)


def validated(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """Accuracy of fixed models on validation windows for each of some settings, to choose by.

    Methods and models learn from the fitting windows, with all seeds; given runs have learnt from
    the validation windows too, so they are not used. `read_as` is how often each hidden class is
    predicted.
    """
    asked, recipe = recipe.parts["validated"], replace(recipe.only_last(), unlisted=())
    plan = replace(plan, split=plan.split.for_validation(), runs=(), windows=asked["windows"])
    models, test = raw_models(recipe, plan), plan.test
    found: dict[str, Any] = {
        "seeds": list(plan.seeds),
        "windows": len(test),
        "raw": fixed_scores(recipe, plan, models, [test] * len(plan.seeds)),
        "rows": [],
    }
    if test.origin:
        found["data"] = asdict(test.origin)
    ((_, obfuscators),) = trained_rows(recipe, plan)
    for settings in track(asked["each"], "choices"):
        others = [_guided(obfuscator).with_settings(**settings) for obfuscator in obfuscators]
        hidden = outputs_of(others, test)
        found["rows"].append(
            {
                "settings": settings,
                "all_settings": others[0].about(),
                **fixed_scores(recipe, plan, models, hidden),
                "read_as": {
                    name: {
                        kind: _shares(plan, models, hidden, name, kind)
                        for kind in ("read", "read_dense")
                    }
                    for name in recipe.hide
                },
            }
        )
        done(found)
    return found


def _shares(
    plan: Plan, models: Models, outputs: Sequence[Windows], name: str, kind: str
) -> dict[str, float]:
    """The share of windows for which each class is predicted."""
    predicted = np.stack(
        [
            models[kind, seed, name].predict(windows)
            for seed, windows in zip(plan.seeds, outputs, strict=True)
        ]
    )
    classes = outputs[0].classes[name]
    return {label: float((predicted == code).mean()) for code, label in enumerate(classes)}


def chosen(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """What attackers find in validation windows for each of some settings, to choose by.

    The methods learn from the fitting windows, with the first seed (and, for lazy attackers, the
    one after it); so do attackers, but for insiders, who learn from half of the validation windows.
    `by kept class` is the best accuracy from the windows' true kept class, in hindsight.
    """
    asked, split, row = recipe.parts["chosen"], plan.split, recipe.rows[-1]
    budget = Budget.quick() if asked.get("quick") else Budget()
    look, seed = split.for_validation(), plan.seeds[0]
    first, second = (
        _guided(
            plan.made(recipe, row.method, one, row.settings).fit(
                look.train, recipe.keep, recipe.hide
            )
        )
        for one in (seed, seed + 1)
    )
    found: dict[str, Any] = {"seeds": [seed], "windows": len(look.test), "rows": []}
    if look.test.origin:
        found["data"] = asdict(look.test.origin)
    for settings in track(asked["each"], "choices"):
        fold = Fold(first.with_settings(**settings), look, second.with_settings(**settings))
        output = obfuscate_fold(fold, None, 0, budget)
        kept = kept_attribute(
            [look],
            [[output.train]],
            [[output.test]],
            recipe.keep[0],
            device=plan.device,
            quick=asked.get("quick", False),
        )
        attacked = run_attacks([fold], {(0, 0): output}, recipe.hide, (0,), budget, plan.device)
        found["rows"].append(
            {
                "settings": settings,
                "kept": {"raw": kept.raw.value, "unchanged": kept.unchanged.value},
                "hidden": {
                    one.attribute: _attacks(one, look.test, recipe.keep[0]) for one in attacked
                },
            }
        )
        done(found)
    return found


def _attacks(hidden: AttributeAudit, test: Windows, keep: str) -> dict[str, Any]:
    """The accuracies of all attackers on an attribute."""
    codes, kept = test.codes(hidden.attribute), test.codes(keep)
    likeliest = [np.bincount(codes[kept == one]).max() for one in np.unique(kept)]
    return {
        "majority": hidden.majority,
        "by kept class": float(np.sum(likeliest) / len(test)),
        "verdict": hidden.verdict.status,
        "reason": hidden.verdict.reason,
        "attacks": [
            {
                "threat_model": one.threat_model,
                "attacker": one.attacker,
                "accuracy": one.accuracy.value,
                "auc": one.auc.value,
            }
            for one in hidden.attacks
        ],
    }


def information(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """MINE's estimate of the bits about each attribute in the output, for several weights."""
    asked = recipe.parts["information"]
    test, obfuscators = _test_windows(plan, asked), _trained(recipe, plan, asked)
    found: dict[str, Any] = {
        "seeds": [obfuscator.seed for obfuscator in obfuscators],
        "settings": obfuscators[0].about(),
        "windows": len(test),
        "raw": _bits(recipe, plan, test),
        "points": [],
    }
    scale = asked["guidance_scale"]
    for away in track(asked["negative_scale"], "weights"):
        strength = {"guidance_scale": scale, **dict.fromkeys(recipe.hide, away)}
        each = [_bits(recipe, plan, one) for one in outputs_of(obfuscators, test, strength)]
        bits = {name: [one[name] for one in each] for name in recipe.attributes}
        found["points"].append({"guidance_scale": scale, "negative_scale": away, "bits": bits})
        done(found)
    return found


def _bits(recipe: Recipe, plan: Plan, windows: Windows) -> dict[str, float]:
    features = window_features(windows.signal)
    return {
        name: mutual_information_mine(
            features,
            windows.codes(name),
            groups=windows.recording,
            quick=recipe.parts["information"].get("quick", False),
            device=plan.device,
        )
        for name in recipe.attributes
    }


def cost(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """Seconds a window of sampling, by how many attributes are kept and hidden."""
    asked, name = recipe.parts["cost"], recipe.rows[-1].method
    some = thinned(plan.split.train, asked["windows"], seed=0)
    # Speed does not depend on the weights, so that little training will do.
    brief = {"epochs": 1, "surrogate_epochs": 1, "negative_target": "predicted"}
    found: dict[str, Any] = {"paper": dict(recipe.paper), "rows": []}
    for keep, hide in track(asked["each"], "policies"):
        obfuscator = plan.made(recipe, name, plan.seeds[0], brief).fit(some, keep, hide)
        seconds = sampling_seconds(_guided(obfuscator), some)
        found["rows"].append({"keep": keep, "hide": hide, "seconds_a_window": seconds})
        done(found)
    return found


def growth(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """Seconds to add one hidden attribute, and seconds of the whole training."""
    asked = recipe.parts["growth"]
    obfuscator, more = _trained(recipe, plan, asked)[0], asked["hide"]
    whole = obfuscator.metrics_["seconds"]
    added = median_seconds(
        lambda: obfuscator.add_hidden(plan.split.train, more), repeats=1, warm=False
    )
    found = {
        "seeds": [obfuscator.seed],
        "hide": more,
        "training": whole,
        "one more": added,
        "ratio": added / whole,
    }
    done(found)
    return found


def _test_windows(plan: Plan, asked: Mapping[str, Any]) -> Windows:
    """The test windows, or as many of them as a part asks for."""
    return thinned(plan.test, asked.get("test", len(plan.test)), seed=0)


def _trained(recipe: Recipe, plan: Plan, asked: Mapping[str, Any]) -> list[NegativelyGuided]:
    """Trained methods of the recipe's last row, of as many seeds and with settings as asked."""
    ((_, obfuscators),) = trained_rows(recipe.only_last(), plan)
    with_settings = asked.get("with_settings", {})
    return [
        _guided(obfuscator).with_settings(**with_settings)
        for obfuscator in obfuscators[: asked.get("seeds")]
    ]


def _guided(obfuscator: Obfuscator) -> NegativelyGuided:
    assert isinstance(obfuscator, NegativelyGuided), f"{obfuscator.name} is not guided"
    return obfuscator
