"""The complex VAE: its loss in closed form, and windows of the class."""

import numpy as np
import pytest
import torch

from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.csi import CsiVae
from sensorveil.methods.csi.vae import ComplexVae


def test_losses_in_closed_form():
    torch.manual_seed(0)
    network = ComplexVae(channels=3, length=16, classes=2, width=8, latent=5)
    x, condition = torch.randn(4, 6, 16), torch.eye(2)[[0, 1, 0, 1]]
    torch.manual_seed(1)
    rebuilt, mean, log_variance = network(x, condition)
    torch.manual_seed(1)
    found = network.losses(x, condition)
    normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
    standard = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    divergence = torch.distributions.kl_divergence(normal, standard).sum((1, 2))
    # For a unit normal around the reconstruction, minus log-likelihood is half the squared error.
    error = (x - rebuilt).square().sum((1, 2)) / 2
    torch.testing.assert_close(found, (error + divergence) / 96)
    latent, (first, second) = torch.randn(1, 2, 5), torch.eye(2).split(1)
    assert not torch.allclose(network.decode(latent, first), network.decode(latent, second))
    assert not torch.allclose(network(x[:1], first)[1], network(x[:1], second)[1])


def test_windows_have_the_frequency_of_their_class():
    """The two activities differ in frequency: 0.4 and 1.0 radians a sample."""
    method = CsiVae(seed=1, epochs=80).fit(example_windows("complex"), "activity", "gender")
    losses = method.metrics_["generator_loss"]
    assert losses[-1] < 0.8 * losses[0]
    found = []
    for name in ("0", "1"):
        made = method.generate({"activity": name}, 60, seed=0).signal.real
        spectrum = np.abs(np.fft.rfft(made - made.mean(-1, keepdims=True)))[:, 0].mean(0)
        found.append(spectrum[5] / spectrum[2])  # 5 and 2 of 32 turns are nearest
    assert found[1] > 2 * found[0]


def test_it_promises_nothing_and_makes_no_other_length():
    method = CsiVae(epochs=1, classifier_epochs=1).fit(example_windows(), "activity", "gender")
    assert method.guarantee().epsilon is None
    with pytest.raises(Refusal, match="32 samples"):
        method.generate({"activity": "0"}, 2, length=50)


def test_reconstruction_errors_are_low_for_training_windows():
    windows = example_windows("complex")
    known, others = windows.select(slice(0, 16)), windows.select(slice(16, 32))
    method = CsiVae(seed=1, epochs=150).fit(known, "activity", "gender")
    own, other = method.reconstruction_errors(known), method.reconstruction_errors(others)
    assert np.median(own) < 0.9 * np.median(other)
    np.testing.assert_array_equal(own, method.reconstruction_errors(known))
