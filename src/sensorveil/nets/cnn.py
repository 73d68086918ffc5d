"""The papers' inference models: four convolutional and three dense layers, or dense ones alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


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


class CNN(nn.Module):
    """Reads one attribute from windows: (n, channels, length) or (n, channels, height, width).

    The papers state the number of layers and no more; widths follow the first network of this
    line (Malekzadeh and others, 64-64-32-32 filters of five samples, dense 256-64), with one
    width for all four convolutions.

    >>> CNN(shape=(2, 128), classes=4)(torch.zeros(3, 2, 128)).shape
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


class MLP(nn.Module):
    """Reads one attribute by dense layers alone, of the sizes in ObscureNet's code for MotionSense.

    Its paper speaks of convolutional networks; the code has these, with half of the units dropped
    out in training.

    >>> MLP(shape=(2, 128), classes=4)(torch.zeros(3, 2, 128)).shape
    torch.Size([3, 4])
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        sizes = (math.prod(shape), 256, 512, 256, 256, 128, 16)
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(0.5 if after > 16 else 0.0)]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], classes))

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Scores before the softmax: (n, classes)."""
        scores: torch.Tensor = self.layers(signal)
        return scores


@torch.no_grad()
def folded(net: nn.Module) -> nn.Module:
    """A copy for reading only: norms are folded into convolutions, dropout and learning are gone.

    A single window through a small network costs little but the calls, and these are half of them.

    >>> net = CNN(shape=(2, 128), classes=4).eval()
    >>> window = torch.randn(1, 2, 128)
    >>> bool(torch.allclose(net(window), folded(net)(window), atol=1e-5))
    True
    """
    layers: list[nn.Module] = []
    for layer in _flat(net.eval()):
        before = layers[-1] if layers else None
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            assert isinstance(before, nn.Conv1d | nn.Conv2d)
            layers[-1] = fuse_conv_bn_eval(before, layer)
        elif not isinstance(layer, nn.Dropout):
            layers.append(copy.deepcopy(layer))
    return _Chain(layers).eval().requires_grad_(False)


@torch.no_grad()
def abreast(nets: Sequence[nn.Module]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Several `folded` networks of one build as one: windows (n, ...) to scores (nets, n, classes).

    On a processor that takes half the time of one after the other, where there are few windows.

    >>> nets = [folded(CNN(shape=(2, 128), classes=4, width=8)) for _ in range(3)]
    >>> windows = torch.randn(5, 2, 128)
    >>> each = torch.stack([net(windows) for net in nets])
    >>> bool(torch.allclose(abreast(nets)(windows), each, atol=1e-5))
    True
    """
    calls: list[Callable[[torch.Tensor], torch.Tensor]] = []
    groups = 1  # the first convolution is given the same for all
    for layers in zip(*nets, strict=True):
        if isinstance(layers[0], nn.Conv1d | nn.Conv2d):
            calls.append(_call(_grouped(layers, groups)))
            groups = len(nets)
        elif isinstance(layers[0], nn.Flatten):
            assert groups == len(nets), "convolutions come first"
            calls.append(lambda x: x.reshape(len(x), len(nets), -1).transpose(0, 1))
        elif isinstance(layers[0], nn.Linear):
            calls.append(_stacked(cast(tuple[nn.Linear, ...], layers)))
        else:
            calls.append(_call(layers[0]))

    def scores(x: torch.Tensor) -> torch.Tensor:
        for call in calls:
            x = call(x)
        return x

    return scores


def _grouped(layers: Sequence[nn.Module], groups: int) -> nn.Module:
    """Convolutions as one, each on its own group of channels."""
    whole: Any = copy.deepcopy(layers[0])
    whole.weight, whole.bias = (
        nn.Parameter(torch.cat([getattr(layer, part) for layer in layers]), requires_grad=False)
        for part in ("weight", "bias")
    )
    whole.groups = groups
    return whole


def _stacked(layers: Sequence[nn.Linear]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Dense layers as one product of stacks."""
    turned = torch.stack([layer.weight.t() for layer in layers])
    bias = torch.stack([layer.bias for layer in layers]).unsqueeze(1)
    return lambda x: torch.baddbmm(bias, x, turned)


class _Chain(nn.Sequential):
    """Layers that are called as plain functions: nobody hooks into them, and that takes time.

    The functions hold the weights: who moves or loads others into it must build it anew.
    """

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__(*layers)
        self._calls = [_call(layer) for layer in layers]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for call in self._calls:
            x = call(x)
        return x

    __call__ = forward  # not what a module does around it


def _call(layer: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """What a layer does, without asking it for its parts at every call."""
    if isinstance(layer, nn.Linear):
        turned, bias = layer.weight.t(), layer.bias
        return lambda x: torch.addmm(bias, x, turned)
    if isinstance(layer, nn.Conv1d):
        return _convolution(layer)
    if isinstance(layer, nn.MaxPool1d):
        assert (layer.padding, layer.dilation, layer.ceil_mode) == (0, 1, False)
        size, stride = layer.kernel_size, layer.stride
        return lambda x: torch.max_pool1d(x, size, stride)
    if isinstance(layer, nn.AdaptiveAvgPool1d):
        # With the usual windows of 128 samples there are as many values as cells already.
        cells, shrink = layer.output_size, layer.forward
        return lambda x: x if x.shape[-1] == cells else shrink(x)
    # In place: what goes into it was made by the layer before, and nobody else has it.
    return torch.relu_ if isinstance(layer, nn.ReLU) else layer.forward


def _convolution(layer: nn.Conv1d) -> Callable[[torch.Tensor], torch.Tensor]:
    assert (layer.dilation, layer.padding_mode) == ((1,), "zeros")
    weight, bias, groups = layer.weight, layer.bias, layer.groups
    stride, padding = layer.stride, layer.padding
    return lambda x: torch.conv1d(x, weight, bias, stride, padding, groups=groups)


def _flat(net: nn.Module) -> Iterator[nn.Module]:
    """The layers of a network that runs through them one after the other."""
    children = list(net.children())
    if not children:
        yield net
    for child in children:
        yield from _flat(child)
