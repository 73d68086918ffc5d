"""The moving average against its closed form, resumed, and with what is not averaged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from sensorveil.nets.averaging import AveragedWeights
from sensorveil.nets.seeding import seeded


def a_net() -> nn.Module:
    with seeded(0):
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def walk(net: nn.Module, generator: torch.Generator) -> None:
    """Moves all weights at random, and the buffers by reading some numbers."""
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator))
        net.train()(torch.randn(8, 3, generator=generator))


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_closed_form(decay: float) -> None:
    """Each update's weights count with its share, times what all later updates keep."""
    net, generator = a_net(), torch.Generator().manual_seed(1)
    averaged = AveragedWeights(net, decay)
    met = [net[0].weight.detach().double().numpy().copy()]
    for _ in range(40):
        walk(net, generator)
        averaged.update(net)
        met.append(net[0].weight.detach().double().numpy().copy())
    kept = [min(decay, (1 + n) / (10 + n)) for n in range(40)]
    shares = [np.prod(kept)] + [(1 - kept[n]) * np.prod(kept[n + 1 :]) for n in range(40)]
    assert sum(shares) == pytest.approx(1)
    wanted = sum(share * weight for share, weight in zip(shares, met, strict=True))
    np.testing.assert_allclose(averaged.net[0].weight.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_after_the_start_it_is_torchs_own() -> None:
    net, generator = a_net(), torch.Generator().manual_seed(2)
    averaged = AveragedWeights(net, 0.9)
    averaged.updates.fill_(1000)
    theirs = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    theirs.update_parameters(net)  # its first update copies
    for _ in range(10):
        walk(net, generator)
        averaged.update(net)
        theirs.update_parameters(net)
    for mine, its in zip(averaged.net.parameters(), theirs.module.parameters(), strict=True):
        torch.testing.assert_close(mine, its.detach(), rtol=1e-5, atol=1e-5)


def test_buffers_are_copied_and_the_network_is_left_alone() -> None:
    net, generator = a_net(), torch.Generator().manual_seed(3)
    averaged = AveragedWeights(net)
    walk(net, generator)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    averaged.update(net)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(averaged.net[1].running_mean, net[1].running_mean)
    assert int(averaged.net[1].num_batches_tracked) == 1
    assert not torch.equal(averaged.net[0].weight, net[0].weight)
    assert not any(weight.requires_grad for weight in averaged.parameters())
    assert all(weight.requires_grad for weight in net.parameters())


def test_resumed_it_goes_on_bit_by_bit() -> None:
    whole, net = (a_net() for _ in range(2))
    generators = [torch.Generator().manual_seed(4) for _ in range(2)]
    straight, first = AveragedWeights(whole, 0.9), AveragedWeights(net, 0.9)
    for _ in range(12):
        walk(whole, generators[0])
        straight.update(whole)
    for _ in range(5):
        walk(net, generators[1])
        first.update(net)
    with seeded(9):
        second = AveragedWeights(
            nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), 0.9
        )
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    for _ in range(7):
        walk(net, generators[1])
        second.update(net)
    for name, value in straight.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_updates_stay_in_place() -> None:
    """A recorded step knows weights by where they lie."""
    net, generator = a_net(), torch.Generator().manual_seed(5)
    averaged = AveragedWeights(net)
    places = {name: value.data_ptr() for name, value in averaged.state_dict().items()}
    walk(net, generator)
    averaged.update(net)
    assert places == {name: value.data_ptr() for name, value in averaged.state_dict().items()}


def test_it_answers_with_the_average() -> None:
    net = a_net()
    averaged = AveragedWeights(net)
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(6))
    assert torch.equal(averaged(x), net.eval()(x))
