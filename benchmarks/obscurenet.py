"""What ObscureNet's paper measures beside its tables of accuracies."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.accuracy import fitted
from benchmarks.plan import Done, Plan, fixed_scores, outputs_of, raw_models
from benchmarks.recipe import Recipe
from benchmarks.timing import median_seconds
from sensorveil.data.windows import Windows
from sensorveil.methods.obscurenet import NetworkData, ObscureNet


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
        scores = fixed_scores(recipe, plan, models, outputs_of(own, plan.split.test))
        found["points"].append({"alpha": alpha, "beta": beta, **scores})
    done(found)
    return found


def timing(recipe: Recipe, plan: Plan, done: Done, windows: int = 10_000) -> dict[str, Any]:
    """Table 5: seconds a window of each stage, and of one window and many through all of them."""
    given = {
        "modifier": "probabilistic",
        "train_hidden_classifiers": True,
        "epochs": 1,  # speed does not depend on the weights
        "classifier.epochs": 1,
    }
    obfuscator = plan.made(recipe, "obscurenet", plan.seeds[0], given)
    assert isinstance(obfuscator, ObscureNet)
    obfuscator.fit(plan.split.train, recipe.keep, recipe.hide)
    deterministic = obfuscator.with_settings(modifier="deterministic")
    randomized = obfuscator.with_settings(modifier="randomized")
    some = plan.split.test.select(np.arange(windows) % len(plan.split.test))
    single = some.select([0]).compact()
    found = {
        "paper": dict(recipe.paper),
        "threads": torch.get_num_threads(),
        "seconds_a_window": {
            "in one batch": stage_seconds(deterministic, some),
            "one by one": stage_seconds(deterministic, single, repeats=500),
        },
        "randomized_one_window": median_seconds(lambda: randomized.obfuscate(single, seed=1), 500),
        "randomized_windows_a_second": windows
        / median_seconds(lambda: randomized.obfuscate(some, seed=1), 5),
    }
    done(found)
    return found


def stage_seconds(obfuscator: ObscureNet, windows: Windows, repeats: int = 5) -> dict[str, float]:
    """Seconds a window for each stage of table 5, the median of some repeats."""
    windows = windows.standardized(obfuscator.scaling_)
    kept = obfuscator.kept_classifier_.predict(windows)
    groups = [(int(which), np.flatnonzero(kept == which)) for which in np.unique(kept)]
    condition = torch.zeros(len(windows), sum(obfuscator.class_counts_), device=obfuscator.device)
    networks = obfuscator.autoencoders_
    signals = [
        torch.from_numpy(windows.batch(rows)).to(obfuscator.device).flatten(1) for _, rows in groups
    ]
    with torch.inference_mode():
        codes = [
            networks.encode(x, which)[0] for x, (which, _) in zip(signals, groups, strict=True)
        ]
        stages: dict[str, Callable[[], object]] = {
            "desired inference": lambda: obfuscator.kept_classifier_.predict(windows),
            "sensitive inference": lambda: obfuscator.predict_hidden(windows),
            "encoder": lambda: [
                networks.encode(x, which)[0].cpu()
                for x, (which, _) in zip(signals, groups, strict=True)
            ],
            "decoder": lambda: [
                networks.decode(z, condition[rows], which).cpu()
                for z, (which, rows) in zip(codes, groups, strict=True)
            ],
        }
        return {
            name: median_seconds(stage, repeats, warm=False) / len(windows)
            for name, stage in stages.items()
        }


def training(recipe: Recipe, plan: Plan, done: Done, epochs: int = 10) -> dict[str, Any]:
    """All class networks in one batched pass against one by one, twice each, in one run."""
    given = {"epochs": epochs, "classifier.epochs": 1}
    obfuscator = plan.made(recipe, "obscurenet", plan.seeds[0], given)
    assert isinstance(obfuscator, ObscureNet)
    found: dict[str, Any] = {"epochs": epochs, "threads": torch.get_num_threads()}
    found |= training_seconds(obfuscator, plan.split.train, recipe.keep, recipe.hide)
    found["ratio"] = found["one by one"] / found["batched"]
    done(found)
    return found


def training_seconds(
    obfuscator: ObscureNet, windows: Windows, keep: Sequence[str], hide: Sequence[str]
) -> dict[str, float]:
    """Seconds of the class networks in one batched pass, and one by one; classifiers do not count.

    Each way goes twice, in turns, and the better time counts: the first pays for starting up.
    """
    obfuscator.fit(windows, keep, hide)
    standard = windows.standardized(obfuscator.scaling_)
    data, signals = obfuscator.network_data(standard), standard.on(obfuscator.device)

    def seconds(passes: Sequence[Sequence[NetworkData]]) -> float:
        started = time.perf_counter()
        for each in passes:
            obfuscator.train_networks(each, signals)
        if signals.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    ways = {"batched": [data], "one by one": [[one] for one in data]}
    rounds = [{name: seconds(passes) for name, passes in ways.items()} for _ in range(2)]
    return {name: min(times[name] for times in rounds) for name in ways}
