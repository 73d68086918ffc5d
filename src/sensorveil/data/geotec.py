"""GeoTec: a phone in the pocket and a watch on the wrist, 23 people, one sequence of activities."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.data.dataset import Dataset
from sensorveil.data.io import (
    numbers,
    person_in,
    read_csv,
    read_index,
    read_parquet,
    read_people,
)
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.errors import Refusal

_CHANNELS = tuple(f"{sensor}_{axis}" for sensor in ("acc", "gyro") for axis in "xyz")
_COLUMNS = tuple(f"{axis}_{sensor}" for sensor in ("acc", "gyro") for axis in "xyz")
_FILE = re.compile(r"(?P<subject>s\d+)_(?P<execution>\d+)_(?P<device>sp|sw)\.csv")
_DEVICES = {"sp": "smartphone", "sw": "smartwatch"}
_COMPACT = "geotec_har.parquet"
_MEASURED = ("age", "height", "weight")
_EVEN_RATE = 100.0  # the devices take 102.4 and 104.3 samples a second


class GeoTec(Dataset):
    """Matey-Sanz and others; an execution gives two recordings, one of each device."""

    name = "geotec"

    def read(self, source: Path) -> Recordings:
        """Reads the folder of CSV files, or the compact Parquet table."""
        self.require_folder(source)
        items = _compact(source) if (source / _COMPACT).is_file() else _official(source)
        return Recordings.by_name(items, _CHANNELS, _EVEN_RATE)


def _official(source: Path) -> Iterator[Recording]:
    folder = source / "DATA" if (source / "DATA").is_dir() else source
    people = _people(folder / "subjects_info.csv")
    for path in sorted(folder.glob("s*/*.csv")):
        found = _FILE.fullmatch(path.name)
        if not found:
            raise Refusal(f"{path} is not named sXX_YY_sp.csv or _sw.csv; rename or remove it")
        table = read_csv(path, [*_COLUMNS, "timestamp", "label"])
        # In double precision, which UNIX times in milliseconds need.
        stamps = numbers(table, ["timestamp"], str(path), np.float64, full=True)[0]
        yield _recording(
            found["subject"],
            int(found["execution"]),
            _DEVICES[found["device"]],
            numbers(table, _COLUMNS, str(path)),
            stamps,
            table["label"].to_numpy(dtype=str),
            people,
            str(path),
        )


def _compact(source: Path) -> Iterator[Recording]:
    place = source / _COMPACT
    table = read_parquet(place, ["dt_ms", "label", *_CHANNELS])
    names = read_csv(source / "labels.csv", ["label", "name"]).set_index("label")["name"]
    people = _people(source / "subjects.csv")
    if not table["label"].isin(names.index).all():
        raise Refusal(f"{place} has labels that labels.csv does not name; copy both again")
    signal = numbers(table, _CHANNELS, str(place)) * np.float32(1e-4)
    steps = table["dt_ms"].to_numpy(dtype=np.float64)
    activity = names.loc[table["label"]].to_numpy(dtype=str)
    columns = ["subject", "execution", "device"]
    for row in read_index(source / "recordings.csv", columns, len(table), place):
        part = slice(row.start, row.start + row.n)
        yield _recording(
            row.subject,
            int(row.execution),
            row.device,
            signal[:, part],
            np.cumsum(steps[part]),
            activity[part],
            people,
            str(place),
        )


def _people(path: Path) -> dict[str, dict[str, Any]]:
    columns = ["gender", "dominant_hand", *_MEASURED]
    return read_people(path, "subject_id", columns, _MEASURED)


def _recording(
    subject: str,
    execution: int,
    device: str,
    signal: np.ndarray,
    milliseconds: np.ndarray,
    activity: np.ndarray,
    people: dict[str, dict[str, Any]],
    where: str,
) -> Recording:
    facts = person_in(people, subject, where)
    labels = {
        "activity": activity,
        "execution": f"{subject}_{execution:02d}",
        "device": device,
        "gender": str(facts["gender"]),
        "hand": str(facts["dominant_hand"]),
        **{name: float(facts[name]) for name in _MEASURED},
    }
    time = even_times(milliseconds - milliseconds[0], where)
    return Recording(f"{subject}-{execution:02d}-{device}", subject, signal, labels, time)


def even_times(milliseconds: np.ndarray, where: str) -> np.ndarray:
    """When the samples were taken, in seconds: on the straight line through the times noted.

    The devices sample at a steady pace (the mean step of a device changes by a thousandth from
    recording to recording) but hand samples over in bunches, and the time noted is that of the
    handing over: a pause of 50 ms, then several samples within 1 ms. Used as they are, those
    times would tear the signal.

    Examples
    --------
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
