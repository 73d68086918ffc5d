"""MotionSense: both layouts, refusals, and the papers' counts on the real data."""

from __future__ import annotations

import shutil
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sensorveil.data import load
from sensorveil.data.corpus import apply_protocol
from sensorveil.data.motionsense import MotionSense

# The header and the channels as the authors publish them, with the attitude that nobody needs.
AXES = tuple(f"{vector}.{axis}" for vector in ("gravity", "rotationRate") for axis in "xyz")
PUSH = tuple(f"userAcceleration.{axis}" for axis in "xyz")
HEADER = ",".join(("", "attitude.roll", "attitude.pitch", "attitude.yaw", *AXES, *PUSH))
PEOPLE = "code,weight,height,age,gender\n1,102,188,46,1\n3,48,161,28,0\n"
DONE = [("dws", 1, 1), ("wlk", 7, 1), ("wlk", 15, 3), ("sit", 5, 3)]


def signal(activity: str, trial: int, subject: int, samples: int = 150) -> np.ndarray:
    """Millionths, whole, so that both layouts can hold them: (12 columns, samples)."""
    seed = [trial, subject, *activity.encode()]
    return np.random.default_rng(seed).integers(-2_000_000, 2_000_000, (12, samples))


def csv(activity: str, trial: int, subject: int) -> str:
    rows = signal(activity, trial, subject).T / 1e6
    lines = [f"{n}," + ",".join(f"{v:.6f}" for v in row) for n, row in enumerate(rows)]
    return "\n".join([HEADER, *lines]) + "\n"


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked"
    for activity, trial, subject in DONE:
        place = folder / "A_DeviceMotion_data" / f"{activity}_{trial}" / f"sub_{subject}.csv"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(csv(activity, trial, subject), "utf-8")
    (folder / "data_subjects_info.csv").write_text(PEOPLE, "utf-8-sig")
    return folder


@pytest.fixture
def packed(unpacked: Path) -> Path:
    with zipfile.ZipFile(unpacked / "A_DeviceMotion_data.zip", "w") as archive:
        for place in unpacked.rglob("sub_*.csv"):
            archive.write(place, place.relative_to(unpacked))
        # What macOS adds to every zip is passed over.
        archive.writestr("__MACOSX/A_DeviceMotion_data/dws_1/._sub_1.csv", b"\0\5\x16\7")
    shutil.rmtree(unpacked / "A_DeviceMotion_data")
    return unpacked


@pytest.fixture
def compact(tmp_path: Path) -> Path:
    folder = tmp_path / "compact"
    folder.mkdir()
    whole = np.concatenate([signal(*done) for done in DONE], axis=1)
    names = [*AXES, *PUSH]
    table = pd.DataFrame(dict(zip(names, whole[3:], strict=True)))
    gravity = [name for name in names if name.startswith("gravity")]
    table[gravity].to_parquet(folder / "motionsense_gravity.parquet")
    table.drop(columns=gravity).to_parquet(folder / "motionsense_motion.parquet")
    rows = [f"{s},{a},{t},150,{150 * i}" for i, (a, t, s) in enumerate(DONE)]
    index = "\n".join(["subject,activity,trial,n,start", *rows])
    (folder / "recordings.csv").write_text(index)
    header = "subject,weight_kg,height_cm,age_years,gender_male1_female0"
    (folder / "subjects.csv").write_text("\n".join([header, *PEOPLE.splitlines()[1:]]))
    return folder


@pytest.mark.parametrize("layout", ["unpacked", "packed", "compact"])
def test_every_layout_gives_the_same(layout: str, request: pytest.FixtureRequest) -> None:
    recordings = MotionSense().read(request.getfixturevalue(layout))
    assert recordings.sample_rate == 50.0
    names = [item.name for item in recordings.items]
    assert names == ["01-dws-1", "01-wlk-7", "03-sit-5", "03-wlk-15"]
    for item in recordings.items:
        subject, activity, trial = item.name.split("-")
        expected = signal(activity, int(trial), int(subject)) / 1e6
        # The authors' columns: gravity, rotation rate, acceleration; ours: gravity last.
        expected = np.concatenate([expected[6:12], expected[3:6]])
        np.testing.assert_allclose(item.signal, expected, atol=1e-6)
        assert item.subject == subject
        assert item.labels["activity"] == activity
        assert item.labels["trial"] == int(trial)
    ann, cat = recordings.items[0].labels, recordings.items[2].labels
    assert [ann[n] for n in ("gender", "weight", "height", "age")] == [1, 102, 188, 46]
    assert [cat[n] for n in ("gender", "weight", "height", "age")] == [0, 48, 161, 28]


def test_windows_by_the_protocol(packed: Path) -> None:
    corpus = apply_protocol(MotionSense().protocol(), MotionSense().read(packed))
    assert corpus.recordings == ("01-dws-1", "01-wlk-7", "03-wlk-15")  # sitting is left out
    windows = corpus.windows(128, 10)
    assert windows.start.tolist() == [0, 10, 20] * 3
    columns = signal("wlk", 7, 1) / 1e6
    turn = np.sqrt((columns[6:9] ** 2).sum(0))
    push = np.sqrt(((columns[3:6] + columns[9:12]) ** 2).sum(0))
    np.testing.assert_allclose(windows.signal[4], np.stack([turn, push])[:, 10:138], rtol=1e-5)
    assert windows.labels["activity"].tolist() == [0] * 3 + [2] * 6
    for name, ann, cat in (("gender", 1, 0), ("weight", 2, 0), ("age", 2, 1), ("height", 2, 0)):
        assert windows.labels[name].tolist() == [ann] * 6 + [cat] * 3


@pytest.mark.parametrize("name", ["gender", "weight"])
def test_what_is_not_known_of_a_person(unpacked: Path, name: str) -> None:
    """A blank cell makes one person's class unknown and leaves the others alone."""
    known = {"gender": ("188,46,1", "188,46,"), "weight": ("102,188", ",188")}
    (unpacked / "data_subjects_info.csv").write_text(PEOPLE.replace(*known[name]))
    corpus = apply_protocol(MotionSense().protocol(), MotionSense().read(unpacked))
    codes = corpus.windows(128, 10).labels[name]
    assert codes.tolist() == [-1] * 6 + [0] * 3


@pytest.mark.data
def test_the_whole_data(real_data: Path) -> None:
    recordings = MotionSense().read(real_data / "motionsense")
    assert len(recordings.items) == 360
    assert sum(item.signal.shape[-1] for item in recordings.items) == 1_412_865
    # The authors print these row counts, for the moving activities and for trials 1 to 9.
    moving = [i for i in recordings.items if i.labels["activity"] in ("dws", "ups", "wlk", "jog")]
    assert sum(item.signal.shape[-1] for item in moving) == 767_660
    early = [i for i in recordings.items if i.labels["trial"] <= 9]
    assert sum(item.signal.shape[-1] for item in early) == 1_081_446
    gravity = np.concatenate([item.signal[6:] for item in recordings.items], axis=1)
    np.testing.assert_allclose(np.linalg.norm(gravity, axis=0), 1, atol=3e-4)


@pytest.mark.data
def test_the_papers_counts_in_little_memory(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENSORVEIL_DATA", str(real_data))
    tracemalloc.start()
    split = load("motionsense", "paper")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(split.train), len(split.test)) == (60_132, 13_388)
    assert np.bincount(split.test.labels["activity"]).tolist() == [1955, 2505, 6232, 2696]
    assert len(np.unique(split.train.subject)) == len(np.unique(split.test.subject)) == 24
    assert peak < 1e9
    assert split.train.store.nbytes < 10e6
