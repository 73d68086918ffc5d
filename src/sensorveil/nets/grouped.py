"""Many networks of one shape at once: their weights are stacked, their products batched.

Ten small networks in one batched product cost little more than one of them, on a GPU as on a core.
Group g is drawn from its own generator, so that it starts from the same weights alone or among
others, and the stacked optimiser (Adam works number by number) trains each as if it were alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn


class GroupedLinear(nn.Module):
    """One linear layer for each generator: (groups, n, inputs) to (groups, n, outputs).

    Weights are stacked as (groups, inputs, outputs), and drawn as torch draws a linear layer's:
    uniform within one over the root of the number of inputs.

    >>> layer = GroupedLinear([torch.Generator().manual_seed(s) for s in (1, 2)], 3, 4)
    >>> layer(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(self, generators: Sequence[torch.Generator], inputs: int, outputs: int) -> None:
        super().__init__()
        limit = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(len(generators), inputs, outputs))
        self.bias = nn.Parameter(torch.empty(len(generators), 1, outputs))
        with torch.no_grad():
            for group, generator in enumerate(generators):
                self.weight[group].uniform_(-limit, limit, generator=generator)
                self.bias[group].uniform_(-limit, limit, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All groups at once."""
        return torch.baddbmm(self.bias, x, self.weight)

    def one(self, group: int, x: torch.Tensor) -> torch.Tensor:
        """One group on its own: (n, inputs) to (n, outputs)."""
        return torch.addmm(self.bias[group], x, self.weight[group])


class GroupedMLP(nn.Module):
    """Linear layers of the sizes given, with ReLU between them and nothing after the last.

    >>> net = GroupedMLP([torch.Generator().manual_seed(s) for s in (1, 2)], (6, 8, 3))
    >>> x = torch.ones(2, 5, 6)
    >>> bool(torch.allclose(net(x)[1], net.one(1, x[1]), atol=1e-6))
    True
    """

    def __init__(self, generators: Sequence[torch.Generator], sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            GroupedLinear(generators, inputs, outputs) for inputs, outputs in pairwise(sizes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(groups, n, first size) to (groups, n, last size)."""
        for depth, layer in enumerate(self.layers):
            x = layer(x if depth == 0 else x.relu())
        return x

    def one(self, group: int, x: torch.Tensor) -> torch.Tensor:
        """One group on its own: (n, first size) to (n, last size)."""
        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, GroupedLinear)
            x = layer.one(group, x if depth == 0 else x.relu())
        return x
