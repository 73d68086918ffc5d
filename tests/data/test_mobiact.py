"""MobiAct: both official layouts, the people, and the papers' protocol."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sensorveil.data.catalog import load
from sensorveil.data.corpus import apply_protocol
from sensorveil.data.mobiact import MobiAct
from sensorveil.data.protocol import packaged_protocol
from sensorveil.errors import Refusal

HEADING = "timestamp,rel_time,acc_x,acc_y,acc_z,gyro_x,gyro_y,gyro_z,azimuth,pitch,roll,label"
RULE = "+------+---------+-----------+-------+----------+----------+----------+"
README = f"""Subjects:
{RULE}
|  ID  |  Name   |  Surname  |  Age  |  Height  |  Weight  |  Gender  |
{RULE}
|    1 | sub1    | sub1      |    41 |      181 |       91 |  M       |
|    2 | sub2    | sub2      |    26 |      160 |       50 |  F       |
|   28 | sub28   | sub28     |    23 |      178 |       70 |  \N{GREEK CAPITAL LETTER MU}       |
{RULE}

Activities of Daily Living:
+----+-------+----------+--------+----------+----------------+
| No.| Label | Activity | Trials | Duration | Description    |
+----+-------+----------+--------+----------+----------------+
| 1  | STD   | Standing | 1      | 5min     | Standing \N{BULLET}     |
+----+-------+----------+--------+----------+----------------+
"""
# People of each class, as the papers count them.
GROUPS = {"gender": [16, 20], "weight": [18, 14, 4], "age": [14, 14, 8]}


def annotated(
    root: Path, subject: int, task: str, labels: list[str], trial: int = 1, mark: bytes = b""
) -> Path:
    """A trial in the official form; acc_x tells the row, gyro_z the person."""
    lines = [HEADING]
    for row, label in enumerate(labels):
        cells = [1e12 + row * 5e6, row * 0.005, row, 9.8, 0.1, 0.2, 0.3, subject, 270, -60, 10]
        lines.append(",".join(f"{value:g}" for value in cells) + f",{label}")
    place = root / "Annotated Data" / task / f"{task}_{subject}_{trial}_annotated.csv"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(mark + "\n".join(lines).encode() + b"\n")
    return place


def raw(root: Path, sensor: str, times: np.ndarray, rows: np.ndarray, folder: str = "") -> Path:
    """A sensor's file in the official form; times in nanoseconds."""
    lines = ["#timestamp(ns),x,y,z(m/s^2)", "#Gender: Male", "", "@DATA"]
    for time, row in zip(times, rows, strict=True):
        lines.append(f"{int(time)}, " + ", ".join(f"{value:.7f}" for value in row))
    place = root / "Raw Data" / "WAL" / folder / f"WAL_{sensor}_2_1.txt"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("\n".join(lines) + "\n")
    return place


@pytest.mark.parametrize("encoding", ["cp1253", "utf-8", "utf-8-sig"])
def test_annotated_trials(tmp_path: Path, encoding: str) -> None:
    annotated(tmp_path, 2, "WAL", ["WAL"] * 30, mark=b"\xef\xbb\xbf")
    annotated(tmp_path, 12, "STU", ["STD"] * 5 + ["STU"] * 20 + [""] * 5, trial=3)
    annotated(tmp_path, 28, "JOG", ["JOG"] * 30)
    (tmp_path / "Readme.txt").write_bytes(README.encode(encoding))
    found = MobiAct().read(tmp_path)
    assert [item.name for item in found.items] == ["02-WAL-1", "12-STU-3", "28-JOG-1"]
    assert found.channels == ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z")
    first, second, third = found.items
    assert first.signal[0].tolist() == list(range(30))
    assert first.signal[5].tolist() == [2.0] * 30
    facts = [[item.labels[n] for n in ("gender", "age", "weight")] for item in (first, third)]
    assert facts == [["female", 26, 50], ["male", 23, 70]]
    assert (first.labels["task"], first.labels["trial"]) == ("WAL", 1)
    assert Counter(second.labels["activity"].tolist()) == {"STU": 20, "STD": 5, "": 5}
    assert "gender" not in second.labels  # person 12 is not in this Readme


