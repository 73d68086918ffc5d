"""Protocols: parsing, the digest that names them, and every refusal."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.data.protocol import (
    ChannelRule,
    Protocol,
    packaged_protocol,
    read_protocol,
    read_toml,
)
from sensorveil.errors import Refusal

PACKAGED = sorted(
    entry.name.removesuffix(".toml")
    for entry in (files("sensorveil.data") / "protocols").iterdir()
    if entry.name.endswith(".toml")
)

PLAIN: dict[str, Any] = {
    "dataset": "mine",
    "version": 2,
    "rate": 50,
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
        read_protocol(content, "mine.toml")
    message = str(caught.value)
    assert message.startswith("mine.toml")
    assert "\n" not in message
    return message


def test_every_entry_is_read() -> None:
    protocol = read_protocol(PLAIN, "mine.toml")
    assert (protocol.dataset, protocol.version, protocol.sample_rate) == ("mine", 2, 50.0)
    assert (protocol.length, protocol.stride, protocol.pad, protocol.form) == (64, 32, None, "real")
    assert protocol.channels == (ChannelRule("x"), ChannelRule("turn", ("gyro", "drift")))
    activity, weight, age = protocol.attributes
    assert (activity.label, activity.required, activity.values) == ("activity", True, {"w": "walk"})
    assert (weight.label, weight.up_to, weight.below) == ("kg", (70.0,), ())
    assert (age.label, age.up_to, age.below, age.required) == ("age", (), (40.0,), False)
    assert protocol.where == {"trial": ("1", "2")}
    assert protocol.people == ("1", "b")
    assert protocol.rule("trial")[1].test_values == ("2",)
    assert protocol.rule("trial")[1].seed == 5
    assert protocol.rule("subject")[1].folds == 3
    assert protocol.rule(None) == ("recording", protocol.splits["recording"])


def test_pad_and_form() -> None:
    content = changed("window.pad", 0.5) | {"form": "complex"}
    protocol = read_protocol(content, "mine.toml")
    assert (protocol.pad, protocol.form) == (0.5, "complex")


def test_unknown_split_lists_the_known() -> None:
    protocol = read_protocol(PLAIN, "mine.toml")
    with pytest.raises(Refusal, match="'papr' is unknown; known: recording, subject, trial"):
        protocol.rule("papr")


def shuffled(value: Any, draw: Any) -> Any:
    """The same content with the entries of every section in another order."""
    if isinstance(value, dict):
        order = draw(st.permutations(list(value)))
        return {name: shuffled(value[name], draw) for name in order}
    return value


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_digest_does_not_know_the_order_of_entries(data: st.DataObject) -> None:
    other = shuffled(PLAIN, data.draw)
    assert read_protocol(other, "b").digest == read_protocol(PLAIN, "a").digest


def test_digest_is_the_same_tomorrow() -> None:
    import hashlib

    canonical = json.dumps(PLAIN, sort_keys=True, ensure_ascii=False).encode()
    expected = hashlib.sha256(canonical).hexdigest()[:16]
    assert read_protocol(copy.deepcopy(PLAIN), "x").digest == expected


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("dataset", "other"),
        ("version", 3),
        ("rate", 51),
        ("default_split", "subject"),
        ("window.length", 65),
        ("window.stride", 31),
        ("window.pad", 0.0),
        ("channels", ["x"]),
        ("attributes.weight.up_to", [71]),
        ("attributes.activity.required", False),
        ("attributes.activity.classes", ["run", "walk"]),
        ("where.trial", [1]),
        ("people", ["b"]),
        ("splits.trial.seed", 6),
        ("splits.subject.validation", 0.25),
        ("splits.recording.within", []),
        ("form", "magnitude"),
    ],
)
def test_digest_knows_every_change(path: str, value: Any) -> None:
    assert read_protocol(changed(path, value), "a").digest != read_protocol(PLAIN, "a").digest


@pytest.mark.parametrize(
    "path",
    [
        "dataset",
        "version",
        "rate",
        "default_split",
        "channels",
        "window",
        "window.length",
        "window.stride",
        "attributes",
        "attributes.weight.classes",
        "splits",
    ],
)
def test_missing_entries(path: str) -> None:
    assert f"the entry '{path.split('.')[-1]}' is missing" in refusal(changed(path, None))


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("rate", 0, "above 0 Hz"),
        ("rate", -50, "above 0 Hz"),
        ("rate", float("nan"), "above 0 Hz"),
        ("rate", "fast", "could not convert"),
        ("window.length", 1, "length must be at least 2"),
        ("window.length", -128, "length must be at least 2"),
        ("window.stride", 0, "stride at least 1"),
        ("window", 128, "mine.toml"),
        ("form", "angle", "form 'angle' is unknown; known: complex, magnitude, real"),
        ("default_split", "paper", "split 'paper' is unknown; known: recording, subject, trial"),
        ("attributes", ["activity"], "mine.toml"),
        ("attributes.subject", {"classes": ["a", "b"]}, "'subject' is an attribute of every"),
        ("attributes.weight.below", [80], "both up_to and below"),
        ("attributes.weight.up_to", [70, 90], "2 bin ends and 2 classes"),
        ("attributes.weight.classes", ["a", "b", "c"], "1 bin ends and 3 classes"),
        (
            "attributes.weight",
            {"classes": ["a", "b", "c"], "up_to": [90, 70]},
            "n rising ends make n + 1",
        ),
        (
            "attributes.weight",
            {"classes": ["a", "b", "c"], "below": [70, 70]},
            "n rising ends make n + 1",
        ),
        ("attributes.weight.up_to", ["heavy"], "could not convert"),
        ("attributes.activity", {"classes": []}, "needs classes, each once"),
        ("attributes.activity.classes", ["walk", "walk"], "needs classes, each once"),
        ("attributes.activity.classes", ["run"], "has no class 'walk'"),
        ("attributes.activity.required_", True, "entry of attribute 'activity' 'required_'"),
        ("attributes.activity", 3, "must be a table of entries"),
        ("channels", "some", 'must be a list, or "all"'),
        ("channels", [], "channels is empty"),
        ("rate", float("inf"), "must be above 0 Hz"),
        ("splits.subject.by", "person", "split by 'person' is unknown; known: label, recording"),
        ("splits.subject.folds", 1, "split 'subject' needs test and validation"),
        ("splits.recording.test", 0, "split 'recording' needs"),
        ("splits.recording.test", 1.0, "split 'recording' needs"),
        ("splits.recording.validation", -0.2, "split 'recording' needs"),
        ("splits.recording.fold", 2, "fold"),
        ("splits.any", {"by": "window"}, "split 'any' draws single windows"),
        ("channels", [{"magnitude_of": ["gyro"]}], "the entry 'name' is missing"),
    ],
)
def test_refusals(path: str, value: Any, expected: str) -> None:
    assert expected in refusal(changed(path, value))


def test_single_windows_only_for_papers_or_without_overlap() -> None:
    read_protocol(changed("splits.paper", {"by": "window"}), "mine.toml")
    apart = changed("splits.any", {"by": "window"})
    apart["window"] = {"length": 64, "stride": 64}
    read_protocol(apart, "mine.toml")


def test_toml_files(tmp_path: Path) -> None:
    place = tmp_path / "a.toml"
    place.write_bytes(b"\xef\xbb\xbfrate = 50\n[window]\nlength = 3\n")
    assert read_toml(place) == {"rate": 50, "window": {"length": 3}}
    for content, expected in [
        (b"rate = \n", "a.toml is not TOML"),
        ("größe = 1".encode("latin-1"), "a.toml is not UTF-8 text"),
    ]:
        place.write_bytes(content)
        with pytest.raises(Refusal, match=expected) as caught:
            read_toml(place)
        assert "\n" not in str(caught.value)
    with pytest.raises(Refusal, match=r"none\.toml is missing"):
        read_toml(tmp_path / "none.toml")


def test_some_protocols_are_packaged() -> None:
    assert {"motionsense", "watch", "mobiact"} <= set(PACKAGED)


@pytest.mark.parametrize("dataset", PACKAGED)
def test_packaged_protocols(dataset: str) -> None:
    protocol = packaged_protocol(dataset)
    assert isinstance(protocol, Protocol)
    assert protocol.dataset == dataset
    assert len(protocol.digest) == 16
    assert {"recording", "subject"} <= set(protocol.splits)
    assert protocol.default_split == (
        "paper" if "paper" in protocol.splits else protocol.default_split
    )
    known = {rule.name for rule in protocol.attributes} | {"subject"}
    names = [channel.name for channel in protocol.channels]
    assert len(set(names)) == len(names)
    for rule in protocol.attributes:
        assert len(rule.classes) >= 2
        assert set(rule.values.values()) <= set(rule.classes)
    for split in protocol.splits.values():
        assert set(split.within) <= known
        assert (split.by == "label") == bool(split.label and split.test_values)


def test_packaged_digests_differ() -> None:
    digests = [packaged_protocol(dataset).digest for dataset in PACKAGED]
    assert len(set(digests)) == len(digests)
