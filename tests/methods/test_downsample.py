"""Downsampling: block means and straight lines, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.downsample import Downsample


def coarse(signal: np.ndarray, **rest: Any) -> np.ndarray:
    """The windows of an array, downsampled; the labels do not matter."""
    strength = rest.pop("strength", None)
    codes = np.arange(len(signal)) % 2
    windows = Windows.from_signal(signal, {"activity": codes, "gender": 1 - codes})
    return Downsample(**rest).fit(windows, "activity", "gender").obfuscate(windows, strength).signal


def slow_coarse(row: np.ndarray, factor: int) -> np.ndarray:
    """Means of blocks, then straight lines between the blocks' middles, level at the ends."""
    means = row.reshape(-1, factor).mean(1)
    middles = np.arange(len(means)) * factor + (factor - 1) / 2
    return np.interp(np.arange(len(row)), middles, means)


@settings(max_examples=40, deadline=None)
@given(factor=st.integers(1, 8), blocks=st.integers(1, 12), seed=st.integers(0, 99))
def test_against_block_means_by_hand(factor: int, blocks: int, seed: int) -> None:
    signal = np.random.default_rng(seed).normal(size=(4, 2, factor * blocks))
    if signal.shape[-1] < 2:
        return
    got = coarse(signal, factor=float(factor))
    length = signal.shape[-1]
    for window, out in zip(signal.reshape(-1, length), got.reshape(-1, length), strict=True):
        np.testing.assert_allclose(out, slow_coarse(window, factor), atol=1e-4)


def sine(cycles: float, length: int = 128) -> np.ndarray:
    at = np.arange(length) * 2 * np.pi * cycles / length
    return np.stack([np.sin(at + phase) for phase in (0.0, 0.9)])[:, None]


@pytest.mark.parametrize("cycles", [12, 16, 23, 32, 50])
def test_a_sine_above_the_new_nyquist_is_weakened_as_a_block_mean_does(cycles: int) -> None:
    """128 samples by 8 leave 16 means, which hold 8 cycles; the mean of 8 is a known filter."""
    phase = np.pi * cycles / 128
    left = abs(np.sin(8 * phase) / (8 * np.sin(phase)))
    got = np.abs(coarse(sine(cycles), factor=8.0)).max()
    assert got <= left + 1e-4
    if cycles % 16 == 0:
        assert got < 1e-4
    assert got < 0.66


@pytest.mark.parametrize("cycles", [1, 2])
def test_a_slow_sine_is_kept(cycles: int) -> None:
    signal = sine(cycles)
    got = coarse(signal, factor=8.0)
    inner = slice(8, -8)
    assert np.abs(got - signal)[..., inner].max() < 0.05 * cycles
    assert np.corrcoef(got.reshape(-1), signal.reshape(-1))[0, 1] > 0.98


def test_a_factor_of_one_changes_nothing() -> None:
    signal = np.random.default_rng(0).normal(size=(4, 2, 30))
    np.testing.assert_allclose(coarse(signal, factor=1.0), signal, atol=1e-5)


@pytest.mark.parametrize("factor", [30.0, 1e9])
def test_a_large_factor_leaves_the_mean(factor: float) -> None:
    signal = np.random.default_rng(0).normal(size=(4, 2, 30))
    means = np.broadcast_to(signal.mean(-1, keepdims=True), signal.shape)
    np.testing.assert_allclose(coarse(signal, factor=factor), means, atol=1e-5)


def test_levels_are_kept() -> None:
    signal = np.random.default_rng(0).normal(size=(4, 2, 1)) + np.zeros(37)
    np.testing.assert_allclose(coarse(signal, factor=5.0), signal, atol=1e-5)


def test_images_shrink_both_ways() -> None:
    image = np.random.default_rng(0).normal(size=(2, 1, 8, 12))
    got = coarse(image, factor=4.0)
    means = image.reshape(2, 1, 2, 4, 3, 4).mean((3, 5))
    rows = np.arange(2) * 4 + 1.5
    columns = np.arange(3) * 4 + 1.5
    for window, out in zip(means[:, 0], got[:, 0], strict=True):
        wide = np.stack([np.interp(np.arange(12), columns, row) for row in window])
        high = np.stack([np.interp(np.arange(8), rows, column) for column in wide.T]).T
        np.testing.assert_allclose(out, high, atol=1e-4)


def test_complex_parts_are_treated_alike() -> None:
    generator = np.random.default_rng(0)
    real, imag = generator.normal(size=(2, 4, 2, 32))
    got = coarse(real + 1j * imag, factor=4.0)
    for part, out in ((real, got.real), (imag, got.imag)):
        for window, row in zip(part.reshape(-1, 32), out.reshape(-1, 32), strict=True):
            np.testing.assert_allclose(row, slow_coarse(window, 4), atol=1e-4)


def test_each_window_has_its_own_factor() -> None:
    signal = np.random.default_rng(0).normal(size=(6, 1, 32))
    factors = np.array([1.0, 4.0, 8.0, 4.0, 16.0, 1.0])
    got = coarse(signal, strength={"factor": factors})
    for window, out, factor in zip(signal[:, 0], got[:, 0], factors, strict=True):
        np.testing.assert_allclose(out, slow_coarse(window, int(factor)), atol=1e-4)


@pytest.mark.parametrize("factor", [0.5, 0.0, -2.0, np.nan])
def test_factors_below_one_are_refused(factor: float) -> None:
    """Not a number would compare as no factor at all, and let the raw data through."""
    windows = example_windows()
    with pytest.raises(Refusal, match="factor"):
        Downsample(factor=factor).fit(windows, "activity", "gender")
    obfuscator = Downsample().fit(windows, "activity", "gender")
    with pytest.raises(Refusal, match="factor"):
        obfuscator.obfuscate(windows, {"factor": factor})
