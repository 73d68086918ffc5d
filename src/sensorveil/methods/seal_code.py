"""Seal's code: what is kept, and where the wearer's movement ranks in their own recent past.

A code is the class that was read, a level of rhythm and a level of intensity. Rhythm is the
logarithm of the strongest frequency, intensity that of the energy, both of the window in standard
units. How fast and how hard somebody moves tells who they are, and so does how much that varies.
So a level is a rank among the wearer's own earlier windows of the same class, and nothing else:
where windows come in no particular order and no two are equal, how many earlier ones lie below is
uniform, and independent of all other ranks, however the values are distributed (Rényi 1962). Then
neither one level nor a whole session of them tells anything about the wearer; what is left is
order, whether somebody tires, warms up, hurries, and how rhythm and intensity go together. Values
that are equal are put in an order by lot: a rank in their middle would tell how many there are.
Nothing of later windows is needed, so it works in a stream. A short past says little, so ranks
begin in the middle; how far they go from there depends on how long the past is, and on nothing
else.

Donors' windows are given out by their rank among all windows of their class: where the wearer is at
the upper end of their own past, the output is at the upper end of everybody's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from sensorveil.data.signal_features import frequency_and_energy, power_spectrum
from sensorveil.data.windows import Windows
from sensorveil.methods.seal_reading import elapsed

RECORDING, PERSON, NONE = "recording", "person", "none"
PASTS = (RECORDING, PERSON, NONE)
"""Whose earlier windows are the past: the recording's, the person's, or nobody's."""

DONORS = 10
"""Donors' windows that a code should have."""

EXTREME = 0.05
"""The part of a class at either end, by rhythm and by intensity, that is not given out.

On validation people of MotionSense (folds 0 to 3) the correlation of the frequency is 0.62 if all
distinct windows (see `RIVAL`) are given out, and 0.68 without these ends.
"""

RIVAL = 0.7
"""The most power that a donor's window has elsewhere, as a part of that of its strongest frequency.

On validation people of MotionSense (folds 0 to 3) the correlation of the frequency, found in the
units of those people, is 0.60 if there is no such limit, 0.66 with 0.9 and 0.68 with any of 0.8,
0.7, 0.6 and 0.5; windows at the ends (see `EXTREME`) are left out in all of these.
"""

_BATCH = 1024
_SHORTEST = 8  # samples of a window below which it has no spectrum worth a word
_LOBE = 2  # bins to either side over which a Hann taper spreads one frequency
_STILL = 1e-6  # energy in standard units below which a window counts as still
_TIE = 1e-9  # far below what can be measured, and far above what a float64 can tell apart


def measured(windows: Windows) -> np.ndarray:
    """Rhythm and intensity of each window, (n, 2); of images, nothing is said (0).

    >>> time = np.arange(128) / 50
    >>> signal = np.stack([np.sin(2 * np.pi * 2 * time), 3 * np.sin(2 * np.pi * 4 * time)])
    >>> rhythm, intensity = measured(Windows.from_signal(signal[:, None], sample_rate=50.0)).T
    >>> print(f"{np.exp(np.diff(rhythm))[0]:.2f} {np.exp(np.diff(intensity))[0]:.2f}")
    2.00 9.09
    """
    if not _has_rhythm(windows):
        return np.zeros((len(windows), 2))
    parts = [
        frequency_and_energy(np.abs(batch) if windows.is_complex else batch, windows.sample_rate)
        for batch in windows.batches(_BATCH)
    ]
    least = np.array([windows.sample_rate / windows.length, _STILL])
    return np.log(np.maximum(np.concatenate(parts, axis=1).T, least))


def rivals(windows: Windows) -> np.ndarray:
    """The most power of each window elsewhere, as a part of that of its strongest frequency.

    >>> time = np.arange(128) / 50
    >>> two = np.sin(2 * np.pi * 3.125 * time) + 0.5 * np.sin(2 * np.pi * 6.25 * time)
    >>> round(float(rivals(Windows.from_signal(two[None, None], sample_rate=50.0))[0]), 3)
    0.25
    """
    if not _has_rhythm(windows):
        return np.zeros(len(windows))
    parts = []
    for batch in windows.batches(_BATCH):
        power = power_spectrum(np.abs(batch) if windows.is_complex else batch).sum(1)
        away = np.abs(np.arange(power.shape[1]) - power.argmax(1)[:, None])
        elsewhere = np.where(away > _LOBE, power, 0).max(1)
        parts.append(elsewhere / np.maximum(power.max(1), 1e-30))
    return np.concatenate(parts)


