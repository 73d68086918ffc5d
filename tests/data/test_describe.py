"""A dataset counted: figures against counting by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sensorveil.data.catalog import available, describe, load, load_whole


def test_watch_by_hand() -> None:
    about = describe("watch")
    windows, _, _ = load_whole("watch")
    assert (about["people"], about["recordings"], about["hours"]) == (10, 140, 1.356)
    assert (about["sample_rate"], about["window"]) == (50.0, {"length": 128, "stride": 64})
    assert about["channels"] == ["ax", "ay", "az", "wx", "wy", "wz"]
    assert about["windows"] == len(windows)
    exercise = about["attributes"]["exercise"]
    names = [windows.classes["exercise"][code] for code in windows.labels["exercise"]]
    assert exercise["windows"] == {name: names.count(name) for name in exercise["windows"]}
    assert exercise["people"] == dict.fromkeys(exercise["windows"], 10)
    assert exercise["unknown"] == 0
    assert "subject" not in about["attributes"]


def test_split_sizes_are_those_of_load() -> None:
    about = describe("simulated", people=9, windows=3)
    for name, sizes in about["splits"].items():
        split = load("simulated", name, people=9, windows=3)
        assert sizes == {
            "by": name,
            "train": len(split.train),
            "validation": len(split.validation),
            "test": len(split.test),
        }


def test_people_are_counted_by_class() -> None:
    about = describe("simulated", people=9, windows=2)
    windows, _, _ = load_whole("simulated", people=9, windows=2)
    gender = windows.labels["gender"]
    people = [len(np.unique(windows.subject[gender == code])) for code in (0, 1)]
    assert list(about["attributes"]["gender"]["people"].values()) == people
    assert sum(people) == 9


def test_a_split_that_cannot_be_made_says_why() -> None:
    about = describe("simulated", people=3, windows=2)
    assert about["splits"]["subject"] == {
        "refused": "3 people are too few to be dealt to 4 folds",
    }
    assert about["splits"]["recording"]["test"] > 0


@pytest.mark.parametrize("name", ["watch", "simulated-csi"])
def test_it_is_json(name: str) -> None:
    options = {"people": 4, "windows": 1} if name != "watch" else {}
    about = describe(name, **options)
    assert json.loads(json.dumps(about, allow_nan=False)) == about


def test_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORVEIL_DATA", str(tmp_path))
    assert available("watch")
    assert available("simulated")
    assert not available("motionsense")
    (tmp_path / "motionsense").mkdir()
    assert not available("motionsense")
    (tmp_path / "motionsense" / "data_subjects_info.csv").write_text("code\n")
    assert available("motionsense")
