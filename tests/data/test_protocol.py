"""Protocols: parsing, the digest that names them, and every refusal."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from typing import Any

import pytest

from sensorveil.data.io import validated
from sensorveil.data.protocol import ChannelRule, Protocol, packaged_card, packaged_protocol
from sensorveil.errors import Refusal

PACKAGED = sorted(
    entry.name.removesuffix(".toml")
    for entry in (files("sensorveil.data") / "protocols").iterdir()
    if entry.name.endswith(".toml")
)

PLAIN: dict[str, Any] = {
    "dataset": "mine",
    "version": 2,
    "sample_rate": 50,
    "default_split": "recording",
    "channels": ["x", {"name": "turn", "magnitude_of": ["gyro", "drift"]}],
    "window": {"length": 64, "stride": 32},
    "attributes": {
        "activity": {"classes": ["walk", "run"], "values": {"w": "walk"}, "required": True},
        "weight": {"label": "kg", "classes": ["light", "heavy"], "up_to": [70]},
        "age": {"classes": ["young", "old"], "below": [40]},
    },
    "where": {"trial": [1, 2]},
    "people": [1, "b"],
    "splits": {
        "recording": {"by": "recording", "test": 0.25, "within": ["activity"]},
        "subject": {"by": "subject", "folds": 3},
        "trial": {"by": "label", "label": "trial", "test_values": [2], "seed": 5},
    },
}


def protocol(content: dict[str, Any] = PLAIN) -> Protocol:
    return validated(Protocol, copy.deepcopy(content), "mine.toml")


def changed(path: str, value: Any) -> dict[str, Any]:
    """The plain protocol with one entry set, or taken out where the value is None."""
    content = copy.deepcopy(PLAIN)
    *way, last = path.split(".")
    section = content
    for name in way:
        section = section[name]
    if value is None:
        del section[last]
    else:
        section[last] = value
    return content


def refusal(content: dict[str, Any]) -> str:
    with pytest.raises(Refusal) as caught:
        protocol(content)
    message = str(caught.value)
    assert message.startswith("mine.toml")
    assert "\n" not in message
    return message


def test_names_and_values_are_text() -> None:
    found = protocol()
    assert found.channels == (
        ChannelRule(name="x"),
        ChannelRule(name="turn", magnitude_of=("gyro", "drift")),
    )
    assert (found.where, found.people) == ({"trial": ("1", "2")}, ("1", "b"))
    assert found.rule("trial")[1].test_values == ("2",)
    assert found.rule(None) == ("recording", found.splits["recording"])
    with pytest.raises(Refusal, match="'papr' is unknown; known: recording, subject, trial"):
        found.rule("papr")


def test_digest_depends_on_values_alone() -> None:
    for order in (False, True):
        content = json.loads(json.dumps(PLAIN, sort_keys=order))
        assert protocol(content).digest == "fc9ed1dba45b35cd"
    assert protocol(changed("sample_rate", 50.0)).digest == protocol().digest
    assert protocol(changed("where.trial", ["1", "2"])).digest == protocol().digest
    described = changed("attributes.age.description", "in years")
    assert protocol(described).digest == protocol().digest


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", 3),
        ("sample_rate", 51),
        ("default_split", "subject"),
        ("window.length", 65),
        ("window.pad", 0.0),
        ("channels", ["x"]),
        ("attributes.weight.up_to", [71]),
        ("attributes.activity.classes", ["run", "walk"]),
        ("where.trial", [1]),
        ("people", ["b"]),
        ("splits.trial.seed", 6),
        ("form", "magnitude"),
        ("options", {"people": 3}),
    ],
)
def test_digest_depends_on_every_entry(path: str, value: Any) -> None:
    assert protocol(changed(path, value)).digest != protocol().digest


@pytest.mark.parametrize(
    "path",
    [
        *(name for name in PLAIN if name not in ("where", "people")),
        "window.length",
        "window.stride",
        "attributes.weight.classes",
        "splits.trial.by",
    ],
)
def test_missing_entries_are_named(path: str) -> None:
    assert f"the entry '{path.split('.')[-1]}' is missing" in refusal(changed(path, None))


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("sample_rate", 0, "above 0 Hz"),
        ("sample_rate", float("inf"), "above 0 Hz"),
        ("sample_rate", "fast", "'sample_rate' must be a number, not 'fast'"),
        ("version", 1.5, "'version' must be a number, not 1.5"),
        ("window.length", 1, "length must be at least 2"),
        ("window.stride", 0, "stride at least 1"),
        ("window", 128, "'window' must be a section, not 128"),
        ("form", "angle", "form 'angle' is unknown; known: complex, magnitude, real"),
        ("default_split", "paper", "split 'paper' is unknown; known: recording, subject, trial"),
        ("attributes.subject", {"classes": ["a", "b"]}, "'subject' is an attribute of every"),
        ("attributes.weight.below", [80], "attributes.weight: it has both up_to and below"),
        ("attributes.weight.up_to", [70, 90], "2 bin ends and 2 classes"),
        ("attributes.weight", {"classes": ["a", "b", "c"], "up_to": [90, 70]}, "n rising ends"),
        ("attributes.weight", {"classes": ["a", "b", "c"], "below": [70, 70]}, "n rising ends"),
        ("attributes.weight.up_to", ["heavy"], "must be a number, not 'heavy'"),
        ("attributes.activity.classes", ["walk", "walk"], "needs classes, each once"),
        ("attributes.activity.classes", ["run"], "class 'walk' is unknown; known: run"),
        ("attributes.activity.required_", True, "attributes.activity: entry 'required_' is unk"),
        ("attributes.activity.required", "yes", "'required' must be true or false, not 'yes'"),
        ("channels", "some", 'must be a list, or "all"'),
        ("channels", [], "channels: it is empty"),
        ("channels", [{"magnitude_of": ["gyro"]}], "the entry 'name' is missing"),
        ("splits.subject.by", "person", "by 'person' is unknown; known: label, recording"),
        ("splits.subject.folds", 1, "splits.subject: test and validation must lie"),
        ("splits.recording.test", 0, "splits.recording: test and validation must lie"),
        ("splits.recording.test", float("nan"), "'test' must be a finite number"),
        ("splits.recording.fold", 2, "entry 'fold' is unknown; known: by, folds"),
        ("splits.any", {"by": "window"}, "split 'any' draws single windows"),
    ],
)
def test_wrong_entries_are_refused(path: str, value: Any, expected: str) -> None:
    assert expected in refusal(changed(path, value))


def test_single_windows_only_for_papers_or_without_overlap() -> None:
    protocol(changed("splits.paper", {"by": "window"}))
    apart = changed("splits.any", {"by": "window"})
    apart["window"] = {"length": 64, "stride": 64}
    protocol(apart)


@pytest.mark.parametrize("dataset", PACKAGED)
def test_packaged_protocols_are_complete(dataset: str) -> None:
    found = packaged_protocol(dataset)
    assert found.dataset == dataset
    assert len(found.digest) == 16
    assert {"recording", "subject"} <= set(found.splits)
    assert ("paper" in found.splits) <= (found.default_split == "paper")
    names = [channel.name for channel in found.channels]
    assert len(set(names)) == len(names)
    assert all(len(rule.classes) >= 2 for rule in found.attributes.values())
    for split in found.splits.values():
        assert set(split.within) <= {*found.attributes, "subject"}
        assert (split.by == "label") == bool(split.label and split.test_values)


def test_a_packaged_file_may_extend_another() -> None:
    one, other = packaged_protocol("csi5300"), packaged_protocol("csi5300-magnitude")
    differing = {n for n in Protocol.model_fields if getattr(one, n) != getattr(other, n)}
    assert differing == {"dataset", "form"}
    assert packaged_card("csi5300-magnitude").citation == packaged_card("csi5300").citation
