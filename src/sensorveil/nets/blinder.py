"""Blinder's networks and losses: one autoencoder for all kept classes, told kept and hidden ones.

Yang and Ardakanian, Blinder (2022), section 4: an encoder gives mean and log-variance of a code Z,
the decoder sees Z beside the hidden and the kept class, and a discriminator for each hidden
attribute tries to read it from Z alone. Losses are functions of the weights, so that they can be
differentiated through steps of training (`nets/meta.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.func import functional_call

from sensorveil.files import part_of
from sensorveil.nets.factorised import ERROR_WEIGHT, SCALE, divergence, sampled

Weights = Mapping[str, torch.Tensor]
"""The weights of a `BlinderNets` by name, as in its state."""

KERNEL, STRIDE = 5, 2


@dataclass(frozen=True)
class BlinderDesign:
    """The shape of the networks.

    `kept` is the number of kept classes, `hidden` that of each hidden attribute. `widths` are the
    encoder's hidden layers, and the decoder has them backwards. With `filters` the first two of
    them are convolutions with that many filters, and the decoder's last two layers are transposed
    convolutions, as in the paper on MotionSense. `discriminator` are the layers of each
    discriminator.
    """

    channels: int
    length: int
    kept: int
    hidden: tuple[int, ...]
    widths: tuple[int, ...] = (512, 512, 256, 128)
    filters: tuple[int, ...] = ()
    latent: int = 25
    discriminator: tuple[int, ...] = (128, 128)


class Batch(NamedTuple):
    """Windows (n, channels, length), their kept and hidden classes one-hot, noise (n, latent)."""

    windows: torch.Tensor
    kept: torch.Tensor
    hidden: torch.Tensor
    noise: torch.Tensor


@dataclass(frozen=True)
class LossWeights:
    """Equation (4): alpha weighs the reconstruction, beta the divergence, gamma the discriminators.

    The scale of the terms is that of the authors' code, as in ObscureNet (`nets/factorised.py`).
    """

    alpha: float = 0.9
    beta: float = 2.0
    gamma: float = 0.2


class BlinderNets(nn.Module):
    """Encoder, decoder and discriminators.

    >>> design = BlinderDesign(channels=2, length=31, kept=4, hidden=(2, 3), filters=(8, 16))
    >>> nets = BlinderNets(design)
    >>> mu, logvar = nets.encode(torch.zeros(5, 2, 31))
    >>> nets.decode(mu, hidden=torch.zeros(5, 5), kept=torch.zeros(5, 4)).shape
    torch.Size([5, 2, 31])
    """

    def __init__(self, design: BlinderDesign) -> None:
        super().__init__()
        self.design = design
        seen = design.latent + sum(design.hidden) + design.kept
        if design.filters:
            self.encoder, self.decoder = _convolutional(design, seen)
        else:
            self.encoder, self.decoder = _dense(design, seen)
        self.discriminators = nn.ModuleList(
            _layers((design.latent, *design.discriminator, classes)) for classes in design.hidden
        )

    def encode(self, windows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log-variance of the code: (n, latent) each."""
        mu, logvar = self.encoder(windows).chunk(2, dim=-1)
        return mu, logvar

    def decode(self, z: torch.Tensor, hidden: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        """Windows out of codes, the hidden classes and the kept class (Z, Y and Y-bar)."""
        made: torch.Tensor = self.decoder(torch.cat([z, hidden, kept], dim=-1))
        return made


def _layers(sizes: tuple[int, ...]) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _dense(design: BlinderDesign, seen: int) -> tuple[nn.Sequential, nn.Sequential]:
    numbers, code = design.channels * design.length, 2 * design.latent
    encoder = nn.Sequential(nn.Flatten(), *_layers((numbers, *design.widths, code)))
    decoder = nn.Sequential(
        *_layers((seen, *design.widths[::-1], numbers)),
        nn.Unflatten(1, (design.channels, design.length)),
    )
    return encoder, decoder


def _convolutional(design: BlinderDesign, seen: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Each convolution halves the length; the transposed ones undo that, odd lengths too."""
    first, second = design.filters
    half = -(-design.length // STRIDE)
    quarter = -(-half // STRIDE)
    pad, widths = KERNEL // 2, design.widths[2:]
    encoder = nn.Sequential(
        nn.Conv1d(design.channels, first, KERNEL, STRIDE, pad),
        nn.ReLU(),
        nn.Conv1d(first, second, KERNEL, STRIDE, pad),
        nn.ReLU(),
        nn.Flatten(),
        *_layers((second * quarter, *widths, 2 * design.latent)),
    )
    decoder = nn.Sequential(
        *_layers((seen, *widths[::-1], second * quarter)),
        nn.ReLU(),
        nn.Unflatten(1, (second, quarter)),
        nn.ConvTranspose1d(second, first, KERNEL, STRIDE, pad, _rest(quarter, half)),
        nn.ReLU(),
        nn.ConvTranspose1d(first, design.channels, KERNEL, STRIDE, pad, _rest(half, design.length)),
    )
    return encoder, decoder


def _rest(before: int, after: int) -> int:
    """What a transposed convolution must add at the end to arrive at that length."""
    return after - (STRIDE * (before - 1) + 1)


def as_channels(signal: torch.Tensor) -> torch.Tensor:
    """Any windows as real (n, channels, length): parts of complex samples, rows of an image.

    >>> as_channels(torch.tensor([[[1 + 2j, 3]]])).tolist()
    [[[1.0, 3.0], [2.0, 0.0]]]
    >>> as_channels(torch.zeros(4, 2, 16, 8)).shape
    torch.Size([4, 32, 8])
    """
    if signal.is_complex():
        signal = torch.cat([signal.real, signal.imag], dim=1)
    return signal.flatten(1, -2)


def encoded(
    nets: BlinderNets, weights: Weights, windows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and log-variance of the codes, by the encoder with these weights."""
    mu, logvar = functional_call(nets.encoder, part_of(weights, "encoder."), windows).chunk(2, -1)
    return mu, logvar


def coder_terms(
    nets: BlinderNets, weights: Weights, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The code Z of equation (1), the squared error and the divergence of equation (2)."""
    mu, logvar = encoded(nets, weights, batch.windows)
    z = sampled(mu, logvar, batch.noise)
    made = decoded(nets, weights, z, batch)
    return z, (made - batch.windows).square().mean(), divergence(mu, logvar)


def decoded(nets: BlinderNets, weights: Weights, z: torch.Tensor, told: Batch) -> torch.Tensor:
    """What the decoder with these weights makes of codes and of the classes it is told."""
    seen = torch.cat([z, told.hidden, told.kept], dim=-1)
    made: torch.Tensor = functional_call(nets.decoder, part_of(weights, "decoder."), seen)
    return made


def surprise(
    nets: BlinderNets, weights: Weights, z: torch.Tensor, hidden: torch.Tensor
) -> torch.Tensor:
    """Equation (3): the cross-entropy of the discriminators, all hidden attributes added up."""
    total = torch.zeros((), dtype=z.dtype, device=z.device)
    parts = hidden.split(nets.design.hidden, dim=-1)
    for which, (reader, truth) in enumerate(zip(nets.discriminators, parts, strict=True)):
        own = part_of(weights, f"discriminators.{which}.")
        total = total - (truth * functional_call(reader, own, z).log_softmax(-1)).sum(-1).mean()
    return total


def coder_loss(
    nets: BlinderNets, coder: Weights, readers: Weights, batch: Batch, scale: LossWeights
) -> torch.Tensor:
    """Equation (4), which the encoder and decoder minimise against these discriminators."""
    z, error, kl = coder_terms(nets, coder, batch)
    return _weighted(error, kl, surprise(nets, readers, z, batch.hidden), scale)


def both_losses(
    nets: BlinderNets, coder: Weights, readers: Weights, batch: Batch, scale: LossWeights
) -> torch.Tensor:
    """Equation (4) for the coder plus equation (3) for the discriminators, each with the other
    held fixed: the gradient of this sum is the descent of both.
    """
    z, error, kl = coder_terms(nets, coder, batch)
    fixed = {name: weight.detach() for name, weight in readers.items()}
    against = _weighted(error, kl, surprise(nets, fixed, z, batch.hidden), scale)
    return against + surprise(nets, readers, z.detach(), batch.hidden)


def _weighted(
    error: torch.Tensor, kl: torch.Tensor, read: torch.Tensor, scale: LossWeights
) -> torch.Tensor:
    return (scale.alpha * ERROR_WEIGHT * error + scale.beta * kl) / SCALE - scale.gamma * read
