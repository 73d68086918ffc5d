"""Blinder: networks and losses against sums by hand, central training, the two modifications."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.blinder import (
    Batch,
    Blinder,
    BlinderLoss,
    BlinderNetwork,
    LossSettings,
    NetworkSettings,
    log_power,
    whittle_loss,
)
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.run import load_run, save_run
from sensorveil.train import seeded

QUICK: dict[str, Any] = {
    "training.epochs": 2,
    "classifier.epochs": 2,
    "width": 8,
    "hidden_sizes": (24, 24, 16, 16),
    "latent_size": 6,
}
DENSE = NetworkSettings(hidden_sizes=(16, 12, 10, 8), convolutional=False, latent_size=4)


def network(seed: int = 0, texture: bool = False) -> BlinderNetwork:
    with seeded(seed):
        return BlinderNetwork(2, 12, 3, (2, 3), DENSE, (8, 8), texture).double()


def some_batch(count: int = 7, seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def classes(size: int) -> torch.Tensor:
        return torch.eye(size)[torch.randint(size, (count,), generator=generator)].double()

    return Batch(
        torch.randn(count, 2, 12, generator=generator).double(),
        classes(3),
        torch.cat([classes(2), classes(3)], dim=1),
        torch.randn(count, 4, generator=generator).double(),
    )


def code(net: BlinderNetwork, batch: Batch) -> torch.Tensor:
    mean, log_variance = net.encode(batch.windows)
    return mean + torch.exp(log_variance / 2) * batch.noise


# Networks.


@pytest.mark.parametrize("length", [4, 7, 30, 31])
@pytest.mark.parametrize("convolutional", [False, True])
def test_windows_of_any_length_come_out_as_long_as_they_went_in(length, convolutional):
    sizes = NetworkSettings(hidden_sizes=(8, 8, 6, 6), convolutional=convolutional, filters=4)
    net = BlinderNetwork(3, length, 2, (2,), sizes)
    mean, log_variance = net.encode(torch.zeros(5, 3, length))
    assert mean.shape == log_variance.shape == (5, 25)
    assert net.decode(mean, torch.zeros(5, 2), torch.zeros(5, 2)).shape == (5, 3, length)


def test_the_paper_has_five_layers_and_the_outer_two_are_convolutions():
    chosen = Blinder("paper").settings
    loss = chosen.loss
    assert (loss.alpha, loss.beta, loss.gamma, chosen.modification) == (0.9, 2, 0.2, "stochastic")
    net = BlinderNetwork(2, 128, 4, (2,), chosen.network)
    kinds = [
        [type(layer).__name__ for layer in part if list(layer.parameters())]
        for part in (net.encoder, net.decoder)
    ]
    assert kinds[0] == ["Conv1d", "Conv1d", "Linear", "Linear", "Linear"]
    assert kinds[1] == ["Linear", "Linear", "Linear", "ConvTranspose1d", "ConvTranspose1d"]


@pytest.mark.parametrize("convolutional", [False, True])
def test_signals_stay_as_large_through_all_layers(convolutional):
    """With torch's own initial weights less than a hundredth of a code reaches the window."""
    with seeded(1):
        net = BlinderNetwork(2, 128, 4, (2,), NetworkSettings(convolutional=convolutional))
    generator = torch.Generator().manual_seed(1)
    windows, codes = (torch.randn(256, *shape, generator=generator) for shape in ((2, 128), (25,)))
    with torch.no_grad():
        made = net.decode(codes, torch.zeros(256, 2), torch.zeros(256, 4))
        for out in (*net.encode(windows), made):
            assert 0.3 < out.square().mean() < 3
            assert out.var(0).mean() > 0.1


def test_weights_survive_being_one_vector():
    net = network(texture=True)
    vector = net.flatten(net.state_dict())
    weights, discriminators = net.unflatten(vector)
    assert all(name.startswith("discriminators.") for name in discriminators)
    for name, weight in {**weights, **discriminators}.items():
        assert torch.equal(weight, net.state_dict()[name])
    tail = torch.cat([weight.flatten() for weight in discriminators.values()])
    assert torch.equal(vector[-len(tail) :], tail)


# Losses.


def test_the_loss_is_equation_4():
    net, batch = network(), some_batch()
    weights = dict(net.named_parameters())
    mean, log_variance = net.encode(batch.windows)
    z = code(net, batch)
    error = (net.decode(z, batch.hidden, batch.kept) - batch.windows).square().sum() / (7 * 2 * 12)
    kl = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum() / 7
    truths = (batch.hidden[:, :2], batch.hidden[:, 2:])
    adversary = sum(
        cross_entropy(one(z), t) for one, t in zip(net.discriminators, truths, strict=True)
    )
    settings = LossSettings(alpha=0.7, beta=3.0, gamma=0.4)
    for share in (1.0, 0.5):
        wanted = (0.7 * 256 * error + share * 3 * kl) / 75 - share * 0.4 * adversary
        got = BlinderLoss(net, settings).autoencoder(
            weights, weights, batch._replace(warm_up=share)
        )
        assert math.isclose(float(got.detach()), float(wanted.detach()), rel_tol=1e-9)


