"""The networks and the diffusion of the CSI paper: section V-A and equation (17).

A complex window is kept as a real one with twice the channels (re, im, re, im ...), in which every
channel has unit variance. So the complex normal noise of equation (11) is standard normal in each
channel, and samplers and guidance treat a window as any other.

Inside the networks a complex number is a pair (..., 2, size) of real ones, and all parameters are
real and lie in `nn.Linear`: with complex parameters DP-SGD gets wrong gradients and too little
noise, and no error says so.

References
----------
Wang, Zhao, Mao and Wang, Privacy-Preserving Wi-Fi Data Generation via Differential Privacy in
Diffusion Models (2024). Chi and others, RF-Diffusion: Radio Signal Generation via Time-Frequency
Diffusion (MobiCom 2024).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import nn

from sensorveil.classifiers import with_magnitudes
from sensorveil.diffusion.schedule import CLEAN, NoiseSchedule, drawn_noise
from sensorveil.errors import Refusal

# The forward process, equations (11) to (13).


@dataclass(frozen=True, eq=False)
class Degradation:
    """x_t = gamma_t x_0 + sigma_t epsilon, equation (11).

    gamma_t is sqrt(alpha_bar_t) times a Gaussian over time, which blurs the spectrum; so signal and
    noise have one factor for each sample of the window.

    Parameters
    ----------
    signal, noise
        gamma_t and sigma_t, (levels, length), float64.

    Examples
    --------
    >>> plain = Degradation.linear(length=64, levels=200, first_beta=5e-4, last_beta=0.1)
    >>> [round(float(part[-1, 0]), 3) for part in (plain.signal, plain.noise)]
    [0.006, 1.0]
    """

    signal: torch.Tensor
    noise: torch.Tensor

    @classmethod
    def linear(
        cls,
        length: int,
        levels: int,
        first_beta: float,
        last_beta: float,
        blur: float = 0.0,
        noise_sum: Literal["variances", "amplitudes"] = "variances",
    ) -> Degradation:
        """Levels whose beta = 1 - alpha grows linearly.

        Parameters
        ----------
        length
            Samples of a window.
        levels, first_beta, last_beta
            Number of levels, and beta at both ends.
        blur
            Standard deviation that each level adds to the blur of the spectrum: after t levels the
            Gaussian over time has the variance length / (t blur²), and mean 1.
        noise_sum
            Equation (12) adds up the noise of all levels by amplitude, as if it were one and the
            same noise; "amplitudes" does what the paper and its code do. It is independent, so that
            variances add up; "variances" does that.
        """
        beta = torch.linspace(first_beta, last_beta, levels, dtype=torch.float64)
        time = torch.arange(length, dtype=torch.float64) - length / 2
        t = torch.arange(1, levels + 1, dtype=torch.float64)[:, None]
        gaussian = torch.exp(-(time**2) * t * blur**2 / (2 * length))
        gamma = (1 - beta).cumprod(0).sqrt()[:, None] * gaussian / gaussian.mean(1, keepdim=True)
        # sigma_t / gamma_t, equation (12): the sum over s of sqrt(1 - alpha_s) / gamma_s.
        terms = beta.sqrt()[:, None] / gamma
        if noise_sum == "amplitudes":
            return cls(gamma, gamma * terms.cumsum(0))
        return cls(gamma, gamma * terms.square().cumsum(0).sqrt())

    def __len__(self) -> int:
        return len(self.signal)

    def to(self, device: torch.device | str) -> Degradation:
        """The same with its tensors on a device."""
        return Degradation(self.signal.to(device), self.noise.to(device))

    @property
    def schedule(self) -> NoiseSchedule:
        """The same as a schedule without blur, which all samplers but `RFDiffusionSampler` need."""
        if not torch.equal(self.signal, self.signal[:, :1].expand_as(self.signal)):
            raise Refusal("a blur differs from sample to sample; set sampler=rf-diffusion")
        return NoiseSchedule(self.signal[:, 0], self.noise[:, 0])

    def degraded(
        self, clean: torch.Tensor, epsilon: torch.Tensor, t: torch.Tensor | int
    ) -> torch.Tensor:
        """x_t of equation (11); t is one level for each window (n,), or one for all."""
        signal, noise = (
            part[t].to(clean.dtype).unsqueeze(-2) for part in (self.signal, self.noise)
        )
        return signal * clean + noise * epsilon

    def start(self, epsilon: torch.Tensor) -> torch.Tensor:
        """Noise as strong as x_T, equation (13), for windows in standard units.

        If the levels end before all signal is gone, x_T still has some; this has none.
        """
        power = self.signal[-1].square() + self.noise[-1].square()
        return power.sqrt().to(epsilon.dtype) * epsilon


class RFDiffusionSampler:
    """RF-Diffusion's sampler: restore, degrade to the next level with fresh noise, repeat.

    The authors' published inference begins with a true window, degraded, which is not generation;
    here x begins as noise (`CsiGenerator.restore` does what they do).

    >>> degradation = Degradation.linear(8, 50, 1e-3, 0.2, blur=0.1)
    >>> sampler = RFDiffusionSampler(degradation, 3, torch.Generator().manual_seed(0))
    >>> list(sampler)
    [(49, 24), (24, 0), (0, -1)]
    >>> x = torch.ones(2, 3, 8)
    >>> for t, t_next in sampler:
    ...     x = sampler.step(x, torch.zeros_like(x), t, t_next)
    >>> float(x.abs().max())
    0.0
    """

    def __init__(self, degradation: Degradation, steps: int, generator: torch.Generator) -> None:
        self.degradation, self.generator = degradation, generator
        self.levels = torch.linspace(len(degradation) - 1, 0, steps).round().int().tolist()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return pairwise((*self.levels, CLEAN))

    def step(self, x: torch.Tensor, clean: torch.Tensor, t: int, t_next: int) -> torch.Tensor:
        """x at t_next: the predicted clean windows, degraded anew."""
        if t_next == CLEAN:
            return clean
        return self.degradation.degraded(clean, drawn_noise(clean, self.generator), t_next)


# Complex numbers as pairs.


def product(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The complex product of pairs (..., 2, size), elementwise.

    >>> product(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])).flatten().tolist()
    [-5.0, 10.0]
    """
    (a, b), (c, d) = first.unbind(-2), second.unbind(-2)
    return torch.stack([a * c - b * d, a * d + b * c], dim=-2)


