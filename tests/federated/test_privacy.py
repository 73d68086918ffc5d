"""Privacy: an accountant that is right where the answer is known, and a budget that ends it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from sensorveil.federated.config import FederationConfig
from sensorveil.federated.privacy import affordable_rounds, clip, epsilon, noisy_mean


def private(noise_multiplier, fraction, epochs=30, rounds=150, **values):
    sizes = {"client_fraction": fraction, "epochs": epochs, "rounds": rounds}
    return FederationConfig(**sizes).with_values({"noise_multiplier": noise_multiplier, **values})


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
        config = private(noise, 1.0, epochs, length)
        assert exact <= epsilon(config, rounds) <= 1.25 * exact


def test_drawing_few_clients_costs_less_but_the_rounds_of_one_epoch_add_up():
    many = private(2.0, 0.1, epochs=20, rounds=1)
    all_of_them = private(2.0, 1.0, epochs=20, rounds=1)
    assert epsilon(many, 20) < 0.5 * epsilon(all_of_them, 20)
    same_group = private(2.0, 0.1, epochs=1, rounds=20)
    assert epsilon(same_group, 20) > 2 * epsilon(many, 20)


def test_it_never_falls_and_begins_with_nothing():
    config = private(5.0, 0.3, epochs=3, rounds=4)
    spent = [epsilon(config, done) for done in range(13)]
    assert spent[0] == 0
    assert np.all(np.diff(spent) > 0)


def test_the_budget_is_the_last_round_that_may_be_made():
    config = private(5.0, 0.3, epochs=5, rounds=4, max_epsilon=1.0)
    last = affordable_rounds(config)
    assert 0 < last < 20
    assert epsilon(config, last) <= 1.0 < epsilon(config, last + 1)
    assert affordable_rounds(FederationConfig()) == 30 * 150  # nothing promised, nothing spent


def test_one_client_moves_the_sum_by_no_more_than_the_clip():
    config, noise = private(1.0, 0.5, clip_norm=0.7), torch.randn(50)
    updates = [torch.randn(50) * scale for scale in (0.01, 1.0, 100.0)]
    with_all = noisy_mean(updates, config, 1.0, noise)
    for left_out in range(3):
        rest = [update for which, update in enumerate(updates) if which != left_out]
        assert (with_all - noisy_mean(rest, config, 1.0, noise)).norm() <= 0.7 + 1e-5
    assert torch.equal(clip(updates[0], 5.0), updates[0])


def test_a_private_mean_cuts_adds_noise_and_divides_by_the_expected_number():
    config, noise = private(3.0, 0.5, clip_norm=2.0), torch.tensor([1.0, -1.0])
    updates = [torch.tensor([6.0, 8.0]), torch.tensor([0.3, 0.4])]  # of length 10 and 0.5
    wanted = (np.array([1.2, 1.6]) + [0.3, 0.4] + 3 * 2 * np.array([1, -1])) / 4
    np.testing.assert_allclose(noisy_mean(updates, config, 4.0, noise), wanted, rtol=1e-6)
    np.testing.assert_allclose(noisy_mean([], config, 4.0, noise), [6 / 4, -6 / 4])
