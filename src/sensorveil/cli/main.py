"""The command `sensorveil`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import click
import typer

from sensorveil.cli import audits, comparisons, csi, data, demo, federated, papers, runs
from sensorveil.cli.options import Command, Group
from sensorveil.cli.screen import errors
from sensorveil.errors import Refusal
from sensorveil.version import __version__

STOPPED = 130
START, HIDE, CHECK, PAPERS = "Start here", "Hide", "Check", "The papers' own"

app = typer.Typer(
    cls=Group,
    help="Hides what sensor data says about a person and keeps what an application needs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

COMMANDS: dict[str, tuple[Callable[..., Any], ...]] = {
    START: (demo.demo, runs.methods),
    HIDE: (runs.fit, runs.obfuscate, runs.extend),
    CHECK: (runs.evaluate, audits.audit, comparisons.compare, comparisons.sweep),
}
for heading, commands in COMMANDS.items():
    for command in commands:
        app.command(cls=Command, rich_help_panel=heading)(command)
for name, inner, heading in (
    ("data", data.app, START),
    ("csi", csi.app, PAPERS),
    ("federated", federated.app, PAPERS),
):
    app.add_typer(inner, name=name, cls=Group, no_args_is_help=True, rich_help_panel=heading)
app.command(rich_help_panel=PAPERS, add_help_option=False, context_settings=papers.PASSED_ON)(
    papers.papers
)


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