def test_errors_can_count_class_by_class():
    net, batch = network(), some_batch()
    weights, quiet = dict(net.named_parameters()), LossSettings(alpha=1.0, beta=0.0, gamma=0.0)
    made = net.decode(code(net, batch), batch.hidden, batch.kept)
    errors = (made - batch.windows).square().mean((1, 2))
    shares = torch.tensor([2.0, 0.5, 0.0]).double()
    wanted = 256 / 75 * (errors * shares[batch.kept.argmax(1)]).mean()
    got = BlinderLoss(net, quiet, shares).autoencoder(weights, weights, batch)
    torch.testing.assert_close(got, wanted)


def test_both_players_descend_on_their_own_loss_only():
    """The gradient of the sum is that of (4) for the autoencoder and of (3) for the others."""
    net, batch = network(), some_batch(6, seed=2)
    weights, loss = dict(net.named_parameters()), BlinderLoss(net)
    joint = torch.autograd.grad(loss.joint(weights, weights, batch), weights.values())
    coder = torch.autograd.grad(loss.autoencoder(weights, weights, batch), weights.values())
    z = code(net, batch).detach()
    truths = (batch.hidden[:, :2], batch.hidden[:, 2:])
    own = sum(cross_entropy(one(z), t) for one, t in zip(net.discriminators, truths, strict=True))
    slopes = torch.autograd.grad(own, weights.values(), allow_unused=True)
    for name, got, against, adversary in zip(weights, joint, coder, slopes, strict=True):
        wanted = adversary if name.startswith("discriminators") else against
        torch.testing.assert_close(got, wanted)


def test_fixed_classifiers_see_windows_of_the_own_and_of_the_next_hidden_classes():
    net, batch = network(), some_batch()
    with seeded(4):
        models = [nn.Sequential(nn.Flatten(), nn.Linear(24, n)).double() for n in (3, 2, 3)]
    z, wanted = code(net, batch), torch.zeros(()).double()
    for step in (0, 1):
        given = [(part.argmax(1) + step) % part.shape[1] for part in batch.hidden.split((2, 3), 1)]
        onto = torch.cat([torch.eye(2)[given[0]], torch.eye(3)[given[1]]], dim=1).double()
        made = net.decode(z, onto, batch.kept)
        for model, truth in zip(models, (batch.kept.argmax(1), *given), strict=True):
            wanted = wanted + cross_entropy(model(made), truth) / 2
    settings = LossSettings(alpha=0, beta=0, gamma=0, classifier_weight=0.6)
    loss = BlinderLoss(net, settings, classifiers=[[model] for model in models])
    weights = dict(net.named_parameters())
    torch.testing.assert_close(loss.autoencoder(weights, weights, batch), 0.6 * wanted)


def test_a_bounded_adversary_is_as_steep_at_chance_and_little_beyond():
    net, batch = network(), some_batch()
    z = code(net, batch).detach().requires_grad_()
    with torch.no_grad():
        for one in net.discriminators:
            one[-1].bias.zero_()
            one[-1].weight *= 1e-6  # at chance
    weights, loss = dict(net.named_parameters()), BlinderLoss(net)
    free, bounded = (
        torch.autograd.grad(loss.discriminator(weights, z, batch.hidden, on), z)[0]
        for on in (False, True)
    )
    torch.testing.assert_close(bounded, free, rtol=1e-4, atol=0)
    with torch.no_grad():
        assert float(loss.discriminator(weights, z, batch.hidden, True)) == pytest.approx(3, 1e-4)
        for one in net.discriminators:
            one[-1].bias[0] += 50.0  # sure of the first class
        others = torch.cat([torch.eye(2)[[1] * 7], torch.eye(3)[[2] * 7]], dim=1).double()
        assert float(loss.discriminator(weights, z, others, True)) == pytest.approx(5)
        assert float(loss.discriminator(weights, z, others)) > 90


def test_a_texture_learns_the_power_of_what_is_left_out():
    """Whittle's loss is lowest at the mean power, and noise of that texture has it."""
    generator = torch.Generator().manual_seed(3)
    residuals = torch.randn(4000, 1, 12, generator=generator).cumsum(-1).double()
    own = torch.fft.rfft(residuals, norm="ortho").abs().square().mean(0).log()
    guess = own.clone().requires_grad_()
    (slope,) = torch.autograd.grad(whittle_loss(guess.expand(4000, -1, -1), residuals), guess)
    assert slope.abs().max() < 1e-9
    net = BlinderNetwork(1, 12, 2, (2,), DENSE, texture=True).double()
    second = torch.tensor([[0.0, 1.0]]).double().expand(4000, -1)
    with torch.no_grad():
        net.texture[1] = own / log_power(torch.ones_like(net.texture), second)[0, 0, 0]
        white = torch.randn(residuals.shape, generator=generator).double()
        made = net.add_texture(torch.zeros_like(residuals), second, white)
    found = torch.fft.rfft(made, norm="ortho").abs().square().mean(0).log()
    torch.testing.assert_close(found, own, rtol=0, atol=0.15)


