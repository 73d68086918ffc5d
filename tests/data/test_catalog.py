"""All datasets by name: each is there, says who made it, and is divided by its protocol."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sensorveil.data.catalog import NAMES, dataset, load, load_whole
from sensorveil.data.dataset import GeneratedDataset
from sensorveil.errors import Refusal

MADE = tuple(name for name in NAMES if name.startswith("simulated"))
# A user's own table is named by its .toml file and has no card of its own.
PUBLISHED = tuple(name for name in NAMES if name not in (*MADE, "table"))


def test_the_datasets_of_the_papers_are_there() -> None:
    assert {"motionsense", "mobiact", "wifihar", "widar", "audiomnist", "adience"} <= set(NAMES)
    assert MADE == ("simulated", "simulated-csi", "simulated-images")


@pytest.mark.parametrize("name", NAMES)
def test_names_lead_to_their_datasets(name: str) -> None:
    made = dataset(name)
    assert made.name == name
    assert isinstance(made, GeneratedDataset) == (name in MADE)


@pytest.mark.parametrize("name", [*PUBLISHED, *MADE])
def test_cards_are_filled_in(name: str) -> None:
    made = dataset(name)
    card = made.card
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


def test_the_default_split_is_the_protocols() -> None:
    split = load("simulated-images", people=8)
    assert split.test.origin is not None
    assert split.test.origin.split == dataset("simulated-images").protocol().default_split


def test_required_attributes_are_known_in_every_window() -> None:
    windows, corpus, rules = load_whole("watch")
    for name, rule in rules.attributes.items():
        if rule.required:
            assert (windows.codes(name) >= 0).all()
    assert windows.length == rules.window.length
    assert windows.store is corpus.store


def test_one_dataset_does_not_load_the_others() -> None:
    program = "import sys, sensorveil.data.catalog as c; c.dataset('watch'); print(*sys.modules)"
    there = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "sensorveil.data.watch" in there
    for other in ("sensorveil.data.motionsense", "pandas", "scipy", "PIL", "transformers"):
        assert other not in there
