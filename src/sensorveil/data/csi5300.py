"""Activities of five people in two rooms, as an Intel 5300 Wi-Fi card heard them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from sensorveil.data.dataset import Card, Dataset, data_home
from sensorveil.data.intel5300 import CHANNELS, SUBCARRIERS, channels_first, read_log, unit_power
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.data.tables import read_csv
from sensorveil.errors import Refusal

# The authors' scripts read the folder 0510 for the bedroom and 0512 for the meeting room.
_ROOMS = {"0510": "bedroom", "0512": "meeting_room"}

# A person is spelt in up to two ways; the numbers follow the alphabet and need not be those of the
# compact form.
_PEOPLE = {
    "abid": "u1",
    "hhj": "u2",
    "hjj": "u2",
    "liyun": "u3",
    "zhangliyun": "u3",
    "qiang": "u4",
    "xiaoqiang": "u4",
    "yingying": "u5",
    "zyy": "u5",
}

# The activity is the folder's name, in the authors' spellings ('fall down', 'falldown', 'squart').
# The files' own names do not tell: those of sitting down and standing up are both called sit.
_ACTIVITIES = {
    "fall": "fall_down",
    "jump": "jump",
    "lying": "lying",
    "pick": "pick_up",
    "run": "running",
    "sitdown": "sit_down",
    "sitting": "sitting",
    "squ": "squat",
    "stand": "stand_up",
    "walk": "walking",
    "wav": "wave_hand",
}
_NAME = re.compile(rf"(?P<person>{'|'.join(_PEOPLE)})[ _]?[a-z ]*(?P<trial>\d*)", re.IGNORECASE)


class Csi5300(Dataset):
    """Hu and others, the original logs."""

    name = "csi5300"
    card = Card(
        title="CSI data for human activity recognition (Intel 5300)",
        modality="csi",
        people=5,
        hours=9.1,  # about: 1700 logs of some 15 s and 20 of some 6 minutes
        sample_rate=20.0,
        channels="3 receive antennas x 30 subcarriers, complex, each packet of unit mean power",
        attributes={
            "activity": "jump, pick up, running, sit down, squat, stand up, walking, wave hand",
            "subject": (
                "the person; one person's recordings of one activity were made in one go, so who"
                " it is and when it was cannot be told apart: do not read how well people are"
                " recognised within a session as how well bodies are"
            ),
        },
        licence="not stated",
        citation=(
            "Hu, Liu, Zhang, Zhu, Li: Proto-CSNet, MSN 2024, doi 10.1109/MSN63567.2024.00018"
        ),
        url="https://github.com/qiang5love1314/CSI-data-for-human-activity-recognition",
        obtain=(
            "clone https://github.com/qiang5love1314/CSI-data-for-human-activity-recognition and"
            " keep its folder 'Original Data' as it is"
        ),
    )

    def read(self, source: Path) -> Recordings:
        """Reads the authors' logs (.dat), or the compact csi_complex.npz and recordings.csv."""
        if (source / "csi_complex.npz").is_file():
            items = list(_compact(source))
        else:
            items = [_log(path) for path in sorted(source.rglob("*.dat"))]
        items.sort(key=lambda item: item.name)
        return Recordings(tuple(items), CHANNELS, sample_rate=20.0)


class Csi5300Magnitude(Csi5300):
    """The same logs without phases, as WiFi-HAR is used by PrivDiffuser and CLOAK."""

    name = "csi5300-magnitude"
    card = replace(
        Csi5300.card,
        title="The same CSI as magnitudes",
        channels="3 receive antennas x 30 subcarriers, magnitudes, each packet of unit mean power",
    )

    def locate(self, source: Path | None = None) -> Path:
        """The logs are those of csi5300, unless this dataset has a folder of its own."""
        own = data_home() / self.name
        return super().locate(source or (own if own.exists() else data_home() / Csi5300.name))


def _log(path: Path) -> Recording:
    """One log; its room, activity and person stand in its path."""
    room, folder = path.parent.parent.name, path.parent.name
    words = folder.lower().replace(" ", "").replace("_", "")
    activity = next((name for key, name in _ACTIVITIES.items() if key in words), None)
    found = _NAME.fullmatch(path.stem.strip())
    if room not in _ROOMS or activity is None or found is None:
        raise Refusal(
            f"{path} does not fit '0510 or 0512/activity/person_activity1.dat'; keep the folders"
            " of 'Original Data' as they are, and nothing else beside them"
        )
    signal = channels_first(read_log(path), str(path))
    return Recording(
        name=f"{room}/{folder}/{path.stem}",
        subject=_PEOPLE[found["person"].lower()],
        signal=unit_power(signal),
        labels={
            "activity": activity,
            "environment": _ROOMS[room],
            "trial": int(found["trial"] or 1),
        },
    )


def _compact(source: Path) -> Iterator[Recording]:
    place = source / "csi_complex.npz"
    index_place = source / "recordings.csv"
    wanted = ["user", "environment", "activity", "trial", "n", "start"]
    index = read_csv(index_place, str(index_place), wanted)
    counts = _counts(place)
    total = counts.shape[1]
    if int(index["n"].sum()) != total or int((index["start"] + index["n"]).max()) > total:
        raise Refusal(f"{place} has {total} packets, {index_place} says {index['n'].sum()}")
    for row in index.itertuples():
        part = counts[:, row.start : row.start + row.n].astype(np.float32)
        yield Recording(
            name=f"{row.environment}-{row.user}-{row.activity}-{row.trial:02d}",
            subject=row.user,
            signal=unit_power(part[0::2] + 1j * part[1::2]),
            labels={
                "activity": row.activity,
                "environment": row.environment,
                "trial": int(row.trial),
            },
        )


def _counts(place: Path) -> np.ndarray:
    """The tool's counts, (180, packets): real and imaginary parts in turn."""
    try:
        with np.load(place, allow_pickle=False) as content:
            counts = content["iq"]
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
        raise Refusal(f"{place} is not the whole compact file ({error}); copy it again") from None
    if counts.ndim != 2 or len(counts) != 2 * 3 * SUBCARRIERS:
        raise Refusal(f"{place}: iq has shape {counts.shape}; 180 rows are needed")
    return np.asarray(counts)