def conjugate(pairs: torch.Tensor) -> torch.Tensor:
    """The complex conjugates."""
    real, imaginary = pairs.unbind(-2)
    return torch.stack([real, -imaginary], dim=-2)


def phasor(angle: torch.Tensor) -> torch.Tensor:
    """e^(i angle): from angles (..., size) to pairs (..., 2, size)."""
    return torch.stack([angle.cos(), angle.sin()], dim=-2)


def normalized(pairs: torch.Tensor) -> torch.Tensor:
    """Layer normalisation: mean 0 and power 1 over the last axis; phases stay.

    >>> found = normalized(torch.randn(5, 2, 64))
    >>> bool(torch.allclose(found.square().sum(-2).mean(-1), torch.ones(5), atol=1e-3))
    True
    """
    centred = pairs - pairs.mean(-1, keepdim=True)
    power = centred.square().mean((-2, -1), keepdim=True) * 2
    return centred * (power + 1e-6).rsqrt()


class ComplexLinear(nn.Module):
    """W x + b with W = A + iB, in two real layers.

    Both layers add their bias to both parts: b = (a - b') + i (a + b'), which any number can be.

    >>> ComplexLinear(3, 5)(torch.zeros(7, 4, 2, 3)).shape
    torch.Size([7, 4, 2, 5])
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.real = nn.Linear(inputs, outputs)
        self.imaginary = nn.Linear(inputs, outputs)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """From pairs (..., 2, inputs) to pairs (..., 2, outputs)."""
        (a, b), (c, d) = self.real(pairs).unbind(-2), self.imaginary(pairs).unbind(-2)
        return torch.stack([a - d, b + c], dim=-2)

    def zero_init(self) -> ComplexLinear:
        """The same layer with all weights 0."""
        for weight in self.parameters():
            nn.init.zeros_(weight)
        return self


class ComplexAttention(nn.Module):
    """Multi-head attention of complex tokens; figure 1.

    Scores are Re(q conj(k)) / sqrt(size), which do not change if all phases turn together. Weights
    are real and values complex.

    >>> attention = ComplexAttention(8, heads=2)
    >>> attention(torch.randn(3, 10, 2, 8), torch.randn(3, 4, 2, 8)).shape
    torch.Size([3, 10, 2, 8])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = ComplexLinear(width, width)
        self.key = ComplexLinear(width, width)
        self.value = ComplexLinear(width, width)
        self.out = ComplexLinear(width, width)

    def forward(
        self, tokens: torch.Tensor, others: torch.Tensor, positions: torch.Tensor | None = None
    ) -> torch.Tensor:
        """From tokens (n, count, 2, width) and those they attend to, to new tokens.

        `positions` (count, 2, width) are rotary phases for self-attention: queries, keys and values
        are rotated back by their own position and results forward again, so that a wave is carried
        on from token to token.
        """
        query, key, value = self.query(tokens), self.key(others), self.value(others)
        if positions is not None:
            back = conjugate(positions)
            query, key, value = (product(part, back) for part in (query, key, value))
        # The real inner product of pairs, laid end to end, is Re(q conj(k)).
        mixed = nn.functional.scaled_dot_product_attention(
            self._by_head(query), self._by_head(key), self._by_head(value)
        )
        mixed = mixed.unflatten(-1, (2, -1)).movedim(1, 3).flatten(3)
        result: torch.Tensor = self.out(mixed if positions is None else product(mixed, positions))
        return result

    def _by_head(self, pairs: torch.Tensor) -> torch.Tensor:
        """(n, count, 2, width) as (n, heads, count, 2 size)."""
        return pairs.unflatten(-1, (self.heads, -1)).movedim(3, 1).flatten(3)


