"""PrivDiffuser's trainings: they read what they should, and tell little of what they should not."""

from __future__ import annotations

import math

import pytest
import torch

from sensorveil.diffusion.features import FeatureNet, FeatureSettings
from sensorveil.diffusion.privdiffusion import (
    Mines,
    regularised_loss,
    train_auxiliary,
    train_surrogate,
)
from sensorveil.train import TrainConfig

SMALL = FeatureSettings(channels=(4, 8), dense=(16,), kernels=1)
COURSE = TrainConfig(epochs=15, batch_size=32, learning_rate=5e-3)


def windows(count: int = 256) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Waves whose frequency is the kept class and whose size is the hidden one."""
    chance = torch.Generator().manual_seed(0)
    kept = torch.arange(count) % 3
    hidden = torch.arange(count) // 3 % 2
    time = torch.arange(32) * 0.3
    wave = torch.sin(time * (1 + kept[:, None])) * (1.0 + hidden[:, None])
    return (wave + 0.2 * torch.randn(count, 32, generator=chance))[:, None], kept, hidden


def surrogate() -> tuple[FeatureNet, torch.Tensor]:
    x, kept, _ = windows()
    torch.manual_seed(0)
    net = FeatureNet((1, 32), (3,), SMALL)
    losses = train_surrogate(net, lambda index: x[index], kept[:, None], COURSE, seed=0)
    assert losses[-1] < 0.3 * losses[0]
    return net, net(x)[0].detach()


def test_the_surrogate_reads_the_kept_class() -> None:
    x, kept, _ = windows()
    net, features = surrogate()
    (scores,) = net(x)[1]
    assert (scores.argmax(1) == kept).float().mean() > 0.95
    assert torch.allclose(features.norm(dim=1), torch.ones(len(x)), atol=1e-5)


def test_several_kept_attributes_have_heads_of_their_own() -> None:
    x, kept, hidden = windows()
    torch.manual_seed(0)
    net = FeatureNet((1, 32), (3, 2), SMALL)
    labels = torch.stack([kept, hidden], dim=1)
    train_surrogate(net, lambda index: x[index], labels, COURSE, seed=0)
    for which, scores in enumerate(net(x)[1]):
        assert (scores.argmax(1) == labels[:, which]).float().mean() > 0.9


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_the_auxiliary_reads_the_hidden_class(weight: float) -> None:
    x, kept, hidden = windows()
    _, features = surrogate()
    torch.manual_seed(1)
    net = FeatureNet((1, 32), (2,), SMALL, known=60)
    train_auxiliary(
        net,
        lambda index: x[index],
        features,
        hidden,
        kept[:, None],
        [3],
        weight,
        COURSE,
        seed=1,
        stage="auxiliary",
    )
    _, (scores,) = net(x, features)
    assert (scores.argmax(1) == hidden).float().mean() > 0.9


def test_equation_18_by_hand() -> None:
    """CE + w3 (I_1 + I_2), an estimate below zero counting as zero; gradients by differences."""
    chance = torch.Generator().manual_seed(3)
    code = torch.randn(12, 4, generator=chance)
    scores = torch.randn(12, 2, generator=chance)
    hidden = torch.randint(2, (12,), generator=chance)
    kept = torch.randint(3, (12, 2), generator=chance)
    torch.manual_seed(0)
    mines = Mines([3, 3], code=4)
    optimizer = torch.optim.Adam(mines.parameters(), 1e-3)
    for _ in range(20):  # learns these few by heart
        optimizer.zero_grad()
        mines.loss(code, kept).backward()
        optimizer.step()
    for weights in mines.nets[1].parameters():  # and forgets the second attribute again
        weights.data = 3 * weights.data.flip(0)
    code.requires_grad_()
    found = regularised_loss(code, scores, hidden, kept, mines, weight=0.7)
    total = torch.nn.functional.cross_entropy(scores, hidden).item()
    cut = 0
    for which, net in enumerate(mines.nets):
        told = torch.nn.functional.one_hot(kept[:, which], 3).float()
        others = torch.cat([code[-1:], code[:-1]])
        true, shuffled = net(told, code).tolist(), net(told, others).tolist()
        ratio = sum(math.exp(score) for score in shuffled) / 12
        information = sum(true) / 12 - math.log(ratio)
        cut += information < 0
        total += 0.7 * max(information, 0)
    assert cut == 1, "one of the two estimates is to be below zero, or the test shows less"
    assert found.item() == pytest.approx(total, rel=1e-4)
    (slope,) = torch.autograd.grad(found, code)
    step = torch.zeros_like(code)
    step[2, 1] = 1e-2
    ends = [
        regularised_loss((code + way * step).detach(), scores, hidden, kept, mines, 0.7).item()
        for way in (-1, 1)
    ]
    assert slope[2, 1].item() == pytest.approx((ends[1] - ends[0]) / 2e-2, rel=0.05, abs=1e-3)


def test_mines_find_what_is_there_and_nothing_where_nothing_is() -> None:
    """A code that is the class has log(2) nats of it; one that is noise has none."""
    chance = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (4000, 2), generator=chance)
    codes = torch.randn(4000, 4, generator=chance)
    codes[:, 0] = labels[:, 0] * 2.0 - 1
    torch.manual_seed(0)
    mines = Mines([2, 2], code=4)
    optimizer = torch.optim.Adam(mines.parameters(), 1e-3)
    for _ in range(150):
        index = torch.randint(4000, (256,), generator=chance)
        optimizer.zero_grad()
        mines.loss(codes[index], labels[index]).backward()
        optimizer.step()
    with torch.no_grad():
        first, second = mines.information(codes, labels).tolist()
    assert abs(first - math.log(2)) < 0.1
    assert abs(second) < 0.1
