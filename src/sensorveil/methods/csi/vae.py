"""The CSI paper's weak baseline ("CVAE" in table I): a complex conditional autoencoder.

Sohn, Lee and Yan, Learning Structured Output Representation using Deep Conditional Generative
Models (2015). The CSI paper gives no sizes.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field
from torch import nn

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Capabilities
from sensorveil.methods.csi.class_generator import ClassGenerator
from sensorveil.methods.csi.model import ComplexLinear
from sensorveil.methods.guarantee import Guarantee
from sensorveil.methods.settings import Settings
from sensorveil.train import TrainConfig, derived_seed, seeded, train_network
from sensorveil.vae import kl_divergence

_GENERATOR_SEED = 25


class ComplexVae(nn.Module):
    """Windows through `latent` complex numbers and back, conditioned on the class.

    >>> network = ComplexVae(channels=3, length=16, classes=4, width=8, latent=5)
    >>> rebuilt, mean, log_variance = network(torch.randn(2, 6, 16), torch.eye(4)[:2])
    >>> rebuilt.shape, mean.shape
    (torch.Size([2, 6, 16]), torch.Size([2, 2, 5]))
    """

    def __init__(
        self,
        channels: int,
        length: int,
        classes: int,
        width: int,
        latent: int,
        is_complex: bool = True,
    ) -> None:
        super().__init__()
        self.shape, self.is_complex = (channels, length), is_complex
        size = channels * length
        self.encoder = nn.Sequential(ComplexLinear(size + classes, width), nn.SiLU())
        self.mean = ComplexLinear(width, latent)
        self.log_variance = ComplexLinear(width, latent).zero_init()
        self.decoder = nn.Sequential(
            ComplexLinear(latent + classes, width), nn.SiLU(), ComplexLinear(width, size)
        )

    def forward(
        self, x: torch.Tensor, condition: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Windows rebuilt from one draw of the latent numbers, and their mean and log-variance."""
        if not self.is_complex:
            x = torch.stack([x, torch.zeros_like(x)], dim=2).flatten(1, 2)
        pairs = x.unflatten(1, (-1, 2)).movedim(2, 1).flatten(2)  # (n, 2, channels length)
        hidden = self.encoder(torch.cat([pairs, _as_pairs(condition)], dim=2))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        latent = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decode(latent, condition), mean, log_variance

    def decode(self, latent: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Windows of latent numbers (n, 2, latent)."""
        pairs = self.decoder(torch.cat([latent, _as_pairs(condition)], dim=2))
        x = pairs.unflatten(2, self.shape).movedim(1, 2).flatten(1, 2)
        return x if self.is_complex else x[:, ::2]

    def losses(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """The negative evidence lower bound of each window, per sample."""
        rebuilt, mean, log_variance = self(x, condition)
        error = (x - rebuilt).square().sum((1, 2)) / 2
        divergence = kl_divergence(mean.flatten(1), log_variance.flatten(1))
        return (error + divergence) / x[0].numel()


def _as_pairs(condition: torch.Tensor) -> torch.Tensor:
    """A condition (n, size) as complex numbers without imaginary part."""
    return torch.stack([condition, torch.zeros_like(condition)], dim=1)


class CsiVaeSettings(Settings):
    """Settings of `CsiVae`.

    Parameters
    ----------
    width, latent
        Complex numbers of the hidden layers and of the code.
    epochs, batch_size, learning_rate
        As in `TrainConfig`, for the autoencoder and the classifier.
    classifier_epochs
        Epochs of the classifier of the kept attributes.
    """

    width: int = Field(default=256, gt=0)
    latent: int = Field(default=32, gt=0)
    epochs: int = Field(default=200, gt=0)
    batch_size: int = Field(default=256, gt=0)
    learning_rate: float = Field(default=1e-3, gt=0)
    classifier_epochs: int = Field(default=40, gt=0)


class CsiVae(ClassGenerator):
    """Decodes noise, conditioned on the predicted kept classes.

    >>> from sensorveil.methods.conformance import example_windows
    >>> method = CsiVae(epochs=1, classifier_epochs=1)
    >>> method = method.fit(example_windows("complex"), "activity", "gender")
    >>> method.generate({"activity": "1"}, count=3, seed=0).signal.shape
    (3, 2, 32)
    """

    name = "csi-vae"
    summary = "windows of the predicted class, from a complex VAE"
    capabilities = Capabilities(modalities=("signal", "complex"))
    Settings = CsiVaeSettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {
            "width": 64,
            "latent": 16,
            "epochs": 30,
            "batch_size": 64,
            "learning_rate": 3e-3,
            "classifier_epochs": 12,
        },
        "paper": {},
    }
    settings: CsiVaeSettings

    def _train(self, windows: Windows) -> Guarantee:
        settings, network = self.settings, self.network_
        config = TrainConfig(settings.epochs, settings.batch_size, settings.learning_rate)
        self._train_classifier(windows, replace(config, epochs=settings.classifier_epochs))
        signals, conditions = windows.on(self.device), self._conditions(self._codes(windows))
        self.metrics_["generator_loss"] = train_network(
            "generator",
            network,
            lambda index: network.losses(signals[index], conditions[index]).mean(),
            len(windows),
            config,
            derived_seed(self.seed, _GENERATOR_SEED),
            self.device,
            self.checkpoint,
        )
        return Guarantee.none("every update saw the windows as they are, without clipping or noise")

    def _sample(
        self,
        condition: torch.Tensor,
        guidance: torch.Tensor,
        noise: torch.Tensor,
        generator: torch.Generator,
    ) -> torch.Tensor:
        if noise.shape[-1] != self.shape_[-1]:
            raise Refusal(f"{self.name} makes windows of {self.shape_[-1]} samples, and no others")
        latent = torch.randn(len(condition), 2, self.settings.latent, generator=generator)
        return self.network_.decode(latent.to(noise), condition)

    def _losses(
        self, x: torch.Tensor, condition: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        with seeded(int(torch.randint(2**31, (), generator=generator))):
            return self.network_.losses(x, condition)

    def _build_networks(self) -> dict[str, nn.Module]:
        channels, length = self.shape_
        size = (sum(self._class_counts()), self.settings.width, self.settings.latent)
        with seeded(derived_seed(self.seed, _GENERATOR_SEED)):
            self.network_ = ComplexVae(channels, length, *size, is_complex=self.complex_)
        return {"generator": self.network_}
