"""Settings and presets of PrivDiffuser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sensorveil.diffusion.features import FeatureSettings
from sensorveil.diffusion.unet import UNetSettings
from sensorveil.errors import refuse_unknown
from sensorveil.methods.guided_settings import GuidedSettings

PREDICTED = ("noise", "velocity")
"""What the U-Net can give."""


class PrivDiffuserSettings(GuidedSettings):
    """Guidance, sizes and training.

    `keep` is w1 of equation (12), `avoid` w2 of (20), and `regularise` w3 of (18). `filters` and
    `dense` are the layers of the surrogate and auxiliary models, `width`, `blocks`, `heads` and
    `fold` the shape of the U-Net (see `UNetSettings`). It `predicts` the noise, as in the paper, or
    the velocity (see `FromVelocity`), from which the noise follows.
    """

    regularise: float = 8.0
    kernels: int = 2
    width: int = 256
    blocks: int = 2
    heads: int = 1
    fold: int = 1
    predicts: str = "noise"
    filters: str = "64-128"
    dense: str = "512-128"

    def check(self) -> None:
        """Refuses what is unknown or makes no sense."""
        super().check()
        if self.predicts not in PREDICTED:
            raise refuse_unknown("predicts", self.predicts, PREDICTED)
        self.sizes("filters")
        self.sizes("dense")
        self.unet(flat=False)  # refuses what cannot be built before anything is trained

    def may_be_zero(self) -> tuple[str, ...]:
        """The numbers that switch something off where they are 0."""
        return (*super().may_be_zero(), "regularise")

    def unet(self, flat: bool) -> UNetSettings:
        """The denoiser's shape; images need kernels of two dimensions."""
        return UNetSettings(
            width=self.width,
            blocks=self.blocks,
            heads=self.heads,
            kernels=2 if flat else self.kernels,
            fold=1 if flat else self.fold,
        )

    def reader(self, flat: bool) -> FeatureSettings:
        """The shape of the surrogate and the auxiliary models."""
        return FeatureSettings(
            channels=self.sizes("filters"),
            dense=self.sizes("dense"),
            kernels=2 if flat else self.kernels,
        )


FAST: Mapping[str, Any] = {
    # With the paper's 8 the small auxiliary model reads nothing at all of simulated people.
    "regularise": 0.5,
    # Looked at on 1,000 validation windows of MotionSense, after training on some of the others, by
    # a small model that reads 96.2% of them raw, at keep 1 and told=class: 83.4% after 3,000 steps
    # like this; with a fold of 8 and predicting the noise 75.6% after 9,400.
    "kernels": 1,
    "fold": 4,
    "predicts": "velocity",
    "width": 48,
    "blocks": 1,
    "filters": "32-64",
    "dense": "256",
    "told": "class",
    # Of 6,000 validation windows of MotionSense, after training on 24,000 others: the class whose
    # features are nearest is the right one in 95.2%, one member of the panel reads 97.6 to 98.1%,
    # four of them 98.0%. Four misread less of people whom nobody has seen (see `resample`).
    "panel": 4,
    "keep": 0.25,
    "tries": 4,
    "sampler": "dpm-solver++",
    "steps": 8,
    "epochs": 100,
    "batch": 256,
    "rate": 1.5e-3,
    "limit": 8000,
    "average": 0.998,
    "reader_epochs": 150,
    "reader_batch": 256,
    "reader_rate": 2e-3,
    "reader_limit": 3000,
}

_AS_PUBLISHED: Mapping[str, Any] = {"told": "features", "panel": 0, "tries": 1}

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
    "diffusion": {**FAST, **_AS_PUBLISHED, "avoids": "none"},
    "negation": {**FAST, **_AS_PUBLISHED, "avoids": "wearer", "regularise": 0.0},
}
"""What each of them is stands in `privdiffuser.py`."""
