"""What generated windows give away of their donors, and how good they are: tables I and II.

Donors are those whose windows a generator learnt from. As in section VI-B of the CSI paper, a
classifier is trained on the windows that the generator made, and attacked: can one tell from its
answers whose windows the generator had seen? The very same windows are compared with real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sensorveil.audit.donor_figures import DonorScore, DonorStudy, LiraScore
from sensorveil.audit.lira import Score, confidence, lira_in_turn, memory
from sensorveil.audit.membership import Classifier, dealt, shadow_attack
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.measures.likeness import Likeness
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.csi import CsiGenerator
from sensorveil.methods.generator import ClassGenerator, to_learn_from
from sensorveil.methods.guarantee import Guarantee
from sensorveil.progress import track
from sensorveil.train import derived_seed

_PAIRS, _LIRA = 41, 42  # what seeds are for

_RESTORED = "each window that was given out is made of a true one"

Make = Callable[[int], Obfuscator]
"""A method that has learnt nothing yet, for a seed."""

Classify = Callable[[Windows, int], Classifier]
"""Trains a classifier on released windows."""


@dataclass(frozen=True)
class Contender:
    """One row: a method, or raw windows where there is none; perhaps one that needs the public.

    `restores` gives out true windows that were degraded and restored, as the paper's algorithm
    does in line 16, in place of windows made from noise.
    """

    name: str
    make: Make | None
    learns_from_public: bool = False
    restores: bool = False


@dataclass(frozen=True, eq=False)
class Released:
    """A target: the classifier, what it was trained on, and the method that made that."""

    classifier: Classifier
    windows: Windows
    obfuscator: Obfuscator | None

    def log_probabilities(self, windows: Windows) -> np.ndarray:
        """What anybody may ask the target for."""
        return self.classifier.log_probabilities(windows)


class Release:
    """Trains targets of one contender, and remembers the first of them."""

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
        self.first: Released | None = None

    def train(self, members: Windows, seed: int) -> Released:
        """A target that sees the members only by way of what the contender makes of them."""
        made, obfuscator = members, None
        if self.contender.make:
            obfuscator = self.contender.make(seed).fit(self._learnt(members), self.keep, self.hide)
            made = self._given_out(obfuscator, members, seed)
        target = Released(self.classify(made, seed), made, obfuscator)
        self.first = self.first or target
        return target

    def promise(self) -> dict[str, Any] | None:
        """What the first generator promises to its donors about what was given out."""
        if self.first is None or not isinstance(self.first.obfuscator, ClassGenerator):
            return None
        if self.contender.restores:
            return Guarantee.none(_RESTORED).as_dict()
        return self.first.obfuscator.guarantee().as_dict()

    def scores(self) -> dict[str, Score]:
        """What LiRA may ask: the classifier, and the generator itself where there is one."""
        found: dict[str, Score] = {"classifier": confidence(self.keep)}
        make = self.contender.make
        if make and isinstance(make(0), ClassGenerator):
            found["generator"] = lambda target, windows: memory(target.obfuscator, windows)
        return found

    def _given_out(self, obfuscator: Obfuscator, members: Windows, seed: int) -> Windows:
        if not self.contender.restores:
            return to_learn_from(obfuscator, members, seed)
        if not isinstance(obfuscator, CsiGenerator):
            raise Refusal(f"{obfuscator.name} restores no degraded windows; csi does")
        return obfuscator.restored(members, seed)

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
    seeds: Sequence[int] = (0, 1, 2),
    models: int = 0,
    groups: np.ndarray | None = None,
    after: Callable[[DonorStudy], None] | None = None,
) -> DonorStudy:
    """Every contender for every seed, all attacked for the windows of the same private people.

    For each seed the private recordings (or `groups` of windows, (n,)) are dealt to four parts:
    members and others of the target, and of its shadow. SSIM and FID, of a `likeness` that has
    learnt already, compare what was made of the target's members with the target's others, which
    no generator saw; SSIM of a restored window is that with its own original. With `models`, so
    many of each contender attack each other by LiRA as well. `after` is given what is known so
    far, after each step.
    """
    public = np.isin(windows.subject, [_code(windows, name) for name in public_people])
    if public.all():
        raise Refusal("all people are public; there is nobody to attack")
    private = windows.select(~public)
    dealt_as = (windows.recording if groups is None else groups)[~public]
    study = DonorStudy(keep, hide)

    def release(contender: Contender) -> Release:
        return Release(contender, windows, public, keep, hide, classify)

    for seed in track(seeds, "seeds"):
        for contender in track(contenders, "contenders"):
            study += _scored(release(contender), private, dealt_as, likeness, seed)
            if after:
                after(study)
    for contender in track(contenders if models else (), "contenders"):
        study += _attacked_in_turn(release(contender), private, dealt_as, models)
        if after:
            after(study)
    return study


def _scored(
    release: Release, private: Windows, groups: np.ndarray, likeness: Likeness, seed: int
) -> DonorScore:
    """The shadow attack on one contender, and how like real windows its windows are."""
    attack = shadow_attack(release.train, private, seed, groups)
    assert release.first is not None
    made, part = release.first.windows, dealt(groups, 4, seed)
    members, others = private.select(part == 0), private.select(part == 1)
    if release.contender.restores:
        ssim = likeness.ssim(members, made)
    else:
        ssim = likeness.ssim(others, made, np.random.default_rng(derived_seed(seed, _PAIRS)))
    fid = likeness.fid(others, made)
    return DonorScore(release.contender.name, seed, attack, ssim, fid, release.promise())


def _attacked_in_turn(
    release: Release, private: Windows, groups: np.ndarray, models: int
) -> list[LiraScore]:
    """LiRA on each of several targets, by all others."""
    seed = derived_seed(0, _LIRA)
    attacks = lira_in_turn(release.train, release.scores(), private, models, seed, groups)
    return [
        LiraScore(release.contender.name, of, target, attack)
        for of, found in attacks.items()
        for target, attack in enumerate(found)
    ]


def _code(windows: Windows, person: str) -> int:
    people = windows.classes["subject"]
    if person not in people:
        raise Refusal(f"public person '{person}' is unknown; known: {', '.join(people)}")
    return people.index(person)
