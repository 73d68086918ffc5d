"""The CSI paper's weak baseline: a complex variational autoencoder, told the class."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Capabilities
from sensorveil.methods.generator import ClassGenerator
from sensorveil.methods.guarantee import Guarantee
from sensorveil.methods.settings import Settings
from sensorveil.nets.complex_vae import ComplexVae
from sensorveil.train import TrainConfig, TrainingTarget, derived_seed, seeded, train

_GENERATOR = 25  # what a seed is for


class CsiVaeSettings(Settings):
    """Sizes in complex numbers, and training; the paper gives none of them."""

    width: int = 256
    latent: int = 32
    epochs: int = 200
    batch: int = 256
    rate: float = 1e-3
    reader_epochs: int = 40
    reader_rate: float = 1e-3

    def check(self) -> None:
        """Refuses what could not learn."""
        for name, value in vars(self).items():
            self.require(value > 0, name, "above 0")


class CsiVae(ClassGenerator):
    """Reads the kept classes, and decodes noise that it is told these classes of.

    >>> from sensorveil.methods.conformance import example_windows
    >>> made = CsiVae(epochs=1, reader_epochs=1)
    >>> made = made.fit(example_windows("complex"), "activity", "gender")
    >>> made.generate({"activity": "1"}, count=3, seed=0).signal.shape
    (3, 2, 32)
    """

    name = "csi-vae"
    summary = "windows that a complex variational autoencoder makes from the class that was read"
    capabilities = Capabilities(modalities=("signal", "complex"))
    Settings = CsiVaeSettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {
            "width": 64,
            "latent": 16,
            "epochs": 30,
            "batch": 64,
            "rate": 2e-3,
            "reader_epochs": 12,
            "reader_rate": 3e-3,
        },
        "paper": {},
    }
    settings: CsiVaeSettings

    def _learn(self, windows: Windows) -> Guarantee:
        chosen = self.settings
        self._train_reader(windows)
        net, gather, told = self._net, self._gather(windows), self._conditions(windows)
        player = TrainingTarget(net, lambda index: net.losses(gather(index), told[index]).mean())
        (self.metrics_["generator_loss"],) = train(
            "generator",
            [player],
            len(windows),
            TrainConfig(chosen.epochs, chosen.batch, chosen.rate),
            derived_seed(self.seed, _GENERATOR),
            self.device,
            self.checkpoint,
        )
        return Guarantee.none("every update saw the windows as they are, without clipping or noise")

    def _make(
        self, condition: torch.Tensor, weight: torch.Tensor, start: torch.Tensor, seed: int
    ) -> torch.Tensor:
        if start.shape[-1] != self.shape_[-1]:
            raise Refusal(f"{self.name} makes windows of {self.shape_[-1]} samples, and no others")
        chance = torch.Generator().manual_seed(seed)  # it needs fewer numbers than there are
        latent = torch.randn(len(condition), 2, self.settings.latent, generator=chance)
        return self._net.decoded(latent.to(start), condition)

    def _errors(
        self, x: torch.Tensor, condition: torch.Tensor, chance: torch.Generator
    ) -> torch.Tensor:
        with seeded(int(torch.randint(2**31, (), generator=chance))):
            return self._net.losses(x, condition)

    def _reader_course(self) -> TrainConfig:
        chosen = self.settings
        return TrainConfig(chosen.reader_epochs, chosen.batch, chosen.reader_rate)

    def _nets(self) -> dict[str, nn.Module]:
        channels, length = self.shape_
        with seeded(derived_seed(self.seed, _GENERATOR)):
            net = ComplexVae(
                channels, length, sum(self._sizes()), self.settings.width, self.settings.latent
            )
        return {"generator": net}

    @property
    def _net(self) -> ComplexVae:
        return cast(ComplexVae, self.nets_["generator"])
