"""Gradients through adaptation: finite differences, first-order limits, shadow samples, Adam."""

from __future__ import annotations

import pytest
import torch

from sensorveil.federated.meta_learning import (
    MetaBatch,
    adapt,
    meta_gradient,
    with_shadow_samples,
)
from sensorveil.methods.blinder import (
    Batch,
    BlinderLoss,
    BlinderNetwork,
    LossSettings,
    NetworkSettings,
)
from sensorveil.train import seeded

HIDDEN = (2, 3)
STRONG = {"steps": 2, "learning_rate": 0.3, "discriminator_steps": 3}  # the second order is felt


def loss_of(convolutional: bool = False, **weights) -> BlinderLoss:
    sizes = NetworkSettings(
        hidden_sizes=(6, 6, 5, 5), convolutional=convolutional, filters=3, latent_size=3
    )
    with seeded(3):
        network = BlinderNetwork(2, 8, 2, HIDDEN, sizes, discriminator_sizes=(8, 8))
    return BlinderLoss(network.double(), LossSettings(**weights))


def batch_of(count: int, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def classes(size: int) -> torch.Tensor:
        return torch.eye(size)[torch.randint(size, (count,), generator=generator)].double()

    return Batch(
        torch.randn(count, 2, 8, generator=generator).double(),
        classes(2),
        torch.cat([classes(size) for size in HIDDEN], dim=1),
        torch.randn(count, 3, generator=generator).double(),
        torch.ones(()).double(),
    )


def meta_batch(seed: int) -> MetaBatch:
    noise = torch.randn(3, 2, 3, generator=torch.Generator().manual_seed(seed + 200)).double()
    other = batch_of(2, seed + 300).hidden
    return MetaBatch(batch_of(2, seed), other, noise, batch_of(5, seed + 100))


def vector_of(loss: BlinderLoss) -> torch.Tensor:
    return loss.network.flatten(loss.network.state_dict())


@pytest.mark.parametrize("convolutional", [False, True])
def test_second_order_gradients_agree_with_finite_differences(convolutional):
    """Of the autoencoder's loss through its steps, and of the discriminators' through theirs.

    A player's gradient takes the other as fixed, so the differences replay its trajectory by hand
    while the other's is recorded and does not move.
    """
    loss, batch = loss_of(convolutional), meta_batch(1)
    vector = vector_of(loss)
    got = meta_gradient(loss, vector, batch, **STRONG)
    players = loss.network.unflatten(vector)
    coders, opponents = recorded(loss, *players, batch)
    generator = torch.Generator().manual_seed(0)
    for player, replay in (
        (players[0], lambda weights: replayed_autoencoder(loss, weights, opponents, batch)),
        (players[1], lambda weights: replayed_discriminators(loss, weights, coders, batch)),
    ):
        own = loss.network.unflatten(got)[0 if player is players[0] else 1]
        for _ in range(4):
            way = {n: torch.randn(w.shape, generator=generator).double() for n, w in player.items()}
            ahead, behind = (
                replay({n: w + side * 1e-5 * way[n] for n, w in player.items()}) for side in (1, -1)
            )
            along = sum((own[n] * way[n]).sum() for n in player)
            torch.testing.assert_close(along, (ahead - behind) / 2e-5, rtol=2e-6, atol=1e-7)
    there = adapt(loss, *players, batch, **STRONG)
    at = {n: w.detach().requires_grad_() for part in there for n, w in part.items()}
    first_order = torch.autograd.grad(loss.joint(at, at, batch.query), list(at.values()))
    first_order = loss.network.flatten(dict(zip(at, first_order, strict=True)))
    assert (got - first_order).norm() > 1e-2 * got.norm()  # the second order was really tested


def step(weights, value):
    """One plain step along `value(weights)`."""
    moving = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    slopes = torch.autograd.grad(value(moving), list(moving.values()))
    rate = STRONG["learning_rate"]
    return {n: w - rate * s for (n, w), s in zip(weights.items(), slopes, strict=True)}


def discriminator_steps(loss, weights, discriminators, batch):
    z, hidden = (part.detach() for part in with_shadow_samples(loss.network, weights, batch))
    for _ in range(STRONG["discriminator_steps"]):
        discriminators = step(discriminators, lambda d: loss.discriminator(d, z, hidden))
    return discriminators


def recorded(loss, weights, discriminators, batch):
    """Both trajectories: the autoencoder before, the discriminators after each step."""
    coders, opponents = [weights], []
    for _ in range(STRONG["steps"]):
        discriminators = discriminator_steps(loss, weights, discriminators, batch)
        fixed = discriminators
        weights = step(weights, lambda w, d=fixed: loss.autoencoder(w, d, batch.support))
        opponents.append(discriminators)
        coders.append(weights)
    return coders, opponents


def replayed_autoencoder(loss, weights, opponents, batch):
    for fixed in opponents:
        weights = step(weights, lambda w, d=fixed: loss.autoencoder(w, d, batch.support))
    return loss.autoencoder(weights, opponents[-1], batch.query).detach()


def replayed_discriminators(loss, discriminators, coders, batch):
    for weights in coders[:-1]:
        discriminators = discriminator_steps(loss, weights, discriminators, batch)
    mean, log_variance = loss.network.encode(batch.query.windows, coders[-1])
    z = mean + torch.exp(log_variance / 2) * batch.query.noise
    return loss.discriminator(discriminators, z, batch.query.hidden).detach()


def test_shadow_samples_bring_the_other_class_and_change_the_discriminators():
    loss, batch = loss_of(), meta_batch(7)
    players = loss.network.unflatten(vector_of(loss))
    z, hidden = with_shadow_samples(loss.network, players[0], batch)
    assert z.shape == (4, 3)
    assert torch.equal(hidden, torch.cat([batch.support.hidden, batch.shadow_hidden]))
    mean, log_variance = loss.network.encode(batch.support.windows)
    own = mean + torch.exp(log_variance / 2) * batch.shadow_noise[1]
    torch.testing.assert_close(z[:2], own.detach())
    with_them, without = (
        adapt(loss, *players, batch, 1, 0.1, 1, shadow_samples=on)[1] for on in (True, False)
    )
    assert all((with_them[name] != weight).any() for name, weight in without.items())
