"""A recipe is a file: data, policy, the rows of a paper's tables, and the figures it printed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from sensorveil.errors import refuse_unknown

PARTS = ("accuracy", "grid", "timing", "training")
"""What of a recipe can be measured; each gives one file."""


@dataclass(frozen=True)
class Row:
    """One row of a table: a method with a modifier, and the paper's figures in percent.

    `paper` has the accuracy of each attribute by its name, its F1 by the name with `_f1`, and what
    re-identification reached by the name with `_reidentified`.
    """

    label: str
    where: str
    method: str
    modifier: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """What is to be measured, and what the paper found."""

    name: str
    title: str
    data: str
    split: str
    keep: str
    hide: tuple[str, ...]
    settings: Mapping[str, Any]
    rows: tuple[Row, ...]
    paper: Mapping[str, Any]
    """Figures of the paper that belong to no row: raw data, timings, the grid's best."""
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()

    @property
    def attributes(self) -> tuple[str, ...]:
        """The kept attribute and those to hide."""
        return (self.keep, *self.hide)


def names() -> list[str]:
    """All recipes.

    >>> "obscurenet-motionsense-gender" in names()
    True
    """
    folder = resources.files("sensorveil.recipes") / "files"
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def recipe(name: str) -> Recipe:
    """A recipe by its name, or the refusal that lists the known ones.

    >>> recipe("obscurenet-motionsense-gender").hide
    ('gender',)
    """
    if name not in names():
        raise refuse_unknown("recipe", name, names())
    text = (resources.files("sensorveil.recipes") / "files" / f"{name}.toml").read_text("utf-8")
    content = tomllib.loads(text)
    rows = tuple(Row(**row) for row in content.pop("rows"))
    grid = content.pop("grid", {})
    return Recipe(
        name=name,
        rows=rows,
        hide=tuple(content.pop("hide")),
        alphas=tuple(grid.get("alpha", ())),
        betas=tuple(grid.get("beta", ())),
        **content,
    )
