"""Runs a recipe: trains what its rows name, and measures it as the paper did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.plan import DENSE, Done, Plan, adjusted, fixed_scores, made, outputs_of, raw_models
from benchmarks.recipe import Recipe, Row
from sensorveil.audit.reidentification import obscurenet_reidentification
from sensorveil.classifiers import ClassifierSettings
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.simulation import federate
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.obscurenet import Classifiers, ObscureNet, ObscureNetPipeline, fit_many
from sensorveil.methods.registry import method
from sensorveil.progress import track


def kinds_of_settings(recipe: Recipe) -> list[type]:
    """Whose settings can be given for all rows of a recipe."""
    kinds: list[type] = [method(row.method).Settings for row in recipe.rows]
    return [*kinds, FederationConfig] if any(row.federation for row in recipe.rows) else kinds


def check(recipe: Recipe, parts: Sequence[str], preset: str, overrides: Mapping[str, Any]) -> None:
    """Refuses what cannot be run, before anything is loaded, trained or written."""
    for part in parts:
        if part not in recipe.parts:
            raise refuse_unknown(f"part of {recipe.name}", part, list(recipe.parts))
    own = {"mode", "privacy.public", "privacy.denoiser_weight"} & set(overrides)
    if "donors" in recipe.parts and own:
        raise Refusal(f"the rows of {recipe.name} set '{min(own)}' themselves")
    for row in recipe.rows:
        made(
            recipe, row.method, preset, 0, "cpu", {**row.settings, **row.with_settings, **overrides}
        )
        federation(row, overrides, seed=0)
    fixed = {"alpha", "beta", "modifier"} & set(overrides)
    if "grid" in parts and fixed:
        raise Refusal(f"the grid sets '{min(fixed)}' itself")


def accuracies(recipe: Recipe, plan: Plan, done: Done, leaks: int = 20) -> dict[str, Any]:
    """Tables: accuracy of fixed models on each attribute, and with `leaks` re-identification."""
    models = raw_models(recipe, plan)
    test = plan.test
    raw = fixed_scores(recipe, plan, models, [test] * len(plan.seeds))
    found: dict[str, Any] = {
        "dense_inference": asdict(DENSE),
        "raw": {"paper": dict(recipe.paper), **raw},
        "rows": [],
    }
    done(found)
    for row, obfuscators in trained_rows(recipe, plan):
        hidden = outputs_of(obfuscators, test, row.strength)
        entry = {
            "label": row.label,
            "where": row.where,
            "method": row.method,
            "modifier": row.modifier,
            "settings": obfuscators[0].about(),
            "strength": dict(row.strength),
            "federation": obfuscators[0].metrics_.get("federation", {}).get("config", {}),
            "paper": dict(row.paper),
            **fixed_scores(recipe, plan, models, hidden),
        }
        if leaks and any(place in row.where for place in REIDENTIFIED):
            entry["reidentification"] = [
                asdict(
                    obscurenet_reidentification(
                        hidden[0], name, leaks, 0.2, LEAK_NETWORK, plan.device, plan.seeds[0]
                    )
                )
                for name in recipe.hide
            ]
        found["rows"].append(entry)
        done(found)
    return found


REIDENTIFIED = ("figure 4", "section V-J")
"""Where ObscureNet and CLOAK let a model learn from a part of the output with true labels."""

LEAK_NETWORK = ClassifierSettings(width=64, epochs=50, batch_size=512, learning_rate=2e-3)
"""The re-identification model: 50 epochs and batches of 512, as in the authors' code."""


def trained_rows(recipe: Recipe, plan: Plan) -> Iterator[tuple[Row, list[Obfuscator]]]:
    """Each row with one trained method a seed; rows of one method share their training."""
    classifiers: Classifiers = {}
    trained = plan.trained
    for row in track(recipe.rows, "rows"):
        key = f"{row.method} {sorted(row.settings.items())} {sorted(row.federation.items())}"
        if key not in trained:
            given = {**row.settings, "train_hidden_classifiers": True}
            runs = [run for run in plan.runs if run.name == row.method]
            blank = [plan.made(recipe, row.method, seed, given) for seed in plan.seeds]
            if row.federation:
                trained[key] = runs or federated(blank, row, recipe, plan)
            else:
                trained[key] = runs or fitted(blank, recipe, plan, classifiers)
        yield row, [_varied(obfuscator, row, plan) for obfuscator in trained[key]]


def fitted(
    obfuscators: list[Obfuscator], recipe: Recipe, plan: Plan, classifiers: Classifiers
) -> list[Obfuscator]:
    """The same methods, trained on the plan's windows; in one pass where they can be."""
    windows = plan.split.train
    grouped = [obfuscator for obfuscator in obfuscators if isinstance(obfuscator, ObscureNet)]
    if len(grouped) == len(obfuscators):
        fit_many(grouped, windows, recipe.keep, recipe.hide, classifiers)
        return obfuscators
    return [
        obfuscator.fit(windows, recipe.keep, recipe.hide)
        for obfuscator in track(obfuscators, "seeds")
    ]


def federated(
    obfuscators: list[Obfuscator], row: Row, recipe: Recipe, plan: Plan
) -> list[Obfuscator]:
    """The same methods, trained over the people in the plan's windows, in this process."""
    windows, trained = plan.split.train, list[Obfuscator]()
    for obfuscator in track(obfuscators, "seeds"):
        assert isinstance(obfuscator, Blinder)
        untrained = obfuscator.set_params(**{"training.epochs": 0})
        start = untrained.fit(windows, recipe.keep, recipe.hide)
        trained.append(federate(start, windows, federation(row, plan.overrides, obfuscator.seed)))
    return trained


def federation(row: Row, overrides: Mapping[str, Any], seed: int) -> FederationConfig:
    """The configuration of a row's federation, with what is overridden of it."""
    values = {"seed": seed, **row.federation, **overrides}
    known = {name: value for name, value in values.items() if name in FederationConfig.names()}
    if row.federation.get("fedblinder"):
        return FederationConfig().fedblinder(known)
    return FederationConfig().with_values(known)


def _varied(obfuscator: Obfuscator, row: Row, plan: Plan) -> Obfuscator:
    """With the modifier or the with_settings settings of a row."""
    if isinstance(obfuscator, ObscureNet | ObscureNetPipeline) and row.modifier:
        return obfuscator.with_settings(modifier=row.modifier)
    if row.with_settings:
        return adjusted(obfuscator, plan.split.train, row.with_settings)
    return obfuscator
