"""Seal's code: the kept class, and where rhythm and energy rank in the wearer's own past.

Class. People go on with an activity for seconds, and windows overlap. So a classifier's
probabilities are filtered over time (`filter_classes`).

Ranks. How fast and how hard somebody moves tells who they are, and so does how much that varies. So
a bin of rhythm (log of the strongest frequency) or energy (log of the variance) is a rank among the
wearer's own earlier windows of the same class, and nothing else. Where windows come in no
particular order and no two are equal, the number of earlier ones below is uniform and independent
of all other ranks, however the values are distributed (Rényi 1962): neither one bin nor a session
of them tells anything about the wearer. What remains is order (fatigue, warming up) and how rhythm
and energy go together. Equal values are ordered at random: a rank in their middle would tell how
many there are. No later window is needed, so it works in a stream. After a short past ranks lie in
the middle; how far they go from there depends on the length of the past alone.

Donors. A donor's window is emitted for its rank among all windows of its class: where the wearer is
at the upper end of their own past, the output is at the upper end of everybody's.

Randomised response. With an epsilon, each code is replaced by a random one so often that it is
locally differentially private.

References
----------
Rényi, On Outstanding Values in a Sequence of Observations, 1962.
Warner, Randomized Response, JASA 1965.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from sensorveil.data.signal_features import frequency_and_energy, power_spectrum
from sensorveil.data.windows import Windows

PERSON, NONE = "person", "none"  # to rank among earlier windows of; else of the recording
DONORS_PER_CODE = 10
"""Donors' windows that each code should have: a code of one donor would give that one away."""
EXTREME = 0.05
"""Share at either end of a class, by rhythm and by energy, that is not emitted."""
MAX_RUNNER_UP = 0.7
"""Largest runner-up ratio of a donor's window."""

_BATCH = 1024
_MIN_SAMPLES = 8  # shorter windows have no meaningful spectrum
_MAIN_LOBE = 2  # bins to either side over which a Hann taper spreads one frequency
_STILL = 1e-6  # energy in standard units below which a window counts as still
_TIE = 1e-9  # far below measurement, and far above the resolution of a float64


# The class, filtered over time.


def filter_classes(
    probabilities: np.ndarray,
    recording: np.ndarray,
    start: np.ndarray,
    length: int,
    dwell: float,
) -> np.ndarray:
    """The likeliest class of each window given its recording up to there.

    The forward recursion of a hidden Markov model: after a time t the class is the same with
    probability e^(-t / dwell), else any. A sample that several windows share counts once: the
    likelihood of a window is raised to the share of it that is new.

    `probabilities` are those from single windows, (n, classes). `dwell` is the mean time that
    people stay in a class, in samples like `start` and `length`; at 0 each window is classified by
    itself.

    >>> probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.05, 0.95], [0.05, 0.95]])
    >>> filter_classes(probabilities, np.zeros(4, int), np.arange(4) * 64, 128, 256).tolist()
    [0, 0, 1, 1]
    """
    if not dwell or len(probabilities) < 2:
        return probabilities.argmax(1)
    since = samples_since_previous(recording, start)
    stay = np.exp(-since / dwell)[:, None]
    belief = np.maximum(probabilities, 1e-12)  # a class is never ruled out for good
    new_likelihood = belief ** np.minimum(since / length, 1.0)[:, None]
    for before, here in pairwise(np.lexsort([start, recording]).tolist()):
        if recording[before] == recording[here]:
            predicted = stay[here] * belief[before] + (1 - stay[here]) / belief.shape[1]
            posterior = predicted * new_likelihood[here]
            belief[here] = posterior / posterior.sum()
    return belief.argmax(1)


