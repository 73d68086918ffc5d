"""A recipe is a file: data, policy, the rows of a paper's tables, and the figures it printed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sensorveil.errors import refuse_unknown
from sensorveil.methods.registry import method

FOLDER = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class Row:
    """One row of a table: a method with a modifier, and the paper's figures in percent.

    `with_settings` are settings of a diffusion method that leave its generator as it is, so that rows
    which differ in them share one. With a `federation`, values of its plan, the row is trained over
    people whose data stays with them; `fedblinder` in it is that baseline. `paper` has the accuracy
    of each attribute by its name, its F1 by the name with `_f1`, and what re-identification reached
    by the name with `_reidentified`.
    """

    label: str
    where: str
    method: str
    modifier: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    with_settings: Mapping[str, Any] = field(default_factory=dict)
    federation: Mapping[str, Any] = field(default_factory=dict)
    strength: Mapping[str, float] = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """What is to be measured, and what the paper found.

    `parts` are what can be measured, each with its options; each gives one file. `unlisted`
    attributes are predicted as well. `presets` name a method's own preset for these data. `paper` are
    figures of the paper that belong to no row: raw data, timings. `phases` is how complex windows are
    prepared (`data/phases.py`).
    """

    name: str
    title: str
    data: str
    split: str
    keep: tuple[str, ...]
    hide: tuple[str, ...]
    rows: tuple[Row, ...]
    parts: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    unlisted: tuple[str, ...] = ()
    presets: Mapping[str, str] = field(default_factory=dict)
    phases: str = "kept"

    @property
    def attributes(self) -> tuple[str, ...]:
        """All that are predicted: kept, hidden and unlisted."""
        return (*self.keep, *self.hide, *self.unlisted)

    def only_last(self) -> Recipe:
        """The recipe with its last row alone: the method that the paper is about."""
        return replace(self, rows=self.rows[-1:])

    def preset_of(self, name: str, preset: str) -> str:
        """The preset of a method for these data; "fast" for "paper" where it is no paper's method."""
        if preset != "paper":
            return preset
        return self.presets.get(name, "paper" if "paper" in method(name).presets else "fast")


def names() -> list[str]:
    """All recipes.

    >>> "obscurenet-motionsense-gender" in names()
    True
    """
    return sorted(place.stem for place in FOLDER.glob("*.toml"))


def recipe(name: str) -> Recipe:
    """A recipe by its name, or the refusal that lists the known ones.

    >>> recipe("obscurenet-motionsense-gender").hide
    ('gender',)
    """
    if name not in names():
        raise refuse_unknown("recipe", name, names())
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
    rows = tuple(Row(**row) for row in content.pop("rows"))
    for several in ("keep", "hide", "unlisted"):
        content[several] = tuple(content.get(several, ()))
    parts = content.pop("parts", {})
    # A generator has no output for a given window, so that no accuracy is measured of it.
    parts = parts if "donors" in parts else {"accuracy": {}, **parts}
    return Recipe(name=name, rows=rows, parts=parts, **content)
