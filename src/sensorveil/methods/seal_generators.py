"""Seal's generators: windows made from codes and fresh noise, and from nothing else.

A generator is trained on donors' windows, each of one code. It generates from codes and a source of
noise alone, so its output tells no more about the wearer than the codes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch.nn.functional import one_hot

from sensorveil.cuda_graphs import Inputs
from sensorveil.data.windows import Windows, to_real
from sensorveil.diffusion.batched import run_in_batches
from sensorveil.diffusion.latent import LatentDiffusion, small_latent_diffusion
from sensorveil.train import TrainConfig

POOL, GAUSSIAN, DIFFUSION = "pool", "gaussian", "diffusion"


class Generator(ABC):
    """Generates windows in standard units from codes.

    A further generator needs `fit`, which fills `arrays`, `generate`, and a line in `GENERATORS`.

    Parameters
    ----------
    seed, device
        As in every method.
    training_steps
        Training steps, where a network is trained.
    """

    emits_donors = False
    """Whether the output consists of donors' own windows."""
    array_names: ClassVar[tuple[str, ...]] = ()
    arrays: dict[str, np.ndarray]
    """All that was learnt."""

    def __init__(self, seed: int = 0, device: str = "cpu", training_steps: int = 4000) -> None:
        self.seed, self.device, self.training_steps = seed, device, training_steps

    @abstractmethod
    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Self:
        """Train on donors' windows in standard units; each of `count` codes has some."""

    @abstractmethod
    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One window for each code: (n, channels, length)."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Self:
        """The generator whose `arrays` these are."""
        needed = self.array_names or tuple(arrays)
        self.arrays = {name: arrays[name] for name in needed}
        return self


class Pool(Generator):
    """Emits a random donor's window of the code.

    Examples
    --------
    >>> donors = Windows.from_signal(np.arange(6.0).reshape(3, 1, 2))
    >>> pool = Pool().fit(donors, np.array([0, 1, 1]), 2)
    >>> pool.generate(np.array([0, 0]), np.random.default_rng(0)).tolist()
    [[[0.0, 1.0]], [[0.0, 1.0]]]
    """

    emits_donors = True
    array_names = ("store", "offset", "numbers", "length")

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Self:
        """Keep the donors' windows, sorted by code; overlapping ones share their samples."""
        kept = donors.select(np.argsort(codes, kind="stable")).compact()
        store = kept.store
        if kept.scaling is not None:
            store = to_real(kept.scaling.apply(store)[None])[0].astype(np.float32)
        self.arrays = {
            "store": store,
            "offset": kept.offset,
            "numbers": np.bincount(codes, minlength=count),
            "length": np.array([donors.length]),
        }
        return self

    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A donor for each code, all donors of a code with equal probability."""
        numbers = self.arrays["numbers"]
        first = np.cumsum(numbers) - numbers
        drawn = first[codes] + rng.integers(numbers[codes])
        # A view with one window from every sample on: (samples, channels, length).
        view = np.lib.stride_tricks.sliding_window_view(
            self.arrays["store"], int(self.arrays["length"][0]), axis=-1
        )
        return np.ascontiguousarray(np.moveaxis(view, -2, 0)[self.arrays["offset"][drawn]])


class Gaussian(Generator):
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

    array_names = ("mean", "basis", "roots", "shape")
    components = 64
    max_sample = 2000  # windows for the principal components

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Self:
        """Learn mean and covariance of each code; codes of few windows lean on all."""
        rows = donors.signal.reshape(len(donors), -1)
        mean = np.stack([rows[codes == code].mean(0) for code in range(count)])
        residuals = rows - mean[codes]
        sample = np.linspace(0, len(rows) - 1, min(len(rows), self.max_sample)).astype(int)
        basis = np.linalg.svd(residuals[sample], full_matrices=False)[2][: self.components]
        scores = residuals @ basis.T
        overall = scores.T @ scores / len(scores)
        roots = [_covariance_root(scores[codes == code], overall) for code in range(count)]
        shape = np.array(donors.shape)
        self.arrays = {"mean": mean, "basis": basis, "roots": np.stack(roots), "shape": shape}
        return self

    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A window for each code."""
        learnt = self.arrays
        noise = rng.standard_normal((len(codes), len(learnt["basis"])), np.float32)
        scores = np.einsum("nij,nj->ni", learnt["roots"][codes], noise)
        return (learnt["mean"][codes] + scores @ learnt["basis"]).reshape(-1, *learnt["shape"])