@pytest.mark.parametrize("folders", [("", ""), ("ACC", "GYRO"), ("ACC", "GYR")])
def test_raw_sensors_meet_on_the_accelerometers_clock(
    tmp_path: Path, folders: tuple[str, str]
) -> None:
    rng = np.random.default_rng(0)
    acc = np.cumsum(rng.integers(4_000_000, 12_000_000, 300)) + 10**13
    gyro = np.cumsum(rng.integers(4_000_000, 12_000_000, 280)) + 10**13 + 50_000_000

    def line(times: np.ndarray) -> np.ndarray:
        seconds = (times - 10**13) / 1e9
        return np.stack([seconds, 2 * seconds, 1 - seconds], axis=1)

    raw(tmp_path, "acc", acc, line(acc), folders[0])
    raw(tmp_path, "gyro", gyro, line(gyro), folders[1])
    (item,) = MobiAct().read(tmp_path).items
    inside = acc[(acc >= gyro[0]) & (acc <= gyro[-1])]
    assert item.time is not None
    assert np.allclose(item.time, (inside - inside[0]) / 1e9, atol=1e-9)
    # A line in time stays that line when it is read off between samples.
    assert np.allclose(item.signal, np.tile(line(inside).T, (2, 1)), atol=1e-5)
    assert set(item.labels["activity"]) == {"WAL"}
    corpus = apply_protocol(packaged_protocol("mobiact"), MobiAct().read(tmp_path))
    seconds = (inside[-1] - inside[0]) / 1e9
    assert corpus.samples[0] == pytest.approx(seconds * 200, abs=1)


def test_protocol_of_the_papers(tmp_path: Path) -> None:
    # Stairs begin with standing; jogging ends in a fall, long enough for two windows.
    stairs, jogging = ["STD"] * 20 + ["STU"] * 148, ["JOG"] * 168 + ["FOL"] * 140
    trials = {"WAL": ["WAL"] * 288, "STD": ["STD"] * 288, "JOG": jogging, "STU": stairs}
    for person in packaged_protocol("mobiact").people:
        for task, labels in trials.items():
            annotated(tmp_path, int(person), task, labels)
    annotated(tmp_path, 1, "WAL", ["WAL"] * 288, trial=2)
    annotated(tmp_path, 7, "WAL", ["WAL"] * 288)
    annotated(tmp_path, 1, "SLH", ["WAL"] * 288)
    split = load("mobiact", source=tmp_path)
    windows = [split.train, split.test]
    assert split.train.shape == (6, 128)
    assert len(split.train.recordings) == 36 * 4
    # Starts 0, 10, ... 160 of 288 rows: 17 windows; jogging's 168 clean rows hold 5; of the
    # stairs' 168, those from row 20 on hold 3 (starts 20, 30, 40).
    count = Counter(int(code) for part in windows for code in part.labels["activity"])
    assert count == {0: 36 * 17, 1: 36 * 17, 2: 36 * 5, 3: 36 * 3}
    for person in range(36):
        tested = int(np.sum(split.test.subject == person))
        assert abs(tested - 0.2 * 42) <= 1
    first = np.unique(split.train.subject, return_index=True)[1]
    groups = {name: np.bincount(split.train.labels[name][first]).tolist() for name in GROUPS}
    assert groups == GROUPS


def refusal(source: Path) -> str:
    with pytest.raises(Refusal) as caught:
        MobiAct().read(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_wrong_annotated_files(tmp_path: Path) -> None:
    place = annotated(tmp_path, 2, "WAL", ["WAL"] * 7)
    content = place.read_text()
    for wrong, expected in [
        (content.replace("acc_y", "acc"), "lacks the column acc_y"),
        (content.replace("9.8", "high", 1), "row 1, acc_y: 'high' is no number"),
        (content[: content.rindex("0.3,")], "row 7: gyro_y is empty"),
    ]:
        place.write_text(wrong)
        message = refusal(tmp_path)
        assert expected in message
        assert "WAL_2_1_annotated.csv" in message


def test_wrong_raw_files(tmp_path: Path) -> None:
    times, ones = np.arange(9) * 10_000_000, np.ones((9, 3))
    acc = raw(tmp_path, "acc", times, ones)
    assert "WAL_gyro_2_1.txt is missing" in refusal(tmp_path)
    raw(tmp_path, "gyro", times + 10**12, ones)
    assert "do not overlap" in refusal(tmp_path)
    raw(tmp_path, "gyro", times, ones)
    content = acc.read_text()
    for wrong, expected in [
        (content.replace("@DATA", ""), "no line @DATA"),
        (content[: content.index("@DATA") + 6], "@DATA has no rows"),
        (content.replace("1.0000000", "one", 1), "row 1, x: ' one' is no number"),
        (content[:-23], "row 9: y is empty"),
        (content.replace("80000000,", "7,"), "row 9: time runs backwards"),
    ]:
        acc.write_text(wrong)
        message = refusal(tmp_path)
        assert expected in message
        assert "WAL_acc_2_1.txt" in message


def test_wrong_folders(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("nothing")
    assert "no file like WAL_1_1_annotated.csv" in refusal(tmp_path)
    assert "is not a folder" in refusal(tmp_path / "notes.md")
    (tmp_path / "Readme.txt").write_text("Version 1")
    assert "Readme.txt has no table of subjects" in refusal(tmp_path)
    (tmp_path / "Readme.txt").write_text(README.replace("|  F ", "|  X "))
    assert "person 2 has gender 'X'" in refusal(tmp_path)
    with pytest.raises(Refusal, match="ask for MobiAct"):
        load("mobiact", source=tmp_path / "none")
