"""Runs a recipe: trains what its rows name, and measures it as the paper did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from sensorveil.audit.reidentification import obscurenet_reidentification
from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.measures.estimate import Estimate, bootstrap
from sensorveil.measures.inference import InferenceModel, InferenceSettings
from sensorveil.measures.scores import accuracy, confusion_by_person, macro_f1
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.class_autoencoder import ClassAutoencoder, SharedReaders
from sensorveil.methods.obscurenet import ObscureNet, ObscureNetPipeline
from sensorveil.methods.registry import method
from sensorveil.methods.together import fit_together, training_seconds
from sensorveil.progress import track
from sensorveil.recipes.recipe import Recipe, Row


@dataclass(frozen=True)
class Plan:
    """How a recipe is run: on which data, how often, how large.

    `overrides` replace settings of the recipe, for smaller or other networks than the preset's;
    those that a method does not have are left out for it.
    """

    split: Split
    seeds: tuple[int, ...] = (0,)
    preset: str = "paper"
    device: str = "cpu"
    inference: InferenceSettings | None = None
    overrides: Mapping[str, Any] | None = None

    def made(self, name: str, seed: int, given: Mapping[str, Any]) -> Obfuscator:
        """An untrained method with the recipe's settings as far as it has them."""
        return _made(name, self.preset, seed, self.device, {**given, **(self.overrides or {})})


def _made(name: str, preset: str, seed: int, device: str, wanted: Mapping[str, Any]) -> Obfuscator:
    kind = method(name)
    known = kind.Settings.__dataclass_fields__
    return kind(preset, seed, device, **{k: v for k, v in wanted.items() if k in known})


def check(recipe: Recipe, parts: Sequence[str], preset: str, overrides: Mapping[str, Any]) -> None:
    """Refuses what cannot be run, before anything is loaded, trained or written."""
    known = {
        name for row in recipe.rows for name in method(row.method).Settings.__dataclass_fields__
    }
    for name in overrides:
        if name not in known:
            raise refuse_unknown(f"setting of {recipe.name}", name, sorted(known))
    for row in recipe.rows:
        _made(row.method, preset, 0, "cpu", {**recipe.settings, **row.settings, **overrides})
    if "grid" in parts:
        _check_grid(recipe, overrides)


def _check_grid(recipe: Recipe, overrides: Mapping[str, Any]) -> None:
    if not recipe.alphas or not recipe.betas:
        raise Refusal(f"recipe '{recipe.name}' has no grid")
    fixed = {"alpha", "beta", "modifier"} & set(overrides)
    if fixed:
        raise Refusal(f"the grid sets '{min(fixed)}' itself")


Done = Callable[[dict[str, Any]], None]
"""Is given the result so far, so that a run that is cut off leaves what it has."""


def accuracies(recipe: Recipe, plan: Plan, done: Done, leaks: int = 20) -> dict[str, Any]:
    """Tables: what fixed models read of each attribute, and with `leaks` figure 4 as well."""
    models = _raw_models(recipe, plan)
    test = plan.split.test
    raw = _read(recipe, plan, models, [test] * len(plan.seeds))
    found: dict[str, Any] = {
        "dense_inference": asdict(DENSE),
        "raw": {"paper": dict(recipe.paper), **raw},
        "rows": [],
    }
    done(found)
    for row, veils in _trained(recipe, plan):
        hidden = [veil.obfuscate(test, seed=veil.seed) for veil in veils]
        entry = {
            "label": row.label,
            "where": row.where,
            "method": row.method,
            "modifier": row.modifier,
            "settings": veils[0].about(),
            "paper": dict(row.paper),
            **_read(recipe, plan, models, hidden),
        }
        if leaks and "figure 4" in row.where:
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


LEAK_NETWORK = InferenceSettings(width=64, epochs=50, batch=512, rate=2e-3)
"""The re-identification model: 50 epochs and batches of 512, as in the authors' code."""


def _trained(recipe: Recipe, plan: Plan) -> Iterator[tuple[Row, list[Obfuscator]]]:
    """Each row with one trained method a seed; rows of one method share their training."""
    readers: SharedReaders = {}
    trained: dict[str, list[Obfuscator]] = {}
    for row in track(recipe.rows, "rows"):
        key = f"{row.method} {sorted(row.settings.items())}"
        if key not in trained:
            given = {**recipe.settings, **row.settings, "read_hidden": True}
            made = [plan.made(row.method, seed, given) for seed in plan.seeds]
            trained[key] = _fitted(made, recipe, plan, readers)
        yield row, [_modified(veil, row.modifier) for veil in trained[key]]


def _fitted(
    veils: list[Obfuscator], recipe: Recipe, plan: Plan, readers: SharedReaders
) -> list[Obfuscator]:
    windows = plan.split.train
    grouped = [veil for veil in veils if isinstance(veil, ClassAutoencoder)]
    if len(grouped) == len(veils):
        fit_together(grouped, windows, recipe.keep, recipe.hide, readers)
        return veils
    return [veil.fit(windows, recipe.keep, recipe.hide) for veil in track(veils, "seeds")]


def _modified(veil: Obfuscator, modifier: str) -> Obfuscator:
    if not modifier:
        return veil
    assert isinstance(veil, ClassAutoencoder | ObscureNetPipeline)  # these have modifiers
    return veil.with_modifier(modifier)


