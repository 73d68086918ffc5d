"""Latent diffusion: an autoencoder, and a denoiser that makes its latents from noise."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from sensorveil.diffusion.autoencoder import (
    Autoencoder,
    convolutional_autoencoder,
    train_autoencoder,
)
from sensorveil.diffusion.guidance import classifier_free
from sensorveil.diffusion.mlp import ResidualMLP
from sensorveil.diffusion.samplers import SAMPLERS
from sensorveil.diffusion.schedule import NoiseSchedule
from sensorveil.diffusion.training import (
    VelocityDenoiser,
    autocast_bf16,
    fixed_noise_losses,
    train_denoiser,
)
from sensorveil.train import Checkpoint, Gather, TrainConfig, derived_seed, seeded


class LatentDiffusion(nn.Module):
    """Windows from conditions and noise, by way of latents (CLOAK, section IV-A).

    Parameters
    ----------
    autoencoder
        Windows to latents and back.
    denoiser
        Predicts the noise in latents, given the timestep and a condition.
    schedule
        The noise schedule; linear with 1,000 timesteps if not given.

    Examples
    --------
    >>> signal = torch.randn(64, 2, 16)
    >>> conditions = torch.eye(2)[torch.arange(64) % 2]
    >>> model = small_latent_diffusion((2, 16), condition=2, latent=8, seed=0)
    >>> config = TrainConfig(epochs=1, batch_size=16, learning_rate=1e-3)
    >>> losses = model.fit_autoencoder(signal.__getitem__, 64, config, seed=0)
    >>> losses = model.fit_denoiser(signal.__getitem__, conditions, config, seed=0)
    >>> model.decode(model.sample(torch.eye(2), torch.randn(2, 8), guidance_scale=2.0)).shape
    torch.Size([2, 2, 16])
    """

    low: torch.Tensor
    high: torch.Tensor

    def __init__(
        self,
        autoencoder: Autoencoder,
        denoiser: nn.Module,
        schedule: NoiseSchedule | None = None,
    ) -> None:
        super().__init__()
        self.autoencoder, self.denoiser = autoencoder, denoiser
        self.schedule = schedule or NoiseSchedule.linear()
        self.register_buffer("low", torch.zeros_like(autoencoder.center))
        self.register_buffer("high", torch.zeros_like(autoencoder.center))

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """The shape of one window's latents."""
        return self.autoencoder.latent_shape

    def fit_autoencoder(
        self,
        gather: Gather,
        count: int,
        config: TrainConfig,
        seed: int,
        kl_weight: float = 1e-6,
        checkpoint: Checkpoint | None = None,
    ) -> list[float]:
        """Train the autoencoder on `count` windows; returns the loss of each epoch."""
        return train_autoencoder(
            self.autoencoder, gather, count, kl_weight, config, seed, checkpoint
        )

    def fit_denoiser(
        self,
        gather: Gather,
        conditions: torch.Tensor,
        config: TrainConfig,
        seed: int,
        *,
        dropout: float = 0.1,
        ema_decay: float = 0.998,
        checkpoint: Checkpoint | None = None,
    ) -> list[float]:
        """Train the denoiser on the windows' latents, given their conditions (n, d).

        The autoencoder must be trained. Averaged weights replace the denoiser's. Returns the loss
        of each epoch; see `train_denoiser` for `dropout` and `ema_decay`.
        """
        latents = self.autoencoder.all_latents(gather, len(conditions))
        axes = [0, *range(2, latents.ndim)]
        self.low.copy_(latents.amin(axes).view_as(self.low))
        self.high.copy_(latents.amax(axes).view_as(self.high))
        self.denoiser, losses = train_denoiser(
            self.denoiser,
            latents.__getitem__,
            conditions,
            self.schedule,
            config,
            seed,
            dropout=dropout,
            ema_decay=ema_decay,
            checkpoint=checkpoint,
        )
        return losses

    def fixed_noise_losses(self, gather: Gather, conditions: torch.Tensor) -> torch.Tensor:
        """The denoiser's loss on the latents of windows at fixed noise, (n,)."""
        latents = self.autoencoder.all_latents(gather, len(conditions))
        return fixed_noise_losses(self.denoiser, latents.__getitem__, conditions, self.schedule)

    def encode(self, signal: torch.Tensor) -> torch.Tensor:
        """Windows to latents in standard units."""
        return self.autoencoder.latents(signal)

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """Latents in standard units to windows."""
        return self.autoencoder.windows(latents)

    @torch.no_grad()
    def sample(
        self,
        condition: torch.Tensor,
        noise: torch.Tensor,
        guidance_scale: torch.Tensor | float,
        sampler: str = "dpm-solver++",
        steps: int = 10,
    ) -> torch.Tensor:
        """Latents for conditions.

        Parameters
        ----------
        condition
            One for each window, (n, d).
        noise
            Standard normal numbers, (n, *latent_shape). A `ResidualMLP` takes several for each
            window too: (n, candidates, latent).
        guidance_scale
            w of `classifier_free`; 0 is the conditional prediction alone.
        sampler, steps
            A name in `SAMPLERS`, and how often it asks the denoiser.

        Returns
        -------
        torch.Tensor
            Latents in standard units, of the shape of `noise`.
        """
        z, solver = noise, SAMPLERS[sampler](self.schedule, steps)
        denoiser = autocast_bf16(self.denoiser)
        for t, t_next in solver:
            epsilon = classifier_free(denoiser, z, t, condition, guidance_scale)
            # Strong guidance points to latents that no window has: they are held within the range.
            clean = self.schedule.to_clean(z, epsilon, t).clamp(self.low, self.high)
            z = solver.step(z, clean, t, t_next)
        return z


def small_latent_diffusion(
    shape: tuple[int, ...],
    condition: int,
    *,
    latent: int = 60,
    widths: Sequence[int] = (32, 64),
    width: int = 192,
    blocks: int = 3,
    timesteps: int = 1000,
    seed: int = 0,
) -> LatentDiffusion:
    """A latent diffusion for two cores: a convolutional autoencoder and a residual MLP.

    Parameters
    ----------
    shape, condition
        The shape of one window, and how many numbers a condition has.
    latent, widths
        Numbers in the latents, and the autoencoder's channels.
    width, blocks
        Of the residual MLP.
    timesteps
        Of the noise schedule.
    seed
        Of the initial weights.
    """
    schedule = NoiseSchedule.linear(timesteps)
    with seeded(derived_seed(seed, 1)):
        autoencoder = convolutional_autoencoder(shape, latent, widths)
    with seeded(derived_seed(seed, 2)):
        network = ResidualMLP(latent, condition, width, blocks)
    return LatentDiffusion(autoencoder, VelocityDenoiser(network, schedule), schedule)
