"""sensorveil papers: a paper's tables and figures, measured here beside its own numbers."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.blinder_command import experiment
from benchmarks.tables import print_tables
from sensorveil.cli import options as given
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.files import check_place

if TYPE_CHECKING:
    from benchmarks.recipe import Recipe
    from sensorveil.data.splits import Split
    from sensorveil.methods.base import Obfuscator


app = typer.Typer(
    help="What the papers' tables and figures say, measured here beside them.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("experiment", cls=given.Command)(experiment)


@app.command("list", cls=given.Command)
def list_recipes(quiet: given.Quiet = False, as_json: given.AsJson = False) -> None:
    """All recipes and their parts."""
    from benchmarks.recipe import names, recipe

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
    from benchmarks.accuracy import check, kinds_of_settings
    from benchmarks.plan import Plan
    from benchmarks.recipe import recipe
    from benchmarks.run import commit, measure
    from sensorveil.classifiers import ClassifierSettings
    from sensorveil.conditions import conditions
    from sensorveil.data.catalog import load_whole
    from sensorveil.data.phases import with_phases
    from sensorveil.data.splits import split_windows
    from sensorveil.files import write_json

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
    origin, held = split.test.origin, {**conditions(device), "commit": commit()}
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
            write_json(place, {**head, **found, "conditions": held})

        with screen.bars():
            found = measure(one, chosen, plan, keep, leaks)
        print_tables(screen, {**head, **found})
        screen.say(f"Written: {places[one]}")
        screen.result({**head, **found})


@app.command("render", cls=given.Command)
def render(
    out: Annotated[
        Path | None, typer.Option("--out", help="Their folder; else docs/results.")
    ] = None,
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Writes the pages of results out of benchmarks/results."""
    from benchmarks.render import PAGES, write

    screen = Screen(quiet, as_json)
    places = write(out or PAGES)
    screen.say(f"Written: {len(places)} pages in {places[0].parent}")
    screen.result([str(place) for place in places])


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
