"""Blinder: a conditional variational autoencoder, trained against discriminators of its code.

In this order: networks (section 4.1), losses (section 4.2), settings, central training and
anonymisation (section 5.2). `sensorveil.federated` has algorithm 1, which trains the same networks
where the data stays.

Reference
---------
X. Yang, O. Ardakanian: Blinder: End-to-end Privacy Protection in Sensing Systems via Personalized
Federated Learning. arXiv:2209.12046, 2022.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, Self, cast

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.func import functional_call

from sensorveil.classifiers import Classifier
from sensorveil.data.windows import UNKNOWN, Windows, batches, joint_classes
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.methods.base import (
    RECONSTRUCTION,
    Capabilities,
    Obfuscator,
    reconstruction_scores,
)
from sensorveil.methods.settings import ClassifierGroup, Settings
from sensorveil.train import TrainConfig, derived_seed, seeded, train_network
from sensorveil.vae import kl_divergence, one_hot, reparameterise

Weights = Mapping[str, Tensor]
"""Weights of a `BlinderNetwork` by name, as in its state."""

CLASSIFIER_SEED, NETWORK_SEED, TRAINING_SEED = 1, 2, 3
_BATCH_SIZE = 4096  # windows that go through the networks at once


# Section 4.1: the networks.

KERNEL, STRIDE = 5, 2
_LOG_POWER_SCALE = 10.0  # Adam moves a weight by its learning rate, and log-powers have far to go


class NetworkSettings(Settings):
    """Sizes of the networks.

    Parameters
    ----------
    hidden_sizes
        The encoder's four hidden layers, as in the authors' code; the decoder has them in reverse.
    convolutional, filters
        Whether the outer two layers are convolutions, as in the paper on MotionSense, or dense, as
        on MobiAct; and the filters of the first, while the second has twice as many.
    latent_size
        Numbers in the code Z.
    """

    hidden_sizes: tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt] = (512, 512, 256, 128)
    convolutional: bool = True
    filters: PositiveInt = 32
    latent_size: PositiveInt = 25


class BlinderNetwork(nn.Module):
    """Encoder, decoder, and a discriminator for each hidden attribute.

    Parameters
    ----------
    channels, length
        Shape of a window.
    num_kept, num_hidden
        Number of kept classes, and of classes of each hidden attribute.
    settings, discriminator_sizes
        Hidden layers; the discriminators' are those of the authors' code.
    texture
        Whether the power of what the decoder leaves out is learnt.

    Examples
    --------
    >>> sizes = NetworkSettings(filters=8)
    >>> network = BlinderNetwork(2, 31, num_kept=4, num_hidden=(2, 3), settings=sizes)
    >>> mean, log_variance = network.encode(torch.zeros(5, 2, 31))
    >>> network.decode(mean, hidden=torch.zeros(5, 5), kept=torch.zeros(5, 4)).shape
    torch.Size([5, 2, 31])
    """

    def __init__(
        self,
        channels: int,
        length: int,
        num_kept: int,
        num_hidden: Sequence[int],
        settings: NetworkSettings,
        discriminator_sizes: Sequence[int] = (128, 128),
        texture: bool = False,
    ) -> None:
        super().__init__()
        self.num_kept, self.num_hidden = num_kept, tuple(num_hidden)
        self.latent_size, self.has_texture = settings.latent_size, texture
        code, condition = 2 * settings.latent_size, sum(num_hidden) + num_kept
        build = _convolutional_layers if settings.convolutional else _dense_layers
        self.encoder, self.decoder = build(
            channels, length, code, settings.latent_size + condition, settings
        )
        for part in (self.encoder, self.decoder):
            _init_for_relu(part)
        self.discriminators = nn.ModuleList(
            _mlp((settings.latent_size, *discriminator_sizes, classes)) for classes in num_hidden
        )
        if texture:
            self.texture = nn.Parameter(torch.zeros(num_kept, channels, length // 2 + 1))

    def encode(self, windows: Tensor, weights: Weights | None = None) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the code Z, (n, latent_size) each, also by given weights."""
        mean, log_variance = self._run("encoder", windows, weights).chunk(2, dim=-1)
        return mean, log_variance

    def decode(
        self, z: Tensor, hidden: Tensor, kept: Tensor, weights: Weights | None = None
    ) -> Tensor:
        """Windows from codes and one-hot classes: the decoder sees Z, Y and Y-bar."""
        return self._run("decoder", torch.cat([z, hidden, kept], dim=-1), weights)

    def discriminate(self, z: Tensor, weights: Weights | None = None) -> tuple[Tensor, ...]:
        """Log-probabilities of each hidden attribute's classes, from codes alone."""
        logits = (self._run(f"discriminators.{n}", z, weights) for n in range(len(self.num_hidden)))
        return tuple(one.log_softmax(-1) for one in logits)

    def add_texture(self, made: Tensor, kept: Tensor, noise: Tensor) -> Tensor:
        """Windows with white noise, shaped to the power that the decoder leaves out."""
        amplitude = (log_power(self.texture, kept) / 2).exp()
        shaped = torch.fft.rfft(noise, norm="ortho") * amplitude
        return made + torch.fft.irfft(shaped, n=made.shape[-1], norm="ortho")

    def flatten(self, weights: Weights) -> Tensor:
        """All weights as one vector, the discriminators' last: what clients and server exchange."""
        return torch.cat([weights[name].flatten() for name, _ in self.named_parameters()])

    def unflatten(self, vector: Tensor) -> tuple[Weights, Weights]:
        """The autoencoder's and the discriminators' weights by name, as views of a vector."""
        own = dict(self.named_parameters())
        parts = vector.split([weight.numel() for weight in own.values()])
        weights = {n: v.view(own[n].shape) for n, v in zip(own, parts, strict=True)}
        discriminators = {n: v for n, v in weights.items() if n.startswith("discriminators.")}
        return {n: v for n, v in weights.items() if n not in discriminators}, discriminators

    def _run(self, part: str, x: Tensor, weights: Weights | None) -> Tensor:
        module = self.get_submodule(part)
        own = module.state_dict(keep_vars=True) if weights is None else part_of(weights, f"{part}.")
        return cast(Tensor, functional_call(module, own, x))


