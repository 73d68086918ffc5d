"""Spectrograms, SSIM and FID against loops and closed forms; a stored network scores the same."""

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from sensorveil.audit.donors.likeness import Likeness, spectrograms, ssim
from sensorveil.classifiers import ClassifierSettings
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal

SMALL = ClassifierSettings(width=8, epochs=6, batch_size=32, learning_rate=4e-3)


def waves(count, seed, noise=0.1):
    """Slow and fast waves, two classes."""
    rng = np.random.default_rng(seed)
    codes = np.arange(count) % 2
    phase = (0.4 + 0.8 * codes)[:, None] * np.arange(64) + rng.random((count, 1)) * 6
    signal = np.sin(phase)[:, None] * np.ones((1, 2, 1))
    return Windows.from_signal(signal + noise * rng.normal(size=signal.shape), {"activity": codes})


@pytest.fixture(scope="module")
def likeness():
    return Likeness("activity", SMALL).fit(waves(200, 0))


def test_a_wave_shows_at_its_frequency_and_time():
    """A quarter of a turn a sample, in the second half alone."""
    time = np.arange(64)
    wave = np.where(time >= 32, np.sin(np.pi / 2 * time), 0.0)[None, None]
    found = spectrograms(wave)[0]
    assert found.shape == (9, 25)  # frames of 16 samples, every second sample
    assert found[:, -1].argmax() == 4  # 4 of 16 turns
    assert found[4, -1] > found[4, 0] + 30


def test_phases_and_means_do_not_change_spectrograms():
    rng = np.random.default_rng(0)
    magnitude = 5 + rng.normal(size=(3, 4, 64))
    rotated = magnitude * np.exp(2j * np.pi * rng.random(magnitude.shape))
    np.testing.assert_allclose(spectrograms(rotated), spectrograms(magnitude), atol=1e-6)
    np.testing.assert_allclose(spectrograms(magnitude + 7), spectrograms(magnitude), atol=1e-6)
    with pytest.raises(Refusal, match="8 samples"):
        spectrograms(np.zeros((1, 1, 7)))


def test_spectrograms_by_loops():
    signal = np.random.default_rng(1).normal(size=(2, 3, 32))
    found = spectrograms(signal)
    hann = np.sin(np.pi * (np.arange(8) + 0.5) / 8) ** 2
    for n in range(2):
        for place in range(25):
            power = np.zeros(5)
            for channel in signal[n]:
                part = (channel - channel.mean())[place : place + 8] * hann
                power += np.abs(np.fft.rfft(part)) ** 2 / 3
            np.testing.assert_allclose(found[n, :, place], 10 * np.log10(power), rtol=1e-6)


@pytest.mark.parametrize("shape", [(14, 17), (5, 9)])
def test_ssim_by_loops(shape):
    """Equation (19) at each pixel through a Gaussian; borders are reflected."""
    rng = np.random.default_rng(2)
    first, noise = rng.random((2, *shape))
    second = 0.7 * first + 0.3 * noise
    sigma = min(1.5, (min(shape) - 1) / 3.5)
    reach = int(3.5 * sigma + 0.5)
    axis = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    weight = np.outer(axis, axis) / axis.sum() ** 2
    padded = [np.pad(image, reach, mode="reflect") for image in (first, second)]
    values = []
    for row in range(shape[0]):
        for column in range(shape[1]):
            a, b = (z[row : row + len(axis), column : column + len(axis)] for z in padded)
            ma, mb = (weight * a).sum(), (weight * b).sum()
            va, vb = (weight * (a - ma) ** 2).sum(), (weight * (b - mb) ** 2).sum()
            both = (weight * (a - ma) * (b - mb)).sum()
            above = (2 * ma * mb + 1e-4) * (2 * both + 9e-4)
            values.append(above / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4)))
    assert ssim(first[None], second[None])[0] == pytest.approx(np.mean(values), rel=1e-9)


def test_fid_against_the_matrix_root(likeness):
    real, generated = waves(60, 1), waves(50, 2, noise=0.6)
    network = likeness._feature_network()
    rows = []
    for windows in (real, generated):
        images = likeness._image_windows(windows).scaled(likeness._classifier.scaling_).signal
        rows.append(network(torch.from_numpy(images).double()).numpy())
    assert rows[0].shape == (60, 64)
    a, b = (np.cov(one.T) for one in rows)
    gap = ((rows[0].mean(0) - rows[1].mean(0)) ** 2).sum()
    wanted = gap + np.trace(a + b - 2 * np.real(sqrtm(a @ b)))
    assert likeness.fid(real, generated) == pytest.approx(wanted, rel=1e-4)
    with pytest.raises(Refusal, match="two windows"):
        likeness.fid(real.select([0]), generated)


def test_noisier_windows_score_worse(likeness):
    real, rng = waves(200, 1), np.random.default_rng(0)
    others = [waves(200, 2), waves(200, 2, noise=0.6), waves(200, 2, noise=3.0)]
    fids = [likeness.fid(real, generated) for generated in others]
    ssims = [likeness.ssim(real, generated, rng) for generated in others]
    assert fids == sorted(fids)
    assert ssims == sorted(ssims, reverse=True)
    assert fids[0] < 0.2 * fids[2]


def test_ssim_compares_within_the_class_or_place_by_place(likeness):
    real, generated, rng = waves(200, 1), waves(200, 2), np.random.default_rng(0)
    crossed = Windows.from_signal(generated.signal, {"activity": 1 - generated.codes("activity")})
    assert likeness.ssim(real, generated, rng) > likeness.ssim(real, crossed, rng) + 0.1
    with pytest.raises(Refusal, match="no real window"):
        likeness.ssim(real.select(real.codes("activity") == 0), generated, rng)
    assert likeness.ssim(real, real) == pytest.approx(1.0)
    assert likeness.ssim(real, real.select(np.arange(200)[::-1])) < 0.95
    with pytest.raises(Refusal, match="as many"):
        likeness.ssim(real, waves(50, 1))


def test_a_stored_network_scores_the_same(likeness, tmp_path):
    real, generated = waves(60, 1), waves(60, 2)
    place = tmp_path / "features.safetensors"
    likeness.save(place)
    again = Likeness("activity", SMALL).load(place, real)
    assert again.fid(real, generated) == pytest.approx(likeness.fid(real, generated), rel=1e-5)
    three = Windows.from_signal(np.zeros((6, 2, 64)), {"activity": np.arange(6) % 3})
    with pytest.raises(Refusal, match="does not fit"):
        Likeness("activity", SMALL).load(place, three)
    place.write_bytes(b"no network")
    with pytest.raises(Refusal, match="safetensors"):
        Likeness("activity", SMALL).load(place, three)
