"""How like real windows generated ones are: SSIM within a class, and FID by a network of ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.files import written_file
from sensorveil.measures.inference import Classifier, ClassifierSettings, input_shape
from sensorveil.measures.spectra import as_images, frechet_distance, spectrograms, ssim
from sensorveil.nets.cnn import CNN


class Likeness:
    """Scores of generated windows, from what was learnt of real ones.

    FID takes features of a network. The usual one was trained on photographs; this one reads the
    class from spectrograms of the real windows given to `fit`, and its last hidden layer is taken.
    So values are comparable only where the network is the same: `save` it.

    >>> generator = np.random.default_rng(0)
    >>> signal = generator.normal(size=(64, 2, 32)) * (1 + np.arange(64) % 2)[:, None, None]
    >>> windows = Windows.from_signal(signal, {"activity": np.arange(64) % 2})
    >>> settings = ClassifierSettings(width=4, epochs=2, batch=16)
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
        self._model = Classifier(settings, seed, device)

    def fit(self, windows: Windows) -> Likeness:
        """Learns the scale of spectrograms, and the network that reads the class from them."""
        self.scale_ = np.quantile(spectrograms(windows.signal), np.linspace(0, 1, 101))
        self._model.fit(self._pictures(windows), self.attribute)
        return self

    def ssim(self, real: Windows, made: Windows, rng: np.random.Generator | None = None) -> float:
        """Equation (19), the mean over generated windows, each beside a real one of its class.

        Nothing says which real window a generated one should be like, so one of the class is
        drawn. The best to be had is therefore what real windows of a class have among themselves,
        not 1. Without a generator of chance each has its own original at the same place.
        """
        if rng is None and len(real) != len(made):
            raise Refusal("as many real windows are needed as were made of them")
        beside = np.arange(len(made)) if rng is None else self._drawn(real, made, rng)
        return float(ssim(self._images(made), self._images(real)[beside]).mean())

    def _drawn(self, real: Windows, made: Windows, rng: np.random.Generator) -> np.ndarray:
        """A real window of the class of each that was made, (n,)."""
        codes, wanted = real.codes(self.attribute), made.codes(self.attribute)
        beside = np.empty(len(made), int)
        for code in np.unique(wanted):
            there = np.flatnonzero(codes == code)
            if not len(there):
                raise Refusal(f"no real window has class {code} of '{self.attribute}'")
            mine = wanted == code
            beside[mine] = rng.choice(there, size=int(mine.sum()))
        return beside

    def fid(self, real: Windows, made: Windows) -> float:
        """Equation (20) between the features of both."""
        return frechet_distance(self.features(real), self.features(made))

    def features(self, windows: Windows) -> np.ndarray:
        """What the network makes of each window's spectrogram, before it decides: (n, 64)."""
        net = self._model.net_
        assert isinstance(net, CNN)
        last = nn.Sequential(net.features, net.head[:-1]).eval()
        pictures = self._pictures(windows).scaled(self._model.scaling_).on(self.device)
        parts = []
        with torch.no_grad():
            for first in range(0, len(windows), 2048):
                index = torch.arange(first, min(first + 2048, len(windows)), device=self.device)
                parts.append(last(pictures[index]).float().cpu())
        return torch.cat(parts).numpy()

    def save(self, path: Path | str) -> None:
        """Writes all that was learnt to a .safetensors file: with it, values can be compared."""
        from safetensors.numpy import save_file

        arrays = {**self._model.state(), "scale": self.scale_}
        with written_file(path) as place:
            save_file({name: np.ascontiguousarray(one) for name, one in arrays.items()}, place)

    def load(self, path: Path | str, windows: Windows) -> Likeness:
        """What `save` wrote; `windows` have the shape and the classes of those it learnt from."""
        state = _read(Path(path))
        if "scale" not in state:
            raise Refusal(f"{path} is no network of spectrograms; name another file")
        self.scale_ = state["scale"]
        shape = input_shape(self._pictures(windows.select(slice(0, 1))))
        try:
            self._model.restore(state, shape, len(windows.classes[self.attribute]))
        except (LookupError, RuntimeError) as error:
            raise Refusal(f"{path} does not fit these windows ({error})") from None
        return self

    def _images(self, windows: Windows) -> np.ndarray:
        return as_images(spectrograms(windows.signal), self.scale_)

    def _pictures(self, windows: Windows) -> Windows:
        """Spectrograms as windows of images, with the labels."""
        labels = {self.attribute: windows.codes(self.attribute)}
        return Windows.from_signal(self._images(windows)[:, None], labels)


def _read(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise Refusal(f"{path} is not a whole safetensors file: {error}") from None
