"""Spectrograms, SSIM and FID against slow loops and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import sqrtm

from sensorveil.errors import Refusal
from sensorveil.measures.spectra import as_images, frechet_distance, spectrograms, ssim


def test_a_wave_shows_at_its_frequency_and_time() -> None:
    """A quarter of a turn a sample, in the second half alone."""
    time = np.arange(64)
    wave = np.where(time >= 32, np.sin(np.pi / 2 * time), 0.0)[None, None]
    found = spectrograms(wave)[0]
    assert found.shape == (9, 25)  # frames of 16 samples, every second sample
    assert found[:, -1].argmax() == 4  # 4 of 16 turns
    assert found[4, -1] > found[4, 0] + 30


def test_phases_and_what_never_changes_have_no_part() -> None:
    chance = np.random.default_rng(0)
    size = 5 + chance.normal(size=(3, 4, 64))
    turned = size * np.exp(2j * np.pi * chance.random(size.shape))
    np.testing.assert_allclose(spectrograms(turned), spectrograms(size), atol=1e-6)
    np.testing.assert_allclose(spectrograms(size + 7), spectrograms(size), atol=1e-6)
    with pytest.raises(Refusal, match="8 samples"):
        spectrograms(np.zeros((1, 1, 7)))


def test_power_by_loops() -> None:
    signal = np.random.default_rng(1).normal(size=(2, 3, 32))
    found = spectrograms(signal)
    taper = np.sin(np.pi * (np.arange(8) + 0.5) / 8) ** 2
    for n in range(2):
        for place in range(25):
            power = np.zeros(5)
            for channel in signal[n]:
                part = (channel - channel.mean())[place : place + 8] * taper
                power += np.abs(np.fft.rfft(part)) ** 2 / 3
            np.testing.assert_allclose(found[n, :, place], 10 * np.log10(power), rtol=1e-6)


def slow_ssim(x: np.ndarray, y: np.ndarray) -> float:
    """Equation (19) at each place, through an 11 x 11 (or smaller) Gaussian of spread 1.5."""
    sizes = [min(11, side if side % 2 else side - 1) for side in x.shape]
    axes = [np.exp(-((np.arange(s) - s // 2) ** 2) / (2 * 1.5**2)) for s in sizes]
    weight = np.outer(*(axis / axis.sum() for axis in axes))
    values = []
    for row in range(x.shape[0] - sizes[0] + 1):
        for column in range(x.shape[1] - sizes[1] + 1):
            a, b = (z[row : row + sizes[0], column : column + sizes[1]] for z in (x, y))
            ma, mb = (weight * a).sum(), (weight * b).sum()
            va, vb = (weight * (a - ma) ** 2).sum(), (weight * (b - mb) ** 2).sum()
            both = (weight * (a - ma) * (b - mb)).sum()
            above = (2 * ma * mb + 1e-4) * (2 * both + 9e-4)
            values.append(above / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4)))
    return float(np.mean(values))


@pytest.mark.parametrize("shape", [(14, 17), (9, 25), (8, 12)])
def test_ssim_by_loops(shape: tuple[int, int]) -> None:
    chance = np.random.default_rng(2)
    first, noise = chance.random((2, 3, *shape))
    second = 0.7 * first + 0.3 * noise
    wanted = [slow_ssim(x, y) for x, y in zip(first, second, strict=True)]
    np.testing.assert_allclose(ssim(first, second), wanted, rtol=1e-9)


def test_images_are_cut_at_the_scale_of_others() -> None:
    like = np.linspace(-10, 10, 1001)
    assert as_images(np.array([-99.0, 0.0, 99.0]), like).tolist() == pytest.approx([0, 0.5, 1])
    assert np.isfinite(as_images(np.zeros(3), np.zeros(5))).all()


def test_frechet_distance_of_known_gaussians() -> None:
    """Of diagonal ones it is the squared distance of means and of standard deviations."""
    chance = np.random.default_rng(3)
    first = chance.normal(size=(200_000, 2)) * [1.0, 3.0] + [0, 1]
    second = chance.normal(size=(200_000, 2)) * [2.0, 1.0] + [2, 0]
    assert frechet_distance(first, second) == pytest.approx(5 + 1 + 4, rel=0.02)


def test_frechet_distance_against_the_matrix_root() -> None:
    chance = np.random.default_rng(4)
    first = chance.normal(size=(60, 5)) @ chance.normal(size=(5, 5))
    second = chance.normal(size=(50, 5)) @ chance.normal(size=(5, 5)) + 1
    a, b = np.cov(first.T), np.cov(second.T)
    root = np.real(sqrtm(a @ b))
    wanted = ((first.mean(0) - second.mean(0)) ** 2).sum() + np.trace(a + b - 2 * root)
    assert frechet_distance(first, second) == pytest.approx(wanted)
    assert frechet_distance(second, first) == pytest.approx(wanted)
    assert frechet_distance(first, first) == pytest.approx(0, abs=1e-9)
    with pytest.raises(Refusal, match="two windows"):
        frechet_distance(first[:1], second)
