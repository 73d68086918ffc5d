"""Seal's generators: windows made from codes and fresh noise, and from nothing else.

A generator learns from donors' windows, each given out for one code. When it makes windows it is
handed codes and a source of noise, so whatever it does, nobody learns more about the wearer from
what it makes than from the codes. A further one needs the four functions of `Generator` and a line
in `GENERATORS`; `Diffusion` has a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.methods.seal_diffusion import Diffusion

POOL, GAUSSIAN, DIFFUSION = "pool", "gaussian", "diffusion"

_SAMPLE = 2000  # windows that are enough to find the directions


class Generator(Protocol):
    """Makes windows in standard units from codes."""

    emits_donors: bool
    """Whether what it makes are donors' own windows."""

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Generator:
        """Learns from donors' windows in standard units; each of `count` codes has some."""

    def make(self, codes: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        """One window for each code: (n, channels, length)."""

    def state(self) -> dict[str, np.ndarray]:
        """All that was learnt, as arrays."""

    def restore(self, state: Mapping[str, np.ndarray], length: int) -> Generator:
        """The generator that `state` was taken from, for windows of so many samples."""


class Pool:
    """Gives out a random donor's window of the code, as it is.

    >>> donors = Windows.from_signal(np.arange(6.0).reshape(3, 1, 2))
    >>> pool = Pool().fit(donors, np.array([0, 1, 1]), 2)
    >>> pool.make(np.array([0, 0]), np.random.default_rng(0)).tolist()
    [[[0.0, 1.0]], [[0.0, 1.0]]]
    """

    emits_donors = True

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Pool:
        """Keeps the donors' windows, sorted by code."""
        order = np.argsort(codes, kind="stable")
        held = donors.select(order).compact()
        store = held.store if held.scaling is None else held.scaling.apply(held.store)
        numbers = np.bincount(codes, minlength=count)
        return self._taken(store.astype(held.store.dtype), held.offset, numbers, held.length)

    def make(self, codes: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        """A donor for each code, all donors of a code alike."""
        drawn = self._first[codes] + noise.integers(self._numbers[codes])
        return np.ascontiguousarray(self._windows[self._offset[drawn]])

    def state(self) -> dict[str, np.ndarray]:
        """All that was learnt, as arrays."""
        return {"store": self._store, "offset": self._offset, "numbers": self._numbers}

    def restore(self, state: Mapping[str, np.ndarray], length: int) -> Pool:
        """The pool that `state` was taken from."""
        return self._taken(state["store"], state["offset"], state["numbers"], length)

    def _taken(
        self, store: np.ndarray, offset: np.ndarray, numbers: np.ndarray, length: int
    ) -> Pool:
        self._store, self._offset, self._numbers = store, offset, numbers
        self._first = np.cumsum(numbers) - numbers
        view = np.lib.stride_tricks.sliding_window_view(store, length, axis=-1)
        self._windows = np.moveaxis(view, -2, 0)  # one from every sample on, by where it begins
        return self


class Gaussian:
    """Draws from a Gaussian with the mean and the spread of the donors' windows of a code.

    No donor's window is given out. The spread is that along the few directions in which windows
    differ most; a moving sensor's are waves, so rhythm, strength and how channels go together are
    kept, and the shape of a single step is not.

    >>> signal = np.random.default_rng(0).normal(size=(500, 1, 8)) + 5
    >>> made = Gaussian().fit(Windows.from_signal(signal), np.zeros(500, int), 1)
    >>> drawn = made.make(np.zeros(1000, int), np.random.default_rng(0))
    >>> drawn.shape, abs(drawn.mean() - 5) < 0.1, abs(drawn.std() - 1) < 0.1
    ((1000, 1, 8), np.True_, np.True_)
    """

    emits_donors = False
    directions = 64

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Gaussian:
        """Learns mean and spread of each code; those of a code of few windows lean on all."""
        rows = _as_rows(donors.signal)
        self._mean = np.stack([rows[codes == code].mean(0) for code in range(count)])
        apart = rows - self._mean[codes]
        some = apart[np.linspace(0, len(apart) - 1, min(len(apart), _SAMPLE)).astype(int)]
        self._basis = np.linalg.svd(some, full_matrices=False)[2][: self.directions]
        along = apart @ self._basis.T
        usual = along.T @ along / len(along)
        self._roots = np.stack([_root(along[codes == code], usual) for code in range(count)])
        self._shape = np.array([*donors.shape, int(donors.is_complex)])
        return self

    def make(self, codes: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        """A window for each code."""
        drawn = noise.standard_normal((len(codes), len(self._basis)), np.float32)
        along = np.einsum("nij,nj->ni", self._roots[codes], drawn)
        made = self._mean[codes] + along @ self._basis
        *shape, is_complex = self._shape.tolist()
        return (made.view(np.complex64) if is_complex else made).reshape(-1, *shape)

    def state(self) -> dict[str, np.ndarray]:
        """All that was learnt, as arrays."""
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


def _as_rows(signal: np.ndarray) -> np.ndarray:
    """Windows as rows of real numbers, two for a complex sample."""
    return np.ascontiguousarray(signal).view(np.float32).reshape(len(signal), -1)


def _root(along: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """A root of the covariance, as if one window more for each direction were as is usual."""
    size = len(usual)
    spread = (along.T @ along + size * usual) / (len(along) + size)
    values, vectors = np.linalg.eigh(spread)
    return vectors * np.sqrt(np.maximum(values, 0))


GENERATORS: dict[str, Callable[[int, str, int], Generator]] = {
    POOL: lambda seed, device, steps: Pool(),
    GAUSSIAN: lambda seed, device, steps: Gaussian(),
    DIFFUSION: Diffusion,
}
"""All generators by name, made from a seed, a device and how many steps to train them for."""


def adjoining(recording: np.ndarray, start: np.ndarray, length: int) -> np.ndarray:
    """For each window the one of its recording that ends where it begins, or -1.

    >>> adjoining(np.array([0, 0, 1]), np.array([10, 0, 10]), 10)
    array([ 1, -1, -1])
    """
    keys = list(zip(recording.tolist(), start.tolist(), strict=True))
    place = {key: number for number, key in enumerate(keys)}
    return np.array([place.get((one, begin - length), -1) for one, begin in keys])


def joined(signal: np.ndarray, before: np.ndarray, samples: int) -> np.ndarray:
    """Windows (n, channels, length) that begin where the one `before` ended, without a jump.

    Each starts from the last value of that one and fades to its own within so many samples, or half
    of its length. So it holds a little of the one before.

    >>> signal = np.array([[[0.0, 0.0, 0.0, 1.0]], [[5.0, 5.0, 5.0, 5.0]]])
    >>> joined(signal, np.array([-1, 0]), 2)[1].tolist()
    [[1.0, 3.0, 5.0, 5.0]]
    """
    samples = min(samples, signal.shape[-1] // 2)
    follows = np.flatnonzero(before >= 0)
    jump = signal[before[follows], ..., -1:] - signal[follows][..., :1]
    smooth = signal.copy()
    smooth[follows, ..., :samples] += jump * (1 - np.arange(samples) / samples)
    return smooth
