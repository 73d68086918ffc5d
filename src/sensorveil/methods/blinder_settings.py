"""Settings and presets of Blinder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sensorveil.errors import refuse_unknown
from sensorveil.methods.settings import Settings

MODIFICATIONS = ("stochastic", "deterministic")
"""Section 5.2: a hidden class drawn at random, or the class after the one that was read."""

ENDS = ("dense", "convolutional")


class BlinderSettings(Settings):
    """Networks, the weights of loss (4), central training, the readers, and the modification.

    `widths` are the four hidden layers of the encoder, and the decoder has them backwards. With
    convolutional `ends` the first two are convolutions with `filters` and `2 * filters` filters.
    Where it is `bounded`, the coder gains by the chance that discriminators misread, not by their
    cross-entropy, which can grow without end. `relative` counts the error of each kept class in
    shares of the spread of its windows, so that loud classes do not take all of the code. With
    `texture` above 0 the output is not the mean of the decoder but a draw around it: noise is added
    of what the decoder leaves out, by kept class and frequency, `texture` times as large. `told`
    above 0 weighs that fixed models, a small convolutional and a dense one for each attribute, read
    in what the decoder makes the classes it was told: its own hidden ones, and the next. With
    `cycle` the rate of central training rises and falls once; beta and gamma grow to their full
    weight over the first `warm_up` of it. `reader_` settings are those of the classifiers that read
    the kept classes and, where the modification is deterministic, the hidden ones.
    """

    widths: str = "512-512-256-128"
    ends: str = "convolutional"
    filters: int = 32
    latent: int = 25
    discriminator_width: int = 128
    alpha: float = 0.9
    beta: float = 2.0
    gamma: float = 0.2
    bounded: bool = False
    relative: bool = False
    texture: float = 0.0
    told: float = 0.0
    epochs: int = 30
    batch: int = 128
    rate: float = 1e-3
    cycle: bool = False
    warm_up: float = 0.0
    reader_width: int = 24
    reader_epochs: int = 40
    reader_batch: int = 512
    reader_rate: float = 2e-3
    modification: str = "stochastic"

    def check(self) -> None:
        """Refuses sizes that are none, negative weights, and unknown words."""
        for name, value in vars(self).items():
            if name in ("alpha", "beta", "gamma", "warm_up", "texture", "told"):
                self.require(value >= 0, name, "0 or more")
            elif isinstance(value, int | float) and not isinstance(value, bool):
                self.require(value > 0, name, "above 0")
        self.require(self.warm_up <= 1, "warm_up", "at most 1")
        parts = self.widths.split("-")
        four = len(parts) == 4 and all(part.isdecimal() and int(part) > 0 for part in parts)
        self.require(four, "widths", "four whole numbers with '-' between them")
        if self.ends not in ENDS:
            raise refuse_unknown("ends of blinder", self.ends, ENDS)
        if self.modification not in MODIFICATIONS:
            raise refuse_unknown("modification", self.modification, MODIFICATIONS)

    @property
    def reads_hidden(self) -> bool:
        """Whether there are readers of the hidden classes."""
        return self.modification == "deterministic" or self.told > 0

    def layers(self) -> tuple[int, ...]:
        """The widths as numbers.

        >>> BlinderSettings().layers()
        (512, 512, 256, 128)
        """
        return tuple(int(part) for part in self.widths.split("-"))


PRESETS: Mapping[str, Mapping[str, Any]] = {
    # For two cores: fewer filters, a reader that learns in seconds, and weights of the loss that
    # were chosen on validation windows of MotionSense, see `blinder.py`.
    "fast": {
        "filters": 16,
        "beta": 0.5,
        "gamma": 1.0,
        "bounded": True,
        "relative": True,
        "texture": 0.5,
        "told": 0.5,
        "epochs": 20,
        "rate": 3e-3,
        "cycle": True,
        "warm_up": 0.4,
        "reader_epochs": 12,
        "reader_batch": 64,
        "reader_rate": 4e-3,
    },
    "paper": {},
}
