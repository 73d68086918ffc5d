"""MobiAct v2.0: a phone in the trousers' pocket, 66 people, activities of daily life and falls."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.data.dataset import Dataset
from sensorveil.data.io import numbers, read_csv
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.errors import Refusal

_CHANNELS = tuple(f"{sensor}_{axis}" for sensor in ("acc", "gyro") for axis in "xyz")
_RATE = 200.0
_ANNOTATED = re.compile(r"(?P<task>[A-Z]{3})_(?P<subject>\d+)_(?P<trial>\d+)_annotated\.csv")
_RAW = re.compile(r"(?P<task>[A-Z]{3})_acc_(?P<subject>\d+)_(?P<trial>\d+)\.txt")

_PERSON = re.compile(
    r"\| *(?P<id>\d+) *\|[^|]*\|[^|]*\| *(?P<age>\d+) *\| *(?P<height>\d+) *\| *(?P<weight>\d+) *\|"
    r" *(?P<gender>\S+) *\|"
)
# Some rows of the Readme write a Greek capital Mu, which its encoding turns into an I with accent.
_GENDERS = {"F": "female", "M": "male", "\N{GREEK CAPITAL LETTER MU}": "male", "Ì": "male"}

# Number, gender, age (years) and weight (kg) of the 36 people of the papers, for a folder without
# its Readme: facts from data_subjects.csv in github.com/sustainable-computing/ObscureNet.
_PAPERS = (
    "1m32,85 2m26,64 3f26,55 4m32,93 5f36,50 6f22,62 8m22,93 9m30,102 10f26,90 11f26,80 12m29,83"
    " 16f27,56 18m25,73 19f25,63 20m26,71 21m25,70 25f22,62 26f25,60 27m25,82 35m23,76 36f22,62"
    " 37m25,63 38f21,88 39m26,79 40m23,95 41f20,67 42m22,73 43m24,80 46f23,68 47m21,85 50f23,50"
    " 51m23,70 54f27,55 55m28,78 58f21,58 59m26,70"
)

_Facts = Mapping[int, Mapping[str, Any]]


class MobiAct(Dataset):
    """Vavoulas, Chatzaki and others, the second release."""

    name = "mobiact"

    def read(self, source: Path) -> Recordings:
        """Reads the annotated CSVs, and the raw files of trials that have none."""
        self.require_folder(source)
        files = sorted(path for path in source.rglob("*") if path.is_file())
        people = _people([*files, *source.parent.glob("*.txt")])
        items = list(_annotated(files, people))
        items += _raw(files, people, {item.name for item in items})
        if not items:
            raise Refusal(
                f"mobiact: no file like WAL_1_1_annotated.csv or WAL_acc_1_1.txt under {source}"
            )
        return Recordings.by_name(items, _CHANNELS, sample_rate=_RATE)


def _annotated(files: list[Path], people: _Facts) -> Iterator[Recording]:
    """Trials with all sensors on one clock and an activity for every sample."""
    for path in files:
        found = _ANNOTATED.fullmatch(path.name)
        if found:
            table = read_csv(path, [*_CHANNELS, "label"])
            signal = numbers(table, _CHANNELS, str(path), full=True)
            activity = table["label"].fillna("").astype(str).str.strip().to_numpy(dtype=str)
            yield _recording(found, people, signal, activity)


def _raw(files: list[Path], people: _Facts, known: set[str]) -> Iterator[Recording]:
    """Trials with one file a sensor: the activity of the whole file is the task's."""
    for path in files:
        found = _RAW.fullmatch(path.name)
        if found and _name(found) not in known:
            signal, time = _merged(path, _gyroscope_of(path))
            activity = np.full(len(time), found["task"])
            yield _recording(found, people, signal, activity, time)


def _name(found: re.Match[str]) -> str:
    return f"{int(found['subject']):02d}-{found['task']}-{int(found['trial'])}"


def _recording(
    found: re.Match[str],
    people: _Facts,
    signal: np.ndarray,
    activity: np.ndarray,
    time: np.ndarray | None = None,
) -> Recording:
    subject = int(found["subject"])
    labels = {
        "activity": activity,
        "task": found["task"],
        "trial": int(found["trial"]),
        **people.get(subject, {}),
    }
    return Recording(_name(found), f"{subject:02d}", signal, labels, time)


def _gyroscope_of(path: Path) -> Path:
    """The gyroscope's file of the same trial: in a folder of its own (GYRO or GYR), or beside."""
    name = path.name.replace("_acc_", "_gyro_")
    beside = path.parent / name
    return next(iter(sorted(path.parent.parent.glob(f"GYR*/{name}"))), beside)


def _merged(acceleration: Path, rotation: Path) -> tuple[np.ndarray, np.ndarray]:
    """Both sensors on the accelerometer's clock, where both were on: signal and seconds.

    The gyroscope is interpolated linearly between its neighbouring samples.
    """
    time, first = _sensor(acceleration)
    other, second = _sensor(rotation)
    inside = (time >= other[0]) & (time <= other[-1])
    if inside.sum() < 2:
        raise Refusal(f"{acceleration} and {rotation.name} do not overlap in time")
    time = time[inside]
    turned = np.stack([np.interp(time, other, axis) for axis in second])
    signal = np.concatenate([first[:, inside], turned]).astype(np.float32)
    return signal, (time - time[0]) / 1e9


def _sensor(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Nanoseconds and three axes of one sensor, from the lines after @DATA."""
    try:
        _, mark, body = path.read_text("utf-8-sig", errors="replace").partition("@DATA")
    except FileNotFoundError:
        raise Refusal(
            f"{path} is missing; a raw trial needs both its acc and its gyro file"
        ) from None
    if not mark:
        raise Refusal(f"{path} has no line @DATA; it is no raw file of MobiAct, or cut off")
    name, columns = f"{path}, after @DATA", ["timestamp", "x", "y", "z"]
    table = read_csv(io.BytesIO(body.strip().encode()), name=name, names=columns)
    time, *axes = numbers(table, columns, name, np.float64, full=True)
    if np.any(np.diff(time) < 0):
        row = int(np.argmax(np.diff(time) < 0)) + 2
        raise Refusal(f"{name}, row {row}: time runs backwards; repair or remove the file")
    return time, np.stack(axes)


def _people(files: list[Path]) -> _Facts:
    """Age, height, weight and gender by number: from the Readme, else of the papers' 36."""
    for path in files:
        if path.name.lower().startswith("readme") and path.suffix.lower() == ".txt":
            return _read_people(path)
    people: dict[int, dict[str, Any]] = {}
    for number, gender, age, weight in re.findall(r"(\d+)([mf])(\d+),(\d+)", _PAPERS):
        people[int(number)] = {
            "gender": "female" if gender == "f" else "male",
            "age": float(age),
            "weight": float(weight),
        }
    return people


def _read_people(path: Path) -> _Facts:
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1253", errors="replace")
    people: dict[int, dict[str, Any]] = {}
    for row in _PERSON.finditer(text):
        if row["gender"] not in _GENDERS:
            raise Refusal(f"{path}: person {row['id']} has gender '{row['gender']}', not M or F")
        measured = {name: float(row[name]) for name in ("age", "height", "weight")}
        people[int(row["id"])] = {"gender": _GENDERS[row["gender"]], **measured}
    if not people:
        raise Refusal(f"{path} has no table of subjects; take the Readme.txt of MobiAct v2.0")
    return people
