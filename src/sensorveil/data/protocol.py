"""Protocols: one TOML file a dataset says how recordings become windows, labels and splits."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Strict,
    StrictBool,
    StrictInt,
    field_validator,
    model_validator,
)

from sensorveil.data.io import Section, validated
from sensorveil.errors import Refusal, refuse_unknown


def _as_text(value: Any) -> Any:
    return value if isinstance(value, (list, dict)) else str(value)


def _above_zero(rate: float) -> float:
    if not 0 < rate < math.inf:
        raise Refusal(f"the sample rate is {rate}; it must be a finite number above 0 Hz")
    return rate


def _by_name(channels: Any) -> Any:
    """A channel may be written as its name alone."""
    if not isinstance(channels, (list, tuple)):
        return channels
    return [{"name": entry} if isinstance(entry, str) else entry for entry in channels]


Text = Annotated[str, BeforeValidator(_as_text)]
"""A value of a label: text, or a number that stands for its text."""
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
SampleRate = Annotated[float, Strict(), AfterValidator(_above_zero)]


class ChannelRule(Section):
    """One channel of the windows.

    Parameters
    ----------
    name : str
        The channel's name; without `magnitude_of`, the recording's channel of that name.
    magnitude_of : tuple of str, optional
        Names of vectors, each with channels .x, .y and .z: the length of their sum is taken.
    """

    name: str
    magnitude_of: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The recording's channels that it is made of."""
        return tuple(f"{v}.{axis}" for v in self.magnitude_of for axis in "xyz") or (self.name,)


Channels = Annotated[tuple[ChannelRule, ...], BeforeValidator(_by_name)]


class WindowRule(Section):
    """How windows are cut.

    Parameters
    ----------
    length : int
        Samples of a window.
    stride : int
        Samples from the start of one window to that of the next.
    pad : float, optional
        Cuts each recording, or fills it up at its end with this value, to one window.
    """

    length: StrictInt
    stride: StrictInt
    pad: Number | None = None

    @model_validator(mode="after")
    def _check(self) -> WindowRule:
        if self.length < 2 or self.stride < 1:
            raise Refusal(
                f"window length {self.length} and stride {self.stride}; the length must be at"
                " least 2 and the stride at least 1"
            )
        return self


class AttributeEntry(Section):
    """How a label becomes a class, as far as it does not need the data.

    Parameters
    ----------
    label : str, optional
        The recording's label; default: the attribute's name.
    classes : tuple of str
        The names of the classes.
    values : dict, optional
        Translates values of the label to classes.
    up_to, below : tuple of float, optional
        Ends of bins, for a label that is a number: upper ends that belong to their bin, or that do
        not.
    required : bool, default False
        Whether a window without a class is dropped; otherwise its class is unknown.
    description : str, optional
        What it means, where the names of the classes do not say it.
    """

    label: str = ""
    classes: tuple[Text, ...] = ()
    values: dict[str, Text] = Field(default_factory=dict)
    up_to: tuple[Number, ...] = ()
    below: tuple[Number, ...] = ()
    required: StrictBool = False
    description: str = Field("", exclude=True)

    @property
    def bin_ends(self) -> tuple[float, ...]:
        """The ends of the bins, of either kind."""
        return self.up_to or self.below

    @model_validator(mode="after")
    def _check_values(self) -> AttributeEntry:
        for target in self.values.values():
            if self.classes and target not in self.classes:
                raise refuse_unknown("class", target, self.classes)
        if self.up_to and self.below:
            raise Refusal("it has both up_to and below; choose one")
        return self


class AttributeRule(AttributeEntry):
    """How a label becomes a class; its classes are named."""

    classes: tuple[Text, ...]

    @property
    def meaning(self) -> str:
        """Its description, or its classes."""
        return self.description or ", ".join(self.classes)

    @model_validator(mode="after")
    def _check_classes(self) -> AttributeRule:
        if len(set(self.classes)) != len(self.classes) or not self.classes:
            raise Refusal("it needs classes, each once")
        ends = self.bin_ends
        if ends and (len(self.classes) != len(ends) + 1 or list(ends) != sorted(set(ends))):
            raise Refusal(
                f"it has {len(ends)} bin ends and {len(self.classes)} classes; n rising ends make"
                " n + 1 classes"
            )
        return self


class SplitRule(Section):
    """How windows are divided into training and test.

    Parameters
    ----------
    by : {"label", "recording", "subject", "window"}
        label: the test is the recordings whose `label` has one of the `test_values`; recording: a
        random `test` share of the recordings; subject: one of `folds` of people; window: a random
        `test` share of all windows.
    label, test_values
        For a split by label.
    test : float, default 0.2
        The share of the test.
    folds : int, default 4
        How many folds of people.
    within : tuple of str
        Attributes over whose classes the random choice is spread evenly.
    together : str, optional
        Recordings that share this label (a phone and a watch worn at once) stay on one side.
    validation : float, default 0.2
        The share of training that is put aside, chosen in the same way as the test.
    seed : int, default 0
        The seed of the random choice.
    """

    by: Literal["label", "recording", "subject", "window"]
    label: str = ""
    test_values: tuple[Text, ...] = ()
    test: Number = 0.2
    folds: StrictInt = 4
    within: tuple[str, ...] = ()
    together: str = ""
    validation: Number = 0.2
    seed: StrictInt = 0

    @model_validator(mode="after")
    def _check(self) -> SplitRule:
        if not (0 < self.test < 1 and 0 < self.validation < 1 and self.folds >= 2):
            raise Refusal("test and validation must lie between 0 and 1, and folds be 2 or more")
        return self


