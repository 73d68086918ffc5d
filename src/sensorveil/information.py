"""Mutual information between windows and a label, by the two estimators of the papers.

MINE: Belghazi and others, Mutual Information Neural Estimation (2018); its values are in nats.
Nearest neighbours: Ross, Mutual Information between Discrete and Continuous Data Sets (2014).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from sensorveil.cuda_graphs import Step, capture_step
from sensorveil.data.windows import UNKNOWN, to_real
from sensorveil.errors import Refusal
from sensorveil.train import seeded

_CHUNK = 4_000_000  # distances held at once
_SKETCH = 4096  # features above which windows are sketched before their components are taken


def entropy(labels: np.ndarray) -> float:
    """What there is to know of a label, in bits; windows of unknown class do not count.

    >>> entropy(np.array([0, 1, 2, 3])), entropy(np.array([5, 5, UNKNOWN]))
    (2.0, 0.0)
    """
    _, counts = np.unique(labels[labels != UNKNOWN], return_counts=True)
    share = counts / counts.sum()
    return float(abs(-(share * np.log2(share)).sum()))  # abs: minus zero reads badly


def window_features(signal: np.ndarray, components: int = 32) -> np.ndarray:
    """Windows (n, channels, ...) as rows: components of their samples, and of their spectra.

    A spectrum follows from the samples, so no information is made up; but a small network or a
    few neighbours find a rhythm in it far sooner, whatever its phase. Images have no spectrum.
    Complex channels count as real part, imaginary part and magnitude.

    >>> window_features(np.random.default_rng(0).normal(size=(50, 3, 20)) * 100, 8).shape
    (50, 16)
    """
    if np.iscomplexobj(signal):
        signal = np.concatenate([to_real(signal), np.abs(signal)], axis=1)
    blocks = [signal] if signal.ndim > 3 else [signal, _log_spectrum(signal)]
    return np.concatenate([_components(block, components) for block in blocks], axis=1)


def principal_components(features: np.ndarray, components: int) -> np.ndarray:
    """The directions in which rows differ most: (n, components or fewer), centred, widest first.

    >>> rows = np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 5.0, 0.1]
    >>> parts = principal_components(rows, 2)
    >>> parts.shape, bool(abs(np.corrcoef(parts[:, 0], rows[:, 1])[0, 1]) > 0.99)
    ((200, 2), True)
    """
    # Torch, not numpy: its threads are those that the program allows.
    centred = torch.from_numpy((features - features.mean(0)).astype(np.float64))
    if len(centred) < centred.shape[1]:  # the smaller of the two square tables has all there is
        values, vectors = torch.linalg.eigh(centred @ centred.T)
        parts = vectors * values.clamp(min=0).sqrt()
    else:
        _, vectors = torch.linalg.eigh(centred.T @ centred)
        parts = centred @ vectors
    return np.ascontiguousarray(parts.numpy()[:, ::-1][:, :components])


def mutual_information_knn(
    features: np.ndarray,
    labels: np.ndarray,
    components: int = 16,
    neighbours: int = 3,
    places: np.ndarray | None = None,
    reach: float = 1,
) -> float:
    """Ross's (2014) nearest-neighbour estimate on the first principal components, in bits.

    As in Blinder's section 7: few components, then how many of a window's neighbours have its
    class. The truth is at least zero and at most the label's entropy; an estimate can fall a
    little outside, and is reported as it is. What lies outside the components is not seen.

    Windows that overlap are near copies and always have the same class, so they do not count as
    neighbours: those whose `places` (the sample that each begins at, say) differ by less than
    `reach`. Neighbours that overlap among themselves still come in clumps, which makes the value
    lean low: thin out windows that overlap much. A window with no neighbour of its class is left
    out. Equal distances, which copied windows have, are all counted, as Gao and others (2017) do.
    """
    known = labels != UNKNOWN
    points = principal_components(features[known], components).astype(np.float32)
    classes = labels[known]
    place = np.arange(len(points)) if places is None else places[known]
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, len(points) + 1))])
    rows = max(1, _CHUNK // max(1, len(points)))
    terms: list[np.ndarray] = []
    for first in range(0, len(points), rows):
        here = slice(first, first + rows)
        distance = _distances(points[here], points)
        distance[np.abs(place[here, None] - place) < reach] = np.inf
        counts = _neighbourhood(distance, classes[here, None] == classes, neighbours)
        near_class, near, other_class, other = counts
        # Digamma of whole numbers is a harmonic number less a constant, and the constants cancel.
        terms.append(
            (harmonic[other] - harmonic[other_class] + harmonic[near_class - 1])
            - harmonic[near - 1]
        )
    values = np.concatenate(terms) if terms else np.zeros(0)
    return float(values.mean() / math.log(2)) if len(values) else 0.0


def mutual_information_mine(
    features: np.ndarray,
    labels: np.ndarray,
    seed: int = 0,
    *,
    components: int = 64,
    limit: int = 8000,
    groups: np.ndarray | None = None,
    quick: bool = False,
    device: str = "cpu",
) -> float:
    """MINE's held-out estimate on the first principal components, in bits.

    The label is one-hot, the components are in standard units. For speed, at most 64 components
    and 8,000 windows (drawn at random) are used. The value is the mean over three ways to hold
    windows out; `quick` takes one, and a smaller network. The truth is at most the label's
    entropy. The estimate is reported as it is: a little above that, or below zero, is chance; far
    below it may be a weak network.

    Windows of one of the `groups` (stretches of a recording, say) are held out together, unless
    there are fewer than ten, too few to divide.
    """
    known = np.flatnonzero(labels != UNKNOWN)
    if len(known) > limit:
        known = np.sort(np.random.default_rng(seed).choice(known, limit, replace=False))
    parts = principal_components(features[known], components)
    spread = parts.std(0)
    parts = parts[:, spread > 1e-6 * spread.max(initial=0.0)]
    _, codes = np.unique(labels[known], return_inverse=True)
    if parts.shape[1] == 0 or codes.max() == 0:  # all windows, or all labels, are the same
        return 0.0
    x = torch.from_numpy((parts / parts.std(0)).astype(np.float32)).to(device)
    z = torch.nn.functional.one_hot(torch.from_numpy(codes)).float().to(device)
    whole = groups is not None and len(np.unique(groups[known])) >= 10
    group = torch.from_numpy(groups[known]) if groups is not None and whole else None
    small: dict[str, Any] = {"width": 128, "batch": 128, "rate": 1e-3, "patience": 5, "steps": 800}
    chosen = small if quick else {"rate": 5e-4}
    nats = [
        estimate_mine(x, z, 1000 * seed + i, groups=group, **chosen)
        for i in range(1 if quick else 3)
    ]
    return float(np.mean(nats)) / math.log(2)


def _log_spectrum(signal: np.ndarray) -> np.ndarray:
    """Logarithm of the power at each frequency, with a floor at a thousandth of the mean."""
    tapered = (signal - signal.mean(-1, keepdims=True)) * np.hanning(signal.shape[-1])
    power = np.abs(np.fft.rfft(tapered.astype(np.float32))) ** 2
    mean = power.mean((0, 2), keepdims=True)
    return np.log(power + 1e-3 * np.where(mean > 0, mean, 1.0))


def _components(signal: np.ndarray, components: int) -> np.ndarray:
    """Principal components of channels in standard units, for a mean square of about one."""
    axes = (0, *range(2, signal.ndim))
    deviation = signal.std(axes, keepdims=True)
    deviation[deviation < 1e-12] = 1.0
    rows = ((signal - signal.mean(axes, keepdims=True)) / deviation).reshape(len(signal), -1)
    scale = math.sqrt(rows.shape[1])
    if rows.shape[1] > _SKETCH:
        rows = _sketched(rows)
    return principal_components(rows, components) / scale


def _sketched(rows: np.ndarray) -> np.ndarray:
    """Features dealt to sums with random signs (a count sketch), the same for every call."""
    count, width = rows.shape
    chance = np.random.default_rng(0)
    sign = chance.choice(np.array([-1.0, 1.0], rows.dtype), width)
    order = chance.permutation(width)
    sums = np.zeros((count, _SKETCH), rows.dtype)
    for first in range(0, width, _SKETCH):
        taken = order[first : first + _SKETCH]
        sums[:, : len(taken)] += rows[:, taken] * sign[taken]
    return sums


def _distances(some: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Squared distances, one component at a time: differences stay exact for close points."""
    total = np.zeros((len(some), len(points)), points.dtype)
    for component in range(points.shape[1]):
        total += (some[:, None, component] - points[:, component]) ** 2
    return total