Models = Mapping[tuple[str, int, str], InferenceModel]

DENSE = InferenceSettings(epochs=40, batch=512, rate=1e-3, dense=True)
"""The fixed models of the authors' code on MotionSense, with about as many steps as there."""


def _raw_models(recipe: Recipe, plan: Plan) -> Models:
    """The fixed models, trained on raw windows: by kind, seed and attribute.

    `read` are the papers' convolutional networks, `read_dense` those of ObscureNet's code.
    """
    kinds = {"read": plan.inference, "read_dense": DENSE}
    wanted = [(k, seed, name) for k in kinds for seed in plan.seeds for name in recipe.attributes]
    return {
        (kind, seed, name): InferenceModel(kinds[kind], seed, plan.device).fit(
            plan.split.train, name
        )
        for kind, seed, name in track(wanted, "fixed models")
    }


def _read(recipe: Recipe, plan: Plan, models: Models, outputs: Sequence[Windows]) -> dict[str, Any]:
    """What the fixed models of both kinds read of each attribute."""
    return {
        kind: {
            name: _scores(
                plan.split.test,
                name,
                recipe.keep,
                [
                    models[kind, seed, name].predict(windows)
                    for seed, windows in zip(plan.seeds, outputs, strict=True)
                ],
            )
            for name in recipe.attributes
        }
        for kind in ("read", "read_dense")
    }


def _scores(test: Windows, name: str, keep: str, read: Sequence[np.ndarray]) -> dict[str, Any]:
    """Accuracy and F1 with intervals over people and seeds, and accuracy within each kept class."""
    true, kept, classes = test.codes(name), test.codes(keep), len(test.classes[name])
    tables = np.stack([confusion_by_person(true, codes, test.subject, classes) for codes in read])
    within = {
        label: float(np.mean([(codes == true)[own] for codes in read]))
        for c, label in enumerate(test.classes[keep])
        if (own := (kept == c) & (true != UNKNOWN)).any()
    }
    return {
        "accuracy": _estimate(tables, accuracy),
        "f1": _estimate(tables, macro_f1),
        "within": within,
    }


def _estimate(tables: np.ndarray, statistic: Any) -> dict[str, Any]:
    found: Estimate = bootstrap(tables, statistic, np.random.default_rng(0))
    return found.as_dict()


def grid(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """Figures 5 and 6: the fixed models for every alpha and beta, deterministic modifier."""
    pairs = [(alpha, beta) for alpha in recipe.alphas for beta in recipe.betas]
    _check_grid(recipe, plan.overrides or {})
    models = _raw_models(recipe, plan)
    veils = [
        plan.made(
            "obscurenet",
            seed,
            {**recipe.settings, "modifier": "deterministic", "alpha": alpha, "beta": beta},
        )
        for alpha, beta in pairs
        for seed in plan.seeds
    ]
    _fitted(veils, recipe, plan, {})
    found: dict[str, Any] = {"points": []}
    for number, (alpha, beta) in enumerate(pairs):
        own = veils[number * len(plan.seeds) : (number + 1) * len(plan.seeds)]
        hidden = [veil.obfuscate(plan.split.test, seed=veil.seed) for veil in own]
        read = _read(recipe, plan, models, hidden)
        found["points"].append({"alpha": alpha, "beta": beta, **read})
    done(found)
    return found


def timing(recipe: Recipe, plan: Plan, done: Done, windows: int = 10_000) -> dict[str, Any]:
    """Table 5: seconds a window of each stage, and of one window and many through all of them."""
    given = {**recipe.settings, "modifier": "probabilistic", "read_hidden": True}
    veil = plan.made("obscurenet", plan.seeds[0], {**given, "epochs": 1, "reader_epochs": 1})
    assert isinstance(veil, ObscureNet)
    veil.fit(plan.split.train, recipe.keep, recipe.hide)  # speed does not depend on the weights
    some = plan.split.test.select(np.arange(windows) % len(plan.split.test))
    single, randomized = some.select([0]).compact(), veil.with_modifier("randomized")
    stages = {
        "in one batch": veil.with_modifier("deterministic").stage_seconds(some),
        "one by one": veil.with_modifier("deterministic").stage_seconds(single, repeats=500),
    }
    found = {
        "paper": dict(recipe.paper),
        "threads": torch.get_num_threads(),
        "seconds_a_window": stages,
        "randomized_one_window": _median(lambda: randomized.obfuscate(single, seed=1), 500),
        "randomized_windows_a_second": windows
        / _median(lambda: randomized.obfuscate(some, seed=1), 5),
    }
    done(found)
    return found


def training(recipe: Recipe, plan: Plan, done: Done, epochs: int = 10) -> dict[str, Any]:
    """All class networks in one batched pass against one by one, twice each, in one run."""
    veil = plan.made("obscurenet", plan.seeds[0], {**recipe.settings, "reader_epochs": 1})
    assert isinstance(veil, ObscureNet)
    veil.settings = replace(veil.settings, epochs=epochs)
    found: dict[str, Any] = {"epochs": epochs, "threads": torch.get_num_threads()}
    found |= training_seconds(veil, plan.split.train, recipe.keep, recipe.hide)
    found["ratio"] = found["one by one"] / found["batched"]
    done(found)
    return found


def _median(work: Callable[[], object], repeats: int) -> float:
    """The median time of some calls, after one that does not count."""
    work()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return float(np.median(times))
