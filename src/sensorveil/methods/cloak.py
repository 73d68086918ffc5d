"""CLOAK: latents made from noise, led by what a contrastive encoder makes of the kept attributes.

Yang and Ardakanian, CLOAK: Contrastive Guidance for Latent Diffusion-Based Data Obfuscation.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
import torch
from torch import nn

from sensorveil.cuda_graphs import Inputs
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.diffusion.autoencoder import (
    Autoencoder,
    convolutional_autoencoder,
    dense_autoencoder,
    grid_autoencoder,
    start_linear,
    train_autoencoder,
)
from sensorveil.diffusion.contrastive import (
    ClassPoints,
    PublishedEncoder,
    SmallEncoder,
    train_encoder,
)
from sensorveil.diffusion.mlp import LatentReader, ResidualDenoiser, train_reader
from sensorveil.diffusion.unet import UNet
from sensorveil.errors import Refusal
from sensorveil.measures.probes import held_out_people, probes
from sensorveil.methods.classes import joint_classes
from sensorveil.methods.cloak_settings import PRESETS, CloakSettings
from sensorveil.methods.guided import GuidedDiffusion
from sensorveil.methods.pieces import pieces
from sensorveil.train import Checkpoint, derived_seed, seeded

_CODER, _GENERATOR, _PROBE, _ENCODER, _AUXILIARY = 21, 22, 23, 1000, 2000  # what seeds are for
_BOTTLENECK = "bottleneck"
_ROLE = "role"


class Cloak(GuidedDiffusion):
    """Latent diffusion, told what a contrastive encoder of each kept attribute makes of a window.

    What the output says is bounded by what the generator is told. A contrastive encoder tells more
    than the class that it was trained for, so the run says how much (`metrics_["probe"]`): encoders
    are trained without half of the people, and every attribute is read from what these people's
    windows come to, z_U as it is and what is told at this `bottleneck`.

    Preset `paper` has the sizes and weights of sections V-C and V-D on MotionSense; `mobiact`,
    `wifihar`, `audiomnist` and `adience` are those for other datasets. What the paper leaves out,
    or differs:

    - tau of equation (6), 0.1 here; how many negatives there are: all of the batch.
    - `wearer` is what their guidance avoids, as in the code of PrivDiffuser. It needs true labels,
      and tells them to whoever trains on the output; `fast` avoids nothing unless it is asked to.
    - widths of the auxiliary model: those that give its size in table VI; of the encoder, beyond
      MotionSense: those of PrivDiffuser (on AudioMNIST and Adience unknown: as on MotionSense, and
      as on MobiAct).
    - epochs of the autoencoder, encoder and auxiliary model: 80, of the encoder on AudioMNIST the
      30 of figure 5. Batches of 512 for a GPU, one cycle of the rate, an average of the weights,
      and samples held within the range of the data, as for `PrivDiffuser`.
    - latents are standardised: the noise levels are made for that.

    Preset `fast` is ours: latents that start as principal components, a residual MLP that makes
    them in 8 steps, an encoder that compares windows with one point a class, a bottleneck of 1,
    so that the class alone is told, a coin for the hidden one, the best of twelve tries. A panel
    of four models reads the class and judges the tries. Its settings were chosen on validation
    windows of `watch`, of MotionSense and of simulated images. There 112 latents were no better
    than 60, one deviation for all latents was better than one for each, the loss of v no better
    than that of the noise, and windows between windows no help.

    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> obfuscator = Cloak(epochs=1, reader_epochs=1).fit(windows, "activity", "gender")
    >>> obfuscator.strength_names()
    ('keep', 'bottleneck', 'gender')
    >>> obfuscator.obfuscate(windows, {"keep": 2.0, "bottleneck": 0.5}, seed=1).shape
    (2, 32)
    """

    name = "cloak"
    summary = "latent diffusion led by what a contrastive encoder makes of the kept attributes"
    capabilities = replace(
        GuidedDiffusion.capabilities,
        strengths={
            **GuidedDiffusion.capabilities.strengths,
            _BOTTLENECK: "the share of what is told beyond the class that noise replaces, 0 to 1",
        },
    )
    Settings = CloakSettings
    presets = PRESETS
    guiding = (*GuidedDiffusion.guiding, _BOTTLENECK, "coin")
    settings: CloakSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        self.nets_: dict[str, nn.Module] = {}
        self._learn_roles(windows)
        self._fit_autoencoder(windows)
        self._fit_condition(windows)
        latents = self._latents(windows)
        self._learn_limits(latents.__getitem__, len(windows))
        features, roles = self._features(windows), self._own_roles(windows)
        told, seed = torch.cat([features, roles], dim=1), derived_seed(self.seed, _GENERATOR)
        parts = [size for size in (features.shape[1], roles.shape[1]) if size]
        self._fit_generator(latents.__getitem__, told, seed, parts)  # equations (5) and (7)
        self.apart_ = True
        for name in self.policy_.hide:
            self._add_hidden(windows, name)
        self._probe_condition(windows)

    def with_settings(self, windows: Windows | None = None, **settings: Any) -> Self:
        """As for all; what probes found in what is told is not known at another bottleneck."""
        other = super().with_settings(windows, **settings)
        if other.settings.coin and not self.settings.coin and not len(self.roles_):
            raise Refusal("setting 'coin' cannot be true in a run that was trained without")
        if other.settings.bottleneck != self.settings.bottleneck and "probe" in self.metrics_:
            probed = {k: v for k, v in self.metrics_["probe"].items() if k != "told"}
            other.metrics_ = {**other.metrics_, "probe": probed}
        return other

    def _fit_condition(self, windows: Windows) -> None:
        """The encoders of the kept attributes, and how their features lie."""
        known = self._known(windows)
        for name in self.policy_.keep:
            self._fit_encoder(known, name)
        self._learn_centres(known)
        self._learn_spreads(known)

    def _known(self, windows: Windows) -> Windows:
        """The windows whose kept classes are all known."""
        return windows.select(self._kept(windows).min(1) != UNKNOWN)

    def _fit_autoencoder(self, windows: Windows) -> None:
        chosen, seed = self.settings, derived_seed(self.seed, _CODER)
        with seeded(seed):
            net = cast(Autoencoder, self._blank_net("autoencoder").to(self.device))
        gather = self._gather(windows)
        if chosen.small:
            start_linear(net, gather, len(windows), seed)
        self.metrics_["autoencoder_loss"] = train_autoencoder(
            net,
            gather,
            len(windows),
            chosen.divergence,
            chosen.coder_course(len(windows)),
            seed,
            self.checkpoint,
        )
        self.nets_["autoencoder"] = net

    def _fit_encoder(self, windows: Windows, name: str) -> None:
        net, losses = self.train_encoder(windows, name, self.checkpoint)
        self.nets_[f"encoder.{name}"], self.metrics_[f"encoder_loss_{name}"] = net, losses

    def train_encoder(
        self, windows: Windows, name: str, checkpoint: Checkpoint | None = None
    ) -> tuple[nn.Module, list[float]]:
        """A contrastive encoder of one attribute, equation (6), from windows in standard units."""
        windows = windows.select(windows.codes(name) != UNKNOWN)
        seed = derived_seed(self.seed, _ENCODER + sorted(self.classes_).index(name))
        with seeded(seed):
            net = self._blank_net(f"encoder.{name}").to(self.device)
            points = self._class_points(name)
        losses = train_encoder(
            net,
            self._gather(windows),
            self._tensor(windows.codes(name)),
            self.settings.temperature,
            self.settings.reader_course(len(windows)),
            seed,
            points=points,
            stage=f"encoder-{name}",
            checkpoint=checkpoint,
        )
        return net, losses

    def _class_points(self, name: str) -> ClassPoints | None:
        if self.settings.contrast == "windows":
            return None
        return ClassPoints(len(self.classes_[name]), self.settings.features).to(self.device)

    @torch.no_grad()
    def encoded(self, encoder: nn.Module, windows: Windows) -> torch.Tensor:
        """What an encoder makes of windows in standard units: (n, features)."""
        gather = self._gather(windows)
        return torch.cat(
            [encoder(gather(self._places(rows))) for rows in pieces(len(windows), self.device)]
        )

    def _add_hidden(self, windows: Windows, name: str) -> None:
        """Its auxiliary model; all other networks stay."""
        windows = windows.select(windows.codes(name) != UNKNOWN)
        seed = derived_seed(self.seed, _AUXILIARY + sorted(self.classes_).index(name))
        with seeded(seed):
            net = cast(LatentReader, self._blank_net(f"auxiliary.{name}").to(self.device))
        self.metrics_[f"auxiliary_loss_{name}"] = train_reader(
            net,
            self._latents(windows).__getitem__,
            self._features(windows),
            self._tensor(windows.codes(name)),
            self.settings.reader_course(len(windows)),
            seed,
            stage=f"auxiliary-{name}",
            checkpoint=self.checkpoint,
        )
        self.nets_ = {**self.nets_, f"auxiliary.{name}": net}

    # The bottleneck.

    def _learn_spreads(self, windows: Windows) -> None:
        """How features of a class lie around its centre: a square root of their covariance."""
        codes, _ = joint_classes(windows, self.policy_.keep)
        features = self._features(windows).cpu().double().numpy()
        roots = []
        for code in range(len(self.cells_)):
            around = features[codes == code] - self.centres_[code]
            sizes, directions = np.linalg.eigh(around.T @ around / len(around))
            roots.append(directions * np.sqrt(sizes.clip(min=0)))
        self.spreads_ = np.stack(roots).astype(np.float32)

    @torch.no_grad()
    def _told(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> torch.Tensor:
        """z_U, where noise takes the place of a share of what it says beyond its class.

        c + (1 - b) (z_U - c) + sqrt(b (1 - b)) noise, with c the centre of the nearest class and
        noise of the covariance of that class. Of what is told beyond c, which has 1 - b of the
        variance that it has in z_U, the share b is noise; at b = 1 nothing but c is told.
        """
        share = np.asarray(strength.get(_BOTTLENECK, self.settings.bottleneck), np.float32)
        if (share < 0).any() or (share > 1).any():
            raise Refusal(f"strength '{_BOTTLENECK}' must be from 0 to 1")
        share = np.broadcast_to(share, len(windows))
        centres = torch.from_numpy(self.centres_).to(self.device)
        if (share == 1).all():  # what z_U says beyond its class need not be known
            return centres[self._cells(windows)]
        told = super()._told(windows, strength, rng)
        if self.settings.told == "class" or not share.any():
            return told
        cells = self._cells(windows, told)
        drawn = rng.standard_normal((len(windows), told.shape[1]), dtype=np.float32)
        roots = torch.from_numpy(self.spreads_).to(self.device)[cells]
        noise = (roots @ torch.from_numpy(drawn).to(self.device).unsqueeze(2)).squeeze(2)
        part = torch.from_numpy(share.copy()).to(self.device).unsqueeze(1)
        own = told - centres[cells]
        mixed = centres[cells] + (1 - part) * own + (part * (1 - part)).sqrt() * noise
        return nn.functional.normalize(mixed)

    def _probe_condition(self, windows: Windows) -> None:
        """What encoders tell of people whom they were not trained on, by probes."""
        windows = self._known(windows)
        held = held_out_people(windows, self.policy_.hide[0], derived_seed(self.seed, _PROBE))
        if held is None:
            return
        rehearsal, apart = copy.copy(self), windows.select(held)
        rehearsal.nets_, rehearsal.metrics_, rehearsal.checkpoint = {}, {}, None
        rehearsal._fit_condition(windows.select(~held))
        told = rehearsal._told(apart, {}, np.random.default_rng(self.seed)).cpu().numpy()
        features = rehearsal._features(apart)
        cells = rehearsal._cells(apart, features).cpu().numpy()
        self.metrics_["probe"] = {
            "people": len(np.unique(apart.subject)),
            "windows": len(apart),
            "z_U": probes(features.cpu().numpy(), cells, apart),
            "told": probes(told, cells, apart),
        }

    # The coin.

    def _learn_roles(self, windows: Windows) -> None:
        """The combinations of hidden classes that a coin is thrown for; none without a coin."""
        self.roles_ = np.zeros((0, len(self._drawn())), np.int64)
        if not self.settings.coin or not self._drawn():
            return
        _, self.roles_ = joint_classes(windows, self._drawn())
        if not len(self.roles_):
            raise Refusal("setting 'coin' needs windows whose hidden classes are all known")

    def _drawn(self) -> list[str]:
        """The hidden attributes that a coin is thrown for.

        Not who it is: each window would be made after one of the people in the training.
        """
        return [name for name in self.policy_.hide if name != "subject"]

    def _own_roles(self, windows: Windows) -> torch.Tensor:
        """Those of the windows that the generator learns from."""
        codes = np.full(len(windows), UNKNOWN)
        if len(self.roles_):
            codes, _ = joint_classes(windows, self._drawn())
        return self._roles(codes)

    def _roles(self, codes: np.ndarray) -> torch.Tensor:
        """One 1 in a row, for the combination of hidden classes; none where it is UNKNOWN."""
        which = torch.arange(len(self.roles_), device=self.device)
        return (self._tensor(codes).unsqueeze(1) == which).float()

    def _inputs(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> dict[str, torch.Tensor]:
        inputs = super()._inputs(windows, strength, rng)
        if self.settings.coin and len(self.roles_):
            drawn = rng.integers(len(self.roles_), size=len(windows))
        else:
            drawn = np.full(len(windows), UNKNOWN)
        return {**inputs, _ROLE: self._roles(drawn)}

    def _leading(self, piece: Inputs) -> torch.Tensor:
        return torch.cat([piece["told"], piece[_ROLE]], dim=1)

    def _beside(self, piece: Inputs) -> torch.Tensor | None:
        """The drawn class: amplified to the end, it spoils details that the kept one needs.

        Where it was learnt by itself: in older runs it was dropped whenever the kept one was.
        """
        if not len(self.roles_) or not self.apart_:
            return None
        return torch.cat([torch.zeros_like(piece["told"]), piece[_ROLE]], dim=1)

    # What guided diffusion asks for.

    def _space(self) -> tuple[int, ...]:
        latent = cast(Autoencoder, self.nets_["autoencoder"]).latent
        # The paper's U-Net goes along the latents as along a signal of one channel.
        return latent if self.settings.small or len(latent) > 1 else (1, *latent)

    def _latents(self, windows: Windows) -> torch.Tensor:
        gather, net = self._gather(windows), cast(Autoencoder, self.nets_["autoencoder"])
        with torch.no_grad():
            parts = [
                net.latents(gather(self._places(rows)))
                for rows in pieces(len(windows), self.device)
            ]
        return torch.cat(parts).view(-1, *self._space())

    def _finished(self, made: torch.Tensor) -> torch.Tensor:
        net = cast(Autoencoder, self.nets_["autoencoder"])
        return net.windows(made.view(-1, *net.latent))

    def _encoded(self, signal: torch.Tensor) -> torch.Tensor:
        """z_U, of all kept attributes side by side (section V-K), together of length 1."""
        parts = [self.nets_[f"encoder.{name}"](signal) for name in self.policy_.keep]
        return torch.cat(parts, dim=1) / len(parts) ** 0.5

    def _likely(self, name: str, clean: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        """log p(S | z_U, z) by the auxiliary model."""
        scores: torch.Tensor = self.nets_[f"auxiliary.{name}"](clean, told)
        return scores.log_softmax(1)

    @torch.no_grad()
    def _read(self, windows: Windows, name: str) -> torch.Tensor:
        return self._likely(name, self._latents(windows), self._features(windows))

    def _net_names(self) -> tuple[str, ...]:
        return (
            "autoencoder",
            *(f"encoder.{name}" for name in self.policy_.keep),
            "generator",
            *(f"auxiliary.{name}" for name in self.policy_.hide),
        )

    def _blank_net(self, which: str) -> nn.Module:
        chosen, shape = self.settings, self._real_shape()
        if which == "autoencoder":
            return self._blank_autoencoder(shape)
        if which.startswith("encoder."):
            if chosen.small:
                return SmallEncoder(shape, chosen.features, chosen.sizes("encoder")[0])
            return PublishedEncoder(shape, chosen.published_encoder())
        size, told = int(np.prod(self._space())), chosen.features * len(self.policy_.keep)
        if which != "generator":
            classes = len(self.classes_[which.removeprefix("auxiliary.")])
            return LatentReader(size, told, classes, chosen.sizes("reader"))
        whole = told + len(self.roles_)
        if chosen.small:
            return ResidualDenoiser(size, whole, chosen.width, chosen.blocks, self._levels())
        return UNet(self._space(), chosen.unet(len(self._space()) == 3, whole))

    def _blank_autoencoder(self, shape: tuple[int, ...]) -> Autoencoder:
        chosen = self.settings
        if chosen.small:
            return convolutional_autoencoder(shape, chosen.latent, chosen.sizes("coder"))
        if len(shape) == 3:
            return grid_autoencoder(shape, widths=chosen.sizes("coder"))
        return dense_autoencoder(shape, chosen.latent, chosen.sizes("coder"))

    def _state(self) -> dict[str, np.ndarray]:
        return {
            **super()._state(),
            "spreads": self.spreads_,
            "roles": self.roles_,
            "apart": np.array([self.apart_]),
        }

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.spreads_ = state["spreads"]
        self.roles_ = state.get("roles", np.zeros((0, 1), np.int64))  # older runs have no coin
        self.apart_ = bool(state.get("apart", np.array([False]))[0])
        super()._restore(state)
