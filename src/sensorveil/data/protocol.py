"""Protocols: one versioned file a dataset says how recordings become windows, labels and splits."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from sensorveil.errors import Refusal, refuse_unknown


@dataclass(frozen=True)
class ChannelRule:
    """One channel of the windows.

    Without `magnitude_of` it is the recording's channel of that name. With it, the vectors of
    those names (each with .x, .y and .z) are added and the length of the sum is taken.
    """

    name: str
    magnitude_of: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttributeRule:
    """How a label becomes a class.

    `label` is the recording's label; `values` translates its values to classes (default: the
    classes themselves). A number falls into a class by `up_to` (upper ends that belong to the
    class) or `below` (upper ends that do not). A window without a class is dropped where
    `required`, else its class is unknown.
    """

    name: str
    label: str
    classes: tuple[str, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    up_to: tuple[float, ...] = ()
    below: tuple[float, ...] = ()
    required: bool = False


@dataclass(frozen=True)
class SplitRule:
    """How windows are divided.

    `by` is label (test = the recordings whose `label` has one of the `test_values`), recording
    (a random `test` part of the recordings), subject (`folds` of people, one of them the test) or
    window (a random `test` part of all windows; only the split `paper` may do that).
    `within` names what the random choice is spread evenly over; recordings that share the label
    `together` (a phone and a watch worn at once) stay on one side; `validation` is the part of
    training that is put aside, chosen in the same way.
    """

    by: str
    label: str = ""
    test_values: tuple[str, ...] = ()
    test: float = 0.2
    folds: int = 4
    within: tuple[str, ...] = ()
    together: str = ""
    validation: float = 0.2
    seed: int = 0


@dataclass(frozen=True)
class Protocol:
    """Everything between a dataset's files and its windows; `digest` names it in every result.

    No `channels` means all that the recordings have. With `pad`, each recording is cut, or filled
    up at its end with that value, to one window.
    """

    dataset: str
    version: int
    sample_rate: float
    length: int
    stride: int
    channels: tuple[ChannelRule, ...]
    attributes: tuple[AttributeRule, ...]
    splits: Mapping[str, SplitRule]
    default_split: str
    form: str = "real"
    pad: float | None = None
    people: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    digest: str = ""

    def rule(self, split: str | None) -> tuple[str, SplitRule]:
        """The name and rule of a split, the default one where none is named."""
        name = split or self.default_split
        if name not in self.splits:
            raise refuse_unknown(f"protocol for {self.dataset}", name, list(self.splits))
        return name, self.splits[name]


def packaged_protocol(dataset: str) -> Protocol:
    """The protocol that comes with the package.

    >>> protocol = packaged_protocol("motionsense")
    >>> protocol.length, protocol.stride, [channel.name for channel in protocol.channels]
    (128, 10, ['rotation rate magnitude', 'acceleration magnitude'])
    """
    text = (files("sensorveil.data") / "protocols" / f"{dataset}.toml").read_text("utf-8")
    return read_protocol(tomllib.loads(text), f"{dataset}.toml")


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, with or without a byte-order mark."""
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise Refusal(f"{path} is missing") from None
    except IsADirectoryError:
        raise Refusal(f"{path} is a folder, and a TOML file was expected") from None
    except UnicodeDecodeError:
        raise Refusal(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise Refusal(f"{path} is not TOML: {error}") from None


def read_protocol(content: Mapping[str, Any], where: str) -> Protocol:
    """A protocol from the content of its file; `where` names the file in refusals."""
    try:
        protocol = _parse(content)
    except KeyError as error:
        raise Refusal(f"{where}: the entry {error} is missing") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise Refusal(f"{where}: {error}") from None
    _check(protocol, where)
    return protocol


def _parse(content: Mapping[str, Any]) -> Protocol:
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return Protocol(
        dataset=content["dataset"],
        version=int(content["version"]),
        sample_rate=float(content["rate"]),
        length=int(content["window"]["length"]),
        stride=int(content["window"]["stride"]),
        channels=_channels(content["channels"]),
        attributes=tuple(_attribute(n, entry) for n, entry in content["attributes"].items()),
        splits={name: _split(entry) for name, entry in content["splits"].items()},
        default_split=content["default_split"],
        form=content.get("form", "real"),
        pad=content["window"].get("pad"),
        people=tuple(str(person) for person in content.get("people", ())),
        where={k: tuple(str(v) for v in values) for k, values in content.get("where", {}).items()},
        digest=hashlib.sha256(canonical.encode()).hexdigest()[:16],
    )


def _channels(entries: str | list[str | Mapping[str, Any]]) -> tuple[ChannelRule, ...]:
    if isinstance(entries, str):
        if entries != "all":
            raise Refusal(f'channels must be a list, or "all"; it is "{entries}"')
        return ()
    if not entries:
        raise Refusal('channels is empty; name some, or write "all"')
    return tuple(_channel(entry) for entry in entries)


def _channel(entry: str | Mapping[str, Any]) -> ChannelRule:
    if isinstance(entry, str):
        return ChannelRule(entry)
    return ChannelRule(entry["name"], tuple(entry.get("magnitude_of", ())))


def _attribute(name: str, entry: Mapping[str, Any]) -> AttributeRule:
    _check_entries(entry, AttributeRule, f"attribute '{name}'")
    rest: dict[str, Any] = {k: v for k, v in entry.items() if k not in ("label", "classes")}
    if "values" in rest:
        rest["values"] = {key: str(value) for key, value in rest["values"].items()}
    for end in {"up_to", "below"} & set(rest):
        rest[end] = tuple(float(value) for value in entry[end])
    classes = tuple(str(value) for value in entry["classes"])
    return AttributeRule(name, entry.get("label", name), classes, **rest)


def _split(entry: Mapping[str, Any]) -> SplitRule:
    _check_entries(entry, SplitRule, "split")
    rest = {k: v for k, v in entry.items() if k not in ("test_values", "within")}
    return SplitRule(
        test_values=tuple(str(value) for value in entry.get("test_values", ())),
        within=tuple(entry.get("within", ())),
        **rest,
    )


def _check_entries(entry: Mapping[str, Any], rule: type, what: str) -> None:
    """Refuses a misspelt entry, which would else be passed over in silence."""
    if not isinstance(entry, Mapping):
        raise Refusal(f"{what} must be a table of entries, not {entry!r}")
    for name in entry:
        known = [part.name for part in fields(rule) if part.name != "name"]
        if name not in known:
            raise refuse_unknown(f"entry of {what}", name, known)


def _check(protocol: Protocol, where: str) -> None:
    """Refuses what no recording could fit."""
    if protocol.length < 2 or protocol.stride < 1:
        raise Refusal(
            f"{where}: window length {protocol.length} and stride {protocol.stride};"
            " the length must be at least 2 and the stride at least 1"
        )
    if not 0 < protocol.sample_rate < math.inf:
        raise Refusal(f"{where}: the rate is {protocol.sample_rate}; it must be above 0 Hz")
    if protocol.form not in ("real", "complex", "magnitude"):
        raise refuse_unknown(f"{where}: form", protocol.form, ["real", "complex", "magnitude"])
    if protocol.default_split not in protocol.splits:
        raise refuse_unknown(f"{where}: split", protocol.default_split, list(protocol.splits))
    for rule in protocol.attributes:
        _check_attribute(rule, where)
    for name, split in protocol.splits.items():
        _check_split(name, split, protocol, where)


def _check_attribute(rule: AttributeRule, where: str) -> None:
    ends = rule.up_to or rule.below
    if rule.name == "subject":
        raise Refusal(f"{where}: 'subject' is an attribute of every dataset; leave it out")
    if rule.up_to and rule.below:
        raise Refusal(f"{where}: attribute '{rule.name}' has both up_to and below; choose one")
    if ends and (len(rule.classes) != len(ends) + 1 or list(ends) != sorted(set(ends))):
        raise Refusal(
            f"{where}: attribute '{rule.name}' has {len(ends)} bin ends and"
            f" {len(rule.classes)} classes; n rising ends make n + 1 classes"
        )
    stray = sorted(set(rule.values.values()) - set(rule.classes))
    if stray:
        raise Refusal(
            f"{where}: attribute '{rule.name}' has no class '{stray[0]}'; it is in values"
        )
    if len(set(rule.classes)) != len(rule.classes) or not rule.classes:
        raise Refusal(f"{where}: attribute '{rule.name}' needs classes, each once")


def _check_split(name: str, split: SplitRule, protocol: Protocol, where: str) -> None:
    known = ["label", "recording", "subject", "window"]
    if split.by not in known:
        raise refuse_unknown(f"{where}: split by", split.by, known)
    if not (0 < split.test < 1 and 0 < split.validation < 1 and split.folds >= 2):
        raise Refusal(
            f"{where}: split '{name}' needs test and validation within 0 and 1, and 2 folds or more"
        )
    if split.by == "window" and name != "paper" and protocol.stride < protocol.length:
        raise Refusal(
            f"{where}: split '{name}' draws single windows, but windows overlap (stride"
            f" {protocol.stride} of {protocol.length}), so test windows would be near copies of"
            " training windows; split by recording or subject, or call it 'paper'"
        )
