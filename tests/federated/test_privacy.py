"""Privacy: an accountant that is right where the answer is known, and a budget that ends it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from sensorveil.federated.plan import Plan
from sensorveil.federated.privacy import affordable, clipped, epsilon, noisy_mean


def gaussian_epsilon(noise: float, delta: float) -> float:
    """The exact epsilon of one Gaussian mechanism (Balle and Wang 2018, theorem 8)."""

    def excess(eps: float) -> float:
        a, b = 1 / (2 * noise), eps * noise
        return norm.cdf(a - b) - math.exp(eps) * norm.cdf(-a - b) - delta

    return brentq(excess, 0, 200)


@pytest.mark.parametrize(("noise", "rounds"), [(4.0, 1), (8.0, 9), (20.0, 100)])
def test_with_everybody_in_it_is_the_gaussian_mechanism(noise, rounds):
    """k rounds of noise s tell as much as one of s / sqrt(k); Renyi's bound is a little above."""
    exact = gaussian_epsilon(noise / math.sqrt(rounds), 1e-5)
    for epochs, length in ((1, rounds), (rounds, 1)):
        plan = Plan(epochs=epochs, rounds=length, share=1.0, noise=noise)
        assert exact <= epsilon(plan, rounds) <= 1.25 * exact


def test_drawing_few_clients_costs_less_but_the_rounds_of_one_epoch_add_up():
    many = Plan(epochs=20, rounds=1, share=0.1, noise=2.0)
    all_of_them = Plan(epochs=20, rounds=1, share=1.0, noise=2.0)
    assert epsilon(many, 20) < 0.5 * epsilon(all_of_them, 20)
    same_group = Plan(epochs=1, rounds=20, share=0.1, noise=2.0)
    assert epsilon(same_group, 20) > 2 * epsilon(many, 20)


def test_it_never_falls_and_begins_with_nothing():
    plan = Plan(epochs=3, rounds=4, share=0.3, noise=5.0)
    spent = [epsilon(plan, done) for done in range(13)]
    assert spent[0] == 0
    assert np.all(np.diff(spent) > 0)


def test_the_budget_is_the_last_round_that_may_be_made():
    plan = Plan(epochs=5, rounds=4, share=0.3, noise=5.0, budget=1.0)
    last = max(done for done in range(21) if affordable(plan, done))
    assert epsilon(plan, last) <= 1.0 < epsilon(plan, last + 1)
    assert affordable(Plan(), 10**9)  # nothing is promised, so nothing is spent


def test_one_client_moves_the_sum_by_no_more_than_the_clip():
    plan, noise = Plan(share=0.5, clip=0.7, noise=1.0), torch.randn(50)
    updates = [torch.randn(50) * scale for scale in (0.01, 1.0, 100.0)]
    with_all = noisy_mean(updates, plan, 1.0, noise)
    for left_out in range(3):
        rest = [update for which, update in enumerate(updates) if which != left_out]
        assert (with_all - noisy_mean(rest, plan, 1.0, noise)).norm() <= 0.7 + 1e-5
    assert torch.equal(clipped(updates[0], 5.0), updates[0])


def test_a_private_mean_cuts_adds_noise_and_divides_by_the_expected_number():
    plan, noise = Plan(share=0.5, clip=2.0, noise=3.0), torch.tensor([1.0, -1.0])
    updates = [torch.tensor([6.0, 8.0]), torch.tensor([0.3, 0.4])]  # of length 10 and 0.5
    wanted = (np.array([1.2, 1.6]) + [0.3, 0.4] + 3 * 2 * np.array([1, -1])) / 4
    np.testing.assert_allclose(noisy_mean(updates, plan, 4.0, noise), wanted, rtol=1e-6)
    np.testing.assert_allclose(noisy_mean([], plan, 4.0, noise), [6 / 4, -6 / 4])
