"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.files import check_place

Rare = partial(typer.Option, hidden=True)
"""An option that few need: `--help` leaves it out, `--help-all` shows it."""

Data = Annotated[
    str, typer.Option("--data", help="A dataset's name, or the .toml file of your own table.")
]
Source = Annotated[
    Path | None, typer.Option("--from", help="Where the dataset's files are, if not in its place.")
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--split",
        help="The split: paper, recording or subject. Default: that of the dataset or the run.",
    ),
]
Fold = Annotated[int, Rare("--fold", help="Which fold of people is the test.")]
Options = Annotated[
    list[str] | None,
    Rare("--option", help="Option of simulated data, as name=value; may be repeated."),
]
Preset = Annotated[
    str, typer.Option("--preset", help="A preset of the method, such as paper or fast.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="A setting, as name=value; may be repeated.")
]
Strength = Annotated[
    list[str] | None,
    typer.Option("--strength", help="Strengths, as guidance_scale=4,gender=0.3."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
NoiseSeed = Annotated[
    int | None,
    typer.Option("--seed", help="To repeat a result; anybody who knows it can remove the noise."),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Small classifiers and attackers, for two cores.")
]
Device = Annotated[str, typer.Option("--device", help="cpu or cuda.")]
Quiet = Annotated[bool, Rare("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[bool, Rare("--json", help="Print the result as JSON.")]


class _HelpAll(click.Command):
    """Adds `--help-all`: `--help` is short and leaves out what few need."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, `--help-all`, and `--help` last."""
        *shown, help_option = super().get_params(ctx)
        everything = TyperOption(
            param_decls=["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=self._show_everything,
            help="Show all options and commands and exit.",
        )
        return [*shown, everything, help_option]

    def _show_everything(self, ctx: click.Context, _: click.Parameter, asked: bool) -> None:
        if not asked or ctx.resilient_parsing:
            return
        rare = [one for one in self.params if isinstance(one, TyperOption) and one.hidden]
        for one in rare:
            one.hidden = False
        click.echo(ctx.get_help())
        for one in rare:
            one.hidden = True
        for name, inner in getattr(self, "commands", {}).items():
            if isinstance(inner, click.Group):
                click.echo(inner.get_help(click.Context(inner, parent=ctx, info_name=name)))
        ctx.exit()


class Command(_HelpAll, TyperCommand):
    """A command whose `--help` leaves out what few need."""


class Group(_HelpAll, TyperGroup):
    """A group of commands whose `--help-all` goes through the groups in it."""


def check_new(out: Path) -> None:
    """Refuses a place that is taken or cannot be written to, before any work."""
    check_place(out)
    if out.exists():
        raise Refusal(f"{out} exists already; choose another place or remove it")


def check_file(out: Path, suffix: str) -> None:
    """Refuses a file that could not be written, or whose name says another kind."""
    if out.suffix != suffix:
        raise Refusal(f"the output {out} must end in {suffix}")
    check_place(out)
    if out.is_dir():
        raise Refusal(f"{out} is a folder, and a file is to be written; name a file")


def check_among(what: str, given: str, known: Sequence[str]) -> None:
    """Refuses a word that is not among the known ones."""
    if given not in known:
        raise refuse_unknown(what, given, list(known))


def names(given: list[str] | None) -> list[str]:
    """Names given several times or with commas.

    >>> names(["gender,weight", "age"])
    ['gender', 'weight', 'age']
    """
    return [name.strip() for text in given or [] for name in text.split(",") if name.strip()]


def pairs(given: list[str] | None, what: str) -> dict[str, str]:
    """name=value pairs, given several times or with commas.

    >>> pairs(["guidance_scale=4,gender=0.3"], "strength")
    {'guidance_scale': '4', 'gender': '0.3'}
    """
    found: dict[str, str] = {}
    for text in names(given):
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise Refusal(f"{what} '{text}' is not of the form name=value")
        if name in found:
            raise Refusal(f"{what} '{name}' is given twice")
        found[name] = value
    return found


def numbers(given: list[str] | None, what: str) -> dict[str, float]:
    """name=number pairs."""
    return {name: number(value, f"{what} '{name}'") for name, value in pairs(given, what).items()}


def values(given: list[str] | None, what: str) -> dict[str, Any]:
    """name=value pairs whose values are numbers where they look like numbers."""
    return {name: _plain(value) for name, value in pairs(given, what).items()}


def data_options(given: list[str] | None, data: str) -> dict[str, Any]:
    """The options of simulated data, checked against the dataset that they are meant for."""
    from sensorveil.data.catalog import check_options

    found = values(given, "option")
    check_options("table" if data.endswith(".toml") else data, found)
    return found


def settings(given: list[str] | None, kinds: type | Sequence[type], of: str) -> dict[str, Any]:
    """Settings by full name, of one method or of several; `Settings` converts their text."""
    several = [kinds] if isinstance(kinds, type) else kinds
    found = pairs(given, "setting").items()
    return {_full_name(name, several, of): value for name, value in found}


def _full_name(name: str, kinds: Sequence[Any], of: str) -> str:
    for kind in kinds[:-1]:
        with suppress(Refusal):  # the next one may have it
            return kind.full_name(name, of)
    return kinds[-1].full_name(name, of)


def check_device(device: str) -> str:
    """Refuses a device that is not there; sets PyTorch up for the one that is.

    Small networks gain nothing from a second thread, and on a busy machine two threads that wait
    for each other are many times slower than one. SENSORVEIL_THREADS says otherwise.
    """
    check_among("device", device, ("cpu", "cuda"))
    import torch

    torch.set_num_threads(int(os.environ.get("SENSORVEIL_THREADS", "1")))
    if device == "cuda" and not torch.cuda.is_available():
        raise Refusal("device 'cuda' is not there; use --device cpu")
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # tensor cores
    return device


def number(text: str, where: str) -> float:
    """A finite number out of text."""
    try:
        number = float(text)
    except ValueError:
        raise Refusal(f"{where}: '{text}' is no number") from None
    if not math.isfinite(number):
        raise Refusal(f"{where}: '{text}' is no finite number")
    return number


def _plain(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
