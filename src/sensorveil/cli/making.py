"""What the commands about generators share: options, and makers of methods for a seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sensorveil.cli import options as given
from sensorveil.errors import Refusal

if TYPE_CHECKING:
    from sensorveil.measures.residual import ResidualSettings
    from sensorveil.methods.base import Obfuscator

Result = Annotated[Path, typer.Option("--out", help="A .json file for the result.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A setting of csi, as name=value.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small classifiers, for two cores.")]
Preset = Annotated[str, typer.Option(help="fast, paper or sound.")]
Phases = Annotated[
    str, typer.Option(help="kept, or aligned: all windows without what a card adds to phases.")
]
FirstSeed = Annotated[int, typer.Option(help="The first of the seeds.")]
Join = Annotated[
    list[Path] | None,
    typer.Option(help="Results of parts of one study, to be put together; nothing is trained."),
]


def maker(
    method: str, preset: str, setting: list[str] | None, device: str, **more: Any
) -> Callable[[int], Obfuscator]:
    """Makes the method for a seed; settings are checked at once."""
    from sensorveil.methods.registry import method as find

    made = find(method)
    settings = {**given.settings(setting, made.Settings, method), **more}
    made(preset, 0, device, **settings)
    return lambda seed: made(preset, seed, device, **settings)


def read_parts(places: list[Path], asked: str) -> list[dict[str, Any]]:
    """Results of parts of one study, which must have been asked for in the same way."""
    parts: list[dict[str, Any]] = []
    for place in places:
        try:
            part = json.loads(place.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise Refusal(f"{place} cannot be read as a result: {error}") from None
        if asked not in part:
            raise Refusal(f"{place} is no result of this command")
        if parts and part[asked] != parts[0][asked]:
            raise Refusal(f"{place} is of another study than {places[0]}: {part[asked]}")
        parts.append(part)
    return parts


def classifier(quick: bool) -> ResidualSettings:
    """The size of the ResNet that reads what was generated."""
    from sensorveil.measures.residual import ResidualSettings

    return ResidualSettings.quick() if quick else ResidualSettings()


def check_out(out: Path, seeds: int, first_seed: int = 0) -> None:
    """Refuses a place for the result, or seeds, that make no sense."""
    if seeds < 1:
        raise Refusal(f"--seeds is {seeds}; at least one is needed")
    if first_seed < 0:
        raise Refusal(f"--first-seed is {first_seed}; it must be 0 or more")
    given.check_file(out, ".json")
