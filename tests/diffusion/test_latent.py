"""Denoisers: their loss in closed form, velocities, the residual MLP, and latent diffusion."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sensorveil.diffusion.latent import small_latent_diffusion
from sensorveil.diffusion.mlp import ResidualMLP
from sensorveil.diffusion.schedule import NoiseSchedule
from sensorveil.diffusion.training import VelocityDenoiser, denoising_loss
from sensorveil.train import TrainConfig, seeded

SCHEDULE = NoiseSchedule.linear(100)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_best_denoiser_of_a_gaussian_has_the_loss_of_the_closed_form() -> None:
    """epsilon given x_t has the variance signal² v / (signal² v + noise²) where x_0 has v."""
    variance = 0.25
    signal, noise = SCHEDULE.signal.float(), SCHEDULE.noise.float()
    spread = signal**2 * variance + noise**2

    def best(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        return (noise / spread)[t].unsqueeze(1) * x

    x = variance**0.5 * numbers(40_000, 1, seed=5)
    with seeded(6):
        loss = denoising_loss(best, x, torch.zeros(40_000, 1), SCHEDULE)
    assert float(loss) == pytest.approx(float((signal**2 * variance / spread).mean()), rel=0.03)


def test_conditions_are_dropped_whole_at_the_dropout_rate() -> None:
    seen: list[torch.Tensor] = []

    def look(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        seen.append(condition)
        return x

    condition = 1 + torch.rand(20_000, 3)
    with seeded(2):
        denoising_loss(look, torch.zeros(20_000, 2), condition, SCHEDULE, dropout=0.3)
    kept = (seen[0] == condition).all(1)
    assert torch.equal(kept, (seen[0] != 0).any(1))
    assert float(kept.float().mean()) == pytest.approx(0.7, abs=0.015)


def zero(x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x)


@pytest.mark.parametrize("velocity", [False, True])
def test_the_velocity_loss_weighs_timesteps_of_much_noise(velocity: bool) -> None:
    """Clean zeros and v = 0: the predicted noise is noise_t x_t, its error signal_t² epsilon."""
    with seeded(0):
        network = VelocityDenoiser(zero, SCHEDULE)
        clean, condition = torch.zeros(40_000, 4), torch.zeros(40_000, 1)
        loss = denoising_loss(network, clean, condition, SCHEDULE, velocity=velocity)
    expected = (SCHEDULE.signal ** (2 if velocity else 4)).mean()
    assert float(loss) == pytest.approx(float(expected), rel=0.05)


def test_an_error_of_the_velocity_is_no_larger_in_the_clean_window() -> None:
    """x_0 = signal x - noise v at every timestep, by equation (19)."""
    x = numbers(3, 2, 8)
    network = VelocityDenoiser(lambda x, t, condition: torch.full_like(x, 0.7), SCHEDULE)
    for t in (0, 50, 99):
        noise = network(x, torch.full((3,), t), torch.zeros(3, 1))
        signal, sigma = SCHEDULE.at(t)
        clean = SCHEDULE.to_clean(x, noise, t)
        torch.testing.assert_close(clean, signal * x - sigma * 0.7, rtol=1e-3, atol=1e-3)


def mlp() -> ResidualMLP:
    with seeded(1):
        net = ResidualMLP(3, condition=2, width=8, blocks=1).double()
        for weight in net.parameters():
            nn.init.normal_(weight)
    return net


def test_the_residual_mlp_scales_and_shifts_its_norms() -> None:
    """One block by hand: (1 + scale) norm(h) + shift, both of time and condition together."""
    net, x = mlp(), numbers(4, 3).double()
    t, condition = torch.tensor([3, 9, 50, 99]), numbers(4, 2).double()
    angles = t.double().unsqueeze(1) / 1e4 ** (torch.arange(4) / 4)
    time = net.time(torch.cat([angles.cos(), angles.sin()], 1))
    embedding = nn.functional.silu(time + net.condition(condition))
    layer = net.modulation
    scale, shift = (embedding @ layer.weight.T + layer.bias).chunk(2, dim=1)

    def norm(h: torch.Tensor) -> torch.Tensor:
        middle = h - h.mean(1, keepdim=True)
        return middle / (middle.square().mean(1, keepdim=True) + 1e-5).sqrt()

    h = net.entry(x)
    inner = (1 + scale) * norm(net.first[0](h)) + shift
    wanted = net.leave(norm(h + net.second[0](nn.functional.silu(inner))))
    torch.testing.assert_close(net(x, t, condition), wanted, rtol=1e-5, atol=1e-5)


def test_candidates_of_a_window_share_its_time_and_condition() -> None:
    net, x = mlp(), numbers(3, 4, 3).double()
    t, condition = torch.tensor([3, 50, 99]), numbers(3, 2).double()
    each = net(x.flatten(0, 1), t.repeat_interleave(4), condition.repeat_interleave(4, dim=0))
    torch.testing.assert_close(net(x, t, condition).flatten(0, 1), each)
    with_velocity = VelocityDenoiser(net, SCHEDULE)
    assert with_velocity(x, t, condition).shape == (3, 4, 3)


def two_clouds() -> tuple[torch.Tensor, torch.Tensor]:
    """Windows around +1 and -1 times a wave, and which it is, one-hot."""
    side = torch.arange(256) % 2
    wave = torch.sin(torch.arange(16) * 0.8).expand(256, 2, 16)
    signal = (2.0 * side.view(-1, 1, 1) - 1) * wave + 0.1 * numbers(256, 2, 16)
    return signal, nn.functional.one_hot(side, 2).float()


def test_latent_diffusion_makes_windows_of_the_condition() -> None:
    signal, conditions = two_clouds()
    model = small_latent_diffusion(
        (2, 16), 2, latent=4, widths=(4, 4), width=32, blocks=1, timesteps=100
    )
    losses = model.fit_autoencoder(signal.__getitem__, 256, TrainConfig(4, 64, 1e-3), seed=0)
    assert losses[-1] < 0.05
    losses = model.fit_denoiser(signal.__getitem__, conditions, TrainConfig(60, 64, 5e-3), seed=0)
    assert losses[-1] < losses[0]
    assert not any(weight.requires_grad for weight in model.denoiser.parameters())  # averaged
    z = model.encode(signal)
    assert (model.low <= z.amin(0) + 1e-5).all()
    assert (model.high >= z.amax(0) - 1e-5).all()
    made = model.decode(model.sample(torch.eye(2), numbers(2, 40, 4), 1.0).flatten(0, 1))
    side = (made * signal[1]).mean((1, 2)).view(2, 40)  # window 1 is of the second cloud
    assert float((side[0] < 0).float().mean()) > 0.9
    assert float((side[1] > 0).float().mean()) > 0.9
