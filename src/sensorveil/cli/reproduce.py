"""sensorveil papers list, reproduce: a paper's tables and figures, measured here beside its own numbers."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sensorveil.cli import options as given
from sensorveil.cli.csi_tables import print_study
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.files import check_place

if TYPE_CHECKING:
    from sensorveil.data.splits import Split
    from sensorveil.methods.base import Obfuscator
    from sensorveil.recipes.recipe import Recipe


app = typer.Typer(help="What the papers' tables and figures say, measured here beside them.")


@app.command("list", cls=given.Command)
def list_recipes(quiet: given.Quiet = False, as_json: given.AsJson = False) -> None:
    """All recipes and their parts."""
    from sensorveil.recipes.recipe import names, recipe

    screen = Screen(quiet, as_json)
    listed = [(one, ", ".join(recipe(one).parts), recipe(one).title) for one in names()]
    screen.table("Recipes", ("name", "parts", "what"), listed)
    screen.result(names())


@app.command("reproduce", cls=given.Command)
def reproduce(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="'papers list' names all.")],
    out: Annotated[Path, typer.Option("--out", help="The folder for RECIPE-PART.json.")],
    part: Annotated[
        list[str] | None,
        typer.Option(help="What to measure ('papers list' names it); the first unless named."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 5,
    preset: given.Preset = "paper",
    leaks: Annotated[
        int, given.Rare(help="Runs of re-identification in accuracy; 0 leaves it out.")
    ] = 20,
    only: Annotated[
        list[str] | None, typer.Option("--method", help="Rows of these methods only.")
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(help="A trained run to measure, one for each seed; else it is trained."),
    ] = None,
    windows: Annotated[
        int | None, given.Rare(help="So many test windows, drawn at random; else all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller fixed classifiers.")] = False,
    setting: given.Set = None,
    source: given.Source = None,
    option: given.Options = None,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Measures what a paper's tables and figures say, and writes both side by side."""
    from sensorveil.classifiers import ClassifierSettings
    from sensorveil.conditions import conditions
    from sensorveil.data.catalog import load_whole
    from sensorveil.data.phases import with_phases
    from sensorveil.data.splits import split_windows
    from sensorveil.files import write_json
    from sensorveil.recipes.parts import measure
    from sensorveil.recipes.plan import Plan
    from sensorveil.recipes.recipe import recipe
    from sensorveil.recipes.reproduce import check, kinds_of_settings

    screen = Screen(quiet, as_json)
    chosen = recipe(name)
    parts = given.names(part or [next(iter(chosen.parts))])
    if only:
        chosen = _only(chosen, given.names(only))
    if seeds < 1 or leaks < 0 or (windows is not None and windows < 1):
        raise Refusal("--seeds and --windows must be 1 or more, and --leaks 0 or more")
    if "donors" in chosen.parts and (run or windows):
        raise Refusal(f"{chosen.name} trains its own generators, on all windows")
    places = _places(out, chosen, parts)
    overrides = given.settings(setting, kinds_of_settings(chosen), chosen.name)
    check(chosen, parts, preset, overrides)
    device = given.check_device(device)
    whole, corpus, rules = load_whole(
        chosen.data, source, **given.data_options(option, chosen.data)
    )
    whole = with_phases(whole, chosen.phases)
    split = split_windows(whole, corpus, rules, chosen.split)
    runs = _runs(run or [], chosen, split, device)
    plan = Plan(
        split=split,
        seeds=tuple(range(len(runs) or seeds)),
        preset=preset,
        device=device,
        inference=ClassifierSettings.quick() if quick else ClassifierSettings(),
        resnet=ClassifierSettings.resnet18(quick),
        overrides=overrides,
        runs=runs,
        windows=windows,
        whole=(whole, corpus, rules),
    )
    origin = split.test.origin
    for one in parts:
        head = {
            "format": 1,
            "kind": "reproduction",
            "recipe": chosen.name,
            "title": chosen.title,
            "part": one,
            "preset": preset,
            "seeds": [obfuscator.seed for obfuscator in runs] or list(plan.seeds),
            "data": asdict(origin) if origin else {},
            "inference": asdict(plan.inference or ClassifierSettings()),
        }

        def keep(
            found: dict[str, Any], head: dict[str, Any] = head, place: Path = places[one]
        ) -> None:
            write_json(place, {**head, **found, "conditions": conditions(device)})

        with screen.bars():
            found = measure(one, chosen, plan, keep, leaks)
        _print(screen, chosen, one, found)
        screen.say(f"Written: {places[one]}")
        screen.result({**head, **found})


def _runs(places: list[Path], recipe: Recipe, split: Split, device: str) -> tuple[Obfuscator, ...]:
    """The runs that are to be measured: of the recipe's data, policy and methods."""
    from sensorveil.methods.policy import Policy
    from sensorveil.methods.run import load_run

    runs = tuple(load_run(place, device) for place in places)
    wanted = Policy.of(recipe.keep, recipe.hide)
    methods = {row.method for row in recipe.rows}
    for place, obfuscator in zip(places, runs, strict=True):
        if obfuscator.policy_ != wanted or obfuscator.name not in methods:
            raise Refusal(f"{place} is no run of the methods and the policy of {recipe.name}")
        if obfuscator.origin_ != split.train.origin:
            raise Refusal(f"{place} was not trained on the training windows of {recipe.name}")
    return runs


def _places(out: Path, recipe: Recipe, parts: list[str]) -> dict[str, Path]:
    """The file of each part; one that is there already is never written over."""
    places = {one: out / f"{recipe.name}-{one}.json" for one in parts}
    for place in places.values():
        check_place(place)
        if place.exists():
            raise Refusal(f"{place} exists already; choose another --out")
    return places


