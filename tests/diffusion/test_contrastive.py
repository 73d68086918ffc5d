"""InfoNCE against sums by hand; encoders of the published size that learn the class."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from sensorveil.diffusion.contrastive import (
    ClassPoints,
    PublishedEncoder,
    SmallEncoder,
    info_nce,
    train_encoder,
)
from sensorveil.diffusion.features import FeatureSettings
from sensorveil.train import TrainConfig, seeded


def unit(count: int, size: int, seed: int = 0) -> torch.Tensor:
    drawn = torch.randn(count, size, generator=torch.Generator().manual_seed(seed))
    return nn.functional.normalize(drawn)


def slow_info_nce(features: torch.Tensor, codes: list[int], temperature: float) -> float:
    """Equation (6) written out: every anchor, every positive, all negatives."""
    losses = []
    for i, anchor in enumerate(features):
        negatives = sum(
            math.exp(float(anchor @ other) / temperature)
            for other, code in zip(features, codes, strict=True)
            if code != codes[i]
        )
        for j, positive in enumerate(features):
            if j != i and codes[j] == codes[i]:
                alike = math.exp(float(anchor @ positive) / temperature)
                losses.append(-math.log(alike / (alike + negatives)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("codes", [[0, 1, 0, 1, 2, 2, 0], [0, 0, 1, 2, 3, 4, 5]])
def test_it_is_the_equation(codes: list[int], temperature: float) -> None:
    features = unit(7, 4).double()
    found = info_nce(features, torch.tensor(codes), temperature)
    assert float(found) == pytest.approx(slow_info_nce(features, codes, temperature))


def test_a_chance_encoder_and_a_perfect_one() -> None:
    """All features alike: log(1 + K). Two classes at opposite ends: log(1 + K e^(-2 / tau))."""
    codes = torch.arange(12) % 2
    same = torch.zeros(12, 3)
    same[:, 0] = 1
    assert float(info_nce(same, codes, 0.5)) == pytest.approx(math.log(1 + 6), rel=1e-5)
    apart = same * (1 - 2 * codes.unsqueeze(1))
    wanted = math.log1p(6 * math.exp(-2 / 0.5))
    assert float(info_nce(apart, codes, 0.5)) == pytest.approx(wanted, rel=1e-4)


def test_gradients_are_finite_where_a_batch_has_one_class_or_no_pair() -> None:
    for codes in ([0, 0, 0], [0, 1, 2]):
        features = unit(3, 4).requires_grad_()
        loss = info_nce(features, torch.tensor(codes), 0.05)
        (gradient,) = torch.autograd.grad(loss, features)
        assert loss.item() == pytest.approx(0.0, abs=1e-6)
        assert torch.isfinite(gradient).all()


def test_gradients_are_those_of_finite_differences() -> None:
    codes = torch.tensor([0, 1, 0, 1, 2])
    features = unit(5, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: info_nce(z, codes, 0.3), (features,))


def test_points_of_classes_stand_for_the_samples_of_the_equation() -> None:
    """Equation (6) with the class's point as the positive and all others as the negatives."""
    points, features, codes = ClassPoints(3, 4).double(), unit(6, 4).double(), [0, 2, 1, 1, 0, 2]
    own = nn.functional.normalize(points.points.detach())
    wanted = 0.0
    for window, code in zip(features, codes, strict=True):
        alike = [math.exp(float(window @ point) / 0.3) for point in own]
        wanted -= math.log(alike[code] / sum(alike)) / len(codes)
    found = points(features, torch.tensor(codes), 0.3)
    assert float(found.detach()) == pytest.approx(wanted)


def test_the_encoder_is_as_large_as_the_published_one() -> None:
    """CLOAK's table VI: Aux-U has 34.19 M parameters, 130.41 MB of 2^20 bytes."""
    with torch.device("meta"):
        net = PublishedEncoder((2, 128))
    count = sum(weight.numel() for weight in net.parameters())
    assert (round(count / 1e6, 2), round(count * 4 / 2**20, 2)) == (34.19, 130.41)


@pytest.mark.parametrize("which", ["published", "small", "points"])
def test_windows_of_one_class_come_together(which: str) -> None:
    """The class is in the rhythm; a person's amplitude is not asked for, and mixes."""
    count, time = 128, torch.arange(32.0)
    codes = torch.arange(count) % 2
    chance = torch.Generator().manual_seed(0)
    amplitude = 0.5 + torch.rand(count, 1, generator=chance)
    signal = amplitude * torch.sin(time * (0.4 + 0.5 * codes.unsqueeze(1)))
    signal = (signal + 0.1 * torch.randn(signal.shape, generator=chance)).unsqueeze(1)
    with seeded(0):
        points = ClassPoints(2, 8) if which == "points" else None
        if which != "published":
            net: nn.Module = SmallEncoder((1, 32), features=8, width=8)
        else:
            settings = FeatureSettings(channels=(4, 8), dense=(16,), features=8, kernels=1)
            net = PublishedEncoder((1, 32), settings)
    losses = train_encoder(
        net,
        lambda index: signal[index],
        codes,
        0.2,
        TrainConfig(30, 32, 5e-3),
        seed=0,
        points=points,
    )
    with torch.no_grad():
        features = net(signal)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(count))
    centres = torch.stack([features[codes == code].mean(0) for code in (0, 1)])
    assert ((features @ centres.T).argmax(1) == codes).float().mean() > 0.95
    assert losses[-1] < 0.5 * losses[0]
