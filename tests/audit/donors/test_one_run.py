"""The bound from one run: never above what is true, far above a claim that is false."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

from sensorveil.audit.donors.one_run import (
    GradientCanaries,
    audit_one_run,
    epsilon_lower_bound,
    p_value,
)
from sensorveil.errors import Refusal
from sensorveil.methods.csi.dp_sgd import (
    DpSgdSettings,
    PrivacySpent,
    PrivateTraining,
    compute_epsilon,
    secret_generator,
    train_privately,
)

DELTA = 1e-5
SETTINGS = DpSgdSettings(
    steps=16, expected_batch_size=99, samples_per_unit=1, noise_multiplier=10.0
)


def test_ceilings_with_all_guesses_right():
    """The figures that public code of the authors gives."""
    for guesses, ceiling in ((100, 3.49), (500, 5.11), (1000, 5.81), (5000, 7.42)):
        assert epsilon_lower_bound(guesses, guesses, guesses, 0.0) == pytest.approx(
            ceiling, abs=0.006
        )


def test_the_chance_by_loops():
    right, guesses, canaries, level, delta = 80, 100, 300, 0.8, 1e-4
    share = 1 / (1 + math.exp(-level))
    tail = binom.sf(right - 1, guesses, share)
    gains = [
        (binom.cdf(right - 1, guesses, share) - binom.cdf(right - i - 1, guesses, share)) / i
        for i in range(1, right + 1)
    ]
    wanted = tail + 2 * canaries * delta * max(gains)
    assert p_value(right, guesses, canaries, level, delta) == pytest.approx(wanted, rel=1e-6)


def test_the_bound_is_where_the_chance_is_five_percent():
    bound = epsilon_lower_bound(90, 100, 1000, DELTA)
    assert p_value(90, 100, 1000, bound, DELTA) == pytest.approx(0.05, abs=1e-6)
    assert bound > epsilon_lower_bound(90, 100, 1000, 1e-3)  # a larger delta excuses more
    assert bound < epsilon_lower_bound(95, 100, 1000, DELTA)


def one_run(seed: int):
    """1,000 canaries in a small network that also learns from 20 windows, all of them each step."""
    torch.manual_seed(seed)
    net, x = nn.Linear(40, 40), torch.randn(20, 40)
    canaries = GradientCanaries(1000, 1.0, np.random.default_rng(seed))

    def train(inserted):
        noise = secret_generator("cpu", seed)
        own = PrivateTraining(SETTINGS, 1e-3, torch.arange(20), noise, inserted)
        return train_privately(
            "audited", net, lambda index: (net(x[index]) - x[index]).square().mean(1), own
        )

    return audit_one_run(train, canaries, guesses=200, delta=DELTA)


def claimed() -> float:
    return compute_epsilon([PrivacySpent(SETTINGS.noise_multiplier, 1.0, SETTINGS.steps)], DELTA)


def test_the_bound_keeps_below_the_accountant():
    bounds = [one_run(seed).bound for seed in range(10)]
    assert sum(bound > claimed() for bound in bounds) <= 1


def test_a_quarter_of_the_noise_is_found_out(monkeypatch: pytest.MonkeyPatch):
    """The training still says what it said before; only the gradients show the difference."""
    from opacus.optimizers import DPOptimizer

    honest = DPOptimizer.add_noise

    def weak(optimizer: DPOptimizer) -> None:
        optimizer.noise_multiplier = SETTINGS.noise_multiplier / 4
        honest(optimizer)

    monkeypatch.setattr(DPOptimizer, "add_noise", weak)
    bounds = [one_run(seed).bound for seed in range(10)]
    assert sum(bound > claimed() for bound in bounds) >= 9


def test_canaries_that_are_not_seen_are_guessed_by_chance():
    canaries = GradientCanaries(1000, 1.0, np.random.default_rng(0))

    def unseen(inserted: GradientCanaries):
        inserted.scores += np.random.default_rng(1).normal(size=1000)

    found = audit_one_run(unseen, canaries, 200, DELTA)
    assert (found.guesses, found.canaries, found.bound) == (200, 1000, 0.0)
    assert 70 < found.right < 130


def test_inserted_rows_are_full_gradients_of_one_weight():
    weights = [nn.Parameter(torch.zeros(3, 4)), nn.Parameter(torch.zeros(8))]
    for weight in weights:
        weight.grad_sample = torch.zeros(2, *weight.shape)
    canaries = GradientCanaries(20, 0.7, np.random.default_rng(3))
    canaries.insert(weights, sampling_probability=1.0)
    flat = torch.cat([weight.grad_sample.flatten(1) for weight in weights], dim=1)
    assert flat.shape == (2 + canaries.inserted.sum(), 20)
    assert not flat[:2].any()
    torch.testing.assert_close(flat[2:].norm(dim=1), torch.full((len(flat) - 2,), 0.7))
    assert int((flat.sum(0) > 0).sum()) == canaries.inserted.sum()  # no two share a weight
    for weight, part in zip(weights, flat.sum(0).split([12, 8]), strict=True):
        weight.grad = part.view(weight.shape)
    canaries.observe(weights)
    np.testing.assert_allclose(canaries.scores, np.where(canaries.inserted, 0.7, 0), rtol=1e-6)


def test_canaries_are_drawn_by_the_chance_of_any_unit():
    canaries = GradientCanaries(400, 1.0, np.random.default_rng(3))
    drawn = []
    for _ in range(50):
        weight = nn.Parameter(torch.zeros(400))
        weight.grad_sample = torch.zeros(0, 400)
        canaries.insert([weight], sampling_probability=0.3)
        drawn.append(weight.grad_sample.sum(0).numpy())
    often = np.mean(drawn, axis=0)[canaries._weights]
    assert not often[~canaries.inserted].any()
    assert often[canaries.inserted].mean() == pytest.approx(0.3, abs=0.02)


def test_refusals():
    canaries = GradientCanaries(20, 1.0, np.random.default_rng(0))
    weights = [nn.Parameter(torch.zeros(3))]
    with pytest.raises(Refusal, match="a weight each"):
        canaries.insert(weights, sampling_probability=1.0)
    with pytest.raises(Refusal, match="guesses"):
        audit_one_run(lambda inserted: None, canaries, 21, DELTA)
