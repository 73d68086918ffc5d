"""DP-SGD: per-unit gradients, clipping, the noise that the accountant assumes, and its sums."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from sensorveil.methods.csi.dp_sgd import (
    DpSgd,
    DpSgdSettings,
    PrivacySpent,
    PrivateTraining,
    compute_epsilon,
    secret_generator,
    train_privately,
)
from sensorveil.methods.csi.model import CsiTransformer, DenoisingModel, KeptClassifier


def training(units=12, seed=0, canaries=None, learning_rate=1e-3, **changed):
    settings = {"steps": 10, "expected_batch_size": 4, "samples_per_unit": 1, **changed}
    units = torch.arange(units) if isinstance(units, int) else torch.tensor(units)
    generator = secret_generator("cpu", seed)
    return PrivateTraining(DpSgdSettings(**settings), learning_rate, units, generator, canaries)


def with_random_weights(network):
    """Weights that begin at zero would hide the gradients of others."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    return network.double()  # gradients are compared to many digits


def transformer():
    network = CsiTransformer(3, (2, 3), width=8, blocks=2, heads=2, patch=4)
    network = with_random_weights(network)
    generator = torch.Generator().manual_seed(1)
    x, target = torch.randn(2, 12, 6, 18, generator=generator).double()
    t = torch.randint(200, (12,), generator=generator)
    condition = torch.rand(12, 5, generator=generator).double()
    return network, lambda i: (network(x[i], t[i], condition[i]) - target[i]).square().mean((1, 2))


def denoiser():
    network = with_random_weights(DenoisingModel(6, 8))
    x, target = torch.randn(2, 12, 6, 18, generator=torch.Generator().manual_seed(1)).double()
    return network, lambda i: (network(x[i]) - target[i]).square().mean((1, 2))


def classifier():
    network = with_random_weights(KeptClassifier((6, 18), (2, 3)))
    x = torch.randn(12, 6, 18, generator=torch.Generator().manual_seed(1)).double()
    return network, lambda i: torch.stack([one.square().sum(1) for one in network(x[i])]).sum(0)


class Recorder:
    """Keeps each unit's gradient, unclipped, and the noisy gradients of each step."""

    def __init__(self):
        self.rows, self.noisy = [], []

    def insert(self, parameters, sampling_probability):
        self.probability = sampling_probability
        self.rows = [one.grad_sample.clone() for one in parameters]

    def observe(self, parameters):
        self.noisy.append([one.grad.clone() for one in parameters])


