"""sensorveil reproduce: a paper's tables and figures, measured here beside its own numbers."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sensorveil.cli import options as given
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.files import check_place

if TYPE_CHECKING:
    from sensorveil.recipes.recipe import Recipe


def reproduce(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="'list' names all recipes.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for RECIPE-PART.json.")
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(help="accuracy, grid, timing or training; accuracy unless named."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 5,
    preset: Annotated[str, typer.Option(help="paper or fast.")] = "paper",
    leaks: Annotated[
        int, typer.Option(help="Runs of re-identification in accuracy; 0 leaves it out.")
    ] = 20,
    only: Annotated[
        list[str] | None, typer.Option("--method", help="Rows of these methods only.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller fixed models.")] = False,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting as name=value, for all methods.")
    ] = None,
    source: given.Source = None,
    option: given.Options = None,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Measures what a paper's tables and figures say, and writes both side by side."""
    import sensorveil
    from sensorveil.conditions import conditions
    from sensorveil.files import write_json
    from sensorveil.measures.inference import InferenceSettings
    from sensorveil.recipes import reproduce as runner
    from sensorveil.recipes.recipe import PARTS, names, recipe

    screen = Screen(quiet, as_json)
    if name == "list":
        screen.table(
            "Recipes", ("name", "what"), [(known, recipe(known).title) for known in names()]
        )
        screen.result(names())
        return
    chosen = recipe(name)
    parts = given.names(part or ["accuracy"])
    if only:
        chosen = _only(chosen, given.names(only))
    unknown = [one for one in parts if one not in PARTS]
    if unknown:
        raise refuse_unknown("part", unknown[0], PARTS)
    if out is None:
        raise Refusal("name the folder for the results with --out")
    if seeds < 1 or leaks < 0:
        raise Refusal("--seeds must be 1 or more, and --leaks 0 or more")
    places = _places(out, chosen, parts)
    overrides = given.values(setting, "--set")
    runner.check(chosen, parts, preset, overrides)
    device = given.check_device(device)
    split = sensorveil.load(
        chosen.data, chosen.split, source=source, **given.data_options(option, chosen.data)
    )
    plan = runner.Plan(
        split=split,
        seeds=tuple(range(seeds)),
        preset=preset,
        device=device,
        inference=InferenceSettings.quick() if quick else InferenceSettings(),
        overrides=overrides,
    )
    work = {
        "accuracy": lambda done: runner.accuracies(chosen, plan, done, leaks),
        "grid": lambda done: runner.grid(chosen, plan, done),
        "timing": lambda done: runner.timing(chosen, plan, done),
        "training": lambda done: runner.training(chosen, plan, done),
    }
    origin = split.test.origin
    for one in parts:
        head = {
            "format": 1,
            "kind": "reproduction",
            "recipe": chosen.name,
            "title": chosen.title,
            "part": one,
            "preset": preset,
            "seeds": list(plan.seeds),
            "data": asdict(origin) if origin else {},
            "inference": asdict(plan.inference or InferenceSettings()),
        }

        def keep(
            found: dict[str, Any], head: dict[str, Any] = head, place: Path = places[one]
        ) -> None:
            write_json(place, {**head, **found, "conditions": conditions(device)})

        with screen.bars():
            found = work[one](keep)
        _print(screen, chosen, one, found)
        screen.say(f"Written: {places[one]}")
        screen.result({**head, **found})


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
    if part == "accuracy":
        _print_accuracy(screen, recipe, found)
    elif part == "grid":
        rows = [
            (f"{p['alpha']:g}", f"{p['beta']:g}", *(_percent(p, a) for a in recipe.attributes))
            for p in found["points"]
        ]
        screen.table("deterministic, in %", ("alpha", "beta", *recipe.attributes), rows)
    else:
        screen.say(str({k: v for k, v in found.items() if k != "paper"}))


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
