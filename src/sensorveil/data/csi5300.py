"""Activities of five people in two rooms, as an Intel 5300 Wi-Fi card heard them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sensorveil.data.dataset import Dataset
from sensorveil.data.intel5300 import CHANNELS, channels_first, read_log, unit_power
from sensorveil.data.io import read_index, read_npz
from sensorveil.data.recordings import Recording, Recordings
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

    def read(self, source: Path) -> Recordings:
        """Reads the authors' logs (.dat), or the compact csi_complex.npz and recordings.csv."""
        if (source / "csi_complex.npz").is_file():
            items = list(_compact(source))
        else:
            items = [_log(path) for path in sorted(source.rglob("*.dat"))]
        return Recordings.by_name(items, CHANNELS, sample_rate=20.0)


class Csi5300Magnitude(Csi5300):
    """The same logs without phases, as WiFi-HAR is used by PrivDiffuser and CLOAK."""

    name = "csi5300-magnitude"
    folder = Csi5300.name


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
    # The tool's counts: real and imaginary parts in turn.
    counts = read_npz(place, ["iq"])["iq"]
    if counts.ndim != 2 or len(counts) != 2 * len(CHANNELS):
        raise Refusal(f"{place}: iq has shape {counts.shape}; 180 rows are needed")
    columns = ["user", "environment", "activity", "trial"]
    for row in read_index(source / "recordings.csv", columns, counts.shape[1], place):
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
