"""All datasets by name: each is there, says who made it, and is divided by its protocol."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sensorveil.data import catalog
from sensorveil.data.catalog import (
    available,
    dataset,
    describe,
    list_datasets,
    load,
    load_whole,
    register_dataset,
)
from sensorveil.errors import Refusal

MADE = tuple(name for name in list_datasets() if name.startswith("simulated"))
# A user's own table is named by its .toml file and has no card of its own.
PUBLISHED = tuple(name for name in list_datasets() if name not in (*MADE, "table"))


@pytest.mark.parametrize("name", list_datasets())
def test_names_lead_to_datasets_with_cards(name: str) -> None:
    made = dataset(name)
    card = made.card
    assert made.name == name
    assert card.title in repr(made)
    assert bool(made.defaults) == (name in MADE)
    if name == "table":
        return
    assert card.people >= 2
    assert card.sample_rate > 0
    for text in (card.title, card.modality, card.channels, card.licence, card.citation, card.url):
        assert text.strip() == text != ""
    for rule in made.protocol().attributes.values():
        assert rule.meaning


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_missing_dataset_names_where_to_get_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENSORVEIL_DATA", str(tmp_path))
    made = dataset(name)
    assert made.card.url.startswith("http")
    for place in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(Refusal, match=r"https?://|pip install") as caught:
            made.locate(place)
        assert "\n" not in str(caught.value)
        assert str(place) in str(caught.value)


def test_refusals() -> None:
    with pytest.raises(Refusal, match="dataset 'wacth' is unknown; known: adience, audiomnist"):
        load("wacth")
    with pytest.raises(Refusal, match="watch takes no options; people given"):
        load("watch", people=3)
    with pytest.raises(Refusal, match="option of simulated 'poeple' is unknown"):
        load("simulated", poeple=3)
    with pytest.raises(Refusal, match="option of simulated 'name' is unknown"):
        dataset("simulated", **{"name": 3})
    with pytest.raises(Refusal, match="has no files"):
        load("simulated", source="here")


def test_options_and_folds_reach_the_data() -> None:
    held = []
    for fold in range(4):
        split = load("simulated", "subject", fold, people=9, windows=2, recordings=1)
        assert split.train.origin is not None
        assert split.train.origin.fold == fold
        held += np.unique(split.test.subject).tolist()
    assert sorted(held) == list(range(9))


def test_one_dataset_does_not_load_the_others() -> None:
    program = "import sys, sensorveil.data.catalog as c; c.dataset('watch'); print(*sys.modules)"
    there = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "sensorveil.data.watch" in there
    for other in ("sensorveil.data.motionsense", "pandas", "scipy", "PIL", "transformers"):
        assert other not in there


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


def test_split_sizes_are_those_of_load_or_say_why_not() -> None:
    about = describe("simulated", people=3, windows=2)["splits"]
    assert about["subject"] == {"refused": "3 people are too few to be dealt to 4 folds"}
    split = load("simulated", "recording", people=3, windows=2)
    sizes = {part: len(getattr(split, part)) for part in ("train", "validation", "test")}
    assert about["recording"] == {"by": "recording", **sizes}


def test_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORVEIL_DATA", str(tmp_path))
    assert available("watch")
    assert available("simulated")
    assert not available("motionsense")
    (tmp_path / "motionsense").mkdir()
    (tmp_path / "motionsense" / "data_subjects_info.csv").write_text("code\n")
    assert available("motionsense")


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "howto" / "dataset.md"
    (program,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    monkeypatch.setattr(catalog, "_REGISTERED", {})
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(program, scope)
    assert list_datasets()[-1] == "steps"
    assert len(np.unique(load("steps", fold=3, source=".").train.subject)) == 3
    for old, new, expected in [
        (
            "version",
            "varsion",
            "toml of steps: entry 'varsion' is unknown; known: attributes, chan",
        ),
        ("[card]", "[card", "toml of steps is not TOML"),
        ('title = "Steps"', "", "toml of steps, card: the entry 'title' is missing"),
        ('dataset = "steps"', 'dataset = "step"', "steps: its toml names the dataset 'step'"),
    ]:
        toml = scope["Steps"].toml.replace(old, new)
        with pytest.raises(Refusal, match=re.escape(expected)):
            register_dataset(type("Wrong", (scope["Steps"],), {"toml": toml}))
    with pytest.raises(Refusal, match="other has no protocol; give its class the text `toml`"):
        register_dataset(type("Other", (scope["Steps"],), {"name": "other", "toml": ""}))