@pytest.mark.parametrize("make", [transformer, denoiser, classifier])
@pytest.mark.parametrize("samples", [1, 3])
def test_gradients_of_units_are_those_of_autograd(make, samples):
    network, losses = make()
    names = [name for name, _ in network.named_parameters()]
    recorder, units = Recorder(), [window // samples for window in range(12)]
    size = {"steps": 1, "expected_batch_size": 99, "samples_per_unit": samples}
    run = DpSgd(network, losses, training(units, 0, recorder, 0.0, **size))
    windows = run.sample()
    assert windows.shape == (12 // samples, samples)  # every unit, with so large a batch
    run.step(windows)
    run.close()
    for unit, own in enumerate(windows):
        wanted = torch.autograd.grad(losses(own).mean(), list(network.parameters()))
        for name, row, gradient in zip(names, recorder.rows, wanted, strict=True):
            # A bias that all keys share changes no softmax, unless positions rotate it.
            silent = "cross_attention.key" in name and name.endswith("bias")
            assert silent or float(gradient.abs().max()) > 1e-4, f"{name}: nothing to compare"
            torch.testing.assert_close(row[unit], gradient, atol=1e-9, rtol=1e-6)


def test_noise_is_what_the_accountant_assumes():
    """C sigma / B for every number (equation 5), independent of others and of other steps."""
    clip, multiplier, expected = 0.5, 3.0, 6
    network, losses = transformer()
    recorder = Recorder()
    size = {"steps": 40, "expected_batch_size": expected}
    noise = {"noise_multiplier": multiplier, "max_grad_norm": clip}
    own = training(seed=3, canaries=recorder, **size, **noise)
    train_privately("", network, lambda index: 0 * losses(index), own)
    assert recorder.probability == 6 / 12  # canaries learn how likely a unit is sampled
    unit = clip * multiplier / expected
    for number in range(len(recorder.noisy[0])):
        drawn = torch.stack([step[number].flatten() for step in recorder.noisy]) / unit
        limit = 5 / math.sqrt(drawn.numel())  # five standard errors of the mean
        assert abs(float(drawn.mean())) < limit
        assert abs(float(drawn.std()) - 1) < limit
        assert abs(float((drawn[1:] * drawn[:-1]).mean())) < limit * 1.1
    flat = torch.stack([torch.cat([one.flatten() for one in s]) for s in recorder.noisy]) / unit
    assert abs(float((flat[:, 1:] * flat[:, :-1]).mean())) < 5 / math.sqrt(flat.numel())
    share = float((flat.abs() < 1).double().mean())  # and it is normal
    assert share == pytest.approx(0.6827, abs=5 * math.sqrt(0.25 / flat.numel()))


def test_each_unit_is_clipped():
    network = nn.Linear(3, 1, bias=False)
    far = torch.tensor([[1e6, 0.0, 0.0], [0.0, 1e-2, 0.0]])
    recorder = Recorder()
    size = {"steps": 1, "expected_batch_size": 2}
    own = training(2, 0, recorder, 0.0, **size, noise_multiplier=1e-9, max_grad_norm=0.25)
    train_privately("", network, lambda index: network(far[index])[:, 0], own)
    ((found,),) = recorder.noisy
    wanted = torch.tensor([[0.25, 1e-2, 0.0]]) / 2
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-4)


def sampler(units, **settings):
    network = nn.Linear(1, 1)
    losses = lambda index: network(index[:, None].float())[:, 0]  # noqa: E731
    return DpSgd(network, losses, training(units, seed=5, **settings))


def test_units_are_sampled_independently_with_one_probability():
    run = sampler(20)
    assert run.probability == 0.2
    drawn = torch.zeros(800, 20)
    for row in drawn:
        row[run.sample().flatten()] = 1
    assert float(drawn.mean()) == pytest.approx(0.2, abs=5 * math.sqrt(0.16 / drawn.numel()))
    assert (drawn.mean(0) - 0.2).abs().max() < 5 * math.sqrt(0.16 / 800)
    # The number sampled varies as that of independent draws does, unlike a shuffled batch's.
    assert float(drawn.sum(1).var()) == pytest.approx(20 * 0.16, rel=0.25)


def test_a_unit_is_sampled_with_its_own_windows_only():
    people = [7, 3, 7, 7, 3, 9]
    run = sampler(people, expected_batch_size=2, samples_per_unit=4)
    assert run.probability == pytest.approx(2 / 3)
    seen = {3: set(), 7: set(), 9: set()}
    for _ in range(100):
        for unit in run.sample():
            (person,) = {people[window] for window in unit.tolist()}
            seen[person] |= set(unit.tolist())
    assert seen == {3: {1, 4}, 7: {0, 2, 3}, 9: {5}}


def test_an_empty_sample_is_a_step_of_noise():
    network, losses = denoiser()
    recorder = Recorder()
    run = DpSgd(network, losses, training(canaries=recorder))
    run.step(torch.zeros(0, 1, dtype=torch.long))
    assert all(len(rows) == 0 for rows in recorder.rows)
    assert run.spent == PrivacySpent(1.0, 4 / 12, 1)
    assert min(float(weight.grad.abs().max()) for weight in network.parameters()) > 0


def test_afterwards_the_network_is_an_ordinary_one():
    network, losses = denoiser()
    train_privately("", network, losses, training())
    losses(torch.arange(3)).sum().backward()
    for weight in network.parameters():
        assert weight.grad is not None
        assert not hasattr(weight, "grad_sample")


def gaussian_delta(epsilon, mu):
    """The exact delta of a Gaussian mechanism of sensitivity mu (Balle and Wang 2018)."""

    def cdf(x):
        return math.erfc(-x / math.sqrt(2)) / 2

    return cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("noise", "steps"), [(10.0, 16), (4.0, 16), (2.0, 1)])
def test_epsilon_without_subsampling_is_that_of_one_gaussian(noise, steps):
    found = compute_epsilon([PrivacySpent(noise, 1.0, steps)], delta=1e-5)
    mu = math.sqrt(steps) / noise
    assert gaussian_delta(found, mu) <= 1e-5  # never too small
    assert gaussian_delta(found - 0.03, mu) > 1e-5  # and hardly too large


def test_epsilon_of_several_trainings_adds_up():
    one, two = PrivacySpent(2.0, 0.05, 10), PrivacySpent(2.0, 0.05, 30)
    together = compute_epsilon([one, two], 1e-5)
    assert together == pytest.approx(compute_epsilon([replace(one, steps=40)], 1e-5), abs=0.03)
    without_sampling = replace(one, sampling_probability=1.0, steps=40)
    assert compute_epsilon([one], 1e-5) < together < compute_epsilon([without_sampling], 1e-5)
    assert compute_epsilon([replace(one, steps=0)], 1e-5) == 0
