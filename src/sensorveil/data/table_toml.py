"""The short TOML that describes a user's own table: its entries, and the protocol it makes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.data.protocol import Protocol, read_protocol, read_toml
from sensorveil.data.recordings import Recording
from sensorveil.errors import Refusal, refuse_unknown

_NUMBER = (int, float)
# Every entry a TOML may have, with its types, so that a slip of the pen is found at once.
_TOP: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "file", "subject", "recording", "time", "default_split"), (str,)),
    **dict.fromkeys(("separator", "decimal"), (str,)),
    **dict.fromkeys(("files", "channels"), (list,)),
    **dict.fromkeys(("rate", "resample"), _NUMBER),
    **dict.fromkeys(("window", "people", "splits"), (dict,)),
    "attributes": (dict, list),
}
_WINDOW: dict[str, tuple[type, ...]] = {"length": (int,), "stride": (int,)}
_PEOPLE: dict[str, tuple[type, ...]] = {"file": (str,), "key": (str,)}
_CHANNEL: dict[str, tuple[type, ...]] = {"name": (str,), "magnitude_of": (list,)}
_ATTRIBUTE: dict[str, tuple[type, ...]] = {
    "label": (str,),
    "values": (dict,),
    "required": (bool,),
    **dict.fromkeys(("classes", "up_to", "below"), (list,)),
}
_SPLIT: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("by", "label", "together"), (str,)),
    **dict.fromkeys(("test_values", "within"), (list,)),
    **dict.fromkeys(("test", "validation"), _NUMBER),
    **dict.fromkeys(("folds", "seed"), (int,)),
}
_WORDS = {str: "text", list: "a list", dict: "a section", int: "a number", float: "a number"}

_MOST_NUMBERS = 12
"""More different numbers than this are taken for a measurement that lacks its bins."""


@dataclass(frozen=True)
class Description:
    """The TOML, checked, with its defaults filled in as far as they do not need the data."""

    place: Path
    content: dict[str, Any]
    subject: str
    channels: tuple[str, ...]
    attributes: dict[str, dict[str, Any]]
    splits: dict[str, dict[str, Any]]
    binned: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns that become labels."""
        wanted = [entry["label"] for entry in self.attributes.values()]
        return tuple(dict.fromkeys([*wanted, *self.split_labels]))

    @property
    def split_labels(self) -> tuple[str, ...]:
        """The columns that splits ask for, which must hold for whole recordings."""
        return tuple(
            entry[name]
            for entry in self.splits.values()
            for name in ("label", "together")
            if name in entry
        )

    def refusal(self, message: str) -> Refusal:
        """A refusal that names the TOML."""
        return Refusal(f"{self.place}: {message}")


def describe(place: Path) -> Description:
    """Reads a TOML and refuses what is missing, misspelt or of the wrong kind."""
    content = read_toml(place)
    where = str(place)
    _check_entries(content, _TOP, where)
    for name in ("subject", "channels", "attributes"):
        if not content.get(name):
            raise Refusal(f"{where}: the entry '{name}' is missing")
    if ("file" in content) == ("files" in content):
        raise Refusal(f"{where}: name the data by either 'file' or 'files'")
    if any(len(content.get(name, ",")) != 1 for name in ("separator", "decimal")):
        raise Refusal(f"{where}: separator and decimal are one character each")
    _check_entries(content.get("window", {}), _WINDOW, f"{where}, window")
    _check_entries(content.get("people", {}), _PEOPLE, f"{where}, people")
    given = content["attributes"]
    given = {name: {} for name in given} if isinstance(given, list) else given
    splits = content.get("splits", {})
    _check_sections(given, _ATTRIBUTE, f"{where}, attributes")
    _check_sections(splits, _SPLIT, f"{where}, splits")
    attributes = {str(n): {"label": str(n), **entry} for n, entry in given.items()}
    for name, entry in attributes.items():
        _check_values(entry, f"{where}, attributes.{name}")
    return Description(
        place=place,
        content=content,
        subject=content["subject"],
        channels=_columns(content["channels"], where),
        attributes=attributes,
        splits=splits,
        binned=tuple(
            entry["label"] for entry in attributes.values() if "up_to" in entry or "below" in entry
        ),
    )


