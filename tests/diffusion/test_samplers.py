"""Samplers against Gaussians and their mixtures, whose noised score is known in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from sensorveil.diffusion.samplers import SAMPLERS, balanced_timesteps, even_timesteps
from sensorveil.diffusion.schedule import NoiseSchedule
from sensorveil.errors import Refusal

SCHEDULE = NoiseSchedule.linear()
Predict = Callable[[torch.Tensor, int], torch.Tensor]


def sample(
    name: str, epsilon: Predict, x: torch.Tensor, steps: int, schedule: NoiseSchedule = SCHEDULE
) -> torch.Tensor:
    sampler = SAMPLERS[name](schedule, steps)
    for t, t_next in sampler:
        x = sampler.step(x, schedule.to_clean(x, epsilon(x, t), t), t, t_next)
    return x


@dataclass(frozen=True)
class Mixture:
    """Gaussians around means (modes, d) with spreads (modes,) and weights (modes,)."""

    means: torch.Tensor
    spreads: torch.Tensor
    weights: torch.Tensor

    def epsilon(self, x: torch.Tensor, t: int) -> torch.Tensor:
        """-noise times the score of the mixture at timestep t."""
        signal, noise = SCHEDULE.at(t)
        apart = x.unsqueeze(1) - signal * self.means
        variance = (signal * self.spreads) ** 2 + noise**2
        density = self.weights.log() - x.shape[1] / 2 * variance.log()
        share = (density - apart.square().sum(2) / (2 * variance)).softmax(1)
        return noise * (share / variance).unsqueeze(2).mul(apart).sum(1)

    def below(self, x: np.ndarray, t: int) -> np.ndarray:
        """The distribution function at timestep t, in one dimension."""
        signal, noise = SCHEDULE.at(t)
        spread = np.hypot(signal * self.spreads.numpy(), noise)
        return norm.cdf((x - signal * self.means[:, 0].numpy()) / spread) @ self.weights.numpy()


def mixture(means: list[list[float]], spreads: list[float], weights: list[float]) -> Mixture:
    return Mixture(*(torch.tensor(part, dtype=torch.float64) for part in (means, spreads, weights)))


LINE = mixture([[-2.0], [1.0]], [0.5, 0.8], [0.3, 0.7])


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def exact(truth: Mixture, x: torch.Tensor) -> torch.Tensor:
    """The end of the probability flow: in one dimension points keep their order, so the share of
    the mixture below a point is the same at all timesteps."""
    share = truth.below(x.numpy(), len(SCHEDULE) - 1)
    low, high = np.full(len(x), -20.0), np.full(len(x), 20.0)
    for _ in range(60):
        middle = (low + high) / 2
        short = truth.below(middle[:, None], 0) < share
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    lowest = torch.tensor(low).unsqueeze(1)
    return SCHEDULE.to_clean(lowest, truth.epsilon(lowest, 0), 0)


def errors(name: str, counts: tuple[int, ...]) -> list[float]:
    x = noise(300, 1).clamp(-3, 3)
    truth = exact(LINE, x)
    found = [sample(name, LINE.epsilon, x, count) for count in counts]
    return [float((one - truth).square().mean().sqrt()) for one in found]


@pytest.mark.parametrize(("name", "order"), [("ddim", 1), ("dpm-solver++", 2)])
def test_errors_fall_at_the_order_of_the_sampler(name: str, order: int) -> None:
    coarse, fine = errors(name, (30, 60))
    assert math.log2(coarse / fine) == pytest.approx(order, abs=0.35)


@given(
    variance=st.floats(0.05, 4.0), mean=st.floats(-3.0, 3.0), steps=st.sampled_from([1, 2, 7, 40])
)
@settings(max_examples=20, deadline=None)
def test_ddim_of_one_gaussian_is_a_product_of_factors(
    variance: float, mean: float, steps: int
) -> None:
    """Each step is linear: it multiplies the distance from signal times the mean."""
    x, factor = noise(5, 1), 1.0
    for t, t_next in SAMPLERS["ddim"](SCHEDULE, steps):
        (a, s), (a_next, s_next) = SCHEDULE.at(t), SCHEDULE.at(t_next)
        factor *= (a_next * a * variance + s_next * s) / (a**2 * variance + s**2)
    wanted = mean + factor * (x - SCHEDULE.at(999)[0] * mean)
    truth = mixture([[mean]], [math.sqrt(variance)], [1.0])
    found = sample("ddim", truth.epsilon, x, steps)
    torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-7)


@given(count=st.integers(1, 300), part=st.floats(0.0, 1.0))
@settings(max_examples=40, deadline=None)
def test_timesteps_are_visited_once_from_highest_to_lowest(count: int, part: float) -> None:
    schedule, steps = NoiseSchedule.linear(count), 1 + round(part * (count - 1))
    for visited in (even_timesteps(schedule, steps), balanced_timesteps(schedule, steps)):
        assert len(visited) == steps
        assert visited[0] == count - 1
        assert steps == 1 or visited[-1] == 0
        assert all(after < before for before, after in pairwise(visited))


def test_ddim_visits_the_timesteps_of_the_authors_code() -> None:
    assert list(even_timesteps(SCHEDULE, 50)) == list(np.linspace(0, 999, 50).astype(int))[::-1]


def test_balanced_timesteps_have_even_distances_of_the_angle() -> None:
    ratio = [SCHEDULE.at(t)[1] / SCHEDULE.at(t)[0] for t in balanced_timesteps(SCHEDULE, 12)]
    angles = np.diff([math.atan(math.sqrt(one)) for one in ratio])
    np.testing.assert_allclose(angles, angles.mean(), rtol=0.1)


@pytest.mark.parametrize("name", SAMPLERS)
def test_windows_of_any_shape_are_sampled_number_by_number(name: str) -> None:
    def epsilon(x: torch.Tensor, t: int) -> torch.Tensor:
        return SCHEDULE.at(t)[1] * x

    flat = noise(24)
    wanted = sample(name, epsilon, flat, 8)
    for shape in ((24, 1), (4, 6), (2, 3, 2, 2)):
        torch.testing.assert_close(sample(name, epsilon, flat.view(shape), 8).flatten(), wanted)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampling_pass_never_asks_the_device_for_a_value(name: str) -> None:
    """Tensors on `meta` have none: what could not be captured as a CUDA graph fails here."""
    x = torch.empty(4, 2, 8, device="meta")
    found = sample(name, lambda x, t: torch.tanh(x), x, 6)
    assert (found.shape, found.device.type) == (x.shape, "meta")


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_schedule_that_does_not_preserve_the_variance_can_be_sampled(name: str) -> None:
    schedule = NoiseSchedule(
        torch.linspace(0.99, 0.6, 20).double(), torch.linspace(0.1, 3.0, 20).double()
    )
    target = noise(5, 2, seed=1)
    start = schedule.at(19)[1] * noise(5, 2)
    found = sample(name, lambda x, t: schedule.to_noise(x, target, t), start, 10, schedule)
    torch.testing.assert_close(found, target)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("steps", [0, 1001])
def test_impossible_numbers_of_steps_are_refused(name: str, steps: int) -> None:
    with pytest.raises(Refusal, match="steps must be from 1 to 1000"):
        SAMPLERS[name](SCHEDULE, steps)
