"""Seal's diffusion: a latent diffusion that is conditioned on a code.

CLOAK's equations (3) to (5) and (7), with a one-hot code where CLOAK has z_U. The output is a
function of code and noise, and no donor's window.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch.nn.functional import one_hot

from sensorveil.cuda_graphs import Inputs
from sensorveil.data.windows import Windows
from sensorveil.diffusion.batched import run_in_batches
from sensorveil.diffusion.latent import LatentDiffusion, small_latent_diffusion
from sensorveil.train import TrainConfig

_GUIDANCE_SCALE, _SAMPLING_STEPS = 2.0, 10


class Diffusion:
    """Generates windows of a code by latent diffusion.

    Parameters
    ----------
    seed, device
        As in every method.
    training_steps
        Training steps of the denoiser; the autoencoder has a quarter of them.

    Examples
    --------
    >>> signal = np.random.default_rng(0).normal(size=(64, 2, 16)).astype("float32")
    >>> made = Diffusion(training_steps=8).fit(Windows.from_signal(signal), np.arange(64) % 2, 2)
    >>> made.generate(np.array([0, 1, 1]), np.random.default_rng(0)).shape
    (3, 2, 16)
    """

    emits_donors = False

    def __init__(self, seed: int = 0, device: str = "cpu", training_steps: int = 4000) -> None:
        self.seed, self.device, self.steps = seed, device, training_steps

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Diffusion:
        """Train on donors' windows in standard units; each of `count` codes has some."""
        self._shape, total = np.array([*donors.shape, count]), len(donors)
        signals = donors.on(self.device)
        self._model = self._build()
        self._model.fit_autoencoder(
            signals.__getitem__, total, _config(self.steps // 4, 64, 1e-3, total), self.seed
        )
        self._model.fit_denoiser(
            signals.__getitem__,
            self._one_hot(torch.from_numpy(codes)),
            _config(self.steps, 128, 2e-3, total),
            self.seed,
        )
        return self

    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A window for each code."""
        shape = (len(codes), *self._model.latent_shape)
        noise = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
        inputs = {"code": torch.from_numpy(codes), "noise": noise}
        return run_in_batches(self._sample, inputs, self.device)

    @torch.no_grad()
    def _sample(self, inputs: Inputs) -> torch.Tensor:
        condition = self._one_hot(inputs["code"])
        z = self._model.sample(condition, inputs["noise"], _GUIDANCE_SCALE, steps=_SAMPLING_STEPS)
        return self._model.decode(z)

    def state(self) -> dict[str, np.ndarray]:
        """The learnt arrays."""
        weights = {k: v.cpu().numpy() for k, v in self._model.state_dict().items()}
        return {"shape": self._shape, **weights}

    def restore(self, state: Mapping[str, np.ndarray], length: int) -> Diffusion:
        """The generator that `state` was taken from."""
        self._shape = state["shape"]
        self._model = self._build().eval()
        weights = {k: torch.from_numpy(v) for k, v in state.items() if k != "shape"}
        self._model.load_state_dict(weights)
        return self

    def _build(self) -> LatentDiffusion:
        *shape, count = self._shape.tolist()
        model = small_latent_diffusion(tuple(shape), count, widths=(16, 32), seed=self.seed)
        return model.to(self.device)

    def _one_hot(self, codes: torch.Tensor) -> torch.Tensor:
        return one_hot(codes.long().to(self.device), int(self._shape[-1])).float()


def _config(steps: int, batch_size: int, learning_rate: float, count: int) -> TrainConfig:
    """At least so many steps, whatever the number of windows."""
    batch_size = min(batch_size, count)
    return TrainConfig(-(-steps // (count // batch_size)), batch_size, learning_rate)
