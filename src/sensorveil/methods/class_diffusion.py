"""Class diffusion: another window of the same class, made from noise by latent diffusion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch.nn.functional import one_hot

from sensorveil.classifiers import ClassifierSettings, Ensemble
from sensorveil.cuda_graphs import Inputs
from sensorveil.data.windows import UNKNOWN, Windows, joint_classes
from sensorveil.diffusion.batched import run_in_batches
from sensorveil.diffusion.latent import LatentDiffusion, small_latent_diffusion
from sensorveil.files import part_of
from sensorveil.methods.base import FIXED_NOISE, Capabilities, Obfuscator
from sensorveil.methods.settings import Settings
from sensorveil.train import TrainConfig, derived_seed

_ENSEMBLE, _DIFFUSION = 1, 2  # uses of the seed
_CONDITION_DROPOUT, _EMA_DECAY = 0.3, 0.998


class ClassDiffusionSettings(Settings):
    """Sampling, networks and training.

    Parameters
    ----------
    guidance_scale
        w of classifier-free guidance, where 0 is no guidance; a strength too.
    num_candidates
        So many windows are made for each, and the one that the ensemble finds most likely of the
        class is given out.
    sampling_steps
        Steps of DPM-Solver++ for each window.
    ensemble_size
        Classifiers that predict the kept class and score candidates.
    latent_size, autoencoder_widths
        Numbers in the latents, and channels of the autoencoder's convolutions.
    width, blocks
        Of the denoiser, a residual multilayer perceptron.
    epochs, batch_size, learning_rate, max_steps
        Training of the denoiser; `max_steps` is the most steps it takes, 0 is no limit.
    autoencoder_epochs, autoencoder_max_steps
        Training of the autoencoder.
    """

    guidance_scale: float = Field(default=4.0, ge=0)
    num_candidates: int = Field(default=12, gt=0)
    sampling_steps: int = Field(default=8, gt=0, le=1000)
    ensemble_size: int = Field(default=4, gt=0)
    latent_size: int = Field(default=60, gt=0)
    autoencoder_widths: tuple[int, ...] = (32, 64)
    width: int = Field(default=192, gt=1)
    blocks: int = Field(default=3, gt=0)
    epochs: int = Field(default=150, gt=0)
    batch_size: int = Field(default=128, gt=0)
    learning_rate: float = Field(default=2e-3, gt=0)
    max_steps: int = Field(default=5000, ge=0)
    autoencoder_epochs: int = Field(default=25, gt=0)
    autoencoder_max_steps: int = Field(default=8000, ge=0)

    def check(self) -> None:
        """Refuse an autoencoder without layers."""
        sizes = self.autoencoder_widths
        self.require(
            len(sizes) > 0 and min(sizes) > 0, "autoencoder_widths", "whole numbers above 0"
        )


class ClassDiffusion(Obfuscator):
    """A new window of the class that an ensemble of classifiers predicts.

    The ensemble predicts the joint class of the kept attributes. A latent diffusion model makes
    several candidates of that class from noise, and the ensemble picks the one that it finds most
    likely of the class. So the output tells of a window what its predicted class tells, and no more.

    The condition is the class itself, one-hot. There is no contrastive encoder as in CLOAK: of a
    class alone it could only say which other classes it is like.

    Not a published method: the latent diffusion is CLOAK's, with smaller networks; best of n is
    common for generative models.

    Parameters
    ----------
    preset : str, default "fast"
        The only preset, for two cores.
    seed : int, default 0
        Seed of all networks and batches.
    device : str, default "cpu"
        Where the networks are.
    **settings
        See `ClassDiffusionSettings`.

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> obfuscator = ClassDiffusion(epochs=1, autoencoder_epochs=1, ensemble_size=1)
    >>> obfuscator = obfuscator.fit(windows, keep="activity", hide="gender")
    >>> obfuscator.obfuscate(windows, {"guidance_scale": 2.0}, seed=1).shape
    (2, 32)
    """

    name = "class-diffusion"
    summary = "a new window of the predicted class, by latent diffusion"
    capabilities = Capabilities(
        strengths={"guidance_scale": "how strongly samples are guided to the predicted class"}
    )
    Settings = ClassDiffusionSettings
    membership_score = FIXED_NOISE
    adjustable: ClassVar[tuple[str, ...]] = ("guidance_scale", "num_candidates", "sampling_steps")
    settings: ClassDiffusionSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        codes, self.joint_classes_ = joint_classes(windows, self.policy_.keep)
        known = codes != UNKNOWN
        self.ensemble_ = self._build_ensemble().fit_codes(
            windows.select(known), codes[known], len(self.joint_classes_)
        )
        chosen, count = self.settings, len(windows)
        signals, seed = windows.on(self.device), derived_seed(self.seed, _DIFFUSION)
        self.diffusion_ = self._build_diffusion()
        self.metrics_["autoencoder_loss"] = self.diffusion_.fit_autoencoder(
            signals.__getitem__,
            count,
            TrainConfig(
                chosen.autoencoder_epochs, batch_size=64, learning_rate=1e-3
            ).with_max_steps(chosen.autoencoder_max_steps, count),
            seed,
            checkpoint=self.checkpoint,
        )
        conditions = self._one_hot(torch.from_numpy(codes.clip(min=0)).to(self.device))
        conditions[torch.from_numpy(~known)] = 0  # a window of unknown class has no condition
        self.metrics_["denoiser_loss"] = self.diffusion_.fit_denoiser(
            signals.__getitem__,
            conditions,
            TrainConfig(chosen.epochs, chosen.batch_size, chosen.learning_rate).with_max_steps(
                chosen.max_steps, count
            ),
            seed,
            dropout=_CONDITION_DROPOUT,
            ema_decay=_EMA_DECAY,
            checkpoint=self.checkpoint,
        )

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        return run_in_batches(self._sample, self._inputs(windows, strength, rng), self.device)

    def _inputs(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> dict[str, torch.Tensor]:
        """Everything that the output is made from: noise, predicted classes, guidance scales."""
        shape = (len(windows), self.settings.num_candidates, *self.diffusion_.latent_shape)
        scale = strength.get("guidance_scale", self.settings.guidance_scale)
        return {
            "noise": torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)),
            "code": torch.from_numpy(self.ensemble_.predict(windows)),
            "guidance_scale": torch.from_numpy(
                np.broadcast_to(scale, len(windows)).astype(np.float32)
            ),
        }

    @torch.no_grad()
    def _sample(self, inputs: Inputs) -> torch.Tensor:
        """The best of several windows made for each class, in standard units."""
        code, count = inputs["code"], self.settings.num_candidates
        latents = self.diffusion_.sample(
            self._one_hot(code),
            inputs["noise"],
            inputs["guidance_scale"],
            steps=self.settings.sampling_steps,
        )
        candidates = self.diffusion_.decode(latents.flatten(0, 1))
        probabilities = self.ensemble_.scores(candidates).softmax(2).mean(0)
        wanted = code.repeat_interleave(count)
        score = probabilities.gather(1, wanted.unsqueeze(1)).squeeze(1)
        score = score + (probabilities.argmax(1) == wanted)  # of the class first, then most likely
        best = score.view(-1, count).argmax(1)
        rows = torch.arange(len(code), device=code.device)
        return candidates.unflatten(0, (-1, count))[rows, best]

    def _condition(self, windows: Windows) -> np.ndarray:
        codes = self.ensemble_.predict(windows)
        return np.eye(len(self.joint_classes_), dtype=np.float32)[codes]

    def _membership_scores(self, windows: Windows) -> np.ndarray:
        conditions = torch.from_numpy(self._condition(windows)).to(self.device)
        signals = windows.on(self.device)
        return -self.diffusion_.fixed_noise_losses(signals.__getitem__, conditions).cpu().numpy()

    def _one_hot(self, codes: torch.Tensor) -> torch.Tensor:
        return one_hot(codes, len(self.joint_classes_)).float()

    def _build_ensemble(self) -> Ensemble:
        size, seed = self.settings.ensemble_size, derived_seed(self.seed, _ENSEMBLE)
        return Ensemble(size, ClassifierSettings.quick(), seed, self.device)

    def _build_diffusion(self) -> LatentDiffusion:
        chosen = self.settings
        return small_latent_diffusion(
            self.hook_shape,
            len(self.joint_classes_),
            latent=chosen.latent_size,
            widths=chosen.autoencoder_widths,
            width=chosen.width,
            blocks=chosen.blocks,
            seed=derived_seed(self.seed, _DIFFUSION),
        ).to(self.device)

    def _state(self) -> dict[str, np.ndarray]:
        networks = self.diffusion_.state_dict()
        return {
            "joint_classes": self.joint_classes_,
            **{f"diffusion.{name}": value.cpu().numpy() for name, value in networks.items()},
            **{f"ensemble.{name}": value for name, value in self.ensemble_.state().items()},
        }

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.joint_classes_ = state["joint_classes"]
        networks = part_of(state, "diffusion.")
        self.diffusion_ = self._build_diffusion().eval()
        self.diffusion_.load_state_dict(
            {name: torch.from_numpy(value) for name, value in networks.items()}
        )
        self.ensemble_ = self._build_ensemble().restore(
            part_of(state, "ensemble."), self.hook_shape, len(self.joint_classes_)
        )
