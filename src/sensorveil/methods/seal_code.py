"""Seal's code: the kept class, and where the movement ranks in the wearer's own past.

Class. People go on with an activity for seconds, and windows overlap. So a classifier's
probabilities are filtered over time (`filter_classes`).

Features. A window's movement has three: rhythm (log of the strongest frequency), energy (log of the
variance) and sharpness (log of the power at high frequencies).

Ranks. How fast and how hard somebody moves tells who they are, and so does how much that varies. So
a bin of a feature is a rank among the wearer's own earlier windows of the same class, and nothing
else. Where windows come in no particular order and no two are equal, the number of earlier ones
below is uniform and independent of all other ranks of that feature, however the values are
distributed (Rényi 1962): neither one bin nor a session of them tells anything about the wearer.
What remains is order (fatigue, warming up) and how the features go together. Equal values are
ordered at random: a rank in their middle would tell how many there are. No later window is needed,
so it works in a stream. After a short past ranks lie in the middle; how far they go from there
depends on the length of the past alone.

Donors. A training window stands for its ranks among all windows of its class: where the wearer is
at the upper end of their own past, the output is at the upper end of everybody's.

References
----------
Rényi, On Outstanding Values in a Sequence of Observations, 1962.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import torch

from sensorveil.data.signal_features import power_spectrum
from sensorveil.data.windows import Windows
from sensorveil.methods.seal_response import to_bins

FEATURES = ("rhythm", "energy", "sharpness")
"""What a code has bins of, in the order of `movement_features`."""
PERSON, NONE = "person", "none"  # to rank among earlier windows of; else of the recording
DONORS_PER_CODE = 10
"""Donors' windows that each code should have: a code of one donor would give that one away."""
EXTREME = 0.05
"""Share at either end of a class, by each feature, that is not learnt from."""
MAX_RUNNER_UP = 0.7
"""Largest runner-up ratio of a donor's window."""

_BATCH = 1024
_MIN_SAMPLES = 8  # shorter windows have no meaningful spectrum
_MAIN_LOBE = 2  # bins to either side over which a Hann taper spreads one frequency
_STILL = 1e-6  # energy in standard units below which a window counts as still
_TIE = 1e-9  # far below measurement, and far above the resolution of a float64
_SAME = 1e-5  # features that differ by less are equal: a float32 resolves about 1e-6
_SHARP_BANDS = (1 / 6, 0.3, 0.55, 1.0)  # edges of the bands of sharpness, in Nyquist frequencies
_QUANTILES = 101


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


# Features of the movement, and their ranks.


def movement_features(signal: torch.Tensor, sample_rate: float) -> torch.Tensor:
    """Logarithms of rhythm, energy and sharpness of real signals (n, channels, length): (n, 3).

    Rhythm is the strongest frequency of all channels together, between bins by a parabola through
    the logarithm of its power. Energy is the variance, added over channels. Sharpness is the mean
    logarithm of the power in three bands above a sixth of the Nyquist frequency.

    >>> time = torch.arange(128) / 50
    >>> waves = torch.stack([torch.sin(6.2832 * 2 * time), 3 * torch.sin(6.2832 * 4 * time)])
    >>> rhythm, energy, sharpness = movement_features(waves[:, None], 50.0).T.exp()
    >>> print(f"{rhythm[1] / rhythm[0]:.2f} {energy[1] / energy[0]:.2f}")
    2.00 9.09
    """
    length = signal.shape[-1]
    centred = signal - signal.mean(-1, keepdim=True)
    taper = torch.sin(torch.pi * torch.arange(length, device=signal.device) / length).square()
    power = torch.fft.rfft(centred * taper.to(signal.dtype))[..., 1:].abs().square()
    total = power.sum(1)
    # The strongest frequency, between the bins.
    peak = total.argmax(1)
    logs = total.clamp_min(1e-30).log()
    places = (peak[:, None] + torch.arange(-1, 2, device=peak.device)).clamp(0, logs.shape[1] - 1)
    left, middle, right = logs.gather(1, places).unbind(1)
    bend = left - 2 * middle + right
    inside = (peak > 0) & (peak < logs.shape[1] - 1) & (bend < 0)
    shift = torch.where(inside, (left - right) / torch.where(inside, 2 * bend, 1.0), 0.0)
    place = peak + 1 + shift.clamp(-0.5, 0.5)
    rhythm = (place * sample_rate / length).clamp_min(sample_rate / length).log()
    energy = centred.square().mean(-1).sum(1).clamp_min(_STILL).log()
    nyquist = torch.arange(1, logs.shape[1] + 1, device=peak.device) * 2 / length
    bands = [  # a product, not a selection: that would make a GPU wait
        (power * ((nyquist > low) & (nyquist <= high))).sum(-1)
        for low, high in pairwise(_SHARP_BANDS)
    ]
    sharpness = torch.stack(bands, -1).clamp_min(_STILL).log().mean((1, 2))
    return torch.stack([rhythm, energy, sharpness], 1)


