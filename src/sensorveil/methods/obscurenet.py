"""ObscureNet: codes that say nothing about the hidden attributes, decoded with other classes.

The baselines of section 3 are in `obscurenet_baselines.py`.

Reference
---------
O. Hajihassnai, O. Ardakanian, H. Khazaei: ObscureNet: Learning Attribute-invariant Latent
Representation for Anonymizing Sensor Data. IoTDI 2021. "The authors' code" is
github.com/sustainable-computing/ObscureNet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from sensorveil.classifiers import Classifier
from sensorveil.data.windows import UNKNOWN, DeviceWindows, Windows, batches, joint_classes
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.methods.base import (
    RECONSTRUCTION,
    Capabilities,
    Obfuscator,
    reconstruction_scores,
)
from sensorveil.methods.policy import Policy
from sensorveil.methods.settings import ClassifierGroup, Settings
from sensorveil.train import TrainConfig, TrainingTarget, derived_seed, train
from sensorveil.vae import StackedMLP, kl_divergence, one_hot, reparameterise

_CLASSIFIER, _NETWORKS = 1, 1000  # uses of the seed


# Networks (section 4): a pair of encoder and decoder for each class of the kept attributes.


class Autoencoders(nn.Module):
    """Encoders and decoders of several networks of one shape.

    Parameters
    ----------
    generators
        One for each network; its initial weights are drawn from it.
    window_size, latent_size
        Numbers in a window, and in a code.
    class_counts
        Number of classes of each hidden attribute, which the decoder is given; empty for none.
    hidden_sizes
        Hidden layers of the encoder; the decoder has them in reverse order.
    variational
        Whether the encoder gives a distribution of codes, not one code.

    Examples
    --------
    >>> networks = Autoencoders([torch.Generator().manual_seed(1)], 6, (2, 3), (8,), 4)
    >>> mu, log_variance = networks.encode(torch.zeros(5, 6), network=0)
    >>> networks.decode(mu, torch.zeros(5, 2 + 3), network=0).shape
    torch.Size([5, 6])
    """

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        window_size: int,
        class_counts: Sequence[int],
        hidden_sizes: Sequence[int],
        latent_size: int,
        variational: bool = True,
    ) -> None:
        super().__init__()
        self.latent_size, self.variational = latent_size, variational
        self.conditional = bool(class_counts)
        code = latent_size * (2 if variational else 1)
        given = latent_size + sum(class_counts)
        self.encoder = StackedMLP(generators, (window_size, *hidden_sizes, code))
        self.decoder = StackedMLP(generators, (given, *hidden_sizes[::-1], window_size))

    def encode(
        self, x: torch.Tensor, network: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Mean and log-variance of the code; None for the latter where it is not variational."""
        code = self.encoder(x, network)
        if not self.variational:
            return code, None
        mu, log_variance = code.chunk(2, dim=-1)
        return mu, log_variance

    def decode(
        self, z: torch.Tensor, condition: torch.Tensor, network: int | None = None
    ) -> torch.Tensor:
        """Windows from codes and the hidden classes, (..., sum of class_counts)."""
        given = torch.cat([z, condition], dim=-1) if self.conditional else z
        decoded: torch.Tensor = self.decoder(given, network)
        return decoded


# Losses and training (section 4.1). All networks take their steps at once. What is random in one of
# them follows from its own seed, so that it learns the same alone and beside others.

ERROR_WEIGHT, SCALE = 256.0, 75.0
"""The scale of equation (4) in the authors' code: (256 MSE + beta KL) / 75 - alpha CE.

They write it as (512 MSE + 4 KL) / 150 - 0.2 CE for beta = 2 and alpha = 0.2. A window of
MotionSense has 256 numbers, so there 256 MSE is the summed error.
"""


@dataclass(frozen=True, eq=False)
class NetworkData:
    """What one network learns from: positions (n,) of windows, their hidden classes (n, attributes).

    Initial weights, batches and noise follow from `seed`; alpha and beta are those of equation (4).
    """

    rows: torch.Tensor
    hidden: torch.Tensor
    seed: int
    alpha: float = 0.2
    beta: float = 2.0


