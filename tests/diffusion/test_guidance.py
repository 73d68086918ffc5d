"""Guidance: equations (12), (19), (20) and (23) against closed forms and finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from sensorveil.diffusion.guidance import Gradient, avoiding, classifier_free, conditioned, within
from sensorveil.diffusion.samplers import SAMPLERS, ddim
from sensorveil.diffusion.schedule import NoiseSchedule, Predictor
from sensorveil.errors import Refusal

LEVELS = NoiseSchedule.linear()
SHAPE = (4, 2, 3)
T = 350


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


MIX = numbers(3, 3, seed=1)
TELL = numbers(5, 3, seed=2)


def denoiser(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
    """Something curved that depends on all it is given."""
    assert t.shape == (len(x),)
    assert t.dtype == torch.long
    return torch.tanh(x @ MIX + (condition @ TELL + 0.001 * t.unsqueeze(1)).unsqueeze(1))


def predict(x: torch.Tensor, t: int) -> torch.Tensor:
    return torch.tanh(x @ MIX) + 0.001 * t


def reader_of(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    weights = numbers(6, 3, seed=seed)
    return lambda clean: (torch.sin(clean).flatten(1) @ weights).log_softmax(1)[:, 1]


@pytest.mark.parametrize("weight", [4.0, -0.5, torch.tensor([0.0, 1.0, 2.5, -1.0]).double()])
def test_classifier_free_is_equation_12(weight: float | torch.Tensor) -> None:
    x, condition = numbers(*SHAPE), numbers(4, 5, seed=3)
    t = torch.full((4,), T)
    towards, plain = denoiser(x, t, condition), denoiser(x, t, torch.zeros(4, 5).double())
    w = weight.view(-1, 1, 1) if isinstance(weight, torch.Tensor) else weight
    found = classifier_free(denoiser, condition, weight)(x, T)
    torch.testing.assert_close(found, (1 + w) * towards - w * plain)


def test_what_both_halves_are_told_is_not_amplified() -> None:
    x, condition, beside = numbers(*SHAPE), numbers(4, 5, seed=3), numbers(4, 5, seed=4)
    t = torch.full((4,), T)
    towards, plain = denoiser(x, t, condition), denoiser(x, t, beside)
    found = classifier_free(denoiser, condition, 2.5, beside)(x, T)
    torch.testing.assert_close(found, 3.5 * towards - 2.5 * plain)
    alike = classifier_free(denoiser, condition, 2.5, condition)(x, T)
    assert torch.equal(alike, conditioned(denoiser, condition)(x, T))


def test_both_halves_go_in_one_batch_and_one_of_no_weight_not_at_all() -> None:
    seen: list[torch.Tensor] = []

    def look(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        seen.append(condition)
        return denoiser(x, t, condition)

    x, condition = numbers(*SHAPE), numbers(4, 5, seed=3)
    classifier_free(look, condition, 1.5)(x, T)
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([condition, torch.zeros(4, 5).double()]))
    for nothing in (0.0, 0):
        seen.clear()
        found = classifier_free(look, condition, nothing)(x, T)
        assert torch.equal(found, conditioned(denoiser, condition)(x, T))
        assert len(seen) == 1
        assert seen[0] is condition


@pytest.mark.parametrize("name", ["ddim", "unipc"])
def test_classifier_free_moves_the_mean_by_as_much_as_the_closed_form(name: str) -> None:
    """Two Gaussians of one variance: the guided score is that of one at (1 + w) c - w m."""
    variance, middle, weight = 0.25, -0.4, 1.5

    def of_gaussians(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        signal, noise = LEVELS.at(int(t[0]))
        mean = torch.where(condition == 0, middle, condition)
        return noise * (x - signal * mean) / (signal**2 * variance + noise**2)

    x, condition = numbers(2000, 1), torch.full((2000, 1), 0.8).double()
    guided = classifier_free(of_gaussians, condition, weight)
    found = SAMPLERS[name](guided, x, LEVELS, 100)
    wanted = (1 + weight) * 0.8 - weight * middle
    assert float(found.mean()) == pytest.approx(wanted, abs=0.04)
    assert float(found.std()) == pytest.approx(math.sqrt(variance), rel=0.05)
    plain = SAMPLERS[name](conditioned(of_gaussians, condition), x, LEVELS, 100)
    torch.testing.assert_close(
        found - plain, torch.full_like(x, weight * (0.8 - middle)), rtol=0.01, atol=0
    )


def differences(value: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor) -> torch.Tensor:
    """The gradient of a number by central differences."""
    gradient = torch.zeros_like(at)
    for place in range(at.numel()):
        step = torch.zeros_like(at)
        step.view(-1)[place] = 1e-5
        gradient.view(-1)[place] = (value(at + step) - value(at - step)) / 2e-5
    return gradient


@pytest.mark.parametrize("gradient", ["clean", "full"])
@pytest.mark.parametrize("t", [0, T, 999])
def test_avoiding_is_equation_23_by_finite_differences(gradient: Gradient, t: int) -> None:
    x = numbers(*SHAPE)
    each = torch.tensor([0.5, 0.0, 1.0, 2.0]).double()
    readers = [(reader_of(5), 0.7), (reader_of(6), each)]

    def likelihood(clean: torch.Tensor) -> torch.Tensor:
        return (0.7 * reader_of(5)(clean) + each * reader_of(6)(clean)).sum()

    def clean_at(x: torch.Tensor) -> torch.Tensor:
        signal, noise = LEVELS.at(t)
        return (x - noise * predict(x, t)) / signal

    if gradient == "clean":
        slope = differences(likelihood, clean_at(x))
    else:
        slope = differences(lambda x: likelihood(clean_at(x)), x)
    wanted = predict(x, t) + LEVELS.at(t)[1] * slope
    found = avoiding(predict, readers, LEVELS, gradient)(x, t)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert float(slope.abs().max()) > 1e-2  # there was something to find


def test_with_the_noise_held_fixed_the_full_gradient_has_one_factor_more() -> None:
    readers = [(reader_of(5), 0.7)]
    x, epsilon = numbers(*SHAPE), numbers(*SHAPE, seed=8)
    clean, full = (
        avoiding(lambda x, t: epsilon + 0 * x, readers, LEVELS, kind)(x, T) - epsilon
        for kind in ("clean", "full")
    )
    torch.testing.assert_close(full, clean / LEVELS.at(T)[0])


@pytest.mark.parametrize("name", ["ddim", "unipc"])
def test_avoiding_in_full_tilts_a_gaussian_by_as_much_as_the_closed_form(name: str) -> None:
    """N(0, v) e^(-w b x) is N(-w b v, v), and x̂_0 is linear in x_t: equation (20) is exact."""
    variance, slope = 0.5, 2.0
    weights = torch.tensor([0.0, 0.5, 1.0]).double().repeat(1000)

    def of_gaussian(x: torch.Tensor, t: int) -> torch.Tensor:
        signal, noise = LEVELS.at(t)
        return noise * x / (signal**2 * variance + noise**2)

    guided = avoiding(of_gaussian, [(lambda x: slope * x[:, 0], weights)], LEVELS, "full")
    found = SAMPLERS[name](guided, numbers(3000, 1), LEVELS, 100)[:, 0]
    for weight in (0.0, 0.5, 1.0):
        own = found[weights == weight]
        assert float(own.mean()) == pytest.approx(-weight * slope * variance, abs=0.07)
        assert float(own.std()) == pytest.approx(math.sqrt(variance), rel=0.07)


@pytest.mark.parametrize("gradient", ["clean", "full"])
def test_no_weight_changes_nothing_and_asks_nobody(gradient: Gradient) -> None:
    def never(clean: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a reader of weight 0 was asked")

    x = numbers(*SHAPE)
    for readers in ([], [(never, 0.0)], [(never, 0.0), (never, 0)]):
        guided = avoiding(predict, readers, LEVELS, gradient)
        assert torch.equal(guided(x, T), predict(x, T))
    mixed = avoiding(predict, [(never, 0.0), (reader_of(5), 0.3)], LEVELS, gradient)
    alone = avoiding(predict, [(reader_of(5), 0.3)], LEVELS, gradient)
    assert torch.equal(mixed(x, T), alone(x, T))


@pytest.mark.parametrize("gradient", ["clean", "full"])
def test_strengths_per_window_are_separate_runs(gradient: Gradient) -> None:
    x, condition = numbers(*SHAPE), numbers(4, 5, seed=3)
    keep = torch.tensor([0.0, 0.5, 2.0, 4.0]).double()
    hide = torch.tensor([1.0, 0.0, 0.3, 0.1]).double()

    def run(rows: slice, keep: float | torch.Tensor, hide: float | torch.Tensor) -> torch.Tensor:
        towards = classifier_free(denoiser, condition[rows], keep)
        guided = avoiding(towards, [(reader_of(5), hide)], LEVELS, gradient)
        return ddim(guided, x[rows], LEVELS, 8)

    together = run(slice(None), keep, hide)
    for i in range(4):
        alone = run(slice(i, i + 1), float(keep[i]), float(hide[i]))
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-9, atol=1e-9)


def test_within_is_one_inside_and_the_other_outside() -> None:
    guided = avoiding(predict, [(reader_of(5), 2.0)], LEVELS)
    limited = within(guided, predict, first=200, last=600)
    x = numbers(*SHAPE)
    for t, chosen in ((199, predict), (200, guided), (600, guided), (601, predict)):
        assert torch.equal(limited(x, t), chosen(x, t))
    for first, last, same in ((0, 999, guided), (1000, 1000, predict)):
        everywhere = within(guided, predict, first, last)
        assert torch.equal(ddim(everywhere, x, LEVELS, 10), ddim(same, x, LEVELS, 10))


@pytest.mark.parametrize("gradient", ["clean", "full"])
def test_guidance_leaves_no_trace_of_autograd(gradient: Gradient) -> None:
    net, reader = torch.nn.Linear(3, 3).double(), torch.nn.Linear(6, 2).double()
    guided = avoiding(
        lambda x, t: net(x), [(lambda clean: reader(clean.flatten(1))[:, 0], 0.5)], LEVELS, gradient
    )
    x = numbers(*SHAPE)
    found = ddim(guided, x, LEVELS, 4)
    assert not found.requires_grad
    assert not x.requires_grad
    assert all(p.grad is None for p in (*net.parameters(), *reader.parameters()))


@pytest.mark.parametrize("gradient", ["clean", "full"])
def test_a_guided_pass_never_asks_for_a_value(gradient: Gradient) -> None:
    """Tensors on `meta` have none: what could not be recorded as a CUDA graph fails here."""
    condition = torch.empty(4, 3, device="meta")

    def told(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x + condition.sum(1).view(-1, 1, 1) + t.view(-1, 1, 1))

    towards = classifier_free(told, condition, 2.0)
    away = avoiding(towards, [(lambda clean: clean.sum((1, 2)), 0.5)], LEVELS, gradient)
    guided: Predictor = within(away, conditioned(told, condition), 100, 900)
    found = SAMPLERS["unipc"](guided, torch.empty(4, 2, 8, device="meta"), LEVELS, 6)
    assert found.shape == (4, 2, 8)


def test_an_unknown_gradient_is_refused() -> None:
    with pytest.raises(Refusal, match="gradient 'half' is unknown"):
        avoiding(predict, [], LEVELS, "half")  # type: ignore[arg-type]
