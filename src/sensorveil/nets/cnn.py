"""The papers' inference model: four convolutional and three dense layers."""

from __future__ import annotations

import torch
from torch import nn


def as_real(signal: torch.Tensor) -> torch.Tensor:
    """Complex channels as real ones: real part, imaginary part, and magnitude.

    The magnitude follows from the other two, but a network finds it hard to form, and an
    attacker should not be weak for want of it.

    >>> as_real(torch.tensor([[[3 + 4j]]])).flatten().tolist()
    [3.0, 4.0, 5.0]
    """
    if not signal.is_complex():
        return signal
    return torch.cat([signal.real, signal.imag, signal.abs()], dim=1)


class InferenceNet(nn.Module):
    """Reads one attribute from windows: (n, channels, length) or (n, channels, height, width).

    The papers state the number of layers and no more; widths follow the first network of this
    line (Malekzadeh and others, 64-64-32-32 filters of five samples, dense 256-64), with one
    width for all four convolutions.

    >>> InferenceNet(shape=(2, 128), classes=4)(torch.zeros(3, 2, 128)).shape
    torch.Size([3, 4])
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 64) -> None:
        super().__init__()
        flat = len(shape) == 3
        convolution = nn.Conv2d if flat else nn.Conv1d
        norm = nn.BatchNorm2d if flat else nn.BatchNorm1d
        pool = nn.MaxPool2d if flat else nn.MaxPool1d
        shrink = nn.AdaptiveAvgPool2d if flat else nn.AdaptiveAvgPool1d
        layers: list[nn.Module] = []
        channels, size = shape[0], min(shape[1:])
        for _ in range(4):
            layers += [convolution(channels, width, 5, padding=2), norm(width), nn.ReLU()]
            if size >= 16:  # short windows keep what little resolution they have
                layers.append(pool(2))
                size //= 2
            layers.append(nn.Dropout(0.1))
            channels = width
        cells = 4 if flat else 8
        self.features = nn.Sequential(*layers, shrink(cells), nn.Flatten())
        self.head = nn.Sequential(
            nn.Linear(width * cells ** (2 if flat else 1), 256),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(256, 64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Scores before the softmax: (n, classes)."""
        scores: torch.Tensor = self.head(self.features(signal))
        return scores
