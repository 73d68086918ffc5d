"""Features against slow references in plain numpy, and against what they are for."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.audit.features import (
    BINS,
    RandomConvolutions,
    _edges,
    spectral_features,
)
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows


def convolved(windows: Windows, kernels: int = 500, seed: int = 0) -> np.ndarray:
    return RandomConvolutions(kernels, seed).fit(windows).transform(windows)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
def test_every_kind_of_window_has_finite_features(kind: str) -> None:
    windows = example_windows(kind)
    for features in (spectral_features(windows), convolved(windows, 20)):
        assert features.shape[0] == len(windows)
        assert features.dtype == np.float32
        assert np.isfinite(features).all()
        assert features.std(0).max() > 0


def test_the_spectrum_against_numpy() -> None:
    signal = noise(3, 2, 40)
    found = spectral_features(Windows.from_signal(signal)).astype(np.float64)
    tapered = (signal - signal.mean(-1, keepdims=True)) * (
        0.5 - 0.5 * np.cos(2 * np.pi * np.arange(40) / 40)
    )
    power = np.abs(np.fft.rfft(tapered)) ** 2 / 40  # 21 frequencies: no pooling
    for channel in (0, 1):
        own = found[:, channel * 28 : (channel + 1) * 28]
        np.testing.assert_allclose(own[:, :21], np.log(power[:, channel]), atol=1e-3)
        part = signal[:, channel]
        wanted = np.quantile(part, [0.05, 0.25, 0.5, 0.75, 0.95], axis=1).T
        np.testing.assert_allclose(own[:, 21:26], wanted, atol=1e-5)
        np.testing.assert_allclose(own[:, 26], part.mean(1), atol=1e-5)
        steps = np.diff(part, prepend=part[:, :1])
        np.testing.assert_allclose(own[:, 27], steps.std(1), rtol=1e-5)
    correlations = [np.corrcoef(window)[0, 1] for window in signal]
    np.testing.assert_allclose(found[:, -1], correlations, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 34, 65, 129, 1025])
def test_bands_cover_every_frequency_once(count: int) -> None:
    edges = _edges(count)
    assert edges[0] == 0
    assert edges[-1] == count
    assert (np.diff(edges) > 0).all()
    assert min(count, BINS) - 2 <= len(edges) - 1 <= BINS


def test_many_channels_stay_below_three_thousand_features() -> None:
    signal = noise(4, 90, 64) + 1j * noise(4, 90, 64, seed=1)
    assert spectral_features(Windows.from_signal(signal)).shape[1] < 3000


def test_channels_that_are_pooled_are_averaged() -> None:
    """128 channels, two and two alike, have the features of the 64 different ones."""
    signal = noise(3, 64, 16)
    twice = spectral_features(Windows.from_signal(np.repeat(signal, 2, axis=1)))
    once = spectral_features(Windows.from_signal(signal))
    np.testing.assert_allclose(twice, once, atol=1e-4)


def test_batches_do_not_show() -> None:
    """Many windows give what each gives alone."""
    windows = Windows.from_signal(noise(300, 3, 512))  # more than one batch
    convolutions = RandomConvolutions(16).fit(windows)
    last = windows.select([299])
    for take in (spectral_features, convolutions.transform):
        np.testing.assert_allclose(take(windows)[299:], take(last), atol=1e-4)


def test_random_convolutions_against_loops() -> None:
    windows = Windows.from_signal(noise(5, 3, 30))
    model = RandomConvolutions(24, seed=4).fit(windows)
    found = model.transform(windows)
    signal = model.scaling_.apply(windows.signal)
    wanted = np.zeros_like(found)
    for which, bundle in enumerate(model.bundles_):
        for k in range(8):
            for n in range(5):
                outputs = slow_outputs(signal[n], bundle, k)
                bias = float(bundle.bias[k])
                wanted[n, 8 * which + k] = (outputs > bias).mean()
                wanted[n, 24 + 8 * which + k] = outputs.max() - bias
    np.testing.assert_allclose(found[:, 24:], wanted[:, 24:], atol=1e-4)
    # The bias is itself one of the outputs, so one place may fall either way by rounding.
    assert np.abs(found[:, :24] - wanted[:, :24]).max() < 1.5 / 6
    assert np.abs(found[:, :24] - wanted[:, :24]).mean() < 0.01


def slow_outputs(signal: np.ndarray, bundle: object, k: int) -> np.ndarray:
    padded = np.pad(signal, ((0, 0), (bundle.padding, bundle.padding)))  # type: ignore[attr-defined]
    weights, dilation = bundle.weights[k].numpy(), bundle.dilation  # type: ignore[attr-defined]
    reach = (weights.shape[1] - 1) * dilation
    return np.array(
        [
            sum(
                weights[c, j] * padded[channel, place + j * dilation]
                for c, channel in enumerate(bundle.channels.tolist())  # type: ignore[attr-defined]
                for j in range(weights.shape[1])
            )
            for place in range(padded.shape[1] - reach)
        ]
    )


def test_biases_are_spread_over_the_outputs() -> None:
    """On average over kernels, half of the places of unseen windows lie above the bias."""
    model = RandomConvolutions(200).fit(Windows.from_signal(noise(100, 2, 64)))
    shares = model.transform(Windows.from_signal(noise(100, 2, 64, seed=1)))[:, :200].mean(0)
    assert abs(shares.mean() - 0.5) < 0.08
    assert shares.min() < 0.1
    assert shares.max() > 0.9


def test_units_play_no_part_in_random_convolutions() -> None:
    signal = noise(40, 2, 50)
    plain = convolved(Windows.from_signal(signal), 40, seed=2)
    other = convolved(Windows.from_signal(signal * 1e-5 + 3e-4), 40, seed=2)
    np.testing.assert_allclose(plain[:, 40:], other[:, 40:], atol=1e-2)


def test_the_seed_decides() -> None:
    windows = Windows.from_signal(noise(20, 2, 50))
    first = convolved(windows, 16, seed=3)
    np.testing.assert_array_equal(first, convolved(windows, 16, seed=3))
    assert not np.array_equal(first, convolved(windows, 16, seed=4))


@pytest.mark.parametrize(
    "shape", [(3, 1, 1), (3, 2, 2), (3, 1, 5), (3, 1, 2, 2), (1, 1, 8), (4, 2, 32)]
)
@pytest.mark.parametrize("kernels", [1, 7, 9])
def test_tiny_and_constant_windows(shape: tuple[int, ...], kernels: int) -> None:
    for signal in (noise(*shape), np.ones(shape)):
        windows = Windows.from_signal(signal)
        found = convolved(windows, kernels)
        assert found.shape == (shape[0], 2 * kernels)
        assert np.isfinite(found).all()
        assert np.isfinite(spectral_features(windows)).all()


def test_refusals() -> None:
    empty = Windows.from_signal(noise(4, 1, 20)).select([])
    for take in (spectral_features, convolved):
        with pytest.raises(Refusal, match="no windows"):
            take(empty)
    with pytest.raises(Refusal, match="too few"):
        RandomConvolutions(0)
