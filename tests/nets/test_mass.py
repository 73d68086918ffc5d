"""MaSS: sizes of its networks, and its losses against their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from sensorveil.nets.mass import (
    AttributeNet,
    Transform,
    label_entropy,
    paired_info_nce,
    surprise,
    told_too_little,
    told_too_much,
    train_attribute_net,
    train_features,
)
from sensorveil.train import TrainConfig, seeded


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_sizes_of_the_authors_code_on_motionsense() -> None:
    """Linear 512-256, 256-256 and 256-256; convolutions 16-32-64-64, then 512-256-K."""
    layers = [one for one in Transform((2, 128)).modules() if isinstance(one, nn.Linear)]
    assert [(one.in_features, one.out_features) for one in layers] == [
        (512, 256), (256, 256), (256, 256),
    ]  # fmt: skip
    net = AttributeNet((2, 128), outputs=4)
    dense = [one for one in net.modules() if isinstance(one, nn.Linear)]
    assert [(one.in_features, one.out_features) for one in dense] == [(512, 256), (256, 4)]


def test_the_transform_by_hand() -> None:
    """relu(W2 relu(W1 [x, noise]) + x), where both norms leave things as they are, then a layer."""
    with seeded(0):
        net = Transform((1, 3)).eval().double()
    x, noise = numbers(4, 1, 3).double(), numbers(4, 1, 3, seed=1).double()
    first, second = net.inside[0].weight, net.inside[3].weight
    one = 1 / math.sqrt(1 + 1e-5)  # untouched running statistics: mean 0 and variance 1
    inner = (torch.cat([x[:, 0], noise[:, 0]], 1) @ first.T * one).relu() @ second.T * one
    wanted = (inner + x[:, 0]).relu() @ net.leave.weight.T + net.leave.bias
    torch.testing.assert_close(net(x, noise)[:, 0], wanted)


@pytest.mark.parametrize(("told", "allowed", "excess"), [(0.5, 0.2, 0.3), (0.1, 0.2, 0.0)])
def test_hidden_attributes_cost_what_is_told_beyond_the_limit(
    told: float, allowed: float, excess: float
) -> None:
    """I = H - CE = told, and the limit is I <= m."""
    found = told_too_much(torch.tensor(math.log(2) - told), math.log(2), allowed)
    assert float(found) == pytest.approx(excess + excess**2, abs=1e-6)


@pytest.mark.parametrize(("told", "wanted", "lacking"), [(0.5, 0.6, 0.1), (0.65, 0.6, 0.0)])
def test_kept_attributes_cost_what_is_lacking(told: float, wanted: float, lacking: float) -> None:
    found = told_too_little(torch.tensor(math.log(2) - told), math.log(2), wanted)
    assert float(found) == pytest.approx(lacking + lacking**2, abs=1e-6)


def test_a_view_finds_itself_in_the_other() -> None:
    """Against loops over all pairs, both ways."""
    some, others = numbers(5, 4).double(), numbers(5, 4, seed=1).double()
    first, second = nn.functional.normalize(some), nn.functional.normalize(others)
    total = 0.0
    for a, b in ((first, second), (second, first)):
        for i in range(5):
            chances = [math.exp(float(a[i] @ b[j]) / 0.2) for j in range(5)]
            total -= math.log(chances[i] / sum(chances))
    found = paired_info_nce(some, others, temperature=0.2)
    assert float(found) == pytest.approx(total / 10, rel=1e-5)


def test_entropies_and_surprise_leave_the_unknown_out() -> None:
    codes = torch.tensor([0, 0, 1, -1])
    wanted = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    assert label_entropy(codes) == pytest.approx(wanted)
    scores = numbers(4, 2)
    known = nn.functional.cross_entropy(scores[:3], codes[:3])
    torch.testing.assert_close(surprise(scores, codes), known)
    assert float(surprise(scores, torch.full((4,), -1))) == 0.0


def test_short_windows_are_not_halved_away() -> None:
    assert AttributeNet((1, 3), 2)(numbers(4, 1, 3)).shape == (4, 2)


def test_readers_and_features_learn() -> None:
    codes = torch.arange(64) % 2
    signal = 0.3 * numbers(64, 1, 16)
    signal[:, 0] += codes.unsqueeze(1)
    with seeded(0):
        reader = AttributeNet((1, 16), 2, (4, 4, 8, 8), dense=16)
        features = AttributeNet((1, 16), 16, (4, 4, 8, 8), dense=16)
    course = TrainConfig(15, 32, 5e-3)
    losses = train_attribute_net(
        reader, lambda index: signal[index], codes, course, seed=0, stage="reader"
    )
    assert losses[-1] < 0.3 * losses[0]
    losses = train_features(features, lambda index: signal[index], 64, course, 0, "cpu")
    assert losses[-1] < 0.5 * losses[0]
