"""Guidance: equations (12), (19), (20) and (23) against closed forms and finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from sensorveil.diffusion.guidance import Gradient, classifier_free, negative_guidance
from sensorveil.diffusion.samplers import SAMPLERS
from sensorveil.diffusion.schedule import NoiseSchedule

SCHEDULE = NoiseSchedule.linear()
SHAPE, T = (4, 2, 3), 350


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


MIX, EMBED = numbers(3, 3, seed=1), numbers(5, 3, seed=2)


def denoiser(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
    """Something curved that depends on all inputs."""
    assert (t.shape, t.dtype) == ((len(x),), torch.long)
    return torch.tanh(x @ MIX + (condition @ EMBED + 0.001 * t.unsqueeze(1)).unsqueeze(1))


def likelihood_of(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    weights = numbers(6, 3, seed=seed)
    return lambda clean: (torch.sin(clean).flatten(1) @ weights).log_softmax(1)[:, 1]


@pytest.mark.parametrize("scale", [4.0, -0.5, 0.0, torch.tensor([0.0, 1.0, 2.5, -1.0]).double()])
def test_classifier_free_is_equation_12(scale: float | torch.Tensor) -> None:
    x, condition, t = numbers(*SHAPE), numbers(4, 5, seed=3), torch.full((4,), T)
    conditional, plain = denoiser(x, t, condition), denoiser(x, t, torch.zeros(4, 5).double())
    w = scale.view(-1, 1, 1) if isinstance(scale, torch.Tensor) else scale
    found = classifier_free(denoiser, x, T, condition, scale)
    torch.testing.assert_close(found, (1 + w) * conditional - w * plain)
    zero = torch.as_tensor(scale).expand(4) == 0
    assert torch.equal(found[zero], conditional[zero])


def differences(value: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor) -> torch.Tensor:
    """The gradient of a number by central differences."""
    gradient = torch.zeros_like(at)
    for place in range(at.numel()):
        step = torch.zeros_like(at)
        step.view(-1)[place] = 1e-5
        gradient.view(-1)[place] = (value(at + step) - value(at - step)) / 2e-5
    return gradient


def predict(x: torch.Tensor, t: int) -> torch.Tensor:
    return torch.tanh(x @ MIX) + 0.001 * t


@pytest.mark.parametrize("gradient", ["clean", "full"])
@pytest.mark.parametrize("t", [0, T, 999])
def test_negative_guidance_is_equation_23_by_finite_differences(gradient: Gradient, t: int) -> None:
    x, each = numbers(*SHAPE), torch.tensor([0.5, 0.0, 1.0, 2.0]).double()

    def likelihood(clean: torch.Tensor) -> torch.Tensor:
        return 0.7 * likelihood_of(5)(clean) + each * likelihood_of(6)(clean)

    def clean_at(x: torch.Tensor) -> torch.Tensor:
        signal, noise = SCHEDULE.at(t)
        return (x - noise * predict(x, t)) / signal

    if gradient == "clean":
        slope = differences(lambda clean: likelihood(clean).sum(), clean_at(x))
    else:
        slope = differences(lambda x: likelihood(clean_at(x)).sum(), x)
    wanted = predict(x, t) + SCHEDULE.at(t)[1] * slope
    x.requires_grad_(gradient == "full")
    found = negative_guidance(x, clean_at(x), t, SCHEDULE, likelihood, gradient)
    noise = SCHEDULE.to_noise(x.detach(), found, t)
    torch.testing.assert_close(noise, wanted, rtol=1e-4, atol=1e-5)
    assert not found.requires_grad
    assert float(slope.abs().max()) > 1e-2  # there was something to find


def test_the_full_gradient_tilts_a_gaussian_as_in_closed_form() -> None:
    """N(0, v) e^(-w b x) is N(-w b v, v), and x_0 is linear in x_t: equation (20) is exact."""
    variance, slope = 0.5, 2.0
    scale = torch.tensor([0.0, 0.5, 1.0]).double().repeat(1000)
    x, sampler = numbers(3000, 1), SAMPLERS["dpm-solver++"](SCHEDULE, 60)
    for t, t_next in sampler:
        x = x.detach().requires_grad_()
        signal, noise = SCHEDULE.at(t)
        clean = SCHEDULE.to_clean(x, noise * x / (signal**2 * variance + noise**2), t)
        clean = negative_guidance(
            x, clean, t, SCHEDULE, lambda clean: scale * slope * clean[:, 0], "full"
        )
        x = sampler.step(x.detach(), clean, t, t_next)
    for one in (0.0, 0.5, 1.0):
        own = x[scale == one, 0]
        assert float(own.mean()) == pytest.approx(-one * slope * variance, abs=0.07)
        assert float(own.std()) == pytest.approx(math.sqrt(variance), rel=0.07)
