"""How similar generated windows are to real ones: SSIM and FID, equations (19) and (20).

The CSI paper compares windows as images. An image here is a spectrogram: the power of all channels
together over frequency and time, in decibels. Of complex channels it is that of the magnitude, as a
Wi-Fi card rotates the phases of each packet at random.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import torch
from torch import nn

from sensorveil.classifiers import CNN, Classifier, ClassifierSettings
from sensorveil.data.windows import Windows, batches
from sensorveil.errors import Refusal
from sensorveil.files import written_file

_FLOOR = 1e-12
"""Of power, so that silence has decibels."""


def spectrograms(signal: np.ndarray) -> np.ndarray:
    """Power in decibels, (n, frequencies, times), of windows (n, channels, length).

    Frames are a quarter of the window long, with a Hann window and a hop of an eighth of a frame.
    The mean of each channel is subtracted.

    >>> spectrograms(np.zeros((3, 30, 64), np.complex64)).shape
    (3, 9, 25)
    """
    magnitude = np.abs(signal) if np.iscomplexobj(signal) else signal
    length = magnitude.shape[-1]
    if length < 8:
        raise Refusal(f"a spectrogram needs windows of 8 samples or more; these have {length}")
    frame = length // 4
    centred = torch.from_numpy(magnitude - magnitude.mean(-1, keepdims=True, dtype=np.float64))
    frames = torch.stft(
        centred.flatten(0, 1),
        frame,
        hop_length=max(1, frame // 8),
        window=(math.pi * (torch.arange(frame, dtype=torch.float64) + 0.5) / frame).sin() ** 2,
        center=False,
        return_complex=True,
    )
    power = frames.abs().square().unflatten(0, magnitude.shape[:2]).mean(1)
    return (10 * (power + _FLOOR).log10()).numpy()


def ssim(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Equation (19) for pairs of images (n, height, width) from 0 to 1, by torchmetrics.

    The Gaussian has the usual standard deviation of 1.5 pixels, or what fits into smaller images.

    >>> image = np.random.default_rng(0).random((1, 12, 20))
    >>> round(float(ssim(image, image)[0]), 6), float(ssim(image, 1 - image)[0]) < 0
    (1.0, True)
    """
    from torchmetrics.functional.image import structural_similarity_index_measure

    sigma = min(1.5, (min(first.shape[1:]) - 1) / 3.5)
    x, y = (torch.from_numpy(np.asarray(one, np.float64))[:, None] for one in (first, second))
    values = structural_similarity_index_measure(
        x, y, sigma=sigma, data_range=1.0, reduction="none"
    )
    assert isinstance(values, torch.Tensor)
    return values.reshape(-1).numpy()


