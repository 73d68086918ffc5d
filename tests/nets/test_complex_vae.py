"""The complex VAE: its loss in closed form, what is told matters, and pairs stay pairs."""

from __future__ import annotations

import torch

from sensorveil.nets.complex_vae import ComplexVae


def net() -> ComplexVae:
    torch.manual_seed(0)
    return ComplexVae(channels=3, length=16, told=2, width=8, latent=5)


def test_losses_in_closed_form() -> None:
    made, x, told = net(), torch.randn(4, 6, 16), torch.eye(2)[[0, 1, 0, 1]]
    torch.manual_seed(1)
    rebuilt, mean, log_variance = made(x, told)
    torch.manual_seed(1)
    found = made.losses(x, told)
    normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
    standard = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    excess = torch.distributions.kl_divergence(normal, standard).sum((1, 2))
    # Of a unit normal around what was rebuilt, the log-likelihood is half of the squared error.
    lost = (x - rebuilt).square().sum((1, 2)) / 2
    torch.testing.assert_close(found, (lost + excess) / 96)


def test_what_is_told_matters_to_both_halves() -> None:
    made, x = net(), torch.randn(1, 6, 16)
    latent = torch.randn(1, 2, 5)
    first, second = torch.eye(2).split(1)
    assert not torch.allclose(made.decoded(latent, first), made.decoded(latent, second))
    assert not torch.allclose(made(x, first)[1], made(x, second)[1])
