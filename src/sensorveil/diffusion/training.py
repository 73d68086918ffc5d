"""What a denoiser is trained on: equations (4) and (6) of PrivDiffuser, (3) and (5) of CLOAK.

Drawing is apart from computing. `denoising_loss` does both. A step that is recorded as a CUDA
graph (`nets/graphs.py`) computes `denoising_losses` from one `Draws` that lies on the device, and
before each replay that one is filled by `copy_` with what was drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from sensorveil.diffusion.schedule import Denoiser, NoiseSchedule, drawn_noise
from sensorveil.train import AveragedWeights, Checkpoint, Gather, TrainConfig, TrainingTarget, train


@dataclass(frozen=True, eq=False)
class Draws:
    """All that is random in the loss of n windows.

    `t` (n,) are their levels, `epsilon` (n, *shape) is their noise, and `kept` says whose condition
    the denoiser is told (n,), or which numbers of it (n, size); where it is told nothing it learns
    the unconditional model.
    """

    t: torch.Tensor
    epsilon: torch.Tensor
    kept: torch.Tensor

    def copy_(self, other: Draws) -> None:
        """Takes over what `other` holds, in place."""
        self.t.copy_(other.t)
        self.epsilon.copy_(other.epsilon)
        self.kept.copy_(other.kept)


def drawn(
    like: torch.Tensor, levels: NoiseSchedule, generator: torch.Generator, dropped: float = 0.3
) -> Draws:
    """Draws for windows of the shape of `like`, on its device, but drawn on the CPU.

    Levels are uniform. A condition is dropped as a whole, with the chance `dropped`: 0.3 in the
    code of PrivDiffuser.

    >>> levels, chance = NoiseSchedule.linear(), torch.Generator().manual_seed(0)
    >>> drawn(torch.zeros(3, 2, 8), levels, chance).t.shape
    torch.Size([3])
    """
    t = torch.randint(len(levels), (len(like),), generator=generator)
    epsilon = drawn_noise(like, generator)
    kept = torch.rand(len(like), generator=generator) >= dropped
    return Draws(t.to(like.device), epsilon, kept.to(like.device))


def denoising_losses(
    denoiser: Denoiser,
    x: torch.Tensor,
    condition: torch.Tensor,
    levels: NoiseSchedule,
    draws: Draws,
) -> torch.Tensor:
    """Equation (6) for each window: the mean squared error of the noise that it predicts, (n,).

    The levels must lie on the device of x; nothing here waits for it.
    """
    told = condition * draws.kept.view(len(x), -1)
    predicted = denoiser(levels.noised(x, draws.epsilon, draws.t), draws.t, told)
    return (draws.epsilon - predicted).square().reshape(len(x), -1).mean(1)


def denoising_loss(
    denoiser: Denoiser,
    x: torch.Tensor,
    condition: torch.Tensor,
    levels: NoiseSchedule,
    generator: torch.Generator,
    dropped: float = 0.3,
) -> torch.Tensor:
    """Equation (6) with noise, levels and dropped conditions drawn from the generator.

    Equation (4), without conditions, is `dropped=1`.

    >>> x = torch.zeros(500, 2, 4)
    >>> untrained = lambda x, t, condition: torch.zeros_like(x)
    >>> chance = torch.Generator().manual_seed(0)
    >>> levels = NoiseSchedule.linear()
    >>> round(float(denoising_loss(untrained, x, torch.ones(500, 3), levels, chance)), 1)
    1.0
    """
    draws = drawn(x, levels, generator, dropped)
    return denoising_losses(denoiser, x, condition, levels, draws).mean()


class FromVelocity(nn.Module):
    """A denoiser whose network gives v of Salimans and Ho (2022); noise is noise_t x + signal_t v.

    Where a network predicts the noise itself, the clean window is wrong by its error times noise_t
    / signal_t, up to 157 on the linear levels. By v it is wrong by the error times noise_t.

    >>> levels = NoiseSchedule.linear()
    >>> silent = FromVelocity(nn.Identity(), levels)
    >>> silent.net.forward = lambda x, t, condition: torch.zeros_like(x)
    >>> silent(torch.ones(1, 2, 4), torch.tensor([999]), torch.zeros(1, 3))[0, 0, 0] > 0.99
    tensor(True)
    """

    signal: torch.Tensor
    noise: torch.Tensor

    def __init__(self, net: nn.Module, levels: NoiseSchedule) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("signal", levels.signal.float(), persistent=False)
        self.register_buffer("noise", levels.noise.float(), persistent=False)

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """The predicted noise, of the shape of x."""
        each = (-1,) + (1,) * (x.ndim - 1)
        signal, noise = self.signal[t].view(each), self.noise[t].view(each)
        return noise * x + signal * self.net(x, t, condition)


def autocast_bf16(net: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The denoiser, or a part of it, in half precision on a GPU."""

    def predict(x: torch.Tensor, *known: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda, cache_enabled=False):
            return net(x, *known).float()

    return predict


def train_denoiser(
    net: nn.Module,
    gather: Gather,
    conditions: torch.Tensor,
    levels: NoiseSchedule,
    course: TrainConfig,
    seed: int,
    *,
    dropped: float,
    decay: float,
    parts: Sequence[int] = (),
    of_velocity: bool = False,
    compiled: bool = False,
    checkpoint: Checkpoint | None = None,
) -> tuple[nn.Module, list[float]]:
    """Equation (6) with conditions (n, size) of which some are dropped; the averaged network.

    Where a condition has several `parts`, of so many numbers each, each is dropped by itself: then
    samples can be led by one of them alone. With `of_velocity` the error of each level is that of
    v (see `FromVelocity`): the noise's, divided by signal_t squared. Then levels of much noise
    count as well.
    """
    weight = levels.signal.float() ** (-2 if of_velocity else 0)
    sizes = parts or (conditions.shape[1],)
    part = torch.repeat_interleave(torch.tensor(sizes)).to(conditions.device)
    averaged, predict = (
        AveragedWeights(net, decay),
        torch.compile(net, dynamic=False) if compiled else net,
    )

    def loss(index: torch.Tensor) -> torch.Tensor:
        x = gather(index)
        # Drawn on the device by the seed of the epoch, as dropout is: a recorded step can do that.
        draws = Draws(
            torch.randint(len(levels), (len(x),), device=x.device),
            torch.randn_like(x),
            (torch.rand(len(x), len(sizes), device=x.device) >= dropped)[:, part],
        )
        losses = denoising_losses(predict, x, conditions[index], levels, draws)
        return (weight[draws.t] * losses).mean()

    player = TrainingTarget(net, loss, after_step=lambda: averaged.update(net))
    (losses,) = train(
        "generator",
        [player],
        len(conditions),
        course,
        seed,
        conditions.device,
        checkpoint,
        extra_state=averaged,
    )
    return averaged.network, losses
