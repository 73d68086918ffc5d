"""A small denoiser for latents: a residual multilayer perceptron."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import layer_norm, silu


class ResidualMLP(nn.Module):
    """Residual blocks on latents, with layer normalisation adapted by time and condition.

    Inside each block (1 + scale) norm(h) + shift stands for the adaptive group normalisation of
    Dhariwal and Nichol (2021). The network starts by giving zeros.

    Parameters
    ----------
    size
        Numbers in a latent.
    condition
        Numbers in a condition; the zero vector is the absent one.
    width, blocks
        Width of all layers, and the number of residual blocks.

    Examples
    --------
    >>> net = ResidualMLP(60, condition=8, width=16, blocks=2)
    >>> net(torch.zeros(3, 60), torch.tensor([0, 10, 999]), torch.zeros(3, 8)).shape
    torch.Size([3, 60])

    Several latents may share a time and a condition, which then are embedded once:

    >>> net(torch.zeros(3, 12, 60), torch.tensor([5]), torch.zeros(3, 8)).shape
    torch.Size([3, 12, 60])
    """

    frequencies: torch.Tensor

    def __init__(self, size: int, condition: int, width: int = 192, blocks: int = 3) -> None:
        super().__init__()
        self.width, self.blocks = width, blocks
        frequencies = 1e4 ** -(torch.arange(width // 2) / (width // 2))
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.time = _two_layers(2 * len(frequencies), width)
        self.condition = _two_layers(condition, width)
        self.modulation = nn.Linear(width, 2 * blocks * width)
        self.entry = nn.Linear(size, width)
        self.first = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.second = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.leave = nn.Linear(width, size)
        for layer in (self.modulation, *self.second, self.leave):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """The output, of the shape of x (n, size) or (n, candidates, size)."""
        angles = t[:, None] * self.frequencies
        time = self.time(torch.cat([angles.cos(), angles.sin()], dim=1))
        embedding = self.modulation(silu(time + self.condition(condition)))
        shared = (1,) * (x.ndim - 2)  # all candidates of a window have its scales and shifts
        scales, shifts = embedding.view(-1, 2, self.blocks, *shared, self.width).unbind(1)
        h = self.entry(x)
        blocks = zip(self.first, self.second, scales.unbind(1), shifts.unbind(1), strict=True)
        for first, second, scale, shift in blocks:
            inner = layer_norm(first(h), (self.width,))
            h = h + second(silu(torch.addcmul(shift, inner, 1 + scale)))
        output: torch.Tensor = self.leave(layer_norm(h, (self.width,)))
        return output


def _two_layers(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.SiLU(), nn.Linear(outputs, outputs))
