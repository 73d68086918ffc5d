"""Resampling: a random training window of the class that was read.

The plainest method that meets the papers' two measures: nothing of the wearer's window is left
but the class that the application needs. Whatever a generative method claims, it has to keep more
than this, or hide as much with less.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.files import part_of
from sensorveil.measures.inference import ClassifierSettings, Ensemble, input_shape
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.classes import READER, joint_classes
from sensorveil.methods.settings import Settings
from sensorveil.train import derived_seed


class ResampleSettings(Settings):
    """The classifiers that read the kept attributes: how many, width, epochs, batch and rate.

    Several `readers` average what they read. Of people whom nobody has seen they read more than
    each of them alone: on validation people of MotionSense, four of preset fast were better
    than the mean of one by 1.3 (fold 0) and 1.7 points (fold 1).
    """

    readers: int = 1
    width: int = 24
    epochs: int = 12
    batch: int = 64
    rate: float = 4e-3

    def check(self) -> None:
        """Refuses a classifier that could not learn."""
        for name, value in vars(self).items():
            self.require(value > 0, name, "above 0")

    def reader(self) -> ClassifierSettings:
        """One of the classifiers."""
        return ClassifierSettings(self.width, self.epochs, self.batch, self.rate)


class Resample(Obfuscator):
    """Reads the kept attributes and emits a random training window of that class.

    The windows it emits are other people's: they must have agreed to that.
    """

    name = "resample"
    summary = "a random training window of the class that was read"
    capabilities = Capabilities(emits_donors=True)
    Settings = ResampleSettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {},
        # About the size of the papers' inference models, for a GPU.
        "paper": {"readers": 5, "width": 64, "epochs": 20, "batch": 512, "rate": 3e-3},
    }
    settings: ResampleSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        codes, self.cells_ = joint_classes(windows, self.policy_.keep)
        known = codes != UNKNOWN
        self.pool_ = windows.select(known).compact().scaled(None)
        self.pool_code_ = codes[known]
        self.reader_ = self._reader().fit_codes(
            windows.select(known).scaled(None), codes[known], len(self.cells_)
        )
        self.metrics_["reader_loss"] = [
            [round(loss, 5) for loss in losses] for losses in self.reader_.losses_
        ]
        self.metrics_["pool_windows_by_class"] = np.bincount(self.pool_code_).tolist()

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        read = self.reader_.predict(windows)
        drawn = np.empty(len(windows), int)
        for code in np.unique(read):
            donors = np.flatnonzero(self.pool_code_ == code)
            chosen = read == code
            drawn[chosen] = donors[rng.integers(len(donors), size=int(chosen.sum()))]
        return self.scaling_.apply(self.pool_.batch(drawn))

    def _condition(self, windows: Windows) -> np.ndarray:
        return np.eye(len(self.cells_), dtype=np.float32)[self.reader_.predict(windows)]

    def _reader(self) -> Ensemble:
        chosen = self.settings
        return Ensemble(
            chosen.readers, chosen.reader(), derived_seed(self.seed, READER), self.device
        )

    def _state(self) -> dict[str, np.ndarray]:
        parts = {
            "pool.store": self.pool_.store,
            "pool.offset": self.pool_.offset,
            "pool.code": self.pool_code_,
            "cells": self.cells_,
        }
        return parts | {f"reader.{k}": v for k, v in self.reader_.state().items()}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.cells_, self.pool_code_ = state["cells"], state["pool.code"]
        offset, store = state["pool.offset"], state["pool.store"]
        reader = part_of(state, "reader.")
        count = len(offset)
        self.pool_ = Windows(
            store=store,
            offset=offset,
            length=self.shape_[-1],
            start=np.zeros(count, int),
            recording=np.zeros(count, int),
            recordings=("pool",),
            labels={},
            classes={},
            sample_rate=self.sample_rate_,
            channels=self.channels_,
        )
        shape = input_shape(self.pool_)
        self.reader_ = self._reader().restore(reader, shape, len(self.cells_))
