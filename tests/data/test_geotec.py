"""GeoTec: even times, both layouts, refusals, and the counts of the real data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sensorveil.data import load
from sensorveil.data.corpus import apply_protocol
from sensorveil.data.geotec import GeoTec
from sensorveil.errors import Refusal

_HEADER = "x_acc,y_acc,z_acc,x_gyro,y_gyro,z_gyro,timestamp,label"
_NAMES = ["SEATED", "SITTING_DOWN", "STANDING_UP", "TURNING", "WALKING"]
_PEOPLE = (
    "subject_id,age,gender,height,weight,dominant_hand,executions\n"
    "s01,54,M,190,83,R,3\ns02,24,F,161,62,R,3\n"
)


def _signal(seed: int, samples: int = 700) -> np.ndarray:
    """Whole numbers of 1e-4, so that both layouts can hold them exactly."""
    return np.random.default_rng(seed).integers(-100_000, 100_000, (6, samples))


def _times(samples: int = 700) -> np.ndarray:
    """A steady pace of 9.75 ms, handed over four at a time, as the phone does."""
    true = np.arange(samples) * 9.75
    return np.rint(true[np.minimum(np.arange(samples) // 4 * 4 + 3, samples - 1)]).astype(int)


def _activity(samples: int = 700) -> np.ndarray:
    return np.repeat([0, 2, 4, 3, 4, 1, 0], samples // 7)


def _executions():
    for subject in (1, 2):
        for execution in (1, 2, 3):
            for device in ("sp", "sw"):
                seed = subject * 100 + execution * 10 + (device == "sw")
                yield f"s{subject:02d}", execution, device, _signal(seed)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    for subject, execution, device, signal in _executions():
        folder = tmp_path / "DATA" / subject
        folder.mkdir(parents=True, exist_ok=True)
        table = pd.DataFrame(signal.T / 10_000, columns=_HEADER.split(",")[:6])
        table = table.assign(timestamp=1657533977813 + _times())
        table = table.assign(label=np.array(_NAMES)[_activity()])
        table.to_csv(folder / f"{subject}_{execution:02d}_{device}.csv", index=False)
    (tmp_path / "DATA" / "subjects_info.csv").write_text(_PEOPLE, "utf-8-sig")
    return tmp_path


def _write_compact(folder: Path) -> None:
    tables, rows, start = [], [], 0
    for number, (subject, execution, device, signal) in enumerate(_executions()):
        columns = {"rec": number, "dt_ms": np.diff(_times(), prepend=_times()[0])}
        columns |= {"label": _activity()}
        names = [f"{s}_{a}" for s in ("acc", "gyro") for a in "xyz"]
        tables.append(pd.DataFrame({**columns, **dict(zip(names, signal, strict=True))}))
        device = {"sp": "smartphone", "sw": "smartwatch"}[device]
        rows.append((number, subject, execution, device, 700, start))
        start += 700
    pd.concat(tables).to_parquet(folder / "geotec_har.parquet")
    columns = ["rec", "subject", "execution", "device", "n", "start"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "recordings.csv", index=False)
    pd.DataFrame({"label": range(5), "name": _NAMES}).to_csv(folder / "labels.csv", index=False)
    (folder / "subjects.csv").write_text(_PEOPLE)


def test_both_layouts_give_the_same(official, tmp_path):
    compact = tmp_path / "compact"
    compact.mkdir()
    _write_compact(compact)
    one, other = GeoTec().read(official / "DATA"), GeoTec().read(compact)
    assert len(one.items) == 12
    item = one.items[0]
    assert (item.name, item.subject) == ("s01-01-smartphone", "s01")
    np.testing.assert_allclose(item.signal, _signal(110) * 1e-4, rtol=1e-6)
    assert item.labels["activity"][150] == "STANDING_UP"
    assert (item.labels["weight"], item.labels["gender"]) == (83, "M")
    for left, right in zip(one.items, other.items, strict=True):
        assert left.name == right.name
        np.testing.assert_allclose(left.signal, right.signal, rtol=1e-6)
        np.testing.assert_allclose(left.time, right.time, rtol=1e-9)
        assert (left.labels["activity"] == right.labels["activity"]).all()


def test_windows_carry_the_activity_of_their_time(official):
    corpus = apply_protocol(GeoTec().protocol(), GeoTec().read(official))
    windows = corpus.windows(48, 8, ("activity",))
    # 100 samples of 9.75 ms are 0.975 s, so 48 of 50 Hz fit once at most into each stretch.
    names = [windows.classes["activity"][code] for code in windows.labels["activity"]]
    order = ["seated", "standing up", "walking", "turning", "walking", "sitting down", "seated"]
    for start, name in zip(windows.start, names, strict=True):
        assert name == order[int((start + 24) / 50 / 0.975)]


def test_phone_and_watch_of_an_execution_are_on_one_side(official):
    split = load("geotec", source=official)
    fitting, validation, test = (
        {part.recordings[i].rsplit("-", 1)[0] for i in part.recording}
        for part in (split.fitting, split.validation, split.test)
    )
    assert test
    assert len(fitting) + len(validation) + len(test) == 6


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"x_acc,y_acc\n1,2\n", "lacks the column"),
        (_HEADER.encode() + b"\n1,2,3,4,5,6,soon,WALKING\n", "'soon' is no number"),
        (_HEADER.encode() + b"\n1,2,z,4,5,6,7,WALKING\n", "'z' is no number"),
        (_HEADER.encode() + b"\n1,2,3,4,5,6,9,A\n1,2,3,4,5,6,8,A\n", "backwards"),
        (_HEADER.encode() + b"\n1,2,3,4,5,6,9,A\n1,2,3,4,5,6,9,A\n", "same time"),
        (_HEADER.encode() + b"\n1,2,3,4,5,6,9,A\n1,2,3", "timestamp"),
    ],
)
def test_refuses_a_damaged_file(official, content, wrong):
    (official / "DATA" / "s01" / "s01_02_sw.csv").write_bytes(content)
    with pytest.raises(Refusal, match=wrong) as refusal:
        GeoTec().read(official)
    assert "s01_02_sw.csv" in str(refusal.value)


def test_refuses_missing_people_and_other_names(official, tmp_path):
    people = official / "DATA" / "subjects_info.csv"
    people.write_text(_PEOPLE.replace("s02", "s09"))
    with pytest.raises(Refusal, match="s02 is not in the table"):
        GeoTec().read(official)
    people.write_text(_PEOPLE.replace("s02", "s01"))
    with pytest.raises(Refusal, match="s01 appears twice"):
        GeoTec().read(official)
    archive = tmp_path / "a.zip"
    archive.write_bytes(b"PK")
    with pytest.raises(Refusal, match="not a folder"):
        GeoTec().read(archive)


@pytest.mark.data
def test_real_recordings(real_data):
    raw = GeoTec().read(real_data / "geotec")
    assert len(raw.items) == 446
    assert sum(item.signal.shape[1] for item in raw.items) == 521_766
    assert len({item.subject for item in raw.items}) == 23
    assert sum(float(item.time[-1]) for item in raw.items) / 3600 == pytest.approx(1.40, abs=0.005)
    # A device at rest measures gravity, so units and scale are right.
    seated = raw.items[0].signal[:3, raw.items[0].labels["activity"] == "SEATED"]
    assert np.linalg.norm(seated, axis=0).mean() == pytest.approx(9.8, abs=0.3)
    steps = {"smartphone": [], "smartwatch": []}
    for item in raw.items:
        steps[item.labels["device"]].append(float(item.time[1]))
    assert 1 / np.array(steps["smartphone"]) == pytest.approx(102.44, rel=1e-3)
    assert 1 / np.array(steps["smartwatch"]) == pytest.approx(104.28, rel=1e-3)