# The diffusion transformer, figure 1.


class CsiTransformer(nn.Module):
    """f_theta: predicts the clean windows from degraded ones, for windows of any length.

    Parameters
    ----------
    channels
        Channels of a window, each a complex number or (`is_complex=False`) a real one.
    classes
        Number of classes of each attribute that it is conditioned on. A condition (n, sum of
        classes) holds one one-hot class of each attribute; all zeros is the null condition.
    width
        Complex numbers of a token.
    blocks, heads
        Number of blocks, and heads of each attention.
    patch
        Samples of a window in a token.

    Examples
    --------
    >>> network = CsiTransformer(3, classes=(4, 2), width=8, blocks=1, heads=2, patch=4)
    >>> network(torch.randn(5, 6, 18), torch.zeros(5, dtype=torch.long), torch.zeros(5, 6)).shape
    torch.Size([5, 6, 18])
    """

    def __init__(
        self,
        channels: int,
        classes: tuple[int, ...],
        *,
        width: int = 128,
        blocks: int = 8,
        heads: int = 8,
        patch: int = 1,
        is_complex: bool = True,
    ) -> None:
        super().__init__()
        self.patch, self.width, self.heads, self.is_complex = patch, width, heads, is_complex
        self.enter = ComplexLinear(patch * channels, width)
        self.embedding = Embedding(classes, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.leave = ComplexLinear(width, patch * channels).zero_init()
        self.skip = ComplexLinear(width, 1).zero_init()

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """From x_t (n, channels, length), levels (n,) and conditions to x_0."""
        patches = self._to_patches(x)
        positions = _positions(patches.shape[1], self.width, self.heads, x)
        tokens, condition_tokens = self.enter(patches), self.embedding(t, condition)
        for block in self.blocks:
            tokens = block(tokens, condition_tokens, positions)
        # At low noise nearly all of x_t stays; the level's token says how much.
        clean = self.leave(normalized(tokens)) + product(
            self.skip(condition_tokens[:, :1]), patches
        )
        return self._from_patches(clean, x.shape[-1])

    def _to_patches(self, x: torch.Tensor) -> torch.Tensor:
        """(n, channels, length) as (n, tokens, 2, patch channels), filled up with zeros."""
        if not self.is_complex:  # a real number is a complex one without imaginary part
            x = torch.stack([x, torch.zeros_like(x)], dim=2).flatten(1, 2)
        full = nn.functional.pad(x, (0, -x.shape[-1] % self.patch))
        parts = full.unflatten(1, (-1, 2)).unflatten(-1, (-1, self.patch))
        return parts.permute(0, 3, 2, 4, 1).flatten(3)

    def _from_patches(self, tokens: torch.Tensor, length: int) -> torch.Tensor:
        parts = tokens.unflatten(-1, (self.patch, -1)).permute(0, 4, 2, 1, 3)
        x = parts.flatten(3).flatten(1, 2)[..., :length]
        return x if self.is_complex else x[:, ::2]

    def private_modules(self) -> Iterator[nn.Module]:
        """The modules of theta_embed and theta_att, section V-B."""
        yield self.embedding
        for module in self.modules():
            if isinstance(module, ComplexAttention):
                yield module


class Embedding(nn.Module):
    """A token for the level and one for each attribute, (n, 1 + attributes, 2, width)."""

    def __init__(self, classes: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.sizes, self.width = classes, width
        self.level = nn.ModuleList([ComplexLinear(width, width), ComplexLinear(width, width)])
        # Without a bias the null condition gives a token of zeros.
        self.attributes = nn.ModuleList(
            nn.Linear(count, 2 * width, bias=False) for count in classes
        )

    def forward(self, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """From levels (n,) and conditions (n, sum of classes) to tokens."""
        frequencies = torch.logspace(0, -4, self.width, device=t.device, dtype=condition.dtype)
        level = phasor(t[:, None].to(condition.dtype) * frequencies)
        tokens = [self.level[1](nn.functional.silu(self.level[0](level)))]
        for part, layer in zip(condition.split(self.sizes, dim=1), self.attributes, strict=True):
            tokens.append(layer(part).unflatten(1, (2, -1)))
        return torch.stack(tokens, dim=1)


class Block(nn.Module):
    """Self-attention, cross-attention to the condition, and a feed-forward layer.

    Level and classes together scale, shift and gate each part (adaptive layer norm). All gates
    begin at zero, so that a block begins as the identity.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.self_attention = ComplexAttention(width, heads)
        self.cross_attention = ComplexAttention(width, heads)
        self.dense = nn.Sequential(
            ComplexLinear(width, 2 * width), nn.SiLU(), ComplexLinear(2 * width, width)
        )
        self.modulation = ComplexLinear(width, 7 * width).zero_init()

    def forward(
        self, tokens: torch.Tensor, condition: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Tokens (n, count, 2, width), condition tokens, positions (count, 2, width)."""
        modulation = self.modulation(nn.functional.silu(condition.sum(1, keepdim=True)))
        shift, scale, gate, cross_gate, dense_shift, dense_scale, dense_gate = modulation.chunk(
            7, dim=-1
        )
        x = _modulated(tokens, shift, scale)
        tokens = tokens + product(gate, self.self_attention(x, x, positions))
        x = self.cross_attention(normalized(tokens), condition)
        tokens = tokens + product(cross_gate, x)
        x = _modulated(tokens, dense_shift, dense_scale)
        return tokens + product(dense_gate, self.dense(x))


def _modulated(tokens: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    x = normalized(tokens)
    return x + product(scale, x) + shift


def _positions(count: int, width: int, heads: int, like: torch.Tensor) -> torch.Tensor:
    """Rotary phases (count, 2, width): in every head at even frequencies, from -pi to pi a token."""
    frequency = torch.arange(width // heads, device=like.device, dtype=like.dtype)
    frequency = (2 * frequency * heads / width - 1) * math.pi
    token = torch.arange(count, device=like.device, dtype=like.dtype)
    return phasor(token[:, None] * frequency.repeat(heads))


class DenoisingModel(nn.Module):
    """g_phi of equation (17): removes from f_theta's output what private noise put in.

    The paper calls it small and says no more. Here it is two convolutions of three samples in a
    residual branch that begins at zero.

    >>> windows = torch.randn(2, 6, 16)
    >>> bool((DenoisingModel(6, 8)(windows) == windows).all())
    True
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(channels, width, 3, padding=1)
        self.second = nn.Conv1d(width, channels, 3, padding=1)
        for weight in self.second.parameters():
            nn.init.zeros_(weight)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """From windows (n, channels, length) to denoised ones."""
        denoised: torch.Tensor = windows + self.second(nn.functional.silu(self.first(windows)))
        return denoised


class KeptClassifier(nn.Module):
    """Predicts the kept classes of a window, on which its replacement is conditioned.

    It has no batch normalisation, under which no gradient would belong to one window alone; so
    DP-SGD can train it.

    >>> [tuple(one.shape) for one in KeptClassifier((6, 32), (4, 3))(torch.zeros(5, 6, 32))]
    [(5, 4), (5, 3)]
    """

    def __init__(
        self, shape: tuple[int, ...], classes: tuple[int, ...], is_complex: bool = True
    ) -> None:
        super().__init__()
        self.is_complex = is_complex
        channels, length = shape
        channels = channels * 3 // 2 if is_complex else channels
        self.layers = nn.Sequential(
            nn.Conv1d(channels, 16, 2, padding=1),
            nn.ReLU(),
            nn.Conv1d(16, 32, 2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * (length + 2), 64),
            nn.ReLU(),
            nn.Linear(64, 60),
            nn.ReLU(),
        )
        self.heads = nn.ModuleList(nn.Linear(60, count) for count in classes)

    def forward(self, windows: torch.Tensor) -> list[torch.Tensor]:
        """Logits (n, classes) of each kept attribute."""
        features = self.layers(with_magnitudes(windows) if self.is_complex else windows)
        return [head(features) for head in self.heads]

    def losses(self, windows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of each window (n,), summed over the attributes of labels (n, attributes)."""
        losses = [
            nn.functional.cross_entropy(logits, labels[:, number], reduction="none")
            for number, logits in enumerate(self(windows))
        ]
        return torch.stack(losses).sum(0)