def _mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _dense_layers(
    channels: int, length: int, code: int, condition: int, settings: NetworkSettings
) -> tuple[nn.Sequential, nn.Sequential]:
    """Encoder and decoder of the paper on MobiAct."""
    sizes = settings.hidden_sizes
    encoder = nn.Sequential(nn.Flatten(), *_mlp((channels * length, *sizes, code)))
    decoder = nn.Sequential(
        *_mlp((condition, *sizes[::-1], channels * length)), nn.Unflatten(1, (channels, length))
    )
    return encoder, decoder


def _convolutional_layers(
    channels: int, length: int, code: int, condition: int, settings: NetworkSettings
) -> tuple[nn.Sequential, nn.Sequential]:
    """Encoder and decoder of the paper on MotionSense: each convolution halves the length."""
    first, second = settings.filters, 2 * settings.filters
    half = -(-length // STRIDE)
    quarter = -(-half // STRIDE)
    pad, sizes = KERNEL // 2, settings.hidden_sizes[2:]

    def output_padding(before: int, after: int) -> int:
        return after - (STRIDE * (before - 1) + 1)

    encoder = nn.Sequential(
        nn.Conv1d(channels, first, KERNEL, STRIDE, pad),
        nn.ReLU(),
        nn.Conv1d(first, second, KERNEL, STRIDE, pad),
        nn.ReLU(),
        nn.Flatten(),
        *_mlp((second * quarter, *sizes, code)),
    )
    decoder = nn.Sequential(
        *_mlp((condition, *sizes[::-1], second * quarter)),
        nn.ReLU(),
        nn.Unflatten(1, (second, quarter)),
        nn.ConvTranspose1d(second, first, KERNEL, STRIDE, pad, output_padding(quarter, half)),
        nn.ReLU(),
        nn.ConvTranspose1d(first, channels, KERNEL, STRIDE, pad, output_padding(half, length)),
    )
    return encoder, decoder


@torch.no_grad()
def _init_for_relu(part: nn.Sequential) -> None:
    """Initial weights of He and others (2015), which keep the variance from layer to layer.

    With torch's own it falls sixfold a layer, and the divergence silences the code too early.
    """
    with_weights = nn.Linear | nn.Conv1d | nn.ConvTranspose1d
    layers = [layer for layer in part if isinstance(layer, with_weights)]
    for layer in layers:
        inputs = layer.weight[0].numel()
        if isinstance(layer, nn.ConvTranspose1d):
            inputs = len(layer.weight) * KERNEL // STRIDE  # a sample sees every other tap
        gain = 1 if layer is layers[-1] else 2
        layer.weight.normal_(std=math.sqrt(gain / inputs))


def log_power(texture: Tensor, kept: Tensor) -> Tensor:
    """Logarithm of a texture's power at each frequency, for one-hot kept classes."""
    return _LOG_POWER_SCALE * torch.einsum("nk,kcf->ncf", kept, texture)


def whittle_loss(log_power: Tensor, residuals: Tensor) -> Tensor:
    """Whittle's negative log-likelihood of residuals as noise of that power."""
    power = torch.fft.rfft(residuals, norm="ortho").abs().square()
    return (log_power + power * (-log_power).exp()).mean()


# Section 4.2: the losses.

ERROR_SCALE, SCALE = 256.0, 75.0
"""The authors' code has (512 MSE + 4 KL) / 150 - 0.2 CE for alpha = 1, beta = 2, gamma = 0.2."""

Scores = Callable[[Tensor], Tensor]
"""From windows in standard units to the logits of a fixed classifier."""


class LossSettings(Settings):
    """Weights of loss (4), and terms that the paper does not have.

    Parameters
    ----------
    alpha, beta, gamma
        Weights of reconstruction, divergence and discriminators in equation (4).
    warm_up
        Share of the training over which all weights but alpha grow from zero.
    bounded_adversary
        The autoencoder gains by the probability that the discriminators are wrong and not by their
        cross-entropy, which has no bound.
    relative_error
        The error of each kept class is relative to the variance of its windows.
    texture
        Standard deviation of the noise added to the output, relative to what the decoder leaves out
        at each frequency; 0 adds none.
    classifier_weight
        Weight of the cross-entropy of fixed classifiers, which must recognise the classes that the
        decoder was given; 0 trains no such classifiers.
    """

    alpha: NonNegativeFloat = 0.9
    beta: NonNegativeFloat = 2.0
    gamma: NonNegativeFloat = 0.2
    warm_up: Annotated[float, Field(ge=0, le=1)] = 0.0
    bounded_adversary: bool = False
    relative_error: bool = False
    texture: NonNegativeFloat = 0.0
    classifier_weight: NonNegativeFloat = 0.0


class Batch(NamedTuple):
    """Windows (n, channels, length), one-hot classes, and the noise of equation (1)."""

    windows: Tensor
    kept: Tensor
    hidden: Tensor
    noise: Tensor
    warm_up: float | Tensor = 1.0  # share of the loss weights that counts, for all but alpha


@dataclass(frozen=True, eq=False)
class BlinderLoss:
    """Losses (3) and (4) as functions of weights, so that steps of training can be differentiated.

    Parameters
    ----------
    network, settings
        The networks, and the weights of the terms.
    error_weights
        Weight of each kept class's reconstruction error; None weighs all alike.
    classifiers
        Fixed classifiers for the kept class, and for each hidden attribute.
    """

    network: BlinderNetwork
    settings: LossSettings = field(default_factory=LossSettings)
    error_weights: Tensor | None = None
    classifiers: Sequence[Sequence[Scores]] = ()

    def discriminator(
        self, weights: Weights, z: Tensor, hidden: Tensor, bounded: bool = False
    ) -> Tensor:
        """Equation (3): the discriminators' cross-entropy, added up over hidden attributes.

        With `bounded` it is K (1 - p) for K classes instead of -log p: as steep at chance level.
        """
        total = z.new_zeros(())
        truths = hidden.split(self.network.num_hidden, dim=-1)
        for scores, truth in zip(self.network.discriminate(z, weights), truths, strict=True):
            log_p = (truth * scores).sum(-1)
            total = total + (truth.shape[-1] * (1 - log_p.exp()) if bounded else -log_p).mean()
        return total

    def autoencoder(self, weights: Weights, discriminators: Weights, batch: Batch) -> Tensor:
        """Equation (4), which encoder and decoder minimise against these discriminators."""
        return self._autoencoder(weights, discriminators, batch)[0]

    def joint(self, weights: Weights, discriminators: Weights, batch: Batch) -> Tensor:
        """Loss (4) plus loss (3), each with the other's weights fixed.

        The gradient of the sum is each player's own; a texture's loss is added to them.
        """
        fixed = {name: weight.detach() for name, weight in discriminators.items()}
        total, z, made = self._autoencoder(weights, fixed, batch)
        total = total + self.discriminator(discriminators, z.detach(), batch.hidden)
        if self.network.has_texture:
            residuals = (made - batch.windows).detach()
            total = total + whittle_loss(log_power(weights["texture"], batch.kept), residuals)
        return total

    def _autoencoder(
        self, weights: Weights, discriminators: Weights, batch: Batch
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Equation (4), the codes, and what the decoder made of them."""
        network, chosen = self.network, self.settings
        mean, log_variance = network.encode(batch.windows, weights)
        z = reparameterise(mean, log_variance, batch.noise)  # (1)
        made = network.decode(z, batch.hidden, batch.kept, weights)
        error = (made - batch.windows).square().mean((-2, -1))  # (2), first term
        if self.error_weights is not None:
            error = error * (batch.kept @ self.error_weights)
        divergence = kl_divergence(mean, log_variance).mean()  # (2), second term
        adversary = self.discriminator(discriminators, z, batch.hidden, chosen.bounded_adversary)
        penalty = chosen.beta * divergence / SCALE - chosen.gamma * adversary
        if self.classifiers:
            penalty = penalty + chosen.classifier_weight * self._classifier(weights, z, made, batch)
        total = chosen.alpha * ERROR_SCALE * error.mean() / SCALE + batch.warm_up * penalty  # (4)
        return total, z, made

    def _classifier(self, weights: Weights, z: Tensor, made: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of fixed classifiers for the classes that the decoder was given.

        These are the window's own hidden classes, and the next ones.
        """
        sizes = self.network.num_hidden
        rolled = [part.roll(1, dims=-1) for part in batch.hidden.split(sizes, dim=-1)]
        following = torch.cat(rolled, dim=-1)
        moved = self.network.decode(z, following, batch.kept, weights)
        windows = torch.cat([made, moved])
        hidden = torch.cat([batch.hidden, following]).split(sizes, dim=-1)
        truths = [torch.cat([batch.kept, batch.kept]), *hidden]
        losses = [
            -(truth * scores(windows).log_softmax(-1)).sum(-1).mean() / len(several)
            for several, truth in zip(self.classifiers, truths, strict=True)
            for scores in several
        ]
        return torch.stack(losses).sum()


def warm_up_share(done: float, warm_up: float) -> float:
    """How much of the loss weights counts after a share of the training.

    >>> [warm_up_share(done, 0.4) for done in (0.0, 0.2, 0.4, 0.9)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return min(1.0, done / warm_up) if warm_up else 1.0


# Settings and presets.


class TrainingSettings(Settings):
    """Central training by Adam, which the paper has not; see `sensorveil.train.TrainConfig`.

    With 0 epochs the networks keep their initial weights: what a federation starts from.
    """

    epochs: NonNegativeInt = 30
    batch_size: PositiveInt = 128
    learning_rate: PositiveFloat = 1e-3
    schedule: Literal["one_cycle", "constant"] = "constant"


class BlinderSettings(Settings):
    """Settings of Blinder, in groups.

    Parameters
    ----------
    network, loss, training
        See `NetworkSettings`, `LossSettings` and `TrainingSettings`.
    classifier
        The classifiers that predict the kept class and, where it is needed, the hidden ones.
    modification
        Section 5.2: "stochastic" gives the decoder a random hidden class, "deterministic" the one
        after the predicted class.
    """

    network: NetworkSettings = NetworkSettings()
    loss: LossSettings = LossSettings()
    training: TrainingSettings = TrainingSettings()
    classifier: ClassifierGroup = ClassifierGroup(epochs=40, batch_size=512, learning_rate=2e-3)
    modification: Literal["stochastic", "deterministic"] = "stochastic"

    @property
    def predicts_hidden(self) -> bool:
        """Whether classifiers for the hidden attributes are trained."""
        return self.modification == "deterministic" or self.loss.classifier_weight > 0


PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Small enough for two cores. The loss was chosen on validation windows of MotionSense.
    "fast": {
        "network.filters": 16,
        "loss.beta": 0.5,
        "loss.gamma": 1.0,
        "loss.warm_up": 0.4,
        "loss.bounded_adversary": True,
        "loss.relative_error": True,
        "loss.texture": 0.5,
        "loss.classifier_weight": 0.5,
        "training.epochs": 20,
        "training.learning_rate": 3e-3,
        "training.schedule": "one_cycle",
        "classifier.epochs": 12,
        "classifier.batch_size": 64,
        "classifier.learning_rate": 4e-3,
    },
    "paper": {},
}


# The method.


class Blinder(Obfuscator):
    """A conditional variational autoencoder for all kept classes, trained against discriminators.

    Windows whose kept or hidden class is not known are left out of training.

    Parameters
    ----------
    preset
        "paper" has the paper's values, and where it states none those of the authors' code; "fast"
        is smaller, weighs loss (4) otherwise and adds a texture and fixed classifiers. Ours in both:
        convolutions over five samples, He's initial weights, central training.
    seed, device, **settings
        As in every method; see `BlinderSettings`.

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> blinder = Blinder(**{"training.epochs": 2, "classifier.epochs": 2})
    >>> blinder.fit(windows, keep="activity", hide="gender").obfuscate(windows, seed=1).shape
    (2, 32)
    """

    name = "blinder"
    summary = "a conditional VAE for all kept classes, with discriminators"
    capabilities = Capabilities()
    Settings = BlinderSettings
    presets = PRESETS
    membership_score = RECONSTRUCTION
    settings: BlinderSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        chosen, attributes = self.settings, self._attributes()
        classes = [joint_classes(windows, names)[1] for names in attributes]
        self.kept_classes_, self.hidden_classes_ = classes[0], classes[1:]
        self.variance_ = self._class_variance(windows)
        predicted = attributes if chosen.predicts_hidden else attributes[:1]
        self.classifiers_ = [self._train_classifier(windows, names) for names in predicted]
        fixed = attributes if chosen.loss.classifier_weight > 0 else []
        self.mlps_ = [self._train_classifier(windows, names, mlp=True) for names in fixed]
        self.metrics_["classifier_loss"] = [round(x, 5) for x in self.classifiers_[0].losses_]
        with seeded(derived_seed(self.seed, NETWORK_SEED)):
            self.network_ = self._build_network()
        if chosen.training.epochs:
            self._train_network(windows)

    def _train_network(self, windows: Windows) -> None:
        """Adam on losses (3) and (4) together, one step of both players a batch."""
        chosen, network, loss = self.settings, self.network_, self.loss()
        codes = np.stack([joint_classes(windows, one)[0] for one in self._attributes()], axis=1)
        known = (codes != UNKNOWN).all(1)
        if not known.any():
            raise Refusal("no window has a known class of all that is kept and hidden")
        signal, classes = windows.select(known).on(self.device), self._tensor(codes[known])
        kept = one_hot(classes[:, :1], (network.num_kept,))
        hidden = one_hot(classes[:, 1:], network.num_hidden)
        warm_up = torch.ones((), device=self.device)

        def batch_loss(index: Tensor) -> Tensor:
            noise = torch.randn(len(index), network.latent_size, device=self.device)
            x = signal[index].flatten(1, -2)
            batch = Batch(x, kept[index], hidden[index], noise, warm_up)
            weights = dict(network.named_parameters())
            with torch.autocast(x.device.type, enabled=False):
                return loss.joint(weights, weights, batch)

        losses = train_network(
            "blinder",
            network,
            batch_loss,
            int(known.sum()),
            TrainConfig(**chosen.training.as_dict(), weight_decay=0.0, max_grad_norm=None),
            derived_seed(self.seed, TRAINING_SEED),
            self.device,
            self.checkpoint,
            on_step=lambda done: warm_up.fill_(warm_up_share(done, chosen.loss.warm_up)),
        )
        self.metrics_["loss"] = [round(x, 5) for x in losses]

    @torch.inference_mode()
    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        """Section 5.2: the kept class is predicted, the hidden one replaced."""
        count, network, texture = len(windows), self.network_, self.settings.loss.texture
        kept = self._predicted(0, windows)
        if self.settings.modification == "deterministic":  # a bijection: each class to the next
            given = [one.roll(1, dims=1) for one in self._predicted_hidden(windows)]
            hidden = torch.cat(given, dim=1)
        else:
            drawn = [rng.integers(size, size=count) for size in network.num_hidden]
            hidden = one_hot(self._tensor(np.stack(drawn, axis=1)), network.num_hidden)
        noise = rng.standard_normal((count, network.latent_size), dtype=np.float32)
        out = np.empty((count, *windows.shape), np.float32)
        for rows in batches(count, self.device, size=_BATCH_SIZE):
            z = reparameterise(*self._encode(windows, rows), self._tensor(noise[rows]))
            made = network.decode(z, hidden[rows], kept[rows])
            if texture:
                white = rng.standard_normal(made.shape, dtype=np.float32) * np.float32(texture)
                made = network.add_texture(made, kept[rows], self._tensor(white))
            out[rows] = made.unflatten(1, windows.shape[:-1]).cpu().numpy()
        return out

    @torch.inference_mode()
    def _condition(self, windows: Windows) -> np.ndarray:
        """The predicted kept class, the code's mean and variance, the hidden class if predicted."""
        codes = [
            torch.cat(self._encode(windows, rows), dim=1)
            for rows in batches(len(windows), self.device, size=_BATCH_SIZE)
        ]
        deterministic = self.settings.modification == "deterministic"
        hidden = self._predicted_hidden(windows) if deterministic else []
        parts = [self._predicted(0, windows), torch.cat(codes), *hidden]
        return torch.cat(parts, dim=1).cpu().numpy()

    @torch.inference_mode()
    def _membership_scores(self, windows: Windows) -> np.ndarray:
        """Of the mean code, decoded with the window's own hidden classes."""
        network, kept = self.network_, self._predicted(0, windows)
        codes = np.stack([joint_classes(windows, [n])[0] for n in self.policy_.hide], axis=1)
        hidden = one_hot(self._tensor(codes), network.num_hidden)
        made = [
            network.decode(self._encode(windows, rows)[0], hidden[rows], kept[rows]).cpu()
            for rows in batches(len(windows), self.device, size=_BATCH_SIZE)
        ]
        return reconstruction_scores(
            windows, torch.cat(made).unflatten(1, windows.shape[:-1]).numpy()
        )

    # What a federation needs.

    def weights(self) -> Tensor:
        """The weights of all networks as one vector."""
        return self.network_.flatten(self.network_.state_dict())

    def with_weights(self, vector: Tensor) -> Self:
        """A copy with other weights, in the order of `weights`."""
        self._check_fitted()
        other = copy.copy(self)
        other.metrics_ = dict(self.metrics_)
        other.network_ = self._build_network()
        weights, discriminators = other.network_.unflatten(vector.to(self.device))
        other.network_.load_state_dict({**weights, **discriminators})
        return other

    def loss(self) -> BlinderLoss:
        """Losses (3) and (4) of this run, with its classifiers."""
        error_weights = None
        if self.settings.loss.relative_error:
            inverse = 1 / np.maximum(self.variance_, 1e-6)
            error_weights = self._tensor((inverse / inverse.mean()).astype(np.float32))
        shape = self.hook_shape[:-1]

        def scores(classifier: Classifier) -> Scores:
            return lambda made: classifier.scores(made.unflatten(1, shape))

        pairs = zip(self.classifiers_, self.mlps_, strict=True) if self.mlps_ else ()
        classifiers = [[scores(one) for one in pair] for pair in pairs]
        return BlinderLoss(self.network_, self.settings.loss, error_weights, classifiers)

    def made_with(self) -> dict[str, Any]:
        """Preset, seed and settings, and the configuration of a federation."""
        federation = self.metrics_.get("federation", {})
        own = {k: v for k, v in federation.items() if k in ("kind", "clients", "rounds", "config")}
        return super().made_with() | ({"federation": own} if own else {})

    # Details.

    def _attributes(self) -> list[tuple[str, ...]]:
        """What one classifier each predicts: all that is kept, and each hidden attribute."""
        return [self.policy_.keep, *((name,) for name in self.policy_.hide)]

    def _class_variance(self, windows: Windows) -> np.ndarray:
        """Variance of each kept class's windows around their mean, in standard units."""
        codes, combinations = joint_classes(windows, self.policy_.keep)
        found = []
        for number in range(len(combinations)):
            own = windows.select(codes == number)
            mean = sum(batch.sum(0) for batch in own.batches(_BATCH_SIZE)) / len(own)
            square = sum((batch**2).sum(0) for batch in own.batches(_BATCH_SIZE)) / len(own)
            found.append((square - mean**2).mean())
        return np.array(found, np.float32)

    def _classifier(self, mlp: bool) -> Classifier:
        settings = self.settings.classifier.settings()
        if mlp:  # half of its units are dropped, so it is trained more slowly
            settings = replace(settings, batch_size=128, learning_rate=1e-3, network="mlp")
        return Classifier(settings, derived_seed(self.seed, CLASSIFIER_SEED), self.device)

    def _train_classifier(
        self, windows: Windows, attributes: Sequence[str], mlp: bool = False
    ) -> Classifier:
        codes, combinations = joint_classes(windows, attributes)
        known = windows.select(codes != UNKNOWN)
        return self._classifier(mlp).fit_codes(known, codes[codes != UNKNOWN], len(combinations))

    def _predicted(self, number: int, windows: Windows) -> Tensor:
        """The predicted classes, one-hot: the kept one, or that of a hidden attribute."""
        classifier = self.classifiers_[number]
        codes = self._tensor(classifier.predict(windows)[:, None])
        return one_hot(codes, (classifier.num_classes_,))

    def _predicted_hidden(self, windows: Windows) -> list[Tensor]:
        return [self._predicted(n, windows) for n in range(1, len(self.classifiers_))]

    def _encode(self, windows: Windows, rows: slice) -> tuple[Tensor, Tensor]:
        return self.network_.encode(self._tensor(windows.batch(rows)).flatten(1, -2))

    def _build_network(self) -> BlinderNetwork:
        *channels, length = self.hook_shape
        return BlinderNetwork(
            math.prod(channels),
            length,
            len(self.kept_classes_),
            [len(classes) for classes in self.hidden_classes_],
            self.settings.network,
            texture=self.settings.loss.texture > 0,
        ).to(self.device)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _state(self) -> dict[str, np.ndarray]:
        state = {"kept_classes": self.kept_classes_, "variance": self.variance_}
        state |= {f"hidden_classes.{n}": own for n, own in enumerate(self.hidden_classes_)}
        state |= {f"network.{k}": v.cpu().numpy() for k, v in self.network_.state_dict().items()}
        for kind, several in (("classifier", self.classifiers_), ("mlp", self.mlps_)):
            for n, one in enumerate(several):
                state |= {f"{kind}.{n}.{name}": array for name, array in one.state().items()}
        return state

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.kept_classes_, self.variance_ = state["kept_classes"], state["variance"]
        self.hidden_classes_ = [state[f"hidden_classes.{n}"] for n in range(len(self.policy_.hide))]
        self.network_ = self._build_network()
        weights = part_of(state, "network.").items()
        self.network_.load_state_dict({name: torch.from_numpy(array) for name, array in weights})
        sizes, chosen = (self.network_.num_kept, *self.network_.num_hidden), self.settings

        def restored(kind: str, sizes: Sequence[int]) -> list[Classifier]:
            return [
                self._classifier(kind == "mlp").restore(
                    part_of(state, f"{kind}.{n}."), self.hook_shape, size
                )
                for n, size in enumerate(sizes)
            ]

        self.classifiers_ = restored("classifier", sizes if chosen.predicts_hidden else sizes[:1])
        self.mlps_ = restored("mlp", sizes if chosen.loss.classifier_weight > 0 else ())
