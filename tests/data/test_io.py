"""Reading tables: byte-order marks are read, everything wrong is refused in one line."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sensorveil.data.io import numbers, read_csv, read_parquet
from sensorveil.errors import Refusal


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(Refusal) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_csv_with_and_without_byte_order_mark(tmp_path: Path, mark: bytes, end: bytes) -> None:
    place = tmp_path / "a.csv"
    place.write_bytes(mark + end.join([b"code,name", "1,Åsa".encode(), b"2,Bo"]) + end)
    for source in (place, io.BytesIO(place.read_bytes())):
        table = read_csv(source, ["code"], "a.csv")
        assert table.columns.tolist() == ["code", "name"]
        assert table["code"].tolist() == [1, 2]
        assert table["name"].tolist() == ["Åsa", "Bo"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "a.csv is empty"),
        (b"\xef\xbb\xbf", "a.csv is empty"),
        (b"code,name\n", "a.csv has no rows"),
        (b"kode,name\n1,a\n", "a.csv lacks the column code; it has kode, name"),
        (b"code,name\n1,\xe5sa\n", "a.csv is not UTF-8 text; save it as UTF-8"),
        ("code,name\n1,a\n".encode("utf-16"), "a.csv is not UTF-8 text"),
        (b"code,name\n1,a\n1,2,3,4\n", "a.csv is not a whole table"),
        (b'code,name\n1,"a\n', "a.csv is not a whole table"),
    ],
)
def test_wrong_csv(content: bytes, expected: str) -> None:
    assert expected in refusal(lambda: read_csv(io.BytesIO(content), ["code"], "a.csv"))


def test_missing_files(tmp_path: Path) -> None:
    place = tmp_path / "none"
    assert refusal(lambda: read_csv(place)) == f"{place} is missing"
    assert refusal(lambda: read_parquet(place)) == f"{place} is missing"


def test_parquet(tmp_path: Path) -> None:
    place = tmp_path / "a.parquet"
    pd.DataFrame({"x": [1.5, 2.5], "who": ["a", "b"]}).to_parquet(place)
    assert read_parquet(place, ["x"])["who"].tolist() == ["a", "b"]
    assert "lacks the column y; it has x, who" in refusal(lambda: read_parquet(place, ["y"]))
    whole = place.read_bytes()
    for wrong in (whole[: len(whole) // 2], b"PAR1", b"", b"x,y\n1,2\n"):
        place.write_bytes(wrong)
        assert f"{place} is not a whole Parquet file" in refusal(lambda: read_parquet(place))


def test_numbers_and_the_first_that_is_none() -> None:
    table = pd.DataFrame({"x": ["1", "2.5", "-3e2"], "y": [1, 2, 3], "z": ["1", "", None]})
    assert numbers(table, ["x", "y"], "t").tolist() == [[1, 2.5, -300], [1, 2, 3]]
    assert numbers(table, ["x"], "t").dtype == np.float32
    assert refusal(lambda: numbers(table, ["y", "z"], "t")) == "t, row 2, z: '' is no number"
    holed = pd.DataFrame({"x": [1.0, None, np.inf]})
    assert np.isnan(numbers(holed, ["x"], "t")).tolist() == [[False, True, False]]
    assert refusal(lambda: numbers(holed, ["x"], "t", full=True)).startswith("t, row 2: x is empty")
    table["x"] = ["1", "2,5", "fast"]
    assert refusal(lambda: numbers(table, ["x"], "t")) == "t, row 2, x: '2,5' is no number"
