"""Features of windows, for models that are not networks: spectra and random convolutions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch.nn import functional

from sensorveil.data.windows import Scaling, Windows, to_real
from sensorveil.errors import Refusal

BINS = 32
"""Bands of the power spectrum of a channel."""
CHANNELS = 64
"""Neighbouring channels are pooled to at most this many, so that features stay below 3,000."""
CORRELATED = 8
"""Neighbouring channels are pooled to at most this many before they are correlated."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

BUNDLE = 8
"""Random kernels that share length, dilation and channels, so that they are one convolution."""


def spectral_features(windows: Windows, device: str = "cpu") -> np.ndarray:
    """Spectra, quantiles and correlations of each window, (n, features).

    For each channel the logarithm of its power in at most 32 bands (single frequencies at the
    low end, broader ones above), its quantiles, its mean and the deviation of its first
    differences; then the correlations between channels. Complex channels count as real part,
    imaginary part and magnitude. Where there are many channels, the features of neighbours are
    averaged. Images have their two-dimensional spectrum, pooled, and no correlations.

    >>> signal = np.sin(np.arange(64.0) * [[[0.5]], [[1.0]]])
    >>> spectral_features(Windows.from_signal(signal)).shape
    (2, 38)
    """
    return spectral_tensor(windows, device).cpu().numpy()


def spectral_tensor(windows: Windows, device: str = "cpu") -> torch.Tensor:
    """The same as a tensor on the device."""
    if len(windows) == 0:
        raise Refusal("there are no windows to take features of")
    parts = 3 if windows.recorded.is_complex else 1
    image = len(windows.shape) == 3

    def features(signal: torch.Tensor) -> torch.Tensor:
        spectrum = _image_spectrum(signal) if image else _spectrum(signal)
        each = torch.cat([spectrum, _levels(signal)], dim=2)
        wide = [_pooled(each, parts, CHANNELS).flatten(1)]
        if not image:
            wide.append(_correlations(_pooled(signal, parts, CORRELATED * parts)))
        return torch.cat(wide, dim=1)

    return _by_batch(windows, device, features)


class RandomConvolutions:
    """Many random convolutions of a window, and two numbers of each: share above zero, maximum.

    In the manner of ROCKET (Dempster, Petitjean and Webb, 2020): kernels of 7, 9 or 11 samples
    (3, 5 or 7 pixels square for images), with random dilation, channels and padding. As in
    MiniRocket (Dempster and others, 2021) the bias of each is a quantile of what the kernel
    gives on the windows it was fitted on, so the units of the signal play no part. Unlike there,
    half of the kernels have weights of mean zero and half see the level of the signal too: how
    a sensor is worn says much about who wears it.

    >>> windows = Windows.from_signal(np.random.default_rng(0).normal(size=(20, 2, 50)))
    >>> features = RandomConvolutions(kernels=16).fit(windows).transform(windows)
    >>> features.shape, bool((features[:, :16] >= 0).all() and (features[:, :16] <= 1).all())
    ((20, 32), True)
    """

    def __init__(self, kernels: int = 500, seed: int = 0, device: str = "cpu") -> None:
        if kernels < 1:
            raise Refusal(f"{kernels} random kernels are too few; take at least one")
        self.kernels = kernels
        self.seed = seed
        self.device = device

    def fit(self, windows: Windows, sample: int = 128) -> RandomConvolutions:
        """Draws the kernels; their biases come from a random sample of these windows."""
        if len(windows) == 0:
            raise Refusal("there are no windows to fit random convolutions on")
        generator = np.random.default_rng(self.seed)
        self.scaling_ = Scaling.of(windows)
        channels = windows.shape[0] * (3 if windows.recorded.is_complex else 1)
        drawn = np.sort(generator.choice(len(windows), min(sample, len(windows)), replace=False))
        some = _real_signal(windows.standardized(self.scaling_).select(drawn), self.device)
        self.bundles_ = []
        for first in range(0, self.kernels, BUNDLE):
            size = min(BUNDLE, self.kernels - first)
            bundle = _draw_bundle(size, channels, windows.shape[1:], generator).to(self.device)
            bundle.bias = _quantile_each(bundle.outputs(some), generator.random(size))
            self.bundles_.append(bundle)
        return self

    def transform(self, windows: Windows) -> np.ndarray:
        """(n, 2 kernels): all shares above zero, then all maxima."""
        return self.transform_tensor(windows).cpu().numpy()

    def transform_tensor(self, windows: Windows) -> torch.Tensor:
        """The same as a tensor on the device."""

        def features(signal: torch.Tensor) -> torch.Tensor:
            shares, maxima = [], []
            for bundle in self.bundles_:
                outputs = bundle.outputs(signal)
                above = outputs > bundle.bias[:, None]
                shares.append(above.sum(-1, dtype=torch.int32) / outputs.shape[-1])
                maxima.append(outputs.amax(-1) - bundle.bias)
            return torch.cat(shares + maxima, dim=1)

        return _by_batch(windows.standardized(self.scaling_), self.device, features)