def _covariance_root(scores: np.ndarray, overall: np.ndarray) -> np.ndarray:
    """A root of the covariance, shrunk by one pseudo window of the overall covariance a component.

    With fewer windows than components a code's own covariance would be singular, and draws would
    be mixtures of its donors.
    """
    size = len(overall)
    covariance = (scores.T @ scores + size * overall) / (len(scores) + size)
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0))


class Diffusion(Generator):
    """Generates windows of a code by the latent diffusion of CLOAK, conditioned on the code.

    CLOAK's equations (3) to (5) and (7), with a one-hot code where CLOAK has the features of the
    kept attributes. The denoiser has `training_steps`, the autoencoder a quarter of them. No
    donor's window is emitted, but nothing is promised to donors either.

    Examples
    --------
    >>> signal = np.random.default_rng(0).normal(size=(64, 2, 16)).astype("float32")
    >>> donors, codes = Windows.from_signal(signal), np.arange(64) % 2
    >>> diffusion = Diffusion(training_steps=8).fit(donors, codes, 2)
    >>> diffusion.generate(np.array([0, 1, 1]), np.random.default_rng(0)).shape
    (3, 2, 16)
    """

    sizes: ClassVar[dict[str, Any]] = {"latent": 60, "widths": (16, 32), "width": 192, "blocks": 3}
    guidance_scale, sampling_steps = 2.0, 10

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Self:
        """Train the autoencoder, and the denoiser on its latents."""
        shape, windows = (*donors.shape, count), len(donors)
        signals, conditions = donors.on(self.device), torch.from_numpy(codes)
        self._model, self._count = self._build(shape), count
        config = _config(self.training_steps // 4, 64, 1e-3, windows)
        self._model.fit_autoencoder(signals.__getitem__, windows, config, self.seed)
        config = _config(self.training_steps, 128, 2e-3, windows)
        self._model.fit_denoiser(signals.__getitem__, self._one_hot(conditions), config, self.seed)
        weights = {name: one.cpu().numpy() for name, one in self._model.state_dict().items()}
        self.arrays = {"shape": np.array(shape), **weights}
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

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Self:
        """The generator whose `arrays` these are."""
        shape = arrays["shape"].tolist()
        self._model, self._count = self._build(shape).eval(), shape[-1]
        weights = {name: torch.from_numpy(one) for name, one in arrays.items() if name != "shape"}
        self._model.load_state_dict(weights)
        return super().restore(arrays)

    def _build(self, shape: Sequence[int]) -> LatentDiffusion:
        """Untrained networks for windows and codes: `shape` is (channels, length, codes)."""
        model = small_latent_diffusion(tuple(shape[:-1]), shape[-1], seed=self.seed, **self.sizes)
        return model.to(self.device)

    def _one_hot(self, codes: torch.Tensor) -> torch.Tensor:
        return one_hot(codes.long().to(self.device), self._count).float()


def _config(steps: int, batch_size: int, learning_rate: float, count: int) -> TrainConfig:
    """At least so many training steps, whatever the number of windows."""
    batch_size = min(batch_size, count)
    return TrainConfig(-(-steps // (count // batch_size)), batch_size, learning_rate)


GENERATORS: dict[str, type[Generator]] = {POOL: Pool, GAUSSIAN: Gaussian, DIFFUSION: Diffusion}
"""All generators by name."""


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
