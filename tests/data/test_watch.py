"""The watch recordings: known counts, and a pickle that can do nothing."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest

from sensorveil.data import watch
from sensorveil.data.recordings import Recordings
from sensorveil.data.watch import Watch
from sensorveil.errors import Refusal


@pytest.fixture(scope="module")
def recordings() -> Recordings:
    return Watch().read(Watch().locate())


def test_the_units_are_g(recordings: Recordings) -> None:
    """While the arm does not turn, the acceleration is gravity, one g."""
    signal = np.concatenate([item.signal for item in recordings.items], axis=1)
    still = np.linalg.norm(signal[3:], axis=0) < 0.2
    assert still.sum() > 1000
    assert 0.97 < np.median(np.linalg.norm(signal[:3, still], axis=0)) < 1.03
    assert all(item.signal.dtype == np.float32 for item in recordings.items)


def test_it_holds_what_numpy_reads(recordings: Recordings) -> None:
    """numpy's own reader of this one known file is the reference; the package never uses it."""
    content = np.load(Watch().locate(), allow_pickle=True, encoding="latin1").item()
    by_samples = {signal.T.astype(np.float32).tobytes(): i for i, signal in enumerate(content["X"])}
    assert len(by_samples) == 140
    for item in recordings.items:
        index = by_samples[item.signal.tobytes()]
        assert int(item.subject) == int(content["subject"][index])
        assert item.labels["exercise"] == content["y_labels"][int(content["y"][index])]
        assert item.labels["side"] == ("left", "right")[int(content["side"][index])]


def test_another_file_is_refused(tmp_path: Path) -> None:
    content = bytearray(Watch().locate().read_bytes())
    content[-1000] ^= 1
    (tmp_path / "watch.npy").write_bytes(content)
    with pytest.raises(Refusal, match=r"watch\.npy is not the file of seglearn 1\.2\.5"):
        Watch().corpus(tmp_path / "watch.npy")
    with pytest.raises(Refusal, match=r"pip install seglearn==1\.2\.5"):
        Watch().corpus(tmp_path / "nowhere.npy")
    with pytest.raises(Refusal, match="To get it, run 'pip install"):
        Watch().corpus(tmp_path)


class Payload:
    """What an attacker would put into a pickle: it writes a file when it is read."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, (f"open({str(self.place)!r}, 'w').write('gotcha')",))


def poisoned(place: Path, proof: Path) -> Path:
    """A file with the header of the real one, and a payload in the place of its arrays."""
    header = {"descr": "|O", "fortran_order": False, "shape": ()}
    with open(place, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(pickle.dumps({"X": [np.float32, Payload(proof)]}, protocol=2))
    return place


def test_a_payload_is_not_run_even_if_its_hash_were_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = poisoned(tmp_path / "watch.npy", tmp_path / "proof")
    monkeypatch.setattr(watch, "_SHA256", hashlib.sha256(place.read_bytes()).hexdigest())
    monkeypatch.setitem(watch._ArraysOnly._allowed, ("numpy", "float32"), np.float32)
    with pytest.raises(Refusal, match=r"asks for \w+\.exec, which is not allowed"):
        Watch().read(place)
    assert not (tmp_path / "proof").exists()


def test_the_payload_would_work(tmp_path: Path) -> None:
    """Else the two tests above would show nothing."""
    np.load(poisoned(tmp_path / "watch.npy", tmp_path / "proof"), allow_pickle=True)
    assert (tmp_path / "proof").read_text() == "gotcha"
