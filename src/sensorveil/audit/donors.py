"""What generated windows give away of their donors, and how good they are: tables I and II.

Donors are those whose windows a generator learnt from. As in section VI-B of the CSI paper, a
classifier is trained on the windows that the generator made, and attacked: can one tell from its
answers whose windows the generator had seen? The very same windows are compared with real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from sensorveil.audit.membership import Attack, Classifier, dealt, shadow_attack
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.measures.likeness import Likeness
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.generator import ClassGenerator
from sensorveil.nets.seeding import derived
from sensorveil.progress import track

_PAIRS = 41  # what a seed is for

PAPER: Mapping[str, Mapping[str, float]] = {
    "raw": {"auc": 0.99, "success": 0.97},
    "plain": {"auc": 0.93, "success": 0.84, "ssim": 0.89, "fid": 4.51},
    "hybrid": {"auc": 0.80, "success": 0.72, "ssim": 0.67, "fid": 6.60},
    "dp": {"auc": 0.52, "success": 0.50, "ssim": 0.38, "fid": 9.13},
    "csi-vae": {"ssim": 0.22, "fid": 11.28},
}
"""Tables I and II, on Widar3.0: other data, and another network behind FID than ours."""

ORDERS: Mapping[str, tuple[str, ...]] = {
    "auc": ("raw", "plain", "hybrid", "dp"),
    "ssim": ("plain", "hybrid", "dp"),
}
"""What is highest first in the paper."""

Make = Callable[[int], Obfuscator]
"""A method that has learnt nothing yet, for a seed."""

Classify = Callable[[Windows, int], Classifier]
"""Trains a classifier on released windows."""


@dataclass(frozen=True)
class Contender:
    """One row: a method, or raw windows where there is none; perhaps one that needs the public."""

    name: str
    make: Make | None
    learns_from_public: bool = False


@dataclass(frozen=True)
class DonorScore:
    """One row for one seed: equations (19) to (22), and what the generator promised."""

    contender: str
    seed: int
    attack: Attack
    ssim: float
    fid: float
    privacy: Mapping[str, Any] | None = None

    def figures(self) -> dict[str, float]:
        """What is averaged over seeds."""
        return {
            "auc": self.attack.auc,
            "success": self.attack.success,
            "at_1": self.attack.at_1,
            "ssim": self.ssim,
            "fid": self.fid,
        }

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "attack": self.attack.as_dict()}


@dataclass(frozen=True)
class DonorStudy:
    """All rows for all seeds."""

    keep: str
    hide: str
    scores: tuple[DonorScore, ...]

    def contenders(self) -> tuple[str, ...]:
        """The rows, in the order in which they were asked for."""
        return tuple(dict.fromkeys(score.contender for score in self.scores))

    def mean(self, contender: str, figure: str) -> tuple[float, float | None]:
        """A figure's mean over seeds, and its standard deviation where there are several."""
        found = [s.figures()[figure] for s in self.scores if s.contender == contender]
        return float(np.mean(found)), float(np.std(found, ddof=1)) if len(found) > 1 else None

    def orders(self) -> dict[str, bool]:
        """Whether the rows that are there come in the paper's order, for each of its figures."""
        held = {}
        for figure, order in ORDERS.items():
            values = [self.mean(name, figure)[0] for name in order if name in self.contenders()]
            held[figure] = all(a > b for a, b in pairwise(values))
        return held

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "keep": self.keep,
            "hide": self.hide,
            "scores": [score.as_dict() for score in self.scores],
            "paper_on_widar3": {name: dict(row) for name, row in PAPER.items()},
            "orders_held": self.orders(),
        }


class Release:
    """Trains targets of one contender, and keeps what the first of them was trained on."""

    def __init__(
        self,
        contender: Contender,
        windows: Windows,
        public: np.ndarray,
        keep: str,
        hide: str,
        classify: Classify,
    ) -> None:
        self.contender, self.windows, self.public = contender, windows, public
        self.keep, self.hide, self.classify = keep, hide, classify
        self.first: Windows | None = None
        self.privacy: dict[str, Any] | None = None

    def train(self, members: Windows, seed: int) -> Classifier:
        """A target that sees the members only by way of what the contender makes of them."""
        made = members
        if self.contender.make:
            veil = self.contender.make(seed).fit(self._learnt(members), self.keep, self.hide)
            made = veil.obfuscate(members, seed=seed)
            if isinstance(veil, ClassGenerator):
                self.privacy = veil.guarantee().as_dict()
        if self.first is None:
            self.first = made
        return self.classify(made, seed)

    def _learnt(self, members: Windows) -> Windows:
        """The members, and the public windows for those who may have them."""
        if not self.contender.learns_from_public:
            return members
        return self.windows.select(np.isin(self.windows.offset, members.offset) | self.public)


def donor_study(
    contenders: Sequence[Contender],
    windows: Windows,
    public_people: Sequence[str],
    keep: str,
    hide: str,
    *,
    classify: Classify,
    likeness: Likeness,
    seeds: int = 3,
    groups: np.ndarray | None = None,
) -> DonorStudy:
    """Every contender for every seed, all attacked for the windows of the same private people.

    For each seed the private recordings (or `groups` of windows, (n,)) are dealt to four parts:
    members and others of the target, and of its shadow. SSIM and FID, of a `likeness` that has
    learnt already, compare what was made of the target's members with the target's others, which
    no generator saw.
    """
    public = np.isin(windows.subject, [_code(windows, name) for name in public_people])
    if public.all():
        raise Refusal("all people are public; there is nobody to attack")
    private = windows.select(~public)
    dealt_as = (windows.recording if groups is None else groups)[~public]
    scores = []
    for seed in track(range(seeds), "seeds"):
        real = private.select(dealt(dealt_as, 4, seed) == 1)
        for contender in track(contenders, "contenders"):
            release = Release(contender, windows, public, keep, hide, classify)
            attack = shadow_attack(release.train, private, seed, dealt_as)
            assert release.first is not None
            pairs = np.random.default_rng(derived(seed, _PAIRS))
            scores.append(
                DonorScore(
                    contender.name,
                    seed,
                    attack,
                    likeness.ssim(real, release.first, pairs),
                    likeness.fid(real, release.first),
                    release.privacy,
                )
            )
    return DonorStudy(keep, hide, tuple(scores))


def _code(windows: Windows, person: str) -> int:
    people = windows.classes["subject"]
    if person not in people:
        raise Refusal(f"public person '{person}' is unknown; known: {', '.join(people)}")
    return people.index(person)
