"""ResNet18 has its eighteen layers, and blocks that add to what came in."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sensorveil.nets.resnet import ResidualBlock, ResNet18


def test_eighteen_layers_of_weights() -> None:
    net = ResNet18(channels=3, classes=10, width=64)
    on_the_way = [
        name
        for name, module in net.named_modules()
        if isinstance(module, nn.Conv1d | nn.Linear) and ".past" not in name
    ]
    assert len(on_the_way) == 18
    assert net.head.in_features == 512


@pytest.mark.parametrize("length", [1, 33, 128])
def test_any_length(length: int) -> None:
    net = ResNet18(channels=3, classes=4, width=4).eval()
    assert net(torch.zeros(2, 3, length)).shape == (2, 4)


def test_a_block_without_weights_passes_on_what_came_in() -> None:
    block = ResidualBlock(4, 4, stride=1).eval()
    nn.init.zeros_(block.way[3].weight)
    signal = torch.rand(2, 4, 9)
    torch.testing.assert_close(block(signal), signal)
    assert ResidualBlock(4, 8, stride=2)(signal).shape == (2, 8, 5)