class Algorithm1:
    """The training of several networks at once, with a discriminator for each hidden attribute.

    An epoch goes once through the windows of the network that has most; the others take as many
    steps.
    """

    def __init__(
        self,
        autoencoders: Autoencoders,
        discriminators: nn.ModuleList,
        class_counts: Sequence[int],
        data: Sequence[NetworkData],
        windows: DeviceWindows,
        batch_size: int,
    ) -> None:
        self.autoencoders, self.discriminators = autoencoders, discriminators
        self.class_counts, self.data, self.windows = tuple(class_counts), data, windows
        self.device = device = windows.device
        self.steps = max(-(-len(one.rows) // batch_size) for one in data)
        self.alpha = torch.tensor([one.alpha for one in data], device=device)
        self.beta = torch.tensor([one.beta for one in data], device=device)
        # A CUDA graph reads the same memory in every step, so an epoch's draws are copied into it.
        shape = (self.steps, len(data), batch_size)
        self.rows = torch.zeros(shape, dtype=torch.long, device=device)
        self.hidden = torch.zeros(*shape, len(class_counts), dtype=torch.long, device=device)
        self.noise = torch.zeros(*shape, autoencoders.latent_size, device=device)
        self.terms = torch.zeros(3, len(data), device=device)
        """Squared error, divergence and cross-entropy of each network, summed over an epoch."""
        self._minibatch: tuple[torch.Tensor, ...] | None = None

    def train(
        self, stage: str, epochs: int, learning_rate: float, discriminator_steps: int
    ) -> None:
        """Train with Adam; the discriminators take several steps for each of the autoencoders."""
        targets = [TrainingTarget(self.autoencoders, self.autoencoder_loss, self._next_minibatch)]
        if len(self.discriminators):
            discriminators, loss = self.discriminators, self.discriminator_loss
            targets.insert(0, TrainingTarget(discriminators, loss, repeats=discriminator_steps))
        config = TrainConfig.adam(epochs, 1, learning_rate)  # a step takes one minibatch
        train(stage, targets, self.steps, config, 0, self.device, on_epoch=self._draw)

    def _draw(self, epoch: int) -> None:
        """Draw the minibatches and the noise of an epoch."""
        steps, _, batch_size = self.rows.shape
        for network, data in enumerate(self.data):
            generator = torch.Generator().manual_seed(derived_seed(data.seed, epoch))
            order = shuffled(len(data.rows), steps * batch_size, generator).view(steps, batch_size)
            noise = torch.randn(self.noise[:, network].shape, generator=generator)
            self.rows[:, network] = data.rows[order].to(self.device)
            self.hidden[:, network] = data.hidden[order].to(self.device)
            self.noise[:, network] = noise.to(self.device)
        self.terms.zero_()

    def forward(self, step: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """x, y, z and the divergence of a minibatch, computed once for both losses."""
        if self._minibatch is None:
            rows, hidden, noise = (
                draws.index_select(0, step)[0] for draws in (self.rows, self.hidden, self.noise)
            )
            x = self.windows[rows.flatten()].reshape(*rows.shape, -1)
            mu, log_variance = self.autoencoders.encode(x)
            z = reparameterise(mu, log_variance, noise)
            y = one_hot(hidden, self.class_counts)
            self._minibatch = x, y, z, kl_divergence(mu, log_variance).mean(-1)
        return self._minibatch

    def _next_minibatch(self) -> None:
        self._minibatch = None

    def discriminator_loss(self, step: torch.Tensor) -> torch.Tensor:
        """Equation (3); no gradient reaches the encoder."""
        with torch.autocast(self.device.type, enabled=False):
            _, y, z, _ = self.forward(step)
            return self.cross_entropy(z.detach(), y).sum()

    def autoencoder_loss(self, step: torch.Tensor) -> torch.Tensor:
        """Equation (4); no gradient reaches the discriminators."""
        with torch.autocast(self.device.type, enabled=False):
            x, y, z, divergence = self.forward(step)
            error = (self.autoencoders.decode(z, y) - x).square().mean((1, 2))
            cross_entropy = self.cross_entropy(z, y)
            self.terms += torch.stack([error, divergence, cross_entropy]).detach()
            loss = (ERROR_WEIGHT * error + self.beta * divergence) / SCALE
            # The networks share no weights: the gradient of the sum is that of each alone.
            return (loss - self.alpha * cross_entropy).sum()

    def cross_entropy(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Equation (3) for each network, summed over the hidden attributes."""
        total = torch.zeros(len(z), device=self.device)
        truths = y.split(self.class_counts, dim=-1)
        for discriminator, truth in zip(self.discriminators, truths, strict=False):
            total = total - (truth * discriminator(z).log_softmax(-1)).sum(-1).mean(-1)
        return total


def shuffled(count: int, wanted: int, generator: torch.Generator) -> torch.Tensor:
    """`wanted` positions below `count`: whole shuffles one after the other, the last one cut."""
    rounds = -(-wanted // count)
    return torch.cat([torch.randperm(count, generator=generator) for _ in range(rounds)])[:wanted]


# Modifiers (section 4.2).

Modifier = Literal["deterministic", "probabilistic", "randomized"]


def modify(
    modifier: Modifier,
    class_counts: Sequence[int],
    predicted: np.ndarray | None,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """y': the hidden classes that the decoder is given, (count, sum of class_counts).

    "deterministic" is the class after the predicted one, the first after the last: an injective map
    without a fixed point. "probabilistic" is a class drawn uniformly. "randomized" is a stochastic
    vector; the paper does not say how it is drawn, here uniformly from all of them. Only the first
    needs the predicted classes, (count, attributes).

    >>> modify("deterministic", [2, 3], np.array([[1, 0]]), 1, np.random.default_rng(0))
    array([[1., 0., 0., 1., 0.]], dtype=float32)
    """
    parts = []
    for place, classes in enumerate(class_counts):
        if modifier == "randomized":
            parts.append(rng.dirichlet(np.ones(classes), count))
            continue
        if modifier == "probabilistic":
            codes = rng.integers(classes, size=count)
        elif predicted is None:
            raise ValueError("the deterministic modifier needs the predicted classes")
        else:
            codes = (predicted[:, place] + 1) % classes
        parts.append(np.eye(classes)[codes])
    return np.concatenate(parts, axis=1).astype(np.float32)


# Settings.


class AutoencoderSettings(Settings):
    """Settings of all autoencoders of this paper; the defaults are its own.

    Parameters
    ----------
    hidden_sizes
        Hidden layers of the encoder; the decoder has them in reverse order.
    latent_size
        Numbers in a code: 10 for MotionSense, 5 for MobiAct.
    epochs, batch_size, learning_rate
        Of Adam; an epoch goes once through the windows of the largest class.
    modifier
        "deterministic", "probabilistic" or "randomized"; see `modify`.
    train_hidden_classifiers
        Whether to train classifiers of the hidden attributes even if the modifier does not need
        them, so that `with_settings` can change to one that does.
    classifier
        The classifiers that predict the kept attributes and, where needed, the hidden ones.
    """

    hidden_sizes: tuple[PositiveInt, ...] = Field((512, 512, 256, 128), min_length=1)
    latent_size: PositiveInt = 10
    epochs: PositiveInt = 450
    batch_size: PositiveInt = 512
    learning_rate: PositiveFloat = 1e-3
    modifier: Modifier = "deterministic"
    train_hidden_classifiers: bool = False
    classifier: ClassifierGroup = ClassifierGroup(
        width=24, epochs=40, batch_size=512, learning_rate=2e-3
    )


class VariationalSettings(AutoencoderSettings):
    """Settings of the variational autoencoders.

    `beta` is the weight of the divergence in equation (4). The authors' CVAE has 0.1; here it is 2
    for all by default, so that they differ from ObscureNet in one thing at a time.
    """

    beta: NonNegativeFloat = 2.0


class ObscureNetSettings(VariationalSettings):
    """Settings of ObscureNet.

    Parameters
    ----------
    alpha
        Weight of the discriminators in equation (4).
    discriminator_sizes
        Hidden layers of each discriminator.
    discriminator_steps
        Steps of the discriminators for each step of the autoencoders.
    """

    modifier: Modifier = "randomized"
    alpha: NonNegativeFloat = 0.2
    discriminator_sizes: tuple[PositiveInt, ...] = Field((128, 128, 128), min_length=1)
    discriminator_steps: PositiveInt = 20


PRESETS: dict[str, Mapping[str, Any]] = {
    "fast": {
        "hidden_sizes": (256, 128),
        "epochs": 120,
        "batch_size": 64,
        "classifier": {"epochs": 12, "batch_size": 64, "learning_rate": 4e-3},
    },
    "paper": {},
}


# Obfuscation (algorithm 2).

Classifiers = dict[tuple[int, ClassifierGroup, tuple[str, ...]], Classifier]
"""Fitted classifiers by seed, settings and attributes, for obfuscators that share them."""


class ObscureNet(Obfuscator):
    """A conditional variational autoencoder for each kept class, trained against discriminators.

    A classifier predicts the kept class of a window, and with it chooses the autoencoder. The code
    of the window is decoded with other hidden classes. Discriminators see to it that the code itself
    says little about them. Windows of unknown kept or hidden class are left out of training.

    Preset `paper` has the paper's five layers, code of 10 numbers, discriminators of four layers,
    alpha 0.2 and beta 2. What the paper leaves open, and what differs here:

    - Hidden layers of 512-512-256-128, Adam at 1e-3 and batches of 512 are those of the authors'
      code. It has one layer less for MotionSense, and batches of 128 for gender on MobiAct.
    - 20 discriminator steps for each step of the autoencoder, as in the authors' code, where their
      gradients add up; here each step has its own. Algorithm 1 has one step.
    - The autoencoder's gradient is taken after the discriminators' steps.
    - 450 epochs for their 200.
    - The classifiers are small convolutional networks of ours.

    Preset `fast` is the same algorithm, with smaller networks and fewer epochs for two cores.

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> obfuscator = ObscureNet(epochs=5).fit(windows, keep="activity", hide="gender")
    >>> obfuscator.obfuscate(windows, seed=1).shape
    (2, 32)
    """

    name = "obscurenet"
    summary = "a conditional VAE per kept class, with discriminators"
    capabilities = Capabilities()
    Settings: ClassVar[type[AutoencoderSettings]] = ObscureNetSettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {**PRESETS["fast"], "discriminator_sizes": (64, 64, 64), "discriminator_steps": 5},
        "paper": {},
    }
    adjustable = ("modifier",)
    membership_score = RECONSTRUCTION
    settings: AutoencoderSettings

    # What its baselines have otherwise.
    code_moves: ClassVar[bool] = False
    """Whether the code is moved instead of giving the decoder the hidden classes."""
    variational: ClassVar[bool] = True
    one_network: ClassVar[bool] = False
    """Whether one network serves all kept classes."""

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        self._fit_classifiers(windows, {})
        fit_networks([self], windows)

    @torch.inference_mode()
    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        """Algorithm 2."""
        count = len(windows)
        kept = self.kept_classifier_.predict(windows)
        hidden = self.predict_hidden(windows) if self._needs_hidden() else None
        condition = modify(self.settings.modifier, self.class_counts_, hidden, count, rng)
        noise = rng.standard_normal((count, self.settings.latent_size), dtype=np.float32)
        output = np.empty((count, *self.hook_shape), np.float32)
        for network, rows, mu, log_variance in self._encoded(windows, kept):
            z = reparameterise(mu, log_variance, self._tensor(noise[rows]))
            if self.code_moves and hidden is not None:
                z = z + self._tensor(self._moves(kept[rows], hidden[rows], condition[rows]))
            decoded = self.autoencoders_.decode(z, self._tensor(condition[rows]), network)
            output[rows] = decoded.cpu().numpy().reshape(-1, *self.hook_shape)
        return output

    def with_settings(self, **settings: Any) -> Self:
        """The same trained networks with another `modifier`."""
        other = super().with_settings(**settings)
        if other._needs_hidden() and not self.hidden_classifiers_:
            raise Refusal(
                f"modifier '{other.settings.modifier}' needs classifiers of"
                f" {', '.join(self.policy_.hide)}, which this run lacks; train it with"
                " train_hidden_classifiers=true"
            )
        return other

    # Training.

    def _fit_classifiers(self, windows: Windows, fitted: Classifiers) -> None:
        """Take classifiers from those that are fitted already; fit and add the others."""

        def classifier(attributes: tuple[str, ...]) -> Classifier:
            key = (self.seed, self.settings.classifier, attributes)
            if key not in fitted:
                codes, classes = joint_classes(windows, attributes)
                known = codes != UNKNOWN
                fitted[key] = self._new_classifier().fit_codes(
                    windows.select(known), codes[known], len(classes)
                )
            return fitted[key]

        wanted = self._needs_hidden() or self.settings.train_hidden_classifiers
        self.kept_classifier_ = classifier(self.policy_.keep)
        self.hidden_classifiers_ = [classifier((one,)) for one in self.policy_.hide if wanted]
        self.metrics_["classifier_loss"] = self.kept_classifier_.losses_

    def network_data(self, windows: Windows) -> list[NetworkData]:
        """What each network learns from, given windows in standard units."""
        rows, kept, hidden = self._known_classes(windows)
        network = kept * (not self.one_network)
        return [
            NetworkData(
                torch.from_numpy(rows[network == which]),
                torch.from_numpy(hidden[network == which]),
                derived_seed(self.seed, _NETWORKS + int(which)),
                getattr(self.settings, "alpha", 0.0),
                getattr(self.settings, "beta", 0.0),
            )
            for which in np.unique(network)
        ]

    def _known_classes(self, windows: Windows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows whose classes are known, their kept class, and their hidden classes."""
        keep, hide = self.policy_.keep, self.policy_.hide
        kept, self.kept_classes_ = joint_classes(windows, keep)
        each = [joint_classes(windows, [name]) for name in hide]
        hidden = np.stack([codes for codes, _ in each], axis=1)
        self.class_counts_ = tuple(len(classes) for _, classes in each)
        rows = np.flatnonzero((kept != UNKNOWN) & (hidden != UNKNOWN).all(1))
        if len(np.unique(kept[rows])) < len(self.kept_classes_):
            raise Refusal(
                f"a class of {', '.join(keep)} has no window whose {', '.join(hide)} is known;"
                " leave that class out"
            )
        return rows, kept[rows], hidden[rows]

    def train_networks(
        self, data: Sequence[NetworkData], windows: DeviceWindows
    ) -> tuple[Autoencoders, torch.Tensor]:
        """Autoencoders trained by algorithm 1, and the terms of their loss in the last epoch."""
        settings = self.settings
        generators = [torch.Generator().manual_seed(one.seed) for one in data]
        autoencoders = self._new_autoencoders(generators)
        sizes = getattr(settings, "discriminator_sizes", ())
        discriminators = nn.ModuleList(
            StackedMLP(generators, (settings.latent_size, *sizes, count))
            for count in (self.class_counts_ if sizes else ())
        ).to(self.device)
        algorithm = Algorithm1(
            autoencoders, discriminators, self.class_counts_, data, windows, settings.batch_size
        )
        discriminator_steps = getattr(settings, "discriminator_steps", 1)
        algorithm.train(self.name, settings.epochs, settings.learning_rate, discriminator_steps)
        return autoencoders.eval(), algorithm.terms.cpu() / algorithm.steps

    def _new_autoencoders(self, generators: Sequence[torch.Generator]) -> Autoencoders:
        settings = self.settings
        return Autoencoders(
            generators,
            int(np.prod(self.hook_shape)),
            () if self.code_moves else self.class_counts_,
            settings.hidden_sizes,
            settings.latent_size,
            self.variational,
        ).to(self.device)

    def _take_networks(self, weights: Mapping[str, torch.Tensor]) -> None:
        count = len(next(iter(weights.values())))
        self.autoencoders_ = self._new_autoencoders([torch.Generator()] * count).eval()
        self.autoencoders_.load_state_dict(dict(weights))

    # Obfuscation.

    def predict_hidden(self, windows: Windows) -> np.ndarray:
        """The hidden classes of windows in standard units, (n, attributes)."""
        return np.stack([one.predict(windows) for one in self.hidden_classifiers_], axis=1)

    def _needs_hidden(self) -> bool:
        """Whether obfuscation predicts the hidden attributes."""
        return self.code_moves or self.settings.modifier == "deterministic"

    def _encoded(
        self, windows: Windows, kept: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray, torch.Tensor, torch.Tensor | None]]:
        """Batches of rows that need one network: it, the rows, their codes' mean, log-variance."""
        network = kept * (not self.one_network)
        for which in np.unique(network).tolist():
            rows = np.flatnonzero(network == which)
            for batch in batches(len(rows), self.device):
                signal = self._tensor(windows.batch(rows[batch])).flatten(1)
                yield which, rows[batch], *self.autoencoders_.encode(signal, which)

    def _condition(self, windows: Windows) -> np.ndarray:
        """The predicted kept class, the code's distribution, and the hidden classes if predicted."""
        kept = self.kept_classifier_.predict(windows)
        one_hot = np.eye(len(self.kept_classes_), dtype=np.float32)[kept]
        parts = [one_hot, self._codes(windows, kept)]
        if self._needs_hidden():
            parts.append(self._one_hot(self.predict_hidden(windows)))
        return np.concatenate(parts, axis=1)

    @torch.inference_mode()
    def _membership_scores(self, windows: Windows) -> np.ndarray:
        """Of the mean code, decoded with the window's own hidden classes."""
        kept = self.kept_classifier_.predict(windows)
        codes = np.stack([joint_classes(windows, [n])[0] for n in self.policy_.hide], axis=1)
        hidden, made = self._one_hot(codes), np.empty((len(windows), *self.hook_shape), np.float32)
        for network, rows, mu, _ in self._encoded(windows, kept):
            decoded = self.autoencoders_.decode(mu, self._tensor(hidden[rows]), network)
            made[rows] = decoded.cpu().numpy().reshape(-1, *self.hook_shape)
        return reconstruction_scores(windows, made)

    @torch.inference_mode()
    def _codes(self, windows: Windows, kept: np.ndarray) -> np.ndarray:
        """Mean of each window's code and, where there is one, its log-variance, side by side."""
        numbers = self.settings.latent_size * (2 if self.variational else 1)
        codes = np.empty((len(windows), numbers), np.float32)
        for _, rows, mu, log_variance in self._encoded(windows, kept):
            parts = [mu] if log_variance is None else [mu, log_variance]
            codes[rows] = torch.cat(parts, dim=1).cpu().numpy()
        return codes

    def _moves(self, kept: np.ndarray, hidden: np.ndarray, condition: np.ndarray) -> np.ndarray:
        """What is added to codes where `code_moves`, (n, latent)."""
        raise NotImplementedError

    def _fit_moves(self, windows: Windows) -> None:
        """Learn these, once the networks are trained."""

    def _one_hot(self, hidden: np.ndarray) -> np.ndarray:
        return one_hot(torch.from_numpy(hidden), self.class_counts_).numpy()

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    # State.

    def _new_classifier(self) -> Classifier:
        seed = derived_seed(self.seed, _CLASSIFIER)
        return Classifier(self.settings.classifier.settings(), seed, self.device)

    def _state(self) -> dict[str, np.ndarray]:
        networks = {k: v.cpu().numpy() for k, v in self.autoencoders_.state_dict().items()}
        parts = {"autoencoders": networks, "kept_classifier": self.kept_classifier_.state()}
        for place, classifier in enumerate(self.hidden_classifiers_):
            parts[f"hidden_classifier.{place}"] = classifier.state()
        state = {f"{part}.{k}": v for part, arrays in parts.items() for k, v in arrays.items()}
        state |= {"kept_classes": self.kept_classes_, "class_counts": np.array(self.class_counts_)}
        return state

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.kept_classes_ = state["kept_classes"]
        self.class_counts_ = tuple(int(count) for count in state["class_counts"])
        weights = part_of(state, "autoencoders.")
        self._take_networks({name: torch.from_numpy(array) for name, array in weights.items()})

        def restored(name: str, classes: int) -> Classifier:
            own = part_of(state, f"{name}.")
            return self._new_classifier().restore(own, self.hook_shape, classes)

        self.kept_classifier_ = restored("kept_classifier", len(self.kept_classes_))
        wanted = self._needs_hidden() or part_of(state, "hidden_classifier.")
        self.hidden_classifiers_ = [
            restored(f"hidden_classifier.{place}", classes)
            for place, classes in enumerate(self.class_counts_ if wanted else ())
        ]


def fit_networks(obfuscators: Sequence[ObscureNet], windows: Windows) -> None:
    """Train the networks of several obfuscators of one shape at once, on standard windows."""
    data = [obfuscator.network_data(windows) for obfuscator in obfuscators]
    first, start = obfuscators[0], 0
    every = [one for own_data in data for one in own_data]
    autoencoders, terms = first.train_networks(every, windows.on(first.device))
    for obfuscator, own_data in zip(obfuscators, data, strict=True):
        own = slice(start, start + len(own_data))
        obfuscator._take_networks({k: v[own] for k, v in autoencoders.state_dict().items()})
        obfuscator.metrics_["windows_by_network"] = [len(one.rows) for one in own_data]
        for name, values in zip(("error", "divergence", "cross_entropy"), terms, strict=True):
            obfuscator.metrics_[name] = values[own].tolist()
        obfuscator._fit_moves(windows)
        start = own.stop


def fit_many(
    obfuscators: Sequence[ObscureNet],
    windows: Windows,
    keep: str | Sequence[str],
    hide: str | Sequence[str],
    classifiers: Classifiers | None = None,
) -> None:
    """Fit several obfuscators of one class at once; each learns what it would have learnt alone.

    They may differ in seed, alpha, beta and modifier: the grid of section 6.2 is trained as one
    batched matrix product. `classifiers` that were fitted on the same windows before are used
    again, and new ones are added; the other parameters are those of `Obfuscator.fit`.
    """
    free = {"seed", "alpha", "beta", "modifier", "train_hidden_classifiers"}
    shared = [
        {k: v for k, v in one.get_params().items() if k not in free} | {"method": one.name}
        for one in obfuscators
    ]
    for other in shared[1:]:
        for name in shared[0]:
            if other.get(name) != shared[0][name]:
                raise Refusal(f"obfuscators that are fitted together must have one '{name}'")
    fitted = {} if classifiers is None else classifiers
    for obfuscator in obfuscators:
        standard = obfuscator._begin(windows, keep, hide)
        obfuscator._fit_classifiers(standard, fitted)
    fit_networks(obfuscators, standard)


# Several hidden attributes (section 6.3).


class ObscureNetPipeline(Obfuscator):
    """One ObscureNet for each hidden attribute, one after the other.

    Each is trained on raw windows and is given the output of the one before it.
    """

    name = "obscurenet-pipeline"
    summary = "an ObscureNet per hidden attribute, one after the other"
    capabilities = Capabilities()
    Settings = ObscureNetSettings
    presets = ObscureNet.presets
    adjustable = ObscureNet.adjustable
    membership_score = RECONSTRUCTION
    settings: ObscureNetSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        classifiers: Classifiers = {}  # all stages predict the kept attributes alike
        self.stages_ = [self._new_stage() for _ in self.policy_.hide]
        for stage, hidden in zip(self.stages_, self.policy_.hide, strict=True):
            fit_many([stage], windows.recorded, self.policy_.keep, hidden, classifiers)
            self.metrics_[hidden] = stage.metrics_

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        for stage in self.stages_:
            seed = int.from_bytes(rng.bytes(16), "little")
            windows = stage.obfuscate(windows.recorded, seed=seed)
        return windows.standardized(self.scaling_).signal

    def _condition(self, windows: Windows) -> np.ndarray | None:
        """That of the first stage: the others are given its output and nothing else."""
        return self.stages_[0].condition(windows.recorded)

    def _membership_scores(self, windows: Windows) -> np.ndarray:
        return np.sum([stage._membership_scores(windows) for stage in self.stages_], axis=0)

    def with_settings(self, **settings: Any) -> Self:
        """The same trained stages with another `modifier`."""
        other = super().with_settings(**settings)
        other.stages_ = [stage.with_settings(**settings) for stage in self.stages_]
        return other

    def _new_stage(self) -> ObscureNet:
        return ObscureNet(self.preset, self.seed, self.device, **self.settings.flat())

    def _state(self) -> dict[str, np.ndarray]:
        return {
            f"stage.{place}.{name}": array
            for place, stage in enumerate(self.stages_)
            for name, array in stage._state().items()
        }

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        learnt = {name: value for name, value in vars(self).items() if name.endswith("_")}
        self.stages_ = [self._new_stage() for _ in self.policy_.hide]
        for place, (stage, hidden) in enumerate(zip(self.stages_, self.policy_.hide, strict=True)):
            vars(stage).update(learnt, policy_=Policy(self.policy_.keep, (hidden,)))
            stage._restore(part_of(state, f"stage.{place}."))
