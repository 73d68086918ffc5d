"""Algorithm 1: which weights each phase moves, its losses, and what noise cannot hide."""

import pytest
import torch
from torch import nn

from sensorveil.methods.csi.dp_sgd import (
    DpSgdSettings,
    PrivacySpent,
    PrivateTraining,
    secret_generator,
)
from sensorveil.methods.csi.model import CsiTransformer, Degradation, DenoisingModel
from sensorveil.methods.csi.training import (
    TrainingData,
    finetune_dp,
    finetune_hybrid,
    pretrain,
    train_dp,
)
from sensorveil.train import AveragedWeights, TrainConfig, seeded

ALL = torch.arange(32)


def waves(count=32):
    """Two classes of rotating complex numbers: slow and fast."""
    frequency = 0.3 + 0.5 * (torch.arange(count) % 2)[:, None]
    angle = frequency * torch.arange(16.0) + torch.arange(count)[:, None]
    return torch.stack([angle.cos(), angle.sin()], dim=1) * 2**0.5


def data_of(x):
    conditions = torch.eye(2)[torch.arange(len(x)) % 2]
    degradation = Degradation.linear(16, 50, 1e-3, 0.2)
    return TrainingData(lambda index: x[index], conditions, degradation)


def private(seed=0, canaries=None, learning_rate=5e-3, **changed):
    settings = {"steps": 8, "expected_batch_size": 8, "samples_per_unit": 1, **changed}
    settings = DpSgdSettings(**{"noise_multiplier": 0.5, **settings})
    return PrivateTraining(settings, learning_rate, ALL, secret_generator("cpu", seed), canaries)


def networks():
    """Small networks whose gates are open already, so that every weight has a gradient."""
    with seeded(0):
        network = CsiTransformer(1, (2,), width=8, blocks=1, heads=2, patch=4)
        for weight in network.parameters():
            if not weight.any():
                nn.init.normal_(weight, std=0.1)
        return network, DenoisingModel(2, 4)


def copied(network):
    return {name: weight.detach().clone() for name, weight in network.named_parameters()}


def moved(network, before):
    return {name for name, w in network.named_parameters() if not torch.equal(w, before[name])}


def private_names(network):
    own = {id(weight) for part in network.private_modules() for weight in part.parameters()}
    return {name for name, weight in network.named_parameters() if id(weight) in own}


def test_losses_are_squared_errors_of_the_clean_window():
    x, given = waves(320), []

    def network(noisy, t, condition):
        given.append((noisy, t, condition))
        return torch.ones_like(noisy)

    data = data_of(x)
    with seeded(1):
        found = data.losses(network, torch.arange(200))
    torch.testing.assert_close(found, (x[:200] - 1).square().mean((1, 2)))
    ((noisy, t, condition),) = given
    noise = data.degradation.noise[t].float().unsqueeze(1)
    drawn = (noisy - data.degradation.signal[t].float().unsqueeze(1) * x[:200]) / noise
    assert abs(float(drawn.std()) - 1) < 0.1
    assert 5 < int((condition.sum(1) == 0).sum()) < 40  # a tenth has the null condition
    assert len(t.unique()) > 10


def test_pretraining_learns_and_leaves_averaged_weights():
    network, _ = networks()
    averaged, data = AveragedWeights(network, 0.9), data_of(waves())
    losses = pretrain(network, data, TrainConfig(30, 16, 1e-2), 0, averaged)
    assert losses[-1] < 0.7 * losses[0]
    assert not moved(network, copied(averaged.network))
    with seeded(3), torch.no_grad():
        assert float(data.losses(network, ALL).mean()) < 0.7 * losses[0]


def test_private_training_moves_everything_and_reports_what_it_spent():
    network, _ = networks()
    before, averaged = copied(network), AveragedWeights(network, 0.5)
    spent = train_dp(network, data_of(waves()), private(), averaged)
    assert spent == PrivacySpent(0.5, 0.25, 8)
    assert moved(network, before) == set(before)


def test_private_fine_tuning_moves_attention_embedding_and_denoiser():
    network, denoiser = networks()
    before, blank = copied(network), copied(denoiser)
    spent = finetune_dp(network, denoiser, data_of(waves()), private(), 1.0)
    assert spent == PrivacySpent(0.5, 0.25, 8)
    assert moved(network, before) == private_names(network)
    assert moved(denoiser, blank) == set(blank)
    assert all(weight.requires_grad for weight in network.parameters())


def test_hybrid_fine_tuning_moves_everything_and_denoises():
    network, denoiser = networks()
    before, blank = copied(network), copied(denoiser)
    data = data_of(waves())
    with seeded(4):
        longer = private(steps=40, expected_batch_size=16)
        finetune_hybrid(network, denoiser, data, longer, 2.0)
    assert moved(network, before) == set(before)
    assert moved(denoiser, blank) == set(blank)
    with seeded(5), torch.no_grad():
        plain, denoised = data.joint_losses(network, denoiser, ALL)
    assert float(denoised.mean()) < float(plain.mean())


@pytest.mark.parametrize("weight", [0.0, 5.0])
@pytest.mark.parametrize("train", [finetune_hybrid, finetune_dp])
def test_lambda_weighs_the_denoising_loss(train, weight):
    """With lambda 0, theta follows the diffusion loss alone, whatever phi is."""

    def trained(bias):
        network, denoiser = networks()
        with torch.no_grad():
            denoiser.second.bias.fill_(bias)
        with seeded(6):
            train(network, denoiser, data_of(waves()), private(seed=1), weight)
        return torch.cat([one.detach().flatten() for one in network.parameters()])

    assert torch.equal(trained(0.0), trained(1.0)) == (weight == 0)


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_a_private_step_has_the_gradient_of_equation_18(weight):
    """One step of everybody with hardly any noise and no clipping."""
    network, denoiser = networks()
    data, seen = data_of(waves()), []

    class Recorder:
        def insert(self, parameters, sampling_probability):
            assert sampling_probability == 1

        def observe(self, parameters):
            seen.append(torch.cat([one.grad.flatten() for one in parameters]))

    size = {"steps": 1, "expected_batch_size": 32}
    own = private(1, Recorder(), 0.0, **size, noise_multiplier=1e-9, max_grad_norm=1e6)
    with seeded(8):
        finetune_dp(network, denoiser, data, own, weight)
    names = private_names(network)
    trained = [one for name, one in network.named_parameters() if name in names]
    with seeded(8):
        diffusion, denoising = data.joint_losses(network, denoiser, ALL)
    wanted = torch.autograd.grad(
        (diffusion + weight * denoising).mean(), [*trained, *denoiser.parameters()]
    )
    wanted = torch.cat([one.flatten() for one in wanted])
    torch.testing.assert_close(seen[0], wanted, atol=3e-4, rtol=1e-3)