class Likeness:
    """SSIM and FID of generated windows.

    FID needs a network. The usual one was trained on photographs; this one is a classifier trained
    on spectrograms of the real windows given to `fit`, and its last hidden layer is used. So values
    are comparable only for the same network: `save` it.

    Parameters
    ----------
    attribute
        The class that the network is trained to predict, and within which SSIM compares.
    settings, seed, device
        Of the network, as in `Classifier`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> signal = rng.normal(size=(64, 2, 32)) * (1 + np.arange(64) % 2)[:, None, None]
    >>> windows = Windows.from_signal(signal, {"activity": np.arange(64) % 2})
    >>> settings = ClassifierSettings(width=4, epochs=2, batch_size=16)
    >>> likeness = Likeness("activity", settings).fit(windows)
    >>> round(likeness.fid(windows, windows), 6)
    0.0
    """

    def __init__(
        self,
        attribute: str,
        settings: ClassifierSettings | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.attribute, self.device = attribute, device
        self._classifier = Classifier(settings, seed, device)

    def fit(self, windows: Windows) -> Likeness:
        """Learn the range of spectrograms, and the network."""
        self.range_ = np.quantile(spectrograms(windows.signal), [0.01, 0.99])
        self._classifier.fit(self._image_windows(windows), self.attribute)
        return self

    def ssim(
        self, real: Windows, generated: Windows, rng: np.random.Generator | None = None
    ) -> float:
        """Mean SSIM over generated windows.

        Parameters
        ----------
        real, generated
            The windows to compare.
        rng
            Draws a real window of the same class for each generated one. The best to expect is then
            the similarity of real windows of one class, not 1. Without it, each generated window is
            compared with the real one at its position.
        """
        if rng is None and len(real) != len(generated):
            raise Refusal("as many real windows are needed as were generated")
        places = np.arange(len(generated)) if rng is None else self._drawn(real, generated, rng)
        return float(ssim(self.images(generated), self.images(real)[places]).mean())

    def _drawn(self, real: Windows, generated: Windows, rng: np.random.Generator) -> np.ndarray:
        """The position of a real window of the same class for each generated one, (n,)."""
        codes, wanted = real.codes(self.attribute), generated.codes(self.attribute)
        places = np.empty(len(generated), int)
        for code in np.unique(wanted):
            candidates = np.flatnonzero(codes == code)
            if not len(candidates):
                raise Refusal(f"no real window has class {code} of '{self.attribute}'")
            places[wanted == code] = rng.choice(candidates, size=int((wanted == code).sum()))
        return places

    def fid(self, real: Windows, generated: Windows) -> float:
        """Equation (20) between the features of both, by torchmetrics."""
        from torchmetrics.image.fid import FrechetInceptionDistance

        if min(len(real), len(generated)) < 2:
            raise Refusal("FID needs two windows or more of each kind")
        metric = FrechetInceptionDistance(feature=self._feature_network()).to(self.device)
        for windows, is_real in ((real, True), (generated, False)):
            images = torch.from_numpy(
                self._image_windows(windows).scaled(self._classifier.scaling_).signal
            )
            for rows in batches(len(images), self.device):
                metric.update(images[rows].double().to(self.device), real=is_real)
        return max(0.0, float(metric.compute()))

    def images(self, windows: Windows) -> np.ndarray:
        """Spectrograms as images from 0 to 1, (n, frequencies, times)."""
        low, high = self.range_
        return np.clip((spectrograms(windows.signal) - low) / max(high - low, _FLOOR), 0, 1)

    def _image_windows(self, windows: Windows) -> Windows:
        labels = {self.attribute: windows.codes(self.attribute)}
        return Windows.from_signal(self.images(windows)[:, None], labels)

    def _feature_network(self) -> nn.Module:
        """All layers of the classifier but the last, in double precision."""
        network = self._classifier.network_
        assert isinstance(network, CNN)
        hidden = copy.deepcopy(nn.Sequential(network.features, network.head[:-1])).double().eval()
        hidden.num_features = network.head[-1].in_features  # torchmetrics looks for it
        return hidden.requires_grad_(False)

    def save(self, path: Path | str) -> None:
        """Write a .safetensors file, with which values of other windows can be compared."""
        from safetensors.numpy import save_file

        arrays = {**self._classifier.state(), "range": self.range_}
        with written_file(path) as place:
            save_file({name: np.ascontiguousarray(one) for name, one in arrays.items()}, place)

    def load(self, path: Path | str, windows: Windows) -> Likeness:
        """Read what `save` wrote, for windows of the same shape and classes."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            state = load_file(path)
        except (SafetensorError, OSError) as error:
            raise Refusal(f"{path} is not a whole safetensors file: {error}") from None
        if "range" not in state:
            raise Refusal(f"{path} is no network of spectrograms; name another file")
        self.range_ = state.pop("range")
        shape = self._image_windows(windows.select(slice(0, 1))).shape
        try:
            self._classifier.restore(state, shape, len(windows.classes[self.attribute]))
        except (LookupError, RuntimeError) as error:
            raise Refusal(f"{path} does not fit these windows ({error})") from None
        return self
