"""Settings and presets of CLOAK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sensorveil.diffusion.features import FeatureSettings
from sensorveil.diffusion.unet import UNetSettings
from sensorveil.errors import refuse_unknown
from sensorveil.methods.guided_settings import GuidedSettings
from sensorveil.train import TrainConfig

LAYERS = ("published", "small")
"""Whose networks: those of the paper, or ours, which are far smaller."""

CONTRASTS = ("windows", "classes")
"""What windows are compared with to learn z_U: other windows (the paper), or one point a class."""


class CloakSettings(GuidedSettings):
    """Guidance, bottleneck, sizes and training; the defaults are the paper's on MotionSense.

    `keep` is w_U of equation (7), `avoid` w_S of (12), `temperature` tau of (6) and `divergence`
    the weight of the KL divergence. `bottleneck` is a strength too: the share of what z_U says
    beyond its class that noise takes the place of, from 0 (the paper) to 1 (the class alone).
    Sizes are those of the networks that `layers` names (see `LAYERS`): `coder` of the autoencoder,
    `encoder` and `dense` of the encoder (a small one has one width, and no `dense`), `width` and
    `blocks` of the denoiser, `reader` of the auxiliary models. `coder_` settings train the
    autoencoder, `reader_` settings the encoders and auxiliary models.

    These are for few seconds and small networks, and the paper has none of them. `contrast` is what
    a window is compared with in (6), see `CONTRASTS`, and `coder_limit` the most steps that the
    autoencoder takes. With `coin` the generator is told a combination of hidden classes too, which
    is drawn anew for each window: each comes out as often as the others, whoever the wearer is and
    however many of them were recorded; but who it is is never drawn. A run that was trained with it
    can do without.
    """

    keep: float = 4.5
    avoid: float = 0.008
    bottleneck: float = 0.0
    contrast: str = "windows"
    temperature: float = 0.1
    divergence: float = 1e-6
    layers: str = "published"
    latent: int = 60
    features: int = 60
    coder: str = "2048-2048-1024-512"
    encoder: str = "64-128"
    dense: str = "512-128"
    width: int = 256
    blocks: int = 2
    reader: str = "512-256-128-60"
    coder_epochs: int = 80
    coder_batch: int = 512
    coder_rate: float = 1e-3
    coder_limit: int = 0
    coin: bool = False

    def check(self) -> None:
        """Refuses what is unknown or makes no sense."""
        super().check()
        for name, known in (("layers", LAYERS), ("contrast", CONTRASTS)):
            if getattr(self, name) not in known:
                raise refuse_unknown(name, getattr(self, name), known)
        self.require(self.bottleneck <= 1, "bottleneck", "from 0 to 1")
        for name in ("coder", "encoder", "dense", "reader"):
            self.sizes(name)
        if self.small:
            self.require(len(self.sizes("encoder")) == 1, "encoder", "one number, the width")
        else:
            self.unet(flat=False, condition=self.features)  # refused before anything is trained

    def may_be_zero(self) -> tuple[str, ...]:
        """The numbers that switch something off where they are 0."""
        return (*super().may_be_zero(), "bottleneck", "divergence", "coder_limit")

    @property
    def small(self) -> bool:
        """Whether the networks are ours."""
        return self.layers == "small"

    def coder_course(self, count: int) -> TrainConfig:
        """How the autoencoder is trained on `count` windows."""
        course = TrainConfig(self.coder_epochs, self.coder_batch, self.coder_rate)
        return course.with_max_steps(self.coder_limit, count)

    def unet(self, flat: bool, condition: int) -> UNetSettings:
        """The paper's denoiser; latents of images are images."""
        return UNetSettings(
            width=self.width,
            blocks=self.blocks,
            condition=condition,
            kernels=2 if flat else 1,
        )

    def published_encoder(self) -> FeatureSettings:
        """The paper's contrastive encoder."""
        return FeatureSettings(self.sizes("encoder"), self.sizes("dense"), self.features)


FAST: Mapping[str, Any] = {
    "layers": "small",
    "keep": 4.0,
    "avoid": 0.0,
    "bottleneck": 1.0,
    "contrast": "classes",
    "coin": True,
    "temperature": 0.2,
    "features": 32,
    "coder": "32-64",
    "encoder": "24",
    "width": 192,
    "blocks": 3,
    "reader": "128-64",
    "sampler": "dpm-solver++",
    "steps": 8,
    "limit": 5000,
    "coder_limit": 8000,
    "reader_limit": 2000,
    "tries": 12,
    "panel": 4,
    "judge": "panel",
    "epochs": 150,
    "batch": 128,
    "rate": 2e-3,
    "average": 0.998,
    "coder_epochs": 25,
    "coder_batch": 64,
    "reader_epochs": 20,
    "reader_batch": 64,
    "reader_rate": 3e-3,
}

_PAPER: Mapping[str, Any] = {"avoids": "wearer"}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "fast": FAST,
    "paper": _PAPER,
    "mobiact": {**_PAPER, "keep": 4.0, "avoid": 0.05, "epochs": 28, "encoder": "8-16"},
    "wifihar": {**_PAPER, "keep": 6.0, "avoid": 0.005, "encoder": "16-32"},
    "audiomnist": {
        **_PAPER,
        "keep": 2.0,
        "avoid": 0.07,
        "epochs": 120,
        "divergence": 1e-7,
        "reader_epochs": 30,
    },
    "adience": {**_PAPER, "keep": 6.0, "avoid": 0.5, "coder": "128-256-512", "encoder": "8-16"},
}
"""What each of them is stands in `cloak.py`."""
