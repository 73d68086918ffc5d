"""AAE: an autoencoder trained so that frozen classifiers predict what is kept and not what is hidden.

In this order: the network, the losses, settings, the method, its training. ObscureNet's tables have it
as a baseline. The paper calls the classifiers regularisers.

Reference
---------
M. Malekzadeh, R. Clegg, A. Cavallaro, H. Haddadi: Mobile Sensor Data Anonymization. IoTDI 2019.
"The authors' code" is github.com/mmalekzadeh/motion-sense.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from sensorveil.classifiers import CNN
from sensorveil.data.windows import UNKNOWN, DeviceWindows, Windows
from sensorveil.diffusion.batched import applied
from sensorveil.files import part_of
from sensorveil.methods.base import (
    RECONSTRUCTION,
    Capabilities,
    Obfuscator,
    reconstruction_scores,
)
from sensorveil.methods.policy import Policy
from sensorveil.methods.settings import Settings
from sensorveil.train import Gather, Loss, TrainConfig, seeded, train_network

# The network.

SHRINK = 4
"""Samples that become one number of the latent code, per channel."""


class AnonymizingAutoencoder(nn.Module):
    """Windows to a quarter of their numbers and back: three convolutions and one each way.

    Kernels reach over all channels, as those of the authors' network do with its two. A length that
    is not a multiple of four is padded with its last sample, and cut again at the end.

    Parameters
    ----------
    channels
        Channels of a window.
    width
        Filters of each convolution.

    Examples
    --------
    >>> network = AnonymizingAutoencoder(channels=2, width=8)
    >>> network.encode(torch.zeros(3, 2, 30)).shape, network(torch.zeros(3, 2, 30)).shape
    (torch.Size([3, 2, 8]), torch.Size([3, 2, 30]))
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *_block(channels, width),
            *_block(width, width),
            nn.MaxPool1d(2),
            *_block(width, width),
            nn.MaxPool1d(2),
            nn.Conv1d(width, channels, 5, padding=2, bias=False),
            nn.BatchNorm1d(channels),
        )
        self.decoder = nn.Sequential(
            *_block(channels, width),
            *_upsampling_block(width),
            *_upsampling_block(width),
            nn.Conv1d(width, channels, 5, padding=2),
        )

    def encode(self, signal: torch.Tensor) -> torch.Tensor:
        """The latent code: (n, channels, length / 4), rounded up."""
        missing = -signal.shape[-1] % SHRINK
        if missing:
            signal = torch.cat([signal, signal[..., -1:].expand(-1, -1, missing)], dim=-1)
        latent: torch.Tensor = self.encoder(signal)
        return latent

    def decode(self, latent: torch.Tensor, length: int) -> torch.Tensor:
        """Windows of that length from latent codes."""
        signal: torch.Tensor = self.decoder(latent)
        return signal[..., :length]

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """The anonymised windows, of the same shape."""
        return self.decode(self.encode(signal), signal.shape[-1])


# No bias before a batch norm: it cancels there, its gradient is rounding error, and Adam makes
# steps of full size out of that.
def _block(inputs: int, width: int) -> tuple[nn.Module, ...]:
    return nn.Conv1d(inputs, width, 5, padding=2, bias=False), nn.BatchNorm1d(width), nn.ReLU()


def _upsampling_block(width: int) -> tuple[nn.Module, ...]:
    doubling = nn.ConvTranspose1d(width, width, 5, 2, padding=2, output_padding=1, bias=False)
    return doubling, nn.BatchNorm1d(width), nn.ReLU()


# Losses of the hidden attributes' classifiers.


