"""Layers on complex numbers, kept as pairs of real ones.

A pair tensor is (..., 2, size): real parts and imaginary parts, each a vector. All parameters are
real and lie in `nn.Linear`: under DP-SGD complex parameters get wrong gradients and too little
noise, and nothing says so.
"""

from __future__ import annotations

import torch
from torch import nn


def product(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The complex product of pairs, number by number.

    >>> product(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])).flatten().tolist()
    [-5.0, 10.0]
    """
    (a, b), (c, d) = first.unbind(-2), second.unbind(-2)
    return torch.stack([a * c - b * d, a * d + b * c], dim=-2)


def conjugate(pairs: torch.Tensor) -> torch.Tensor:
    """The complex conjugates."""
    real, imaginary = pairs.unbind(-2)
    return torch.stack([real, -imaginary], dim=-2)


def turned(angle: torch.Tensor) -> torch.Tensor:
    """e^(i angle) as pairs: angles (..., size) to (..., 2, size)."""
    return torch.stack([angle.cos(), angle.sin()], dim=-2)


def normalised(pairs: torch.Tensor) -> torch.Tensor:
    """Mean 0 and power 1 over the last axis; both parts by one number, so phases stay.

    >>> levelled = normalised(torch.randn(5, 2, 64))
    >>> bool(torch.allclose(levelled.square().sum(-2).mean(-1), torch.ones(5), atol=1e-3))
    True
    """
    centred = pairs - pairs.mean(-1, keepdim=True)
    power = centred.square().mean((-2, -1), keepdim=True) * 2
    return centred * (power + 1e-6).rsqrt()


class ComplexLinear(nn.Module):
    """W x + b on pairs (..., 2, inputs), with W = A + i B in two real layers.

    Each of the two adds its bias to both parts, so that together b = (a - b') + i (a + b'): any
    complex number can be written so.

    >>> ComplexLinear(3, 5)(torch.zeros(7, 4, 2, 3)).shape
    torch.Size([7, 4, 2, 5])
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.real = nn.Linear(inputs, outputs)
        self.imaginary = nn.Linear(inputs, outputs)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """Pairs (..., 2, outputs)."""
        (a, b), (c, d) = self.real(pairs).unbind(-2), self.imaginary(pairs).unbind(-2)
        return torch.stack([a - d, b + c], dim=-2)

    def zeroed(self) -> ComplexLinear:
        """The same layer, begun at zero."""
        for weight in self.parameters():
            nn.init.zeros_(weight)
        return self


class ComplexAttention(nn.Module):
    """Attention of tokens (n, tokens, 2, width) to others, which may be themselves.

    Tokens are compared by Re(q conj(k)) / sqrt(size), which stays the same when all phases turn
    together. The weights are real, and what they weigh is complex.

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
        self, tokens: torch.Tensor, others: torch.Tensor, places: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What each token takes from the others: (n, tokens, 2, width).

        `places` (tokens, 2, width) are phases that tell where the tokens lie, when they attend to
        themselves: what passes from one to another is turned by the difference of the two, so that
        a wave is carried on from moment to moment.
        """
        query, key, value = self.query(tokens), self.key(others), self.value(others)
        if places is not None:
            back = conjugate(places)
            query, key, value = (product(part, back) for part in (query, key, value))
        # The real inner product of pairs, laid end to end, is Re(q conj(k)).
        mixed = nn.functional.scaled_dot_product_attention(
            self._by_head(query), self._by_head(key), self._by_head(value)
        )
        mixed = mixed.unflatten(-1, (2, -1)).movedim(1, 3).flatten(3)
        answer: torch.Tensor = self.out(mixed if places is None else product(mixed, places))
        return answer

    def _by_head(self, pairs: torch.Tensor) -> torch.Tensor:
        """(n, tokens, 2, width) as (n, heads, tokens, 2 size)."""
        return pairs.unflatten(-1, (self.heads, -1)).movedim(3, 1).flatten(3)
