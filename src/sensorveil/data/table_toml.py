"""The short TOML that describes a user's own table: its entries, and the protocol it makes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictInt, field_validator, model_validator

from sensorveil.data.io import Section, read_toml, validated
from sensorveil.data.protocol import AttributeEntry, Channels, Protocol, SampleRate, SplitRule
from sensorveil.errors import Refusal

_MOST_NUMBERS = 12
"""More different numbers than this are taken for a measurement that lacks its bins."""


def _one_character(text: str) -> str:
    if len(text) != 1:
        raise Refusal(f"'{text}' is not one character")
    return text


Character = Annotated[str, AfterValidator(_one_character)]


class TableWindow(Section):
    """The section `window`; the stride is half the length unless it is given."""

    length: StrictInt = 128
    stride: StrictInt | None = None


class PeopleTable(Section):
    """The section `people`: a table with one row a person; `key` is its column of people."""

    file: str
    key: str | None = None


class TableDescription(Section):
    """What a user's TOML says of a table; docs/howto/table.md shows every entry.

    Parameters
    ----------
    subject, recording, time : str
        The columns of the person, the recording (optional) and the time (optional).
    channels : tuple of ChannelRule
        The columns that are channels.
    attributes : dict of str to AttributeEntry
        The attributes; a list of columns stands for attributes of those names.
    file, files : str, tuple of str
        The data, beside the TOML; one of the two.
    name : str, optional
        The dataset's name; default: that of the TOML.
    sample_rate : float
        Samples a second, as recorded.
    resample : float, optional
        The sample rate of the windows, where it is another.
    separator, decimal : str, optional
        Of CSV files.
    window, people, splits, default_split
        As in a protocol; what is left out has a default.
    """

    subject: str
    channels: Channels
    attributes: dict[str, AttributeEntry]
    file: str | None = None
    files: tuple[str, ...] = ()
    name: str = ""
    recording: str | None = None
    time: str | None = None
    sample_rate: SampleRate | None = None
    resample: SampleRate | None = None
    separator: Character | None = None
    decimal: Character = "."
    window: TableWindow = TableWindow()
    people: PeopleTable | None = None
    splits: dict[str, SplitRule] = Field(default_factory=dict)
    default_split: str = "recording"

    @field_validator("attributes", mode="before")
    @classmethod
    def _check_attributes(cls, given: Any) -> Any:
        return {str(name): {} for name in given} if isinstance(given, list) else given

    @model_validator(mode="after")
    def _check(self) -> TableDescription:
        for name in ("subject", "channels", "attributes"):
            if not getattr(self, name):
                raise Refusal(f"the entry '{name}' is missing")
        if (self.file is None) == (not self.files):
            raise Refusal("name the data by either 'file' or 'files'")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns behind the channels."""
        return tuple(dict.fromkeys(name for rule in self.channels for name in rule.sources))

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns that become labels."""
        wanted = [entry.label or name for name, entry in self.attributes.items()]
        return tuple(dict.fromkeys([*wanted, *self.split_labels]))

    @property
    def split_labels(self) -> tuple[str, ...]:
        """The columns that splits ask for; they must hold for whole recordings."""
        wanted = [name for rule in self.splits.values() for name in (rule.label, rule.together)]
        return tuple(name for name in wanted if name)

    @property
    def numeric_labels(self) -> tuple[str, ...]:
        """The columns of labels that are cut into bins."""
        entries = self.attributes.items()
        return tuple(entry.label or name for name, entry in entries if entry.bin_ends)


def read_description(place: Path) -> TableDescription:
    """Reads a TOML and refuses what is missing, misspelt or of the wrong type."""
    return validated(TableDescription, read_toml(place), str(place))


def table_protocol(
    about: TableDescription, place: Path, found: dict[str, set[str]], people: int
) -> Protocol:
    """The protocol of a table: what the TOML leaves out is found in the data or has a default.

    Parameters
    ----------
    about : TableDescription
        What the TOML says.
    place : Path
        The TOML.
    found : dict of str to set of str
        The values of each label in the data.
    people : int
        How many people the data has.
    """
    given: dict[str, Any] = about.model_dump()
    content = {
        "dataset": about.name or place.stem,
        "version": 1,
        "sample_rate": about.resample or about.sample_rate,
        "window": {
            "length": about.window.length,
            "stride": max(1, about.window.length // 2),
            **about.window.model_dump(exclude_none=True),
        },
        "channels": given["channels"],
        "attributes": {
            name: {**entry, "classes": _classes(name, about.attributes[name], found, place)}
            for name, entry in given["attributes"].items()
        },
        "splits": _splits(about, people),
        "default_split": about.default_split,
        "options": given,  # another TOML is another protocol
    }
    return validated(Protocol, content, str(place))


def _splits(about: TableDescription, people: int) -> dict[str, dict[str, Any]]:
    """The splits that every table has, and the user's."""
    first = next(iter(about.attributes))
    splits: dict[str, dict[str, Any]] = {
        "recording": {"by": "recording", "test": 0.25, "within": [first]}
    }
    if people >= 3:  # one to test on, one to validate on, one to fit on
        splits["subject"] = {"by": "subject", "folds": min(5, people)}
    splits |= {n: rule.model_dump(exclude_unset=True) for n, rule in about.splits.items()}
    for name, split in splits.items():
        if split["by"] == "subject":
            # Whole people are put aside for validation: at least one of those in training.
            trained = people - math.ceil(people / max(2, split.get("folds", 4)))
            splits[name] = {"validation": max(0.2, 1 / max(2, trained)), **split}
    return splits


def _classes(
    name: str, entry: AttributeEntry, found: dict[str, set[str]], place: Path
) -> Sequence[str]:
    """The classes that the TOML lists, or those of its bins, or those found in the data."""
    classes: Sequence[str] = entry.classes
    if not classes and entry.bin_ends:
        classes = bin_names(entry.up_to, entry.below)
    elif not classes:
        values = found[entry.label or name] - {""}
        classes = sorted({entry.values.get(value, value) for value in values})
        if len(classes) > _MOST_NUMBERS and _all_numbers(classes):
            raise Refusal(
                f"{place}: attribute '{name}' has {len(classes)} different numbers; give its bins"
                " by up_to or below, or list its classes"
            )
    if len(classes) < 2:
        only = f"one class only, '{classes[0]}'" if classes else "no class"
        raise Refusal(f"{place}: attribute '{name}' has {only}; list its classes, or leave it out")
    return classes


def _all_numbers(values: Iterable[str]) -> bool:
    try:
        for value in values:
            float(value)
    except ValueError:
        return False
    return True


def bin_names(up_to: Sequence[float], below: Sequence[float]) -> list[str]:
    """Names for the classes of a number that is cut at some ends.

    Examples
    --------
    >>> bin_names([70, 90], [])
    ['up to 70', 'above 70 to 90', 'above 90']
    >>> bin_names([], [80])
    ['below 80', 'from 80']
    """
    if up_to:
        middle = [f"above {a:.12g} to {b:.12g}" for a, b in pairwise(up_to)]
        return [f"up to {up_to[0]:.12g}", *middle, f"above {up_to[-1]:.12g}"]
    middle = [f"from {a:.12g} to below {b:.12g}" for a, b in pairwise(below)]
    return [f"below {below[0]:.12g}", *middle, f"from {below[-1]:.12g}"]
