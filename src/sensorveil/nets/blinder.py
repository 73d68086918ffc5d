"""Blinder's networks and losses: one autoencoder for all kept classes, told kept and hidden ones.

Yang and Ardakanian, Blinder (2022), section 4: an encoder gives mean and log-variance of a code Z,
the decoder sees Z beside the hidden and the kept class, and a discriminator for each hidden
attribute tries to read it from Z alone. Losses are functions of the weights, so that they can be
differentiated through steps of training (`nets/meta.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.func import functional_call

from sensorveil.files import part_of
from sensorveil.nets.factorised import ERROR_WEIGHT, SCALE, divergence, sampled
from sensorveil.nets.witnesses import Witnesses, misread, next_classes

Weights = Mapping[str, torch.Tensor]
"""The weights of a `BlinderNets` by name, as in its state."""

KERNEL, STRIDE = 5, 2
_REACH = 10.0  # Adam moves a weight by its rate, and logarithms have far to go


@dataclass(frozen=True)
class BlinderDesign:
    """The shape of the networks.

    `kept` is the number of kept classes, `hidden` that of each hidden attribute. `widths` are the
    encoder's hidden layers, and the decoder has them backwards. With `filters` the first two of
    them are convolutions with that many filters, and the decoder's last two layers are transposed
    convolutions, as in the paper on MotionSense. `discriminator` are the layers of each
    discriminator. With `texture` the networks learn what the decoder leaves out, too.
    """

    channels: int
    length: int
    kept: int
    hidden: tuple[int, ...]
    widths: tuple[int, ...] = (512, 512, 256, 128)
    filters: tuple[int, ...] = ()
    latent: int = 25
    discriminator: tuple[int, ...] = (128, 128)
    texture: bool = False


class Batch(NamedTuple):
    """Windows (n, channels, length), their kept and hidden classes one-hot, noise (n, latent)."""

    windows: torch.Tensor
    kept: torch.Tensor
    hidden: torch.Tensor
    noise: torch.Tensor


@dataclass(frozen=True, eq=False)
class LossWeights:
    """Equation (4): alpha weighs the reconstruction, beta the divergence, gamma the discriminators.

    The scale of the terms is that of the authors' code, as in ObscureNet (`nets/factorised.py`).
    `errors` (kept classes,) weigh the reconstruction class by class, which is a decoder whose
    P(X|Z,Y,Y-bar) has a variance for each kept class; without them all count alike. Where it is
    `bounded`, the coder gains by the chance of being misread and not by its logarithm, which has no
    bound: where beta is small, codes run away after it. `told` weighs a term of ours: `witnesses`
    must read, in what the decoder makes, the classes that it was told.
    """

    alpha: float = 0.9
    beta: float | torch.Tensor = 2.0
    gamma: float | torch.Tensor = 0.2
    errors: torch.Tensor | None = None
    bounded: bool = False
    told: float | torch.Tensor = 0.0
    witnesses: Witnesses = ()

    def warmed(self, warmth: float | torch.Tensor) -> LossWeights:
        """The same with that much of all but alpha: codes that are young fall silent at once."""
        beta, gamma, told = (warmth * weight for weight in (self.beta, self.gamma, self.told))
        return replace(self, beta=beta, gamma=gamma, told=told)


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
        for part in (self.encoder, self.decoder):
            _draw_for_relu(part)
        self.discriminators = nn.ModuleList(
            _layers((design.latent, *design.discriminator, classes)) for classes in design.hidden
        )
        if design.texture:
            shape = (design.kept, design.channels, design.length // 2 + 1)
            self.texture = nn.Parameter(torch.zeros(shape))

    def encode(self, windows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log-variance of the code: (n, latent) each."""
        mu, logvar = self.encoder(windows).chunk(2, dim=-1)
        return mu, logvar

    def decode(self, z: torch.Tensor, hidden: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        """Windows out of codes, the hidden classes and the kept class (Z, Y and Y-bar)."""
        made: torch.Tensor = self.decoder(torch.cat([z, hidden, kept], dim=-1))
        return made

    def textured(self, made: torch.Tensor, kept: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Windows with normal noise, white as given, of the power that the decoder leaves out."""
        power = log_power(self.texture, kept)
        colour = torch.fft.rfft(noise, norm="ortho") * (power / 2).exp()
        return made + torch.fft.irfft(colour, n=made.shape[-1], norm="ortho")


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


@torch.no_grad()
def _draw_for_relu(part: nn.Sequential) -> None:
    """Draws weights with which signals stay as large from layer to layer (He and others 2015).

    Torch's own make them six times smaller in variance with each layer. After ten layers hardly
    anything of a window is left, and the divergence silences the code before it is heard.
    """
    layers = [
        layer for layer in part if isinstance(layer, nn.Linear | nn.Conv1d | nn.ConvTranspose1d)
    ]
    for layer in layers:
        inputs = layer.weight[0].numel()
        if isinstance(layer, nn.ConvTranspose1d):
            inputs = len(layer.weight) * KERNEL // STRIDE  # each sample hears every other tap
        gain = 1 if layer is layers[-1] else 2
        layer.weight.normal_(std=math.sqrt(gain / inputs))


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


def as_signal(made: torch.Tensor, shape: tuple[int, ...], is_complex: bool) -> torch.Tensor:
    """Undoes `as_channels`, for windows of that shape.

    >>> as_signal(torch.tensor([[[1.0, 3.0], [2.0, 0.0]]]), (1, 2), is_complex=True)
    tensor([[[1.+2.j, 3.+0.j]]])
    """
    if is_complex:
        made = torch.complex(*made.chunk(2, dim=1))
    return made.unflatten(1, shape[:-1])


def encoded(
    nets: BlinderNets, weights: Weights, windows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and log-variance of the codes, by the encoder with these weights."""
    mu, logvar = functional_call(nets.encoder, part_of(weights, "encoder."), windows).chunk(2, -1)
    return mu, logvar


class Terms(NamedTuple):
    """The code Z of equation (1), what the decoder made of it, each window's squared error, the
    divergence of equation (2).
    """

    z: torch.Tensor
    made: torch.Tensor
    errors: torch.Tensor
    kl: torch.Tensor
    texture: torch.Tensor
    """How badly the texture foretells what the decoder leaves out; nothing if there is none."""


def coder_terms(nets: BlinderNets, weights: Weights, batch: Batch) -> Terms:
    """What the coder with these weights makes of a batch."""
    mu, logvar = encoded(nets, weights, batch.windows)
    z = sampled(mu, logvar, batch.noise)
    made = decoded(nets, weights, z, batch)
    gaps = made - batch.windows
    misfit = gaps.new_zeros(())
    if nets.design.texture:
        misfit = whittle(log_power(weights["texture"], batch.kept), gaps.detach())
    return Terms(z, made, gaps.square().mean((-2, -1)), divergence(mu, logvar), misfit)


def log_power(texture: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """The logarithm of the power that a texture has at each frequency, by kept classes one-hot."""
    return _REACH * torch.einsum("nk,kcf->ncf", kept, texture)


def whittle(log_power: torch.Tensor, gaps: torch.Tensor) -> torch.Tensor:
    """Whittle's likelihood of signals as noise of that power, as a loss: lowest at their own."""
    power = torch.fft.rfft(gaps, norm="ortho").abs().square()
    return (log_power + power * (-log_power).exp()).mean()


def decoded(nets: BlinderNets, weights: Weights, z: torch.Tensor, told: Batch) -> torch.Tensor:
    """What the decoder with these weights makes of codes and of the classes it is told."""
    seen = torch.cat([z, told.hidden, told.kept], dim=-1)
    made: torch.Tensor = functional_call(nets.decoder, part_of(weights, "decoder."), seen)
    return made


def surprise(
    nets: BlinderNets,
    weights: Weights,
    z: torch.Tensor,
    hidden: torch.Tensor,
    bounded: bool = False,
) -> torch.Tensor:
    """Equation (3): the cross-entropy of the discriminators, all hidden attributes added up.

    Where it is bounded, K (1 - p) of K classes stands for -log p: as steep where they guess.
    """
    total = torch.zeros((), dtype=z.dtype, device=z.device)
    parts = hidden.split(nets.design.hidden, dim=-1)
    for which, (reader, truth) in enumerate(zip(nets.discriminators, parts, strict=True)):
        own = part_of(weights, f"discriminators.{which}.")
        log_chance = (truth * functional_call(reader, own, z).log_softmax(-1)).sum(-1)
        lost = truth.shape[-1] * (1 - log_chance.exp()) if bounded else -log_chance
        total = total + lost.mean()
    return total


def coder_loss(
    nets: BlinderNets, coder: Weights, readers: Weights, batch: Batch, scale: LossWeights
) -> torch.Tensor:
    """Equation (4), which the encoder and decoder minimise against these discriminators.

    Whoever adapts to somebody's own windows descends on this: a texture is everybody's alike.
    """
    terms = coder_terms(nets, coder, batch)
    return _weighted(nets, coder, terms, readers, batch, scale)


def both_losses(
    nets: BlinderNets, coder: Weights, readers: Weights, batch: Batch, scale: LossWeights
) -> torch.Tensor:
    """Equation (4) for the coder plus equation (3) for the discriminators, each with the other
    held fixed: the gradient of this sum is the descent of both, and of a texture.
    """
    terms = coder_terms(nets, coder, batch)
    fixed = {name: weight.detach() for name, weight in readers.items()}
    against = _weighted(nets, coder, terms, fixed, batch, scale)
    return against + surprise(nets, readers, terms.z.detach(), batch.hidden) + terms.texture


def _weighted(
    nets: BlinderNets,
    coder: Weights,
    terms: Terms,
    readers: Weights,
    batch: Batch,
    scale: LossWeights,
) -> torch.Tensor:
    shares = 1.0 if scale.errors is None else batch.kept @ scale.errors
    error = (terms.errors * shares).mean()
    coding = (scale.alpha * ERROR_WEIGHT * error + scale.beta * terms.kl) / SCALE
    if scale.witnesses:
        coding = coding + scale.told * disbelief(nets, coder, terms, batch, scale.witnesses)
    return coding - scale.gamma * surprise(nets, readers, terms.z, batch.hidden, scale.bounded)


def disbelief(
    nets: BlinderNets, coder: Weights, terms: Terms, batch: Batch, witnesses: Witnesses
) -> torch.Tensor:
    """How badly witnesses read what the decoder was told: the own hidden classes, or the next.

    The squared error is least for a mean of windows, and a mean reads as some other class. Told
    another hidden class the decoder is never compared with anything but this.
    """
    moved = batch._replace(hidden=next_classes(batch.hidden, nets.design.hidden))
    windows = torch.cat([terms.made, decoded(nets, coder, terms.z, moved)])
    hidden = torch.cat([batch.hidden, moved.hidden]).split(nets.design.hidden, dim=-1)
    return misread(witnesses, windows, [torch.cat([batch.kept, batch.kept]), *hidden])
