"""The bound from one run: never above what is true, far above a claim that is false."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

from sensorveil.audit.one_run import (
    GradientCanaries,
    OneRun,
    audit_one_run,
    binomial,
    chance_of,
    epsilon_above,
)
from sensorveil.errors import Refusal
from sensorveil.nets import private_training
from sensorveil.nets.private_training import (
    PrivateCourse,
    Spent,
    epsilon,
    secret_generator,
    train_privately,
)

DELTA = 1e-5
COURSE = PrivateCourse(steps=16, lot=99, rate=1e-3, noise=10.0, clip=1.0)


def test_ceilings_with_all_guesses_right() -> None:
    """The figures that public code of the authors gives."""
    for guesses, ceiling in ((100, 3.49), (500, 5.11), (1000, 5.81), (5000, 7.42)):
        assert epsilon_above(guesses, guesses, guesses, 0.0) == pytest.approx(ceiling, abs=0.006)


@pytest.mark.parametrize(("guesses", "share"), [(1, 0.5), (7, 0.3), (400, 0.97)])
def test_binomial_is_that_of_scipy(guesses: int, share: float) -> None:
    wanted = binom.pmf(np.arange(guesses + 1), guesses, share)
    np.testing.assert_allclose(binomial(guesses, share), wanted, rtol=1e-9, atol=1e-300)


def test_the_chance_by_loops() -> None:
    right, guesses, canaries, level, delta = 80, 100, 300, 0.8, 1e-4
    share = 1 / (1 + math.exp(-level))
    tail = binom.sf(right - 1, guesses, share)
    gains = [
        (binom.cdf(right - 1, guesses, share) - binom.cdf(right - i - 1, guesses, share)) / i
        for i in range(1, right + 1)
    ]
    wanted = tail + 2 * canaries * delta * max(gains)
    assert chance_of(right, guesses, canaries, level, delta) == pytest.approx(wanted, rel=1e-6)


def test_the_bound_is_where_the_chance_is_five_percent() -> None:
    bound = epsilon_above(90, 100, 1000, DELTA)
    assert chance_of(90, 100, 1000, bound, DELTA) == pytest.approx(0.05, abs=1e-6)
    assert bound > epsilon_above(90, 100, 1000, 1e-3)  # a larger delta excuses more
    assert bound < epsilon_above(95, 100, 1000, DELTA)


def one_run(seed: int) -> OneRun:
    """1,000 canaries in a small network that also learns from 20 windows, all of them each step."""
    torch.manual_seed(seed)
    net, x = nn.Linear(40, 40), torch.randn(20, 40)
    canaries = GradientCanaries(1000, 1.0, np.random.default_rng(seed))

    def train(planted: GradientCanaries) -> Spent:
        return train_privately(
            net,
            lambda index: (net(x[index]) - x[index]).square().mean(1),
            torch.arange(20),
            COURSE,
            secret_generator("cpu", seed),
            what="audited",
            canaries=planted,
        )

    return audit_one_run(train, canaries, guesses=200, delta=DELTA)


def claimed() -> float:
    return epsilon([Spent(COURSE.noise, 1.0, COURSE.steps)], DELTA)


def test_the_bound_keeps_below_the_accountant() -> None:
    bounds = [one_run(seed).bound for seed in range(20)]
    assert sum(bound > claimed() for bound in bounds) <= 1  # 5% of 20


def test_a_quarter_of_the_noise_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training still says what it said before; only the gradients show the difference."""
    honest = private_training.private_optimizer

    def weak(*given: object) -> object:
        optimizer = honest(*given)
        optimizer.noise_multiplier /= 4
        return optimizer

    monkeypatch.setattr(private_training, "private_optimizer", weak)
    bounds = [one_run(seed).bound for seed in range(20)]
    assert sum(bound > claimed() for bound in bounds) >= 18  # 90% of 20


def test_canaries_that_nobody_sees_are_guessed_by_luck() -> None:
    canaries = GradientCanaries(1000, 1.0, np.random.default_rng(0))

    def unseen(planted: GradientCanaries) -> None:
        planted.scores += np.random.default_rng(1).normal(size=1000)

    found = audit_one_run(unseen, canaries, 200, DELTA)
    assert (found.guesses, found.canaries, found.bound) == (200, 1000, 0.0)
    assert 70 < found.right < 130


def test_planted_rows_are_full_gradients_of_one_weight() -> None:
    weights = [nn.Parameter(torch.zeros(3, 4)), nn.Parameter(torch.zeros(8))]
    for weight in weights:
        weight.grad_sample = torch.zeros(2, *weight.shape)
    canaries = GradientCanaries(20, 0.7, np.random.default_rng(3))
    canaries.plant(weights, chance=1.0)
    flat = torch.cat([weight.grad_sample.flatten(1) for weight in weights], dim=1)
    assert flat.shape == (2 + canaries.inside.sum(), 20)
    assert not flat[:2].any()
    torch.testing.assert_close(flat[2:].norm(dim=1), torch.full((len(flat) - 2,), 0.7))
    assert int((flat.sum(0) > 0).sum()) == canaries.inside.sum()  # no two share a weight
    for weight, part in zip(weights, flat.sum(0).split([12, 8]), strict=True):
        weight.grad = part.view(weight.shape)
    canaries.observe(weights)
    np.testing.assert_allclose(canaries.scores, np.where(canaries.inside, 0.7, 0), rtol=1e-6)


def test_canaries_are_drawn_by_the_chance_of_any_unit() -> None:
    canaries = GradientCanaries(400, 1.0, np.random.default_rng(3))
    drawn = []
    for _ in range(50):
        weight = nn.Parameter(torch.zeros(400))
        weight.grad_sample = torch.zeros(0, 400)
        canaries.plant([weight], chance=0.3)
        drawn.append(weight.grad_sample.sum(0).numpy())
    often = np.mean(drawn, axis=0)[canaries._weights]
    assert not often[~canaries.inside].any()
    assert often[canaries.inside].mean() == pytest.approx(0.3, abs=0.02)


def test_refusals() -> None:
    canaries = GradientCanaries(20, 1.0, np.random.default_rng(0))
    weights = [nn.Parameter(torch.zeros(3))]
    with pytest.raises(Refusal, match="a weight each"):
        canaries.plant(weights, chance=1.0)
    with pytest.raises(Refusal, match="guesses"):
        audit_one_run(lambda planted: None, canaries, 21, DELTA)
