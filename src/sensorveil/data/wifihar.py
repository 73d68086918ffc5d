"""WiFi-HAR: five experiments by 30 people in three rooms, heard by an Intel 5300 card."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.data.dataset import Dataset
from sensorveil.data.intel5300 import CHANNELS, SUBCARRIERS, channels_first, read_log
from sensorveil.data.io import numbers, read_csv, zip_members
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.errors import Refusal

_NAME = re.compile(
    r"E(?P<environment>\d+)_S(?P<subject>\d+)_C(?P<experiment>\d+)_A(?P<activity>\d+)_T(?P<trial>\d+)"
    r"\.(csv|dat)$",
    re.IGNORECASE,
)
_COLUMNS = tuple(f"csi_1_{rx}_{sc}" for rx in (1, 2, 3) for sc in range(1, SUBCARRIERS + 1))
_PEOPLE = "people.csv"

# '15+-7i' becomes '15,-7': two cells for a complex number.
_PLAIN = str.maketrans({"+": ",", "i": None, '"': None})


class WifiHar(Dataset):
    """Alsaify and others."""

    name = "wifihar"

    def read(self, source: Path) -> Recordings:
        """Reads the CSV files, unpacked or in zips, or the logs of the authors' repository."""
        people = _people(source)
        items = [_recording(name, content, people) for name, content in _trials(source)]
        return Recordings.by_name(items, CHANNELS, sample_rate=320.0)


def _trials(source: Path) -> Iterator[tuple[str, bytes]]:
    """The name and content of each trial of a folder or a zip."""
    paths = [source] if source.is_file() else sorted(source.rglob("*"))
    for path in paths:
        if path.suffix.lower() == ".zip":
            for name, content in zip_members(path, _NAME):
                yield f"{path}: {name}", content
        elif _NAME.search(path.name) and path.is_file():
            yield str(path), path.read_bytes()


def _recording(name: str, content: bytes, people: dict[int, dict[str, Any]]) -> Recording:
    found = _NAME.search(name)
    assert found is not None  # _trials gives no other names
    subject = int(found["subject"])
    if people and subject not in people:
        raise Refusal(f"{name}: person {subject} is not in {_PEOPLE}; add a row")
    if name.lower().endswith(".dat"):
        signal = channels_first(read_log(content, name), name)
    else:
        signal = _table(content, name)
    labels = {
        "environment": int(found["environment"]),
        "experiment": int(found["experiment"]),
        "activity": f"A{int(found['activity']):02d}",
        "trial": int(found["trial"]),
        **people.get(subject, {}),
    }
    return Recording(found[0].rpartition(".")[0], f"{subject:02d}", signal, labels)


def _table(content: bytes, name: str) -> np.ndarray:
    """A CSV file with complex numbers as text, as (90, packets)."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refusal(f"{name} is not UTF-8 text; download it again") from None
    head, _, body = text.partition("\n")
    columns = [column.strip(' "') for column in head.strip().split(",")]
    missing = [column for column in _COLUMNS if column not in columns]
    if missing:
        raise Refusal(f"{name} lacks the column {missing[0]} ({len(missing)} of 90 are missing)")
    body_columns = [
        part
        for column in columns
        for part in ([f"{column}.re", f"{column}.im"] if column.startswith("csi_") else [column])
    ]
    plain = f"{','.join(body_columns)}\n{body.translate(_PLAIN)}".encode()
    wanted = [f"{column}.{part}" for part in ("re", "im") for column in _COLUMNS]
    signal = numbers(read_csv(io.BytesIO(plain), wanted, name), wanted, name, full=True)
    return signal[:90] + 1j * signal[90:]


def _people(source: Path) -> dict[int, dict[str, Any]]:
    """Weight and gender by subject from people.csv; without the file they are unknown.

    The files do not describe their people, and no published table of them could be checked; so
    none is built in.
    """
    place = (source if source.is_dir() else source.parent) / _PEOPLE
    if not place.is_file():
        return {}
    table = read_csv(place, ["subject", "weight", "gender"])
    weights = numbers(table, ["weight"], str(place), np.float64)[0]
    people: dict[int, dict[str, Any]] = {}
    for row, weight in zip(table.itertuples(), weights.tolist(), strict=True):
        code = re.fullmatch(r"S?(\d+)", str(row.subject).strip(), re.IGNORECASE)
        gender = str(row.gender).strip().lower()
        if code is None or gender not in ("female", "male", "nan"):
            raise Refusal(
                f"{place}: subject '{row.subject}', gender '{row.gender}'; subjects are 1 or S01,"
                " genders female or male"
            )
        people[int(code[1])] = {"weight": weight, "gender": gender}
    return people
