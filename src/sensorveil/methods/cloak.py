"""CLOAK: latent diffusion, guided by contrastive features towards what is kept.

Yang and Ardakanian, CLOAK: Contrastive Guidance for Latent Diffusion-Based Data Obfuscation.
Sections and equations below are the paper's.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from pydantic import Field
from torch import nn
from torch.nn.functional import cross_entropy, softplus

from sensorveil.cuda_graphs import Inputs
from sensorveil.data.windows import UNKNOWN, Windows, joint_classes
from sensorveil.diffusion.autoencoder import Autoencoder, dense_autoencoder, grid_autoencoder
from sensorveil.diffusion.batched import run_in_batches
from sensorveil.diffusion.features import FeatureNet, FeatureSettings
from sensorveil.diffusion.guidance import classifier_free, negative_guidance
from sensorveil.diffusion.latent import LatentDiffusion
from sensorveil.diffusion.samplers import SAMPLERS
from sensorveil.diffusion.schedule import NoiseSchedule
from sensorveil.diffusion.training import autocast_bf16
from sensorveil.diffusion.unet import UNet, UNetSettings
from sensorveil.methods.base import FIXED_NOISE, ConditionProbe
from sensorveil.methods.condition_probe import held_out_people, probe_condition
from sensorveil.methods.negative_guidance import (
    GuidanceSettings,
    NegativelyGuided,
    SamplingSettings,
    auxiliary_of,
    per_window,
)
from sensorveil.methods.settings import Settings
from sensorveil.train import Checkpoint, TrainConfig, derived_seed, seeded, train_network

_AUTOENCODER, _DENOISER, _PROBE, _ENCODER, _AUXILIARY = 21, 22, 23, 1000, 2000  # uses of the seed

# Networks (section V-C). The autoencoder and the U-Net are in `sensorveil.diffusion`.


class ContrastiveEncoder(nn.Module):
    """phi: two convolutions and three dense layers, features of length 1.

    Table VI gives it the size of PrivDiffuser's surrogate, so it has those layers, without a head.

    >>> small = FeatureSettings(channels=(4, 8), hidden_sizes=(16,))
    >>> ContrastiveEncoder((2, 16), small)(torch.ones(3, 2, 16)).shape
    torch.Size([3, 60])
    """

    def __init__(self, shape: tuple[int, ...], settings: FeatureSettings) -> None:
        super().__init__()
        self.network = FeatureNet(shape, (), settings)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """z_U of windows: (n, features)."""
        features, _ = self.network(signal)
        return features


class AuxiliaryModel(nn.Module):
    """eta: predicts a hidden attribute from latents and z_U, by five dense layers.

    The paper does not say how wide they are. With the default sizes it has the 0.89 MB (0.23
    million parameters) of table VI for latents and z_U of 60 numbers each and two classes.

    >>> AuxiliaryModel(60, 60, num_classes=2)(torch.zeros(3, 60), torch.zeros(3, 60)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        latent: int,
        features: int,
        num_classes: int,
        hidden_sizes: Sequence[int] = (512, 256, 128, 60),
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise((latent + features, *hidden_sizes)):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden_sizes[-1], num_classes))

    def forward(self, latents: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Logits (n, classes)."""
        logits: torch.Tensor = self.layers(torch.cat([latents.flatten(1), features], dim=1))
        return logits


# Loss of the encoder (section IV-B).

_NEVER = -1e4
"""The similarity of pairs that do not count: it vanishes, and still has a gradient."""


def info_nce(features: torch.Tensor, codes: torch.Tensor, temperature: float) -> torch.Tensor:
    """InfoNCE, equation (6), mean over all pairs of one class.

    Every window of the batch is an anchor, every other one of its class a positive sample in turn,
    and all of other classes are the negative samples.

    Parameters
    ----------
    features
        z_U of length 1, (n, features), so that S(u, v) is their product.
    codes
        The kept class of each window, (n,).
    temperature
        tau.

    Examples
    --------
    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> round(float(info_nce(z, torch.tensor([0, 0, 1]), temperature=1.0)), 4)  # log(1 + e^-2)
    0.1269
    """
    similarity = features @ features.T / temperature
    same = codes[:, None] == codes
    negatives = similarity.masked_fill(same, _NEVER).logsumexp(1, keepdim=True)
    pairs = same & ~torch.eye(len(codes), dtype=torch.bool, device=codes.device)
    # -log e^s / (e^s + e^m) = log(1 + e^(m - s)), with m the log of the negatives' sum.
    losses = softplus(negatives - similarity) * pairs
    return losses.sum() / pairs.sum().clamp(min=1)


# Settings and presets (sections V-C and V-D).


class CloakNetworks(Settings):
    """Sizes of the networks.

    Parameters
    ----------
    latent_size
        Numbers in the latents of a signal.
    features
        Numbers in z_U for each kept attribute.
    autoencoder_sizes
        Dense layers of the autoencoder of signals.
    autoencoder_channels
        Convolutions of the autoencoder of images.
    encoder_channels, encoder_hidden_sizes, encoder_kernel_dims
        Layers of the contrastive encoder, see `FeatureSettings`.
    unet_width, unet_blocks
        Shape of the U-Net, see `UNetSettings`.
    auxiliary_sizes
        Dense layers of the auxiliary models.
    """

    latent_size: int = Field(default=60, gt=0)
    features: int = Field(default=60, gt=0)
    autoencoder_sizes: tuple[int, ...] = (2048, 2048, 1024, 512)
    autoencoder_channels: tuple[int, ...] = (128, 256, 512)
    encoder_channels: tuple[int, ...] = (64, 128)
    encoder_hidden_sizes: tuple[int, ...] = (512, 128)
    encoder_kernel_dims: int = Field(default=2, ge=1, le=2)
    unet_width: int = Field(default=256, gt=0)
    unet_blocks: int = Field(default=2, gt=0)
    auxiliary_sizes: tuple[int, ...] = (512, 256, 128, 60)

    def check(self) -> None:
        """Refuse what cannot be built."""
        UNetSettings(self.unet_width)
        for name in type(self).model_fields:
            sizes = getattr(self, name)
            if isinstance(sizes, tuple):
                self.require(len(sizes) > 0 and min(sizes) > 0, name, "whole numbers above 0")


class CloakTraining(Settings):
    """Training of the networks; the denoiser's, where a name does not say otherwise.

    Parameters
    ----------
    epochs, batch_size, learning_rate
        See `TrainConfig`; all networks have one batch size. The paper's rate of 2e-4 is doubled for
        batches of 512.
    max_steps
        The most steps that any network takes, however many windows there are; 0 is no limit.
    condition_dropout
        How often z_U is set to zero, for classifier-free guidance.
    ema_decay
        Of the averaged weights.
    autoencoder_epochs, autoencoder_learning_rate, kl_weight
        Of the autoencoder; `kl_weight` is that of the KL divergence.
    encoder_epochs, encoder_learning_rate, temperature
        Of the encoders and auxiliary models; `temperature` is tau of equation (6).
    """

    epochs: int = Field(default=80, gt=0)
    batch_size: int = Field(default=512, gt=0)
    learning_rate: float = Field(default=4e-4, gt=0)
    max_steps: int = Field(default=0, ge=0)
    condition_dropout: float = Field(default=0.3, gt=0, lt=1)
    ema_decay: float = Field(default=0.999, gt=0, lt=1)
    autoencoder_epochs: int = Field(default=80, gt=0)
    autoencoder_learning_rate: float = Field(default=1e-3, gt=0)
    kl_weight: float = Field(default=1e-6, ge=0)
    encoder_epochs: int = Field(default=80, gt=0)
    encoder_learning_rate: float = Field(default=4e-4, gt=0)
    temperature: float = Field(default=0.1, gt=0)

    def config(self, count: int, network: str = "") -> TrainConfig:
        """How a network ("", "autoencoder" or "encoder") is trained on `count` windows."""
        prefix = f"{network}_" if network else ""
        epochs, rate = getattr(self, f"{prefix}epochs"), getattr(self, f"{prefix}learning_rate")
        return TrainConfig(epochs, self.batch_size, rate).with_max_steps(self.max_steps, count)


class CloakSettings(Settings):
    """The defaults are the paper's on MotionSense, with `negative_target` "random"."""

    guidance: GuidanceSettings = GuidanceSettings()
    sampling: SamplingSettings = SamplingSettings()
    training: CloakTraining = CloakTraining()
    networks: CloakNetworks = CloakNetworks()


FAST: Mapping[str, Any] = {
    "sampler": "dpm-solver++",
    "sampling_steps": 10,
    "guidance_scale": 3.0,
    "latent_size": 32,
    "features": 32,
    "autoencoder_sizes": (256, 128),
    "autoencoder_channels": (16, 32, 64),
    "encoder_channels": (16, 32),
    "encoder_hidden_sizes": (128,),
    "encoder_kernel_dims": 1,
    "unet_width": 24,
    "unet_blocks": 1,
    "auxiliary_sizes": (64, 64, 32, 32),
    "epochs": 100,
    "batch_size": 128,
    "learning_rate": 2e-3,
    "max_steps": 2000,
    "ema_decay": 0.998,
    "autoencoder_epochs": 60,
    "autoencoder_learning_rate": 2e-3,
    "encoder_epochs": 30,
    "encoder_learning_rate": 2e-3,
}

_PAPER: Mapping[str, Any] = {"negative_target": "wearer"}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "fast": FAST,
    "paper": _PAPER,
    "mobiact": {
        **_PAPER,
        "guidance_scale": 4.0,
        "negative_scale": 0.05,
        "epochs": 28,
        "encoder_channels": (8, 16),
    },
    "wifihar": {
        **_PAPER,
        "guidance_scale": 6.0,
        "negative_scale": 0.005,
        "encoder_channels": (16, 32),
    },
    "audiomnist": {
        **_PAPER,
        "guidance_scale": 2.0,
        "negative_scale": 0.07,
        "epochs": 120,
        "kl_weight": 1e-7,
        "encoder_epochs": 30,
    },
    "adience": {
        **_PAPER,
        "guidance_scale": 6.0,
        "negative_scale": 0.5,
        "encoder_channels": (8, 16),
    },
}


