"""Widar3.0: hand gestures as six Wi-Fi receivers heard them, in three rooms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.data.dataset import Dataset
from sensorveil.data.intel5300 import CHANNELS, channels_first, read_log, unit_power
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.errors import Refusal

_RATE = 250.0
_LONGEST = 60.0
_NAME = re.compile(
    r"user(?P<user>\d+)-(?P<gesture>\d+)-(?P<location>\d+)-(?P<orientation>\d+)"
    r"-(?P<repetition>\d+)-r(?P<receiver>\d+)",
    re.IGNORECASE,
)
_DATE = re.compile(r"2018\d{4}")

# What a gesture's number means depends on the day, on two days on the person as well: the table
# "gesture list" in the dataset's README. It was taken from three independent transcriptions in
# public code; they agree but for 20181211, where one of them has 4 to 6 as o, zigzag, n. A pair
# (day, person) goes before the day. (h) is drawn in the horizontal plane, (v) in the vertical.
_FIRST = ("push&pull", "sweep", "clap", "slide")
_DRAWN = ("draw-o(h)", "draw-zigzag(h)", "draw-n(h)", "draw-triangle(h)", "draw-rectangle(h)")
_UPRIGHT = ("draw-o(v)", "draw-zigzag(v)", "draw-n(v)")
_DIGITS = tuple(f"draw-{digit % 10}" for digit in range(1, 11))
_GESTURES: dict[str | tuple[str, int], tuple[str, ...]] = {
    "20181109": (*_FIRST, *_UPRIGHT[1:]),
    "20181112": _DIGITS,
    "20181115": (*_FIRST[:3], *_UPRIGHT),
    "20181116": _DIGITS,
    "20181117": (*_FIRST[:3], *_UPRIGHT),
    "20181118": (*_FIRST[:3], *_UPRIGHT),
    "20181121": ("slide", *_DRAWN),
    "20181127": ("slide", *_DRAWN),
    "20181128": (*_FIRST[:3], *_DRAWN[:3]),
    "20181130": (*_FIRST, *_DRAWN),
    "20181204": (*_FIRST, *_DRAWN),
    ("20181205", 2): _DRAWN,
    ("20181205", 3): ("slide", *_DRAWN),
    "20181208": _FIRST,
    ("20181209", 2): _FIRST[:1],
    ("20181209", 6): (*_FIRST, *_DRAWN[:2]),
    "20181211": (*_FIRST, *_DRAWN[:2]),
}
_CLASSROOM = ("20181109", "20181112", "20181115", "20181116", "20181121", "20181130")
_HALL = ("20181117", "20181118", "20181127", "20181128", "20181204", "20181205", "20181208")
_ROOMS = {
    **dict.fromkeys(_CLASSROOM, "classroom"),
    **dict.fromkeys((*_HALL, "20181209"), "hall"),
    "20181211": "office",
}


class Widar(Dataset):
    """Zheng and others, the logs of single receivers."""

    name = "widar"

    def read(self, source: Path) -> Recordings:
        """Reads all logs; those that cannot be read are named together, since a few are broken."""
        items, broken = [], []
        for path in sorted(source.rglob("*.dat")):
            try:
                items.append(_recording(path))
            except Refusal as refusal:
                broken.append(str(refusal))
        if broken:
            more = f" (and {len(broken) - 5} more)" if len(broken) > 5 else ""
            raise Refusal(f"{'; '.join(broken[:5])}{more}")
        return Recordings(tuple(items), CHANNELS, sample_rate=_RATE)


def gesture_name(date: str, user: int, number: int) -> str:
    """The gesture that a number means on a day, or the number where the day is not in the table.

    Examples
    --------
    >>> gesture_name("20181109", 1, 4), gesture_name("20181115", 1, 4)
    ('slide', 'draw-o(v)')
    >>> gesture_name("20181205", 3, 1), gesture_name("20200101", 3, 1)
    ('slide', '20200101-1')
    """
    names = _GESTURES.get((date, user)) or _GESTURES.get(date, ())
    if names is _DIGITS and number == 0:  # some copies of the table call the digit 0 number 0
        number = 10
    return names[number - 1] if 1 <= number <= len(names) else f"{date}-{number}"


def _recording(path: Path) -> Recording:
    found = _NAME.fullmatch(path.stem)
    date = next((m[0] for p in path.parents if (m := _DATE.search(p.name))), None)
    if found is None or date is None:
        raise Refusal(
            f"{path} does not fit '20181130/user5/user5-1-1-1-1-r1.dat'; keep the authors' folders"
            " and names"
        )
    numbers = {name: int(text) for name, text in found.groupdict().items()}
    user = numbers.pop("user")
    log = read_log(path)
    labels: dict[str, Any] = {
        **numbers,
        "gesture": gesture_name(date, user, numbers["gesture"]),
        "date": date,
        "performance": f"{date}/{path.stem.rpartition('-')[0]}",  # what all receivers heard
        "environment": _ROOMS.get(date),
    }
    signal = channels_first(log, str(path))[:, _nearest(log.seconds, str(path))]
    return Recording(f"{date}/{path.stem}", f"{user:02d}", unit_power(signal), labels)


def _nearest(seconds: np.ndarray, name: str) -> np.ndarray:
    """For each even time, the packet that is nearest: lost packets leave no hole."""
    seconds = np.maximum.accumulate(seconds)
    if seconds[-1] > _LONGEST:
        raise Refusal(f"{name}: its times span {seconds[-1]:.0f} s, no gesture is so long")
    even = np.arange(0.0, seconds[-1] + 0.5 / _RATE, 1 / _RATE)
    return np.searchsorted((seconds[1:] + seconds[:-1]) / 2, even)
