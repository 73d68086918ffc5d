"""Widar3.0 in the authors' folders, with logs from the slow writer."""

from __future__ import annotations

from pathlib import Path

import intel5300_writer as writer
import numpy as np
import pytest

from sensorveil.data import load
from sensorveil.data.widar import Widar, gesture_name
from sensorveil.errors import Refusal

# Some cells of the README's table, written out by hand.
_KNOWN = [
    ("20181109", 2, 4, "slide"),
    ("20181112", 1, 10, "draw-0"),
    ("20181115", 1, 4, "draw-o(v)"),
    ("20181130", 17, 9, "draw-rectangle(h)"),
    ("20181205", 2, 1, "draw-o(h)"),
    ("20181205", 3, 1, "slide"),
    ("20181209", 2, 1, "push&pull"),
    ("20181211", 8, 5, "draw-o(h)"),
    # What is not in the table stays a number.
    ("20181208", 2, 5, "20181208-5"),
    ("20181209", 2, 2, "20181209-2"),
    ("20190101", 1, 1, "20190101-1"),
]


@pytest.mark.parametrize(("date", "user", "number", "name"), _KNOWN)
def test_the_day_decides_what_a_number_means(date: str, user: int, number: int, name: str) -> None:
    assert gesture_name(date, user, number) == name


def _write(folder: Path, name: str, content: bytes) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def test_the_name_tells_all_and_even_packets_are_picked(tmp_path: Path) -> None:
    csi = writer.random_csi(np.random.default_rng(0), 41)
    _write(tmp_path, "20181130_user5_10_11/user10/user10-7-2-3-4-r6.dat", writer.log(csi, start=99))
    read = Widar().read(tmp_path)
    (item,) = read.items
    assert (item.name, item.subject) == ("20181130/user10-7-2-3-4-r6", "10")
    assert item.labels == {
        "gesture": "draw-n(h)",
        "location": 2,
        "orientation": 3,
        "repetition": 4,
        "receiver": 6,
        "date": "20181130",
        "performance": "20181130/user10-7-2-3-4",
        "environment": "classroom",
    }
    kept = csi[::4].reshape(11, 90).T  # 1000 packets a second to 250
    root = np.sqrt(np.mean(np.abs(kept) ** 2, axis=0))
    np.testing.assert_allclose(item.signal, kept / root, rtol=1e-5)


def test_lost_packets_do_not_shift_the_rest(tmp_path: Path) -> None:
    csi = writer.random_csi(np.random.default_rng(1), 41)
    lost = [i for i in range(41) if not 10 <= i < 19]
    content = b"".join(writer.record(csi[i], 1000 * i) for i in lost)
    _write(tmp_path, "20181109/user1/user1-1-1-1-1-r1.dat", content)
    (item,) = Widar().read(tmp_path).items
    # Times 0, 4, ... 40 ms: 12 is nearest to packet 9, 16 to packet 19.
    wanted = csi[[0, 4, 8, 9, 19, 20, 24, 28, 32, 36, 40]].reshape(11, 90).T
    np.testing.assert_allclose(np.angle(item.signal), np.angle(wanted), atol=1e-5)


def test_broken_logs_are_named_together(tmp_path: Path) -> None:
    whole = writer.log(writer.random_csi(np.random.default_rng(2), 2))
    far = b"".join(
        writer.record(m, 10**9 * i)
        for i, m in enumerate(writer.random_csi(np.random.default_rng(3), 2))
    )
    _write(tmp_path, "20181109/user1/user1-1-1-1-1-r1.dat", whole)
    _write(tmp_path, "20181109/user1/user1-1-1-1-1-r2.dat", b"")
    _write(tmp_path, "20181109/user1/user1-1-1-1-r3.dat", whole)
    _write(tmp_path, "20181109/user1/user1-1-1-1-1-r4.dat", far)
    with pytest.raises(Refusal) as refusal:
        Widar().read(tmp_path)
    text = str(refusal.value)
    assert "r1.dat" not in text.replace("user5-1-1-1-1-r1.dat", "")
    for part in ("1-r2.dat holds no whole packet", "1-1-1-r3.dat does not fit", "span 1000 s"):
        assert part in text


def test_windows_and_splits(tmp_path: Path) -> None:
    """Nine people, two gestures, five repetitions, two receivers; others stay out."""
    writer.widar_folder(tmp_path, repetitions=5)
    other = writer.log(writer.random_csi(np.random.default_rng(4), 30))
    _write(tmp_path, "20181130/user9/user9-1-1-1-1-r1.dat", other)
    split = load("widar", source=tmp_path)
    assert split.train.shape == (90, 512)
    assert split.train.is_complex
    assert (len(split.train), len(split.test)) == (9 * 2 * 4 * 2, 9 * 2 * 1 * 2)
    for one, other in ((split.test, split.train), (split.validation, split.fitting)):
        heard = {one.recordings[i].rpartition("-")[0] for i in one.recording}
        assert not heard & {other.recordings[i].rpartition("-")[0] for i in other.recording}
        assert 2 * len(heard) == len(one)  # both receivers of a gesture are on one side
    window = split.test.signal[0]
    assert np.abs(window[:, :8]).all()  # 30 ms at 250 Hz; after that, silence
    assert not np.abs(window[:, 8:]).any()
    one = load("widar", "subject", 3, tmp_path)
    assert len(set(one.test.subject)) == 1
    assert not set(one.test.subject) & set(one.train.subject)
