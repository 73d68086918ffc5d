"""The complex variational autoencoder: the CSI paper's weak baseline, told the class.

Sohn and others (2015) on pairs of real numbers. The paper names it and gives no sizes.
"""

from __future__ import annotations

import torch
from torch import nn

from sensorveil.nets.complex_layers import ComplexLinear


class ComplexVae(nn.Module):
    """Windows as pairs (n, 2 channels, length) through `latent` complex numbers and back.

    >>> net = ComplexVae(channels=3, length=16, told=4, width=8, latent=5)
    >>> rebuilt, mean, log_variance = net(torch.randn(2, 6, 16), torch.eye(4)[:2])
    >>> rebuilt.shape, mean.shape
    (torch.Size([2, 6, 16]), torch.Size([2, 2, 5]))
    """

    def __init__(self, channels: int, length: int, told: int, width: int, latent: int) -> None:
        super().__init__()
        self.shape, self.latent = (channels, length), latent
        size = channels * length
        self.inner = nn.Sequential(ComplexLinear(size + told, width), nn.SiLU())
        self.mean = ComplexLinear(width, latent)
        self.log_variance = ComplexLinear(width, latent).zeroed()
        self.outer = nn.Sequential(
            ComplexLinear(latent + told, width), nn.SiLU(), ComplexLinear(width, size)
        )

    def forward(
        self, x: torch.Tensor, condition: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Windows rebuilt by way of one draw, and the mean and log-variance that it came from."""
        pairs = x.unflatten(1, (-1, 2)).movedim(2, 1).flatten(2)  # (n, 2, channels length)
        inner = self.inner(torch.cat([pairs, _beside(condition)], dim=2))
        mean, log_variance = self.mean(inner), self.log_variance(inner)
        drawn = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decoded(drawn, condition), mean, log_variance

    def decoded(self, latent: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Windows of latent numbers (n, 2, latent)."""
        pairs = self.outer(torch.cat([latent, _beside(condition)], dim=2))
        return pairs.unflatten(2, self.shape).movedim(1, 2).flatten(1, 2)

    def losses(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """What is lost of each window, and how far its latent numbers are from standard normal."""
        rebuilt, mean, log_variance = self(x, condition)
        lost = (x - rebuilt).square().sum((1, 2)) / 2
        excess = (mean.square() + log_variance.exp() - 1 - log_variance).sum((1, 2)) / 2
        return (lost + excess) / x[0].numel()


def _beside(condition: torch.Tensor) -> torch.Tensor:
    """A condition (n, size) as pairs without imaginary part."""
    return torch.stack([condition, torch.zeros_like(condition)], dim=1)