def uniform_loss(scores: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of a classifier's output against equal probabilities for all classes.

    For two classes it is the binary cross-entropy against 0.5. It is smallest, at the logarithm of
    the number of classes, where the classifier cannot decide.

    >>> round(float(uniform_loss(torch.zeros(5, 3)).exp()), 4)
    3.0
    """
    return -scores.log_softmax(1).mean()


def not_the_one_loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """-sum_k y_k log(1 - p_k) - log(1 - max_k p_k): neither the true class nor any other is sure.

    For a label below 0, which is unknown, the first term is left out. The authors clip p; here
    log(1 - p) is formed from the scores, so that a classifier that is very sure has a gradient too.

    >>> half = torch.tensor([[0.0, 0.0]])
    >>> round(float(not_the_one_loss(half, torch.tensor([0])).exp()), 4)  # 1 / 0.5 twice
    4.0
    """
    true = _log_of_others(scores, labels.clamp(min=0)) * (labels >= 0)
    surest = _log_of_others(scores, scores.argmax(1))
    return -(true + surest).mean()


def _log_of_others(scores: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """log(1 - p) of the chosen class of each row."""
    others = scores.scatter(1, chosen.unsqueeze(1), -math.inf)
    return others.logsumexp(1) - scores.logsumexp(1)


# Settings.


class AAESettings(Settings):
    """Settings of the AAE.

    Parameters
    ----------
    width
        Filters of the autoencoder's convolutions.
    loss
        The hidden attributes' classifiers are to give equal probabilities to all classes
        ("uniform"), or anything but the true class and none for sure ("not-the-one").
    loss_weights
        Weights of the squared error, the hidden attributes and the kept ones.
    latent_regulariser
        Whether hidden attributes are also classified from the latent code. The autoencoder is
        trained to copy first, for `warmup_epochs`.
    rounds
        In each round the classifiers are trained on the latest output (at first on raw windows),
        and then the autoencoder on them.
    epochs, patience, batch_size, learning_rate
        Of the autoencoder. It stops when `patience` epochs brought nothing better on the
        validation windows.
    validation_share
        Share of the training windows, in whole recordings, that validate.
    regulariser_width, regulariser_epochs, regulariser_learning_rate
        Of the classifiers.
    """

    width: PositiveInt = 64
    loss: Literal["uniform", "not-the-one"] = "uniform"
    loss_weights: tuple[NonNegativeFloat, NonNegativeFloat, NonNegativeFloat] = (1.0, 1.0, 2.0)
    latent_regulariser: bool = False
    rounds: PositiveInt = 1
    warmup_epochs: PositiveInt = 32
    epochs: PositiveInt = 100
    patience: PositiveInt = 15
    batch_size: PositiveInt = 512
    learning_rate: PositiveFloat = 2e-3
    validation_share: float = Field(0.1, gt=0, lt=1)
    regulariser_width: PositiveInt = 32
    regulariser_epochs: PositiveInt = 50
    regulariser_learning_rate: PositiveFloat = 2e-3


class AAE(Obfuscator):
    """Reconstructs windows so that classifiers of the hidden attributes cannot decide.

    The same window always gives the same output. So an attacker who has the run can train on its
    output, and ObscureNet shows that such attackers predict the hidden attribute again.

    Preset `paper` is the authors' gender variant, `identity` the form that the paper is named for.
    From their code: 64 (100) filters, weights [1, 1, 2] ([0.01, 1, 2]), 1 (8) rounds, epochs,
    patience and warm-up. What differs, or is open:

    - Batches of 512, for a GPU; theirs have 128.
    - In `paper` 10 epochs of the classifiers, a learning rate of 5e-4 and patience 30: with their
      50 and 15 the classifiers grow so sure that the activity is lost on MotionSense.
    - The classifiers are CNNs with their 32 filters and four convolutions for their five, without
      class weights, and with one cycle of the learning rate instead of patience.
    - Kernels of five samples and ReLU in both forms; the identity form has three and SELU, one more
      convolution each way, and an L2 penalty.
    - Where the gender variant pools is open: as the identity form does.
    - The validation share and loss are open: a tenth, and the whole loss. So is the patience of the
      identity form: 6, as for its classifiers.
    - The first codes come from the autoencoder itself, trained to copy; theirs from another one.
    - The input is raw in every round; in their code it is the last output, although a device only
      ever has the raw window.
    - Terms of several kept or several hidden attributes are summed.

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> obfuscator = AAE(width=4, epochs=2, regulariser_epochs=1)
    >>> obfuscator.fit(windows, "activity", "gender").condition(windows).shape
    (96, 16)
    """

    name = "aae"
    summary = "an autoencoder trained against frozen classifiers"
    capabilities = Capabilities(random=False, modalities=("signal",))
    Settings = AAESettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {
            "width": 24,
            "warmup_epochs": 5,
            "epochs": 30,
            "patience": 6,
            "batch_size": 64,
            "regulariser_width": 24,
            "regulariser_epochs": 20,
            "regulariser_learning_rate": 4e-3,
        },
        "paper": {"regulariser_epochs": 10, "learning_rate": 5e-4, "patience": 30},
        "identity": {
            "width": 100,
            "loss": "not-the-one",
            "loss_weights": (0.01, 1.0, 2.0),
            "latent_regulariser": True,
            "rounds": 8,
            "epochs": 24,
            "patience": 6,
            "regulariser_epochs": 24,
        },
    }
    membership_score = RECONSTRUCTION
    settings: AAESettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        settings, keep, hide = self.settings, self.policy_.keep, self.policy_.hide
        validation = validation_windows(windows, (*keep, *hide), settings.validation_share, rng)
        self.metrics_["validation_windows"] = int(validation.sum())
        data = TrainingData.of(windows, (*keep, *hide), validation, self.device)
        latent_shape = (windows.shape[0], -(-windows.shape[1] // SHRINK))
        with seeded(self.seed):
            self.network_ = self._new_network()
            outputs = {name: self._new_classifier(name, windows.shape) for name in (*keep, *hide)}
            latents = {
                name: self._new_classifier(name, latent_shape)
                for name in (hide if settings.latent_regulariser else ())
            }
        loss = AnonymizingLoss(self.network_, outputs, latents, data, self.policy_, settings)
        if latents:
            epochs = settings.warmup_epochs
            self.metrics_["warmup_loss"] = self._train("warm-up", loss.copying, epochs, data)
        for turn in range(1, settings.rounds + 1):
            shown: Gather = data.raw.__getitem__
            if turn > 1:
                shown = self._applied(self.network_, data.raw).__getitem__
            final = [
                self._train_classifier(own, name, shown, data) for name, own in outputs.items()
            ]
            if latents:
                shown = self._applied(self.network_.encode, data.raw).__getitem__
                final += [
                    self._train_classifier(own, name, shown, data) for name, own in latents.items()
                ]
            self.metrics_[f"regulariser_loss_{turn}"] = final
            losses = self._train(f"round-{turn}", loss, settings.epochs, data)
            self.metrics_[f"validation_loss_{turn}"] = losses

    def _train(self, stage: str, loss: Loss, epochs: int, data: TrainingData) -> list[float]:
        """Train the autoencoder with Adam; returns the validation loss of each epoch."""
        settings, losses = self.settings, list[float]()

        def validate() -> float:
            losses.append(round(mean_loss(loss, data.validation), 5))
            return losses[-1]

        config = TrainConfig.adam(
            epochs, settings.batch_size, settings.learning_rate, settings.patience
        )
        train_network(
            f"{self.name} {stage}",
            self.network_,
            lambda index: loss(data.training[index]),
            len(data.training),
            config,
            self.seed,
            self.device,
            validate=validate,
        )
        return losses

    def _train_classifier(
        self, classifier: CNN, name: str, shown: Gather, data: TrainingData
    ) -> float:
        """Train a classifier on the windows whose class is known; returns the last loss."""
        settings, labels = self.settings, data.labels[name]
        known = data.training[labels[data.training] != UNKNOWN]
        losses = train_network(
            f"{self.name} classifier of {name}",
            classifier,
            lambda index: cross_entropy(classifier(shown(known[index])), labels[known[index]]),
            len(known),
            TrainConfig(
                settings.regulariser_epochs,
                settings.batch_size,
                settings.regulariser_learning_rate,
                weight_decay=1e-2,
                max_grad_norm=None,
            ),
            self.seed,
            self.device,
        )
        return round(losses[-1], 5)

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        return self._applied(self.network_, windows.on(self.device)).cpu().numpy()

    def _condition(self, windows: Windows) -> np.ndarray:
        codes = self._applied(self.network_.encode, windows.on(self.device))
        return codes.flatten(1).cpu().numpy()

    def _membership_scores(self, windows: Windows) -> np.ndarray:
        made = self._obfuscate(windows, {}, np.random.default_rng(0))
        return reconstruction_scores(windows, made)

    def _applied(self, network: Gather, windows: DeviceWindows) -> torch.Tensor:
        return applied(network, windows.__getitem__, len(windows), self.device)

    def _new_network(self) -> AnonymizingAutoencoder:
        return AnonymizingAutoencoder(self.hook_shape[0], self.settings.width).to(self.device)

    def _new_classifier(self, name: str, shape: tuple[int, ...]) -> CNN:
        width = self.settings.regulariser_width
        return CNN(shape, len(self.classes_[name]), width).to(self.device)

    def _state(self) -> dict[str, np.ndarray]:
        return {f"network.{k}": v.cpu().numpy() for k, v in self.network_.state_dict().items()}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.network_ = self._new_network().eval()
        weights = part_of(state, "network.")
        self.network_.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})


# Training.


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Windows and labels on the device, and positions to train on and to validate on."""

    raw: DeviceWindows
    labels: Mapping[str, torch.Tensor]
    training: torch.Tensor
    validation: torch.Tensor

    @classmethod
    def of(
        cls, windows: Windows, attributes: Sequence[str], validation: np.ndarray, device: str
    ) -> TrainingData:
        """Where no window validates, those that are trained on do."""
        labels = {
            name: torch.from_numpy(windows.codes(name).astype(np.int64)).to(device)
            for name in attributes
        }
        training, validating = (
            torch.from_numpy(np.flatnonzero(mask)).to(device)
            for mask in (~validation, validation if validation.any() else ~validation)
        )
        return cls(windows.on(device), labels, training, validating)


class AnonymizingLoss:
    """The weighted sum of squared error, hidden and kept terms, with frozen classifiers.

    Parameters
    ----------
    network
        The autoencoder.
    outputs, latents
        Classifiers of its output and of its code, by attribute.
    data, policy, settings
        Windows and labels, what is kept and hidden, and the weights.
    """

    def __init__(
        self,
        network: AnonymizingAutoencoder,
        outputs: Mapping[str, CNN],
        latents: Mapping[str, CNN],
        data: TrainingData,
        policy: Policy,
        settings: AAESettings,
    ) -> None:
        self.network, self.outputs, self.latents = network, outputs, latents
        self.data, self.policy, self.settings = data, policy, settings

    def __call__(self, index: torch.Tensor) -> torch.Tensor:
        """The loss of the windows at these positions."""
        error_weight, hidden_weight, kept_weight = self.settings.loss_weights
        signal = self.data.raw[index]
        code = self.network.encode(signal)
        output = self.network.decode(code, signal.shape[-1])
        total = error_weight * mse_loss(output.float(), signal)
        for name in self.policy.hide:
            total = total + hidden_weight * self._hidden(self.outputs[name](output), name, index)
        for name, classifier in self.latents.items():
            total = total + hidden_weight * self._hidden(classifier(code), name, index)
        for name in self.policy.keep:
            scores, labels = self.outputs[name](output).float(), self.data.labels[name][index]
            wrong = cross_entropy(scores, labels, ignore_index=UNKNOWN, reduction="sum")
            total = total + kept_weight * wrong / len(index)
        return total

    def _hidden(self, scores: torch.Tensor, name: str, index: torch.Tensor) -> torch.Tensor:
        if self.settings.loss == "uniform":
            return uniform_loss(scores.float())
        return not_the_one_loss(scores.float(), self.data.labels[name][index])

    def copying(self, index: torch.Tensor) -> torch.Tensor:
        """The squared error alone."""
        signal = self.data.raw[index]
        return mse_loss(self.network(signal).float(), signal)


@torch.no_grad()
def mean_loss(loss: Loss, positions: torch.Tensor, batch_size: int = 2048) -> float:
    """The mean loss of all windows at these positions.

    >>> mean_loss(lambda index: index.float().mean(), torch.arange(5), batch_size=2)
    2.0
    """
    total = sum(float(loss(index)) * len(index) for index in positions.split(batch_size))
    return total / len(positions)


def validation_windows(
    windows: Windows, attributes: Sequence[str], share: float, rng: np.random.Generator
) -> np.ndarray:
    """A mask of about that share of the windows: whole recordings, at random.

    A recording that alone holds a class of one of the attributes is not taken.
    """
    recordings, unit = np.unique(windows.recording, return_inverse=True)
    parts = []
    for name in attributes:
        codes = windows.codes(name)
        count = np.zeros((len(recordings), int(codes.max()) + 1), int)
        np.add.at(count, (unit[codes != UNKNOWN], codes[codes != UNKNOWN]), 1)
        parts.append(count[:, count.any(0)])
    counts = np.concatenate(parts, axis=1)
    remaining, size = counts.sum(0), np.bincount(unit)
    taken = np.zeros(len(recordings), bool)
    for one in rng.permutation(len(recordings)):
        if size[taken].sum() >= share * len(windows):
            break
        if (remaining > counts[one]).all():
            taken[one] = True
            remaining = remaining - counts[one]
    return taken[unit]
