"""The command `sensorveil`."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import click
import torch
import typer

from sensorveil.cli import (
    audits,
    augment,
    canaries,
    comparisons,
    data,
    demo,
    donors,
    federate,
    generate,
    members,
    reproduce,
    runs,
)
from sensorveil.cli.screen import errors
from sensorveil.errors import Refusal
from sensorveil.version import __version__

STOPPED = 130

app = typer.Typer(
    help="Hides what sensor data says about a person and keeps what an application needs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo.demo)
app.add_typer(data.app, name="data", no_args_is_help=True)
app.command()(runs.methods)
app.command()(runs.fit)
app.command()(runs.extend)
app.command()(runs.obfuscate)
app.command()(generate.generate)
app.command()(donors.donors)
app.command()(members.members)
app.command()(canaries.canaries)
app.command()(augment.augment)
app.command()(runs.evaluate)
app.command()(audits.audit)
app.command()(comparisons.compare)
app.command()(comparisons.sweep)
app.command()(reproduce.reproduce)
app.add_typer(federate.app, name="federate", no_args_is_help=True)
app.command()(federate.personalise)


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Takes the options that stand before a command."""


def main() -> None:
    """Runs a command; a refusal is one line on the error stream and exit code 2."""
    # Small networks gain nothing from a second thread, and on a busy machine two threads that wait
    # for each other are many times slower than one.
    torch.set_num_threads(int(os.environ.get("SENSORVEIL_THREADS", "1")))
    try:
        code = app(standalone_mode=False)
    except Refusal as refusal:
        _end(str(refusal), 2)
    except click.UsageError as error:
        help_of = error.ctx.command_path if error.ctx else "sensorveil"
        _end(f"{error.format_message()} '{help_of} --help' says more", 2)
    if code == STOPPED:
        _end("stopped", STOPPED)
    sys.exit(code if isinstance(code, int) else 0)


def _end(line: str, code: int) -> NoReturn:
    errors.print(f"sensorveil: {line}", markup=False)
    sys.exit(code)


if __name__ == "__main__":
    main()
