"""The noise schedule: equations (1) and (2) by plain arithmetic, and x_0, x_t, noise from each other."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.diffusion.schedule import CLEAN, NoiseSchedule, drawn_noise
from sensorveil.errors import Refusal

LINEAR = NoiseSchedule.linear()


def test_the_linear_schedule_is_a_product_of_1_minus_beta() -> None:
    product = 1.0
    for t in range(1000):
        product *= 1 - (1e-4 + (0.02 - 1e-4) * t / 999)
        signal, noise = LINEAR.at(t)
        assert signal == pytest.approx(math.sqrt(product), rel=1e-12)
        assert noise == pytest.approx(math.sqrt(1 - product), rel=1e-9)


def test_steps_of_equation_1_add_up_to_equation_2() -> None:
    chance = torch.Generator().manual_seed(0)
    betas = torch.linspace(0.01, 0.2, 12, dtype=torch.float64)
    schedule = NoiseSchedule.of_betas(betas)
    x = torch.full((40_000,), 3.0)
    for t, beta in enumerate(betas.tolist()):
        x = math.sqrt(1 - beta) * x + math.sqrt(beta) * torch.randn(x.shape, generator=chance)
        signal, noise = schedule.at(t)
        assert float(x.mean()) == pytest.approx(3 * signal, abs=0.025)
        assert float(x.std()) == pytest.approx(noise, rel=0.025)


def test_the_clean_timestep_has_no_noise() -> None:
    assert LINEAR.at(CLEAN) == (1.0, 0.0)
    for t in (-2, 1000):
        with pytest.raises(IndexError, match="timestep"):
            LINEAR.at(t)


@given(
    t=st.lists(st.integers(0, 999), min_size=3, max_size=3),
    shape=st.lists(st.integers(1, 4), max_size=3),
)
@settings(max_examples=30, deadline=None)
def test_two_of_clean_noisy_and_noise_give_the_third(t: list[int], shape: list[int]) -> None:
    """At one timestep for all windows, and at one for each."""
    chance = torch.Generator().manual_seed(t[0])
    clean, epsilon = torch.randn(2, 3, *shape, generator=chance, dtype=torch.float64)
    for steps, own in ((t[0], [t[0]] * 3), (torch.tensor(t), t)):
        x = LINEAR.add_noise(clean, epsilon, steps)
        for window, level in enumerate(own):
            signal, noise = LINEAR.at(level)
            wanted = signal * clean[window] + noise * epsilon[window]
            torch.testing.assert_close(x[window], wanted)
        torch.testing.assert_close(LINEAR.to_clean(x, epsilon, steps), clean)
        torch.testing.assert_close(LINEAR.to_noise(x, clean, steps), epsilon)
        assert LINEAR.add_noise(clean.float(), epsilon.float(), steps).dtype == torch.float32


@pytest.mark.parametrize(
    "make",
    [
        lambda: NoiseSchedule.linear(timesteps=0),
        lambda: NoiseSchedule.linear(first=0.0),
        lambda: NoiseSchedule.linear(first=0.1, last=0.01),
        lambda: NoiseSchedule.linear(last=1.0),
        lambda: NoiseSchedule(torch.tensor([0.9, 0.9]), torch.tensor([0.1, 0.1])),
        lambda: NoiseSchedule(torch.tensor([0.9, 0.0]), torch.tensor([0.1, 1.0])),
        lambda: NoiseSchedule(torch.tensor([]), torch.tensor([])),
    ],
)
def test_impossible_schedules_are_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(Refusal, match="schedule"):
        make()


def test_drawn_noise_is_standard_normal_and_seeded() -> None:
    like = torch.zeros(50, 4, 100, dtype=torch.float64)
    noise = drawn_noise(like, torch.Generator().manual_seed(3))
    assert (noise.shape, noise.dtype) == (like.shape, like.dtype)
    assert float(noise.mean()) == pytest.approx(0, abs=0.02)
    assert float(noise.std()) == pytest.approx(1, abs=0.02)
    assert torch.equal(noise, drawn_noise(like, torch.Generator().manual_seed(3)))
    assert not torch.equal(noise, drawn_noise(like, torch.Generator().manual_seed(4)))