def lots(windows: Windows) -> np.ndarray:
    """Two numbers from 0 to 1 for each window, (n, 2), as good as drawn, and always the same.

    They are hashes of its samples and its place, which nobody knows who does not know the window.

    >>> still = Windows.from_signal(np.zeros((2, 1, 8)))
    >>> still.start[1] = 8
    >>> len(np.unique(lots(still)))
    4
    """
    hashes, starts = bytearray(), iter(windows.start.tolist())
    for batch in windows.scaled(None).batches(_BATCH):
        for window, start in zip(batch, starts, strict=False):
            place = start.to_bytes(16, "little", signed=True)
            hashes += blake2b(window, digest_size=16, salt=place).digest()
    return np.frombuffer(hashes, "<u8").reshape(-1, 2) / 2.0**64


class Past:
    """Earlier values of one kind, so many at most, and where a new one ranks among them.

    >>> past = Past(memory=3)
    >>> [past.rank(value) for value in (5.0, 7.0, 6.0, 6.0)]
    [0.5, 0.75, 0.5, 0.5]
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._sorted: list[float] = []
        self._order: deque[float] = deque()

    def rank(self, value: float, middling: float = 0.0) -> float:
        """The middle of its place among the earlier ones, from 0 to 1; then it joins them.

        It is ranked as if there were so many `middling` ones more, half of them below it.
        """
        below = bisect_left(self._sorted, value)
        same = bisect_right(self._sorted, value) - below
        place = (below + (same + 1 + middling) / 2) / (len(self._sorted) + 1 + middling)
        insort(self._sorted, value)
        self._order.append(value)
        if len(self._order) > self._memory:
            del self._sorted[bisect_left(self._sorted, self._order.popleft())]
        return place


def whose(windows: Windows, past: str) -> np.ndarray:
    """Whose each window is: the number of its recording, or of its person."""
    return windows.subject if past == PERSON else windows.recording


@dataclass(frozen=True, eq=False)
class Movement:
    """What windows do, (n, 2) each, and the class that was read in each of them.

    `values` are rhythm and intensity as they are, `ranks` where they lie in the past, from 0 to
    1; None where no past is looked at.
    """

    values: np.ndarray
    ranks: np.ndarray | None
    read: np.ndarray

    @classmethod
    def of(cls, windows: Windows, read: np.ndarray, past: str, memory: int) -> Movement:
        """Window after window in time, each among earlier ones of its class."""
        values = measured(windows)
        if past == NONE:
            return cls(values, None, read)
        # What measures alike is put in an order by lot; where nothing is measured, in none.
        ordered = (values + _TIE * lots(windows) if values.any() else values).tolist()
        owner, ranks = whose(windows, past), np.empty_like(values)
        # One window more that lies in the middle: as many as hold its samples where they overlap.
        since = elapsed(windows.recording, windows.start).tolist()
        middling = [max(windows.length / max(samples, 1), 1) for samples in since]
        keys = list(zip(owner.tolist(), read.tolist(), strict=True))
        pasts: defaultdict[tuple[int, int], tuple[Past, Past]]
        pasts = defaultdict(lambda: (Past(memory), Past(memory)))
        for place in np.lexsort([windows.start, windows.recording, owner]).tolist():
            both = zip(pasts[keys[place]], ordered[place], strict=True)
            ranks[place] = [earlier.rank(value, middling[place]) for earlier, value in both]
        return cls(values, ranks, read)

    def select(self, chosen: np.ndarray) -> Movement:
        """That of some of the windows."""
        ranks = None if self.ranks is None else self.ranks[chosen]
        return Movement(self.values[chosen], ranks, self.read[chosen])


class Encoder:
    """Turns movement into codes of so many levels; it learns where donors' levels part."""

    def __init__(self, rhythm: int, intensity: int) -> None:
        self.rhythm, self.intensity = rhythm, intensity

    @property
    def count(self) -> int:
        """How many codes there are."""
        return self.classes_ * self.rhythm * self.intensity

    def fit(self, movement: Movement, classes: int) -> Encoder:
        """Learns from windows of known class: levels part each class into equal shares.

        Rhythm parts the class, and intensity each level of rhythm. So each code has its share
        of donors, and what is given out is spread as donors are; fast and faint at once is rare.
        """
        self.classes_ = classes
        rhythm, intensity = movement.values.T
        self.cuts_ = (
            _cuts(rhythm, movement.read, classes, self.rhythm),
            np.empty((classes, self.rhythm, self.intensity - 1)),
        )
        level = self._rhythm_level(movement)
        for one in range(classes):
            usual = movement.read == one
            for part in range(self.rhythm):
                own = usual & (level == part)
                values = intensity[own if own.any() else usual]
                self.cuts_[1][one, part] = np.quantile(values, _parts(self.intensity))
        return self

    def encode(self, movement: Movement) -> np.ndarray:
        """The code of each window."""
        if movement.ranks is None:
            return self.donated(movement)
        numbers = np.array([self.rhythm, self.intensity])
        levels = np.minimum((movement.ranks * numbers).astype(int), numbers - 1)
        return self._numbered(movement.read, levels)

    def donated(self, movement: Movement) -> np.ndarray:
        """The code for which each window may be given out, if it is a donor's."""
        rhythm = self._rhythm_level(movement)
        cuts = self.cuts_[1][movement.read, rhythm]
        intensity = (movement.values[:, 1, None] > cuts).sum(1)
        return self._numbered(movement.read, np.stack([rhythm, intensity], axis=1))

    def nearest(self, there: np.ndarray) -> np.ndarray:
        """For each code the nearest that is `there` (a mask), of its class where it can be."""
        group, *levels = np.indices((self.classes_, self.rhythm, self.intensity)).reshape(3, -1)
        places = np.stack(levels, axis=1) / np.array([self.rhythm, self.intensity])
        apart = np.abs(places[:, None] - places[None]).sum(2)
        apart[group[:, None] != group[None]] += 2  # farther than any level
        apart[:, ~there] = np.inf
        return apart.argmin(1)

    def state(self) -> dict[str, np.ndarray]:
        """All that was learnt, as arrays."""
        return {"rhythm": self.cuts_[0], "intensity": self.cuts_[1]}

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray]) -> Encoder:
        """The encoder that `state` was taken from."""
        cuts = (state["rhythm"], state["intensity"])
        encoder = cls(*(table.shape[-1] + 1 for table in cuts))
        encoder.classes_, encoder.cuts_ = len(cuts[0]), cuts
        return encoder

    def _rhythm_level(self, movement: Movement) -> np.ndarray:
        return (movement.values[:, 0, None] > self.cuts_[0][movement.read]).sum(1)

    def _numbered(self, read: np.ndarray, levels: np.ndarray) -> np.ndarray:
        return (read * self.rhythm + levels[:, 0]) * self.intensity + levels[:, 1]


