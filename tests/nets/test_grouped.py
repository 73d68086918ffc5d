"""Grouped networks: each group is what a network of its own would be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sensorveil.nets.grouped import GroupedLinear, GroupedMLP


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def alone(net: GroupedMLP, group: int) -> nn.Sequential:
    """The plain torch network with the weights of one group."""
    layers: list[nn.Module] = []
    for layer in net.layers:
        plain = nn.Linear(layer.weight.shape[1], layer.weight.shape[2])
        plain.weight.data = layer.weight[group].detach().T.clone()
        plain.bias.data = layer.bias[group, 0].detach().clone()
        layers += [plain, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def test_each_group_is_a_plain_network() -> None:
    net = GroupedMLP(generators(1, 2, 3), (6, 9, 7, 4))
    x = torch.randn(3, 11, 6, generator=torch.Generator().manual_seed(0))
    out = net(x)
    assert out.shape == (3, 11, 4)
    for group in range(3):
        expected = alone(net, group)(x[group])
        torch.testing.assert_close(out[group], expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(net.one(group, x[group]), expected, rtol=1e-5, atol=1e-6)


def test_gradients_of_a_group_are_those_of_a_plain_network() -> None:
    net = GroupedMLP(generators(1, 2), (6, 9, 4))
    x = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    net(x).square().mean((1, 2)).sum().backward()
    plain = alone(net, 1)
    plain(x[1]).square().mean().backward()
    for layer, own in zip(net.layers, (plain[0], plain[2]), strict=True):
        torch.testing.assert_close(layer.weight.grad[1], own.weight.grad.T, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(layer.bias.grad[1, 0], own.bias.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_group_starts_the_same_alone_and_among_others(place: int) -> None:
    seeds = (5, 6, 7)
    many = GroupedMLP(generators(*seeds), (6, 9, 4))
    one = GroupedMLP(generators(seeds[place]), (6, 9, 4))
    for name, weights in one.state_dict().items():
        assert torch.equal(weights[0], many.state_dict()[name][place])
    assert not torch.equal(many.layers[0].weight[0], many.layers[0].weight[1])


def test_weights_are_drawn_as_torch_draws_them() -> None:
    """Uniform within one over the root of the inputs: the variance is a third of that squared."""
    layer = GroupedLinear(generators(1, 2), 400, 300)
    for weights in (layer.weight, layer.bias):
        assert weights.abs().max() <= 400**-0.5
        np.testing.assert_allclose(weights.var().item(), 1 / 400 / 3, rtol=0.1)
        assert abs(weights.mean().item()) < 0.1 * 400**-0.5


def test_no_global_draw_is_made() -> None:
    before = torch.get_rng_state()
    GroupedMLP(generators(1), (3, 2))
    assert torch.equal(before, torch.get_rng_state())
