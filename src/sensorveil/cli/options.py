"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.files import check_place

Data = Annotated[
    str, typer.Option("--data", help="A dataset's name, or the .toml file of your own table.")
]
Source = Annotated[
    Path | None, typer.Option("--from", help="Where the dataset's files are, if not in its place.")
]
Protocol = Annotated[
    str | None,
    typer.Option("--protocol", help="The split: paper, recording or subject. Default: its own."),
]
Fold = Annotated[int, typer.Option("--fold", help="Which fold of people is the test.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", help="Option of simulated data, as name=value; may be repeated."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random draw in training.")]
NoiseSeed = Annotated[
    int | None, typer.Option("--seed", help="Only to repeat a result: it makes noise known.")
]
Device = Annotated[str, typer.Option("--device", help="cpu or cuda.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def check_file(out: Path, suffix: str) -> None:
    """Refuses a file that could not be written, or whose name says another kind."""
    if out.suffix != suffix:
        raise Refusal(f"the output {out} must end in {suffix}")
    check_place(out)


def names(given: list[str]) -> list[str]:
    """Names given several times or with commas.

    >>> names(["gender,weight", "age"])
    ['gender', 'weight', 'age']
    """
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def pairs(given: list[str] | None, what: str) -> dict[str, str]:
    """name=value pairs, given several times or with commas.

    >>> pairs(["keep=4,gender=0.3"], "strength")
    {'keep': '4', 'gender': '0.3'}
    """
    found: dict[str, str] = {}
    for text in names(given or []):
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


def settings(given: list[str] | None, kind: type | Sequence[type], of: str) -> dict[str, Any]:
    """name=value pairs as the types that settings have: a method's, or those of several."""
    kinds = [kind] if isinstance(kind, type) else kind
    types = {entry.name: str(entry.type) for one in kinds for entry in fields(one)}
    found = {}
    for name, value in pairs(given, "setting").items():
        if name not in types:
            raise refuse_unknown(f"setting of {of}", name, list(types))
        found[name] = _typed(value, types[name], f"setting '{name}'")
    return found


def check_device(device: str) -> str:
    """Refuses a device that is not there."""
    import torch

    if device not in ("cpu", "cuda"):
        raise refuse_unknown("device", device, ["cpu", "cuda"])
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


def _typed(text: str, kind: str, where: str) -> Any:
    if kind == "int":
        if number(text, where) % 1:
            raise Refusal(f"{where}: '{text}' is no whole number")
        return int(text) if text.lstrip("+-").isdigit() else int(float(text))  # 1e3 is whole too
    if kind == "float":
        return number(text, where)
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise Refusal(f"{where}: '{text}' is neither true nor false")
        return text.lower() == "true"
    return text