def _neighbourhood(
    distance: np.ndarray, same: np.ndarray, neighbours: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Counts for each row that has a neighbour of its own class.

    How many of its class, and how many of all, lie no farther than the last of its `neighbours`
    in class; and how many there are in class, and of all.
    """
    allowed = np.isfinite(distance)
    in_class = np.where(same, distance, np.inf)
    available = (same & allowed).sum(1)
    has = available > 0
    wanted = np.minimum(available, neighbours)[has]
    deepest = min(neighbours, distance.shape[1])
    ordered = np.sort(np.partition(in_class[has], deepest - 1, axis=1)[:, :deepest], axis=1)
    radius = ordered[np.arange(len(wanted)), wanted - 1][:, None]
    near_class = (in_class[has] <= radius).sum(1)
    near = (distance[has] <= radius).sum(1)
    return near_class, near, available[has], allowed[has].sum(1)


KEPT = 0.99
"""How much of the moving average of e^T stays from one batch to the next."""

_PARTS = (0.6, 0.2, 0.2)
"""Shares of the pairs to train on, to stop by, and to take the value from."""
_SCALES = tuple(0.1 * tenth for tenth in range(16))
"""What T may be multiplied by once it is trained."""
_FEWEST = 15


class MineNet(nn.Module):
    """T(x, z): both side by side through three hidden layers to one score.

    There is no ReLU on the output: T must be free to fall below zero.

    >>> MineNet(3, 2, width=16)(torch.zeros(5, 3), torch.zeros(5, 2)).shape
    torch.Size([5])
    """

    def __init__(self, x_size: int, z_size: int, width: int = 400) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(x_size + z_size, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """One score for each pair: (n,)."""
        scores: torch.Tensor = self.layers(torch.cat([x, z], dim=1))
        return scores.squeeze(1)


def log_mean_exp(scores: torch.Tensor) -> torch.Tensor:
    """log of the mean of e^T, without ever forming e^T.

    >>> float(log_mean_exp(torch.tensor([1000.0, 1000.0])))
    1000.0
    """
    return torch.logsumexp(scores, dim=0) - math.log(len(scores))


def lower_bound(joint: torch.Tensor, marginal: torch.Tensor) -> torch.Tensor:
    """E_joint[T] - log E_marginal[e^T], in nats: no T makes it larger than the information.

    That holds for expectations. On the pairs that T was trained on it can be anything, and even
    held out it is only as close as T is good: a low value may just be a weak T.
    """
    return joint.mean() - log_mean_exp(marginal)


def updated_average(log_average: torch.Tensor, marginal: torch.Tensor) -> torch.Tensor:
    """The log of the moving average of e^T after one more batch; minus infinity before the first.

    >>> start = updated_average(torch.tensor(-math.inf), torch.zeros(4))
    >>> round(float(updated_average(start, torch.full((4,), 2.0)).exp()), 4)  # 0.99 + 0.01 e^2
    1.0639
    """
    batch = log_mean_exp(marginal.detach())
    moved = torch.logaddexp(log_average + math.log(KEPT), batch + math.log(1 - KEPT))
    return torch.where(torch.isneginf(log_average), batch, moved)


def corrected_loss(
    joint: torch.Tensor, marginal: torch.Tensor, log_average: torch.Tensor
) -> torch.Tensor:
    """What to minimise: its gradient is -(E_joint[grad T] - E_marginal[e^T grad T] / m).

    m is the moving average, which must hold this batch already: then e^T / m is at most 100 on
    average, however large T is. In `lower_bound` the batch's own mean stands for m, and the mean
    of a ratio is not the ratio of means: its gradient is biased in small batches. The value of
    this loss means nothing; take `lower_bound` for that.
    """
    ratio = torch.exp(log_mean_exp(marginal) - log_average.detach())
    return ratio - joint.mean()


def estimate_mine(
    x: torch.Tensor,
    z: torch.Tensor,
    seed: int = 0,
    *,
    groups: torch.Tensor | None = None,
    width: int = 400,
    batch: int = 256,
    rate: float = 2e-4,
    steps: int = 4000,
    patience: int = 10,
    every: int = 40,
) -> float:
    """A held-out estimate of the information between rows of x and rows of z, in nats.

    Trains on three fifths of the pairs. Every `every` steps it looks at a fifth, keeps the best
    network and stops when `patience` looks brought nothing better. On that fifth it also chooses
    what to multiply T by: networks that are too sure of themselves are penalised most by the
    bound, and zero, which says nothing, is a choice too. The value is that of the best network
    on the last fifth, which nothing was chosen by, so pairs learnt by heart gain nothing; it can
    fall below zero. `groups` (one number per pair) keeps pairs of a group in the same part:
    windows of one recording are near copies of each other. Where x or z is a label, the truth is
    at most its entropy, and no bound from n pairs can be trusted above ln n.

    x and z are (n, size), in standard units, on the device that is to do the work.
    """
    if len(x) != len(z) or len(x) < _FEWEST:
        raise Refusal(f"MINE needs {_FEWEST} pairs or more; here are {len(x)} and {len(z)} rows")
    chance = torch.Generator().manual_seed(seed)
    parts = [part.to(x.device) for part in _divided(len(x), groups, chance)]
    train, stop, last = [(x[part].float(), z[part].float()) for part in parts]
    with seeded(seed):
        net = MineNet(x.shape[1], z.shape[1], width).to(x.device)
    take = _stepping(net, train, rate, min(batch, len(train[0])))
    best, waited = _Look.at(net, *stop, seed), 0
    for done in range(1, steps + 1):
        index = torch.randint(len(train[0]), (min(batch, len(train[0])),), generator=chance)
        take(index.to(x.device))
        if done % every:
            continue
        look = _Look.at(net, *stop, seed)
        waited += 1
        if look.value > best.value:
            best, waited = look, 0
        if waited == patience:
            break
    net.load_state_dict(best.weights)
    joint, marginal = _scores(net, *last, seed)
    return float(lower_bound(best.scale * joint, best.scale * marginal))


@dataclass(frozen=True)
class _Look:
    """A network in training, and how well it does on pairs that it is not trained on."""

    value: float
    scale: float
    weights: dict[str, torch.Tensor]

    @classmethod
    def at(cls, net: MineNet, x: torch.Tensor, z: torch.Tensor, seed: int) -> _Look:
        joint, marginal = _scores(net, x, z, seed)
        values = [float(lower_bound(scale * joint, scale * marginal)) for scale in _SCALES]
        best = max(range(len(values)), key=values.__getitem__)
        return cls(values[best], _SCALES[best], copy.deepcopy(net.state_dict()))


def _stepping(
    net: MineNet, pairs: tuple[torch.Tensor, torch.Tensor], rate: float, batch: int
) -> Step:
    """A function that takes one step on the pairs at some positions."""
    device = pairs[0].device
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, capturable=on_gpu)
    average = torch.tensor(-math.inf, device=device)

    def step(index: torch.Tensor) -> None:
        x, z = pairs[0][index], pairs[1][index]
        # The pairs were drawn at random, so moving z by one place shuffles it.
        joint, marginal = net(torch.cat([x, x]), torch.cat([z, z.roll(1, 0)])).chunk(2)
        average.copy_(updated_average(average, marginal))
        optimizer.zero_grad(set_to_none=True)
        corrected_loss(joint, marginal, average).backward()
        optimizer.step()

    if not on_gpu:
        return step
    recorded = capture_step(step, torch.arange(batch, device=device), net, optimizer)
    average.fill_(-math.inf)
    return recorded


@torch.no_grad()
def _scores(
    net: MineNet, x: torch.Tensor, z: torch.Tensor, seed: int, shuffles: int = 8
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of true pairs, and of several shuffles of z."""
    chance = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(z), generator=chance).to(z.device) for _ in range(shuffles)]
    return net(x, z), torch.cat([net(x, z[order]) for order in orders])


def _divided(
    count: int, groups: torch.Tensor | None, chance: torch.Generator
) -> list[torch.Tensor]:
    """Positions of the three parts, at random, with groups kept whole."""
    if groups is None:
        groups = torch.arange(count)
    _, group = torch.unique(groups.cpu(), return_inverse=True)
    place = torch.randperm(int(group.max()) + 1, generator=chance)[group]
    order = torch.argsort(place, stable=True)
    # A group belongs to the part that its middle falls into.
    size = torch.bincount(place)
    middle = (torch.cumsum(size, 0) - size / 2) / count
    part = torch.bucketize(middle, torch.tensor([_PARTS[0], _PARTS[0] + _PARTS[1]]))[place[order]]
    found = [order[part == which] for which in range(3)]
    if min(len(one) for one in found) < 3:
        raise Refusal("MINE needs more groups of pairs, so that parts can be held out")
    return found
