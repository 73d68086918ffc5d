"""MaSS: a transform that holds what windows tell of each attribute within limits.

Chen and others, MaSS: Multi-attribute Selective Suppression for Utility-preserving Data
Transformation from an Information-theoretic Perspective (ICML 2024); CLOAK compares with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from sensorveil.data.windows import Windows
from sensorveil.files import part_of
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.settings import Settings
from sensorveil.nets.mass import (
    AttributeNet,
    Transform,
    label_entropy,
    paired_info_nce,
    surprise,
    told_too_little,
    told_too_much,
    train_attribute_net,
    train_features,
)
from sensorveil.train import Gather, TrainConfig, TrainingTarget, derived_seed, seeded, train

_FEATURES, _TRANSFORM, _READER = 31, 32, 3000  # what seeds are for
_PIECE = 2048


class MassSettings(Settings):
    """Limits, sizes and training.

    `allowed` is m: nats that may be told of each hidden attribute. `wanted` is n, as a share of
    all that there is to tell of each kept attribute. `width` multiplies 1-2-4-4, the filters of
    the attributes' networks, `dense` is their dense layer and `features` the size of F.
    """

    allowed: float = 0.0
    wanted: float = 1.0
    width: int = 16
    dense: int = 256
    features: int = 128
    reader_epochs: int = 100
    reader_batch: int = 256
    reader_rate: float = 5e-4
    feature_epochs: int = 100
    epochs: int = 200
    batch: int = 128
    rate: float = 5e-5
    weight_decay: float = 1e-3

    def check(self) -> None:
        """Refuses limits that cannot be met, and sizes that make no network."""
        for name, value in vars(self).items():
            if name in ("allowed", "wanted", "weight_decay"):
                self.require(value >= 0, name, "0 or more")
            else:
                self.require(value > 0, name, "above 0")
        self.require(self.wanted <= 1, "wanted", "1 at most, which is all there is to tell")


@dataclass(frozen=True)
class _Lesson:
    """What the transform learns from: windows, and each attribute's classes, entropy and reader."""

    gather: Gather
    codes: dict[str, torch.Tensor]
    entropies: dict[str, float]
    readers: dict[str, AttributeNet]

    def surprise(self, name: str, output: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """The cross-entropy of an attribute's reader on transformed windows."""
        return surprise(self.readers[name](output), self.codes[name][index])


class Mass(Obfuscator):
    """A transform of windows and noise, trained against readers of the hidden attributes.

    Readers of all listed attributes are trained on raw windows. Then the transform learns to keep
    what tells windows apart (an InfoNCE between features of both), within the limits of each
    attribute, while the hidden attributes' readers learn from its output in turns with it. What
    nobody listed is kept: it is for applications that nobody thought of.

    Preset `paper` has the sizes and settings of the authors' code for MotionSense. What differs:

    - one cycle of the rate in place of a cosine, and AdamW at the readers' rate for F, where they
      take SGD.
    - the kept attributes' readers stay as they are on raw windows, so that an unchanged application
      is what the transform works for; the authors' run on MotionSense lists no kept attribute.
      They report an application that is tuned to the output: the audit's retrained one.
    - they stop where the limits cannot be met; here the loss has to weigh them.

    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> obfuscator = Mass(epochs=1, reader_epochs=1).fit(windows, "activity", "gender")
    >>> obfuscator.obfuscate(windows, seed=1).shape
    (2, 32)
    """

    name = "mass"
    summary = "a transform that holds what is told of each attribute within limits"
    capabilities = Capabilities(modalities=("signal",))
    Settings = MassSettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {
            "width": 8,
            "dense": 64,
            "features": 32,
            "reader_epochs": 8,
            "reader_batch": 64,
            "reader_rate": 2e-3,
            "feature_epochs": 4,
            "epochs": 15,
            "batch": 64,
            "rate": 1e-3,
        },
        "paper": {},
    }
    settings: MassSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        chosen, count = self.settings, len(windows)
        labelled_windows = _Lesson(windows.on(self.device).__getitem__, {}, {}, {})
        for name in (*self.policy_.keep, *self.policy_.hide):
            codes = torch.from_numpy(windows.codes(name).astype(np.int64)).to(self.device)
            labelled_windows.codes[name], labelled_windows.entropies[name] = (
                codes,
                label_entropy(codes),
            )
            labelled_windows.readers[name] = self._trained_reader(labelled_windows, name)
        seed = derived_seed(self.seed, _FEATURES)
        with seeded(seed):
            features = self._net(chosen.features)
        course = TrainConfig(chosen.feature_epochs, chosen.reader_batch, chosen.reader_rate)
        self.metrics_["features_loss"] = train_features(
            features, labelled_windows.gather, count, course, seed, self.device, self.checkpoint
        )
        self._fit_transform(labelled_windows, features, count)

    def _trained_reader(self, labelled_windows: _Lesson, name: str) -> AttributeNet:
        """Stage 1."""
        chosen = self.settings
        seed = derived_seed(self.seed, _READER + sorted(self.classes_).index(name))
        with seeded(seed):
            net = self._net(len(self.classes_[name]))
        self.metrics_[f"reader_loss_{name}"] = train_attribute_net(
            net,
            labelled_windows.gather,
            labelled_windows.codes[name],
            TrainConfig(chosen.reader_epochs, chosen.reader_batch, chosen.reader_rate),
            seed,
            stage=f"reader-{name}",
            checkpoint=self.checkpoint,
        )
        return net.eval()

    def _fit_transform(self, labelled_windows: _Lesson, features: AttributeNet, count: int) -> None:
        """Stage 3: the transform and F in turns with the hidden attributes' readers."""
        chosen, seed, hide = self.settings, derived_seed(self.seed, _TRANSFORM), self.policy_.hide
        with seeded(seed):
            self.net_ = Transform(self.shape_).to(self.device)

        def transform(index: torch.Tensor) -> torch.Tensor:
            signal = labelled_windows.gather(index)
            output = self.net_(signal, torch.randn_like(signal))
            told = paired_info_nce(features(signal), features(output))
            return told + self._penalties(labelled_windows, output, index)

        def accuse(index: torch.Tensor) -> torch.Tensor:
            signal = labelled_windows.gather(index)
            with torch.no_grad():
                output = self.net_(signal, torch.randn_like(signal))
            return torch.stack(
                [labelled_windows.surprise(name, output, index) for name in hide]
            ).sum()

        players = [
            TrainingTarget(nn.ModuleList([self.net_, features]), transform),
            TrainingTarget(nn.ModuleList(labelled_windows.readers[name] for name in hide), accuse),
        ]
        course = TrainConfig(chosen.epochs, chosen.batch, chosen.rate, chosen.weight_decay)
        losses = train("transform", players, count, course, seed, self.device, self.checkpoint)
        self.metrics_["transform_loss"], self.metrics_["adversary_loss"] = losses
        self.net_.eval()

    def _penalties(
        self, labelled_windows: _Lesson, output: torch.Tensor, index: torch.Tensor
    ) -> torch.Tensor:
        """For each limit that does not hold."""
        terms = []
        for name, entropy in labelled_windows.entropies.items():
            unsure = labelled_windows.surprise(name, output, index)
            if name in self.policy_.hide:
                terms.append(told_too_much(unsure, entropy, self.settings.allowed))
            else:
                terms.append(told_too_little(unsure, entropy, self.settings.wanted * entropy))
        return torch.stack(terms).sum()

    def _net(self, outputs: int) -> AttributeNet:
        chosen = self.settings
        widths = [chosen.width * times for times in (1, 2, 4, 4)]
        return AttributeNet(self.shape_, outputs, widths, chosen.dense).to(self.device)

    @torch.no_grad()
    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        made = []
        for signal in windows.batches(_PIECE):
            noise = rng.standard_normal(signal.shape, dtype=np.float32)
            given = [torch.from_numpy(one).to(self.device) for one in (signal, noise)]
            made.append(self.net_(*given).cpu().numpy())
        return np.concatenate(made)

    def _state(self) -> dict[str, np.ndarray]:
        return {
            f"net.{name}": value.cpu().numpy() for name, value in self.net_.state_dict().items()
        }

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.net_ = Transform(self.shape_).to(self.device)
        weights = part_of(state, "net.")
        self.net_.load_state_dict({name: torch.from_numpy(v) for name, v in weights.items()})
        self.net_.eval()
