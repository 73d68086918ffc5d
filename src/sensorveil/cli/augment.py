"""sensorveil csi augment: figures 2 and 3 of the CSI paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sensorveil.cli import options as given
from sensorveil.cli.making import (
    FirstSeed,
    Join,
    Phases,
    Preset,
    Quick,
    Result,
    Set,
    check_out,
    classifier,
    maker,
    read_parts,
)
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal

if TYPE_CHECKING:
    from sensorveil.audit.augmentation import Augmentation


def augment(
    method: Annotated[str, typer.Argument(help="csi, csi-vae, or any other method.")],
    out: Result,
    data: given.Data = "simulated-csi",
    source: given.Source = None,
    option: given.Options = None,
    keep: Annotated[str, typer.Option("--keep", help="The attribute that is read.")] = "activity",
    hide: Annotated[str, typer.Option("--hide", help="What the method hides.")] = "subject",
    protocol: given.Protocol = None,
    phases: Phases = "kept",
    folds: Annotated[int, typer.Option(help="Folds of people, with --split subject.")] = 1,
    windows: Annotated[
        int | None,
        typer.Option(help="So many training windows of each fold, drawn at random; else all."),
    ] = None,
    preset: Preset = "fast",
    setting: Set = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    first_seed: FirstSeed = 0,
    join: Join = None,
    quick: Quick = False,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Figures 2 and 3 of the CSI paper: accuracy with generated windows beside real ones, 1:1."""
    from sensorveil.audit.augmentation import Augmentation, augmentation
    from sensorveil.audit.folds import thinned
    from sensorveil.conditions import conditions
    from sensorveil.data.catalog import load_whole
    from sensorveil.data.phases import with_phases
    from sensorveil.data.splits import split_windows
    from sensorveil.measures.residual import ResidualModel

    screen = Screen(quiet, as_json)
    check_out(out, seeds, first_seed)
    if windows is not None and windows < 1:
        raise Refusal(f"--windows is {windows}; at least one is needed")
    if join:
        parts = read_parts(join, "asked")
        more = {"conditions": conditions(), "parts": [part["conditions"] for part in parts]}
        return _told(screen, out, Augmentation.joined(parts), parts[0]["asked"], more)
    device = given.check_device(device)
    make, size = maker(method, preset, setting, device), classifier(quick)
    options = given.data_options(option, data)
    whole, corpus, rules = load_whole(data, source, **options)
    whole = with_phases(whole, phases)
    splits = [split_windows(whole, corpus, rules, protocol, fold) for fold in range(folds)]
    if windows is not None:
        splits = [replace(split, train=thinned(split.train, windows, 0)) for split in splits]
    with screen.bars():
        found = augmentation(
            {method: make},
            splits,
            keep,
            hide,
            train=lambda some, seed: ResidualModel(size, seed, device).fit(some, keep),
            seeds=range(first_seed, first_seed + seeds),
        )[method]
    origin = splits[0].train.origin
    asked = {
        "method": method,
        "data": data,
        "options": options,
        "split": origin.split if origin else None,
        "folds": folds,
        "windows": windows,
        "phases": phases,
        "preset": preset,
        "settings": sorted(given.names(setting or [])),
        "quick": quick,
    }
    _told(screen, out, found, asked, {"conditions": conditions(device)})


def _told(
    screen: Screen, out: Path, found: Augmentation, asked: dict[str, Any], more: dict[str, Any]
) -> None:
    from sensorveil.files import write_json

    content = {"asked": asked, **found.as_dict(), **more}
    write_json(out, content)
    people, seeds = found.real.people, found.real.seeds
    screen.table(
        f"{found.attribute} of {asked['data']}, accuracy over {people} people, seeds: {seeds}",
        ("trained on", "accuracy"),
        [
            ("real windows", str(found.real)),
            ("and as many generated ones", str(found.mixed)),
            ("gain", str(found.gain)),
        ],
    )
    screen.result(content)