def _check_entries(
    section: Mapping[str, Any], known: Mapping[str, tuple[type, ...]], where: str
) -> None:
    for name, value in section.items():
        if name not in known:
            raise refuse_unknown(f"{where}: entry", name, list(known))
        if type(value) not in known[name]:
            kind = _WORDS.get(known[name][0], "true or false")
            raise Refusal(f"{where}: '{name}' must be {kind}, not {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise Refusal(f"{where}: '{name}' is {value}; it must be a finite number")


def _check_sections(
    sections: Mapping[str, Any], known: Mapping[str, tuple[type, ...]], where: str
) -> None:
    for name, entry in sections.items():
        if not isinstance(entry, dict):
            raise Refusal(f"{where}: '{name}' must be a section, not {entry!r}")
        _check_entries(entry, known, f"{where}.{name}")


def _check_values(entry: Mapping[str, Any], where: str) -> None:
    """Refuses a translation to a class that does not exist."""
    classes = [str(value) for value in entry.get("classes", ())]
    for target in entry.get("values", {}).values():
        if classes and str(target) not in classes:
            raise refuse_unknown(f"{where}: class", str(target), classes)


def _columns(channels: list[Any], where: str) -> tuple[str, ...]:
    """The columns behind the channels: a magnitude needs the .x, .y and .z of its vectors."""
    columns: list[str] = []
    for entry in channels:
        if isinstance(entry, dict):
            _check_entries(entry, _CHANNEL, f"{where}, channels")
            columns += [f"{v}.{axis}" for v in entry.get("magnitude_of", ()) for axis in "xyz"]
        else:
            columns.append(str(entry))
    return tuple(dict.fromkeys(columns))


def table_protocol(about: Description, items: Sequence[Recording], rate: float) -> Protocol:
    """The protocol of a table: what the TOML leaves out is found in the data or has a default."""
    window = {"length": 128, **about.content.get("window", {})}
    window.setdefault("stride", max(1, window["length"] // 2))
    attributes = {
        name: _attribute(name, entry, items, about) for name, entry in about.attributes.items()
    }
    people = len({item.subject for item in items})
    content = {
        "dataset": about.content.get("name", about.place.stem),
        "version": 1,
        "rate": about.content.get("resample", rate),
        "window": window,
        "channels": about.content["channels"],
        "attributes": attributes,
        "splits": _splits(about, people),
        "default_split": about.content.get("default_split", "recording"),
        # Not read, but part of the digest: another TOML is another protocol.
        "table": about.content,
    }
    return read_protocol(content, str(about.place))


def _splits(about: Description, people: int) -> dict[str, dict[str, Any]]:
    """The splits that every table has, and the user's."""
    first = next(iter(about.attributes))
    splits: dict[str, dict[str, Any]] = {
        "recording": {"by": "recording", "test": 0.25, "within": [first]}
    }
    if people >= 3:  # one to test on, one to validate on, one to fit on
        splits["subject"] = {"by": "subject", "folds": min(5, people)}
    splits |= about.splits
    for name, split in splits.items():
        if split.get("by") == "subject":
            # Whole people are put aside for validation: at least one of those in training.
            trained = people - math.ceil(people / max(2, split.get("folds", 4)))
            splits[name] = {"validation": max(0.2, 1 / max(2, trained)), **split}
    return splits


def _attribute(
    name: str, entry: Mapping[str, Any], items: Sequence[Recording], about: Description
) -> dict[str, Any]:
    """The rule of an attribute, with classes where the TOML lists none."""
    values = {key: str(target) for key, target in entry.get("values", {}).items()}
    classes = [str(value) for value in entry.get("classes", ())]
    if not classes and (entry.get("up_to") or entry.get("below")):
        classes = bin_names(entry.get("up_to", ()), entry.get("below", ()))
    elif not classes:
        classes = _found_classes(name, entry["label"], values, items, about)
    if len(classes) < 2:
        only = f"one class only, '{classes[0]}'" if classes else "no class"
        raise about.refusal(f"attribute '{name}' has {only}; list its classes, or leave it out")
    return {**entry, "values": values, "classes": classes}


def _found_classes(
    name: str,
    label: str,
    values: Mapping[str, str],
    items: Sequence[Recording],
    about: Description,
) -> list[str]:
    found = {str(text) for item in items for text in np.unique(item.labels[label])} - {""}
    classes = sorted({values.get(text, text) for text in found})
    if len(classes) > _MOST_NUMBERS and all(_is_number(text) for text in classes):
        raise about.refusal(
            f"attribute '{name}' has {len(classes)} different numbers; give its bins by up_to or"
            " below, or list its classes"
        )
    return classes


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def bin_names(up_to: Sequence[float], below: Sequence[float]) -> list[str]:
    """Names for the classes of a number that is cut at some ends.

    >>> bin_names([70, 90], [])
    ['up to 70', 'above 70 to 90', 'above 90']
    >>> bin_names([], [80])
    ['below 80', 'from 80']
    """
    if up_to:
        middle = [f"above {a} to {b}" for a, b in pairwise(up_to)]
        return [f"up to {up_to[0]}", *middle, f"above {up_to[-1]}"]
    middle = [f"from {a} to below {b}" for a, b in pairwise(below)]
    return [f"below {below[0]}", *middle, f"from {below[-1]}"]
