"""sensorveil data: list, info, prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sensorveil.cli import options as given
from sensorveil.cli.screen import Screen
from sensorveil.files import check_place

app = typer.Typer(help="Datasets: what there is, what is here, and preparing them.")


@app.command("list", cls=given.Command)
def list_datasets(quiet: given.Quiet = False, as_json: given.AsJson = False) -> None:
    """All datasets, and whether their files are here."""
    from sensorveil.data.catalog import available, dataset, list_datasets

    screen = Screen(quiet, as_json)
    found = [(name, dataset(name).card, available(name)) for name in list_datasets()]
    screen.table(
        "Datasets",
        ("name", "what", "people", "hours", "Hz", "here"),
        [
            (
                name,
                card.title,
                str(card.people or "any"),
                f"{card.hours:g}" if card.hours else "any",
                f"{card.sample_rate:g}" if card.sample_rate else "any",
                "yes" if here else "no",
            )
            for name, card, here in found
        ],
    )
    screen.result([{"name": name, **card.model_dump(), "here": here} for name, card, here in found])


@app.command("info", cls=given.Command)
def info(
    name: Annotated[str, typer.Argument(help="A dataset's name, or the .toml of your own table.")],
    source: given.Source = None,
    option: given.Options = None,
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """A dataset's card, and what its files here hold."""
    from sensorveil.data.catalog import available, dataset, describe

    screen = Screen(quiet, as_json)
    options = given.data_options(option, name)
    table = name.endswith(".toml")
    made = dataset("table" if table else name, **options)
    card = made.card.model_dump()
    screen.say(f"{made.card.title} ({'table' if table else name})")
    for entry in ("channels", "licence", "citation", "url"):
        screen.say(f"  {entry}: {card[entry]}")
    attributes = {} if table else made.protocol().attributes
    meanings = {"subject": made.card.subject, **{n: r.meaning for n, r in attributes.items()}}
    for attribute, meaning in meanings.items():
        screen.say(f"  {attribute}: {meaning}")
    if not table and source is None and not available(name):
        screen.say(f"  Its files are not here. To get it, {made.card.obtain}.")
        screen.result({"name": name, "card": card, "here": None})
        return
    here = describe(name, source, **options)
    _print_measured(screen, here)
    screen.result({"name": name, "card": card, "here": here})


@app.command("prepare", cls=given.Command)
def prepare(
    name: Annotated[str, typer.Argument(help="A dataset's name.")],
    source: Annotated[Path, typer.Option("--from", help="The folder or file you downloaded.")],
    target: Annotated[
        Path | None, typer.Option("--to", help="Where to write; default: the dataset's place.")
    ] = None,
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Reads a dataset's files once and writes a form that loads fast."""
    from sensorveil.data.catalog import dataset
    from sensorveil.data.dataset import PREPARED, data_home

    screen = Screen(quiet, as_json)
    place = target or data_home() / name
    if place.is_dir() or not place.suffix:
        place = place / PREPARED
    check_place(place)
    written = dataset(name).prepare(source, place)
    screen.say(f"{name} is prepared: {written} ({written.stat().st_size / 1e6:.1f} MB)")
    screen.result({"name": name, "written": str(written)})


def _print_measured(screen: Screen, here: dict[str, Any]) -> None:
    window = here["window"]
    screen.say(
        f"  here: {here['people']} people, {here['recordings']} recordings, {here['hours']} hours"
        f" at {here['sample_rate']:g} Hz; {here['windows']} windows of {window['length']} at stride"
        f" {window['stride']} (protocol version {here['protocol']['version']},"
        f" {here['protocol']['digest']})"
    )
    rows = [
        (f"{attribute}: {label}", str(count), str(about["people"][label]))
        for attribute, about in here["attributes"].items()
        for label, count in about["windows"].items()
    ]
    screen.table("Classes", ("attribute: class", "windows", "people"), rows)
    rows = [
        (
            name,
            about.get("refused") or about["by"],
            *(str(about.get(part, "")) for part in ("train", "validation", "test")),
        )
        for name, about in here["splits"].items()
    ]
    screen.table("Splits", ("name", "by", "train", "of it validation", "test"), rows)
