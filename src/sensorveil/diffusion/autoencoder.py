"""Variational autoencoders: windows to a few latents and back (CLOAK, sections IV-A and V-C).

Three builders of one class: dense layers (the paper's for signals), convolutions on a grid of
latents (the paper's for images), and small convolutions beside a linear map, which is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import nn

from sensorveil.diffusion.batched import applied
from sensorveil.errors import Refusal
from sensorveil.train import Checkpoint, Gather, TrainConfig, seeded, train_network
from sensorveil.vae import kl_divergence, reparameterise

_MAX_PCA_WINDOWS = 8192
_MAX_PLACES = 64
"""The most places between the convolutions and the dense layers."""
_OVERSAMPLING = 10
"""Extra components of the sketch, so that the last wanted ones are exact too."""
_SMALL_LOG_VARIANCE = -6.0
"""Where the log-variance starts if the latents are good from the start."""


class Autoencoder(nn.Module):
    """An encoder to mean and log-variance of the latents, equation (4) of CLOAK, and a decoder.

    After training, `latents` and `windows` have latents in standard units: noise schedules are made
    for data of variance 1, and a KL divergence of weight 1e-6 leaves them at any. Each channel has
    a mean of its own and all have one deviation, so that latents that matter little stay small.

    Parameters
    ----------
    body, mean, log_variance
        The encoder: layers that both heads share, and the heads.
    decoder
        Latents to windows.
    latent_shape
        The shape of one window's latents.
    """

    center: torch.Tensor
    deviation: torch.Tensor

    def __init__(
        self,
        body: nn.Module,
        mean: nn.Module,
        log_variance: nn.Module,
        decoder: nn.Module,
        latent_shape: tuple[int, ...],
    ) -> None:
        super().__init__()
        self.body, self.mean, self.log_variance, self.decoder = body, mean, log_variance, decoder
        self.latent_shape = latent_shape
        self.register_buffer("center", torch.zeros(latent_shape[0], *[1] * (len(latent_shape) - 1)))
        self.register_buffer("deviation", torch.ones(()))

    def encode(self, signal: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log-variance of the latents, not in standard units: (n, *latent_shape) each."""
        hidden = self.body(signal)
        return self.mean(hidden), self.log_variance(hidden)

    def forward(self, signal: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Reconstructed windows with latents drawn; mean and log-variance."""
        mean, log_variance = self.encode(signal)
        z = reparameterise(mean, log_variance, torch.randn_like(mean))
        return self.decoder(z), mean, log_variance

    def latents(self, signal: torch.Tensor) -> torch.Tensor:
        """Latents in standard units: the mean alone, as the paper takes it."""
        return (self.encode(signal)[0] - self.center) / self.deviation

    def windows(self, latents: torch.Tensor) -> torch.Tensor:
        """Windows from latents in standard units."""
        decoded: torch.Tensor = self.decoder(latents * self.deviation + self.center)
        return decoded

    def all_latents(self, gather: Gather, count: int) -> torch.Tensor:
        """The latents of `count` windows in standard units, (count, *latent_shape)."""
        return applied(self.latents, gather, count, str(self.center.device))

    @torch.no_grad()
    def set_units(self, gather: Gather, count: int) -> None:
        """Learn the standard units of the latents from `count` windows."""
        self.center.zero_()
        self.deviation.fill_(1.0)
        latents = self.all_latents(gather, count)
        axes = [0, *range(2, latents.ndim)]
        self.center.copy_(latents.mean(axes).view_as(self.center))
        self.deviation.copy_((latents - self.center).square().mean().sqrt().clamp(min=1e-6))


def dense_autoencoder(
    shape: tuple[int, ...], latent: int = 60, hidden_sizes: Sequence[int] = (2048, 2048, 1024, 512)
) -> Autoencoder:
    """Section V-C: four dense layers each way, and dense ones to mean and log-variance.

    Its decoder has the 7.38 million parameters of table VI on windows of 2 x 128.

    >>> net = dense_autoencoder((2, 16), latent=4, hidden_sizes=(32, 8))
    >>> net.latents(torch.zeros(5, 2, 16)).shape, net.windows(torch.zeros(5, 4)).shape
    (torch.Size([5, 4]), torch.Size([5, 2, 16]))
    """
    numbers = math.prod(shape)
    return Autoencoder(
        nn.Sequential(nn.Flatten(), *_dense((numbers, *hidden_sizes)), nn.ReLU()),
        nn.Linear(hidden_sizes[-1], latent),
        nn.Linear(hidden_sizes[-1], latent),
        nn.Sequential(*_dense((latent, *reversed(hidden_sizes), numbers)), nn.Unflatten(1, shape)),
        (latent,),
    )


def grid_autoencoder(
    shape: tuple[int, ...], channels: int = 8, widths: Sequence[int] = (128, 256, 512)
) -> Autoencoder:
    """Section V-A5: three convolutions with batch normalisation; 80 x 80 becomes 8 x 16 x 16.

    The first convolution steps over patches of 5 x 5 that do not overlap, or of the next smaller
    size that divides both sides. The paper says that the decoder is symmetric.

    >>> net = grid_autoencoder((1, 80, 80), widths=(4, 6, 8))
    >>> net.latents(torch.zeros(3, 1, 80, 80)).shape, net.windows(torch.zeros(3, 8, 16, 16)).shape
    (torch.Size([3, 8, 16, 16]), torch.Size([3, 1, 80, 80]))
    """
    if len(shape) != 3 or len(widths) != 3:
        raise Refusal(f"a grid of latents needs images and three widths, not {shape} and {widths}")
    patch = next(size for size in (5, 4, 3, 2, 1) if not any(side % size for side in shape[1:]))
    first, second, third = widths
    body = nn.Sequential(
        nn.Conv2d(shape[0], first, patch, patch, bias=False), *_normed(first, 2),
        nn.Conv2d(first, second, 3, padding=1, bias=False), *_normed(second, 2),
        nn.Conv2d(second, third, 3, padding=1, bias=False), *_normed(third, 2),
    )  # fmt: skip
    decoder = nn.Sequential(
        nn.Conv2d(channels, third, 3, padding=1, bias=False), *_normed(third, 2),
        nn.Conv2d(third, second, 3, padding=1, bias=False), *_normed(second, 2),
        nn.Conv2d(second, first, 3, padding=1, bias=False), *_normed(first, 2),
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
    """Convolutions that halve all sides, beside a linear map; the same two on the way back.

    For signals (channels, length) and images (channels, height, width) of any size. Training starts
    with the linear maps alone, set to the principal components: from few windows convolutions by
    themselves learn no better latents than these, and beside them they add a little.

    >>> net = convolutional_autoencoder((2, 30), latent=4, widths=(8, 16))
    >>> net.latents(torch.zeros(5, 2, 30)).shape, net.windows(torch.zeros(5, 4)).shape
    (torch.Size([5, 4]), torch.Size([5, 2, 30]))
    """
    dims, numbers = len(shape) - 1, math.prod(shape)
    convolution = nn.Conv2d if dims == 2 else nn.Conv1d
    kernel = 3 if dims == 2 else 5
    sides, widths = _halved(shape[1:], widths)
    down: list[nn.Module] = []
    for before, after in pairwise((shape[0], *widths)):
        down.append(convolution(before, after, kernel, 2, padding=kernel // 2, bias=False))
        down += _normed(after, dims)
    smallest = (widths[-1], *sides.pop())
    size = math.prod(smallest)
    up: list[nn.Module] = [nn.Linear(latent, size), nn.Unflatten(1, smallest)]
    for before, after in pairwise((*reversed(widths), widths[0])):
        up.append(nn.Upsample(sides.pop()))
        up.append(convolution(before, after, kernel, padding=kernel // 2, bias=False))
        up += _normed(after, dims)
    up.append(convolution(widths[0], shape[0], kernel, padding=kernel // 2))
    mean, log_variance = nn.Linear(latent + size, latent), nn.Linear(latent + size, latent)
    for weight in (mean.weight, mean.bias, log_variance.weight, *up[-1].parameters()):
        nn.init.zeros_(weight)  # the convolutions add nothing at first
    nn.init.eye_(mean.weight[:, :latent].detach())
    nn.init.constant_(log_variance.bias, _SMALL_LOG_VARIANCE)
    linear_encoder = nn.Sequential(nn.Flatten(), nn.Linear(numbers, latent))
    linear_decoder = nn.Sequential(nn.Linear(latent, numbers), nn.Unflatten(1, shape))
    return Autoencoder(
        _Concatenated(linear_encoder, nn.Sequential(*down, nn.Flatten())),
        mean,
        log_variance,
        _Sum(linear_decoder, nn.Sequential(*up)),
        (latent,),
    )


@torch.no_grad()
def start_from_principal_components(
    net: Autoencoder, gather: Gather, count: int, seed: int
) -> None:
    """Set the linear maps of a `convolutional_autoencoder` to the first principal components.

    All are scaled alike, to a mean variance of 1. Where there are fewer components than latents,
    the other latents start at zero.
    """
    assert isinstance(net.body, _Concatenated)
    assert isinstance(net.decoder, _Sum)
    encoder = cast(nn.Linear, net.body.first[1])
    decoder = cast(nn.Linear, net.decoder.first[0])
    with seeded(seed):
        index = torch.randperm(count)[:_MAX_PCA_WINDOWS].to(net.center.device)
        rows = gather(index).flatten(1)
        middle = rows.mean(0)
        rank = min(net.latent_shape[0], *rows.shape)
        sketch = min(rank + _OVERSAMPLING, *rows.shape)
        _, sizes, directions = torch.svd_lowrank(rows - middle, sketch, niter=4)
    directions = directions[:, :rank]
    scale = (sizes[:rank].square().mean() / len(rows)).sqrt().clamp(min=1e-6)
    for weight in (encoder.weight, decoder.weight):
        weight.zero_()
    encoder.weight[:rank] = directions.T / scale
    encoder.bias.copy_(-(encoder.weight @ middle))
    decoder.weight[:, :rank] = directions * scale
    decoder.bias.copy_(middle)


def train_autoencoder(
    net: Autoencoder,
    gather: Gather,
    count: int,
    kl_weight: float,
    config: TrainConfig,
    seed: int,
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Mean squared error plus `kl_weight` times the KL divergence (section V-D: 1e-6).

    The paper does not say whether errors are added or averaged over the numbers of a window; here
    they are averaged, and the divergence is added over the latents. A `convolutional_autoencoder`
    starts from the principal components. Returns the loss of each epoch.
    """
    if isinstance(net.body, _Concatenated):
        start_from_principal_components(net, gather, count, seed)

    def loss(index: torch.Tensor) -> torch.Tensor:
        signal = gather(index)
        reconstructed, mean, log_variance = net(signal)
        divergence = kl_divergence(mean.float().flatten(1), log_variance.float().flatten(1)).mean()
        return nn.functional.mse_loss(reconstructed.float(), signal) + kl_weight * divergence

    device = net.center.device
    losses = train_network("autoencoder", net, loss, count, config, seed, device, checkpoint)
    net.set_units(gather, count)
    return losses


class _Concatenated(nn.Module):
    """The outputs of two networks for the same input, side by side."""

    def __init__(self, first: nn.Sequential, second: nn.Sequential) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.first(x), self.second(x)], dim=1)


class _Sum(nn.Module):
    """The sum of the outputs of two networks for the same input."""

    def __init__(self, first: nn.Sequential, second: nn.Sequential) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = self.first(x) + self.second(x)
        return total


def _dense(sizes: Sequence[int]) -> list[nn.Module]:
    """Dense layers with ReLU between them, and none after the last."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers[:-1]


def _halved(
    sides: tuple[int, ...], widths: Sequence[int]
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Sides before and after each halving, rounded up, and the width of each.

    There are as many as widths, or more at the last width, until few places are left.

    >>> _halved((128,), (16, 32))
    ([(128,), (64,), (32,)], [16, 32])
    """
    all_sides, all_widths = [sides], list[int]()
    while len(all_widths) < len(widths) or math.prod(all_sides[-1]) > _MAX_PLACES:
        all_sides.append(tuple(-(-side // 2) for side in all_sides[-1]))
        all_widths.append(widths[min(len(all_widths), len(widths) - 1)])
    return all_sides, all_widths


def _normed(width: int, dims: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(width) if dims == 2 else nn.BatchNorm1d(width), nn.ReLU()]
