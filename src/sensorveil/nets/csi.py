"""The networks of the Wi-Fi CSI generator: a complex diffusion transformer, and what repairs it.

Wang and others, Privacy-Preserving Wi-Fi Data Generation via Differential Privacy in Diffusion
Models (figure 1). Outside, a complex window (n, channels, length) is a real one with twice the
channels, of unit variance each (`as_pairs`): so the samplers and guidance serve it as any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from sensorveil.nets.complex_layers import (
    ComplexAttention,
    ComplexLinear,
    normalised,
    product,
    turned,
)


def as_pairs(signal: torch.Tensor) -> torch.Tensor:
    """(n, channels, length), complex or real, as real (n, 2 channels, length).

    A complex number of power 1 has a power of 1/2 in each part; times sqrt(2) it is 1, so that the
    complex normal noise of equation (11) is standard normal in each. A real signal is the real
    part of what has no other.

    >>> as_pairs(torch.tensor([[[1 + 2j]]])).flatten()
    tensor([1.4142, 2.8284])
    """
    if signal.is_complex():
        return torch.view_as_real(signal).movedim(-1, 2).flatten(1, 2) * math.sqrt(2)
    return torch.stack([signal, torch.zeros_like(signal)], dim=2).flatten(1, 2)


def from_pairs(pairs: torch.Tensor, is_complex: bool) -> torch.Tensor:
    """What `as_pairs` made, back.

    >>> signal = torch.randn(2, 3, 4, dtype=torch.complex64)
    >>> bool(torch.allclose(from_pairs(as_pairs(signal), True), signal))
    True
    """
    if is_complex:
        return torch.complex(pairs[:, ::2], pairs[:, 1::2]) / math.sqrt(2)
    return pairs[:, ::2]


@dataclass(frozen=True)
class TransformerSettings:
    """Width of a token in complex numbers, blocks, heads of each attention, moments of a token."""

    width: int = 128
    blocks: int = 8
    heads: int = 8
    patch: int = 1


class CsiTransformer(nn.Module):
    """Predicts the clean window in a degraded one: a token for each moment (or few), and back.

    Windows of any length go through the same weights.

    `classes` are the numbers of classes of the attributes that it may be told. The condition
    (n, sum of classes) holds one class of each, one-hot; where an attribute's part is all zero, it
    is told nothing of it.

    >>> net = CsiTransformer(3, classes=(4, 2), settings=TransformerSettings(8, 1, 2, patch=4))
    >>> net(torch.randn(5, 6, 18), torch.zeros(5, dtype=torch.long), torch.zeros(5, 6)).shape
    torch.Size([5, 6, 18])
    """

    def __init__(
        self,
        channels: int,
        classes: tuple[int, ...],
        settings: TransformerSettings | None = None,
    ) -> None:
        super().__init__()
        chosen = settings or TransformerSettings()
        self.patch, self.width, self.heads = chosen.patch, chosen.width, chosen.heads
        self.enter = ComplexLinear(chosen.patch * channels, chosen.width)
        self.embedding = Embedding(classes, chosen.width)
        self.blocks = nn.ModuleList(Block(chosen.width, chosen.heads) for _ in range(chosen.blocks))
        self.leave = ComplexLinear(chosen.width, chosen.patch * channels).zeroed()
        self.kept = ComplexLinear(chosen.width, 1).zeroed()

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """(n, 2 channels, length), levels (n,) and conditions to clean windows like x."""
        pairs = self._patches(x)
        places = _places(pairs.shape[1], self.width, self.heads, x)
        tokens, told = self.enter(pairs), self.embedding(t, condition)
        for block in self.blocks:
            tokens = block(tokens, told, places)
        # With little noise nearly all of the window is to stay: how much, the level tells.
        clean = self.leave(normalised(tokens)) + product(self.kept(told[:, :1]), pairs)
        return self._moments(clean, x)

    def _patches(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 2 channels, length) as (n, tokens, 2, patch channels); zeros fill the last one."""
        full = nn.functional.pad(x, (0, -x.shape[-1] % self.patch))
        parts = full.unflatten(1, (-1, 2)).unflatten(-1, (-1, self.patch))
        return parts.permute(0, 3, 2, 4, 1).flatten(3)

    def _moments(self, tokens: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        parts = tokens.unflatten(-1, (self.patch, -1)).permute(0, 4, 2, 1, 3)
        return parts.flatten(3).flatten(1, 2)[..., : like.shape[-1]]

    def private_modules(self) -> Iterator[nn.Module]:
        """theta_embed and theta_att: what the hybrid training goes on with under DP-SGD."""
        yield self.embedding
        for module in self.modules():
            if isinstance(module, ComplexAttention):
                yield module


class Embedding(nn.Module):
    """The level, and one token for each attribute: (n, 1 + attributes, 2, width)."""

    def __init__(self, classes: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.sizes, self.width = classes, width
        self.level = nn.ModuleList([ComplexLinear(width, width), ComplexLinear(width, width)])
        # Without a bias: an attribute that is not told gives a token of zeros.
        self.attributes = nn.ModuleList(
            nn.Linear(count, 2 * width, bias=False) for count in classes
        )

    def forward(self, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Levels (n,) and conditions (n, sum of classes) to tokens."""
        step = turned(t[:, None].to(condition.dtype) * _frequencies(self.width, condition))
        step = self.level[1](nn.functional.silu(self.level[0](step)))
        tokens = [step]
        for part, layer in zip(condition.split(self.sizes, dim=1), self.attributes, strict=True):
            tokens.append(layer(part).unflatten(1, (2, -1)))
        return torch.stack(tokens, dim=1)


class Block(nn.Module):
    """Self-attention of the noisy signal, cross-attention to what is told, and a dense part.

    The level and the classes together scale, shift and gate each part. All gates begin at zero,
    so that a block begins by changing nothing.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.self_attention = ComplexAttention(width, heads)
        self.cross_attention = ComplexAttention(width, heads)
        self.dense = nn.Sequential(
            ComplexLinear(width, 2 * width), nn.SiLU(), ComplexLinear(2 * width, width)
        )
        self.gates = ComplexLinear(width, 7 * width).zeroed()

    def forward(
        self, tokens: torch.Tensor, told: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        """Tokens (n, count, 2, width), told (n, 1 + attributes, 2, width), places of tokens."""
        gates = self.gates(nn.functional.silu(told.sum(1, keepdim=True))).chunk(7, dim=-1)
        shift, scale, gate, across, shift_dense, scale_dense, gate_dense = gates
        calm = _modulated(tokens, shift, scale)
        tokens = tokens + product(gate, self.self_attention(calm, calm, places))
        tokens = tokens + product(across, self.cross_attention(normalised(tokens), told))
        calm = _modulated(tokens, shift_dense, scale_dense)
        return tokens + product(gate_dense, self.dense(calm))


class Repair(nn.Module):
    """g_phi of equation (17): takes out of the generator's output what private noise put in.

    The paper calls it small and says no more: two convolutions over three moments, added to what
    it is given. It begins by changing nothing.

    >>> windows = torch.randn(2, 6, 16)
    >>> bool((Repair(6, 8)(windows) == windows).all())
    True
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(channels, width, 3, padding=1)
        self.second = nn.Conv1d(width, channels, 3, padding=1)
        for weight in self.second.parameters():
            nn.init.zeros_(weight)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """Windows (n, channels, length) to repaired ones."""
        repaired: torch.Tensor = windows + self.second(nn.functional.silu(self.first(windows)))
        return repaired


def _modulated(tokens: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    calm = normalised(tokens)
    return calm + product(scale, calm) + shift


def _frequencies(width: int, like: torch.Tensor) -> torch.Tensor:
    """How fast each number of the level's embedding turns: from 1 down to 1 / 10,000, (width,)."""
    return torch.logspace(0, -4, width, device=like.device, dtype=like.dtype)


def _places(count: int, width: int, heads: int, like: torch.Tensor) -> torch.Tensor:
    """Where each token lies, as phases (count, 2, width).

    In every head they turn at even distances of speed, from half a turn back to half a turn on for
    each token, as the frequencies of a Fourier transform do.
    """
    speed = torch.arange(width // heads, device=like.device, dtype=like.dtype)
    speed = (2 * speed * heads / width - 1) * math.pi
    place = torch.arange(count, device=like.device, dtype=like.dtype)
    return turned(place[:, None] * speed.repeat(heads))
