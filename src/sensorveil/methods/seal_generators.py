"""Seal's generators: windows made from codes and fresh noise, and from nothing else.

A generator is trained on donors' windows, each of one code. It generates from codes and a source of
noise alone, so its output tells no more about the wearer than the codes. A further generator needs
the four functions of `Generator` and a line in `GENERATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch.nn.functional import one_hot

from sensorveil.cuda_graphs import Inputs
from sensorveil.data.windows import Windows, to_real
from sensorveil.diffusion.batched import run_in_batches
from sensorveil.diffusion.latent import LatentDiffusion, small_latent_diffusion
from sensorveil.train import TrainConfig

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


class Diffusion:
    """Generates windows of a code by the latent diffusion of CLOAK, conditioned on the code.

    CLOAK's equations (3) to (5) and (7), with a one-hot code where CLOAK has the features of the
    kept attributes. No donor's window is emitted, but nothing is promised to donors either.

    Parameters
    ----------
    seed, device
        As in every method.
    training_steps
        Training steps of the denoiser; the autoencoder has a quarter of them.

    Examples
    --------
    >>> signal = np.random.default_rng(0).normal(size=(64, 2, 16)).astype("float32")
    >>> donors, codes = Windows.from_signal(signal), np.arange(64) % 2
    >>> diffusion = Diffusion(training_steps=8).fit(donors, codes, 2)
    >>> diffusion.generate(np.array([0, 1, 1]), np.random.default_rng(0)).shape
    (3, 2, 16)
    """

    emits_donors = False
    sizes: ClassVar[dict[str, Any]] = {"latent": 60, "widths": (16, 32), "width": 192, "blocks": 3}
    guidance_scale, sampling_steps = 2.0, 10

    def __init__(self, seed: int = 0, device: str = "cpu", training_steps: int = 4000) -> None:
        self.seed, self.device, self.training_steps = seed, device, training_steps

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Diffusion:
        """Train the autoencoder, and the denoiser on its latents."""
        self._shape, windows = np.array([*donors.shape, count]), len(donors)
        signals, conditions = donors.on(self.device), torch.from_numpy(codes)
        self._model = self._build()
        config = _config(self.training_steps // 4, 64, 1e-3, windows)
        self._model.fit_autoencoder(signals.__getitem__, windows, config, self.seed)
        config = _config(self.training_steps, 128, 2e-3, windows)
        self._model.fit_denoiser(signals.__getitem__, self._one_hot(conditions), config, self.seed)
        return self

    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A window for each code."""
        shape = (len(codes), *self._model.latent_shape)
        noise = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
        inputs = {"code": torch.from_numpy(codes), "noise": noise}
        return run_in_batches(self._sample, inputs, self.device)

    @torch.no_grad()
    def _sample(self, inputs: Inputs) -> torch.Tensor:
        condition, steps = self._one_hot(inputs["code"]), self.sampling_steps
        z = self._model.sample(condition, inputs["noise"], self.guidance_scale, steps=steps)
        return self._model.decode(z)

    def state(self) -> dict[str, np.ndarray]:
        """The learnt arrays."""
        weights = {name: one.cpu().numpy() for name, one in self._model.state_dict().items()}
        return {"shape": self._shape, **weights}

    def restore(self, state: Mapping[str, np.ndarray], length: int) -> Diffusion:
        """The generator that `state` was taken from."""
        self._shape = state["shape"]
        self._model = self._build().eval()
        weights = {name: torch.from_numpy(one) for name, one in state.items() if name != "shape"}
        self._model.load_state_dict(weights)
        return self

    def _build(self) -> LatentDiffusion:
        *shape, count = self._shape.tolist()
        model = small_latent_diffusion(tuple(shape), count, seed=self.seed, **self.sizes)
        return model.to(self.device)

    def _one_hot(self, codes: torch.Tensor) -> torch.Tensor:
        return one_hot(codes.long().to(self.device), int(self._shape[-1])).float()


def _config(steps: int, batch_size: int, learning_rate: float, count: int) -> TrainConfig:
    """At least so many training steps, whatever the number of windows."""
    batch_size = min(batch_size, count)
    return TrainConfig(-(-steps // (count // batch_size)), batch_size, learning_rate)


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
