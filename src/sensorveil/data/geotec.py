"""GeoTec: a phone in the pocket and a watch on the wrist, 23 people, one sequence of activities."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sensorveil.data.dataset import Card, Dataset
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.data.tables import numbers, read_csv, read_parquet
from sensorveil.errors import Refusal

if TYPE_CHECKING:
    import pandas as pd

_CHANNELS = tuple(f"{sensor}_{axis}" for sensor in ("acc", "gyro") for axis in "xyz")
_COLUMNS = tuple(f"{axis}_{sensor}" for sensor in ("acc", "gyro") for axis in "xyz")
_FILE = re.compile(r"(?P<subject>s\d+)_(?P<execution>\d+)_(?P<device>sp|sw)\.csv")
_DEVICES = {"sp": "smartphone", "sw": "smartwatch"}
_COMPACT = "geotec_har.parquet"
_MEASURED = ("age", "height", "weight")
_PERSON = ("gender", "dominant_hand", *_MEASURED)
_EVENED_RATE = 100.0  # the devices take 102.4 and 104.3 samples a second


class GeoTec(Dataset):
    """Matey-Sanz and others; an execution gives two recordings, one of each device."""

    name = "geotec"
    card = Card(
        title="GeoTec smartphone and smartwatch",
        modality="imu",
        people=23,
        hours=1.40,
        sample_rate=102.0,
        channels="acceleration x, y, z (m/s^2) and angular velocity x, y, z (rad/s)",
        attributes={
            "activity": "seated, standing up, walking, turning, sitting down",
            "gender": "female or male",
            "weight": "up to 70 kg, above 70 to 90, above 90",
            "age": "up to 30 years, above 30 to 50, above 50",
            "height": "up to 170 cm, above 170 to 180, above 180",
            "device": "the phone in the pocket or the watch on the wrist",
        },
        licence="CC BY 4.0",
        citation=(
            "Matey-Sanz, Casteleyn, Granell: Dataset of inertial measurements of smartphones and"
            " smartwatches for human activity recognition, Data in Brief 2023,"
            " doi 10.1016/j.dib.2023.109809"
        ),
        url="https://github.com/GeoTecINIT/sp-sw-har-dataset",
        obtain=(
            "clone https://github.com/GeoTecINIT/sp-sw-har-dataset and keep its folder DATA,"
            " with subjects_info.csv in it"
        ),
    )

    def read(self, source: Path) -> Recordings:
        """Reads the folder of CSV files, or the compact Parquet table."""
        if not source.is_dir():
            raise Refusal(f"{source} is not a folder; {self.card.obtain}")
        layout = _compact if (source / _COMPACT).is_file() else _official
        items = sorted(layout(source), key=lambda item: item.name)
        return Recordings(tuple(items), _CHANNELS, _EVENED_RATE)


def _official(source: Path) -> Iterator[Recording]:
    folder = source / "DATA" if (source / "DATA").is_dir() else source
    people = _people(folder / "subjects_info.csv")
    for path in sorted(folder.glob("s*/*.csv")):
        found = _FILE.fullmatch(path.name)
        if not found:
            raise Refusal(f"{path} is not named sXX_YY_sp.csv or _sw.csv; rename or remove it")
        table = read_csv(path, str(path), [*_COLUMNS, "timestamp", "label"])
        yield _recording(
            found["subject"],
            int(found["execution"]),
            _DEVICES[found["device"]],
            numbers(table, _COLUMNS, str(path)),
            _milliseconds(table, path),
            table["label"].to_numpy(dtype=str),
            people,
            str(path),
        )


def _milliseconds(table: pd.DataFrame, path: Path) -> np.ndarray:
    """Times since the first sample, in double precision, which UNIX times need."""
    import pandas as pd

    stamps = pd.to_numeric(table["timestamp"], errors="coerce").to_numpy(dtype=np.float64)
    if np.isnan(stamps).any():
        row = int(np.argmax(np.isnan(stamps)))
        raise Refusal(
            f"{path}, row {row + 1}, timestamp: '{table['timestamp'].iloc[row]}' is no number"
        )
    return stamps - stamps[0]


def _compact(source: Path) -> Iterator[Recording]:
    place = source / _COMPACT
    table = read_parquet(place, ["dt_ms", "label", *_CHANNELS])
    index = _table(source / "recordings.csv", ["subject", "execution", "device", "n", "start"])
    names = _table(source / "labels.csv", ["label", "name"]).set_index("label")["name"]
    people = _people(source / "subjects.csv")
    if int(index["n"].sum()) != len(table):
        raise Refusal(f"{place} has {len(table)} rows, recordings.csv says {index['n'].sum()}")
    if not table["label"].isin(names.index).all():
        raise Refusal(f"{place} has labels that labels.csv does not name; copy both again")
    signal = numbers(table, _CHANNELS, str(place)) * np.float32(1e-4)
    steps = table["dt_ms"].to_numpy(dtype=np.float64)
    activity = names.loc[table["label"]].to_numpy(dtype=str)
    for row in index.itertuples():
        part = slice(row.start, row.start + row.n)
        passed = np.cumsum(steps[part])
        yield _recording(
            row.subject,
            int(row.execution),
            row.device,
            signal[:, part],
            passed - passed[0],
            activity[part],
            people,
            str(place),
        )


def _table(path: Path, columns: list[str]) -> pd.DataFrame:
    return read_csv(path, str(path), columns)


def _people(path: Path) -> pd.DataFrame:
    people = _table(path, ["subject_id", *_PERSON]).set_index("subject_id")
    numbers(people, _MEASURED, str(path))  # refuses what is no number
    if not people.index.is_unique:
        raise Refusal(f"{path} names a person twice")
    return people


def _recording(
    subject: str,
    execution: int,
    device: str,
    signal: np.ndarray,
    milliseconds: np.ndarray,
    activity: np.ndarray,
    people: pd.DataFrame,
    where: str,
) -> Recording:
    if subject not in people.index:
        raise Refusal(f"{where}: person {subject} is not in the table of people")
    person = people.loc[subject]
    labels = {
        "activity": activity,
        "execution": f"{subject}_{execution:02d}",
        "device": device,
        "gender": str(person["gender"]),
        "hand": str(person["dominant_hand"]),
        **{name: float(person[name]) for name in _MEASURED},
    }
    name = f"{subject}-{execution:02d}-{device}"
    return Recording(name, subject, signal, labels, even_times(milliseconds, where))


def even_times(milliseconds: np.ndarray, where: str) -> np.ndarray:
    """When the samples were taken, in seconds: on the straight line through the times noted.

    The devices sample at a steady pace (the mean step of a device changes by a thousandth from
    recording to recording) but hand samples over in bunches, and the time noted is that of the
    handing over: a pause of 50 ms, then several samples within 1 ms. Taken at their word, those
    times would tear the signal.

    >>> even_times(np.array([0.0, 0, 20, 30, 50, 50]), "a.csv").round(3)
    array([0.   , 0.012, 0.023, 0.035, 0.047, 0.059])
    """
    if np.any(np.diff(milliseconds) < 0):
        raise Refusal(f"{where}: time runs backwards; sort the rows or leave the file out")
    count = np.arange(len(milliseconds))
    spread = count - count.mean()
    step = (spread @ milliseconds) / max(float(spread @ spread), 1.0)
    if not step > 0:
        raise Refusal(f"{where}: all samples have the same time; leave the file out")
    return count * step / 1000
