"""Dense networks on latents: published sizes, what a denoiser is told, and what it can learn."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sensorveil.diffusion.guidance import conditioned
from sensorveil.diffusion.mlp import LatentReader, ResidualDenoiser, train_reader
from sensorveil.diffusion.samplers import SAMPLERS
from sensorveil.diffusion.schedule import NoiseSchedule
from sensorveil.diffusion.training import train_denoiser
from sensorveil.diffusion.unet import UNet, UNetSettings
from sensorveil.train import TrainConfig, seeded

LEVELS = NoiseSchedule.linear(100, 1e-3, 0.15)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def denoiser(size: int = 3) -> ResidualDenoiser:
    with seeded(0):
        return ResidualDenoiser(size, condition=2, width=32, blocks=2, levels=LEVELS)


def test_the_reader_is_as_large_as_the_published_one() -> None:
    """CLOAK's table VI: Aux-S has 0.23 M parameters, 0.89 MB of 2^20 bytes; five dense layers."""
    net = LatentReader(size=60, known=60, classes=2)
    count = sum(weight.numel() for weight in net.parameters())
    assert (round(count / 1e6, 2), round(count * 4 / 2**20, 2)) == (0.23, 0.89)
    assert sum(isinstance(layer, nn.Linear) for layer in net.layers) == 5


def test_the_unet_on_latents_is_as_large_as_the_published_one() -> None:
    """Table VI: 38.41 M, 146.54 MB, where the condition's small network is kept apart."""
    with torch.device("meta"):
        net = UNet((1, 60), UNetSettings(kernels=1))
    count = sum(weight.numel() for weight in net.parameters())
    count -= sum(weight.numel() for weight in net.condition[0].parameters())
    assert (round(count / 1e6, 2), round(count * 4 / 2**20, 2)) == (38.41, 146.54)


def test_before_it_learns_it_is_right_about_normal_latents() -> None:
    """E[epsilon | x_t] = noise_t x_t where x_0 is standard normal."""
    x, t = numbers(6, 3), torch.tensor([0, 1, 20, 50, 98, 99])
    predicted = denoiser()(x, t, numbers(6, 2))
    torch.testing.assert_close(predicted, LEVELS.noise[t].float().unsqueeze(1) * x)


def test_its_adaptive_norms_are_scales_and_shifts() -> None:
    """One block by hand: (1 + scale) norm(h) + shift, both of time and condition together."""
    with seeded(1):
        net = ResidualDenoiser(3, condition=2, width=8, blocks=1, levels=LEVELS).double()
        for weight in net.parameters():
            nn.init.normal_(weight)
    x, t, condition = numbers(4, 3).double(), torch.tensor([3, 9, 50, 99]), numbers(4, 2).double()
    angles = t.double().unsqueeze(1) / 1e4 ** (torch.arange(4) / 4)
    time = net.time(torch.cat([angles.cos(), angles.sin()], 1))
    told = nn.functional.silu(time + net.condition(condition))
    scale, shift = (told @ net.adapt.weight.T + net.adapt.bias).chunk(2, dim=1)

    def norm(h: torch.Tensor) -> torch.Tensor:
        middle = h - h.mean(1, keepdim=True)
        return middle / (middle.square().mean(1, keepdim=True) + 1e-5).sqrt()

    h = net.entry(x)
    inner = (1 + scale) * norm(net.first[0](h)) + shift
    v = net.leave(norm(h + net.second[0](nn.functional.silu(inner))))
    wanted = LEVELS.noise[t].unsqueeze(1) * x + LEVELS.signal[t].unsqueeze(1) * v
    torch.testing.assert_close(net(x, t, condition), wanted, rtol=1e-5, atol=1e-5)


def test_levels_are_looked_up_as_they_are_worked_out() -> None:
    """And after a change of weights, anew."""
    net, x, t, condition = denoiser(), numbers(4, 3), torch.tensor([0, 7, 50, 99]), numbers(4, 2)
    before = None
    for _ in range(3):
        with torch.no_grad():
            for weight in net.parameters():
                weight += 0.1 * torch.randn_like(weight)
            looked_up = net(x, t, condition)
            assert torch.equal(net(x, t, condition), looked_up)
        torch.testing.assert_close(looked_up, net(x, t, condition).detach())
        assert before is None or not torch.allclose(looked_up, before)
        before = looked_up


def test_one_condition_serves_as_many_rows_as_follow_one_another() -> None:
    with seeded(1):
        net = ResidualDenoiser(3, condition=2, width=8, blocks=2, levels=LEVELS).double()
        for weight in net.parameters():
            nn.init.normal_(weight)
    x, t, condition = numbers(12, 3).double(), torch.tensor([3, 50, 99]), numbers(3, 2).double()
    each = net(x, t.repeat_interleave(4), condition.repeat_interleave(4, dim=0))
    torch.testing.assert_close(net(x, t, condition), each)
    assert not torch.allclose(each, net(x, t.repeat(4), condition.repeat(4, 1)))


def test_what_it_makes_has_the_mean_it_is_told() -> None:
    """Two clouds at +1 and -1, told by the condition: samples lie in the cloud that is told."""
    side = torch.arange(512) % 2
    latents = 0.3 * numbers(512, 3) + (2.0 * side.unsqueeze(1) - 1)
    conditions = nn.functional.one_hot(side, 2).float()
    net, losses = train_denoiser(
        denoiser(),
        lambda index: latents[index],
        conditions,
        LEVELS,
        TrainConfig(60, 128, 5e-3),
        seed=0,
        dropped=0.2,
        decay=0.95,
    )
    assert losses[-1] < 0.5 * losses[0]
    for which, wanted in ((0, -1.0), (1, 1.0)):
        told = torch.eye(2)[which].expand(200, 2)
        with torch.no_grad():
            made = SAMPLERS["ddim"](conditioned(net, told), numbers(200, 3, seed=7), LEVELS, 20)
        assert made.mean().item() == pytest.approx(wanted, abs=0.15)
        assert made.std(0).mean().item() == pytest.approx(0.3, abs=0.12)


def test_the_reader_uses_latents_and_what_is_known() -> None:
    """The class is the sign of their product: neither of them tells it alone."""
    latents, known = numbers(512, 1), numbers(512, 1, seed=1)
    codes = (latents * known > 0).long().squeeze(1)
    with seeded(0):
        net = LatentReader(1, 1, 2, sizes=(32, 16))
    train_reader(
        net,
        lambda index: latents[index],
        known,
        codes,
        TrainConfig(40, 64, 1e-2),
        seed=0,
        stage="auxiliary",
    )
    read = net(latents, known).argmax(1)
    assert (read == codes).float().mean() > 0.93
    assert not net.training