# The method.


def loudness(windows: Windows) -> np.ndarray:
    """How loud the example's wave is in each window: 1 for gender 0 and 1.5 for gender 1."""
    wave = np.sin(np.arange(32) * (0.4 + 0.6 * windows.labels["activity"][:, None]))
    return ((windows.signal[:, 0] / 9.81 - 5) * wave).sum(1) / (wave**2).sum(1)


def test_the_planted_loudness_is_swapped_or_random():
    windows = example_windows()
    gender = windows.labels["gender"]
    papers = {"beta": 2.0, "classifier_weight": 0.0, "warm_up": 0.0, "schedule": "constant"}
    papers |= {"training.epochs": 120, "training.learning_rate": 2e-3, "training.batch_size": 48}
    blinder = Blinder(modification="deterministic", seed=0, **papers)
    blinder.fit(windows, "activity", "gender")
    found = loudness(blinder.obfuscate(windows, seed=1))
    np.testing.assert_allclose([found[gender == g].mean() for g in (0, 1)], [1.5, 1], atol=0.15)
    blinder.settings = blinder.settings.with_changes({"modification": "stochastic"})
    found = loudness(blinder.obfuscate(windows, seed=1))
    np.testing.assert_allclose([found[gender == g].mean() for g in (0, 1)], [1.25] * 2, atol=0.15)


def test_the_condition_is_all_the_output_is_made_from():
    windows = example_windows()
    both = Blinder(modification="deterministic", **QUICK)
    both.fit(windows, "activity", ["gender", "weight"])
    assert both.condition(windows).shape == (96, 2 + 2 * 6 + 4)
    assert Blinder(**QUICK).fit(windows, "activity", "gender").condition(windows).shape == (96, 14)


def test_without_epochs_networks_are_drawn_and_not_trained():
    windows = example_windows()
    start, again = (
        Blinder(**{**QUICK, "training.epochs": 0}).fit(windows, "activity", "gender")
        for _ in range(2)
    )
    trained = Blinder(**QUICK).fit(windows, "activity", "gender")
    assert torch.equal(start.weights(), again.weights())
    assert not torch.equal(start.weights(), trained.weights())
    same = start.with_weights(trained.weights())
    np.testing.assert_array_equal(
        same.obfuscate(windows, seed=1).signal, trained.obfuscate(windows, seed=1).signal
    )
    assert not torch.equal(start.weights(), same.weights())  # the first one stays as it was


def test_a_run_keeps_discriminators_classifiers_and_the_loss(tmp_path):
    """They are needed to personalise, or to go on with a federation."""
    windows = example_windows()
    blinder = Blinder(**QUICK).fit(windows, ["activity", "weight"], "gender")
    other = load_run(save_run(blinder, tmp_path / "run"))
    assert torch.equal(other.weights(), blinder.weights())
    made = torch.randn(5, 2, 32, generator=torch.Generator().manual_seed(0))
    own, its = blinder.loss(), other.loss()
    torch.testing.assert_close(its.error_weights, own.error_weights)
    assert [len(pair) for pair in own.classifiers] == [2, 2]
    for pair, again in zip(own.classifiers, its.classifiers, strict=True):
        for one, same in zip(pair, again, strict=True):
            torch.testing.assert_close(one(made), same(made))
    plain = Blinder("paper", **QUICK).fit(windows, "activity", "gender").loss()
    assert (plain.error_weights, plain.classifiers) == (None, [])


def test_relative_errors_are_shares_of_each_class_variance():
    windows = example_windows()
    blinder = Blinder(**{**QUICK, "training.epochs": 0}).fit(windows, "activity", "gender")
    signal = windows.scaled(blinder.scaling_).signal
    variances = [signal[windows.labels["activity"] == k].var(0).mean() for k in range(2)]
    shares = blinder.loss().error_weights.numpy()
    np.testing.assert_allclose(shares * variances, (shares * variances)[0], rtol=1e-4)
    assert shares.mean() == pytest.approx(1)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"hidden_sizes": "64-32"}, "network.hidden_sizes"),
        ({"modification": "none"}, "'stochastic' or 'deterministic'"),
        ({"gamma": -1.0}, "'loss.gamma' is -1.0; it should be greater than or equal to 0"),
        ({"latent_size": 0}, "'network.latent_size' is 0; it should be greater than 0"),
    ],
)
def test_settings_without_sense_are_refused(setting, words):
    with pytest.raises(Refusal, match=words):
        Blinder(**setting)
