"""sensorveil papers: hands over to the package `benchmarks` of a checkout, which no wheel has."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import typer

import sensorveil
from sensorveil.errors import Refusal

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def papers(context: typer.Context) -> None:
    """The papers' tables and figures, measured here (in a checkout)."""
    for root in (Path(sensorveil.__file__).parents[2], Path.cwd()):
        if (root / "benchmarks" / "commands.py").is_file():
            sys.path.insert(0, str(root))
            commands = typer.main.get_command(import_module("benchmarks.commands").app)
            commands.main(context.args, "sensorveil papers", standalone_mode=False)
            return
    raise Refusal(
        "the papers' recipes are in the folder 'benchmarks' of a checkout, which is not here;"
        " clone the repository and run this command in it"
    )
