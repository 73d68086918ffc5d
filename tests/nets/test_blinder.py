"""Blinder's networks and losses: shapes, and equations (3) and (4) against sums by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sensorveil.nets.blinder import (
    Batch,
    BlinderDesign,
    BlinderNets,
    LossWeights,
    both_losses,
    coder_loss,
    log_power,
    surprise,
    whittle,
)
from sensorveil.train import seeded

SMALL = BlinderDesign(
    channels=2, length=12, kept=3, hidden=(2, 3), widths=(16, 12, 10, 8), latent=4
)


def small_nets(seed: int = 0, design: BlinderDesign = SMALL) -> BlinderNets:
    with seeded(seed):
        return BlinderNets(design).double()


def some_batch(count: int, seed: int, design: BlinderDesign = SMALL) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def classes(size: int) -> torch.Tensor:
        return torch.eye(size)[torch.randint(size, (count,), generator=generator)].double()

    return Batch(
        torch.randn(count, design.channels, design.length, generator=generator).double(),
        classes(design.kept),
        torch.cat([classes(size) for size in design.hidden], dim=1),
        torch.randn(count, design.latent, generator=generator).double(),
    )


@pytest.mark.parametrize("length", [4, 5, 6, 7, 30, 31, 128])
@pytest.mark.parametrize("filters", [(), (4, 8)])
def test_windows_of_any_length_come_out_as_long_as_they_went_in(length, filters):
    design = BlinderDesign(
        channels=3, length=length, kept=2, hidden=(2,), widths=(8, 8, 6, 6), filters=filters
    )
    nets = BlinderNets(design)
    mu, logvar = nets.encode(torch.zeros(5, 3, length))
    assert mu.shape == logvar.shape == (5, 25)
    assert nets.decode(mu, torch.zeros(5, 2), torch.zeros(5, 2)).shape == (5, 3, length)


def test_the_paper_has_five_layers_and_the_outer_two_are_convolutions():
    paper = BlinderDesign(channels=2, length=128, kept=4, hidden=(2,), filters=(32, 64))
    nets = BlinderNets(paper)
    kinds = [type(layer).__name__ for layer in nets.encoder if list(layer.parameters())]
    assert kinds == ["Conv1d", "Conv1d", "Linear", "Linear", "Linear"]
    kinds = [type(layer).__name__ for layer in nets.decoder if list(layer.parameters())]
    assert kinds == ["Linear", "Linear", "Linear", "ConvTranspose1d", "ConvTranspose1d"]


@pytest.mark.parametrize("filters", [(), (32, 64)])
def test_signals_stay_as_large_through_all_layers(filters):
    """Torch's own weights leave less than a hundredth of a code in the window."""
    nets = small_nets(1, BlinderDesign(2, 128, kept=4, hidden=(2,), filters=filters))
    generator = torch.Generator().manual_seed(1)
    windows = torch.randn(256, 2, 128, generator=generator).double()
    codes = torch.randn(256, 25, generator=generator).double()
    told = torch.zeros(256, 2).double(), torch.zeros(256, 4).double()
    with torch.no_grad():
        for made in (*nets.encode(windows), nets.decode(codes, *told)):
            assert 0.3 < made.square().mean() < 3
            assert made.var(0).mean() > 0.1


def test_the_loss_is_equation_4():
    """alpha, beta and gamma weigh the three terms, on the scale of ObscureNet's code."""
    nets, batch = small_nets(), some_batch(7, seed=1)
    weights = dict(nets.named_parameters())
    mu, logvar = nets.encode(batch.windows)
    z = encoded_with_noise(nets, batch)
    made = nets.decode(z, batch.hidden, batch.kept)
    error = float(((made - batch.windows) ** 2).detach().sum()) / (7 * 2 * 12)
    kl = -0.5 * float((1 + logvar - mu**2 - logvar.exp()).detach().sum()) / 7
    read = 0.0
    for which, truth in enumerate((batch.hidden[:, :2], batch.hidden[:, 2:])):
        read += float(cross_entropy(nets.discriminators[which](z), truth.argmax(1)).detach())
    wanted = (0.7 * 256 * error + 3 * kl) / 75 - 0.4 * read
    got = float(coder_loss(nets, weights, weights, batch, LossWeights(0.7, 3.0, 0.4)).detach())
    assert math.isclose(got, wanted, rel_tol=1e-9)


def test_errors_can_count_class_by_class():
    nets, batch = small_nets(), some_batch(7, seed=1)
    weights, quiet = dict(nets.named_parameters()), LossWeights(1.0, 0.0, 0.0)
    made = nets.decode(encoded_with_noise(nets, batch), batch.hidden, batch.kept)
    errors = (made - batch.windows).square().mean((1, 2)).detach()
    shares = torch.tensor([2.0, 0.5, 0.0]).double()
    wanted = 256 / 75 * (errors * shares[batch.kept.argmax(1)]).mean()
    got = coder_loss(nets, weights, weights, batch, replace(quiet, errors=shares))
    torch.testing.assert_close(got.detach(), wanted)


