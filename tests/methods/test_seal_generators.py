"""Generators see codes and noise; their output has the statistics of the donors of a code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.data.windows import Scaling, Windows
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.seal import Seal
from sensorveil.methods.seal_generators import (
    Diffusion,
    Gaussian,
    Pool,
    crossfade,
    previous_windows,
)

LENGTH = 32


def donors(kind: str = "signal", count: int = 400) -> tuple[Windows, np.ndarray]:
    """Windows as a generator sees them: in standard units and real."""
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=count)
    shape = {"image": (2, 4, 6)}.get(kind, (2, 12))
    signal = rng.normal(size=(count, *shape)) * (1 + codes).reshape(-1, *[1] * len(shape))
    if kind == "complex":
        signal = signal + 1j * rng.normal(size=signal.shape)
    windows = Windows.from_signal(signal)
    return windows.standardized(Scaling.of(windows)), codes


def test_the_pool_emits_donors_of_the_code_with_equal_probability():
    windows, codes = donors(count=30)
    asked = np.tile([0, 1, 2], 2000)
    made = Pool().fit(windows, codes, 3).generate(asked, np.random.default_rng(0))
    which = np.abs(made[:, None, 0, 0] - windows.signal[None, :, 0, 0]).argmin(1)
    np.testing.assert_array_equal(made, windows.signal[which])
    np.testing.assert_array_equal(codes[which], asked)
    counts, each = np.bincount(which, minlength=30), 2000 / np.bincount(codes)[codes]
    assert (np.abs(counts - each) < 5 * np.sqrt(each)).all()


def test_the_pool_keeps_samples_of_its_donors_alone_and_shared_ones_once():
    windows, _ = donors(count=30)
    pool = Pool().fit(windows.select(slice(0, 10)), np.zeros(10, int), 1)
    assert pool.arrays["store"].shape[-1] == 10 * windows.length
    whole = Windows.from_signal(np.random.default_rng(0).normal(size=(1, 1, 100)))
    rows = np.arange(0, 80, 5)
    overlapping = replace(whole, length=20, offset=rows, start=rows, recording=np.zeros(16, int))
    overlapping.labels["subject"] = np.zeros(16, int)  # type: ignore[index]
    pool = Pool().fit(overlapping, np.arange(16) % 2, 2)
    assert pool.arrays["store"].size == 95
    made = pool.generate(np.array([1]), np.random.default_rng(0))[0]
    assert any((made == one).all() for one in overlapping.signal[1::2])


@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
def test_gaussians_have_mean_and_spread_of_their_code(kind):
    windows, codes = donors(kind, 3000)
    made = Gaussian().fit(windows, codes, 3)
    for code in range(3):
        own = windows.signal[codes == code]
        drawn = made.generate(np.full(4000, code), np.random.default_rng(0))
        assert drawn.shape[1:] == own.shape[1:]
        assert drawn.std() == pytest.approx(own.std(), rel=0.1)  # it leans on other codes
        np.testing.assert_allclose(drawn.mean(0), own.mean(0), atol=0.2)


def test_gaussians_keep_rhythm_and_the_correlation_of_channels():
    rng = np.random.default_rng(0)
    wave = np.sin(np.arange(64) * 0.6 + rng.uniform(0, 2 * np.pi, (500, 1)))
    windows = Windows.from_signal(np.stack([wave, -2 * wave], axis=1))
    drawn = Gaussian().fit(windows, np.zeros(500, int), 1).generate(np.zeros(200, int), rng)
    np.testing.assert_allclose(drawn[:, 1], -2 * drawn[:, 0], atol=1e-3)
    peak = np.abs(np.fft.rfft(drawn[:, 0] - drawn[:, 0].mean(-1, keepdims=True))).argmax(1)
    assert np.median(peak) == round(0.6 * 64 / (2 * np.pi))


def test_gaussians_emit_no_donor_even_where_windows_are_few():
    windows, codes = donors(count=40)
    made = Gaussian().fit(windows, codes, 3).generate(codes, np.random.default_rng(0))
    assert np.abs(made[:, None] - windows.signal[None]).max((2, 3)).min() > 0.1
    few = example_windows()
    seal = Seal(epochs=1, width=4).fit(few, "activity", "gender")
    assert seal.metrics_["generator"] == "gaussian"
    assert min(n for n in seal.metrics_["windows_by_code"] if n) >= 5
    distance = seal.obfuscate(few, seed=0).signal[:, None] - few.signal[None]
    assert np.abs(distance / few.signal.std((0, 2), keepdims=True)).max((2, 3)).min() > 0.05


class Small(Diffusion):
    sizes = {"latent": 6, "widths": (4,), "width": 32, "blocks": 1}  # noqa: RUF012


def waves(count: int = 600) -> tuple[Windows, np.ndarray]:
    """Codes 0, 1 and 2 have one, two and four waves in a window, of any phase."""
    codes = np.arange(count) % 3
    angle = 2 * np.pi * np.arange(LENGTH) / LENGTH * 2.0 ** codes[:, None]
    wave = np.sin(angle + np.random.default_rng(0).uniform(0, 2 * np.pi, (count, 1)))
    return Windows.from_signal(np.stack([wave, -wave], axis=1) * 1.4), codes


def test_the_diffusion_follows_the_code():
    asked = np.repeat([0, 1, 2], 100)
    trained = Small(training_steps=600).fit(*waves(), 3)
    drawn = trained.generate(asked, np.random.default_rng(0))
    strongest = np.abs(np.fft.rfft(drawn[:, 0])).argmax(1)
    assert (strongest == 2**asked).mean() > 0.9
    np.testing.assert_allclose(drawn[:, 1], -drawn[:, 0], atol=0.5)
    assert 0.8 < drawn.std() < 1.4  # guidance makes it a little larger
    for code in range(3):  # and it is not always the same window
        assert drawn[asked == code].std(0).mean() > 0.5
    # Noise comes from the generator that is handed over and from nothing else.
    again = [trained.generate(asked[:3], np.random.default_rng(seed)) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(again[0], again[1])
    assert (again[0] != again[2]).any()


def test_the_diffusion_depends_on_its_seed_alone():
    windows, codes = waves(60)
    first, same, other = (
        Small(seed, training_steps=8)
        .fit(windows, codes, 3)
        .generate(codes, np.random.default_rng(0))
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()


def test_only_adjacent_windows_are_crossfaded():
    recording, start = np.array([0, 0, 0, 1]), np.array([8, 0, 4, 8])
    previous = previous_windows(recording, start, 8)
    assert previous.tolist() == [1, -1, -1, -1]
    signal = np.random.default_rng(0).normal(size=(4, 2, 8))
    smooth = crossfade(signal, previous, 4)
    np.testing.assert_array_equal(smooth[1:], signal[1:])
    np.testing.assert_allclose(smooth[0, :, 0], signal[1, :, -1])
    np.testing.assert_array_equal(smooth[0, :, 4:], signal[0, :, 4:])
