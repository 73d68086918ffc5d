"""MINE: the bound, its corrected gradient, and values that are known."""

from __future__ import annotations

import math

import pytest
import torch

from sensorveil.errors import Refusal
from sensorveil.information import (
    MineNet,
    corrected_loss,
    estimate_mine,
    log_mean_exp,
    lower_bound,
    updated_average,
)

QUICK = {"width": 64, "batch": 128, "rate": 2e-3, "patience": 6}


def gaussians(rho: float, count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(seed)
    x, noise = torch.randn(2, count, 1, generator=chance)
    return x, rho * x + math.sqrt(1 - rho**2) * noise


def test_the_network_is_that_of_the_papers() -> None:
    net = MineNet(7, 3)
    shapes = [tuple(p.shape) for p in net.parameters() if p.ndim == 2]
    assert shapes == [(400, 10), (400, 400), (400, 400), (1, 400)]
    assert isinstance(net.layers[-1], torch.nn.Linear)  # no ReLU at the end
    torch.nn.init.constant_(net.layers[-1].bias, -9.0)
    assert (net(torch.zeros(5, 7), torch.zeros(5, 3)) < 0).all()


def test_the_bound_by_hand() -> None:
    joint, marginal = torch.tensor([1.0, 3.0]), torch.tensor([0.0, math.log(3.0)])
    assert float(lower_bound(joint, marginal)) == pytest.approx(2 - math.log(2))
    assert float(lower_bound(joint + 5, marginal + 5)) == pytest.approx(2 - math.log(2), abs=1e-5)


def test_large_scores_do_not_overflow() -> None:
    scores = torch.tensor([1e4, -1e4], requires_grad=True)
    assert float(log_mean_exp(scores.detach())) == pytest.approx(1e4 - math.log(2))
    average = updated_average(torch.tensor(0.0), scores)
    loss = corrected_loss(scores, scores, average)
    loss.backward()
    assert scores.grad is not None
    assert torch.isfinite(loss)
    assert torch.isfinite(scores.grad).all()


def test_the_moving_average_against_plain_arithmetic() -> None:
    chance = torch.Generator().manual_seed(1)
    log_average, plain = torch.tensor(-math.inf, dtype=torch.float64), None
    for _ in range(20):
        scores = torch.randn(8, generator=chance, dtype=torch.float64)
        mean = float(scores.exp().mean())
        plain = mean if plain is None else 0.99 * plain + 0.01 * mean
        log_average = updated_average(log_average, scores)
        assert float(log_average.exp()) == pytest.approx(plain, rel=1e-9)


def test_the_gradient_is_the_corrected_one() -> None:
    """-(E[grad T] - E[e^T grad T] / m), by hand: the scores are their own parameters."""
    joint = torch.tensor([0.3, -0.2], requires_grad=True)
    marginal = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    log_average = torch.tensor(math.log(4.2))
    corrected_loss(joint, marginal, log_average).backward()
    assert joint.grad is not None
    assert marginal.grad is not None
    torch.testing.assert_close(joint.grad, torch.full((2,), -0.5))
    torch.testing.assert_close(marginal.grad, marginal.detach().exp() / 3 / 4.2)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_gaussians_whose_information_is_known(rho: float) -> None:
    truth = -0.5 * math.log(1 - rho**2)
    found = estimate_mine(*gaussians(rho, 5000), seed=3, **QUICK)
    assert found == pytest.approx(truth, abs=0.05 + 0.08 * truth)


def test_nothing_is_found_where_nothing_is() -> None:
    """Few pairs in many dimensions are learnt by heart at once: held out, that is worth nothing."""
    chance = torch.Generator().manual_seed(4)
    x, z = torch.randn(300, 40, generator=chance), torch.randn(300, 5, generator=chance)
    for seed in range(3):
        assert abs(estimate_mine(x, z, seed, **QUICK)) < 0.05


def test_the_same_seed_gives_the_same_value_and_leaves_chance_alone() -> None:
    x, z = gaussians(0.7, 300)
    before = torch.get_rng_state()
    first, second, other = (
        estimate_mine(x, z, seed, width=16, steps=80, every=20) for seed in (1, 1, 2)
    )
    assert first == second != other
    assert (before == torch.get_rng_state()).all()


def test_groups_keep_copies_out() -> None:
    """Fifty points, each copied ten times: their random labels are known only to who saw a copy."""
    chance = torch.Generator().manual_seed(5)
    points = torch.randn(50, 8, generator=chance).repeat_interleave(10, 0)
    label = torch.randint(2, (50, 1), generator=chance).float().repeat_interleave(10, 0)
    groups = torch.arange(500) // 10
    settings = {**QUICK, "rate": 5e-3, "patience": 4}
    assert estimate_mine(points, label, 0, **settings) > 0.4
    assert estimate_mine(points, label, 0, groups=groups, **settings) < 0.1


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(Refusal, match="15 pairs or more"):
        estimate_mine(torch.zeros(5, 1), torch.zeros(5, 1))
    with pytest.raises(Refusal, match="more groups"):
        estimate_mine(torch.zeros(50, 1), torch.zeros(50, 1), groups=torch.zeros(50))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu() -> None:
    x, z = gaussians(0.8, 4000)
    found = estimate_mine(x.cuda(), z.cuda(), 0, **QUICK)
    assert found == pytest.approx(-0.5 * math.log(1 - 0.64), abs=0.1)
