"""How alike two sets of windows are as spectrograms: SSIM and FID, equations (19) and (20).

The CSI paper looks at generated windows as images. A spectrogram here is the power of all channels
together over frequency and time, in decibel. Of complex channels it is that of the magnitude: a
Wi-Fi card's phases turn at random from packet to packet, and their spectrum says nothing.
"""

from __future__ import annotations

import numpy as np
import torch

from sensorveil.errors import Refusal

C1, C2 = 0.01**2, 0.03**2
"""The constants of equation (19) for images from 0 to 1 (Wang and others 2004)."""

_SPREAD, _WIDEST = 1.5, 11  # of the Gaussian that SSIM looks through, in pixels
_FLOOR = 1e-12


def spectrograms(signal: np.ndarray) -> np.ndarray:
    """Power in decibel, (n, frequencies, times), of windows (n, channels, length).

    Frames are a quarter of the window long, and the next one begins after an eighth of a frame.
    What never changes in a window has no part in it.

    >>> spectrograms(np.zeros((3, 30, 64), np.complex64)).shape
    (3, 9, 25)
    """
    size = np.abs(signal) if np.iscomplexobj(signal) else signal
    length = size.shape[-1]
    if length < 8:
        raise Refusal(f"a spectrogram needs windows of 8 samples or more; these have {length}")
    frame = length // 4
    centred = size - size.mean(-1, keepdims=True, dtype=np.float64)
    frames = np.lib.stride_tricks.sliding_window_view(centred, frame, axis=-1)
    frames = frames[..., :: max(1, frame // 8), :]  # (n, channels, times, frame)
    taper = np.sin(np.pi * (np.arange(frame) + 0.5) / frame) ** 2
    power = np.abs(np.fft.rfft(frames * taper, axis=-1)) ** 2
    return 10 * np.log10(np.swapaxes(power.mean(1), 1, 2) + _FLOOR)


def as_images(spectra: np.ndarray, like: np.ndarray) -> np.ndarray:
    """From 0 to 1 where those of `like` go from their lowest to their highest percent.

    >>> as_images(np.array([-50.0, 0.0, 50.0]), like=np.arange(-100.0, 101.0)).round(2).tolist()
    [0.24, 0.5, 0.76]
    """
    low, high = np.quantile(like, [0.01, 0.99])
    return np.clip((spectra - low) / max(high - low, _FLOOR), 0, 1)


def ssim(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Equation (19) for pairs of images (n, height, width) from 0 to 1: one value a pair.

    Means, variances and the covariance are those seen through a Gaussian of 11 pixels (or as many
    as there are), and the value is the mean over all places, as Wang and others have it.

    >>> image = np.random.default_rng(0).random((1, 12, 20))
    >>> round(float(ssim(image, image)[0]), 6), float(ssim(image, 1 - image)[0]) < 0
    (1.0, True)
    """
    x, y = (torch.from_numpy(np.asarray(one, np.float64)).unsqueeze(1) for one in (first, second))
    across, down = _gaussian(x.shape[3]), _gaussian(x.shape[2])

    def seen(image: torch.Tensor) -> torch.Tensor:
        blurred = torch.nn.functional.conv2d(image, across.view(1, 1, 1, -1))
        return torch.nn.functional.conv2d(blurred, down.view(1, 1, -1, 1))

    mean_x, mean_y = seen(x), seen(y)
    variance_x, variance_y = seen(x * x) - mean_x**2, seen(y * y) - mean_y**2
    covariance = seen(x * y) - mean_x * mean_y
    above = (2 * mean_x * mean_y + C1) * (2 * covariance + C2)
    below = (mean_x**2 + mean_y**2 + C1) * (variance_x + variance_y + C2)
    return (above / below).mean((1, 2, 3)).numpy()


def _gaussian(most: int) -> torch.Tensor:
    """Weights of an odd number of pixels, at most 11 and at most as many as there are."""
    size = min(_WIDEST, most if most % 2 else most - 1)
    place = torch.arange(size, dtype=torch.float64) - size // 2
    weights = torch.exp(-(place**2) / (2 * _SPREAD**2))
    return weights / weights.sum()


def frechet_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Equation (20) between the Gaussians of two sets of features, (n, size) each.

    >>> features = np.random.default_rng(0).normal(size=(500, 3))
    >>> round(frechet_distance(features, features + np.array([3.0, 0.0, 4.0])), 6)
    25.0
    """
    if min(len(first), len(second)) < 2:
        raise Refusal("a distance of distributions needs two windows or more of each")
    means = [features.mean(0, dtype=np.float64) for features in (first, second)]
    spreads = [np.atleast_2d(np.cov(features.T.astype(np.float64))) for features in (first, second)]
    # The trace of (S_r S_g)^(1/2) is that of (S_r^(1/2) S_g S_r^(1/2))^(1/2), which is symmetric.
    values, vectors = np.linalg.eigh(spreads[0])
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    shared = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ spreads[1] @ root), 0)).sum()
    apart = float(((means[0] - means[1]) ** 2).sum())
    return max(0.0, apart + float(np.trace(spreads[0]) + np.trace(spreads[1]) - 2 * shared))