def _only(recipe: Recipe, methods: list[str]) -> Recipe:
    known = list(dict.fromkeys(row.method for row in recipe.rows))
    for one in methods:
        if one not in known:
            raise refuse_unknown(f"method of {recipe.name}", one, known)
    return replace(recipe, rows=tuple(row for row in recipe.rows if row.method in methods))


def _print(screen: Screen, recipe: Recipe, part: str, found: dict[str, Any]) -> None:
    from sensorveil.audit.donors import DonorStudy

    if part == "accuracy":
        _print_accuracy(screen, recipe, found)
    elif part == "donors":
        print_study(screen, DonorStudy.from_dict(found), recipe.data)
    elif "rows" in found and "gain" in found["rows"][0]:
        _print_gains(screen, recipe, part, found)
    elif part in ("grid", "tradeoff"):
        knobs = [name for name, each in recipe.parts[part].items() if isinstance(each, list)]
        rows = [
            (*(f"{p[knob]:g}" for knob in knobs), *(_percent(p, a) for a in recipe.attributes))
            for p in found["points"]
        ]
        screen.table(f"{part}, in %", (*knobs, *recipe.attributes), rows)
    elif part == "chosen":
        _print_choices(screen, found)
    elif part == "validated":
        _print_validated(screen, recipe, found)
    elif "rows" in found and "retrained" in found["rows"][0]:
        _print_variants(screen, recipe, part, found)
    else:
        screen.say(str({k: v for k, v in found.items() if k != "paper"}))


def _print_gains(screen: Screen, recipe: Recipe, part: str, found: dict[str, Any]) -> None:
    def cell(estimate: dict[str, float]) -> str:
        value, low, high = (f"{100 * estimate[end]:.1f}" for end in ("value", "low", "high"))
        return f"{value} ({low} to {high})"

    rows = [
        (row["attribute"], row["label"], *(cell(row[name]) for name in ("real", "mixed", "gain")))
        for row in found["rows"]
    ]
    title = f"{part} of {recipe.data}, accuracy in %, with intervals over people and seeds"
    screen.table(title, ("read", "generated by", "real alone", "both", "gain"), rows)


def _print_variants(screen: Screen, recipe: Recipe, part: str, found: dict[str, Any]) -> None:
    rows = [
        (
            _settings(row),
            *(_percent(row, name) for name in recipe.attributes),
            *(_percent(row, name, "retrained") for name in recipe.hide),
            f"{1e3 * row['seconds_a_window']:.3g}",
        )
        for row in found["rows"]
    ]
    again = [f"{name}, retrained" for name in recipe.hide]
    screen.table(f"{part}, in %", ("", *recipe.attributes, *again, "ms a window"), rows)


def _print_validated(screen: Screen, recipe: Recipe, found: dict[str, Any]) -> None:
    asked, raw = (*recipe.keep, *recipe.hide), {"settings": {"raw windows": ""}, **found["raw"]}
    rows = [
        (_settings(row), *(_percent(row, a, k) for a in asked for k in ("read", "read_dense")))
        for row in (raw, *found["rows"])
    ]
    heads = [head for name in asked for head in (name, f"{name}, dense models")]
    screen.table("what is read of validation windows, in %", ("", *heads), rows)


def _settings(row: dict[str, Any]) -> str:
    named = (f"{name} {value}".strip() for name, value in row["settings"].items())
    return ", ".join(named) or "as they are"


def _print_choices(screen: Screen, found: dict[str, Any]) -> None:
    rows = []
    for row in found["rows"]:
        what = _settings(row)
        for name, hidden in row["hidden"].items():
            asked = [one for one in hidden["attacks"] if one["threat_model"] != "raw"]
            worst, area = (max(one[figure] for one in asked) for figure in ("accuracy", "auc"))
            rows.append(
                (
                    what,
                    *(f"{100 * row['kept'][reader]:.2f}" for reader in ("raw", "unchanged")),
                    name,
                    *(
                        f"{100 * value:.2f}"
                        for value in (hidden["majority"], hidden["by kept class"], worst)
                    ),
                    f"{area:.3f}",
                    hidden["verdict"],
                )
            )
    columns = ("", "kept, raw", "kept", "hidden", "guess", "by kept class", "worst attacker")
    title = "what attackers find in validation windows, in % (and the area under the ROC curve)"
    screen.table(title, (*columns, "AUC", "verdict"), rows)


def _print_accuracy(screen: Screen, recipe: Recipe, found: dict[str, Any]) -> None:
    raw = {"label": "Original data", **found["raw"]}
    rows = []
    for row in (raw, *found["rows"]):
        cells = [str(row["label"])]
        for attribute in recipe.attributes:
            paper = row["paper"].get(attribute)
            cells += [
                f"{_percent(row, attribute)} ({_percent(row, attribute, 'read_dense')})",
                "" if paper is None else f"{paper:.2f}",
            ]
        again = row.get("reidentification", [])
        cells.append(", ".join(f"{100 * r['mean']:.1f}" for r in again))
        rows.append(tuple(cells))
    columns = ["method"]
    for attribute in recipe.attributes:
        columns += [attribute, "paper"]
    title = f"{recipe.title}, in % by convolutional (and dense) models trained on raw windows"
    screen.table(title, (*columns, "re-identified"), rows)


def _percent(row: dict[str, Any], attribute: str, kind: str = "read") -> str:
    return f"{100 * row[kind][attribute]['accuracy']['value']:.2f}"
