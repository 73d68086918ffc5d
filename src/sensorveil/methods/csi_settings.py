"""Settings and presets of the Wi-Fi CSI generator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sensorveil.data.phases import PHASES
from sensorveil.diffusion.samplers import SAMPLERS
from sensorveil.errors import refuse_unknown
from sensorveil.methods.settings import Settings
from sensorveil.nets.csi import TransformerSettings
from sensorveil.nets.degradation import SUMS
from sensorveil.nets.private_training import PrivateCourse

MODES = ("plain", "hybrid", "hybrid-dp", "dp")
"""How it is trained: without noise, by the paper's algorithm 1, or with a guarantee in two ways."""

UNITS = ("window", "person")
"""What an epsilon is about: one window, or all windows of one person."""

WITHOUT_SIGN = ("keep", "blur", "repair")
"""Settings that may be 0."""


NOBODY = "-"
"""In place of names of people, where there are none."""


class CsiSettings(Settings):
    """Mode, phases, network, degradation, sampling, training, and what is private.

    `first`, `last`, `levels`, `blur` and `sums` are the degradation, equations (11) to (13).
    `keep` leads samples towards their class (0: as they are), and is a strength. `noise` and `clip`
    are sigma_DP and C of equation (5), `repair` is lambda of equation (18). `lot` units are
    expected at a private step, of each of which `each` windows are looked at. `public` names the
    people, with '+' between them, whose windows hybrid-dp may learn from without noise. `scale` is
    what mode dp divides windows by, as it may not look at them for that. With `repeatable` the
    private noise comes from the seed, which a run states: then there is no epsilon.
    """

    mode: str = "plain"
    phases: str = "kept"
    width: int = 128
    blocks: int = 8
    heads: int = 8
    patch: int = 1
    levels: int = 200
    first: float = 5e-4
    last: float = 0.1
    blur: float = 0.0
    sums: str = "variances"
    sampler: str = "dpm-solver++"
    steps: int = 20
    keep: float = 0.0
    dropped: float = 0.1
    epochs: int = 200
    batch: int = 256
    rate: float = 1e-3
    average: float = 0.999
    reader_epochs: int = 40
    reader_rate: float = 1e-3
    noise: float = 1.0
    clip: float = 1.0
    delta: float = 1e-5
    unit: str = "window"
    lot: int = 256
    each: int = 4
    private_steps: int = 1000
    private_rate: float = 1e-3
    repair: float = 1.0
    repair_width: int = 64
    public: str = NOBODY
    scale: float = 1.0
    repeatable: bool = False

    def check(self) -> None:
        """Refuses what is unknown or makes no sense."""
        for name, known in (
            ("mode", MODES),
            ("unit", UNITS),
            ("phases", PHASES),
            ("sums", SUMS),
            ("sampler", (*SAMPLERS, "rf-diffusion")),
        ):
            if getattr(self, name) not in known:
                raise refuse_unknown(name, getattr(self, name), known)
        for name, value in vars(self).items():
            if name in WITHOUT_SIGN:
                self.require(value >= 0, name, "0 or more")
            elif isinstance(value, int | float) and not isinstance(value, bool):
                self.require(value > 0, name, "above 0")
        for name in ("dropped", "average", "delta", "last"):
            self.require(getattr(self, name) < 1, name, "below 1")
        self.require(self.first <= self.last, "first", f"at most {self.last}, the last")
        self.require(self.steps <= self.levels, "steps", f"at most {self.levels}, the levels")
        self.require(
            self.width % self.heads == 0, "width", f"a multiple of {self.heads}, the heads"
        )
        able = self.blur == 0 or self.sampler == "rf-diffusion"
        self.require(able, "sampler", "rf-diffusion where there is a blur")
        named = (self.public != NOBODY) == (self.mode == "hybrid-dp")
        self.require(named, "public", "the names of people in mode hybrid-dp, and in no other")

    def transformer(self) -> TransformerSettings:
        """The network's shape."""
        return TransformerSettings(self.width, self.blocks, self.heads, self.patch)

    def private_course(self, rate: float) -> PrivateCourse:
        """How a private training goes."""
        return PrivateCourse(self.private_steps, self.lot, rate, self.noise, self.clip, self.each)


FAST: Mapping[str, Any] = {
    "width": 48,
    "blocks": 2,
    "heads": 4,
    "patch": 4,
    "steps": 10,
    # Of 0, 0.5, 1, 2 and 4 the one with the best FID (70, 20, 14, 45, 174; real windows 5) and SSIM
    # (0.90, 0.92, 0.92, 0.89, 0.81; real 0.95) on validation windows of simulated CSI, one seed.
    "keep": 1.0,
    "epochs": 25,
    "batch": 64,
    "rate": 4e-3,
    "average": 0.99,
    "reader_epochs": 12,
    "reader_rate": 3e-3,
    "lot": 128,
    "each": 1,
    "private_steps": 300,
    "private_rate": 3e-3,
    "repair_width": 32,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "fast": FAST,
    "paper": {
        "levels": 100,
        "first": 1e-4,
        "last": 0.003,
        "sums": "amplitudes",
        "blocks": 32,
        "sampler": "rf-diffusion",
        "blur": 1e-5,
        "steps": 100,
        "batch": 32,
    },
    "sound": {},
}
"""What each of them is stands in `csi.py`."""
