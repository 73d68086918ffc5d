"""Files and folders are written whole or not at all."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.errors import Refusal
from sensorveil.files import read_json, write_json, written_file, written_folder


class Interrupted(BaseException):
    """Like a key pressed in the middle of the work."""


def names(place: Path) -> list[str]:
    return sorted(entry.name for entry in place.iterdir())


def half_written(place: Path, error: type[BaseException]) -> None:
    place.write_text("half of the n")
    raise error


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    with written_folder(tmp_path / "deep" / "run") as folder:
        (folder / "a").write_text("1")
        assert not (tmp_path / "deep" / "run").exists()
        assert folder.parent == tmp_path / "deep"
    assert names(tmp_path / "deep") == ["run"]
    assert (tmp_path / "deep" / "run" / "a").read_text() == "1"
    assert stat.S_IMODE((tmp_path / "deep" / "run").stat().st_mode) == 0o755


@pytest.mark.parametrize(("kind", "replace"), [("folder", False), ("file", False), ("file", True)])
def test_what_is_there_is_left_alone(tmp_path: Path, kind: str, replace: bool) -> None:
    mine = tmp_path / "run" / "mine" if kind == "folder" else tmp_path / "run"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("work of weeks")
    with (
        pytest.raises(Refusal, match="run exists already; choose another"),
        written_folder(tmp_path / "run", replace=replace),
    ):
        pytest.fail("the block must not run")
    assert names(tmp_path) == ["run"]
    assert mine.read_text() == "work of weeks"


def test_a_folder_is_replaced_only_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with written_folder(tmp_path / "run") as folder:  # an empty folder is taken
        (folder / "old").write_text("1")
    with pytest.raises(ZeroDivisionError), written_folder(tmp_path / "run", replace=True):
        raise ZeroDivisionError
    assert names(tmp_path / "run") == ["old"]
    with written_folder(tmp_path / "run", replace=True) as folder:
        (folder / "new").write_text("2")
    assert names(tmp_path) == ["run"]
    assert names(tmp_path / "run") == ["new"]


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "a.json"
    with written_file(place) as temporary:
        temporary.write_text("1")
        assert temporary.suffix == ".json"
        assert not place.exists()
    assert place.read_text() == "1"
    assert names(tmp_path / "deep") == ["a.json"]
    assert stat.S_IMODE(place.stat().st_mode) == 0o644


@pytest.mark.parametrize("error", [ValueError, Interrupted])
def test_what_failed_leaves_the_old_or_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    place = tmp_path / "a.txt"
    place.write_text("old")
    with pytest.raises(error), written_file(place) as temporary:
        half_written(temporary, error)
    with pytest.raises(error), written_folder(tmp_path / "run") as folder:
        half_written(folder / "a", error)
    assert place.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(Refusal, match="is a folder"), written_file(tmp_path / "folder"):
        pass
    with pytest.raises(Refusal, match="cannot write to"), written_file(tmp_path / "file" / "a"):
        pass
    with pytest.raises(Refusal, match="cannot write to"), written_folder(tmp_path / "file" / "a"):
        pass
    assert names(tmp_path) == ["file", "folder"]


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None)
@given(content=plain)
def test_json_comes_back(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    place = tmp_path_factory.getbasetemp() / "any.json"
    write_json(place, content)
    assert read_json(place) == content
    assert json.loads(place.read_bytes()) == content
    write_json(place, {"höhe": [1]})
    assert place.read_text("utf-8") == '{\n  "höhe": [\n    1\n  ]\n}\n'


def test_json_refusals_name_the_file(tmp_path: Path) -> None:
    place = tmp_path / "a.json"
    with pytest.raises(Refusal, match=r"a\.json is missing"):
        read_json(place)
    for content in (b"", b'{"a": ', b"\xff\xfe{}", b"[1]]"):
        place.write_bytes(content)
        with pytest.raises(Refusal, match=r"a\.json is not JSON"):
            read_json(place)
    place.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(place) == {"a": 1}


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": [float("nan"), 1.5, (float("inf"),)]})
    assert read_json(tmp_path / "a.json") == {"a": [None, 1.5, [None]]}
