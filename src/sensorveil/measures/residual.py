"""A ResNet18 that reads one attribute: the classifier of the CSI paper's experiments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sensorveil.data.windows import UNKNOWN, Scaling, Windows
from sensorveil.errors import Refusal
from sensorveil.measures.inference import input_shape
from sensorveil.nets.cnn import as_real
from sensorveil.nets.resnet import ResNet18
from sensorveil.nets.training import log_probabilities, train_classifier
from sensorveil.train import seeded


@dataclass(frozen=True)
class ResidualSettings:
    """Size and training; the defaults are for a GPU, where the paper says nothing."""

    width: int = 64
    epochs: int = 60
    batch: int = 128
    rate: float = 2e-3

    @classmethod
    def quick(cls) -> ResidualSettings:
        """For two cores."""
        return cls(width=8, epochs=30, batch=64, rate=4e-3)


class ResidualModel:
    """Reads one attribute, on windows in the units of those it is trained on.

    Nothing keeps it from learning its windows by heart: that is what the attack looks for.

    >>> signal = np.random.default_rng(0).normal(size=(64, 1, 32)).astype("float32")
    >>> windows = Windows.from_signal(signal, {"activity": [0, 1] * 32})
    >>> model = ResidualModel(ResidualSettings(width=4, epochs=2, batch=16))
    >>> model.fit(windows, "activity").log_probabilities(windows).shape
    (64, 2)
    """

    def __init__(
        self, settings: ResidualSettings | None = None, seed: int = 0, device: str = "cpu"
    ) -> None:
        self.settings = settings or ResidualSettings()
        self.seed, self.device = seed, device

    def fit(self, windows: Windows, attribute: str) -> ResidualModel:
        """Trains on all windows whose class is known."""
        if len(windows.shape) != 2:
            raise Refusal("this classifier takes signals, not images")
        windows = windows.select(windows.codes(attribute) != UNKNOWN)
        self.scaling_ = Scaling.of(windows)
        gather = windows.scaled(self.scaling_).on(self.device)
        labels = torch.from_numpy(windows.codes(attribute).astype(np.int64)).to(self.device)
        chosen = self.settings
        with seeded(self.seed):
            channels, classes = input_shape(windows)[0], len(windows.classes[attribute])
            self.net_ = ResNet18(channels, classes, chosen.width).to(self.device)
            self.losses_ = train_classifier(
                self.net_,
                lambda index: as_real(gather[index]),
                labels,
                epochs=chosen.epochs,
                batch=chosen.batch,
                rate=chosen.rate,
                seed=self.seed,
                what="classifier",
            )
        self.net_.eval()
        return self

    def log_probabilities(self, windows: Windows) -> np.ndarray:
        """Log-probability of each class for each window: (n, classes)."""
        gather = windows.scaled(self.scaling_).on(self.device)
        return log_probabilities(
            self.net_, lambda index: as_real(gather[index]), len(windows), batch=2048
        ).numpy()

    def predict(self, windows: Windows) -> np.ndarray:
        """The most likely class of each window."""
        return self.log_probabilities(windows).argmax(1)
