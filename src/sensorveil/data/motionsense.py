"""MotionSense: a phone in the trousers' pocket, 24 people, six activities."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from sensorveil.data.dataset import Card, Dataset
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.data.tables import numbers, read_csv, read_parquet
from sensorveil.errors import Refusal

if TYPE_CHECKING:
    import pandas as pd

_MOTION = tuple(f"{v}.{a}" for v in ("rotationRate", "userAcceleration") for a in "xyz")
_GRAVITY = tuple(f"gravity.{a}" for a in "xyz")
_CHANNELS = (*_MOTION, *_GRAVITY)
_FILE = re.compile(r"(?P<activity>[a-z]{3})_(?P<trial>\d+)/sub_(?P<subject>\d+)\.csv$")
_PEOPLE = {name: name for name in ("code", "weight", "height", "age", "gender")}
_COMPACT_PEOPLE = {
    "subject": "code",
    "weight_kg": "weight",
    "height_cm": "height",
    "age_years": "age",
    "gender_male1_female0": "gender",
}
_ZIP = "A_DeviceMotion_data.zip"


class MotionSense(Dataset):
    """Malekzadeh and others, the DeviceMotion part."""

    name = "motionsense"
    card = Card(
        title="MotionSense",
        modality="imu",
        people=24,
        hours=7.85,
        sample_rate=50.0,
        channels="rotationRate, userAcceleration and gravity, x, y, z each (rad/s and g)",
        attributes={
            "activity": "downstairs, upstairs, walking, jogging (and sitting, standing)",
            "gender": "female or male",
            "weight": "up to 70 kg, above 70 to 90, above 90",
            "age": "up to 25 years, above 25 to 30, above 30",
            "height": "up to 170 cm, above 170 to 180, above 180",
        },
        licence="MIT",
        citation=(
            "Malekzadeh, Clegg, Cavallaro, Haddadi: Mobile Sensor Data Anonymization,"
            " IoTDI 2019, doi 10.1145/3302505.3310068"
        ),
        url="https://github.com/mmalekzadeh/motion-sense",
        obtain=(
            "download data/A_DeviceMotion_data.zip and data_subjects_info.csv from"
            " https://github.com/mmalekzadeh/motion-sense and keep them in one folder"
        ),
    )

    def read(self, source: Path) -> Recordings:
        """Reads the zip or the folder of CSVs, or the compact Parquet tables."""
        if (source / "motionsense_motion.parquet").is_file():
            items = list(_compact(source))
        else:
            items = list(_official(source))
        items.sort(key=lambda item: item.name)
        return Recordings(tuple(items), _CHANNELS, sample_rate=50.0)


def _official(source: Path) -> Iterator[Recording]:
    folder = source if source.is_dir() else source.parent
    people = _people(folder / "data_subjects_info.csv", _PEOPLE)
    for path, stream in _csv_files(source):
        found = _FILE.search(path)
        if found:
            table = read_csv(stream, path, _CHANNELS)
            yield _recording(
                found["activity"],
                int(found["trial"]),
                int(found["subject"]),
                numbers(table, _CHANNELS, path),
                people,
                path,
            )


def _csv_files(source: Path) -> Iterator[tuple[str, IO[bytes] | Path]]:
    """The CSV files of a zip, of a folder with that zip, or of an unpacked folder."""
    archive = source if source.is_file() else source / _ZIP
    if archive.is_file():
        try:
            with zipfile.ZipFile(archive) as content:
                for name in sorted(content.namelist()):
                    if name.endswith(".csv"):
                        yield name, io.BytesIO(content.read(name))
        except (zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise Refusal(
                f"{archive} is not a whole zip file ({error}); download it again"
            ) from None
        return
    for path in sorted(source.rglob("*.csv")):
        yield path.as_posix(), path


def _compact(source: Path) -> Iterator[Recording]:
    place = source / "motionsense_motion.parquet"
    motion = read_parquet(place, _MOTION)
    gravity = read_parquet(source / "motionsense_gravity.parquet", _GRAVITY)
    wanted = ["subject", "activity", "trial", "n", "start"]
    index = read_csv(source / "recordings.csv", str(source / "recordings.csv"), wanted)
    if len(motion) != len(gravity) or int(index["n"].sum()) != len(motion):
        raise Refusal(f"{place} has {len(motion)} rows, recordings.csv says {index['n'].sum()}")
    people = _people(source / "subjects.csv", _COMPACT_PEOPLE)
    columns = [motion[c] for c in _MOTION] + [gravity[c] for c in _GRAVITY]
    signal = np.stack([column.to_numpy(np.float32) for column in columns])
    signal /= 1e6  # the compact form counts millionths
    for row in index.itertuples():
        part = signal[:, row.start : row.start + row.n]
        yield _recording(row.activity, row.trial, row.subject, part, people, str(place))


def _people(path: Path, columns: dict[str, str]) -> pd.DataFrame:
    """The table of people by their number, its columns called as the authors call them."""
    table = read_csv(path, str(path), list(columns))
    numbers(table, list(columns), str(path))
    table = table.rename(columns=columns)
    twice = table["code"][table["code"].duplicated()]
    if len(twice):
        raise Refusal(f"{path}: person {twice.iloc[0]} appears twice")
    return table.set_index("code")


def _recording(
    activity: str, trial: int, subject: int, signal: np.ndarray, people: pd.DataFrame, where: str
) -> Recording:
    if subject not in people.index:
        raise Refusal(f"{where}: person {subject} is not in the table of people")
    person = people.loc[subject]
    labels = {
        "activity": activity,
        "trial": trial,
        "gender": None if np.isnan(person["gender"]) else int(person["gender"]),
        "weight": float(person["weight"]),
        "height": float(person["height"]),
        "age": float(person["age"]),
    }
    return Recording(f"{subject:02d}-{activity}-{trial}", f"{subject:02d}", signal, labels)
