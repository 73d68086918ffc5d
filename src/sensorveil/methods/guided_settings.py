"""Settings that all guided diffusion models have."""

from __future__ import annotations

from sensorveil.diffusion.samplers import SAMPLERS
from sensorveil.errors import refuse_unknown
from sensorveil.methods.judging import JUDGES
from sensorveil.methods.resample import ResampleSettings
from sensorveil.methods.settings import Settings
from sensorveil.train import TrainConfig

AVOIDED = ("wearer", "predicted", "random", "none")
"""What the guidance leads away from: the wearer's true class, the class that is read, any, none."""

TOLD = ("features", "class")
"""What the generator is told of a window: its features, or the mean ones of its class as read.

The papers tell the features. They are made to tell the kept class, and tell more than that.
"""

GUIDING = (
    "keep",
    "avoid",
    "avoids",
    "told",
    "gradient",
    "sampler",
    "steps",
    "tries",
    "judge",
    "compiled",
)
"""Settings of all of them that can be other ones without training anything anew."""

LITTLE = 0.4
"""The share of the levels that have little noise: details are made there."""

PANEL = ResampleSettings().reader()
"""Each model of a panel: those of `resample`."""


class GuidedSettings(Settings):
    """Strengths, guidance, sampling and training of a guided diffusion model.

    `keep` is the weight of the classifier-free guidance (w1 of PrivDiffuser, w_U of CLOAK) and
    `avoid` that of the negated one for every hidden attribute (w2, w_S); both are strengths, and
    can be given anew when obfuscating. `avoids` is what to lead away from (see `AVOIDED`), `told`
    what the generator is told (see `TOLD`). Of `tries` samples for each window one leaves that is
    like what was told and unlike what is avoided; the papers have one. With `compiled` the
    generator is compiled where many windows go through it, which halves the time of large ones on a
    GPU once a minute is spent on it. `reader_` settings are for all other networks. A training
    takes at most `limit` steps (`reader_limit`; 0: no limit), however many windows there are. A
    `panel` of so many models reads the class where nothing but the class is told (see `PANEL`);
    with 0 it is the class whose features are nearest. The `judge` of tries is one of `JUDGES`. A
    panel that judges does so where more than the class is told too (`told=features`, or in CLOAK a
    bottleneck below 1): it looks for the class that is nearest to what was told.
    """

    keep: float = 7.8
    avoid: float = 0.05
    avoids: str = "random"
    told: str = "features"
    gradient: str = "clean"
    compiled: bool = False
    sampler: str = "ddim"
    steps: int = 50
    tries: int = 1
    judge: str = "features"
    levels: int = 1000
    epochs: int = 80
    batch: int = 512
    rate: float = 4e-4
    limit: int = 0
    dropped: float = 0.3
    average: float = 0.999
    reader_epochs: int = 80
    reader_batch: int = 512
    reader_rate: float = 4e-4
    reader_limit: int = 0
    panel: int = 0

    def check(self) -> None:
        """Refuses what is unknown or makes no sense."""
        for name, value, known in (
            ("avoids", self.avoids, AVOIDED),
            ("told", self.told, TOLD),
            ("gradient", self.gradient, ("clean", "full")),
            ("sampler", self.sampler, tuple(SAMPLERS)),
            ("judge", self.judge, JUDGES),
        ):
            if value not in known:
                raise refuse_unknown(name, value, known)
        for name, value in vars(self).items():
            if name in self.may_be_zero():
                self.require(value >= 0, name, "0 or more")
            elif isinstance(value, int | float) and not isinstance(value, bool):
                self.require(value > 0, name, "above 0")
        self.require(self.dropped < 1, "dropped", "below 1")
        self.require(self.average < 1, "average", "below 1")
        self.require(self.judge != "panel" or self.panel > 0, "judge", "features without a panel")
        self.require(self.steps <= self.levels, "steps", f"at most {self.levels}, the levels")

    def may_be_zero(self) -> tuple[str, ...]:
        """The numbers that switch something off where they are 0."""
        return ("keep", "avoid", "limit", "reader_limit", "panel")

    def sizes(self, name: str) -> tuple[int, ...]:
        """A setting such as "512-128" as numbers, or its refusal."""
        parts = getattr(self, name).split("-")
        numbers = all(part.isdecimal() and int(part) > 0 for part in parts)
        self.require(numbers, name, "whole numbers with '-' between them")
        return tuple(int(part) for part in parts)

    def generator_course(self, count: int) -> TrainConfig:
        """How the generator is trained on `count` windows."""
        return TrainConfig(self.epochs, self.batch, self.rate).with_max_steps(self.limit, count)

    def reader_course(self, count: int) -> TrainConfig:
        """How all other networks are trained on `count` windows."""
        course = TrainConfig(self.reader_epochs, self.reader_batch, self.reader_rate)
        return course.with_max_steps(self.reader_limit, count)
