"""How denoisers are trained: equations (4) and (6) of PrivDiffuser, (3) and (5) of CLOAK."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from sensorveil.data.windows import batches
from sensorveil.diffusion.schedule import Denoiser, NoiseSchedule, drawn_noise
from sensorveil.train import (
    AveragedWeights,
    Checkpoint,
    Gather,
    TrainConfig,
    TrainingTarget,
    train,
)


def denoising_loss(
    denoiser: Denoiser,
    clean: torch.Tensor,
    condition: torch.Tensor,
    schedule: NoiseSchedule,
    dropout: float = 0.3,
    velocity: bool = False,
) -> torch.Tensor:
    """Mean squared error of the predicted noise, equation (6) of PrivDiffuser.

    Parameters
    ----------
    clean, condition
        Windows (n, *shape) and their conditions (n, d).
    schedule
        Timesteps are drawn from it, all alike. Its tensors lie on the device of `clean`.
    dropout
        The probability with which a window's condition is set to zero; so the denoiser learns to
        predict without one too, as classifier-free guidance needs. PrivDiffuser's code has 0.3.
    velocity
        Whether the error is that of the velocity v (see `VelocityDenoiser`): that of the noise,
        divided by signal_t squared, so that timesteps of much noise count as well.

    Examples
    --------
    >>> zeros = lambda x, t, condition: torch.zeros_like(x)
    >>> x = torch.zeros(500, 2, 4)
    >>> loss = denoising_loss(zeros, x, torch.ones(500, 3), NoiseSchedule.linear())
    >>> bool(0.8 < loss < 1.2)
    True
    """
    # Drawn on the device, so that a step can be captured as a CUDA graph.
    t = torch.randint(len(schedule), (len(clean),), device=clean.device)
    noise = torch.randn_like(clean)
    kept = torch.rand(len(clean), 1, device=clean.device) >= dropout
    predicted = denoiser(schedule.add_noise(clean, noise, t), t, condition * kept)
    errors = (noise - predicted).square().flatten(1).mean(1)
    return (errors / schedule.signal[t].float() ** 2 if velocity else errors).mean()


class VelocityDenoiser(nn.Module):
    """A denoiser whose network predicts the velocity v: epsilon = noise_t x + signal_t v.

    Salimans and Ho (2022). A network that predicts the noise is wrong about the clean window by its
    error times noise_t / signal_t, up to 157 on the linear schedule; by the velocity it is wrong by
    the error times noise_t.

    Parameters
    ----------
    network
        Called with (x, t, condition).
    schedule
        Must have signal² + noise² = 1.

    Examples
    --------
    >>> silent = VelocityDenoiser(lambda x, t, condition: torch.zeros_like(x), NoiseSchedule.linear())
    >>> silent(torch.ones(1, 2, 4), torch.tensor([999]), torch.zeros(1, 3))[0, 0, 0] > 0.99
    tensor(True)
    """

    signal: torch.Tensor
    noise: torch.Tensor

    def __init__(self, network: Denoiser, schedule: NoiseSchedule) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("signal", schedule.signal.float(), persistent=False)
        self.register_buffer("noise", schedule.noise.float(), persistent=False)

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """The predicted noise, of the shape of x."""
        shape = (-1,) + (1,) * (x.ndim - 1)
        signal, noise = self.signal[t].view(shape), self.noise[t].view(shape)
        return noise * x + signal * self.network(x, t, condition)


def autocast_bf16(network: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The network in bfloat16 on a GPU, unchanged on a CPU; its output is in single precision."""

    def call(x: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda, cache_enabled=False):
            return network(x, *inputs).float()

    return call


FIXED_TIMES = (0.05, 0.1, 0.2, 0.4)
"""Where a fixed-noise loss is taken, as shares of all timesteps: little noise, but not none."""


@torch.no_grad()
def fixed_noise_losses(
    denoiser: Denoiser,
    gather: Gather,
    conditions: torch.Tensor,
    schedule: NoiseSchedule,
    seed: int = 0,
) -> torch.Tensor:
    """The logarithm of each window's denoising loss, mean over `FIXED_TIMES`, (n,).

    Timesteps and noise are the same for all denoisers, so that losses can be compared window by window.

    Parameters
    ----------
    gather, conditions, schedule
        As in `train_denoiser`.
    seed
        Of the noise.

    Examples
    --------
    >>> x, schedule = torch.zeros(3, 2, 4), NoiseSchedule.linear()
    >>> knows = lambda noisy, t, condition: noisy / schedule.noise[t].float().view(-1, 1, 1)
    >>> silent = lambda noisy, t, condition: torch.zeros_like(noisy)
    >>> losses = [
    ...     fixed_noise_losses(one, x.__getitem__, torch.ones(3, 1), schedule)
    ...     for one in (knows, silent)
    ... ]
    >>> bool((losses[0] < losses[1]).all())
    True
    """
    generator, device, found = torch.Generator().manual_seed(seed), conditions.device, []
    schedule, index = schedule.to(device), torch.arange(len(conditions), device=device)
    for rows in batches(len(conditions), size=256):  # of one size on all devices: so is the noise
        clean = gather(index[rows])
        losses = []
        for share in FIXED_TIMES:
            t = torch.full((len(clean),), int(share * len(schedule)), device=device)
            noise = drawn_noise(clean, generator)
            predicted = denoiser(schedule.add_noise(clean, noise, t), t, conditions[rows])
            losses.append((noise - predicted).square().flatten(1).mean(1).clamp(min=1e-30).log())
        found.append(torch.stack(losses).mean(0))
    return torch.cat(found)


def train_denoiser(
    denoiser: nn.Module,
    gather: Gather,
    conditions: torch.Tensor,
    schedule: NoiseSchedule,
    config: TrainConfig,
    seed: int,
    *,
    dropout: float,
    ema_decay: float,
    velocity: bool = False,
    checkpoint: Checkpoint | None = None,
) -> tuple[nn.Module, list[float]]:
    """Train a denoiser and return the one with averaged weights, and the loss of each epoch.

    Parameters
    ----------
    gather
        Gives the clean windows (or latents) at some positions.
    conditions
        One for each window, (n, d), on the device.
    dropout, velocity
        See `denoising_loss`.
    ema_decay
        How much of the average of the weights stays from one step to the next.
    """
    schedule = schedule.to(conditions.device)
    averaged = AveragedWeights(denoiser, ema_decay)

    def loss(index: torch.Tensor) -> torch.Tensor:
        clean, condition = gather(index), conditions[index]
        return denoising_loss(denoiser, clean, condition, schedule, dropout, velocity)

    target = TrainingTarget(denoiser, loss, after_step=lambda: averaged.update(denoiser))
    (losses,) = train(
        "denoiser",
        [target],
        len(conditions),
        config,
        seed,
        conditions.device,
        checkpoint,
        extra_state=averaged,
    )
    return averaged.network, losses
