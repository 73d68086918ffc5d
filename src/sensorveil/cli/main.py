"""The command `sensorveil`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sensorveil.cli import data, demo, runs
from sensorveil.cli.screen import errors
from sensorveil.errors import Refusal
from sensorveil.version import __version__

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
app.command()(runs.obfuscate)
app.command()(runs.evaluate)


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
    try:
        app()
    except Refusal as refusal:
        errors.print(f"sensorveil: {refusal}", markup=False)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("sensorveil: stopped", markup=False)
        sys.exit(130)


if __name__ == "__main__":
    main()
