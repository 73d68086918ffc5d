"""The client's part of algorithm 1: gradients through steps of adaptation (MAML).

All functions are pure: weights go in and come out by name, so that they can be differentiated and
vectorised over clients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.func import grad

from sensorveil.methods.blinder import Batch, BlinderLoss, BlinderNetwork, Weights
from sensorveil.vae import reparameterise


class MetaBatch(NamedTuple):
    """What one meta-gradient is taken from.

    `shadow_hidden` (n, classes) are the hidden classes of the support's shadow samples.
    `shadow_noise` (3, n, latent_size) is for the codes that shadow samples are made from, and for
    the codes of the support and of the shadow samples that discriminators are trained on.
    """

    support: Batch
    shadow_hidden: torch.Tensor
    shadow_noise: torch.Tensor
    query: Batch


def with_shadow_samples(
    network: BlinderNetwork, weights: Weights, batch: MetaBatch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and hidden classes of the support set and of its shadow samples (section 6.2).

    A shadow sample is decoded from a support window's code with another hidden class and encoded
    again: the discriminators see a class that this person's data does not have.
    """
    support = batch.support
    first, own, shadow = batch.shadow_noise
    z = reparameterise(*network.encode(support.windows, weights), first)
    made = network.decode(z, batch.shadow_hidden, support.kept, weights)
    both = network.encode(torch.cat([support.windows, made]), weights)
    codes = reparameterise(*both, torch.cat([own, shadow]))
    return codes, torch.cat([support.hidden, batch.shadow_hidden])


def adapt(
    loss: BlinderLoss,
    weights: Weights,
    discriminators: Weights,
    batch: MetaBatch,
    steps: int = 1,
    learning_rate: float = 1e-4,
    discriminator_steps: int = 5,
    shadow_samples: bool = True,
) -> tuple[Weights, Weights]:
    """Local steps of gradient descent on the support set: algorithm 1, lines 14 to 20.

    In each step the discriminators go first, then the autoencoder against them (section 5.1). Each
    takes the other as fixed, also when the result is differentiated.

    Parameters
    ----------
    loss
        Losses (3) and (4).
    weights, discriminators
        Where the steps start: the autoencoder's weights and the discriminators'.
    batch
        The support set and its shadow samples.
    steps, learning_rate, discriminator_steps, shadow_samples
        As in `AdaptationConfig`.

    Returns
    -------
    tuple
        The adapted weights of the autoencoder and of the discriminators.
    """
    for _ in range(steps):
        fixed = {name: weight.detach() for name, weight in weights.items()}
        if shadow_samples:
            z, hidden = with_shadow_samples(loss.network, fixed, batch)
        else:
            codes = loss.network.encode(batch.support.windows, fixed)
            z, hidden = reparameterise(*codes, batch.shadow_noise[1]), batch.support.hidden
        for _ in range(discriminator_steps):  # line 19
            slopes = grad(loss.discriminator)(discriminators, z, hidden)
            discriminators = _descend(discriminators, slopes, learning_rate)
        fixed = {name: weight.detach() for name, weight in discriminators.items()}
        slopes = grad(loss.autoencoder)(weights, fixed, batch.support)  # line 20
        weights = _descend(weights, slopes, learning_rate)
    return weights, discriminators


def _descend(weights: Weights, slopes: Weights, learning_rate: float) -> Weights:
    return {name: torch.add(w, slopes[name], alpha=-learning_rate) for name, w in weights.items()}


def meta_loss(
    weights: Weights,
    discriminators: Weights,
    loss: BlinderLoss,
    batch: MetaBatch,
    **adaptation: Any,
) -> torch.Tensor:
    """Losses (4) and (3) on the query set after `adapt`: algorithm 1, line 21."""
    return loss.joint(*adapt(loss, weights, discriminators, batch, **adaptation), batch.query)


def meta_gradient(
    loss: BlinderLoss, vector: torch.Tensor, batch: MetaBatch, **adaptation: Any
) -> torch.Tensor:
    """Gradient of `meta_loss` at the weights before adapting: algorithm 1, lines 22 and 23.

    It is of second order. Without a local step it is the gradient of central training.
    """
    weights, discriminators = loss.network.unflatten(vector)
    slopes = grad(meta_loss, argnums=(0, 1))(weights, discriminators, loss, batch, **adaptation)
    return loss.network.flatten({**slopes[0], **slopes[1]})


class AdamState(NamedTuple):
    """Running means of gradients and of their squares."""

    mean: torch.Tensor
    square: torch.Tensor

    @classmethod
    def zeros(cls, vector: torch.Tensor) -> AdamState:
        """Before the first step."""
        return cls(torch.zeros_like(vector), torch.zeros_like(vector))


def adam_step(
    vector: torch.Tensor,
    gradient: torch.Tensor,
    state: AdamState,
    step: int,
    learning_rate: float | torch.Tensor,
) -> tuple[torch.Tensor, AdamState]:
    """Adam (Kingma and Ba 2015) as a function, with its usual constants; `step` counts from 1.

    >>> vector, gradient = torch.tensor([1.0]), torch.tensor([0.5])
    >>> adam_step(vector, gradient, AdamState.zeros(vector), 1, learning_rate=0.1)[0]
    tensor([0.9000])
    """
    beta1, beta2 = 0.9, 0.999
    mean = beta1 * state.mean + (1 - beta1) * gradient
    square = beta2 * state.square + (1 - beta2) * gradient.square()
    deviation = (square / (1 - beta2**step)).sqrt() + 1e-8
    return vector - learning_rate / (1 - beta1**step) * mean / deviation, AdamState(mean, square)
