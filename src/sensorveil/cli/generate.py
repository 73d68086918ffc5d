"""sensorveil csi generate: new windows of a class, from a run of a generator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sensorveil.cli import options as given
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal


def generate(
    run: Annotated[Path, typer.Argument(help="A run folder of a generator.")],
    classes: Annotated[
        list[str], typer.Option("--class", help="A class of each kept attribute, as name=class.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The .npz file to write.")],
    count: Annotated[int, typer.Option("--n", help="How many windows.")] = 100,
    length: Annotated[
        int | None, typer.Option("--length", help="Samples of a window; default: the run's.")
    ] = None,
    strength: given.Strength = None,
    seed: given.NoiseSeed = None,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Makes windows of a class from noise, and says what the run promises to its donors."""
    import sensorveil
    from sensorveil.methods.generator import ClassGenerator

    screen = Screen(quiet, as_json)
    given.check_file(out, ".npz")
    made = sensorveil.load_run(run, given.check_device(device))
    if not isinstance(made, ClassGenerator):
        raise Refusal(f"{made.name} cannot generate windows from a class alone; a run of csi can")
    wanted = given.pairs(classes, "class")
    with screen.bars():
        windows = made.generate(wanted, count, given.numbers(strength, "strength"), seed, length)
    windows.save(out)
    screen.say(f"{len(windows)} windows of shape {windows.shape}: {out}")
    screen.say(f"For those whose windows it learnt from: {made.guarantee()}")
    screen.result(
        {
            "written": str(out),
            "windows": len(windows),
            "shape": list(windows.shape),
            "privacy": made.guarantee().as_dict(),
        }
    )