def samples_since_previous(recording: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Samples since the previous window of the recording began; infinite for the first."""
    since = np.full(len(start), np.inf)
    order = np.lexsort([start, recording])
    same = recording[order[1:]] == recording[order[:-1]]
    since[order[1:]] = np.where(same, np.diff(start[order]), np.inf)
    return since


# Rhythm and energy, and their ranks.


def rhythm_and_energy(windows: Windows) -> np.ndarray:
    """Logarithms of the strongest frequency and of the energy of each window, (n, 2).

    Zeros for images and for windows too short for a spectrum.

    >>> time = np.arange(128) / 50
    >>> signal = np.stack([np.sin(2 * np.pi * 2 * time), 3 * np.sin(2 * np.pi * 4 * time)])
    >>> windows = Windows.from_signal(signal[:, None], sample_rate=50.0)
    >>> rhythm, energy = rhythm_and_energy(windows).T
    >>> print(f"{np.exp(np.diff(rhythm))[0]:.2f} {np.exp(np.diff(energy))[0]:.2f}")
    2.00 9.09
    """
    if not _has_rhythm(windows):
        return np.zeros((len(windows), 2))
    parts = [frequency_and_energy(one, windows.sample_rate) for one in _magnitudes(windows)]
    floor = np.array([windows.sample_rate / windows.length, _STILL])
    return np.log(np.maximum(np.concatenate(parts, axis=1).T, floor))


def runner_up_ratio(windows: Windows) -> np.ndarray:
    """The largest power away from the strongest frequency, relative to its power: (n,)."""
    if not _has_rhythm(windows):
        return np.zeros(len(windows))
    parts = []
    for signal in _magnitudes(windows):
        power = power_spectrum(signal).sum(1)
        distance = np.abs(np.arange(power.shape[1]) - power.argmax(1)[:, None])
        runner_up = np.where(distance > _MAIN_LOBE, power, 0).max(1)
        parts.append(runner_up / np.maximum(power.max(1), 1e-30))
    return np.concatenate(parts)


def random_tie_breaks(windows: Windows) -> np.ndarray:
    """Two numbers in [0, 1) for each window, (n, 2), unpredictable and always the same.

    They are hashes of its recorded samples and its place, which only the wearer knows.
    """
    hashes, starts = bytearray(), iter(windows.start.tolist())
    for batch in windows.recorded.batches(_BATCH):
        for window, start in zip(batch, starts, strict=False):
            salt = start.to_bytes(16, "little", signed=True)
            hashes += blake2b(window, digest_size=16, salt=salt).digest()
    return np.frombuffer(hashes, "<u8").reshape(-1, 2) / 2.0**64


def rank_among(value: float, past: deque[float], pseudo: float = 0.0) -> float:
    """The rank of a value in (0, 1) among earlier ones, which it then joins.

    It ranks as if there were `pseudo` further values, half of them below it.

    >>> past = deque(maxlen=3)
    >>> [rank_among(value, past) for value in (5.0, 7.0, 6.0, 6.0)]
    [0.5, 0.75, 0.5, 0.5]
    """
    below = sum(earlier < value for earlier in past) + (past.count(value) + 1 + pseudo) / 2
    rank = below / (len(past) + 1 + pseudo)
    past.append(value)
    return rank


def rank_groups(windows: Windows, reference: str) -> np.ndarray:
    """The group among whose earlier windows each window ranks: its recording, or its person."""
    return windows.subject if reference == PERSON else windows.recording


@dataclass(frozen=True, eq=False)
class Movement:
    """Rhythm and energy of windows, and their predicted class.

    Parameters
    ----------
    values
        Logarithms of rhythm and energy, (n, 2).
    ranks
        Where these lie among earlier windows, in (0, 1), (n, 2); None for absolute bins.
    classes
        Predicted class of each window, (n,).
    """

    values: np.ndarray
    ranks: np.ndarray | None
    classes: np.ndarray

    @classmethod
    def of(cls, windows: Windows, classes: np.ndarray, reference: str, memory: int) -> Movement:
        """Ranks window after window in time, each among at most `memory` earlier ones."""
        values = rhythm_and_energy(windows)
        if reference == NONE:
            return cls(values, None, classes)
        # Values that are equal are ordered at random; without rhythm or energy, all stay equal.
        ordered = (values + _TIE * random_tie_breaks(windows) if values.any() else values).tolist()
        group, ranks = rank_groups(windows, reference), np.empty_like(values)
        # One pseudo value, or where windows overlap as many as share a window's samples: so a
        # dense stream reaches the extreme ranks no earlier than one without overlap.
        since = samples_since_previous(windows.recording, windows.start)
        pseudo = np.maximum(windows.length / np.maximum(since, 1), 1).tolist()
        keys = list(zip(group.tolist(), classes.tolist(), strict=True))
        pasts: defaultdict[tuple[int, int], tuple[deque[float], deque[float]]]
        pasts = defaultdict(lambda: (deque(maxlen=memory), deque(maxlen=memory)))
        for row in np.lexsort([windows.start, windows.recording, group]).tolist():
            both = zip(ordered[row], pasts[keys[row]], strict=True)
            ranks[row] = [rank_among(value, past, pseudo[row]) for value, past in both]
        return cls(values, ranks, classes)

    def select(self, chosen: np.ndarray) -> Movement:
        """The movement of some of the windows."""
        ranks = None if self.ranks is None else self.ranks[chosen]
        return Movement(self.values[chosen], ranks, self.classes[chosen])


# Codes.


class Encoder:
    """Numbers (class, bin of rhythm, bin of energy); learns the cuts between donors' bins."""

    def __init__(self, rhythm_bins: int, energy_bins: int) -> None:
        self.rhythm_bins, self.energy_bins = rhythm_bins, energy_bins

    @property
    def count(self) -> int:
        """Number of codes."""
        return self.num_classes_ * self.rhythm_bins * self.energy_bins

    def fit(self, movement: Movement, num_classes: int) -> Encoder:
        """Learns cuts that part each class into equal shares by rhythm, and each part by energy.

        So each code has its share of donors, and the output is spread as donors are.
        """
        self.num_classes_ = num_classes
        self.rhythm_cuts_ = np.empty((num_classes, self.rhythm_bins - 1))
        self.energy_cuts_ = np.empty((num_classes, self.rhythm_bins, self.energy_bins - 1))
        shares, energy_shares = (
            np.arange(1, bins) / bins for bins in (self.rhythm_bins, self.energy_bins)
        )
        for one in range(num_classes):
            rhythm, energy = movement.values[movement.classes == one].T
            self.rhythm_cuts_[one] = np.quantile(rhythm, shares)
            rhythm_bin = (rhythm[:, None] > self.rhythm_cuts_[one]).sum(1)
            for part in range(self.rhythm_bins):
                own = energy[rhythm_bin == part]
                values = own if len(own) else energy
                self.energy_cuts_[one, part] = np.quantile(values, energy_shares)
        return self

    def encode(self, movement: Movement) -> np.ndarray:
        """The code of each window of a wearer, from ranks."""
        if movement.ranks is None:
            return self.donor_codes(movement)
        numbers = np.array([self.rhythm_bins, self.energy_bins])
        rhythm, energy = np.minimum((movement.ranks * numbers).astype(int), numbers - 1).T
        return self._code(movement.classes, rhythm, energy)

    def donor_codes(self, movement: Movement) -> np.ndarray:
        """The code for which each donor's window may be emitted, from its rank in its class."""
        rhythm_cuts = self.rhythm_cuts_[movement.classes]
        rhythm = (movement.values[:, 0, None] > rhythm_cuts).sum(1)
        cuts = self.energy_cuts_[movement.classes, rhythm]
        return self._code(movement.classes, rhythm, (movement.values[:, 1, None] > cuts).sum(1))

    def nearest(self, available: np.ndarray) -> np.ndarray:
        """For each code the nearest one in the mask `available`, of its class where possible."""
        shape = (self.num_classes_, self.rhythm_bins, self.energy_bins)
        one, rhythm, energy = np.indices(shape).reshape(3, -1)
        places = np.stack([rhythm / self.rhythm_bins, energy / self.energy_bins], axis=1)
        distance = np.abs(places[:, None] - places[None]).sum(2)
        distance[one[:, None] != one[None]] += 2  # farther than any bin of the class
        distance[:, ~available] = np.inf
        return distance.argmin(1)

    def state(self) -> dict[str, np.ndarray]:
        """The learnt arrays."""
        return {"rhythm_cuts": self.rhythm_cuts_, "energy_cuts": self.energy_cuts_}

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray]) -> Encoder:
        """The encoder that `state` was taken from."""
        rhythm, energy = state["rhythm_cuts"], state["energy_cuts"]
        encoder = cls(rhythm.shape[-1] + 1, energy.shape[-1] + 1)
        encoder.num_classes_ = len(rhythm)
        encoder.rhythm_cuts_, encoder.energy_cuts_ = rhythm, energy
        return encoder

    def _code(self, classes: np.ndarray, rhythm: np.ndarray, energy: np.ndarray) -> np.ndarray:
        return (classes * self.rhythm_bins + rhythm) * self.energy_bins + energy