def features_of(windows: Windows) -> np.ndarray:
    """The movement features of each window, (n, 3); (n, 0) of images and very short windows."""
    if not has_rhythm(windows):
        return np.zeros((len(windows), 0))
    parts = [
        movement_features(torch.from_numpy(one.astype(np.float64)), windows.sample_rate)
        for one in _magnitudes(windows)
    ]
    return torch.cat(parts).numpy()


def runner_up_ratio(windows: Windows) -> np.ndarray:
    """The largest power away from the strongest frequency, relative to its power: (n,)."""
    if not has_rhythm(windows):
        return np.zeros(len(windows))
    parts = []
    for signal in _magnitudes(windows):
        power = power_spectrum(signal).sum(1)
        distance = np.abs(np.arange(power.shape[1]) - power.argmax(1)[:, None])
        runner_up = np.where(distance > _MAIN_LOBE, power, 0).max(1)
        parts.append(runner_up / np.maximum(power.max(1), 1e-30))
    return np.concatenate(parts)


def random_tie_breaks(windows: Windows) -> np.ndarray:
    """A number in [0, 1) for each feature of each window, unpredictable and always the same.

    They are hashes of its recorded samples and its place, which only the wearer knows.
    """
    hashes, starts, size = bytearray(), iter(windows.start.tolist()), 8 * len(FEATURES)
    for batch in windows.recorded.batches(_BATCH):
        for window, start in zip(batch, starts, strict=False):
            salt = start.to_bytes(16, "little", signed=True)
            hashes += blake2b(window, digest_size=size, salt=salt).digest()
    return np.frombuffer(hashes, "<u8").reshape(-1, len(FEATURES)) / 2.0**64


