"""MaSS: its networks and losses (Chen and others, Multi-attribute Selective Suppression, 2024).

The paper was not at hand; what is here follows facts about the authors' code (jpmorganchase/MaSS),
in the form that it has for MotionSense.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sensorveil.data.windows import UNKNOWN
from sensorveil.train import Checkpoint, Gather, TrainConfig, train_network


class Transform(nn.Module):
    """Windows and as many random numbers to windows: a residual block of two dense layers, and one.

    >>> net = Transform((2, 16))
    >>> net(torch.zeros(3, 2, 16), torch.randn(3, 2, 16)).shape
    torch.Size([3, 2, 16])
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        size = math.prod(shape)
        # No bias before a batch norm: it cancels there.
        self.inside = nn.Sequential(
            nn.Linear(2 * size, size, bias=False),
            nn.BatchNorm1d(size),
            nn.ReLU(),
            nn.Linear(size, size, bias=False),
            nn.BatchNorm1d(size),
        )
        self.leave = nn.Linear(size, size)

    def forward(self, signal: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """The transformed windows, of the same shape."""
        flat = signal.flatten(1)
        added = self.inside(torch.cat([flat, noise.flatten(1)], dim=1)) + flat
        transformed: torch.Tensor = self.leave(added.relu())
        return transformed.view_as(signal)


class AttributeNet(nn.Module):
    """Convolutions, each followed by batch normalisation and halved, and two dense layers.

    It reads an attribute; with 128 outputs it is the feature network F.

    >>> AttributeNet((2, 128), outputs=4)(torch.zeros(3, 2, 128)).shape
    torch.Size([3, 4])
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        outputs: int,
        widths: Sequence[int] = (16, 32, 64, 64),
        dense: int = 256,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        length = shape[1]
        for before, after in pairwise((shape[0], *widths)):
            layers += [nn.Conv1d(before, after, 3, padding=1, bias=False), nn.BatchNorm1d(after)]
            layers.append(nn.ReLU())
            if length > 1:
                layers.append(nn.MaxPool1d(2))
                length //= 2
        self.layers = nn.Sequential(
            *layers,
            nn.Flatten(),
            nn.Linear(widths[-1] * length, dense, bias=False),
            nn.BatchNorm1d(dense),
            nn.ReLU(),
            nn.Linear(dense, outputs),
        )

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Scores before the softmax, or features: (n, outputs)."""
        found: torch.Tensor = self.layers(signal)
        return found


def surprise(scores: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of the windows whose class is known, in nats; 0 where none is.

    >>> round(float(surprise(torch.zeros(2, 4), torch.tensor([1, UNKNOWN])).exp()), 4)
    4.0
    """
    total = cross_entropy(scores.float(), codes, ignore_index=UNKNOWN, reduction="sum")
    return total / (codes != UNKNOWN).sum().clamp(min=1)


def label_entropy(codes: torch.Tensor) -> float:
    """H of the classes that are known, in nats.

    >>> round(math.exp(label_entropy(torch.tensor([0, 1, 2, 3, UNKNOWN]))), 4)
    4.0
    """
    counts = torch.bincount(codes[codes != UNKNOWN]).double()
    share = counts[counts > 0] / counts.sum()
    return float(-(share * share.log()).sum())


def told_too_much(cross_entropy: torch.Tensor, entropy: float, allowed: float) -> torch.Tensor:
    """The penalty of I(X'; S) <= m, where H - CE stands for I: |v| + v², v = min(CE - H + m, 0)."""
    return _penalty((cross_entropy - entropy + allowed).clamp(max=0))


def told_too_little(cross_entropy: torch.Tensor, entropy: float, wanted: float) -> torch.Tensor:
    """The penalty of I(X'; U) >= n, where H - CE stands for I: |v| + v², v = max(CE - H + n, 0)."""
    return _penalty((cross_entropy - entropy + wanted).clamp(min=0))


def paired_info_nce(
    some: torch.Tensor, others: torch.Tensor, temperature: float = 0.07
) -> torch.Tensor:
    """InfoNCE of two views, both ways: each window finds itself among the other view's windows.

    >>> alike = torch.zeros(8, 3)
    >>> round(float(paired_info_nce(alike, alike).exp()), 4)  # nothing to tell eight apart by
    8.0
    """
    first, second = nn.functional.normalize(some.float()), nn.functional.normalize(others.float())
    likeness = first @ second.T / temperature
    own = torch.arange(len(likeness), device=likeness.device)
    return (cross_entropy(likeness, own) + cross_entropy(likeness.T, own)) / 2


def train_attribute_net(
    net: AttributeNet,
    gather: Gather,
    codes: torch.Tensor,
    course: TrainConfig,
    seed: int,
    *,
    stage: str,
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Stage 1: a classifier of raw windows."""

    def loss(index: torch.Tensor) -> torch.Tensor:
        return surprise(net(gather(index)), codes[index])

    return train_network(stage, net, loss, len(codes), course, seed, codes.device, checkpoint)


def train_features(
    net: AttributeNet,
    gather: Gather,
    count: int,
    course: TrainConfig,
    seed: int,
    device: str,
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Stage 2: features that tell windows apart; both views are the window itself."""

    def loss(index: torch.Tensor) -> torch.Tensor:
        features = net(gather(index))
        return paired_info_nce(features, features)

    return train_network("features", net, loss, count, course, seed, device, checkpoint)


def _penalty(violation: torch.Tensor) -> torch.Tensor:
    return violation.abs() + violation.square()
