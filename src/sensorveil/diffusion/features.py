"""Short summaries of windows that say one thing: PrivDiffuser's two classifiers.

Yang and Ardakanian (2025), sections 4.2 to 4.4. The surrogate utility model reads the kept
attributes; its 60 features z_p are what the diffusion model is told. The auxiliary privacy model
reads a hidden attribute, knowing z_p; the gradient of its scores leads away from that attribute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from sensorveil.diffusion.unet import as_image, input_channels


@dataclass(frozen=True)
class FeatureSettings:
    """The layers of a `FeatureNet`; the defaults are those of the paper on MotionSense.

    The paper says that the first dense layer has 256 units, the authors' code has 512. CLOAK's
    table VI decides: the surrogate has 34.19 million parameters, of which 34.08 are the first dense
    layer's 512 rows of 66,560 (with 256 units there would be 17.11 in all). 66,560 is 128 channels
    of 4 x 130: kernels of two dimensions, each of which makes 2 x 128 longer by one.

    With `kernels` of one dimension convolutions go along the length, over all channels.
    """

    channels: tuple[int, ...] = (64, 128)
    dense: tuple[int, ...] = (512, 128)
    features: int = 60
    kernels: int = 2


class FeatureNet(nn.Module):
    """Features of length 1 out of windows, and the scores of one attribute or several from them.

    The surrogate utility model has one head for each kept attribute, with `classes` their numbers
    of classes. The auxiliary privacy model has one for the hidden attribute, and its first dense
    layer takes `known` numbers beside the flattened convolutions: the surrogate's features.
    Features come after a ReLU, so that none is below zero. Should it leave nothing of a window,
    its features are the zero vector, which is no condition at all for the U-Net.

    >>> small = FeatureSettings(channels=(4, 8), dense=(16,))
    >>> surrogate = FeatureNet((2, 128), classes=(4, 3), settings=small)
    >>> auxiliary = FeatureNet((2, 128), classes=(2,), settings=small, known=60)
    >>> windows = torch.ones(5, 2, 128)
    >>> z_p, scores = surrogate(windows)
    >>> z_s, (gender,) = auxiliary(windows, z_p)
    >>> z_p.shape, [tuple(score.shape) for score in scores], z_s.shape, gender.shape
    (torch.Size([5, 60]), [(5, 4), (5, 3)], torch.Size([5, 60]), torch.Size([5, 2]))
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: tuple[int, ...],
        settings: FeatureSettings | None = None,
        known: int = 0,
    ) -> None:
        super().__init__()
        chosen = settings or FeatureSettings()
        self.kernels = chosen.kernels
        convolution = nn.Conv2d if chosen.kernels == 2 else nn.Conv1d
        convolutions: list[nn.Module] = []
        for before, after in pairwise((input_channels(shape, self.kernels), *chosen.channels)):
            convolutions += [convolution(before, after, 2, padding=1), nn.ReLU()]
        self.convolutions = nn.Sequential(*convolutions, nn.Flatten())
        places = shape[-self.kernels :]
        flat = chosen.channels[-1] * math.prod(size + len(chosen.channels) for size in places)
        dense: list[nn.Module] = []
        for before, after in pairwise((flat + known, *chosen.dense, chosen.features)):
            dense += [nn.Linear(before, after), nn.ReLU()]
        self.dense = nn.Sequential(*dense)
        self.heads = nn.ModuleList(nn.Linear(chosen.features, count) for count in classes)

    def forward(
        self, signal: torch.Tensor, *known: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Features (n, 60) and the scores of each head before the softmax: (n, classes)."""
        seen = self.convolutions(as_image(signal, self.kernels))
        features = nn.functional.normalize(self.dense(torch.cat([seen, *known], dim=1)))
        return features, tuple(head(features) for head in self.heads)
