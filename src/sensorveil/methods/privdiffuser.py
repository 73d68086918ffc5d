"""PrivDiffuser: windows made from noise, guided towards what is kept and away from what is hidden.

Yang and Ardakanian, PrivDiffuser: Privacy-Guided Diffusion Model for Data Obfuscation in Sensor
Networks (2025). Sections and equations below are the paper's. Code of the authors:
https://github.com/sustainable-computing/PrivDiffuser
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from pydantic import Field
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

from sensorveil.cuda_graphs import Inputs
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.diffusion.batched import run_in_batches
from sensorveil.diffusion.features import FeatureNet, FeatureSettings
from sensorveil.diffusion.guidance import classifier_free, negative_guidance
from sensorveil.diffusion.samplers import SAMPLERS
from sensorveil.diffusion.schedule import NoiseSchedule
from sensorveil.diffusion.training import (
    VelocityDenoiser,
    autocast_bf16,
    fixed_noise_losses,
    train_denoiser,
)
from sensorveil.diffusion.unet import UNet, UNetSettings
from sensorveil.information import MineNet, corrected_loss, lower_bound, updated_average
from sensorveil.methods.base import FIXED_NOISE
from sensorveil.methods.negative_guidance import (
    GuidanceSettings,
    NegativelyGuided,
    SamplingSettings,
    auxiliary_of,
    per_window,
)
from sensorveil.methods.settings import Settings
from sensorveil.train import (
    TrainConfig,
    TrainingTarget,
    derived_seed,
    seeded,
    train,
    train_network,
)

_SURROGATE, _DENOISER, _AUXILIARY = 11, 12, 13  # uses of the seed
_MINE = 2**20  # added to the seed of an auxiliary model; epochs use the smaller numbers

# Regularisation of the auxiliary models (sections 4.3.2 and 4.4). The networks are in
# `sensorveil.diffusion`: the U-Net in unet.py, surrogate and auxiliary models in features.py.


class MutualInformation(nn.Module):
    """MINE between z_s and each kept attribute: MI(z_s, y_k) of equations (18) and (24).

    Parameters
    ----------
    num_classes
        Classes of each kept attribute.
    features
        Numbers in z_s.

    Examples
    --------
    >>> estimator = MutualInformation([4, 3], features=60)
    >>> labels = torch.zeros(8, 2, dtype=torch.long)
    >>> estimator.information(torch.zeros(8, 60), labels).shape
    torch.Size([2])
    """

    log_average: torch.Tensor

    def __init__(self, num_classes: Sequence[int], features: int) -> None:
        super().__init__()
        self.num_classes = tuple(num_classes)
        self.networks = nn.ModuleList(MineNet(count, features) for count in num_classes)
        self.register_buffer("log_average", torch.full((len(self.num_classes),), -math.inf))

    def information(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The estimate for each attribute, in nats: (attributes,)."""
        return torch.stack([lower_bound(*pair) for pair in self._scores(features, labels)])

    def loss(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """What to minimise for sharp estimates; moves the averages that correct its gradient."""
        losses = []
        for number, (joint, marginal) in enumerate(self._scores(features, labels)):
            average = updated_average(self.log_average[number], marginal)
            self.log_average[number] = average
            losses.append(corrected_loss(joint, marginal, average))
        return torch.stack(losses).sum()

    def _scores(
        self, features: torch.Tensor, labels: torch.Tensor
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """T of true pairs and of shuffled pairs, for each attribute."""
        # Windows of a batch come in random order, so moving features by one place shuffles them.
        both, found = torch.cat([features, features.roll(1, 0)]), []
        for number, (network, count) in enumerate(
            zip(self.networks, self.num_classes, strict=True)
        ):
            label = one_hot(labels[:, number], count).to(features.dtype)
            joint, marginal = network(torch.cat([label, label]), both).chunk(2)
            found.append((joint, marginal))
        return found


def regularised_loss(
    features: torch.Tensor,
    logits: torch.Tensor,
    hidden: torch.Tensor,
    kept: torch.Tensor,
    estimator: MutualInformation,
    weight: float,
) -> torch.Tensor:
    """Cross-entropy plus w_3 sum_k MI(z_s, y_k), equations (18) and (24).

    An estimate below zero says that T is poor, not that there is less information, so it counts as
    zero; the paper does not cut there.
    """
    information = estimator.information(features.float(), kept).clamp(min=0).sum()
    return cross_entropy(logits, hidden) + weight * information


# Settings and presets (section 5.4).


class PrivDiffuserNetworks(Settings):
    """Sizes of the networks.

    Parameters
    ----------
    kernel_dims
        Dimensions of all kernels on signals: 2 in the paper.
    unet_width, unet_blocks, patch_size
        Shape of the U-Net, see `UNetSettings`.
    conditioning
        "adaptive" is equation (13); "additive" is what the authors' code does.
    downsampling
        "strided", or "mean" of neighbours, as the authors' code does on WiFi-HAR.
    prediction
        What the U-Net gives: "noise", as in the paper, or "velocity" (see `VelocityDenoiser`).
    channels, hidden_sizes
        Layers of the surrogate and the auxiliary models, see `FeatureSettings`.
    """

    kernel_dims: int = Field(default=2, ge=1, le=2)
    unet_width: int = Field(default=256, gt=0)
    unet_blocks: int = Field(default=2, gt=0)
    patch_size: int = Field(default=1, gt=0)
    conditioning: Literal["adaptive", "additive"] = "adaptive"
    downsampling: Literal["strided", "mean"] = "strided"
    prediction: Literal["noise", "velocity"] = "noise"
    channels: tuple[int, ...] = (64, 128)
    hidden_sizes: tuple[int, ...] = (512, 128)

    def check(self) -> None:
        """Refuse what cannot be built."""
        self.unet(is_image=False)
        for name in ("channels", "hidden_sizes"):
            sizes = getattr(self, name)
            self.require(len(sizes) > 0 and min(sizes) > 0, name, "whole numbers above 0")

    def unet(self, is_image: bool) -> UNetSettings:
        """The U-Net; images need kernels of two dimensions."""
        return UNetSettings(
            self.unet_width,
            self.unet_blocks,
            kernel_dims=2 if is_image else self.kernel_dims,
            patch_size=1 if is_image else self.patch_size,
            adaptive=self.conditioning == "adaptive",
            strided=self.downsampling == "strided",
        )

    def features(self, is_image: bool) -> FeatureSettings:
        """The surrogate and the auxiliary models."""
        dims = 2 if is_image else self.kernel_dims
        return FeatureSettings(self.channels, self.hidden_sizes, kernel_dims=dims)


class PrivDiffuserTraining(Settings):
    """Training of the networks; the denoiser's, where a name does not say otherwise.

    Parameters
    ----------
    epochs, batch_size, learning_rate, max_steps
        See `TrainConfig`; all networks have one batch size and one `max_steps`, 0 is no limit.
        The paper's rate of 2e-4 is doubled for batches of 512.
    condition_dropout
        How often z_p is set to zero; 0.3 in the authors' code.
    ema_decay
        Of the averaged weights.
    surrogate_epochs, surrogate_learning_rate
        Of the surrogate and the auxiliary models.
    mutual_information_weight
        w_3 of equation (18).
    """

    epochs: int = Field(default=80, gt=0)
    batch_size: int = Field(default=512, gt=0)
    learning_rate: float = Field(default=4e-4, gt=0)
    max_steps: int = Field(default=0, ge=0)
    condition_dropout: float = Field(default=0.3, gt=0, lt=1)
    ema_decay: float = Field(default=0.999, gt=0, lt=1)
    surrogate_epochs: int = Field(default=80, gt=0)
    surrogate_learning_rate: float = Field(default=4e-4, gt=0)
    mutual_information_weight: float = Field(default=8.0, ge=0)

    def config(self, count: int, network: str = "") -> TrainConfig:
        """How the denoiser (""), or the "surrogate" and auxiliary models are trained."""
        prefix = f"{network}_" if network else ""
        epochs, rate = getattr(self, f"{prefix}epochs"), getattr(self, f"{prefix}learning_rate")
        return TrainConfig(epochs, self.batch_size, rate).with_max_steps(self.max_steps, count)


class PrivDiffuserSettings(Settings):
    """The defaults are the paper's on MotionSense, with `negative_target` "random"."""

    guidance: GuidanceSettings = GuidanceSettings(guidance_scale=7.8, negative_scale=0.05)
    sampling: SamplingSettings = SamplingSettings()
    training: PrivDiffuserTraining = PrivDiffuserTraining()
    networks: PrivDiffuserNetworks = PrivDiffuserNetworks()


FAST: Mapping[str, Any] = {
    "guidance_scale": 3.0,
    "sampler": "dpm-solver++",
    "sampling_steps": 10,
    "kernel_dims": 1,
    "unet_width": 32,
    "unet_blocks": 1,
    "patch_size": 4,
    "prediction": "velocity",
    "channels": (32, 64),
    "hidden_sizes": (256,),
    "epochs": 100,
    "batch_size": 128,
    "learning_rate": 1.5e-3,
    "max_steps": 2000,
    "ema_decay": 0.998,
    "surrogate_epochs": 30,
    "surrogate_learning_rate": 2e-3,
    # With the paper's 8 the small auxiliary model predicts nothing at all of simulated people.
    "mutual_information_weight": 0.5,
}

_MOBIACT: Mapping[str, Any] = {
    "negative_target": "wearer",
    "unet_width": 64,
    "channels": (8, 16),
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "fast": FAST,
    "paper": {"negative_target": "wearer"},
    "mobiact-gender": {**_MOBIACT, "guidance_scale": 2.5, "negative_scale": 0.5},
    "mobiact-weight": {**_MOBIACT, "guidance_scale": 3.8, "negative_scale": 1.5},
    "wifihar": {
        "negative_target": "wearer",
        "guidance_scale": 5.8,
        "negative_scale": 0.4,
        "mutual_information_weight": 4.0,
        "channels": (16, 32),
        "downsampling": "mean",
    },
    # The paper's baselines, at the sizes of "fast".
    "diffusion": {**FAST, "negative_target": "none"},
    "negation": {**FAST, "negative_target": "wearer", "mutual_information_weight": 0.0},
}


class PrivDiffuser(NegativelyGuided):
    """Windows made from noise, guided by what the kept attributes' classifier makes of a window.

    The denoiser is conditioned on z_p, the features of a surrogate utility model; negated
    classifier guidance leads away from a hidden class. Nothing else of a window goes into the new
    one, but for the class to avoid if that is the wearer's or predicted.

    Preset "paper" has the paper's networks and weights on MotionSense; "mobiact-gender",
    "mobiact-weight" and "wifihar" those for the other datasets. Preset "fast" is the same algorithm
    with small networks for two cores, a random `negative_target`, and another sampler. "diffusion"
    and "negation" are the paper's baselines at the sizes of "fast": without a negative condition,
    and without regularisation.

    What the paper leaves out, or what differs:

    - batches have 512 windows (128 in the paper, 8 on WiFi-HAR), the learning rate runs one cycle
      (warm-up and cosine there), weights are averaged;
    - cross-entropy as the paper says, where the authors' code has the binary one of a softmax;
    - samples are held within the range of the training data.

    Parameters
    ----------
    preset : str, default "fast"
        Settings to start from.
    seed : int, default 0
        Seed of all networks and batches.
    device : str, default "cpu"
        Where the networks are.
    **settings
        See `PrivDiffuserSettings` and its groups, by name: `guidance_scale=2.0`.

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> obfuscator = PrivDiffuser(epochs=1, surrogate_epochs=1, unet_width=8)
    >>> obfuscator = obfuscator.fit(windows, keep="activity", hide="gender")
    >>> obfuscator.strength_names()
    ('guidance_scale', 'gender')
    >>> obfuscator.obfuscate(windows, {"guidance_scale": 2.0, "gender": 0.1}, seed=1).shape
    (2, 32)
    >>> obfuscator.add_hidden(windows, "weight").policy_.hide  # trains one small network
    ('gender', 'weight')
    """

    name = "privdiffuser"
    summary = "diffusion guided to kept attributes, away from hidden ones"
    Settings = PrivDiffuserSettings
    presets = PRESETS
    membership_score = FIXED_NOISE
    settings: PrivDiffuserSettings

    # Training.

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        training, signals = self.settings.training, windows.on(self.device)
        # Section 4.2: the surrogate utility model predicts all kept attributes.
        known = windows.select(self._kept_codes(windows).min(1) != UNKNOWN)
        known_signals, kept = known.on(self.device), self._tensor(self._kept_codes(known))
        seed = derived_seed(self.seed, _SURROGATE)
        surrogate = cast(FeatureNet, self._new_network("surrogate", seed))
        self.networks_ = {"surrogate": surrogate}

        def surrogate_loss(index: torch.Tensor) -> torch.Tensor:
            _, logits = surrogate(known_signals[index])
            pairs = zip(logits, kept[index].unbind(1), strict=True)
            return torch.stack([cross_entropy(*pair) for pair in pairs]).sum()

        self.metrics_["surrogate_loss"] = train_network(
            "surrogate",
            surrogate,
            surrogate_loss,
            len(known),
            training.config(len(known), "surrogate"),
            seed,
            self.device,
            self.checkpoint,
        )
        # Equation (6): the denoiser, conditioned on z_p.
        seed = derived_seed(self.seed, _DENOISER)
        denoiser = self._new_network("denoiser", seed)
        self.networks_["denoiser"], self.metrics_["denoiser_loss"] = train_denoiser(
            denoiser,
            signals.__getitem__,
            self._make_conditions(windows),
            self._schedule(),
            training.config(len(windows)),
            seed,
            dropout=training.condition_dropout,
            ema_decay=training.ema_decay,
            velocity=self.settings.networks.prediction == "velocity",
            checkpoint=self.checkpoint,
        )
        self.range_ = self._range_of(windows)
        # Section 4.3: an auxiliary privacy model of each hidden attribute.
        for name in self.policy_.hide:
            self._fit_auxiliary(windows, name)

    def _fit_auxiliary(self, windows: Windows, attribute: str) -> None:
        """Equations (18) and (24), on clean windows (universal guidance, section 4.3.3)."""
        codes = windows.codes(attribute)
        windows = windows.select((codes != UNKNOWN) & (self._kept_codes(windows).min(1) != UNKNOWN))
        training, signals = self.settings.training, windows.on(self.device)
        hidden = self._tensor(windows.codes(attribute))
        kept = self._tensor(self._kept_codes(windows))
        z_p, weight = self._make_conditions(windows), training.mutual_information_weight
        seed = derived_seed(self.seed, _AUXILIARY + sorted(self.classes_).index(attribute))
        network = self._new_network(auxiliary_of(attribute), seed)
        with seeded(derived_seed(seed, _MINE)):
            sizes = [len(self.classes_[name]) for name in self.policy_.keep]
            estimator = MutualInformation(sizes, z_p.shape[1]).to(self.device)

        def predict(index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            z_s, (logits,) = network(signals[index], z_p[index])
            return z_s, logits

        def estimator_loss(index: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                z_s, _ = predict(index)
            return estimator.loss(z_s.float(), kept[index])

        def auxiliary_loss(index: torch.Tensor) -> torch.Tensor:
            z_s, logits = predict(index)
            if not weight:
                return cross_entropy(logits, hidden[index])
            return regularised_loss(z_s, logits, hidden[index], kept[index], estimator, weight)

        targets = [TrainingTarget(network, auxiliary_loss)]
        if weight:  # the estimator and the auxiliary model in turns
            targets = [TrainingTarget(estimator, estimator_loss), *targets]
        losses = train(
            f"auxiliary-{attribute}",
            targets,
            len(windows),
            training.config(len(windows), "surrogate"),
            seed,
            self.device,
            self.checkpoint,
        )
        self.metrics_[f"auxiliary_loss_{attribute}"] = losses[-1]
        self.networks_ = {**self.networks_, auxiliary_of(attribute): network.eval()}

    def with_regularisation(self, windows: Windows, weight: float) -> Self:
        """The same denoiser, with auxiliary models trained anew at another w_3.

        `windows` are the training windows. The paper's baseline "Diffusion with Negation" has 0.
        """
        self._check_fitted()
        self._check_alike(windows)
        other = copy.copy(self)
        other.settings = self.settings.with_changes({"mutual_information_weight": weight})
        other.metrics_ = dict(self.metrics_)
        for name in self.policy_.hide:
            other._fit_auxiliary(other._standard(windows), name)
        return other

    def _range_of(self, windows: Windows) -> torch.Tensor:
        """The smallest and the largest number of each channel: (2, channels, 1, ...)."""
        signal = windows.signal
        axes = (0, *range(2, signal.ndim))
        limits = torch.from_numpy(np.stack([signal.min(axes), signal.max(axes)]))
        return limits.view(2, -1, *[1] * (signal.ndim - 2))

    # Condition.

    def _make_condition(self, signal: torch.Tensor) -> torch.Tensor:
        """z_p."""
        features: torch.Tensor = self.networks_["surrogate"](signal)[0]
        return features

    # Guidance and sampling.

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        """Windows made from noise x_T, guided by equation (20)."""
        guidance, sampling = self.settings.guidance, self.settings.sampling
        schedule, denoiser = self._schedule(), autocast_bf16(self.networks_["denoiser"])
        low, high = self.range_.to(self.device)
        noise = rng.standard_normal((len(windows), *self.hook_shape), dtype=np.float32)
        scale = strength.get("guidance_scale", guidance.guidance_scale)
        negative = self._negative_inputs(windows, strength, rng)  # w_2 and the classes to avoid
        inputs = {
            "x_T": torch.from_numpy(noise),
            "z_p": self._make_conditions(windows),
            "w_1": per_window(scale, len(windows)),
            **negative,
        }
        full = bool(negative) and guidance.gradient == "full"  # differentiates the denoiser too

        @torch.no_grad()
        def sample(batch: Inputs) -> torch.Tensor:
            x, z_p, w_1 = batch["x_T"], batch["z_p"], batch["w_1"]
            sampler = SAMPLERS[sampling.sampler](schedule, sampling.sampling_steps)
            for t, t_next in sampler:
                with torch.set_grad_enabled(full):
                    x = x.detach().requires_grad_(full)
                    # Equation (12): the noise in x_t, guided towards the kept attributes.
                    epsilon = classifier_free(denoiser, x, t, z_p, w_1)
                    # Equation (19): the clean windows x_0 that this points to.
                    clean = schedule.to_clean(x, epsilon, t).clamp(low, high)
                if negative:
                    # Equations (20), (23): away from the classes that the auxiliary models find.
                    log_likelihood = partial(self._log_likelihood, batch, z_p)
                    clean = negative_guidance(
                        x, clean, t, schedule, log_likelihood, guidance.gradient
                    ).clamp(low, high)
                x = sampler.step(x.detach(), clean, t, t_next)
            return x

        return run_in_batches(sample, inputs, self.device)

    def _hidden_log_probs(
        self, attribute: str, clean: torch.Tensor, condition: torch.Tensor
    ) -> torch.Tensor:
        """log p(y_s | z_p, x_0) by the auxiliary privacy model."""
        _, (logits,) = self.networks_[auxiliary_of(attribute)](clean, condition)
        log_probs: torch.Tensor = logits.log_softmax(1)
        return log_probs

    def _to_denoised(self, signal: torch.Tensor) -> torch.Tensor:
        return signal

    def _membership_scores(self, windows: Windows) -> np.ndarray:
        denoiser, signals = self.networks_["denoiser"], windows.on(self.device)
        conditions = self._make_conditions(windows)
        losses = fixed_noise_losses(denoiser, signals.__getitem__, conditions, self._schedule())
        return -losses.cpu().numpy()

    # Networks of this policy and these windows.

    def _network_names(self) -> tuple[str, ...]:
        return ("surrogate", "denoiser", *(auxiliary_of(name) for name in self.policy_.hide))

    def _build_network(self, which: str) -> nn.Module:
        networks, shape = self.settings.networks, self.hook_shape
        is_image = len(shape) == 3
        if which == "denoiser":
            unet = UNet(shape, networks.unet(is_image))
            velocity = networks.prediction == "velocity"
            return VelocityDenoiser(unet, self._schedule()) if velocity else unet
        layers = networks.features(is_image)
        if which == "surrogate":
            sizes = [len(self.classes_[name]) for name in self.policy_.keep]
            return FeatureNet(shape, sizes, layers)
        _, _, attribute = which.partition(" of ")
        return FeatureNet(shape, (len(self.classes_[attribute]),), layers, layers.features)

    def _schedule(self) -> NoiseSchedule:
        return NoiseSchedule.linear(self.settings.sampling.timesteps)

    def _state(self) -> dict[str, np.ndarray]:
        return {**super()._state(), "range": self.range_.numpy()}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.range_ = torch.from_numpy(state["range"])
        super()._restore(state)
