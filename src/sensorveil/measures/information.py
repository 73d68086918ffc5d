"""Mutual information between windows and a label, in bits, by two estimators of the papers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from sensorveil.data.windows import UNKNOWN
from sensorveil.nets.mine import estimate_mine

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
        signal = np.concatenate([signal.real, signal.imag, np.abs(signal)], axis=1)
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
