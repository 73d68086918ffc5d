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
from sensorveil.methods.base import Capabilities, Obfuscator, Settings
from sensorveil.nets.courses import Course, Player, train_players
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
from sensorveil.nets.seeding import derived, seeded

_FEATURES, _TRANSFORM, _READER = 31, 32, 3000  # what seeds are for
_PIECE = 2048


@dataclass(frozen=True)
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
    >>> veil = Mass(epochs=1, reader_epochs=1).fit(windows, "activity", "gender")
    >>> veil.obfuscate(windows, seed=1).shape
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

    def _fit(self, windows: Windows, generator: np.random.Generator) -> None:
        chosen, count = self.settings, len(windows)
        self.gather_ = windows.on(self.device).__getitem__
        self.codes_ = {
            name: torch.from_numpy(windows.codes(name).astype(np.int64)).to(self.device)
            for name in (*self.policy_.keep, *self.policy_.hide)
        }
        course = Course(chosen.reader_epochs, chosen.reader_batch, chosen.reader_rate)
        self.readers_ = {name: self._trained_reader(name, course) for name in self.codes_}
        seed = derived(self.seed, _FEATURES)
        with seeded(seed):
            features = self._net(chosen.features)
        course = Course(chosen.feature_epochs, chosen.reader_batch, chosen.reader_rate)
        self.metrics_["features_loss"] = train_features(
            features, self.gather_, count, course, seed, self.device, self.checkpoint
        )
        self._fit_transform(features, count)
        # Only the transform is needed from here on, and training windows are nobody's to keep.
        del self.gather_, self.codes_, self.readers_

    def _trained_reader(self, name: str, course: Course) -> AttributeNet:
        """Stage 1."""
        seed = derived(self.seed, _READER + sorted(self.classes_).index(name))
        with seeded(seed):
            net = self._net(len(self.classes_[name]))
        self.metrics_[f"reader_loss_{name}"] = train_attribute_net(
            net,
            self.gather_,
            self.codes_[name],
            course,
            seed,
            stage=f"reader-{name}",
            checkpoint=self.checkpoint,
        )
        return net.eval()

    def _fit_transform(self, features: AttributeNet, count: int) -> None:
        """Stage 3: the transform and F in turns with the hidden attributes' readers."""
        chosen, seed = self.settings, derived(self.seed, _TRANSFORM)
        with seeded(seed):
            self.net_ = Transform(self.shape_).to(self.device)
        adversaries = nn.ModuleList(self.readers_[name] for name in self.policy_.hide)

        def accuse(index: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                output = self._transformed(self.gather_(index))
            return self._surprises(self.policy_.hide, output, index).sum()

        players = [
            Player(nn.ModuleList([self.net_, features]), lambda index: self._loss(features, index)),
            Player(adversaries, accuse),
        ]
        losses = train_players(
            "transform",
            players,
            count,
            Course(chosen.epochs, chosen.batch, chosen.rate, chosen.weight_decay),
            seed,
            self.device,
            self.checkpoint,
        )
        self.metrics_["transform_loss"], self.metrics_["adversary_loss"] = losses
        self.net_.eval()

    def _loss(self, features: AttributeNet, index: torch.Tensor) -> torch.Tensor:
        """InfoNCE between raw and transformed windows, and a penalty for each limit."""
        signal = self.gather_(index)
        output = self._transformed(signal)
        total = paired_info_nce(features(signal), features(output))
        hidden = self._surprises(self.policy_.hide, output, index)
        for name, unsure in zip(self.policy_.hide, hidden, strict=True):
            total = total + told_too_much(
                unsure, label_entropy(self.codes_[name]), self.settings.allowed
            )
        kept = self._surprises(self.policy_.keep, output, index)
        for name, unsure in zip(self.policy_.keep, kept, strict=True):
            entropy = label_entropy(self.codes_[name])
            total = total + told_too_little(unsure, entropy, self.settings.wanted * entropy)
        return total

    def _surprises(
        self, names: tuple[str, ...], output: torch.Tensor, index: torch.Tensor
    ) -> torch.Tensor:
        """The cross-entropy of each attribute's reader: (attributes,)."""
        return torch.stack(
            [surprise(self.readers_[name](output), self.codes_[name][index]) for name in names]
        )

    def _transformed(self, signal: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.net_(signal, torch.randn_like(signal))
        return output

    def _net(self, outputs: int) -> AttributeNet:
        chosen = self.settings
        widths = [chosen.width * times for times in (1, 2, 4, 4)]
        return AttributeNet(self.shape_, outputs, widths, chosen.dense).to(self.device)

    @torch.no_grad()
    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], generator: np.random.Generator
    ) -> np.ndarray:
        made = []
        for signal in windows.batches(_PIECE):
            noise = generator.standard_normal(signal.shape, dtype=np.float32)
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
