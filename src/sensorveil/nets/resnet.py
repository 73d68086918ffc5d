"""ResNet18 along time: the classifier of the CSI paper's experiments.

He and others (2016): a stem, four stages of two blocks of two convolutions, and one dense layer.
The paper says no more than the name; convolutions here go over moments, all channels together.
"""

from __future__ import annotations

import torch
from torch import nn


class ResNet18(nn.Module):
    """Reads one attribute from windows (n, channels, length); `width` is 64 in the original.

    >>> ResNet18(channels=90, classes=8, width=8)(torch.zeros(3, 90, 64)).shape
    torch.Size([3, 8])
    """

    def __init__(self, channels: int, classes: int, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv1d(channels, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.MaxPool1d(3, stride=2, padding=1),
        ]
        before = width
        for stage in range(4):
            after = width * 2**stage
            layers += [ResidualBlock(before, after, stride=1 if stage == 0 else 2)]
            layers += [ResidualBlock(after, after, stride=1)]
            before = after
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.head = nn.Linear(before, classes)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Scores before the softmax: (n, classes)."""
        scores: torch.Tensor = self.head(self.layers(signal))
        return scores


class ResidualBlock(nn.Module):
    """Two convolutions over three moments, added to what came in."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv1d(before, after, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm1d(after),
            nn.ReLU(),
            nn.Conv1d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm1d(after),
        )
        self.past: nn.Module = nn.Identity()
        if before != after or stride != 1:
            self.past = nn.Sequential(
                nn.Conv1d(before, after, 1, stride=stride, bias=False), nn.BatchNorm1d(after)
            )

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """(n, before, length) to (n, after, length / stride)."""
        summed: torch.Tensor = self.way(signal) + self.past(signal)
        return nn.functional.relu(summed)