class EarlierValues:
    """Earlier values of one feature, at most `memory` of them.

    >>> past = EarlierValues(memory=3)
    >>> [past.rank(value, pseudo=0.0) for value in (5.0, 7.0, 6.0, 6.0)]
    [0.5, 0.75, 0.5, 0.5]
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.ordered: list[float] = []
        self.arrived: deque[float] = deque()

    def rank(self, value: float, pseudo: float) -> float:
        """The rank of a value in (0, 1) among earlier ones, which it then joins.

        It ranks as if there were `pseudo` further values, half of them below it.
        """
        below, upto = bisect_left(self.ordered, value), bisect_right(self.ordered, value)
        rank = (below + (upto - below + 1 + pseudo) / 2) / (len(self.ordered) + 1 + pseudo)
        insort(self.ordered, value)
        self.arrived.append(value)
        if len(self.arrived) > self.memory:
            del self.ordered[bisect_left(self.ordered, self.arrived.popleft())]
        return rank


def rank_groups(windows: Windows, reference: str) -> np.ndarray:
    """The group among whose earlier windows each window ranks: its recording, or its person."""
    return windows.subject if reference == PERSON else windows.recording


@dataclass(frozen=True, eq=False)
class Movement:
    """Features of windows, and their predicted class.

    Parameters
    ----------
    values
        The features, (n, features). `of` moves equal ones apart, by less than is measured.
    ranks
        Where these lie among earlier windows, in (0, 1), (n, features); None for absolute bins.
    classes
        Predicted class of each window, (n,).
    """

    values: np.ndarray
    ranks: np.ndarray | None
    classes: np.ndarray

    @classmethod
    def of(cls, windows: Windows, classes: np.ndarray, reference: str, memory: int) -> Movement:
        """Ranks window after window in time, each among at most `memory` earlier ones."""
        values = features_of(windows)
        features = values.shape[1]
        values += _TIE * random_tie_breaks(windows)[:, :features]  # equal ones: in random order
        if reference == NONE:
            return cls(values, None, classes)
        ordered, ranks = values.tolist(), np.empty_like(values)
        group = rank_groups(windows, reference)
        # One pseudo value, or where windows overlap as many as share a window's samples: so a
        # dense stream reaches the extreme ranks no earlier than one without overlap.
        since = samples_since_previous(windows.recording, windows.start)
        pseudo = np.maximum(windows.length / np.maximum(since, 1), 1).tolist()
        keys = list(zip(group.tolist(), classes.tolist(), strict=True))
        pasts: defaultdict[tuple[int, int], list[EarlierValues]]
        pasts = defaultdict(lambda: [EarlierValues(memory) for _ in range(features)])
        for row in np.lexsort([windows.start, windows.recording, group]).tolist():
            each = zip(ordered[row], pasts[keys[row]], strict=True)
            ranks[row] = [past.rank(value, pseudo[row]) for value, past in each]
        return cls(values, ranks, classes)

    def select(self, chosen: np.ndarray) -> Movement:
        """The movement of some of the windows."""
        ranks = None if self.ranks is None else self.ranks[chosen]
        return Movement(self.values[chosen], ranks, self.classes[chosen])


# Codes.


class Encoder:
    """Numbers (class, bin of each feature); learns where a value ranks in its class.

    Parameters
    ----------
    bins
        Number of bins of each feature.

    Examples
    --------
    >>> values = np.arange(100.0)[:, None]
    >>> movement = Movement(values, None, np.zeros(100, int))
    >>> encoder = Encoder((5,)).fit(movement, num_classes=1)
    >>> encoder.encode(movement)[[0, 50, 99]].tolist()
    [0, 2, 4]
    """

    def __init__(self, bins: Sequence[int]) -> None:
        self.bins = tuple(bins)
        self._grids: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of classes, and of bins of each feature."""
        return (self.num_classes_, *self.bins)

    @property
    def count(self) -> int:
        """Number of codes."""
        return int(np.prod(self.shape))

    def fit(self, movement: Movement, num_classes: int) -> Encoder:
        """Learn the quantiles of each feature in each class of the donors."""
        self.num_classes_, self._grids = num_classes, {}
        shares = np.linspace(0, 1, _QUANTILES)
        self.quantiles_ = np.stack(
            [
                np.quantile(movement.values[movement.classes == one], shares, axis=0).T
                for one in range(num_classes)
            ]
        )  # (classes, features, quantiles)
        return self

    def class_ranks(self, values: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Where values (n, features) rank among all donors of their class, in [0, 1].

        A value that many donors have ranks in their middle.
        """
        low, high = (self._share_below(values + step, classes) for step in (-_SAME, _SAME))
        return (low + high) / 2

    def _share_below(self, values: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """The share of their class's donors below values, by lines between the quantiles."""
        grid = self._grid(values)[classes].contiguous()
        above = torch.searchsorted(grid, values[..., None].contiguous()).clamp(1, _QUANTILES - 1)
        low, high = grid.gather(-1, above - 1), grid.gather(-1, above)
        part = (values[..., None] - low) / (high - low).clamp_min(1e-12)
        return ((above - 1 + part.clamp(0, 1)) / (_QUANTILES - 1)).squeeze(-1)

    def _grid(self, like: torch.Tensor) -> torch.Tensor:
        """The quantiles of all classes, copied once to each device: a CUDA graph cannot copy."""
        where = (like.dtype, like.device)
        if where not in self._grids:
            self._grids[where] = torch.as_tensor(
                self.quantiles_, dtype=like.dtype, device=like.device
            )
        return self._grids[where]

    def donor_ranks(self, movement: Movement) -> np.ndarray:
        """Where donors' windows rank in their class, (n, features); equal ones in random order."""
        classes = torch.from_numpy(movement.classes.astype(np.int64))
        return self._share_below(torch.from_numpy(movement.values), classes).numpy()

    def encode(self, movement: Movement) -> np.ndarray:
        """The code of each window of a wearer, from its ranks."""
        ranks = self.donor_ranks(movement) if movement.ranks is None else movement.ranks
        return self.codes(movement.classes, to_bins(ranks, self.bins))

    def donor_codes(self, movement: Movement) -> np.ndarray:
        """The code that each donor's window stands for, from its rank in its class."""
        return self.codes(movement.classes, to_bins(self.donor_ranks(movement), self.bins))

    def codes(self, classes: np.ndarray, bins: np.ndarray) -> np.ndarray:
        """Codes of classes (n,) and bins (n, features)."""
        return np.ravel_multi_index((classes, *bins.T), self.shape)

    def parts(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Classes (n,) and bins (n, features) of codes."""
        classes, *bins = np.unravel_index(codes, self.shape)
        return classes, np.stack(bins, 1) if bins else np.zeros((len(codes), 0), int)

    def nearest(self, available: np.ndarray) -> np.ndarray:
        """For each code the nearest one in the mask `available`, of its class where possible."""
        classes, bins = self.parts(np.arange(self.count))
        places, found = bins / np.array(self.bins), np.empty(self.count, int)
        for one in range(self.num_classes_):  # all at once would be codes times codes
            own = classes == one
            among = np.flatnonzero(available & own if (available & own).any() else available)
            distance = np.abs(places[own][:, None] - places[among]).sum(2)
            found[own] = among[distance.argmin(1)]
        return found

    def state(self) -> dict[str, np.ndarray]:
        """The learnt arrays."""
        return {"quantiles": self.quantiles_, "bins": np.array(self.bins, int)}

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray]) -> Encoder:
        """The encoder that `state` was taken from."""
        encoder = cls(state["bins"].tolist())
        encoder.quantiles_ = state["quantiles"]
        encoder.num_classes_ = len(encoder.quantiles_)
        return encoder


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
    """The windows that are not extreme for their class, by any feature: a mask.

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


def feasible_bins(bins: Sequence[int], windows: int) -> tuple[int, ...]:
    """At most so many bins of each feature, and no more than a class of so many windows can fill.

    >>> feasible_bins((9, 5, 3), 13381), feasible_bins((9, 5, 3), 100), feasible_bins((9, 5), 5)
    ((9, 5, 3), (2, 2, 2), (1, 1))
    """
    found = list(bins)
    while found and np.prod(found) > max(1, windows // DONORS_PER_CODE):
        largest = max(found)
        found[len(found) - 1 - found[::-1].index(largest)] -= 1  # the last of the largest ones
    return tuple(found)


def has_rhythm(windows: Windows) -> bool:
    """Whether windows have features of movement: images and very short signals have none."""
    return len(windows.shape) == 2 and windows.length >= _MIN_SAMPLES


def _magnitudes(windows: Windows) -> Iterator[np.ndarray]:
    """Batches of real signals: the magnitudes of complex ones."""
    for batch in windows.scaled(windows.scaling).batches(_BATCH):  # complex ones stay complex
        yield np.abs(batch) if np.iscomplexobj(batch) else batch
