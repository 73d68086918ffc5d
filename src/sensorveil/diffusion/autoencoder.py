"""Variational autoencoders: windows to a few latents and back (CLOAK, sections IV-A and V-C).

Three of them, behind one class: dense layers (the paper's for signals), convolutions on a grid of
latents (the paper's for grey images, section V-A5), and a small one of convolutions, which is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import nn

from sensorveil.errors import Refusal
from sensorveil.train import Checkpoint, Gather, TrainConfig, seeded, train_network

_PIECE = 2048
_DRAWN = 8192
"""Windows that principal components are taken from, at most."""
_PLACES = 64
"""The most places that dense layers lead to and from."""
_BEYOND = 10
"""Components that are sketched beyond those asked for, so that the last of these are exact too."""
_SURE = -6.0
"""The log-variance at the start where latents are good from the start."""


class Autoencoder(nn.Module):
    """An encoder to mean and log-variance of the latents, equation (4), and a decoder.

    Once trained, `measure` learns the mean of each channel of the latents and one deviation for
    all, and from then on `latents` and `windows` speak of latents in these units: diffusion levels
    are made for data of variance 1, and a KL divergence of weight 1e-6 leaves latents at any. With
    one deviation, latents that matter little stay small, and the generator is not asked for more
    of them than what comes out needs.
    """

    centre: torch.Tensor
    spread: torch.Tensor

    def __init__(
        self,
        body: nn.Module,
        mean: nn.Module,
        log_variance: nn.Module,
        decoder: nn.Module,
        latent: tuple[int, ...],
    ) -> None:
        super().__init__()
        self.body, self.mean, self.log_variance, self.decoder = body, mean, log_variance, decoder
        self.latent = latent
        single = (latent[0],) + (1,) * (len(latent) - 1)
        self.register_buffer("centre", torch.zeros(single))
        self.register_buffer("spread", torch.ones(()))

    def encode(self, signal: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log-variance of the latents: (n, *latent) each, not in standard units."""
        seen = self.body(signal)
        return self.mean(seen), self.log_variance(seen)

    def forward(self, signal: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What is left of windows after both ways, with latents drawn; mean and log-variance."""
        mean, log_variance = self.encode(signal)
        drawn = mean + torch.randn_like(mean) * (log_variance / 2).exp()  # equation (4)
        return self.decoder(drawn), mean, log_variance

    @torch.no_grad()
    def measure(self, gather: Gather, count: int) -> None:
        """Learns the units of the latents from `count` windows."""
        self.centre.zero_()
        self.spread.fill_(1.0)
        axes = [0, *range(2, len(self.latent) + 1)]
        seen = self._all_latents(gather, count)
        self.centre.copy_(seen.mean(axes).view_as(self.centre))
        self.spread.copy_((seen - self.centre).square().mean().sqrt().clamp(min=1e-6))

    def latents(self, signal: torch.Tensor) -> torch.Tensor:
        """The latents of windows, in standard units: the mean alone, as the paper takes it."""
        return (self.encode(signal)[0] - self.centre) / self.spread

    def windows(self, latents: torch.Tensor) -> torch.Tensor:
        """Windows out of latents in standard units."""
        decoded: torch.Tensor = self.decoder(latents * self.spread + self.centre)
        return decoded

    @torch.no_grad()
    def _all_latents(self, gather: Gather, count: int) -> torch.Tensor:
        places = torch.arange(count, device=self.centre.device)
        return torch.cat([self.latents(gather(part)) for part in places.split(_PIECE)])


def dense_autoencoder(
    shape: tuple[int, ...], latent: int = 60, sizes: Sequence[int] = (2048, 2048, 1024, 512)
) -> Autoencoder:
    """Section V-C: four dense layers each way, and dense ones to mean and log-variance.

    Its decoder has the 7.38 million parameters of table VI on windows of 2 x 128.

    >>> net = dense_autoencoder((2, 16), latent=4, sizes=(32, 8))
    >>> net.latents(torch.zeros(5, 2, 16)).shape, net.windows(torch.zeros(5, 4)).shape
    (torch.Size([5, 4]), torch.Size([5, 2, 16]))
    """
    ends = math.prod(shape)
    return Autoencoder(
        nn.Sequential(nn.Flatten(), *_dense((ends, *sizes)), nn.ReLU()),
        nn.Linear(sizes[-1], latent),
        nn.Linear(sizes[-1], latent),
        nn.Sequential(*_dense((latent, *reversed(sizes), ends)), nn.Unflatten(1, shape)),
        (latent,),
    )


def grid_autoencoder(
    shape: tuple[int, ...],
    channels: int = 8,
    widths: Sequence[int] = (128, 256, 512),
    patch: int = 5,
) -> Autoencoder:
    """Section V-A5: three convolutions with batch normalisation; 80 x 80 becomes 8 x 16 x 16.

    The first convolution steps over patches of 5 x 5 that do not overlap. The paper says that the
    decoder is symmetric.

    >>> net = grid_autoencoder((1, 80, 80), widths=(4, 6, 8))
    >>> net.latents(torch.zeros(3, 1, 80, 80)).shape, net.windows(torch.zeros(3, 8, 16, 16)).shape
    (torch.Size([3, 8, 16, 16]), torch.Size([3, 1, 80, 80]))
    """
    if len(shape) != 3 or any(side % patch for side in shape[1:]):
        raise Refusal(f"a grid of latents needs images whose sides {patch} divides, not {shape}")
    if len(widths) != 3:
        raise Refusal(f"a grid of latents needs three convolutions, not {len(widths)}")
    first, second, third = widths
    body = nn.Sequential(
        nn.Conv2d(shape[0], first, patch, patch, bias=False), *_normed(first),
        nn.Conv2d(first, second, 3, padding=1, bias=False), *_normed(second),
        nn.Conv2d(second, third, 3, padding=1, bias=False), *_normed(third),
    )  # fmt: skip
    decoder = nn.Sequential(
        nn.Conv2d(channels, third, 3, padding=1, bias=False), *_normed(third),
        nn.Conv2d(third, second, 3, padding=1, bias=False), *_normed(second),
        nn.Conv2d(second, first, 3, padding=1, bias=False), *_normed(first),
        nn.ConvTranspose2d(first, shape[0], patch, patch),
    )  # fmt: skip
    return Autoencoder(
        body,
        nn.Conv2d(third, channels, 3, padding=1),
        nn.Conv2d(third, channels, 3, padding=1),
        decoder,
        (channels, *(side // patch for side in shape[1:])),
    )


def convolutional_autoencoder(
    shape: tuple[int, ...], latent: int = 60, widths: Sequence[int] = (32, 64)
) -> Autoencoder:
    """Convolutions that halve all sides, beside a linear way; the same two ways back.

    For signals (channels, length) and images (channels, height, width) of any size: where more than
    64 places are left, they are halved further at the last width. It starts with the linear ways
    alone, which `start_linear` sets to the principal components: from few windows convolutions by
    themselves learn no better latents than these, and beside them they add a little. No bias
    stands before a batch normalisation, which would take it out again.

    >>> net = convolutional_autoencoder((2, 30), latent=4, widths=(8, 16))
    >>> net.latents(torch.zeros(5, 2, 30)).shape, net.windows(torch.zeros(5, 4)).shape
    (torch.Size([5, 4]), torch.Size([5, 2, 30]))
    """
    flat, ends = len(shape) == 3, math.prod(shape)
    convolution = nn.Conv2d if flat else nn.Conv1d
    reach = 3 if flat else 5
    sides, widths = _halved(shape[1:], widths)
    down: list[nn.Module] = []
    for before, after in pairwise((shape[0], *widths)):
        down.append(convolution(before, after, reach, 2, padding=reach // 2, bias=False))
        down += _normed(after, flat)
    smallest = (widths[-1], *sides.pop())
    size = math.prod(smallest)
    up: list[nn.Module] = [nn.Linear(latent, size), nn.Unflatten(1, smallest)]
    for before, after in pairwise((*reversed(widths), widths[0])):
        up.append(nn.Upsample(sides.pop()))
        up.append(convolution(before, after, reach, padding=reach // 2, bias=False))
        up += _normed(after, flat)
    up.append(convolution(widths[0], shape[0], reach, padding=reach // 2))
    straight = nn.Sequential(nn.Flatten(), nn.Linear(ends, latent))
    back = nn.Sequential(nn.Linear(latent, ends), nn.Unflatten(1, shape))
    mean = nn.Linear(latent + size, latent)
    log_variance = nn.Linear(latent + size, latent)
    for weight in (mean.weight, mean.bias, log_variance.weight, *up[-1].parameters()):
        nn.init.zeros_(weight)
    nn.init.eye_(mean.weight[:, :latent].detach())
    nn.init.constant_(log_variance.bias, _SURE)
    return Autoencoder(
        _Joined(straight, nn.Sequential(*down, nn.Flatten())),
        mean,
        log_variance,
        _Added(back, nn.Sequential(*up)),
        (latent,),
    )


@torch.no_grad()
def start_linear(net: Autoencoder, gather: Gather, count: int, seed: int) -> None:
    """Sets the linear ways of a `convolutional_autoencoder` to the first principal components.

    All are scaled alike, to a mean variance of 1. Of many windows some are drawn.
    """
    assert isinstance(net.body, _Joined)
    assert isinstance(net.decoder, _Added)
    there, back = cast(nn.Linear, net.body.first[1]), cast(nn.Linear, net.decoder.first[0])
    with seeded(seed):
        drawn = torch.randperm(count)[:_DRAWN].to(net.centre.device)
        rows = gather(drawn).flatten(1)
        middle = rows.mean(0)
        rank = min(net.latent[0], *rows.shape)
        sketch = min(rank + _BEYOND, *rows.shape)
        _, sizes, directions = torch.svd_lowrank(rows - middle, sketch, niter=4)
    directions = directions[:, :rank]
    scale = (sizes[:rank].square().mean() / len(rows)).sqrt().clamp(min=1e-6)
    # Where there are fewer components than latents, the other latents start at nothing.
    for weight in (there.weight, back.weight):
        weight.zero_()
    there.weight[:rank] = directions.T / scale
    there.bias.copy_(-(there.weight @ middle))
    back.weight[:, :rank] = directions * scale
    back.bias.copy_(middle)


class _Joined(nn.Module):
    """What two networks make of the same input, side by side."""

    def __init__(self, first: nn.Sequential, second: nn.Sequential) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.first(x), self.second(x)], dim=1)


class _Added(nn.Module):
    """What two networks make of the same input, added up."""

    def __init__(self, first: nn.Sequential, second: nn.Sequential) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = self.first(x) + self.second(x)
        return total


def divergence(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """KL(N(mean, variance) || N(0, 1)) of each window, in nats: (n,).

    >>> divergence(torch.zeros(2, 3), torch.zeros(2, 3))
    tensor([0., 0.])
    """
    each = mean.square() + log_variance.exp() - 1 - log_variance
    return each.flatten(1).sum(1) / 2


def train_autoencoder(
    net: Autoencoder,
    gather: Gather,
    count: int,
    weight: float,
    course: TrainConfig,
    seed: int,
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """The mean squared error, and the KL divergence by its weight (section V-D: 1e-6).

    The paper does not say whether errors are added or averaged over the numbers of a window; here
    they are averaged, and the divergence is added up over the latents.
    """

    def loss(index: torch.Tensor) -> torch.Tensor:
        signal = gather(index)
        rebuilt, mean, log_variance = net(signal)
        told = divergence(mean.float(), log_variance.float()).mean()
        return nn.functional.mse_loss(rebuilt.float(), signal) + weight * told

    device = net.centre.device
    losses = train_network("autoencoder", net, loss, count, course, seed, device, checkpoint)
    net.measure(gather, count)
    return losses


def _dense(sizes: Sequence[int]) -> list[nn.Module]:
    """Dense layers with ReLU between them, and none after the last."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers[:-1]


def _halved(
    sides: tuple[int, ...], widths: Sequence[int]
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Sides after each halving, rounded up, and the width of each.

    >>> _halved((128,), (16, 32))
    ([(128,), (64,), (32,)], [16, 32])
    >>> _halved((40, 20), (16, 32))
    ([(40, 20), (20, 10), (10, 5)], [16, 32])
    """
    all_sides, all_widths = [sides], list[int]()
    while len(all_widths) < len(widths) or math.prod(all_sides[-1]) > _PLACES:
        all_sides.append(tuple(-(-side // 2) for side in all_sides[-1]))
        all_widths.append(widths[min(len(all_widths), len(widths) - 1)])
    return all_sides, all_widths


def _normed(width: int, flat: bool = True) -> list[nn.Module]:
    return [nn.BatchNorm2d(width) if flat else nn.BatchNorm1d(width), nn.ReLU()]
