"""Autoencoders: their sizes, latents in standard units, and a linear start."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sensorveil.diffusion.autoencoder import (
    Autoencoder,
    convolutional_autoencoder,
    dense_autoencoder,
    grid_autoencoder,
    start_from_principal_components,
    train_autoencoder,
)
from sensorveil.errors import Refusal
from sensorveil.train import TrainConfig, seeded


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def waves(count: int, length: int = 24) -> torch.Tensor:
    """Windows of two channels that three numbers make up, and a little noise."""
    time = torch.arange(length) / length * 6.283
    shapes = torch.stack([3 * time.sin(), 2 * time.cos(), (2 * time).sin()])
    first, second = numbers(count, 3) @ shapes, numbers(count, 3, seed=1)[:, :1] * shapes[2]
    return torch.stack([first, second], dim=1) + 0.05 * numbers(count, 2, length, seed=2)


def small(shape: tuple[int, ...], latent: int = 4) -> Autoencoder:
    with seeded(0):
        return convolutional_autoencoder(shape, latent, (4, 6))


def test_the_published_layers_for_images() -> None:
    """Section V-A5: kernels, steps and padding of the encoder; 80 x 80 becomes 8 x 16 x 16."""
    with torch.device("meta"):
        net = grid_autoencoder((1, 80, 80))
    layers = [one for one in net.body.modules() if isinstance(one, nn.Conv2d)]
    found = [(c.out_channels, c.kernel_size[0], c.stride[0], c.padding[0]) for c in layers]
    assert found == [(128, 5, 5, 0), (256, 3, 1, 1), (512, 3, 1, 1)]
    assert net.latent_shape == (8, 16, 16)
    for head in (net.mean, net.log_variance):
        assert (head.out_channels, head.kernel_size, head.padding) == (8, (3, 3), (1, 1))


def test_the_grid_needs_images_and_takes_smaller_patches() -> None:
    with pytest.raises(Refusal, match="needs images and three widths"):
        grid_autoencoder((2, 16))
    with pytest.raises(Refusal, match="needs images and three widths"):
        grid_autoencoder((1, 80, 80), widths=(4, 6))
    assert grid_autoencoder((1, 16, 16), 2, (3, 4, 5)).latent_shape == (2, 4, 4)


def test_latents_are_drawn_with_their_variance() -> None:
    """Equation (4): what the decoder is given has the mean and variance that the encoder says."""
    net = small((1, 8), latent=2)
    given: list[torch.Tensor] = []
    net.decoder.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    signal = numbers(1, 1, 8).expand(4000, 1, 8)
    net.eval()
    with seeded(1):
        _, mean, log_variance = net(signal)
    torch.testing.assert_close(given[0].mean(0), mean[0], atol=0.01, rtol=0)
    torch.testing.assert_close(given[0].var(0), log_variance[0].exp(), atol=0, rtol=0.1)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda shape: dense_autoencoder(shape, 4, (16, 8)), (2, 24)),
        (lambda shape: convolutional_autoencoder(shape, 4, (4, 6)), (3, 9)),
        (lambda shape: convolutional_autoencoder(shape, 4, (4, 6)), (1, 7, 10)),
        (lambda shape: grid_autoencoder(shape, 2, (3, 4, 5)), (1, 10, 15)),
    ],
    ids=["dense", "signal", "image", "grid"],
)
def test_latents_are_in_standard_units(make, shape: tuple[int, ...]) -> None:
    with seeded(0):
        net = make(shape).eval()
    signal = 5 + 3 * numbers(100, *shape)
    net.set_units(lambda index: signal[index], len(signal))
    latents = net.latents(signal).detach()
    assert latents.shape[1:] == net.latent_shape
    axes = [0, *range(2, latents.ndim)]
    torch.testing.assert_close(
        latents.mean(axes), torch.zeros(net.latent_shape[0]), atol=1e-3, rtol=0
    )
    assert latents.square().mean().item() == pytest.approx(1.0, abs=1e-3)
    # The units are undone on the way back.
    raw = net.decoder(net.encode(signal)[0])
    torch.testing.assert_close(net.windows(net.latents(signal)), raw, atol=1e-3, rtol=1e-3)


def test_it_starts_as_principal_components() -> None:
    """What is left of windows is what numpy's singular value decomposition leaves of them."""
    signal = waves(200)
    net = small((2, 24), latent=3).eval()
    start_from_principal_components(net, lambda index: signal[index], len(signal), seed=0)
    rows = signal.flatten(1).numpy()
    middle = rows.mean(0)
    _, _, directions = np.linalg.svd(rows - middle, full_matrices=False)
    wanted = (rows - middle) @ directions[:3].T @ directions[:3] + middle
    mean, _ = net.encode(signal)
    rebuilt = net.decoder(mean).flatten(1).detach().numpy()
    np.testing.assert_allclose(rebuilt, wanted, atol=2e-3)
    assert mean.detach().square().mean().item() == pytest.approx(1.0, rel=1e-2)


def test_a_start_with_fewer_windows_than_latents() -> None:
    signal = waves(5)
    net = small((2, 24), latent=8).eval()
    start_from_principal_components(net, lambda index: signal[index], len(signal), seed=0)
    rebuilt = net.decoder(net.encode(signal)[0])
    torch.testing.assert_close(rebuilt, signal, atol=2e-3, rtol=0)


def test_training_leaves_less_error_than_it_starts_with() -> None:
    """Windows on a curve: a linear code of one number cannot follow it, a trained one can."""
    angle = torch.linspace(-2, 2, 256)
    time = torch.arange(16) / 16
    signal = torch.sin(4 * (time + angle[:, None])).unsqueeze(1)
    net = small((1, 16), latent=1)
    start_from_principal_components(net, lambda index: signal[index], len(signal), seed=0)
    before = (net.eval().decoder(net.encode(signal)[0]) - signal).square().mean().item()
    losses = train_autoencoder(
        net, lambda index: signal[index], len(signal), 1e-6, TrainConfig(40, 32, 5e-3), seed=0
    )
    after = (net.windows(net.latents(signal)) - signal).square().mean().item()
    assert after < 0.8 * before
    assert losses[-1] < losses[0]
    assert not net.training
