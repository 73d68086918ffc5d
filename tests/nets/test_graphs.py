"""A network as a compiled function."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn

from sensorveil.nets.graphs import as_function


def test_not_compiled_it_is_the_network_itself() -> None:
    net = nn.Linear(2, 2)
    assert as_function(net, compiled=False) is net


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")
def test_compiled_it_keeps_the_weights_of_the_network() -> None:
    net, x = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 2)), torch.ones(5, 4)
    call = as_function(net, compiled=True)
    torch.testing.assert_close(call(x), net(x))
    call(x).sum().backward()
    learnt = net[0].weight.grad
    net[0].weight.grad = None
    net(x).sum().backward()
    torch.testing.assert_close(learnt, net[0].weight.grad)
    with torch.no_grad():
        net[2].bias.add_(1)
    torch.testing.assert_close(call(x), net(x))
