"""MotionSense: a phone in the trousers' pocket, 24 people, six activities."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from sensorveil.data.dataset import Dataset
from sensorveil.data.io import (
    numbers,
    person_in,
    read_csv,
    read_index,
    read_parquet,
    read_people,
    zip_members,
)
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.errors import Refusal

_MOTION = tuple(f"{v}.{a}" for v in ("rotationRate", "userAcceleration") for a in "xyz")
_GRAVITY = tuple(f"gravity.{a}" for a in "xyz")
_CHANNELS = (*_MOTION, *_GRAVITY)
_FILE = re.compile(r"(?P<activity>[a-z]{3})_(?P<trial>\d+)/sub_(?P<subject>\d+)\.csv$")
_ZIP = "A_DeviceMotion_data.zip"
# What the columns of a person are called in the authors' table and in the compact one.
_PEOPLE = {name: name for name in ("code", "gender", "weight", "height", "age")}
_COMPACT_PEOPLE = {
    "code": "subject",
    "gender": "gender_male1_female0",
    "weight": "weight_kg",
    "height": "height_cm",
    "age": "age_years",
}


class MotionSense(Dataset):
    """Malekzadeh and others, the DeviceMotion part."""

    name = "motionsense"

    def read(self, source: Path) -> Recordings:
        """Reads the zip or the folder of CSVs, or the compact Parquet tables."""
        is_compact = (source / "motionsense_motion.parquet").is_file()
        items = _compact(source) if is_compact else _official(source)
        return Recordings.by_name(items, _CHANNELS, sample_rate=50.0)


def _official(source: Path) -> Iterator[Recording]:
    folder = source if source.is_dir() else source.parent
    people = _people(folder / "data_subjects_info.csv", _PEOPLE)
    for name, stream in _csv_files(source):
        found = _FILE.search(name)
        if found:
            signal = numbers(read_csv(stream, _CHANNELS, name), _CHANNELS, name)
            trial, subject = int(found["trial"]), int(found["subject"])
            yield _recording(found["activity"], trial, subject, signal, people, name)


def _csv_files(source: Path) -> Iterator[tuple[str, IO[bytes] | Path]]:
    """The CSV files of a zip, of a folder with that zip, or of an unpacked folder."""
    archive = source if source.is_file() else source / _ZIP
    if archive.is_file():
        for name, content in zip_members(archive, _FILE):
            yield name, io.BytesIO(content)
    else:
        for path in sorted(source.rglob("*.csv")):
            yield path.as_posix(), path


def _compact(source: Path) -> Iterator[Recording]:
    place = source / "motionsense_motion.parquet"
    motion = read_parquet(place, _MOTION)
    gravity = read_parquet(source / "motionsense_gravity.parquet", _GRAVITY)
    if len(motion) != len(gravity):
        raise Refusal(f"{place} has {len(motion)} rows, and that of gravity {len(gravity)}")
    people = _people(source / "subjects.csv", _COMPACT_PEOPLE)
    columns = [motion[c] for c in _MOTION] + [gravity[c] for c in _GRAVITY]
    signal = np.stack([column.to_numpy(np.float32) for column in columns])
    signal /= 1e6  # the compact form counts millionths
    names = ["subject", "activity", "trial"]
    for row in read_index(source / "recordings.csv", names, len(motion), place):
        part = signal[:, row.start : row.start + row.n]
        yield _recording(row.activity, row.trial, row.subject, part, people, str(place))


def _people(path: Path, columns: dict[str, str]) -> dict[int, dict[str, Any]]:
    """Gender, weight, height and age of each person; an empty cell is unknown."""
    code, *rest = columns.values()
    table = read_people(path, code, rest, measured=[code, *rest])
    return {
        person: {name: row[columns[name]] for name in _PEOPLE if name != "code"}
        for person, row in table.items()
    }


def _recording(
    activity: str, trial: int, subject: int, signal: np.ndarray, people: Any, where: str
) -> Recording:
    facts = person_in(people, subject, where)
    # The protocol names the genders by their whole numbers.
    gender = None if np.isnan(facts["gender"]) else int(facts["gender"])
    labels = {"activity": activity, "trial": trial, **facts, "gender": gender}
    return Recording(f"{subject:02d}-{activity}-{trial}", f"{subject:02d}", signal, labels)
