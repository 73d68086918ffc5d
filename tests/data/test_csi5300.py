"""The activity logs of the Intel 5300, in the authors' folders and in the compact form."""

from __future__ import annotations

from pathlib import Path

import intel5300_writer as writer
import numpy as np
import pytest

from sensorveil.data.csi5300 import Csi5300
from sensorveil.errors import Refusal

# Paths as they are in the authors' repository, with who and what they are.
_LOGS = {
    "0510/falldown/hjj_falldown1.dat": ("u2", "fall_down", "bedroom", 1),
    "0510/lying/zhangliyuntang1.dat": ("u3", "lying", "bedroom", 1),
    "0510/sitting/xiaoqiangzuo1.dat": ("u4", "sitting", "bedroom", 1),
    "0510/sit down/abid_sit11.dat": ("u1", "sit_down", "bedroom", 11),
    "0510/stand up/abid_sit10.dat": ("u1", "stand_up", "bedroom", 10),
    "0510/squart/zyy_squart20.dat": ("u5", "squat", "bedroom", 20),
    "0510/wave/yingying_wave3.dat": ("u5", "wave_hand", "bedroom", 3),
    "0510/running/hhj_run7.dat": ("u2", "running", "bedroom", 7),
    "0510/pick up/liyun_pickup2.dat": ("u3", "pick_up", "bedroom", 2),
    "0512/fall down/qiang_falldown4.dat": ("u4", "fall_down", "meeting_room", 4),
    "0512/sitting/abid_sitting.dat": ("u1", "sitting", "meeting_room", 1),
}


def _write(folder: Path, name: str, content: bytes) -> None:
    place = folder / "Original Data" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def test_the_authors_folders_tell_room_activity_person_and_trial(tmp_path: Path) -> None:
    csi = writer.random_csi(np.random.default_rng(0), 3)
    for name in _LOGS:
        _write(tmp_path, name, writer.log(csi, sample_rate=20))
    read = Csi5300().read(tmp_path)
    assert (len(read.items), len(read.channels), read.sample_rate) == (11, 90, 20.0)
    for item in read.items:
        person, activity, room, trial = _LOGS[f"{item.name}.dat"]
        assert item.subject == person
        assert item.labels == {"activity": activity, "environment": room, "trial": trial}
    # One packet by hand: receiver 2, subcarrier 5, over the root of the packet's mean power.
    root = np.sqrt(np.mean(np.abs(csi[1]) ** 2))
    place = read.channels.index("rx2/sc05")
    np.testing.assert_allclose(read.items[0].signal[place, 1], csi[1, 1, 0, 4] / root, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("0511/jump/abid_jump1.dat", None, "does not fit"),
        ("0510/dancing/abid_jump1.dat", None, "does not fit"),
        ("0510/jump/somebody_jump1.dat", None, "does not fit"),
        ("0510/jump/abid_jump1.dat", b"", "no whole packet"),
        ("0510/jump/abid_jump1.dat", b"version https://git-lfs", "no log of the CSI tool"),
    ],
)
def test_wrong_files_are_refused_by_name(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    whole = writer.log(writer.random_csi(np.random.default_rng(2), 1))
    _write(tmp_path, name, whole if content is None else content)
    with pytest.raises(Refusal, match=reason) as refusal:
        Csi5300().read(tmp_path)
    assert name in str(refusal.value)


def _compact(folder: Path, iq: np.ndarray, packets: tuple[int, ...], mark: bytes = b"") -> None:
    np.savez(folder / "csi_complex.npz", iq=iq)
    rows, start = ["rec,user,environment,activity,trial,n,start"], 0
    for trial, n in enumerate(packets, 1):
        rows.append(f"{trial},u1,bedroom,jump,{trial},{n},{start}")
        start += n
    (folder / "recordings.csv").write_bytes(mark + "\n".join(rows).encode())


def test_the_compact_form_and_the_logs_are_one_signal(tmp_path: Path) -> None:
    csi = writer.random_csi(np.random.default_rng(3), 7)
    iq = np.empty((180, 7), np.int8)
    for rx in range(3):
        for sc in range(30):
            iq[60 * rx + 2 * sc] = csi[:, rx, 0, sc].real
            iq[60 * rx + 2 * sc + 1] = csi[:, rx, 0, sc].imag
    _compact(tmp_path, iq, (3, 4), mark=b"\xef\xbb\xbf")
    _write(tmp_path / "logs", "0510/jump/abid_jump1.dat", writer.log(csi))
    compact = Csi5300().read(tmp_path)
    logs = Csi5300().read(tmp_path / "logs")
    joined = np.concatenate([item.signal for item in compact.items], axis=1)
    assert joined.dtype == np.complex64
    np.testing.assert_array_equal(joined, logs.items[0].signal)


def test_wrong_compact_files_are_refused(tmp_path: Path) -> None:
    _compact(tmp_path, np.ones((180, 5), np.int8), (3, 4))
    with pytest.raises(Refusal, match=r"has 5 rows, .* says 7"):
        Csi5300().read(tmp_path)
    _compact(tmp_path, np.ones((90, 7), np.int8), (3, 4))
    with pytest.raises(Refusal, match="180 rows"):
        Csi5300().read(tmp_path)
    (tmp_path / "csi_complex.npz").write_bytes(b"not a zip")
    with pytest.raises(Refusal, match="not a whole npz file"):
        Csi5300().read(tmp_path)
    np.savez(tmp_path / "csi_complex.npz", iq=np.array([{"a": 1}], dtype=object))
    with pytest.raises(Refusal, match="not a whole npz file"):  # a pickle is never opened
        Csi5300().read(tmp_path)


@pytest.mark.data
def test_the_real_recordings(real_data: Path) -> None:
    read = Csi5300().read(real_data / "csi5300")
    assert len(read.items) == 480
    groups = {(item.subject, item.labels["activity"]) for item in read.items}
    assert len(groups) == 40
    assert sum(item.signal.shape[1] for item in read.items) == 154756
    power = [np.mean(np.abs(item.signal) ** 2, axis=0) for item in read.items]
    np.testing.assert_allclose(np.concatenate(power), 1, rtol=1e-4)
