"""Settings and presets of PrivDiffuser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sensorveil.errors import refuse_unknown
from sensorveil.methods.base import Settings
from sensorveil.nets.features import FeatureSettings
from sensorveil.nets.samplers import SAMPLERS
from sensorveil.nets.unet import UNetSettings

AVOIDED = ("wearer", "predicted", "random", "none")
"""What the guidance leads away from: the wearer's true class, the class that is read, any, none."""


TOLD = ("features", "class")
"""What the generator is told of a window: its features, or the mean ones of its class as read.

The paper tells the features. They are made to tell the kept class, and tell more than that.
"""


@dataclass(frozen=True)
class PrivDiffuserSettings(Settings):
    """Strengths, guidance, sampling, sizes and training.

    `keep` is w1 of equation (12), `avoid` w2 of equation (20) for every hidden attribute, and
    `regularise` w3 of equation (18); the first two are strengths, and can be given anew when
    obfuscating. `avoids` is what to lead away from (see `AVOIDED`), `told` what the generator is
    told (see `TOLD`). `filters` and `dense` are the layers of the surrogate and auxiliary models.
    """

    keep: float = 7.8
    avoid: float = 0.05
    regularise: float = 8.0
    avoids: str = "random"
    told: str = "features"
    gradient: str = "clean"
    sampler: str = "ddim"
    steps: int = 50
    levels: int = 1000
    kernels: int = 2
    width: int = 256
    blocks: int = 2
    heads: int = 1
    filters: str = "64-128"
    dense: str = "512-128"
    epochs: int = 80
    batch: int = 512
    rate: float = 4e-4
    dropped: float = 0.3
    average: float = 0.999
    reader_epochs: int = 80
    reader_batch: int = 512
    reader_rate: float = 4e-4

    def check(self) -> None:
        """Refuses what is unknown or makes no sense."""
        for name, value, known in (
            ("avoids", self.avoids, AVOIDED),
            ("told", self.told, TOLD),
            ("gradient", self.gradient, ("clean", "full")),
            ("sampler", self.sampler, tuple(SAMPLERS)),
        ):
            if value not in known:
                raise refuse_unknown(name, value, known)
        for name, value in vars(self).items():
            if name in ("keep", "avoid", "regularise"):
                self.require(value >= 0, name, "0 or more")
            elif isinstance(value, int | float):
                self.require(value > 0, name, "above 0")
        self.require(self.dropped < 1, "dropped", "below 1")
        self.require(self.average < 1, "average", "below 1")
        self.require(self.steps <= self.levels, "steps", f"at most {self.levels}, the levels")
        for name in ("filters", "dense"):
            parts = getattr(self, name).split("-")
            numbers = all(part.isdecimal() and int(part) > 0 for part in parts)
            self.require(numbers, name, "whole numbers with '-' between them")

    def unet(self, flat: bool) -> UNetSettings:
        """The denoiser's shape; images need kernels of two dimensions."""
        return UNetSettings(
            width=self.width,
            blocks=self.blocks,
            heads=self.heads,
            kernels=2 if flat else self.kernels,
        )

    def reader(self, flat: bool) -> FeatureSettings:
        """The shape of the surrogate and the auxiliary models."""
        return FeatureSettings(
            channels=tuple(int(part) for part in self.filters.split("-")),
            dense=tuple(int(part) for part in self.dense.split("-")),
            kernels=2 if flat else self.kernels,
        )


FAST: Mapping[str, Any] = {
    # With the paper's 8 the small auxiliary model reads nothing at all of simulated people.
    "regularise": 0.5,
    "kernels": 1,
    "width": 32,
    "blocks": 1,
    "filters": "16-32",
    "dense": "64",
    "sampler": "dpm-solver++",
    "steps": 15,
    "epochs": 40,
    "batch": 64,
    "rate": 2e-3,
    "average": 0.99,
    "reader_epochs": 15,
    "reader_batch": 64,
    "reader_rate": 2e-3,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "fast": FAST,
    "paper": {"avoids": "wearer"},
    "mobiact-gender": {
        "avoids": "wearer",
        "keep": 2.5,
        "avoid": 0.5,
        "width": 64,
        "filters": "8-16",
    },
    "mobiact-weight": {
        "avoids": "wearer",
        "keep": 3.8,
        "avoid": 1.5,
        "width": 64,
        "filters": "8-16",
    },
    "wifihar": {
        "avoids": "wearer",
        "keep": 5.8,
        "avoid": 0.4,
        "regularise": 4.0,
        "filters": "16-32",
    },
    "diffusion": {**FAST, "avoids": "none"},
    "negation": {**FAST, "regularise": 0.0},
}
"""What each of them is stands in `privdiffuser.py`."""
