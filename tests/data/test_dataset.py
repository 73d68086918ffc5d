"""Where a dataset's files are looked for, in which order, and what is said when they are not."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from sensorveil.data.dataset import PREPARED, Dataset
from sensorveil.data.io import validated
from sensorveil.data.protocol import Protocol, packaged_card
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.errors import Refusal


class Mine(Dataset):
    """The level of its signal is the number in the file `value`."""

    name: ClassVar[str] = "mine"
    card = packaged_card("watch").model_copy(update={"obtain": "download it"})  # type: ignore[assignment]
    version = 1

    def read(self, source: Path) -> Recordings:
        place = source / "value" if source.is_dir() else source
        signal = np.full((1, 30), float(place.read_text()), np.float32)
        return Recordings((Recording("a", "ann", signal, {"act": "walk"}),), ("x",), 50.0)

    def protocol(self) -> Protocol:
        content = {
            "dataset": "mine",
            "version": self.version,
            "sample_rate": 50,
            "default_split": "recording",
            "channels": ["x"],
            "window": {"length": 8, "stride": 4},
            "attributes": {"act": {"classes": ["walk", "run"]}},
            "splits": {"recording": {"by": "recording"}},
        }
        return validated(Protocol, content, "mine.toml")


class Newer(Mine):
    version = 2


def laid(place: Path, value: float) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "value").write_text(str(value))
    return place


def level(made: Dataset, source: Path | None = None) -> float:
    store = made.corpus(source).store
    assert store.min() == store.max()
    return float(store[0, 0])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SENSORVEIL_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_users_word_goes_before_the_data_home(home: Path, tmp_path: Path) -> None:
    laid(home / "mine", 1)
    elsewhere = laid(tmp_path / "elsewhere", 2)
    assert level(Mine()) == 1
    assert level(Mine(), elsewhere) == 2
    assert level(Mine(), elsewhere / "value") == 2


def test_the_prepared_form_goes_before_the_authors(home: Path) -> None:
    laid(home / "mine", 1)
    Mine().prepare(home / "mine", home / "mine" / PREPARED)
    laid(home / "mine", 2)
    assert level(Mine()) == 1
    assert level(Mine(), home / "mine" / PREPARED) == 1


def test_a_prepared_form_of_another_protocol_is_passed_over(home: Path) -> None:
    laid(home / "mine", 1)
    written = Mine().prepare(home / "mine", home / "mine" / PREPARED)
    laid(home / "mine", 2)
    assert level(Newer()) == 2
    with pytest.raises(Refusal, match=r"by another protocol than mine version 2; prepare it again"):
        Newer().corpus(written)
    written.write_bytes(b"not tensors")
    with pytest.raises(Refusal, match=r"prepared\.safetensors is damaged"):
        Mine().corpus()


def test_a_failed_preparation_leaves_nothing(tmp_path: Path) -> None:
    laid(tmp_path / "in", float("nan"))
    with pytest.raises(Refusal, match="NaN"):
        Mine().prepare(tmp_path / "in", tmp_path / "out.safetensors")
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


def test_missing_and_empty_folders_say_what_to_download(home: Path, tmp_path: Path) -> None:
    with pytest.raises(Refusal) as missing:
        Mine().corpus()
    assert str(missing.value) == (
        f"mine: nothing at {home / 'mine'}. To get it, download it;"
        f" put it into {home / 'mine'} or name its place with --from"
    )
    (tmp_path / "empty").mkdir()
    with pytest.raises(Refusal, match=r"the folder .*empty is empty. To get it, download"):
        Mine().corpus(tmp_path / "empty")
    with pytest.raises(Refusal, match=r"nothing at .*nowhere"):
        Mine().prepare(tmp_path / "nowhere", tmp_path / "out.safetensors")
