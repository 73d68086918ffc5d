"""What variational autoencoders share: the code's distribution, one-hot classes, stacked perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn


class StackedLinear(nn.Module):
    """Linear layers of one shape, one for each generator, as one batched matrix product.

    Ten small networks in one product take little longer than one of them. Each is initialised from
    its own generator as torch initialises a linear layer: uniformly within 1 / sqrt(inputs). Adam
    works number by number, so each network learns as if it were alone.

    Parameters
    ----------
    generators
        One for each network.
    inputs, outputs
        Size of each layer.

    Examples
    --------
    >>> layer = StackedLinear([torch.Generator().manual_seed(seed) for seed in (1, 2)], 3, 4)
    >>> layer(torch.zeros(2, 5, 3)).shape, layer.single(0, torch.zeros(5, 3)).shape
    (torch.Size([2, 5, 4]), torch.Size([5, 4]))
    """

    def __init__(self, generators: Sequence[torch.Generator], inputs: int, outputs: int) -> None:
        super().__init__()
        limit = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(len(generators), inputs, outputs))
        self.bias = nn.Parameter(torch.empty(len(generators), 1, outputs))
        with torch.no_grad():
            for network, generator in enumerate(generators):
                self.weight[network].uniform_(-limit, limit, generator=generator)
                self.bias[network].uniform_(-limit, limit, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All networks: (networks, n, inputs) to (networks, n, outputs)."""
        return torch.baddbmm(self.bias, x, self.weight)

    def single(self, network: int, x: torch.Tensor) -> torch.Tensor:
        """One of the networks: (n, inputs) to (n, outputs)."""
        return torch.addmm(self.bias[network], x, self.weight[network])


class StackedMLP(nn.Module):
    """Multilayer perceptrons of one shape, with ReLU between the layers, trained at once.

    Examples
    --------
    >>> mlp = StackedMLP([torch.Generator().manual_seed(seed) for seed in (1, 2)], (6, 8, 3))
    >>> x = torch.ones(2, 5, 6)
    >>> bool(torch.allclose(mlp(x)[1], mlp(x[1], network=1), atol=1e-6))
    True
    """

    def __init__(self, generators: Sequence[torch.Generator], sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(StackedLinear(generators, *pair) for pair in pairwise(sizes))

    def forward(self, x: torch.Tensor, network: int | None = None) -> torch.Tensor:
        """All networks, (networks, n, inputs), or the one that is named, (n, inputs)."""
        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, StackedLinear)
            x = x.relu() if depth else x
            x = layer(x) if network is None else layer.single(network, x)
        return x


def reparameterise(
    mu: torch.Tensor, log_variance: torch.Tensor | None, noise: torch.Tensor
) -> torch.Tensor:
    """z = mu + sigma * noise; mu itself where there is no variance.

    >>> reparameterise(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([0.5]))
    tensor([1.5000])
    """
    return mu if log_variance is None else mu + torch.exp(0.5 * log_variance) * noise


def kl_divergence(mu: torch.Tensor, log_variance: torch.Tensor | None) -> torch.Tensor:
    """KL(N(mu, variance) || N(0, I)) of codes (..., latent), in nats; 0 where there is no variance.

    >>> kl_divergence(torch.full((3, 2), 2.0), torch.zeros(3, 2))  # half of 2^2, twice
    tensor([4., 4., 4.])
    """
    if log_variance is None:
        return torch.zeros(mu.shape[:-1], device=mu.device)
    return 0.5 * (mu.square() + log_variance.exp() - 1 - log_variance).sum(-1)


def one_hot(codes: torch.Tensor, class_counts: Sequence[int]) -> torch.Tensor:
    """Classes (..., attributes) as one-hot vectors side by side, (..., sum of class_counts).

    >>> one_hot(torch.tensor([[1, 0]]), (2, 3))
    tensor([[0., 1., 1., 0., 0.]])
    """
    parts = [
        codes[..., place, None] == torch.arange(count, device=codes.device)
        for place, count in enumerate(class_counts)
    ]
    return torch.cat(parts, dim=-1).float()