@dataclass
class _Bundle:
    """Kernels of one shape on the same channels: weights (kernels, channels, ...)."""

    channels: torch.Tensor
    weights: torch.Tensor
    dilation: int
    padding: int
    stride: int
    bias: torch.Tensor

    def to(self, device: str) -> _Bundle:
        return _Bundle(
            self.channels.to(device),
            self.weights.to(device),
            self.dilation,
            self.padding,
            self.stride,
            self.bias.to(device),
        )

    def outputs(self, signal: torch.Tensor) -> torch.Tensor:
        """(n, kernels, places): what each kernel gives at every place."""
        convolve = functional.conv2d if signal.ndim == 4 else functional.conv1d
        return convolve(
            signal[:, self.channels],
            self.weights,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
        ).flatten(2)


def _draw_bundle(
    size: int, channels: int, space: tuple[int, ...], rng: np.random.Generator
) -> _Bundle:
    room = min(space)
    lengths = [k for k in ((7, 9, 11) if len(space) == 1 else (3, 5, 7)) if k <= room] or [room]
    length = int(rng.choice(lengths))
    # Dilations and numbers of channels are drawn on a logarithmic scale, as ROCKET does.
    farthest = np.log2((room - 1) / (length - 1)) if length > 1 else 0.0
    dilation = int(2 ** rng.uniform(0, farthest))
    used = int(2 ** rng.uniform(0, np.log2(min(channels, 9) + 1)))
    weights = rng.standard_normal((size, used, *(length for _ in space)))
    if length > 1 and rng.random() < 0.5:
        weights -= weights.mean(tuple(range(2, weights.ndim)), keepdims=True)
    padding = (length - 1) * dilation // 2 if rng.random() < 0.5 else 0
    return _Bundle(
        torch.from_numpy(np.sort(rng.choice(channels, used, replace=False))),
        torch.from_numpy(weights.astype(np.float32)),
        dilation,
        padding,
        1 if len(space) == 1 else max(1, room // 16),  # about 16 by 16 places of an image will do
        torch.zeros(size),
    )


def _quantile_each(outputs: torch.Tensor, parts: np.ndarray) -> torch.Tensor:
    """For each kernel one quantile of all its outputs (n, kernels, places)."""
    ordered = outputs.transpose(0, 1).flatten(1).sort(dim=1).values
    place = torch.from_numpy(parts * ordered.shape[1]).long().to(ordered.device)
    return ordered.gather(1, place[:, None])[:, 0]


@torch.no_grad()
def _by_batch(
    windows: Windows, device: str, features: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Features of all windows in order, on the device; batches are small enough to stay in a core's cache."""
    largest = 2**18 if torch.device(device).type == "cpu" else 2**22
    size = max(16, largest // int(np.prod(windows.shape)))
    parts = [
        features(_real_signal(windows.select(slice(first, first + size)), device))
        for first in range(0, len(windows), size)
    ]
    return torch.cat(parts)


def _real_signal(windows: Windows, device: str) -> torch.Tensor:
    """All windows as real numbers; complex ones as real parts, imaginary parts and magnitudes."""
    signal = torch.from_numpy(to_real(windows.signal)).to(device)
    if not windows.recorded.is_complex:
        return signal
    real, imaginary = signal[:, ::2], signal[:, 1::2]
    return torch.cat([real, imaginary, torch.hypot(real, imaginary)], dim=1)


def _pooled(values: torch.Tensor, parts: int, most: int) -> torch.Tensor:
    """Averages neighbours along the channels, each part (real, imaginary, ...) for itself."""
    channels = values.shape[1] // parts
    kept = max(1, min(channels, most // parts))
    split = values.reshape(-1, parts, channels, values.shape[2])
    if kept < channels:
        # Edges as even as whole numbers allow; the means come from one small product.
        group = torch.arange(channels, device=values.device) * kept // channels
        mean = functional.one_hot(group, kept).to(values.dtype)
        split = torch.einsum("npcf,ck->npkf", split, mean / mean.sum(0))
    return split.flatten(1, 2)


def _spectrum(signal: torch.Tensor) -> torch.Tensor:
    """Log power of each channel in bands: (n, channels, bands)."""
    centred = signal - signal.mean(-1, keepdim=True)
    taper = torch.hann_window(signal.shape[-1], device=signal.device)
    power = torch.fft.rfft(centred * taper, norm="ortho").abs() ** 2
    edges = _edges(power.shape[-1])
    bands = [power[..., low:high].mean(-1) for low, high in pairwise(edges)]
    return _log_power(torch.stack(bands, dim=-1))


def _edges(count: int) -> list[int]:
    """Edges of at most `BINS` bands: the lower half single frequencies, the rest ever broader.

    >>> _edges(65)[:3], _edges(65)[-3:], len(_edges(65))
    ([0, 1, 2], [55, 60, 65], 33)
    """
    if count <= BINS:
        return list(range(count + 1))
    low = BINS // 2
    above = np.geomspace(low, count, BINS - low + 1).round().astype(int)
    return [*range(low), *np.unique(above).tolist()]


def _image_spectrum(image: torch.Tensor) -> torch.Tensor:
    """Log power in at most 8 by 4 cells of frequencies down and across: (n, channels, cells)."""
    centred = image - image.mean((-2, -1), keepdim=True)
    power = torch.fft.fftshift(torch.fft.rfft2(centred, norm="ortho").abs() ** 2, dim=-2)
    cells = (min(8, power.shape[-2]), min(BINS // 8, power.shape[-1]))
    return _log_power(functional.adaptive_avg_pool2d(power, cells).flatten(2))


def _log_power(power: torch.Tensor) -> torch.Tensor:
    """The logarithm, with a floor far below the mean: what is there is rounding, not signal."""
    return torch.log(power + 1e-8 * power.mean(-1, keepdim=True) + 1e-20)


def _levels(signal: torch.Tensor) -> torch.Tensor:
    """Quantiles, mean and the deviation of first differences: (n, channels, 7)."""
    flat = signal.flatten(2)
    at = torch.tensor(QUANTILES, device=signal.device)
    steps = torch.diff(signal, dim=-1, prepend=signal[..., :1]).flatten(2)
    middle = [flat.mean(-1), steps.std(-1, correction=0)]
    return torch.cat([torch.quantile(flat, at, dim=-1).movedim(0, -1), torch.stack(middle, -1)], -1)


def _correlations(signal: torch.Tensor) -> torch.Tensor:
    """Correlation of every two channels: (n, pairs); 0 where a channel is constant."""
    centred = signal - signal.mean(-1, keepdim=True)
    unit = centred / centred.norm(dim=-1, keepdim=True).clamp_min(1e-20)
    both = unit @ unit.transpose(1, 2)
    first, second = np.triu_indices(signal.shape[1], 1)
    return both[:, torch.from_numpy(first), torch.from_numpy(second)]
