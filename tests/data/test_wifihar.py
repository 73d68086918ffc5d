"""WiFi-HAR: CSV files with complex numbers as text, zips of them, and the authors' logs."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import intel5300_writer as writer
import numpy as np
import pytest

from sensorveil.data import load
from sensorveil.data.wifihar import WifiHar
from sensorveil.errors import Refusal

_META = "timestamp_low,bfee_count,Nrx,Ntx,rssi_a,rssi_b,rssi_c,noise,agc,perm_1,perm_2,perm_3,rate"
_HEAD = ",".join([_META, *(f"csi_1_{rx}_{sc}" for rx in (1, 2, 3) for sc in range(1, 31))])


def _csv(csi: np.ndarray) -> str:
    """Packets (packets, 3, 1, 30) as the authors write them, '15+-7i'."""
    rows = [_HEAD]
    for i, packet in enumerate(csi):
        values = [f"{int(v.real)}+{int(v.imag)}i" for v in packet.reshape(90)]
        rows.append(f"{80068132 + 3125 * i},{i},3,1,40,40,34,-127,44,2,1,3,256," + ",".join(values))
    return "\n".join(rows) + "\n"


def _packets(seed: int, packets: int) -> np.ndarray:
    return writer.random_csi(np.random.default_rng(seed), packets)


def test_csv_zip_and_log_give_the_same_signal(tmp_path: Path) -> None:
    csi = _packets(0, 6)
    place = tmp_path / "csv" / "Environment 1" / "Subject_1"
    place.mkdir(parents=True)
    (place / "E1_S01_C03_A07_T17.csv").write_text("\ufeff" + _csv(csi), "utf-8")
    (tmp_path / "zip").mkdir()
    with zipfile.ZipFile(tmp_path / "zip" / "Subject_1.zip", "w") as archive:
        archive.writestr("Subject_1/E1_S01_C03_A07_T17.csv", _csv(csi).replace("\n", "\r\n"))
    (tmp_path / "dat" / "E1").mkdir(parents=True)
    (tmp_path / "dat" / "E1" / "E1_S01_C03_A07_T17.dat").write_bytes(
        writer.log(csi, sample_rate=320)
    )
    sources = [tmp_path / "csv", tmp_path / "zip", tmp_path / "zip/Subject_1.zip", tmp_path / "dat"]
    for source in sources:
        (item,) = WifiHar().read(source).items
        assert (item.name, item.subject) == ("E1_S01_C03_A07_T17", "01")
        assert item.labels == {"environment": 1, "experiment": 3, "activity": "A07", "trial": 17}
        np.testing.assert_array_equal(item.signal, csi.reshape(6, 90).T)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: "", "lacks the column"),
        (lambda t: t.replace("csi_1_2_3,", "csi_2_2_3,"), "lacks the column csi_1_2_3"),
        (lambda t: _HEAD + "\n", "has no rows"),
        (lambda t: t[:-40], "row 3"),
        (lambda t: t.replace("+", "#", 1), "row 1"),
        (lambda t: t.replace("\n80071257,", ",80071257,"), "not a whole"),  # two packets in a row
    ],
)
def test_wrong_csv_files_are_refused(tmp_path: Path, change, reason: str) -> None:
    (tmp_path / "E1_S01_C01_A01_T01.csv").write_text(change(_csv(_packets(1, 3))))
    with pytest.raises(Refusal, match=reason) as refusal:
        WifiHar().read(tmp_path)
    assert "E1_S01_C01_A01_T01.csv" in str(refusal.value)


def test_other_wrong_files_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "E1_S01_C01_A01_T01.csv"
    place.write_bytes("täglich".encode("latin-1"))
    with pytest.raises(Refusal, match="not UTF-8"):
        WifiHar().read(tmp_path)
    place.write_text(_csv(_packets(1, 3))[:-1].rpartition("+")[0] + "+NaNi\n")
    with pytest.raises(Refusal, match=r"T01\.csv, row 3: csi_1_3_30\.im is empty"):
        WifiHar().read(tmp_path)
    place.unlink()
    (tmp_path / "Subject_1.zip").write_bytes(b"PK half a zip")
    with pytest.raises(Refusal, match=r"Subject_1\.zip is not a whole zip"):
        WifiHar().read(tmp_path)
    (tmp_path / "Subject_1.zip").unlink()
    with pytest.raises(Refusal, match="no recording was found"):
        WifiHar().read(tmp_path)


def _write(folder: Path, people: Iterable[int], codes: Iterable[str], room: int = 1) -> None:
    """Two trials of each person and code, with 120 packets."""
    text = _csv(_packets(2, 120))
    for person, code, trial in product(people, codes, (1, 2)):
        (folder / f"E{room}_S{person:02d}_{code}_T{trial:02d}.csv").write_text(text)


def test_the_papers_windows_without_a_table_of_people(tmp_path: Path) -> None:
    _write(tmp_path, range(1, 11), ("C01_A01", "C01_A03", "C02_A04", "C03_A07", "C03_A09"))
    _write(tmp_path, [1], ["C01_A02"])  # neither this activity nor another room is the papers'
    _write(tmp_path, [11], ["C01_A01"], room=2)
    split = load("wifihar", source=tmp_path)
    both = len(split.train) + len(split.test)
    # Ten people, five codes, two trials; 120 packets give windows at 0 and at 40.
    assert both == 10 * 5 * 2 * 2
    assert len(split.test) == pytest.approx(0.2 * both, abs=1)
    assert split.train.shape == (90, 80)
    assert np.bincount(split.test.subject).tolist() == [4] * 10
    counts = np.bincount(
        np.concatenate([split.train.codes("activity"), split.test.codes("activity")])
    )
    assert dict(zip(split.train.classes["activity"], counts.tolist(), strict=True)) == {
        "standing": 40,
        "sitting": 40,
        "lying down": 40,
        "turning": 80,
    }
    assert set(split.train.codes("weight")) == {-1}
    csi = _packets(2, 120).reshape(120, 90).T
    starts = split.train.start[0]
    np.testing.assert_allclose(split.train.signal[0], np.abs(csi[:, starts : starts + 80]))


def test_weights_come_from_people_csv(tmp_path: Path) -> None:
    _write(tmp_path, range(1, 11), ["C01_A01"])
    rows = ["\ufeffsubject,weight,gender"]
    rows += [f"S{i:02d},{74.5 + i},{'Male' if i % 2 else 'female'}" for i in range(1, 12)]
    table = tmp_path / "people.csv"
    table.write_text("\n".join(rows), "utf-8")
    split = load("wifihar", "subject", source=tmp_path)
    for windows in (split.train, split.test):
        person = np.array([int(name) for name in windows.classes["subject"]])[windows.subject]
        np.testing.assert_array_equal(windows.codes("weight"), 74.5 + person >= 80)
        np.testing.assert_array_equal(windows.codes("gender"), person % 2)
    for row, reason in (
        ("1,70,male", r"person 2 is not in people\.csv"),
        ("1,heavy,male", "no number"),
        ("one,70,male", "subject 'one'"),
    ):
        table.write_text(f"subject,weight,gender\n{row}\n", "utf-8")
        with pytest.raises(Refusal, match=reason):
            load("wifihar", source=tmp_path)
