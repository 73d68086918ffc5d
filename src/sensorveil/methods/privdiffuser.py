"""PrivDiffuser: windows made from noise, led towards what is kept and away from what is hidden.

Yang and Ardakanian, PrivDiffuser: Privacy-Guided Diffusion Model for Data Obfuscation in Sensor
Networks (2025).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar, cast

import numpy as np
import torch
from torch import nn

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.classes import joint_classes
from sensorveil.methods.privdiffuser_settings import PRESETS, PrivDiffuserSettings
from sensorveil.nets.courses import Course
from sensorveil.nets.features import FeatureNet
from sensorveil.nets.guidance import Reader, Weight, avoiding, classifier_free
from sensorveil.nets.levels import Levels
from sensorveil.nets.privdiffusion import train_auxiliary, train_denoiser, train_surrogate
from sensorveil.nets.samplers import SAMPLERS
from sensorveil.nets.seeding import derived, seeded
from sensorveil.nets.unet import UNet
from sensorveil.progress import track

Net = TypeVar("Net", bound=nn.Module)

_SURROGATE, _GENERATOR, _AUXILIARY = 11, 12, 13  # what seeds are for

_PIECE = 2048  # windows that are made at once


class PrivDiffuser(Obfuscator):
    """A diffusion model told what the kept attributes' classifier makes of a window.

    Nothing else of the window goes into the new one, but for what the guidance avoids: with
    `avoids=predicted` the hidden classes that are read from it, with `wearer` the true ones.

    Preset `paper` has the sizes of section 5.4 on MotionSense: 1,000 levels from 1e-4 to 0.02, 50
    steps of DDIM, w1 7.8, w2 0.05, w3 8. `mobiact-gender`, `mobiact-weight` and `wifihar` are those
    for the other datasets. `diffusion` and `negation` are the paper's baselines at the sizes of
    `fast`: no negative condition, and no regularisation. What the paper leaves out, or differs:

    - batches of 512 for a GPU, theirs are 128 (8 on WiFi-HAR); the rate is twice theirs (2e-4),
      where their warm-up ends. One cycle of the rate in place of warm-up and cosine.
    - the averaged weights sample; the paper does not speak of an average.
    - cross-entropy as the paper says, where their code has the binary one of a softmax.
    - `avoids`: theirs is `wearer`, and so it is in their presets. It needs true labels, and who is
      led away from a class shows that class to whoever trains on the output. The default is
      `random`, by this reasoning: no audit has chosen it yet.
    - `told=class` is ours: the generator is told the mean features of the class, and no more.

    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> veil = PrivDiffuser(epochs=1, reader_epochs=1).fit(windows, "activity", "gender")
    >>> veil.strength_names()
    ('keep', 'gender')
    >>> veil.obfuscate(windows, {"keep": 2.0, "gender": 0.1}, seed=1).shape
    (2, 32)
    >>> veil.add_hidden(windows, "weight").policy_.hide  # trains one small model
    ('gender', 'weight')
    """

    name = "privdiffuser"
    summary = "a diffusion model led towards the kept attributes and away from the hidden ones"
    capabilities = Capabilities(
        strengths={"keep": "w1: how strongly samples are led towards the kept attributes"},
        strength_per_hidden=True,
        new_hide_without_generator=True,
    )
    Settings = PrivDiffuserSettings
    presets = PRESETS
    settings: PrivDiffuserSettings

    def needs_wearer(self) -> bool:
        """Whether the wearer's true class is what is avoided."""
        return self.settings.avoids == "wearer"

    # Training.

    def _fit(self, windows: Windows, generator: np.random.Generator) -> None:
        chosen, flat = self.settings, len(self.shape_) == 3
        self.auxiliaries_: dict[str, FeatureNet] = {}
        known = windows.select(self._kept(windows).min(1) != UNKNOWN)
        with seeded(derived(self.seed, _SURROGATE)):
            self.surrogate_ = self._blank_reader(self.policy_.keep).to(self.device)
        self.metrics_["surrogate_loss"] = train_surrogate(
            self.surrogate_,
            self._gather(known),
            self._tensor(self._kept(known)),
            self._course(readers=True),
            derived(self.seed, _SURROGATE),
            self.checkpoint,
        )
        self.surrogate_.eval()
        self._learn_centres(known)
        with seeded(derived(self.seed, _GENERATOR)):
            net = UNet(self._real_shape(), chosen.unet(flat)).to(self.device)
        averaged, losses = train_denoiser(
            net,
            self._gather(windows),
            self._features(windows),
            self._levels(),
            self._course(readers=False),
            derived(self.seed, _GENERATOR),
            dropped=chosen.dropped,
            decay=chosen.average,
            checkpoint=self.checkpoint,
        )
        self.generator_ = cast(UNet, averaged)
        self.metrics_["generator_loss"] = losses
        for name in self.policy_.hide:
            self._add_hidden(windows, name)

    def _learn_centres(self, windows: Windows) -> None:
        """The mean features of each class that occurs, of length 1 like all features."""
        codes, self.cells_ = joint_classes(windows, self.policy_.keep)
        features = self._features(windows).cpu().numpy()
        means = np.stack([features[codes == code].mean(0) for code in range(len(self.cells_))])
        self.centres_ = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)

    def _add_hidden(self, windows: Windows, name: str) -> None:
        """Its auxiliary model; the generator and all other models stay."""
        codes = windows.codes(name)
        windows = windows.select((codes != UNKNOWN) & (self._kept(windows).min(1) != UNKNOWN))
        seed = derived(self.seed, _AUXILIARY + sorted(self.classes_).index(name))
        with seeded(seed):
            net = self._blank_reader((name,), known=self.surrogate_features).to(self.device)
        self.metrics_[f"auxiliary_loss_{name}"] = train_auxiliary(
            net,
            self._gather(windows),
            self._features(windows),
            self._tensor(windows.codes(name)),
            self._tensor(self._kept(windows)),
            [len(self.classes_[one]) for one in self.policy_.keep],
            self.settings.regularise,
            self._course(readers=True),
            seed,
            stage=f"auxiliary-{name}",
            checkpoint=self.checkpoint,
        )
        self.auxiliaries_ = {**self.auxiliaries_, name: net.eval()}

    def _course(self, readers: bool) -> Course:
        chosen = self.settings
        if readers:
            return Course(chosen.reader_epochs, chosen.reader_batch, chosen.reader_rate)
        return Course(chosen.epochs, chosen.batch, chosen.rate)

    def _kept(self, windows: Windows) -> np.ndarray:
        return np.stack([windows.codes(name) for name in self.policy_.keep], axis=1)

    def _gather(self, windows: Windows) -> Any:
        gather = windows.on(self.device)
        return lambda index: _as_real(gather[index])

    # Obfuscating.

    @torch.no_grad()
    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], generator: np.random.Generator
    ) -> np.ndarray:
        chosen, count = self.settings, len(windows)
        shape = self._real_shape()
        noise = generator.standard_normal((count, *shape), dtype=np.float32)
        avoided = self._avoided(windows, generator)
        chance = torch.Generator().manual_seed(int(generator.integers(2**63)))
        keep = self._weight(strength.get("keep", np.full(count, chosen.keep)))
        away = {
            name: self._weight(strength.get(name, np.full(count, chosen.avoid))) for name in avoided
        }
        made = np.empty((count, *shape), np.float32)
        features, levels = self._told(windows), self._levels()
        for rows in track([*_pieces(count)], "windows"):
            told = features[rows]
            readers = [
                self._reader(name, told, codes[rows], away[name][rows])
                for name, codes in avoided.items()
            ]
            predict = classifier_free(self._denoiser, told, keep[rows])
            guided = avoiding(predict, readers, levels, cast(Any, chosen.gradient))
            start = torch.from_numpy(noise[rows]).to(self.device)
            sample = SAMPLERS[chosen.sampler]
            made[rows] = sample(guided, start, levels, chosen.steps, chance).cpu().numpy()
        return made[:, ::2] + 1j * made[:, 1::2] if self.complex_ else made

    def _denoiser(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            predicted: torch.Tensor = self.generator_(x, t, condition)
        return predicted.float()

    def _reader(
        self, name: str, told: torch.Tensor, codes: torch.Tensor, weight: torch.Tensor
    ) -> tuple[Reader, Weight]:
        """log p(y_s | z_p, x) of the classes to avoid; where none is known, nothing is avoided."""
        net = self.auxiliaries_[name]

        def read(clean: torch.Tensor) -> torch.Tensor:
            _, (scores,) = net(clean, told)
            logs = scores.log_softmax(1)
            return logs.gather(1, codes.clamp(min=0).unsqueeze(1)).squeeze(1)

        return read, weight * (codes != UNKNOWN)

    def _avoided(self, windows: Windows, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        """The class of each hidden attribute that each window is to be led away from."""
        way = cast(Literal["wearer", "predicted", "random", "none"], self.settings.avoids)
        if way == "none":
            return {}
        found: dict[str, torch.Tensor] = {}
        for name in self.policy_.hide:
            if way == "predicted":
                found[name] = self._read(windows, name).argmax(1)
            elif way == "random":
                classes = len(self.classes_[name])
                found[name] = self._tensor(generator.integers(classes, size=len(windows)))
            elif name not in windows.attributes:
                raise Refusal(f"avoids=wearer needs the true '{name}' of every window")
            else:
                found[name] = self._tensor(windows.codes(name))
        return found

    def _condition(self, windows: Windows) -> np.ndarray:
        """What the generator is told, and the hidden classes where they are read.

        With `avoids=wearer` the true classes have their part in the output too; they are not here.
        """
        parts = [self._told(windows)]
        if self.settings.avoids == "predicted":
            for name, codes in self._avoided(windows, np.random.default_rng(0)).items():
                parts.append(nn.functional.one_hot(codes, len(self.classes_[name])).float())
        return torch.cat(parts, dim=1).cpu().numpy()

    @torch.no_grad()
    def _told(self, windows: Windows) -> torch.Tensor:
        """What the generator is told of each window: (n, features)."""
        features = self._features(windows)
        if self.settings.told == "features":
            return features
        logs = [head(features).log_softmax(1) for head in self.surrogate_.heads]
        cells = torch.from_numpy(self.cells_).to(self.device)
        likely = torch.stack([one[:, cells[:, which]] for which, one in enumerate(logs)]).sum(0)
        return torch.from_numpy(self.centres_).to(self.device)[likely.argmax(1)]

    @torch.no_grad()
    def _features(self, windows: Windows) -> torch.Tensor:
        """z_p of all windows: (n, features)."""
        gather = self._gather(windows)
        parts = [self.surrogate_(gather(self._places(rows)))[0] for rows in _pieces(len(windows))]
        return torch.cat(parts)

    @torch.no_grad()
    def _read(self, windows: Windows, name: str) -> torch.Tensor:
        """Log-probabilities of a hidden attribute by its auxiliary model: (n, classes)."""
        gather, told = self._gather(windows), self._features(windows)
        return torch.cat(
            [
                self.auxiliaries_[name](gather(self._places(rows)), told[rows])[1][0].log_softmax(1)
                for rows in _pieces(len(windows))
            ]
        )

    def _places(self, rows: slice) -> torch.Tensor:
        return torch.arange(rows.start, rows.stop, device=self.device)

    def _levels(self) -> Levels:
        return Levels.linear(self.settings.levels).to(self.device)

    def _weight(self, numbers: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(numbers, np.float32)).to(self.device)

    def _tensor(self, codes: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(codes.astype(np.int64)).to(self.device)

    # Keeping.

    @property
    def surrogate_features(self) -> int:
        """How many numbers the generator is told."""
        return self.settings.reader(flat=False).features

    def _real_shape(self) -> tuple[int, ...]:
        return (self.shape_[0] * (2 if self.complex_ else 1), *self.shape_[1:])

    def _blank_reader(self, attributes: tuple[str, ...], known: int = 0) -> FeatureNet:
        classes = tuple(len(self.classes_[name]) for name in attributes)
        settings = self.settings.reader(len(self.shape_) == 3)
        return FeatureNet(self._real_shape(), classes, settings, known)

    def _state(self) -> dict[str, np.ndarray]:
        nets: dict[str, nn.Module] = {"surrogate": self.surrogate_, "generator": self.generator_}
        nets |= {f"auxiliary.{name}": net for name, net in self.auxiliaries_.items()}
        weights = {
            f"{which}.{name}": value.cpu().numpy()
            for which, net in nets.items()
            for name, value in net.state_dict().items()
        }
        return {"cells": self.cells_, "centres": self.centres_, **weights}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        flat = len(self.shape_) == 3
        self.cells_, self.centres_ = state["cells"], state["centres"]
        self.surrogate_ = self._loaded(self._blank_reader(self.policy_.keep), state, "surrogate.")
        blank = UNet(self._real_shape(), self.settings.unet(flat))
        self.generator_ = self._loaded(blank, state, "generator.")
        self.auxiliaries_ = {
            name: self._loaded(
                self._blank_reader((name,), self.surrogate_features), state, f"auxiliary.{name}."
            )
            for name in self.policy_.hide
        }

    def _loaded(self, net: Net, state: Mapping[str, np.ndarray], prefix: str) -> Net:
        own = {name: torch.from_numpy(array) for name, array in part_of(state, prefix).items()}
        net.load_state_dict(own)
        return net.eval().to(self.device)


def _as_real(signal: torch.Tensor) -> torch.Tensor:
    """A complex channel as two real ones, one after the other."""
    if not signal.is_complex():
        return signal
    parts = torch.view_as_real(signal).movedim(-1, 2)
    return parts.flatten(1, 2)


def _pieces(count: int) -> Iterator[slice]:
    """Rows that go through a network at once."""
    for first in range(0, count, _PIECE):
        yield slice(first, min(first + _PIECE, count))
