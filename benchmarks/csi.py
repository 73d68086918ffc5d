"""The CSI paper's tables and figures: what generators reveal, how good and how useful they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.plan import Done, Plan, Whole
from benchmarks.recipe import Recipe, Row
from sensorveil.audit.donors import Contender, DonorData, DonorStudy, donor_study
from sensorveil.audit.donors.augmentation import PAPER, Augmentation, measure_augmentation
from sensorveil.audit.donors.likeness import Likeness
from sensorveil.classifiers import Classifier
from sensorveil.data.splits import split_windows, units
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator

GAINS = ("in-domain", "cross-domain", "in-domain-lambda", "cross-domain-lambda")
"""Figures 2 to 5, in this order."""


def donors(recipe: Recipe, plan: Plan, done: Done) -> dict[str, Any]:
    """Tables I and II: members, nonmembers and public people are drawn from all windows."""
    asked, (keep,), (hide,) = recipe.parts["donors"], recipe.keep, recipe.hide
    windows, corpus, rules = _whole(recipe, plan)
    groups = units(windows, corpus, rules.rule(None)[1])

    def content(study: DonorStudy) -> dict[str, Any]:
        return {"public": asked["public"], **study.as_dict()}

    study = donor_study(
        [_contender(row, recipe, plan) for row in recipe.rows],
        DonorData(windows, keep, hide, _classifiers(plan, keep), asked["public"], groups),
        Likeness(keep, plan.inference, device=plan.device).fit(windows),
        plan.seeds,
        asked["lira"],
        on_result=lambda study: done(content(study)),
    )
    return content(study)


def gains(recipe: Recipe, plan: Plan, done: Done, part: str) -> dict[str, Any]:
    """Figures 2 and 3, or with lambdas 4 and 5: accuracy with generated windows beside real ones.

    Generators are conditioned on each attribute in `predict`, which classifiers then predict; the
    other one is hidden. A split of people has all its folds.
    """
    asked = recipe.parts[part]
    windows, corpus, rules = _whole(recipe, plan)
    _, rule = rules.rule(asked["split"])
    folds = range(rule.folds if rule.by == "subject" else 1)
    splits = [split_windows(windows, corpus, rules, asked["split"], fold) for fold in folds]
    rows: list[dict[str, Any]] = []

    def content(more: list[dict[str, Any]]) -> dict[str, Any]:
        return {"split": asked["split"], "rows": [*rows, *more], "paper_on_widar3": PAPER}

    for attribute in asked["predict"]:
        (hide,) = {*recipe.keep, *recipe.hide} - {attribute}
        rows += _rows(
            measure_augmentation(
                _makes(recipe, plan, asked),
                splits,
                attribute,
                hide,
                _classifiers(plan, attribute),
                plan.seeds,
                on_result=lambda found: done(content(_rows(found))),
            )
        )
    return content([])


def _rows(found: dict[str, Augmentation]) -> list[dict[str, Any]]:
    """Each generator's figures; the paper's stand once, beside all rows."""
    rows = [{"label": label, **one.as_dict()} for label, one in found.items()]
    return [{name: row[name] for name in row if name != "paper_on_widar3"} for row in rows]


def _makes(
    recipe: Recipe, plan: Plan, asked: dict[str, Any]
) -> dict[str, Callable[[int], Obfuscator]]:
    """The rows that are drawn in the figure, or the row hybrid with several lambdas."""
    rows = {row.label: row for row in recipe.rows}
    if "lambda" not in asked:
        return {label: _make(rows[label], recipe, plan) for label in asked["rows"]}
    return {
        f"hybrid, lambda {weight:g}": _make(rows["hybrid"], recipe, plan, denoiser_weight=weight)
        for weight in asked["lambda"]
    }


def _make(row: Row, recipe: Recipe, plan: Plan, **more: Any) -> Callable[[int], Obfuscator]:
    return lambda seed: plan.made(recipe, row.method, seed, {**row.settings, **more})


def _contender(row: Row, recipe: Recipe, plan: Plan) -> Contender:
    make = None if row.method == "none" else _make(row, recipe, plan)
    return Contender(row.label, make, uses_public="privacy.public" in row.settings)


def _classifiers(plan: Plan, attribute: str) -> Callable[[Windows, int], Classifier]:
    return lambda some, seed: Classifier(plan.resnet, seed, plan.device).fit(some, attribute)


def _whole(recipe: Recipe, plan: Plan) -> Whole:
    if plan.whole is None:
        raise Refusal(f"{recipe.name} needs all windows, not one split of them")
    return plan.whole
