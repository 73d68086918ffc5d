"""The loss of a denoiser: a slow loop, its value for the best denoiser, and dropped conditions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from sensorveil.diffusion.schedule import NoiseSchedule
from sensorveil.diffusion.training import (
    Draws,
    FromVelocity,
    denoising_loss,
    denoising_losses,
    drawn,
    train_denoiser,
)
from sensorveil.diffusion.unet import UNet, UNetSettings
from sensorveil.train import TrainConfig

LEVELS = NoiseSchedule.linear(100)


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def denoiser(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
    told = condition.sum(1) + t / 100
    return torch.tanh(x) * told.view((-1,) + (1,) * (x.ndim - 1))


@given(shape=st.lists(st.integers(1, 4), max_size=3), dropped=st.sampled_from([0.0, 0.4, 1.0]))
@settings(max_examples=15, deadline=None)
def test_the_loss_is_that_of_a_slow_loop(shape: list[int], dropped: float) -> None:
    x = torch.randn(7, *shape, generator=chance(1))
    condition = torch.randn(7, 3, generator=chance(2))
    draws = drawn(x, LEVELS, chance(3), dropped)
    slow = []
    for i in range(7):
        t = int(draws.t[i])
        signal, noise = LEVELS.at(t)
        noisy = signal * x[i] + noise * draws.epsilon[i]
        told = condition[i] if draws.kept[i] else torch.zeros(3)
        predicted = denoiser(noisy[None], torch.tensor([t]), told[None])[0]
        slow.append(((draws.epsilon[i] - predicted) ** 2).mean())
    each = denoising_losses(denoiser, x, condition, LEVELS, draws)
    torch.testing.assert_close(each, torch.stack(slow))
    loss = denoising_loss(denoiser, x, condition, LEVELS, chance(3), dropped)
    torch.testing.assert_close(loss, torch.stack(slow).mean())


def test_the_best_denoiser_of_a_gaussian_has_the_loss_of_the_closed_form() -> None:
    """epsilon given x_t has the variance signal² v / (signal² v + noise²) where x_0 has v."""
    variance = 0.25
    x = variance**0.5 * torch.randn(40_000, 1, generator=chance(5))
    signal, noise = LEVELS.signal.float(), LEVELS.noise.float()
    spread = signal**2 * variance + noise**2

    def best(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        return (noise / spread)[t].unsqueeze(1) * x

    loss = denoising_loss(best, x, torch.zeros(40_000, 1), LEVELS, chance(6))
    assert float(loss) == pytest.approx(float((signal**2 * variance / spread).mean()), rel=0.03)


def test_conditions_are_dropped_whole_and_at_the_rate() -> None:
    seen: list[torch.Tensor] = []

    def look(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        seen.append(condition)
        return x

    condition = 1 + torch.rand(20_000, 3, generator=chance(1))
    denoising_loss(look, torch.zeros(20_000, 2), condition, LEVELS, chance(2))
    told = (seen[0] == condition).all(1)
    assert torch.equal(told, (seen[0] != 0).any(1))
    assert float(told.float().mean()) == pytest.approx(0.7, abs=0.015)


def test_levels_are_drawn_evenly_and_without_regard_to_what_is_dropped() -> None:
    draws = drawn(torch.zeros(50_000, 1), LEVELS, chance())
    share = torch.bincount(draws.t, minlength=100) / 50_000
    assert float((share - 0.01).abs().max()) < 0.0025  # 5.6 standard deviations
    assert float(draws.t[draws.kept].double().mean()) == pytest.approx(49.5, abs=0.7)


def test_same_generator_same_draws() -> None:
    x = torch.zeros(5, 2, 3)
    first, second, other = (drawn(x, LEVELS, chance(seed)) for seed in (1, 1, 2))
    for name in ("t", "epsilon", "kept"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    assert not torch.equal(first.epsilon, other.epsilon)


def test_draws_are_refilled_in_place() -> None:
    x = torch.zeros(64, 2, 3)
    held, new = drawn(x, LEVELS, chance(1)), drawn(x, LEVELS, chance(2))
    places = [part.data_ptr() for part in (held.t, held.epsilon, held.kept)]
    held.copy_(new)
    assert places == [part.data_ptr() for part in (held.t, held.epsilon, held.kept)]
    assert torch.equal(held.t, new.t)
    assert torch.equal(held.epsilon, new.epsilon)
    assert torch.equal(held.kept, new.kept)


def test_computing_never_asks_for_a_value() -> None:
    """Fake tensors have none, so whatever a recorded step could not do fails here."""
    net = torch.nn.Linear(6, 6)

    def asked(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        predicted: torch.Tensor = net(x)
        return predicted * condition.sum(1, keepdim=True)

    with FakeTensorMode(allow_non_fake_inputs=True):
        x, condition = torch.empty(4, 6), torch.empty(4, 2)
        draws = Draws(torch.empty(4, dtype=torch.long), torch.empty(4, 6), torch.empty(4) > 0)
        loss = denoising_losses(asked, x, condition, LEVELS, draws).mean()
        (gradient,) = torch.autograd.grad(loss, net.weight)
        assert gradient.shape == (6, 6)
        with pytest.raises(DataDependentOutputException):  # so it would be seen
            bool(loss > 0)


def test_the_denoiser_learns_and_is_averaged() -> None:
    wave = torch.sin(torch.arange(32) * 0.3) * (1 + torch.arange(128)[:, None] % 3)
    x = (wave + 0.2 * torch.randn(128, 32, generator=chance()))[:, None]
    torch.manual_seed(0)
    net = UNet((1, 32), UNetSettings(width=8, blocks=1, kernels=1, condition=4))
    conditions = torch.zeros(len(x), 4)
    averaged, losses = train_denoiser(
        net,
        lambda index: x[index],
        conditions,
        NoiseSchedule.linear(100),
        TrainConfig(epochs=12, batch_size=32, learning_rate=5e-3),
        seed=0,
        dropped=0.3,
        decay=0.9,
    )
    assert losses[-1] < 0.8 * losses[0]
    pairs = zip(net.parameters(), averaged.parameters(), strict=True)
    assert any(not torch.equal(one, other) for one, other in pairs)


def test_parts_of_a_condition_are_dropped_whole_and_apart_from_each_other() -> None:
    seen: list[torch.Tensor] = []

    class Look(nn.Linear):
        def forward(
            self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor
        ) -> torch.Tensor:  # type: ignore[override]
            seen.append(condition.clone())
            return x * self.weight

    zeros = torch.zeros(20_000, 1)
    train_denoiser(
        Look(1, 1, bias=False),
        zeros.__getitem__,
        torch.ones(20_000, 5),
        LEVELS,
        TrainConfig(epochs=1, batch_size=2_000, learning_rate=1e-9),
        seed=0,
        dropped=0.3,
        decay=0.9,
        parts=(3, 2),
    )
    told = torch.cat(seen)
    first, second = told[:, 0], told[:, 3]
    assert torch.equal(told, torch.stack([first, first, first, second, second], dim=1))
    for share, expected in ((first, 0.7), (second, 0.7), (first * second, 0.49)):
        assert float(share.mean()) == pytest.approx(expected, abs=0.015)


class Constant(nn.Module):
    """Says the same of all windows."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value))

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        return self.value.expand_as(x)


