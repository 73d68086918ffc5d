"""Stacked networks against plain ones, and the code's distribution against closed forms."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from sensorveil.vae import StackedLinear, StackedMLP, kl_divergence, one_hot, reparameterise


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def plain(stacked, network):
    """The torch network with the weights of one of the stacked networks."""
    layers = []
    for layer in stacked.layers:
        own = nn.Linear(layer.weight.shape[1], layer.weight.shape[2])
        own.weight.data = layer.weight[network].detach().T.clone()
        own.bias.data = layer.bias[network, 0].detach().clone()
        layers += [own, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def test_each_stacked_network_and_its_gradients_are_those_of_a_plain_one():
    stacked = StackedMLP(generators(1, 2, 3), (6, 9, 7, 4))
    x = torch.randn(3, 11, 6, generator=torch.Generator().manual_seed(0))
    output = stacked(x)
    output.square().mean((1, 2)).sum().backward()
    for network in range(3):
        own = plain(stacked, network)
        torch.testing.assert_close(output[network], own(x[network]), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(stacked(x[network], network), own(x[network]))
        own(x[network]).square().mean().backward()
        for layer, linear in zip(stacked.layers, own[::2], strict=True):
            torch.testing.assert_close(
                layer.weight.grad[network], linear.weight.grad.T, rtol=1e-4, atol=1e-7
            )


@pytest.mark.parametrize("place", [0, 2])
def test_a_network_starts_the_same_alone_and_among_others(place):
    seeds, before = (5, 6, 7), torch.get_rng_state()
    many = StackedMLP(generators(*seeds), (6, 9, 4))
    alone = StackedMLP(generators(seeds[place]), (6, 9, 4))
    for name, weights in alone.state_dict().items():
        assert torch.equal(weights[0], many.state_dict()[name][place])
    assert not torch.equal(many.layers[0].weight[0], many.layers[0].weight[1])
    assert torch.equal(before, torch.get_rng_state())


def test_weights_are_initialised_as_torch_does():
    layer = StackedLinear(generators(1, 2), 400, 300)
    for weights in (layer.weight, layer.bias):
        assert weights.abs().max() <= 400**-0.5
        np.testing.assert_allclose(weights.var().item(), 1 / 400 / 3, rtol=0.1)


def test_divergence_and_reparameterisation_against_torch_distributions():
    mu, log_variance = torch.tensor([[[0.5, -1.0]]]), torch.tensor([[[0.2, -0.7]]])
    normal = torch.distributions.Normal(mu, (log_variance / 2).exp())
    expected = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0, 1)).sum()
    assert kl_divergence(mu, log_variance).item() == pytest.approx(expected.item(), rel=1e-5)
    assert kl_divergence(mu, None).item() == 0
    noise = torch.tensor([[[2.0, 3.0]]])
    z = reparameterise(mu, log_variance, noise)[0, 0]
    np.testing.assert_allclose(z, [0.5 + 2 * math.exp(0.1), -1 + 3 * math.exp(-0.35)], rtol=1e-6)
    assert reparameterise(mu, None, noise) is mu


def test_one_hot_classes_stand_side_by_side():
    codes = torch.tensor([[0, 2], [1, 0]])
    assert one_hot(codes, (2, 3)).tolist() == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]]
