"""ObscureNet: codes from which the hidden attributes cannot be read, decoded with other ones.

Hajihassnai, Ardakanian and Khazaei, ObscureNet: Learning Attribute-invariant Latent Representation
for Anonymizing Sensor Data (IoTDI 2021).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Self

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.files import part_of
from sensorveil.methods.autoencoder_settings import PRESETS, VariationalSettings
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.class_autoencoder import (
    Adversary,
    ClassAutoencoder,
    SharedReaders,
    train_networks,
)
from sensorveil.methods.policy import Policy


class ObscureNetSettings(VariationalSettings):
    """`alpha` weighs the discriminators in equation (4).

    The discriminators have three hidden layers of `discriminator_width`, and take
    `discriminator_steps` steps for each step of the encoder and decoder.
    """

    modifier: str = "randomized"
    alpha: float = 0.2
    discriminator_width: int = 128
    discriminator_steps: int = 20

    def check(self) -> None:
        """Refuses a negative weight and discriminators that could not learn."""
        super().check()
        self.require(self.alpha >= 0, "alpha", "0 or more")
        for name in ("discriminator_width", "discriminator_steps"):
            self.require(getattr(self, name) > 0, name, "above 0")


class ObscureNet(ClassAutoencoder):
    """A conditional variational autoencoder per kept class, trained against discriminators.

    Preset `paper` is what the paper states: encoder and decoder of five layers, ReLU, a code of 10
    numbers (its MobiAct: `latent=5`), discriminators of four layers, alpha 0.2, beta 2. What it
    leaves out, and what is taken here (from the authors' code unless said):

    - widths 512-512-256-128: those for MobiAct. The code for MotionSense leaves the second layer
      out, which makes four layers; the paper says five for both.
    - discriminator width 128. Their code has one hidden layer of it; the paper says four layers.
    - Adam at 1e-3 for all, batches of 512 (128 for gender on MobiAct). Here all networks take as
      many steps as that of the largest class.
    - 450 epochs for their 200, chosen on validation windows of MotionSense, of which the authors'
      dense models read the activity: 93.2% raw, 90.5 (deterministic) and 91.2 (randomized) after
      4,800 steps, 92.8 and 92.7 after 19,200 (one seed). The recipes for MobiAct have 200.
    - 20 discriminator steps for each batch, where algorithm 1 takes one. Their gradients add up
      over the 20 steps there; here each step has its own.
    - The encoder and decoder step against the discriminators as these are after their own steps;
      algorithm 1 can be read as taking both gradients at once.
    - The scale of equation (4)'s terms: see `nets/factorised.py`.
    - The distribution of the `randomized` vector: uniform (ours; not stated anywhere).
    - The classifiers that read the kept and hidden classes: small convolutional ones, ours, so
      that one window takes less than a millisecond.

    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> obfuscator = ObscureNet(epochs=5, reader_epochs=2).fit(windows, keep="activity", hide="gender")
    >>> obfuscator.obfuscate(windows, seed=1).shape
    (2, 32)
    """

    name = "obscurenet"
    summary = "a conditional autoencoder per kept class, its code cleared by discriminators"
    capabilities = Capabilities()
    Settings = ObscureNetSettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {**PRESETS["fast"], "discriminator_width": 64, "discriminator_steps": 5},
        "paper": {},
    }
    settings: ObscureNetSettings

    def _adversary(self) -> Adversary:
        chosen = self.settings
        return Adversary(
            chosen.alpha, (chosen.discriminator_width,) * 3, chosen.discriminator_steps
        )


class ObscureNetPipeline(Obfuscator):
    """One ObscureNet for each hidden attribute, one after the other, section 6.3.

    Each is trained on raw windows and fed the output of the one before it.
    """

    name = "obscurenet-pipeline"
    summary = "an ObscureNet for each hidden attribute, one after the other"
    capabilities = Capabilities()
    Settings = ObscureNetSettings
    presets = ObscureNet.presets
    settings: ObscureNetSettings

    def with_modifier(self, name: str) -> Self:
        """The same trained stages with another modifier; see `ObscureNet.with_modifier`."""
        self._check_fitted()
        other = copy.copy(self)
        other.settings = self.settings.with_changes(dict(modifier=name))
        other.stages_ = [stage.with_modifier(name) for stage in self.stages_]
        return other

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        self.stages_ = [self._stage(name) for name in self.policy_.hide]
        readers: SharedReaders = {}  # all stages read the kept attributes alike
        for name, stage in zip(self.policy_.hide, self.stages_, strict=True):
            stage.shared_readers = readers
            stage._fit(windows, rng)
            train_networks([stage])
            self.metrics_[name] = stage.metrics_

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        for stage in self.stages_:
            signal = stage._obfuscate(windows, strength, rng)
            windows = windows.replaced(self.scaling_.undo(signal)).scaled(self.scaling_)
        return signal

    def _condition(self, windows: Windows) -> np.ndarray:
        """That of the first stage: the others see its output and nothing else."""
        return self.stages_[0]._condition(windows)

    def _stage(self, hidden: str) -> ObscureNet:
        """An ObscureNet for one hidden attribute, with all that the base learns from windows."""
        stage = ObscureNet(self.preset, self.seed, self.device, **self.settings.as_dict())
        stage.policy_ = Policy(self.policy_.keep, (hidden,))
        stage.origin_, stage.made_, stage.metrics_ = self.origin_, {}, {}
        stage.shape_, stage.complex_ = self.shape_, self.complex_
        stage.sample_rate_, stage.channels_ = self.sample_rate_, self.channels_
        stage.classes_, stage.scaling_ = self.classes_, self.scaling_
        return stage

    def _state(self) -> dict[str, np.ndarray]:
        return {
            f"stage.{which}.{name}": array
            for which, stage in enumerate(self.stages_)
            for name, array in stage._state().items()
        }

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.stages_ = [self._stage(name) for name in self.policy_.hide]
        for which, stage in enumerate(self.stages_):
            stage._restore(part_of(state, f"stage.{which}."))
