"""AudioMNIST: both layouts give the same, damaged files are refused, the real counts are met."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.io import wavfile
from scipy.signal import resample_poly

from sensorveil.data import load
from sensorveil.data.audiomnist import AudioMnist, embedding, read_waveform
from sensorveil.data.corpus import apply_protocol
from sensorveil.data.logmel import log_mel
from sensorveil.errors import Refusal

_PEOPLE = {
    "01": {"accent": "german", "age": 30, "gender": "male", "native speaker": "no"},
    "12": {"accent": "German", "age": "26", "gender": "female", "native speaker": "no"},
    "45": {"accent": "Brasilian", "age": "1234", "gender": "male", "native speaker": "yes"},
}


def _clips() -> Iterator[tuple[int, str, int, np.ndarray]]:
    """Digit, speaker, trial and waveform."""
    for seed, (person, digit, trial) in enumerate(product(_PEOPLE, (0, 7), (0, 1))):
        samples = 20_000 + 1000 * list(_PEOPLE).index(person)
        waveform = np.random.default_rng(seed).normal(0, 2000, samples)
        yield digit, person, trial, waveform.astype(np.int16)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """Three speakers, two digits, two trials, in the authors' layout."""
    for digit, person, trial, samples in _clips():
        folder = tmp_path / "data" / person
        folder.mkdir(parents=True, exist_ok=True)
        wavfile.write(folder / f"{digit}_{person}_{trial}.wav", 48_000, samples)
    meta = tmp_path / "data" / "audioMNIST_meta.txt"
    meta.write_text(json.dumps(_PEOPLE), "utf-8-sig")
    return tmp_path


def _write_compact(official: Path, folder: Path) -> None:
    """The compact layout of the same clips, written by its own rules."""
    levels, rows = [], []
    for digit, person, trial, samples in _clips():
        decibels = log_mel(resample_poly(samples / 32768, 1, 3))
        levels.append(np.rint((decibels + 90) * 2).astype(np.uint8))
        rows.append((digit, int(person), trial, decibels.shape[1]))
    index = zip(("digit", "speaker", "trial", "frames"), np.array(rows, np.uint8).T, strict=True)
    np.savez(folder / "logmel40_u8.npz", logmel=np.concatenate(levels, axis=1), **dict(index))
    people = pd.DataFrame(_PEOPLE.values(), index=[int(number) for number in _PEOPLE])
    people.to_csv(folder / "subjects.csv", index_label="speaker")


def test_both_layouts_give_the_same(official, tmp_path):
    compact = tmp_path / "compact"
    compact.mkdir()
    _write_compact(official, compact)
    one, other = AudioMnist().read(official / "data"), AudioMnist().read(compact)
    assert [item.name for item in one.items[:3]] == ["01-0-00", "01-0-01", "01-7-00"]
    assert (len(one.items), one.sample_rate) == (12, 62.5)
    # 20,000 samples at 48 kHz are 6,667 at 16 kHz, so 1 + (6667 - 512) // 256 frames.
    assert one.items[0].signal.shape == (40, 25)
    assert one.items[0].labels["age"] == 30
    assert {item.labels["age"] for item in one.items if item.subject == "45"} == {None}
    assert [item.name for item in one.items] == [item.name for item in other.items]
    for left, right in zip(one.items, other.items, strict=True):
        np.testing.assert_array_equal(left.signal, right.signal)
        assert left.labels == right.labels


def test_protocol_fills_up_and_spells_accents_alike(official):
    corpus = apply_protocol(AudioMnist().protocol(), AudioMnist().read(official))
    windows = corpus.windows(64, 64, ("digit",))
    assert len(windows) == 12
    assert (windows.signal[0][:, 25:] == -90).all()
    accents = [windows.classes["accent"][code] for code in windows.labels["accent"]]
    assert accents == ["German"] * 8 + ["Brazilian"] * 4
    assert windows.labels["age"][-1] == -1


@pytest.mark.parametrize(
    ("rate", "samples", "wrong"),
    [
        (16_000, np.zeros(9000, np.int16), "16000 Hz"),
        (48_000, np.zeros((9000, 2), np.int16), "2 channel"),
        (48_000, np.zeros(9000, np.float32), "float32"),
        (48_000, np.zeros(1535, np.int16), "holds 1535 samples"),
    ],
)
def test_refuses_another_kind_of_wav(tmp_path, rate, samples, wrong):
    wavfile.write(tmp_path / "a.wav", rate, samples)
    with pytest.raises(Refusal, match=wrong) as refusal:
        read_waveform(tmp_path / "a.wav")
    assert "a.wav" in str(refusal.value)


def test_refuses_wrong_tables(official):
    meta = official / "data" / "audioMNIST_meta.txt"
    for content in (b"", b"\xff\xfe{", b'["a"]', b'{"01": {"age": 3}}'):
        meta.write_bytes(content)
        with pytest.raises(Refusal, match=r"audioMNIST_meta\.txt"):
            AudioMnist().read(official)
    meta.write_text(json.dumps({"01": _PEOPLE["01"]}))
    with pytest.raises(Refusal, match=r"speaker (12|45) is not in"):
        AudioMnist().read(official)
    meta.unlink()
    with pytest.raises(Refusal, match="holds neither"):
        AudioMnist().read(official)


def test_refuses_a_damaged_compact_file(official, tmp_path):
    folder = tmp_path / "compact"
    folder.mkdir()
    _write_compact(official, folder)
    arrays = dict.fromkeys(("digit", "speaker", "trial", "frames"), np.ones(2, np.uint8))
    np.savez(folder / "logmel40_u8.npz", logmel=np.zeros((40, 3), np.uint8), **arrays)
    with pytest.raises(Refusal, match="frames add up to 2"):
        AudioMnist().read(folder)


def test_hubert_embedding_is_the_mean_at_length_one():
    class Echo:
        """A stand-in for the model: two steps of three numbers, from the waveform itself."""

        def __call__(self, waveform):
            assert waveform.shape == (1, 6)
            self.last_hidden_state = waveform.reshape(1, 2, 3)
            return self

    result = embedding(Echo(), np.array([0.0, 1, 2, 0, 3, 4]))
    np.testing.assert_allclose(result, np.array([0, 2, 3]) / np.sqrt(13), rtol=1e-6)


@pytest.mark.data
def test_real_clips(real_data):
    split = load("audiomnist", source=real_data / "audiomnist")
    assert (len(split.train), len(split.test), split.train.shape) == (9600, 2400, (40, 64))
    # 8:2 within each of the 600 pairs of speaker and digit: 4 of 20 trials.
    pairs = split.test.subject * 10 + split.test.labels["digit"]
    assert (np.bincount(pairs) == 4).all()
    assert np.bincount(split.train.labels["gender"]).tolist() == [12 * 160, 48 * 160]
    assert set(split.train.labels["accent"]) == set(range(16))
    assert set(split.train.labels["age"]) == {-1, *range(17)}
