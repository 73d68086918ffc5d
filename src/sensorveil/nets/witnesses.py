"""Fixed models that say whether windows read as what their maker was told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Scores = Callable[[torch.Tensor], torch.Tensor]
"""Scores of each class before the softmax, of windows in the units of the networks."""

Witnesses = Sequence[Sequence[Scores]]
"""Some models for the kept class, and some for each hidden attribute; none of them learns."""


def misread(
    witnesses: Witnesses, windows: torch.Tensor, truths: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Their cross-entropy for one-hot classes: a mean over models, a sum over attributes.

    >>> louder = lambda windows: windows.mean(2)  # the louder channel is the class
    >>> windows = torch.tensor([[[9.0, 9.0], [0.0, 0.0]]])
    >>> right, wrong = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> lost = [misread([[louder], [louder]], windows, [kept, right]) for kept in (right, wrong)]
    >>> [round(float(one), 1) for one in lost]
    [0.0, 9.0]
    """
    lost = [
        -(truth * model(windows).log_softmax(-1)).sum(-1).mean() / len(models)
        for models, truth in zip(witnesses, truths, strict=True)
        for model in models
    ]
    return torch.stack(lost).sum()


def next_classes(hidden: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Every attribute moved on to its next class, one-hot side by side.

    >>> next_classes(torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0]]), (2, 3)).tolist()
    [[1.0, 0.0, 0.0, 0.0, 1.0]]
    """
    return torch.cat([part.roll(1, -1) for part in hidden.split(tuple(sizes), dim=-1)], dim=-1)
