"""The CSI networks and diffusion against equations, loops and torch's complex numbers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sensorveil.diffusion.schedule import NoiseSchedule
from sensorveil.errors import Refusal
from sensorveil.methods.csi.model import (
    ComplexAttention,
    ComplexLinear,
    CsiTransformer,
    Degradation,
    DenoisingModel,
    KeptClassifier,
    RFDiffusionSampler,
    conjugate,
    normalized,
    phasor,
    product,
)

WIFI = {"levels": 100, "first_beta": 1e-4, "last_beta": 0.003}
SMALL = {"width": 8, "blocks": 2, "heads": 2, "patch": 4}


def complex_of(pairs):
    return torch.complex(*pairs.unbind(-2))


def randn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def with_random_weights(network):
    """Gates that begin at zero would hide everything behind them."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    return network


def example_inputs(length=18, channels=6):
    x = torch.randn(5, channels, length, generator=torch.Generator().manual_seed(1))
    return x, torch.tensor([0, 3, 9, 50, 199]), torch.eye(3)[[0, 1, 2, 0, 1]]


# The forward process and its sampler.


def test_published_schedule():
    """RF-Diffusion's code comes to 0.925 of the signal and a noise of 3.59."""
    amplitudes = Degradation.linear(512, **WIFI, blur=1e-5, noise_sum="amplitudes")
    variances = Degradation.linear(512, **WIFI, blur=1e-5)
    assert float(amplitudes.signal[-1].mean()) == pytest.approx(0.925, abs=5e-4)
    assert float(amplitudes.noise[-1].mean()) == pytest.approx(3.59, abs=5e-3)
    assert float(variances.noise[-1].mean()) == pytest.approx(0.379, abs=5e-4)


def test_variances_without_blur_are_the_ddpm_schedule():
    ddpm = NoiseSchedule.of_betas(torch.linspace(5e-4, 0.1, 200, dtype=torch.float64))
    found = Degradation.linear(8, 200, 5e-4, 0.1)
    torch.testing.assert_close(found.schedule.signal, ddpm.signal)
    torch.testing.assert_close(found.schedule.noise, ddpm.noise)
    assert float(found.signal[-1].max()) < 0.01  # equation (13): only noise is left
    start = found.start(torch.randn(500, 2, 8, generator=torch.Generator().manual_seed(0)))
    assert float(start.std()) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("noise_sum", ["variances", "amplitudes"])
def test_equation_12_by_loops(noise_sum):
    length, count, blur = 12, 9, 0.3
    made = Degradation.linear(length, count, 0.01, 0.2, blur, noise_sum)
    betas = np.linspace(0.01, 0.2, count)
    gamma = np.empty((count, length))
    for t in range(count):
        gauss = [
            math.exp(-((n - length / 2) ** 2) / (2 * length / ((t + 1) * blur**2)))
            for n in range(length)
        ]
        gamma[t] = math.sqrt(np.prod(1 - betas[: t + 1])) * np.array(gauss) / np.mean(gauss)
    for t in range(count):
        terms = [np.sqrt(betas[s]) * gamma[t] / gamma[s] for s in range(t + 1)]
        by_amplitude = noise_sum == "amplitudes"
        noise = sum(terms) if by_amplitude else np.sqrt(sum(term**2 for term in terms))
        np.testing.assert_allclose(made.signal[t], gamma[t], rtol=1e-12)
        np.testing.assert_allclose(made.noise[t], noise, rtol=1e-12)


def test_step_by_step_noise_has_the_variance_of_the_schedule():
    generator = torch.Generator().manual_seed(0)
    length, count = 6, 10
    made = Degradation.linear(length, count, 0.02, 0.2, blur=0.4)
    betas = torch.linspace(0.02, 0.2, count, dtype=torch.float64)
    x = torch.full((20_000, length), 2.0, dtype=torch.float64)
    before = torch.ones(length, dtype=torch.float64)
    for t in range(count):
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        x = x * made.signal[t] / before + betas[t].sqrt() * noise
        before = made.signal[t]
    torch.testing.assert_close(x.mean(0), 2 * made.signal[-1], atol=0.03, rtol=0)
    torch.testing.assert_close(x.std(0), made.noise[-1], atol=0, rtol=0.03)


def test_degraded_takes_one_level_or_one_a_window():
    made = Degradation.linear(7, 5, 0.1, 0.3, blur=0.5)
    clean, epsilon = torch.randn(2, 3, 2, 7, dtype=torch.float64)
    each = made.degraded(clean, epsilon, torch.tensor([4, 0, 2]))
    for row, t in enumerate((4, 0, 2)):
        wanted = made.signal[t] * clean[row] + made.noise[t] * epsilon[row]
        torch.testing.assert_close(each[row], wanted)
        torch.testing.assert_close(made.degraded(clean, epsilon, t)[row], wanted)


def test_rf_diffusion_samples_a_normal_distribution():
    """For windows of mean 1 and deviation 0.5 the best restorer is known in closed form."""
    made = Degradation.linear(4, 100, 1e-3, 0.15)
    mean, spread = 1.0, 0.5

    def restore(x, t):
        signal, noise = made.signal[t].to(x), made.noise[t].to(x)
        gain = signal * spread**2 / (signal**2 * spread**2 + noise**2)
        return mean + gain * (x - signal * mean)

    generator = torch.Generator().manual_seed(0)
    start = made.start(torch.randn(4000, 1, 4, generator=generator))

    def sample(steps):
        sampler, x = RFDiffusionSampler(made, steps, generator), start
        for t, t_next in sampler:
            x = sampler.step(x, restore(x, t), t, t_next)
        return x

    found = sample(100)
    assert float(found.mean()) == pytest.approx(mean, abs=0.03)
    assert 0.1 < float(found.std()) <= spread  # it restores means, which loses some of the spread
    assert float(sample(1).std()) < float(found.std())


