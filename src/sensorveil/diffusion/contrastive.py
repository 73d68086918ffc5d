"""Contrastive learning (CLOAK, section IV-B): encoders of a class, and of little else."""

from __future__ import annotations

import torch
from torch import nn

from sensorveil.diffusion.features import FeatureNet, FeatureSettings
from sensorveil.nets.cnn import CNN
from sensorveil.train import Checkpoint, Gather, TrainConfig, train_network

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
        self.net = CNN(shape, features, width)

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


class ClassPoints(nn.Module):
    """A point of length 1 for each class, where the features of its windows shall lie.

    With these for the samples of equation (6), every window is compared with all classes at every
    step, whatever the batch holds: z_U+ is the point of its class, z_U- are those of the others.
    """

    def __init__(self, classes: int, features: int) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(classes, features))

    def forward(
        self, features: torch.Tensor, codes: torch.Tensor, temperature: float
    ) -> torch.Tensor:
        """Equation (6), mean over windows (n, size) of length 1 and of the classes `codes` (n,).

        >>> net = ClassPoints(classes=2, features=2)
        >>> _ = net.points.data.copy_(torch.tensor([[3.0, 0.0], [-1.0, 0.0]]))
        >>> features = torch.tensor([[1.0, 0.0]])
        >>> round(float(net(features, torch.tensor([0]), 1.0).detach()), 4)  # log(1 + e^-2)
        0.1269
        """
        likeness = features @ nn.functional.normalize(self.points).T
        return nn.functional.cross_entropy(likeness / temperature, codes)


def train_encoder(
    net: nn.Module,
    gather: Gather,
    codes: torch.Tensor,
    temperature: float,
    course: TrainConfig,
    seed: int,
    *,
    points: ClassPoints | None = None,
    stage: str = "encoder",
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Equation (6) on batches of windows and their classes (n,); no hidden attribute is asked.

    Windows are compared with each other or, where there are `points`, with these, which learn too.
    """
    compared = points or info_nce

    def loss(index: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = compared(net(gather(index)).float(), codes[index], temperature)
        return found

    both = nn.ModuleList([net] if points is None else [net, points])
    return train_network(stage, both, loss, len(codes), course, seed, codes.device, checkpoint)