def test_an_error_of_the_velocity_is_no_larger_in_the_clean_window() -> None:
    """x̂_0 = signal x - noise v at every level, by equation (19)."""
    levels = NoiseSchedule.linear()
    x = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(0))
    for t in (0, 500, 999):
        epsilon = FromVelocity(Constant(0.7), levels)(x, torch.full((3,), t), torch.zeros(3, 1))
        signal, noise = levels.at(t)
        clean = levels.clean_of(x, epsilon, t)
        torch.testing.assert_close(clean, signal * x - noise * 0.7, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("of_velocity", [False, True])
def test_levels_of_much_noise_count_in_the_loss_of_the_velocity(of_velocity: bool) -> None:
    """By hand, for clean windows of zeros and a network that says 0."""
    levels = NoiseSchedule.linear()
    zeros = torch.zeros(2048, 1, 16)
    _, (loss,) = train_denoiser(
        FromVelocity(Constant(0.0), levels),
        zeros.__getitem__,
        torch.zeros(2048, 1),
        levels,
        TrainConfig(epochs=1, batch_size=64, learning_rate=1e-9),
        seed=0,
        dropped=0.1,
        decay=0.9,
        of_velocity=of_velocity,
    )
    # x_t = noise_t epsilon, the noise said is noise_t x_t, so the error is signal_t^2 epsilon.
    expected = (levels.signal ** (2 if of_velocity else 4)).mean()
    assert loss == pytest.approx(float(expected), rel=0.1)