class Protocol(Section):
    """Everything between a dataset's files and its windows; its digest stands in every result.

    Parameters
    ----------
    dataset : str
        The dataset's name.
    version : int
        Counts the changes of the file.
    sample_rate : float
        Samples a second of the windows.
    window : WindowRule
        How windows are cut.
    channels : tuple of ChannelRule
        The channels of the windows; empty ("all" in the file): all that the recordings have.
    attributes : dict of str to AttributeRule
        How labels become classes.
    splits : dict of str to SplitRule
        How windows are divided.
    default_split : str
        The split that is taken where none is named.
    form : {"real", "complex", "magnitude"}, default "real"
        What is kept of complex samples.
    people : tuple of str, optional
        The people that are taken; default: all.
    where : dict, optional
        The values of labels that a recording must have to be taken.
    options : dict, optional
        What else the data depends on (options of simulated data, the TOML of a table).
    """

    dataset: str
    version: StrictInt
    sample_rate: SampleRate
    window: WindowRule
    channels: Channels
    attributes: dict[str, AttributeRule]
    splits: dict[str, SplitRule]
    default_split: str
    form: Literal["real", "complex", "magnitude"] = "real"
    people: tuple[Text, ...] = ()
    where: dict[str, tuple[Text, ...]] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Sixteen digits that change with every value (but not with descriptions)."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def rule(self, split: str | None) -> tuple[str, SplitRule]:
        """The name and rule of a split; the default one where none is named."""
        name = split or self.default_split
        if name not in self.splits:
            raise refuse_unknown(f"split of {self.dataset}", name, list(self.splits))
        return name, self.splits[name]

    @field_validator("channels", mode="before")
    @classmethod
    def _check_channels(cls, channels: Any) -> Any:
        if channels == "all":
            return ()
        if isinstance(channels, str):
            raise Refusal(f'it must be a list, or "all"; it is "{channels}"')
        if channels == []:
            raise Refusal('it is empty; name some, or write "all"')
        return channels

    @model_validator(mode="after")
    def _check(self) -> Protocol:
        if self.default_split not in self.splits:
            raise refuse_unknown("split", self.default_split, list(self.splits))
        if "subject" in self.attributes:
            raise Refusal("'subject' is an attribute of every dataset; leave it out")
        for name, split in self.splits.items():
            # Test windows would be near copies of training windows; the papers did so anyway.
            overlap = self.window.stride < self.window.length
            if split.by == "window" and name != "paper" and overlap:
                raise Refusal(
                    f"split '{name}' draws single windows, but windows overlap (stride"
                    f" {self.window.stride} of {self.window.length}), so test windows would be"
                    " near copies of training windows; split by recording or subject, or call it"
                    " 'paper'"
                )
        return self


class Card(Section):
    """What is known of a dataset as its authors publish it.

    Parameters
    ----------
    title, modality, channels, licence, citation, url : str
        As its authors publish them.
    people : int
        How many people it has.
    hours : float, optional
        Recorded time; None where the authors do not say, or where it means nothing (photographs).
    sample_rate : float
        Samples a second, as recorded.
    obtain : str
        What to download and how to lay it out, as the end of "To get it, ...".
    subject : str, default "the person"
        What the attribute `subject` stands for.
    """

    title: str
    modality: str
    people: int
    hours: float | None = None
    sample_rate: float
    channels: str
    licence: str
    citation: str
    url: str
    obtain: str
    subject: str = "the person"


def packaged_protocol(dataset: str, text: str = "") -> Protocol:
    """The protocol that comes with the package, or in the text `toml` of a dataset's class.

    Examples
    --------
    >>> protocol = packaged_protocol("motionsense")
    >>> protocol.window.length, [channel.name for channel in protocol.channels]
    (128, ['rotation rate magnitude', 'acceleration magnitude'])
    """
    content = _packaged(dataset, text)
    content.pop("card", None)
    return validated(Protocol, content, f"toml of {dataset}")


def packaged_card(dataset: str, text: str = "") -> Card:
    """The card that comes with the package, or in the text `toml` of a dataset's class.

    Examples
    --------
    >>> packaged_card("watch").people
    10
    """
    return validated(Card, _packaged(dataset, text).get("card", {}), f"toml of {dataset}, card")


def _packaged(dataset: str, text: str = "") -> dict[str, Any]:
    """The content of a dataset's TOML; one that `extends` another says only what differs."""
    place = files("sensorveil.data") / "protocols" / f"{dataset}.toml"
    if not text and not place.is_file():
        raise Refusal(f"{dataset} has no protocol; give its class the text `toml`")
    try:
        content = tomllib.loads(text or place.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise Refusal(f"toml of {dataset} is not TOML: {error}") from None
    if "extends" not in content:
        return content
    base = _packaged(content.pop("extends"))
    return {**base, **content, "card": {**base["card"], **content.get("card", {})}}
