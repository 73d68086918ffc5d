"""Contrastive learning (CLOAK, section IV-B): encoders of a class, and of little else."""

from __future__ import annotations

import torch
from torch import nn

from sensorveil.nets.cnn import InferenceNet
from sensorveil.nets.courses import Checkpoint, Course, Gather, train_one
from sensorveil.nets.features import FeatureNet, FeatureSettings

_NEVER = -1e4
"""A similarity of pairs that do not count: it vanishes, and has a gradient all the same."""


class PublishedEncoder(nn.Module):
    """The encoder of section V-C: two convolutions and three dense layers, features of length 1.

    Table VI gives it the size of PrivDiffuser's surrogate, so it has those layers, without a head.

    >>> small = FeatureSettings(channels=(4, 8), dense=(16,))
    >>> PublishedEncoder((2, 16), small)(torch.ones(3, 2, 16)).shape
    torch.Size([3, 60])
    """

    def __init__(self, shape: tuple[int, ...], settings: FeatureSettings | None = None) -> None:
        super().__init__()
        self.net = FeatureNet(shape, (), settings)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """z_U of windows: (n, features)."""
        features, _ = self.net(signal)
        return features


class SmallEncoder(nn.Module):
    """An encoder like the papers' inference models: far smaller, as its convolutions are pooled.

    >>> SmallEncoder((2, 32), features=16, width=8)(torch.ones(3, 2, 32)).shape
    torch.Size([3, 16])
    """

    def __init__(self, shape: tuple[int, ...], features: int, width: int) -> None:
        super().__init__()
        self.net = InferenceNet(shape, features, width)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """z_U of windows: (n, features)."""
        return nn.functional.normalize(self.net(signal))


def info_nce(features: torch.Tensor, codes: torch.Tensor, temperature: float) -> torch.Tensor:
    """Equation (6), mean over all pairs of one class: -log e^s+ / (e^s+ + sum_j e^s-_j).

    s is the cosine of two windows' features over the temperature. Every window of the batch is an
    anchor, every other one of its class a positive in turn, and all of other classes are the
    negatives. Features (n, size) have length 1; `codes` (n,) are the classes.

    >>> apart = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> round(float(info_nce(apart, torch.tensor([0, 0, 1]), temperature=1.0)), 4)  # log(1 + e^-2)
    0.1269
    """
    likeness = features @ features.T / temperature
    same = codes[:, None] == codes
    negatives = likeness.masked_fill(same, _NEVER).logsumexp(1, keepdim=True)
    pairs = same & ~torch.eye(len(codes), dtype=torch.bool, device=codes.device)
    # -log e^s / (e^s + e^m) is log(1 + e^(m - s)).
    surprise = nn.functional.softplus(negatives - likeness) * pairs
    return surprise.sum() / pairs.sum().clamp(min=1)


def train_encoder(
    net: nn.Module,
    gather: Gather,
    codes: torch.Tensor,
    temperature: float,
    course: Course,
    seed: int,
    *,
    stage: str = "encoder",
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Equation (6) on batches of windows and their classes (n,); no hidden attribute is asked."""

    def loss(index: torch.Tensor) -> torch.Tensor:
        return info_nce(net(gather(index)).float(), codes[index], temperature)

    return train_one(stage, net, loss, len(codes), course, seed, codes.device, checkpoint)
