"""Degradation: equations (11) to (13) by loops, both sums, the blur, and its sampler."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sensorveil.diffusion.schedule import NoiseSchedule
from sensorveil.errors import Refusal
from sensorveil.nets.degradation import Degradation, rf_diffusion

WIFI = {"count": 100, "first": 1e-4, "last": 0.003}


def test_the_published_schedule() -> None:
    """The figures that the authors' code comes to: 0.925 of the signal, and a noise of 3.59."""
    amplitudes = Degradation.linear(512, **WIFI, blur=1e-5, sums="amplitudes")
    variances = Degradation.linear(512, **WIFI, blur=1e-5)
    assert float(amplitudes.signal[-1].mean()) == pytest.approx(0.925, abs=5e-4)
    assert float(amplitudes.noise[-1].mean()) == pytest.approx(3.59, abs=5e-3)
    assert float(variances.noise[-1].mean()) == pytest.approx(0.379, abs=5e-4)


def test_without_blur_variances_are_the_usual_levels() -> None:
    usual = NoiseSchedule.of_betas(torch.linspace(5e-4, 0.1, 200, dtype=torch.float64))
    found = Degradation.linear(8, 200, 5e-4, 0.1).levels
    torch.testing.assert_close(found.signal, usual.signal)
    torch.testing.assert_close(found.noise, usual.noise)


@pytest.mark.parametrize("sums", ["variances", "amplitudes"])
def test_equation_12_by_loops(sums: str) -> None:
    length, count, blur = 12, 9, 0.3
    made = Degradation.linear(length, count, 0.01, 0.2, blur, sums)
    betas = np.linspace(0.01, 0.2, count)
    gamma = np.empty((count, length))
    for t in range(count):
        gauss = [
            math.exp(-((n - length / 2) ** 2) / (2 * length / ((t + 1) * blur**2)))
            for n in range(length)
        ]
        gamma[t] = math.sqrt(np.prod(1 - betas[: t + 1])) * np.array(gauss) / np.mean(gauss)
    for t in range(count):
        parts = [np.sqrt(betas[s]) * gamma[t] / gamma[s] for s in range(t + 1)]
        noise = sum(parts) if sums == "amplitudes" else np.sqrt(sum(p**2 for p in parts))
        np.testing.assert_allclose(made.signal[t], gamma[t], rtol=1e-12)
        np.testing.assert_allclose(made.noise[t], noise, rtol=1e-12)


def test_independent_noises_add_up_to_the_variances() -> None:
    """Step by step, with a blur: what is drawn has the spread that `variances` says."""
    chance = torch.Generator().manual_seed(0)
    length, count = 6, 10
    made = Degradation.linear(length, count, 0.02, 0.2, blur=0.4)
    betas = torch.linspace(0.02, 0.2, count, dtype=torch.float64)
    x = torch.full((20_000, length), 2.0, dtype=torch.float64)
    before = torch.ones(length, dtype=torch.float64)
    for t in range(count):
        noise = torch.randn(x.shape, generator=chance, dtype=torch.float64)
        x = x * made.signal[t] / before + betas[t].sqrt() * noise
        before = made.signal[t]
    torch.testing.assert_close(x.mean(0), 2 * made.signal[-1], atol=0.03, rtol=0)
    torch.testing.assert_close(x.std(0), made.noise[-1], atol=0, rtol=0.03)


def test_noised_takes_one_level_or_one_a_window() -> None:
    made = Degradation.linear(7, 5, 0.1, 0.3, blur=0.5)
    clean, epsilon = torch.randn(2, 3, 2, 7, dtype=torch.float64)
    each = made.noised(clean, epsilon, torch.tensor([4, 0, 2]))
    for row, t in enumerate((4, 0, 2)):
        wanted = made.signal[t] * clean[row] + made.noise[t] * epsilon[row]
        torch.testing.assert_close(each[row], wanted)
        torch.testing.assert_close(made.noised(clean, epsilon, t)[row], wanted)


def test_equation_13_in_the_end_there_is_noise_alone() -> None:
    made = Degradation.linear(16, 200, 5e-4, 0.1)
    assert float(made.signal[-1].max()) < 0.01
    start = made.start(torch.randn(500, 2, 16, generator=torch.Generator().manual_seed(0)))
    assert float(start.std()) == pytest.approx(1.0, abs=0.03)


def test_the_sampler_draws_from_the_distribution_it_is_told() -> None:
    """Of windows that are normal with mean 1 and deviation 0.5, the best restorer is known."""
    made = Degradation.linear(4, 100, 1e-3, 0.15)
    mean, spread = 1.0, 0.5

    def restore(x: torch.Tensor, t: int) -> torch.Tensor:
        signal, noise = made.signal[t].to(x), made.noise[t].to(x)
        gain = signal * spread**2 / (signal**2 * spread**2 + noise**2)
        return mean + gain * (x - signal * mean)

    chance = torch.Generator().manual_seed(0)
    start = made.start(torch.randn(4000, 1, 4, generator=chance))
    found = rf_diffusion(restore, start, made, 100, chance)
    assert float(found.mean()) == pytest.approx(mean, abs=0.03)
    # It restores means, so that some of the spread is lost on the way; but not all.
    assert 0.1 < float(found.std()) <= spread
    again = rf_diffusion(restore, start, made, 1, chance)
    assert float(again.std()) < float(found.std())


def test_refusals() -> None:
    with pytest.raises(Refusal, match="sums 'lengths' is unknown"):
        Degradation.linear(8, **WIFI, sums="lengths")
    with pytest.raises(Refusal, match="rf-diffusion"):
        _ = Degradation.linear(8, **WIFI, blur=0.1).levels
