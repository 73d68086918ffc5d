"""The convolutional network of both papers: short features of windows, and classes from these.

PrivDiffuser's surrogate utility model and auxiliary privacy models (sections 4.2 to 4.4 and 5.4),
and CLOAK's contrastive encoder, which has the same layers without a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import normalize

from sensorveil.diffusion.unet import as_image, input_channels


@dataclass(frozen=True)
class FeatureSettings:
    """The layers of a `FeatureNet`; the defaults are the paper's on MotionSense.

    The paper says that the first dense layer has 256 units, the authors' code has 512. CLOAK's
    table VI decides: the surrogate has 34.19 million parameters, of which 34.08 are the 512 rows of
    66,560 numbers (128 channels of 4 x 130: kernels of two dimensions, each of which makes 2 x 128
    longer by one).

    Parameters
    ----------
    channels
        Of the two convolutions.
    hidden_sizes
        Of the dense layers before the features.
    features
        Numbers in the features.
    kernel_dims
        Dimensions of the kernels; with 1 they go along the length, over all channels.
    """

    channels: tuple[int, ...] = (64, 128)
    hidden_sizes: tuple[int, ...] = (512, 128)
    features: int = 60
    kernel_dims: int = 2


class FeatureNet(nn.Module):
    """Features of length 1, and the logits of one attribute or several from them.

    Features come after a ReLU, so that none is negative.

    Parameters
    ----------
    shape
        The shape of one window.
    num_classes
        Classes of each head.
    settings
        Layers, see `FeatureSettings`.
    context
        So many numbers are given beside the window, to the first dense layer: PrivDiffuser's
        auxiliary model is given the surrogate's features.

    Examples
    --------
    >>> small = FeatureSettings(channels=(4, 8), hidden_sizes=(16,))
    >>> surrogate = FeatureNet((2, 128), num_classes=(4, 3), settings=small)
    >>> auxiliary = FeatureNet((2, 128), num_classes=(2,), settings=small, context=60)
    >>> windows = torch.ones(5, 2, 128)
    >>> z_p, logits = surrogate(windows)
    >>> z_s, (gender,) = auxiliary(windows, z_p)
    >>> z_p.shape, [tuple(one.shape) for one in logits], z_s.shape, gender.shape
    (torch.Size([5, 60]), [(5, 4), (5, 3)], torch.Size([5, 60]), torch.Size([5, 2]))
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        num_classes: Sequence[int],
        settings: FeatureSettings | None = None,
        context: int = 0,
    ) -> None:
        super().__init__()
        settings = settings or FeatureSettings()
        self.kernel_dims = settings.kernel_dims
        convolution = nn.Conv2d if settings.kernel_dims == 2 else nn.Conv1d
        layers: list[nn.Module] = []
        sizes = (input_channels(shape, settings.kernel_dims), *settings.channels)
        for before, after in pairwise(sizes):
            layers += [convolution(before, after, 2, padding=1), nn.ReLU()]
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        places = [size + len(settings.channels) for size in shape[-settings.kernel_dims :]]
        flat = settings.channels[-1] * math.prod(places)
        dense: list[nn.Module] = []
        for before, after in pairwise((flat + context, *settings.hidden_sizes, settings.features)):
            dense += [nn.Linear(before, after), nn.ReLU()]
        self.dense = nn.Sequential(*dense)
        self.heads = nn.ModuleList(nn.Linear(settings.features, count) for count in num_classes)

    def forward(
        self, signal: torch.Tensor, *context: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Features (n, features) and the logits of each head (n, classes)."""
        flat = self.convolutions(as_image(signal, self.kernel_dims))
        features = normalize(self.dense(torch.cat([flat, *context], dim=1)))
        return features, tuple(head(features) for head in self.heads)