def donor_mask(windows: Windows, movement: Movement) -> np.ndarray:
    """The windows that may be donors' by their movement: a clear rhythm, and not extreme."""
    mask = clear_rhythm(windows, movement.classes)
    mask[mask] = typical(movement.select(mask))
    return mask


def clear_rhythm(windows: Windows, classes: np.ndarray) -> np.ndarray:
    """The windows whose strongest frequency is the same in other units: a mask.

    Channels count by their power, which depends on units. Where two frequencies are about as
    strong, an application that standardises otherwise finds the other one, mostly an octave away.
    Below `MAX_RUNNER_UP` the strongest stays the strongest unless one channel's power gains
    1 / MAX_RUNNER_UP on another's. At most half of a class is left out: some have no rhythm.
    """
    ratio, mask = runner_up_ratio(windows), np.zeros(len(windows), bool)
    for one in np.unique(classes):
        in_class = classes == one
        mask[in_class] = ratio[in_class] <= max(MAX_RUNNER_UP, np.median(ratio[in_class]))
    return mask


def typical(movement: Movement) -> np.ndarray:
    """The windows that are not extreme for their class, in rhythm or energy: a mask.

    Extreme ones (mostly harmonics) would be emitted for everybody at the end of their own past.

    >>> values = np.stack([np.arange(40.0), np.zeros(40)], axis=1)
    >>> typical(Movement(values, None, np.zeros(40, int))).nonzero()[0][[0, -1]].tolist()
    [2, 37]
    """
    mask = np.ones(len(movement.classes), bool)
    for one in np.unique(movement.classes):
        in_class = movement.classes == one
        ordered = np.sort(movement.values[in_class], axis=0)
        low, high = ordered[[int(EXTREME * len(ordered)), -1 - int(EXTREME * len(ordered))]]
        within = (movement.values >= low) & (movement.values <= high)
        mask[in_class] = within[in_class].all(1)
    return mask


