"""Samplers against Gaussians and their mixtures, whose noised score is known in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from sensorveil.diffusion.samplers import (
    SAMPLERS,
    Sampler,
    balanced_levels,
    ddim,
    ddpm,
    even_levels,
)
from sensorveil.diffusion.schedule import CLEAN, NoiseSchedule
from sensorveil.errors import Refusal

LEVELS = NoiseSchedule.linear()
FEW = {"ddpm": 250, "ddim": 100, "dpm-solver++": 25, "unipc": 25}
"""Steps with which a sampler should have a mixture right."""


@dataclass(frozen=True)
class Mixture:
    """Gaussians around means (modes, d) with spreads (modes,) and weights (modes,)."""

    means: torch.Tensor
    spreads: torch.Tensor
    weights: torch.Tensor

    def epsilon(self, x: torch.Tensor, t: int) -> torch.Tensor:
        """-noise times the score of the mixture at level t."""
        signal, noise = LEVELS.at(t)
        apart = x.unsqueeze(1) - signal * self.means
        variance = (signal * self.spreads) ** 2 + noise**2
        density = self.weights.log() - x.shape[1] / 2 * variance.log()
        share = (density - apart.square().sum(2) / (2 * variance)).softmax(1)
        return noise * (share / variance).unsqueeze(2).mul(apart).sum(1)

    def below(self, x: np.ndarray, t: int) -> np.ndarray:
        """The distribution function at level t of a mixture in one dimension."""
        signal, noise = LEVELS.at(t)
        spread = np.hypot(signal * self.spreads.numpy(), noise)
        return norm.cdf((x - signal * self.means[:, 0].numpy()) / spread) @ self.weights.numpy()


def mixture(means: list[list[float]], spreads: list[float], weights: list[float]) -> Mixture:
    return Mixture(*(torch.tensor(part, dtype=torch.float64) for part in (means, spreads, weights)))


LINE = mixture([[-2.0], [1.0]], [0.5, 0.8], [0.3, 0.7])
APART = mixture([[-2.0], [1.5]], [0.3, 0.5], [0.3, 0.7])
PLANE = mixture([[-2.0, 0.0], [1.0, 1.5], [1.0, -1.5]], [0.3, 0.2, 0.4], [0.5, 0.2, 0.3])


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def chance() -> torch.Generator:
    return torch.Generator().manual_seed(9)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("truth", [APART, PLANE], ids=["line", "plane"])
def test_samplers_find_the_modes(name: str, truth: Mixture) -> None:
    x = noise(4000, truth.means.shape[1])
    found = SAMPLERS[name](truth.epsilon, x, LEVELS, FEW[name], chance())
    mode = torch.cdist(found, truth.means).argmin(1)
    for which in range(len(truth.means)):
        own = found[mode == which]
        assert len(own) / 4000 == pytest.approx(float(truth.weights[which]), abs=0.03)
        torch.testing.assert_close(own.mean(0), truth.means[which], atol=0.06, rtol=0)
        spread = (own - own.mean(0)).square().mean().sqrt()
        assert float(spread) == pytest.approx(float(truth.spreads[which]), rel=0.08)


def exact(truth: Mixture, x: torch.Tensor) -> torch.Tensor:
    """Where the equation that DDIM and the solvers follow leads to: in one dimension points keep
    their order, so the share of the mixture below a point is the same at all levels."""
    share = truth.below(x.numpy(), len(LEVELS) - 1)
    low, high = np.full(len(x), -20.0), np.full(len(x), 20.0)
    for _ in range(60):
        middle = (low + high) / 2
        short = truth.below(middle[:, None], 0) < share
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    lowest = torch.tensor(low).unsqueeze(1)
    return LEVELS.clean_of(lowest, truth.epsilon(lowest, 0), 0)


def errors(name: str, counts: tuple[int, ...]) -> list[float]:
    x = noise(300, 1).clamp(-3, 3)
    truth = exact(LINE, x)
    found = [SAMPLERS[name](LINE.epsilon, x, LEVELS, count) for count in counts]
    return [float((one - truth).square().mean().sqrt()) for one in found]


@pytest.mark.parametrize(("name", "order"), [("ddim", 1), ("dpm-solver++", 2), ("unipc", 3)])
def test_errors_fall_at_the_order_of_the_sampler(name: str, order: int) -> None:
    coarse, fine = errors(name, (30, 60))
    assert math.log2(coarse / fine) == pytest.approx(order, abs=0.35)


def test_the_solvers_need_fewer_steps_than_ddim() -> None:
    (plain,) = errors("ddim", (50,))
    for name in ("dpm-solver++", "unipc"):
        assert errors(name, (15,))[0] < 0.6 * plain
    assert errors("unipc", (25,))[0] < errors("dpm-solver++", (25,))[0]


def test_the_solvers_agree_with_a_fine_ddim_in_the_plane() -> None:
    x = noise(200, 2)
    fine = ddim(PLANE.epsilon, x, LEVELS, 1000)

    def apart(name: str, steps: int) -> float:
        return float((SAMPLERS[name](PLANE.epsilon, x, LEVELS, steps) - fine).abs().median())

    for name in ("dpm-solver++", "unipc"):
        assert apart(name, 30) < 0.5 * apart("ddim", 60)


def gaussian(variance: float, mean: float) -> Mixture:
    return mixture([[mean]], [math.sqrt(variance)], [1.0])


@given(
    variance=st.floats(0.05, 4.0), mean=st.floats(-3.0, 3.0), steps=st.sampled_from([1, 2, 7, 40])
)
@settings(max_examples=20, deadline=None)
def test_ddim_of_one_gaussian_is_a_product_of_factors(
    variance: float, mean: float, steps: int
) -> None:
    """Equation (9) is linear then: each step multiplies the distance from signal times the mean."""
    x = noise(5, 1)
    factor = 1.0
    for now, then in pairwise([*even_levels(LEVELS, steps), CLEAN]):
        (a, s), (a_then, s_then) = LEVELS.at(now), LEVELS.at(then)
        factor *= (a_then * a * variance + s_then * s) / (a**2 * variance + s**2)
    wanted = mean + factor * (x - LEVELS.at(999)[0] * mean)
    found = ddim(gaussian(variance, mean).epsilon, x, LEVELS, steps)
    torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["ddim", "dpm-solver++", "unipc"])
def test_one_gaussian_is_stretched_to_its_own_spread(name: str) -> None:
    x, steps = noise(5, 1), {"ddim": 1000}.get(name, 60)
    signal, spread = LEVELS.at(999)[0], math.hypot(LEVELS.at(999)[0] * 0.5, LEVELS.at(999)[1])
    wanted = 0.7 + (x - signal * 0.7) * 0.5 / spread
    found = SAMPLERS[name](gaussian(0.25, 0.7).epsilon, x, LEVELS, steps)
    torch.testing.assert_close(found, wanted, rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize("name", ["ddpm", "ddim, eta 1"])
def test_ddpm_is_the_algorithm_of_ho_and_others(name: str) -> None:
    """Their algorithm 2, in betas, for all of few levels, with the same draws.

    DDIM with eta = 1 has the other variance that they name.
    """
    betas = torch.linspace(0.02, 0.3, 12, dtype=torch.float64)
    levels, alpha_bar = NoiseSchedule.of_betas(betas), (1 - betas).cumprod(0)

    def predict(x: torch.Tensor, t: int) -> torch.Tensor:
        return torch.tanh(x) + 0.1 * t

    x, draws = noise(6, 3), chance()
    wanted = x
    for t in reversed(range(12)):
        mean = wanted - betas[t] / (1 - alpha_bar[t]).sqrt() * predict(wanted, t)
        wanted = mean / (1 - betas[t]).sqrt()
        if t:
            tilde = betas[t] * (1 - alpha_bar[t - 1]) / (1 - alpha_bar[t])
            variance = betas[t] if name == "ddpm" else tilde
            wanted = wanted + variance.sqrt() * torch.randn(6, 3, generator=draws)
    if name == "ddpm":
        found = ddpm(predict, x, levels, 12, chance())
    else:
        found = ddim(predict, x, levels, 12, chance(), eta=1.0)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("variance", "steps"), [(1.0, 20), (1.0, 100), (0.25, 250)])
def test_ddpm_of_one_gaussian_has_its_variance(variance: float, steps: int) -> None:
    """For standard normal data beta is the variance of a true step, whatever their number."""
    truth = gaussian(variance, 0.0)
    found = ddpm(truth.epsilon, noise(20_000, 1), LEVELS, steps, chance())
    assert float(found.var()) == pytest.approx(variance, rel=0.04)  # 4 standard deviations
    assert float(found.mean()) == pytest.approx(0, abs=0.03)


@given(count=st.integers(1, 300), part=st.floats(0.0, 1.0), cosine=st.booleans())
@settings(max_examples=40, deadline=None)
def test_levels_are_visited_once_from_highest_to_lowest(
    count: int, part: float, cosine: bool
) -> None:
    levels = NoiseSchedule.cosine(count) if cosine else NoiseSchedule.linear(count)
    steps = 1 + round(part * (count - 1))
    for visited in (even_levels(levels, steps), balanced_levels(levels, steps)):
        assert len(visited) == steps
        assert visited[0] == count - 1
        assert steps == 1 or visited[-1] == 0
        assert all(after < before for before, after in pairwise(visited))


def test_ddim_visits_the_levels_of_the_authors_code() -> None:
    assert list(even_levels(LEVELS, 50)) == list(np.linspace(0, 999, 50).astype(int))[::-1]


def test_balanced_levels_are_balanced() -> None:
    visited = balanced_levels(LEVELS, 12)
    ratio = [LEVELS.at(t)[1] / LEVELS.at(t)[0] for t in visited]
    turns = np.diff([math.atan(math.sqrt(one)) for one in ratio])
    np.testing.assert_allclose(turns, turns.mean(), rtol=0.1)


@pytest.mark.parametrize("name", SAMPLERS)
def test_any_shape_will_do(name: str) -> None:
    def predict(x: torch.Tensor, t: int) -> torch.Tensor:
        return LEVELS.at(t)[1] * x

    flat = noise(24)
    wanted = SAMPLERS[name](predict, flat, LEVELS, 8, chance())
    for shape in ((24, 1), (4, 6), (2, 3, 4), (2, 3, 2, 2)):
        found = SAMPLERS[name](predict, flat.view(shape), LEVELS, 8, chance())
        torch.testing.assert_close(found.flatten(), wanted)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("steps", [1, 2, 13])
def test_the_predictor_is_asked_as_often_as_said(name: str, steps: int) -> None:
    asked: list[int] = []
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)

    def predict(x: torch.Tensor, t: int) -> torch.Tensor:
        asked.append(t)
        return weight * LINE.epsilon(x, t)

    x = noise(3, 1)
    found = SAMPLERS[name](predict, x, LEVELS, steps, chance())
    assert len(asked) == steps
    assert all(type(t) is int for t in asked)
    assert not found.requires_grad
    assert torch.equal(x, noise(3, 1))  # the noise that was given is left as it was


def test_what_is_drawn_comes_from_the_generator() -> None:
    x = noise(4, 1)
    first, second = (SAMPLERS["ddpm"](LINE.epsilon, x, LEVELS, 10, chance()) for _ in range(2))
    assert torch.equal(first, second)
    unused = chance()
    for name in ("ddim", "dpm-solver++", "unipc"):
        without = SAMPLERS[name](LINE.epsilon, x, LEVELS, 10)
        assert torch.equal(SAMPLERS[name](LINE.epsilon, x, LEVELS, 10, unused), without)
    assert torch.equal(unused.get_state(), chance().get_state())
    with pytest.raises(ValueError, match="generator"):
        SAMPLERS["ddpm"](LINE.epsilon, x, LEVELS, 10)


@pytest.mark.parametrize("name", ["ddim", "dpm-solver++", "unipc"])
def test_a_pass_never_asks_for_a_value(name: str) -> None:
    """Tensors on `meta` have none: what could not be recorded as a CUDA graph fails here."""
    x = torch.empty(4, 2, 8, device="meta")
    found = SAMPLERS[name](lambda x, t: torch.tanh(x), x, LEVELS, 6)
    assert (found.shape, found.device.type) == (x.shape, "meta")


def test_levels_whose_noise_adds_up_otherwise_can_be_sampled() -> None:
    """A constant clean window is found by all, whatever the noise has to do with the signal."""
    levels = NoiseSchedule(
        torch.linspace(0.99, 0.6, 20).double(), torch.linspace(0.1, 3.0, 20).double()
    )
    target = noise(5, 2, seed=1)

    def predict(x: torch.Tensor, t: int) -> torch.Tensor:
        return levels.epsilon_of(x, target, t)

    for sampler in SAMPLERS.values():
        found = sampler(predict, levels.at(19)[1] * noise(5, 2), levels, 10, chance())
        torch.testing.assert_close(found, target)


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("steps", [0, 1001])
def test_steps_that_cannot_be_are_refused(sampler: Sampler, steps: int) -> None:
    with pytest.raises(Refusal, match="steps must be from 1 to 1000"):
        sampler(LINE.epsilon, noise(2, 1), LEVELS, steps, chance())


def test_eta_beyond_one_is_refused() -> None:
    with pytest.raises(Refusal, match="eta"):
        ddim(LINE.epsilon, noise(2, 1), LEVELS, 5, chance(), eta=1.1)