def test_a_blur_has_no_schedule():
    with pytest.raises(Refusal, match="rf-diffusion"):
        _ = Degradation.linear(8, **WIFI, blur=0.1).schedule


# Complex layers.


@given(seed=st.integers(0, 10_000), shape=st.lists(st.integers(1, 4), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_arithmetic_of_pairs_is_that_of_complex_numbers(seed, shape):
    *before, size = shape
    first, second = randn(2, *before, 2, size, seed=seed)
    close = torch.testing.assert_close
    close(complex_of(product(first, second)), complex_of(first) * complex_of(second))
    close(complex_of(conjugate(first)), complex_of(first).conj())
    angle = randn(*shape, seed=seed)
    close(complex_of(phasor(angle)), torch.exp(1j * angle))


def test_normalized_keeps_phases_and_makes_power_one():
    pairs = 3 * randn(5, 2, 40) + 7
    found = complex_of(normalized(pairs))
    centred = complex_of(pairs) - complex_of(pairs).mean(-1, keepdim=True)
    torch.testing.assert_close(found.angle(), centred.angle())
    power = found.abs().square().mean(-1)
    torch.testing.assert_close(power, torch.ones_like(power), atol=1e-4, rtol=0)


def test_linear_is_a_complex_matrix_product():
    layer = ComplexLinear(3, 5).double()
    matrix = torch.complex(layer.real.weight, layer.imaginary.weight)
    a, b = layer.real.bias, layer.imaginary.bias
    pairs = randn(7, 4, 2, 3)
    wanted = complex_of(pairs) @ matrix.T + torch.complex(a - b, a + b)
    torch.testing.assert_close(complex_of(layer(pairs)), wanted)
    assert not layer.zero_init()(pairs).any()


def slow_attention(layer, tokens, others, frequencies):
    """One window, head and token at a time; values rotate with the distance."""
    query, key, value = (
        complex_of(part) for part in (layer.query(tokens), layer.key(others), layer.value(others))
    )
    size = query.shape[-1] // layer.heads
    made = torch.zeros_like(query)
    for n in range(len(query)):
        for head in range(layer.heads):
            own = slice(head * size, (head + 1) * size)
            turns = [torch.exp(1j * frequencies[own] * (n - m)) for m in range(len(key))]
            scores = torch.stack(
                [
                    (query[n, own] * (key[m, own] * turn).conj()).real.sum() / (2 * size) ** 0.5
                    for m, turn in enumerate(turns)
                ]
            )
            for m, share in enumerate(scores.softmax(0)):
                made[n, own] += share * value[m, own] * turns[m]
    return layer.out(torch.stack([made.real, made.imag], dim=-2))


def test_attention_by_loops():
    torch.manual_seed(0)
    layer = ComplexAttention(6, heads=2).double()
    tokens, others = randn(1, 5, 2, 6), randn(1, 3, 2, 6, seed=1)
    zero = torch.zeros(6, dtype=torch.float64)
    torch.testing.assert_close(
        layer(tokens, others)[0], slow_attention(layer, tokens[0], others[0], zero)
    )
    frequencies = randn(6, seed=2)
    positions = phasor(torch.arange(5, dtype=torch.float64)[:, None] * frequencies)
    wanted = slow_attention(layer, tokens[0], tokens[0], frequencies)
    torch.testing.assert_close(layer(tokens, tokens, positions)[0], wanted)


# The networks.


@pytest.mark.parametrize("is_complex", [True, False])
@pytest.mark.parametrize("length", [1, 18])
def test_patches_hold_every_sample_once(length, is_complex):
    network = CsiTransformer(3, (3,), **SMALL, is_complex=is_complex)
    x = torch.randn(5, 6 if is_complex else 3, length)
    patches = network._to_patches(x)
    assert patches.shape == (5, -(-length // 4), 2, 12)
    torch.testing.assert_close(network._from_patches(patches, length), x)


def test_level_and_condition_act_on_their_own_window_only():
    network = with_random_weights(CsiTransformer(3, (3,), **SMALL))
    x, t, condition = example_inputs()
    plain = network(x, t, condition).detach()
    for changed in (
        network(x, t.roll(1), condition),
        network(x, t, torch.zeros_like(condition)),
        network(x.flip(2), t, condition),
    ):
        assert bool(((plain - changed).abs().amax((1, 2)) > 1e-3).all())
    other = x.clone()
    other[0] += 1
    torch.testing.assert_close(network(other, t, condition)[1:], plain[1:])


def test_untrained_networks_are_the_identity_or_zero():
    assert not CsiTransformer(3, (3,), **SMALL)(*example_inputs()).any()
    windows = torch.randn(2, 6, 16)
    assert torch.equal(DenoisingModel(6, 8)(windows), windows)
    assert not torch.allclose(with_random_weights(DenoisingModel(6, 8))(windows), windows)


def test_private_modules_are_attention_and_embedding():
    network = CsiTransformer(3, (3,), **SMALL)
    found = list(network.private_modules())
    assert found[0] is network.embedding
    assert len(found) == 1 + 2 * 2  # two attentions in each of two blocks
    assert all(isinstance(module, ComplexAttention) for module in found[1:])


def test_classifier_losses_are_summed_cross_entropies():
    torch.manual_seed(0)
    network, x = KeptClassifier((6, 32), (4, 3)), torch.randn(5, 6, 32)
    labels = torch.tensor([[0, 2], [3, 1], [1, 0], [2, 2], [0, 0]])
    wanted = sum(
        nn.functional.cross_entropy(logits, labels[:, number], reduction="none")
        for number, logits in enumerate(network(x))
    )
    torch.testing.assert_close(network.losses(x, labels), wanted)