def test_witnesses_see_windows_of_the_own_and_of_the_next_hidden_classes():
    nets, batch = small_nets(), some_batch(7, seed=1)
    sizes, classes = (3, 2, 3), batch.hidden.split((2, 3), dim=1)
    with seeded(4):
        models = [nn.Sequential(nn.Flatten(), nn.Linear(24, size)).double() for size in sizes]
    z, wanted = encoded_with_noise(nets, batch), torch.zeros(()).double()
    for step in (0, 1):
        told = [(part.argmax(1) + step) % part.shape[1] for part in classes]
        onto = torch.cat([torch.eye(2)[told[0]], torch.eye(3)[told[1]]], dim=1).double()
        made = nets.decode(z, onto, batch.kept)
        for model, truth in zip(models, (batch.kept.argmax(1), *told), strict=True):
            wanted = wanted + cross_entropy(model(made), truth) / 2
    weights, quiet = dict(nets.named_parameters()), LossWeights(0.0, 0.0, 0.0)
    scale = replace(quiet, told=0.6, witnesses=[[model] for model in models])
    got = coder_loss(nets, weights, weights, batch, scale)
    torch.testing.assert_close(got, 0.6 * wanted)
    half = coder_loss(nets, weights, weights, batch, scale.warmed(0.5))
    torch.testing.assert_close(half, 0.3 * wanted)


def encoded_with_noise(nets: BlinderNets, batch: Batch) -> torch.Tensor:
    mu, logvar = nets.encode(batch.windows)
    return mu + torch.exp(logvar / 2) * batch.noise


def test_a_bounded_coder_gains_as_fast_at_guessing_and_little_beyond():
    nets, batch = small_nets(), some_batch(7, seed=1)
    z = encoded_with_noise(nets, batch).detach().requires_grad_()
    with torch.no_grad():
        for one in nets.discriminators:
            one[-1].bias.zero_()
            one[-1].weight *= 1e-6  # they guess
    weights = dict(nets.named_parameters())
    free, bounded = (
        torch.autograd.grad(surprise(nets, weights, z, batch.hidden, end), z)[0]
        for end in (False, True)
    )
    torch.testing.assert_close(bounded, free, rtol=1e-4, atol=0)
    assert float(surprise(nets, weights, z, batch.hidden, True).detach()) == pytest.approx(
        3, rel=1e-4
    )
    with torch.no_grad():
        for one in nets.discriminators:
            one[-1].bias[0] += 50.0  # sure of the first class
    others = torch.cat([torch.eye(2)[[1] * 7], torch.eye(3)[[2] * 7]], dim=1).double()
    assert float(surprise(nets, weights, z.detach(), others, True).detach()) == pytest.approx(5)
    assert float(surprise(nets, weights, z.detach(), others).detach()) > 90


def test_a_texture_learns_the_power_of_what_is_left_out():
    """Whittle's loss is lowest at the mean power, and noise of that texture has it."""
    generator = torch.Generator().manual_seed(3)
    gaps = torch.randn(4000, 1, 12, generator=generator).cumsum(-1).double()
    own = torch.fft.rfft(gaps, norm="ortho").abs().square().mean(0).log()
    guess = own.clone().requires_grad_()
    (slope,) = torch.autograd.grad(whittle(guess.expand(4000, -1, -1), gaps), guess)
    assert slope.abs().max() < 1e-9
    assert whittle(own.expand(4000, -1, -1), gaps) < whittle(own.expand(4000, -1, -1) + 0.1, gaps)
    nets = BlinderNets(BlinderDesign(1, 12, kept=2, hidden=(2,), widths=(4,) * 4, texture=True))
    nets = nets.double()
    second = torch.tensor([[0.0, 1.0]]).double().expand(4000, -1)
    with torch.no_grad():
        nets.texture[1] = own / log_power(torch.ones_like(nets.texture), second)[0, 0, 0]
        white = torch.randn(gaps.shape, generator=generator).double()
        made = nets.textured(torch.zeros_like(gaps), second, white)
    found = torch.fft.rfft(made, norm="ortho").abs().square().mean(0).log()
    torch.testing.assert_close(found, own, rtol=0, atol=0.15)


def test_a_texture_changes_nothing_else():
    plain = small_nets()
    nets = small_nets(design=replace(SMALL, texture=True))
    nets.load_state_dict(plain.state_dict(), strict=False)
    batch, scale = some_batch(6, seed=2), LossWeights()
    slopes = []
    for one in (plain, nets):
        weights = dict(one.named_parameters())
        loss = both_losses(one, weights, weights, batch, scale)
        found = torch.autograd.grad(loss, weights.values())
        slopes.append(dict(zip(weights, found, strict=True)))
    assert slopes[1].pop("texture").abs().max() > 0
    torch.testing.assert_close(slopes[0], slopes[1])


def test_both_players_descend_on_their_own_loss_only():
    """The sum's gradient is that of (4) for the coder and of (3) for the discriminators."""
    nets, batch, scale = small_nets(), some_batch(6, seed=2), LossWeights()
    weights = dict(nets.named_parameters())
    joint = torch.autograd.grad(both_losses(nets, weights, weights, batch, scale), weights.values())
    coder = torch.autograd.grad(coder_loss(nets, weights, weights, batch, scale), weights.values())
    z = encoded_with_noise(nets, batch).detach()
    parts = (batch.hidden[:, :2], batch.hidden[:, 2:])
    own = sum(cross_entropy(net(z), t) for net, t in zip(nets.discriminators, parts, strict=True))
    slopes = torch.autograd.grad(own, weights.values(), allow_unused=True)
    readers = dict(zip(weights, slopes, strict=True))
    for name, got, against in zip(weights, joint, coder, strict=True):
        wanted = readers[name] if name.startswith("discriminators") else against
        torch.testing.assert_close(got, wanted)