class Cloak(NegativelyGuided):
    """Latent diffusion guided by what a contrastive encoder makes of a window.

    Windows are made from noise in the latent space of an autoencoder. The denoiser is conditioned
    on z_U, the features of an encoder that brings windows of one kept class together; negated
    classifier guidance leads away from a hidden class. z_U tells more than the class that it was
    trained for, and the output tells what z_U tells: see `condition_probe`.

    Preset "paper" has the paper's networks and weights on MotionSense; "mobiact", "wifihar",
    "audiomnist" and "adience" those for the other datasets. Preset "fast" is the same algorithm
    with small networks for two cores, a random `negative_target`, and another sampler.

    What the paper leaves out, or what differs:

    - tau of equation (6) is 0.1; all other windows of a batch are positive or negative samples;
    - widths of the auxiliary model are those that give its size in table VI; the encoder's widths
      beyond MotionSense are PrivDiffuser's;
    - epochs of the autoencoder, encoder and auxiliary model are 80 (30 on AudioMNIST, figure 5);
      batches have 512 windows, the learning rate runs one cycle, weights are averaged;
    - latents are in standard units, and samples are held within the latents' range.

    Parameters
    ----------
    preset : str, default "fast"
        Settings to start from.
    seed : int, default 0
        Seed of all networks and batches.
    device : str, default "cpu"
        Where the networks are.
    **settings
        See `CloakSettings` and its groups, by name: `guidance_scale=2.0`.

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> cloak = Cloak(epochs=1, encoder_epochs=1, autoencoder_epochs=1, unet_width=8)
    >>> cloak = cloak.fit(windows, keep="activity", hide="gender")
    >>> cloak.strength_names()
    ('guidance_scale', 'gender')
    >>> cloak.obfuscate(windows, {"guidance_scale": 2.0, "gender": 0.1}, seed=1).shape
    (2, 32)
    """

    name = "cloak"
    summary = "latent diffusion guided by contrastive features"
    Settings = CloakSettings
    presets = PRESETS
    membership_score = FIXED_NOISE
    settings: CloakSettings

    # Training.

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        self.networks_ = {}
        training, signals = self.settings.training, windows.on(self.device)
        # Section IV-A: the autoencoder, equation (4).
        diffusion = self._build_diffusion().to(self.device)
        self.metrics_["autoencoder_loss"] = diffusion.fit_autoencoder(
            signals.__getitem__,
            len(windows),
            training.config(len(windows), "autoencoder"),
            derived_seed(self.seed, _AUTOENCODER),
            training.kl_weight,
            self.checkpoint,
        )
        # Section IV-B: an encoder of each kept attribute, equation (6).
        for name in self.policy_.keep:
            encoder, losses = self.train_encoder(windows, name, self.checkpoint)
            self.networks_[_encoder(name)] = encoder
            self.metrics_[f"encoder_loss_{name}"] = losses
        # Equation (5), with the condition of (7).
        self.metrics_["denoiser_loss"] = diffusion.fit_denoiser(
            signals.__getitem__,
            self._make_conditions(windows),
            training.config(len(windows)),
            derived_seed(self.seed, _DENOISER),
            dropout=training.condition_dropout,
            ema_decay=training.ema_decay,
            checkpoint=self.checkpoint,
        )
        self.networks_["diffusion"] = diffusion
        # Section IV-C: an auxiliary model of each hidden attribute.
        for name in self.policy_.hide:
            self._fit_auxiliary(windows, name)

    def train_encoder(
        self, windows: Windows, attribute: str, checkpoint: Checkpoint | None = None
    ) -> tuple[nn.Module, list[float]]:
        """A contrastive encoder of one attribute, from windows in standard units, and its losses.

        No hidden attribute has a part in it.
        """
        windows = windows.select(windows.codes(attribute) != UNKNOWN)
        seed = self._seed_of(_ENCODER, attribute)
        encoder = self._new_network(_encoder(attribute), seed)
        signals, codes = windows.on(self.device), self._tensor(windows.codes(attribute))
        temperature = self.settings.training.temperature

        def loss(index: torch.Tensor) -> torch.Tensor:
            return info_nce(encoder(signals[index]).float(), codes[index], temperature)

        config = self.settings.training.config(len(windows), "encoder")
        losses = train_network(
            f"encoder-{attribute}",
            encoder,
            loss,
            len(windows),
            config,
            seed,
            self.device,
            checkpoint,
        )
        return encoder, losses

    def _fit_auxiliary(self, windows: Windows, attribute: str) -> None:
        """The auxiliary model of a hidden attribute, on clean latents (universal guidance)."""
        windows = windows.select(windows.codes(attribute) != UNKNOWN)
        seed = self._seed_of(_AUXILIARY, attribute)
        network = self._new_network(auxiliary_of(attribute), seed)
        signals, codes = windows.on(self.device), self._tensor(windows.codes(attribute))
        latents = self._diffusion.autoencoder.all_latents(signals.__getitem__, len(windows))
        features = self._make_conditions(windows)

        def loss(index: torch.Tensor) -> torch.Tensor:
            return cross_entropy(network(latents[index], features[index]), codes[index])

        config = self.settings.training.config(len(windows), "encoder")
        self.metrics_[f"auxiliary_loss_{attribute}"] = train_network(
            f"auxiliary-{attribute}",
            network,
            loss,
            len(windows),
            config,
            seed,
            self.device,
            self.checkpoint,
        )
        self.networks_ = {**self.networks_, auxiliary_of(attribute): network}

    # Condition.

    def _make_condition(self, signal: torch.Tensor) -> torch.Tensor:
        """z_U, of all kept attributes side by side (section V-K), together of length 1."""
        parts = [self.networks_[_encoder(name)](signal) for name in self.policy_.keep]
        return torch.cat(parts, dim=1) / len(parts) ** 0.5

    def condition_probe(self, windows: Windows) -> tuple[ConditionProbe, ...]:
        """How well every attribute that is not kept is predicted from z_U.

        Encoders are trained without half of the people, and probes predict these people's
        attributes from their z_U.

        Parameters
        ----------
        windows
            The training windows.

        Returns
        -------
        tuple of ConditionProbe
            One for each attribute that can be predicted; none where there are too few people.
        """
        self._check_fitted()
        self._check_alike(windows)
        windows = self._standard(windows)
        windows = windows.select(self._kept_codes(windows).min(1) != UNKNOWN)
        held = held_out_people(windows, self.policy_.hide[0], derived_seed(self.seed, _PROBE))
        if held is None:
            return ()
        rehearsal, train, unseen = copy.copy(self), windows.select(~held), windows.select(held)
        rehearsal.networks_ = {
            _encoder(name): self.train_encoder(train, name)[0] for name in self.policy_.keep
        }
        codes, classes = joint_classes(train, self.policy_.keep)
        known, features = (
            rehearsal._make_conditions(part).cpu().numpy() for part in (train, unseen)
        )
        centers = np.stack([known[codes == code].mean(0) for code in range(len(classes))])
        centers /= np.linalg.norm(centers, axis=1, keepdims=True)
        kept = (features @ centers.T).argmax(1)
        return probe_condition(features, kept, unseen, self.policy_.keep, "z_U")

    # Guidance and sampling.

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        """Windows made from noise z_T, guided by equation (12)."""
        guidance, sampling, model = self.settings.guidance, self.settings.sampling, self._diffusion
        schedule, denoiser = model.schedule, autocast_bf16(model.denoiser)
        noise = rng.standard_normal((len(windows), *model.latent_shape), dtype=np.float32)
        scale = strength.get("guidance_scale", guidance.guidance_scale)
        negative = self._negative_inputs(windows, strength, rng)  # w_S and the classes to avoid
        inputs = {
            "z_T": torch.from_numpy(noise),
            "z_U": self._make_conditions(windows),
            "w_U": per_window(scale, len(windows)),
            **negative,
        }
        full = bool(negative) and guidance.gradient == "full"  # differentiates the denoiser too

        @torch.no_grad()
        def sample(batch: Inputs) -> torch.Tensor:
            z, z_u, w_u = batch["z_T"], batch["z_U"], batch["w_U"]
            sampler = SAMPLERS[sampling.sampler](schedule, sampling.sampling_steps)
            for t, t_next in sampler:
                with torch.set_grad_enabled(full):
                    z = z.detach().requires_grad_(full)
                    # Equation (7): the noise in z_t, guided towards the kept attributes.
                    epsilon = classifier_free(denoiser, z, t, z_u, w_u)
                    # Equation (11): the clean latents z_0 that this points to.
                    clean = schedule.to_clean(z, epsilon, t).clamp(model.low, model.high)
                if negative:
                    # Equation (12): away from the hidden classes that the auxiliary models find.
                    log_likelihood = partial(self._log_likelihood, batch, z_u)
                    clean = negative_guidance(
                        z, clean, t, schedule, log_likelihood, guidance.gradient
                    ).clamp(model.low, model.high)
                z = sampler.step(z.detach(), clean, t, t_next)
            return model.decode(z)

        return run_in_batches(sample, inputs, self.device)

    def _hidden_log_probs(
        self, attribute: str, clean: torch.Tensor, condition: torch.Tensor
    ) -> torch.Tensor:
        """log p(S | z_U, z_0) by the auxiliary model."""
        logits: torch.Tensor = self.networks_[auxiliary_of(attribute)](clean, condition)
        return logits.log_softmax(1)

    def _to_denoised(self, signal: torch.Tensor) -> torch.Tensor:
        return self._diffusion.encode(signal)

    def _membership_scores(self, windows: Windows) -> np.ndarray:
        signals, conditions = windows.on(self.device), self._make_conditions(windows)
        return -self._diffusion.fixed_noise_losses(signals.__getitem__, conditions).cpu().numpy()

    # Networks of this policy and these windows.

    @property
    def _diffusion(self) -> LatentDiffusion:
        return cast(LatentDiffusion, self.networks_["diffusion"])

    def _network_names(self) -> tuple[str, ...]:
        encoders = [_encoder(name) for name in self.policy_.keep]
        return ("diffusion", *encoders, *(auxiliary_of(name) for name in self.policy_.hide))

    def _build_network(self, which: str) -> nn.Module:
        sizes, shape = self.settings.networks, self.hook_shape
        kind, _, attribute = which.partition(" of ")
        if kind == "encoder":
            dims = 2 if len(shape) == 3 else sizes.encoder_kernel_dims
            layers = FeatureSettings(
                sizes.encoder_channels, sizes.encoder_hidden_sizes, sizes.features, dims
            )
            return ContrastiveEncoder(shape, layers)
        if kind == "auxiliary":
            latent = int(np.prod(self._diffusion.latent_shape))
            num_classes = len(self.classes_[attribute])
            return AuxiliaryModel(latent, self._condition_size, num_classes, sizes.auxiliary_sizes)
        return self._build_diffusion()

    def _build_diffusion(self) -> LatentDiffusion:
        with seeded(derived_seed(self.seed, _AUTOENCODER)):
            autoencoder = self._build_autoencoder()
        with seeded(derived_seed(self.seed, _DENOISER)):
            unet = self._build_unet(autoencoder.latent_shape)
        return LatentDiffusion(autoencoder, unet, self._schedule())

    def _build_autoencoder(self) -> Autoencoder:
        sizes, shape = self.settings.networks, self.hook_shape
        if len(shape) == 3:  # section V-A5
            return grid_autoencoder(shape, widths=sizes.autoencoder_channels)
        return dense_autoencoder(shape, sizes.latent_size, sizes.autoencoder_sizes)

    def _build_unet(self, latent_shape: tuple[int, ...]) -> UNet:
        """Kernels of 1 x 3 along the latents of signals, of 3 x 3 on those of images."""
        sizes, dims = self.settings.networks, 1 if len(latent_shape) == 1 else 2
        layers = UNetSettings(sizes.unet_width, sizes.unet_blocks, self._condition_size, dims)
        return UNet(latent_shape, layers)

    @property
    def _condition_size(self) -> int:
        return self.settings.networks.features * len(self.policy_.keep)

    def _schedule(self) -> NoiseSchedule:
        return NoiseSchedule.linear(self.settings.sampling.timesteps)

    def _seed_of(self, use: int, attribute: str) -> int:
        return derived_seed(self.seed, use + sorted(self.classes_).index(attribute))


def _encoder(attribute: str) -> str:
    return f"encoder of {attribute}"