def feasible_bins(rhythm_bins: int, energy_bins: int, windows: int) -> tuple[int, int]:
    """At most so many bins, and no more than a class of so many windows can fill.

    >>> feasible_bins(9, 5, 13381), feasible_bins(9, 5, 100), feasible_bins(9, 5, 5)
    ((9, 5), (3, 3), (1, 1))
    """
    while rhythm_bins * energy_bins > max(1, windows // DONORS_PER_CODE):
        if rhythm_bins > energy_bins:
            rhythm_bins -= 1
        else:
            energy_bins -= 1
    return rhythm_bins, energy_bins


def _has_rhythm(windows: Windows) -> bool:
    return len(windows.shape) == 2 and windows.length >= _MIN_SAMPLES


def _magnitudes(windows: Windows) -> Iterator[np.ndarray]:
    """Batches of real signals: the magnitudes of complex ones."""
    for batch in windows.scaled(windows.scaling).batches(_BATCH):  # complex ones stay complex
        yield np.abs(batch) if np.iscomplexobj(batch) else batch


# Randomised response (Warner 1965).


def randomize_codes(
    codes: np.ndarray, count: int, epsilon: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Each code with probability e^epsilon / (e^epsilon + count - 1), else any other one.

    No released code is more than e^epsilon times as likely for one true code as for another, so
    it is epsilon-locally differentially private. At epsilon 0 it is independent of the true code.
    """
    honest = rng.random(len(codes)) < 1 / (1 + (count - 1) * np.exp(-epsilon))
    # Any other code: 1 to count - 1 further round, all alike.
    shift = rng.integers(1, max(count, 2), size=len(codes))
    return np.where(honest, codes, (codes + shift) % count)


def epsilon_within_budget(
    epsilon: np.ndarray, budget: np.ndarray, group: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """The epsilon of each window, and 0 from where its group's budget would be exceeded.

    Epsilons add up (basic composition): the windows of a group together are as private as the sum
    says, however they depend on each other. A group that has stopped stays stopped.

    >>> group, start = np.zeros(4, int), np.arange(4)
    >>> epsilon_within_budget(np.full(4, 0.5), np.full(4, 1.2), group, start)
    array([0.5, 0.5, 0. , 0. ])
    """
    allowed = np.zeros(len(epsilon))
    spent: defaultdict[int, float] = defaultdict(float)
    for row in np.lexsort([start, group]).tolist():
        spent[group[row]] += epsilon[row]
        if spent[group[row]] <= budget[row] * (1 + 1e-12):
            allowed[row] = epsilon[row]
        else:
            spent[group[row]] = np.inf
    return allowed


def private_accuracy(guess: float, epsilon: float) -> float:
    """The largest accuracy against an epsilon-locally private output, exactly.

    Odds change by at most exp(epsilon), so the likeliest class has at most the share
    guess e^epsilon / (guess e^epsilon + 1 - guess). It holds for any attribute and any number of
    windows, of which epsilon is the sum.

    >>> round(private_accuracy(0.5, math.log(3)), 9), private_accuracy(0.25, 0.0)
    (0.75, 0.25)
    """
    return guess / (guess + (1 - guess) * math.exp(-epsilon))
