"""How a recipe is run, and what fixed classifiers predict from what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.recipe import Recipe
from sensorveil.audit.threat_models import thinned
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.corpus import Corpus
from sensorveil.data.protocol import Protocol
from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.privdiffuser import PrivDiffuser
from sensorveil.methods.registry import method
from sensorveil.progress import track
from sensorveil.statistics import Estimate, accuracy, bootstrap, confusion_by_person, macro_f1

Whole = tuple[Windows, Corpus, Protocol]
"""All windows of a dataset, the recordings behind them, and the protocol."""

Done = Callable[[dict[str, Any]], None]
"""Is given the result so far, so that a run that is cut off leaves what it has."""


@dataclass(frozen=True)
class Plan:
    """How a recipe is run: on which data, how often, how large.

    `overrides` replace settings of the recipe, for smaller or other networks than the preset's;
    those that a method does not have are left out for it. Where trained `runs` are given, rows of
    their method use them, and nothing of it is trained. With `windows` only so many of the test
    windows are obfuscated, a random part of them.

    `whole` is what the split was made of, for parts that divide it otherwise; `resnet` is the
    size of the classifiers that learn from what was generated.

    What is trained for one part of the recipe stays here for the others: the fixed `models` by
    kind, seed and attribute, and the methods by what tells them apart.
    """

    split: Split
    seeds: tuple[int, ...] = (0,)
    preset: str = "paper"
    device: str = "cpu"
    inference: ClassifierSettings | None = None
    resnet: ClassifierSettings = ClassifierSettings.resnet18()  # noqa: RUF009 (frozen)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[Obfuscator, ...] = ()
    windows: int | None = None
    whole: Whole | None = None
    models: dict[tuple[str, int, str], Classifier] = field(default_factory=dict, init=False)
    trained: dict[str, list[Obfuscator]] = field(default_factory=dict, init=False)

    def made(self, recipe: Recipe, name: str, seed: int, given: Mapping[str, Any]) -> Obfuscator:
        """An untrained method with the recipe's settings as far as it has them."""
        return made(recipe, name, self.preset, seed, self.device, {**given, **self.overrides})

    def seeds_for(self, recipe: Recipe, name: str) -> tuple[int, ...]:
        """The seeds for an attribute's classifiers: the first alone where it is unlisted."""
        return self.seeds[:1] if name in recipe.unlisted else self.seeds

    @property
    def test(self) -> Windows:
        """The test windows that are obfuscated."""
        whole = self.split.test
        return whole if self.windows is None else thinned(whole, self.windows, seed=0)


def made(
    recipe: Recipe, name: str, preset: str, seed: int, device: str, given: Mapping[str, Any]
) -> Obfuscator:
    """An untrained method with the recipe's settings and those given, as far as it has them."""
    kind = method(name)
    wanted = {**recipe.settings, **given}
    known = {}
    for key, value in wanted.items():
        for candidate in (key, key.rpartition(".")[2]):  # groups differ from method to method
            with suppress(Refusal):
                known[kind.Settings.full_name(candidate)] = value
                break
    return kind(recipe.preset_of(name, preset), seed, device, **known)


def adjusted(obfuscator: Obfuscator, windows: Windows, settings: Mapping[str, Any]) -> Obfuscator:
    """With other settings that leave the generator as it is.

    PrivDiffuser's auxiliary models are trained anew on `windows`, where they get another weight.
    """
    changes = dict(settings)
    weight = changes.pop("mutual_information_weight", None)
    if weight is not None:
        assert isinstance(obfuscator, PrivDiffuser)
        obfuscator = obfuscator.with_regularisation(windows, weight)
    return obfuscator.with_settings(**changes)


Models = Mapping[tuple[str, int, str], Classifier]

DENSE = ClassifierSettings(epochs=40, batch_size=512, learning_rate=1e-3, network="mlp")
"""The fixed models of the authors' code on MotionSense, with about as many steps as there."""


def raw_models(recipe: Recipe, plan: Plan) -> Models:
    """The fixed models, trained on raw windows: by kind, seed and attribute.

    The kinds are `read`, the papers' convolutional networks, and `read_dense`, those of ObscureNet's
    code.
    """
    kinds = {"read": plan.inference, "read_dense": DENSE}
    wanted = [
        (k, seed, name)
        for k in kinds
        for name in recipe.attributes
        for seed in plan.seeds_for(recipe, name)
    ]
    missing = [one for one in wanted if one not in plan.models]
    for kind, seed, name in track(missing, "fixed classifiers"):
        model = Classifier(kinds[kind], seed, plan.device).fit(plan.split.train, name)
        plan.models[kind, seed, name] = model
    return {one: plan.models[one] for one in wanted}


def outputs_of(
    obfuscators: Sequence[Obfuscator],
    windows: Windows,
    strength: Mapping[str, float] | None = None,
    first_seed: int = 0,
) -> list[Windows]:
    """The output of each method, with noise of its own seed."""
    return [
        obfuscator.obfuscate(windows, strength, seed=first_seed + obfuscator.seed)
        for obfuscator in obfuscators
    ]


def fixed_scores(
    recipe: Recipe, plan: Plan, models: Models, outputs: Sequence[Windows]
) -> dict[str, Any]:
    """Scores of the fixed models on each attribute, by kind; outputs are of the first seeds."""
    return {
        kind: {
            name: scores_of(
                outputs[0],  # whose labels are those of the windows that went in
                name,
                recipe.keep[0],
                [
                    models[kind, seed, name].predict(windows)
                    for seed, windows in zip(plan.seeds_for(recipe, name), outputs, strict=False)
                ],
            )
            for name in recipe.attributes
        }
        for kind in ("read", "read_dense")
    }


def scores_of(
    test: Windows, name: str, keep: str, predicted: Sequence[np.ndarray]
) -> dict[str, Any]:
    """Accuracy and F1 with intervals over people and seeds, and accuracy within each kept class."""
    true, kept, classes = test.codes(name), test.codes(keep), len(test.classes[name])
    tables = np.stack(
        [confusion_by_person(true, codes, test.subject, classes) for codes in predicted]
    )
    within = {
        label: float(np.mean([(codes == true)[own] for codes in predicted]))
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
