"""Seal's generators: windows made from codes and fresh noise, and from nothing else.

A generator is trained on donors' windows, each of one code. It generates from codes and a source of
noise alone, so its output tells no more about the wearer than the codes. A further generator needs
the four functions of `Generator` and a line in `GENERATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from sensorveil.data.windows import Windows, to_real
from sensorveil.methods.seal_diffusion import Diffusion

AUTO, POOL, GAUSSIAN, DIFFUSION = "auto", "pool", "gaussian", "diffusion"

_MAX_SAMPLE = 2000  # windows for the principal components


class Generator(Protocol):
    """Generates windows in standard units from codes."""

    emits_donors: bool
    """Whether the output consists of donors' own windows."""

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Generator:
        """Train on donors' windows in standard units; each of `count` codes has some."""

    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One window for each code: (n, channels, length)."""

    def state(self) -> dict[str, np.ndarray]:
        """The learnt arrays."""

    def restore(self, state: Mapping[str, np.ndarray], length: int) -> Generator:
        """The generator that `state` was taken from, for windows of so many samples."""


class Pool:
    """Emits a random donor's window of the code.

    Examples
    --------
    >>> donors = Windows.from_signal(np.arange(6.0).reshape(3, 1, 2))
    >>> pool = Pool().fit(donors, np.array([0, 1, 1]), 2)
    >>> pool.generate(np.array([0, 0]), np.random.default_rng(0)).tolist()
    [[[0.0, 1.0]], [[0.0, 1.0]]]
    """

    emits_donors = True

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Pool:
        """Keep the donors' windows, sorted by code; overlapping ones share their samples."""
        sorted_donors = donors.select(np.argsort(codes, kind="stable")).compact()
        store, scaling = sorted_donors.store, sorted_donors.scaling
        if scaling is not None:
            store = to_real(scaling.apply(store)[None])[0].astype(np.float32)
        numbers = np.bincount(codes, minlength=count)
        return self._set(store, sorted_donors.offset, numbers, donors.length)

    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A donor for each code, all donors of a code with equal probability."""
        drawn = self._first[codes] + rng.integers(self._numbers[codes])
        return np.ascontiguousarray(self._windows[self._offset[drawn]])

    def state(self) -> dict[str, np.ndarray]:
        """The learnt arrays."""
        return {"store": self._store, "offset": self._offset, "numbers": self._numbers}

    def restore(self, state: Mapping[str, np.ndarray], length: int) -> Pool:
        """The pool that `state` was taken from."""
        return self._set(state["store"], state["offset"], state["numbers"], length)

    def _set(self, store: np.ndarray, offset: np.ndarray, numbers: np.ndarray, length: int) -> Pool:
        self._store, self._offset, self._numbers = store, offset, numbers
        self._first = np.cumsum(numbers) - numbers
        # A view with one window from every sample on: (samples, channels, length).
        view = np.lib.stride_tricks.sliding_window_view(store, length, axis=-1)
        self._windows = np.moveaxis(view, -2, 0)
        return self


class Gaussian:
    """Draws from a Gaussian with mean and covariance of the donors' windows of a code.

    No donor's window is emitted. The covariance is that along the first principal components of
    all donors; a moving sensor's are waves, so rhythm, energy and the correlation of channels are
    kept, and the shape of a single step is not.

    Examples
    --------
    >>> signal = np.random.default_rng(0).normal(size=(500, 1, 8)) + 5
    >>> gaussian = Gaussian().fit(Windows.from_signal(signal), np.zeros(500, int), 1)
    >>> drawn = gaussian.generate(np.zeros(1000, int), np.random.default_rng(0))
    >>> drawn.shape, abs(drawn.mean() - 5) < 0.1, abs(drawn.std() - 1) < 0.1
    ((1000, 1, 8), np.True_, np.True_)
    """

    emits_donors = False
    components = 64

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Gaussian:
        """Learn mean and covariance of each code; codes of few windows lean on all."""
        rows = donors.signal.reshape(len(donors), -1)
        self._mean = np.stack([rows[codes == code].mean(0) for code in range(count)])
        residuals = rows - self._mean[codes]
        sample = np.linspace(0, len(rows) - 1, min(len(rows), _MAX_SAMPLE)).astype(int)
        self._basis = np.linalg.svd(residuals[sample], full_matrices=False)[2][: self.components]
        scores = residuals @ self._basis.T
        overall = scores.T @ scores / len(scores)
        self._roots = np.stack(
            [_covariance_root(scores[codes == code], overall) for code in range(count)]
        )
        self._shape = np.array(donors.shape)
        return self

    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A window for each code."""
        noise = rng.standard_normal((len(codes), len(self._basis)), np.float32)
        scores = np.einsum("nij,nj->ni", self._roots[codes], noise)
        return (self._mean[codes] + scores @ self._basis).reshape(-1, *self._shape.tolist())

    def state(self) -> dict[str, np.ndarray]:
        """The learnt arrays."""
        return {
            "mean": self._mean,
            "basis": self._basis,
            "roots": self._roots,
            "shape": self._shape,
        }

    def restore(self, state: Mapping[str, np.ndarray], length: int) -> Gaussian:
        """The generator that `state` was taken from."""
        self._mean, self._basis = state["mean"], state["basis"]
        self._roots, self._shape = state["roots"], state["shape"]
        return self


def _covariance_root(scores: np.ndarray, overall: np.ndarray) -> np.ndarray:
    """A root of the covariance, shrunk by one pseudo window of the overall covariance a component.

    With fewer windows than components a code's own covariance would be singular, and draws would
    be mixtures of its donors.
    """
    size = len(overall)
    covariance = (scores.T @ scores + size * overall) / (len(scores) + size)
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0))


GENERATORS: dict[str, Callable[[int, str, int], Generator]] = {
    POOL: lambda seed, device, training_steps: Pool(),
    GAUSSIAN: lambda seed, device, training_steps: Gaussian(),
    DIFFUSION: Diffusion,
}
"""All generators by name, made from a seed, a device and a number of training steps."""


def previous_windows(recording: np.ndarray, start: np.ndarray, length: int) -> np.ndarray:
    """For each window the row of the one of its recording that ends where it begins, or -1.

    >>> previous_windows(np.array([0, 0, 1]), np.array([10, 0, 10]), 10)
    array([ 1, -1, -1])
    """
    keys = list(zip(recording.tolist(), start.tolist(), strict=True))
    row = {key: number for number, key in enumerate(keys)}
    return np.array([row.get((one, begin - length), -1) for one, begin in keys])


def crossfade(signal: np.ndarray, previous: np.ndarray, samples: int) -> np.ndarray:
    """Windows (n, channels, length) that begin where the previous one ended, without a jump.

    Each starts from the last value of that one and fades to its own within so many samples, at
    most half of its length. So it holds a little of the previous one.

    >>> signal = np.array([[[0.0, 0.0, 0.0, 1.0]], [[5.0, 5.0, 5.0, 5.0]]])
    >>> crossfade(signal, np.array([-1, 0]), 2)[1].tolist()
    [[1.0, 3.0, 5.0, 5.0]]
    """
    samples = min(samples, signal.shape[-1] // 2)
    follows = np.flatnonzero(previous >= 0)
    jump = signal[previous[follows], ..., -1:] - signal[follows][..., :1]
    smooth = signal.copy()
    smooth[follows, ..., :samples] += jump * (1 - np.arange(samples) / samples)
    return smooth