def distinct(windows: Windows, read: np.ndarray) -> np.ndarray:
    """Which windows have the strongest frequency that they have in other units as well: a mask.

    Channels count by their power, which is a matter of units. Where two frequencies are about as
    strong, somebody who standardises otherwise finds the other one, an octave away mostly, and a
    few such windows hide what the wearer does. With less than `RIVAL` elsewhere the strongest stays
    the strongest unless one channel's power gains 1 / `RIVAL` on another's. No more than half of a
    class is left out: some have no rhythm at all.
    """
    elsewhere, chosen = rivals(windows), np.zeros(len(windows), bool)
    for one in np.unique(read):
        mine = read == one
        chosen[mine] = elsewhere[mine] <= max(RIVAL, np.median(elsewhere[mine]))
    return chosen


def offered(windows: Windows, movement: Movement) -> np.ndarray:
    """Which windows may be donors' by their movement: distinct, and usual among those."""
    chosen = distinct(windows, movement.read)
    chosen[chosen] = usual(movement.select(chosen))
    return chosen


def usual(movement: Movement) -> np.ndarray:
    """Which windows are not extreme for their class: a mask.

    A few windows have a rhythm far from all others, a harmonic mostly. In the level at the end they
    would be given out to whoever is at the end of their own past, and that hides what they do.

    >>> values = np.stack([np.arange(40.0), np.zeros(40)], axis=1)
    >>> usual(Movement(values, None, np.zeros(40, int))).nonzero()[0][[0, -1]].tolist()
    [2, 37]
    """
    chosen = np.ones(len(movement.read), bool)
    for one in np.unique(movement.read):
        mine = movement.read == one
        ordered = np.sort(movement.values[mine], axis=0)
        cut = int(EXTREME * len(ordered))
        low, high = ordered[cut], ordered[-1 - cut]
        chosen[mine] = ((movement.values[mine] >= low) & (movement.values[mine] <= high)).all(1)
    return chosen


def afforded(rhythm: int, intensity: int, windows: int) -> tuple[int, int]:
    """At most so many levels of each, and no more than a class of so many windows can fill.

    A code of one donor would give that one away, whatever makes windows of it.

    >>> afforded(9, 5, 13381), afforded(9, 5, 100), afforded(9, 5, 25), afforded(9, 5, 5)
    ((9, 5), (3, 3), (2, 1), (1, 1))
    """
    while rhythm * intensity > max(1, windows // DONORS):
        if rhythm > intensity:
            rhythm -= 1
        else:
            intensity -= 1
    return rhythm, intensity


def _has_rhythm(windows: Windows) -> bool:
    return len(windows.shape) == 2 and windows.length >= _SHORTEST


def _cuts(values: np.ndarray, labels: np.ndarray, classes: int, number: int) -> np.ndarray:
    """For each class the values that part it into so many equal shares: (classes, number - 1)."""
    return np.stack([np.quantile(values[labels == c], _parts(number)) for c in range(classes)])


def _parts(number: int) -> np.ndarray:
    """Where to cut so that so many equal parts are left.

    >>> _parts(4).tolist(), _parts(1).tolist()
    ([0.25, 0.5, 0.75], [])
    """
    return np.arange(1, number) / number
