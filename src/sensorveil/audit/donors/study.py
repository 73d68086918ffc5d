"""What generated windows reveal about their donors, and how good they are: tables I and II.

As in section VI-B of the CSI paper, a classifier is trained on generated windows and attacked: do
its answers tell which windows the generator was trained on? The same windows are compared with real
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError
from scipy.stats import sem

from sensorveil.audit.donors.likeness import Likeness
from sensorveil.audit.donors.lira import Score, lira_in_turn, logit_score, reconstruction_score
from sensorveil.audit.donors.membership import MembershipAttack, Target, divide, shadow_attack
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.csi import ClassGenerator, CsiGenerator, released_for_training
from sensorveil.methods.guarantee import Guarantee
from sensorveil.progress import track
from sensorveil.train import derived_seed

_PAIR_SEED, _LIRA_SEED = 41, 42

PAPER: Mapping[str, Mapping[str, float]] = {
    "raw": {"auc": 0.99, "success_rate": 0.97},
    "plain": {"auc": 0.93, "success_rate": 0.84, "ssim": 0.89, "fid": 4.51},
    "hybrid": {"auc": 0.80, "success_rate": 0.72, "ssim": 0.67, "fid": 6.60},
    "dp": {"auc": 0.52, "success_rate": 0.50, "ssim": 0.38, "fid": 9.13},
    "csi-vae": {"ssim": 0.22, "fid": 11.28},
}
"""Tables I and II, on Widar3.0: other data, and another network behind FID than here."""

ORDERS: Mapping[str, tuple[str, ...]] = {
    "auc": ("raw", "plain", "hybrid", "dp"),
    "ssim": ("plain", "hybrid", "dp"),
    "fid": ("dp", "hybrid", "plain"),
}
"""The paper's rows from the highest figure to the lowest."""


@dataclass(frozen=True)
class Contender:
    """A row of the tables.

    Parameters
    ----------
    name
        Of the row.
    make
        Makes an untrained method for a seed; None releases raw windows.
    uses_public
        Whether it is trained on the public people's windows as well.
    restores
        Whether it releases true windows, degraded and restored (line 16 of algorithm 1), in place
        of windows generated from noise.
    """

    name: str
    make: Callable[[int], Obfuscator] | None
    uses_public: bool = False
    restores: bool = False


@dataclass(frozen=True, eq=False)
class TargetModel:
    """A classifier under attack, the windows it was trained on, and the method that made them."""

    classifier: Target
    windows: Windows
    method: Obfuscator | None

    def log_probabilities(self, windows: Windows) -> np.ndarray:
        """What anybody may ask the classifier for."""
        return self.classifier.log_probabilities(windows)


@dataclass(frozen=True, eq=False)
class DonorData:
    """The windows of a study, its policy, and what trains the classifiers under attack.

    Parameters
    ----------
    windows
        All windows.
    keep, hide
        The policy of all methods; `keep` is what classifiers predict.
    classify
        Trains a classifier on released windows, with a seed.
    public_people
        Names of the people who are not attacked.
    groups
        Which windows stay together, (n,); those of one recording by default.
    """

    windows: Windows
    keep: str
    hide: str
    classify: Callable[[Windows, int], Target]
    public_people: Sequence[str] = ()
    groups: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Refuse public people who are unknown, before any training."""
        self.is_public()

    def is_public(self) -> np.ndarray:
        """Which windows are of public people, (n,)."""
        people = self.windows.classes["subject"]
        for name in self.public_people:
            if name not in people:
                raise refuse_unknown("public person", name, people)
        public = np.isin(np.array(people)[self.windows.subject], list(self.public_people))
        if public.all():
            raise Refusal("all people are public; there is nobody to attack")
        return public

    def private(self) -> tuple[Windows, np.ndarray]:
        """The windows that are attacked, and their groups."""
        private = ~self.is_public()
        groups = self.windows.recording if self.groups is None else self.groups
        return self.windows.select(private), groups[private]

    def train_target(self, contender: Contender, members: Windows, seed: int) -> TargetModel:
        """A target that sees the members only by way of what the contender releases."""
        if contender.make is None:
            return TargetModel(self.classify(members, seed), members, None)
        own = members
        if contender.uses_public:
            own = self.windows.select(
                np.isin(self.windows.offset, members.offset) | self.is_public()
            )
        method = contender.make(seed).fit(own, self.keep, self.hide)
        if not contender.restores:
            released = released_for_training(method, members, seed)
        elif isinstance(method, CsiGenerator):
            released = method.restore(members, seed)
        else:
            raise Refusal(f"{method.name} restores no degraded windows; csi does")
        return TargetModel(self.classify(released, seed), released, method)


def donor_study(
    contenders: Sequence[Contender],
    data: DonorData,
    likeness: Likeness,
    seeds: Sequence[int] = (0, 1, 2),
    lira_models: int = 0,
    on_result: Callable[[DonorStudy], None] | None = None,
) -> DonorStudy:
    """Attack every contender for every seed, for the windows of the same private people.

    For each seed the private groups are divided into members and nonmembers of the target and of
    its shadow. SSIM and FID compare what was made of the target's members with its nonmembers, which
    no generator saw; SSIM of a restored window is that with its own original.

    Parameters
    ----------
    contenders
        The rows.
    data
        Windows, policy, classifiers.
    likeness
        Fitted; gives SSIM and FID.
    seeds
        Of the division and of all trainings.
    lira_models
        So many models of each contender attack each other by LiRA; 0 for none.
    on_result
        Called with the study so far after each step.
    """
    study = DonorStudy(data.keep, data.hide)
    for seed in track(seeds, "seeds"):
        for contender in track(contenders, "contenders"):
            study += _score(contender, data, likeness, seed)
            if on_result:
                on_result(study)
    for contender in track(contenders if lira_models else (), "contenders"):
        study += _lira_scores(contender, data, lira_models)
        if on_result:
            on_result(study)
    return study


def _score(contender: Contender, data: DonorData, likeness: Likeness, seed: int) -> DonorScore:
    """The shadow attack on one contender, and the likeness of its windows."""
    private, groups = data.private()
    attack, target = shadow_attack(
        lambda members, seed: data.train_target(contender, members, seed), private, seed, groups
    )
    part = divide(groups, 4, seed)
    members, nonmembers = private.select(part == 0), private.select(part == 1)
    guarantee = target.method.guarantee() if target.method else None
    if contender.restores:
        ssim = likeness.ssim(members, target.windows)
        guarantee = Guarantee.none("each released window is made from a true one")
    else:
        rng = np.random.default_rng(derived_seed(seed, _PAIR_SEED))
        ssim = likeness.ssim(nonmembers, target.windows, rng)
    fid = likeness.fid(nonmembers, target.windows)
    privacy = guarantee.as_dict() if guarantee else None
    return DonorScore(contender.name, seed, attack, ssim, fid, privacy)


def _lira_scores(contender: Contender, data: DonorData, models: int) -> list[LiraScore]:
    """LiRA on the classifiers, and on the generators if there are any."""
    private, groups = data.private()
    scores: dict[str, Score] = {"classifier": logit_score(data.keep)}
    if contender.make and isinstance(contender.make(0), ClassGenerator):
        scores["generator"] = lambda target, windows: reconstruction_score(target.method, windows)
    attacks = lira_in_turn(
        lambda members, seed: data.train_target(contender, members, seed),
        scores,
        private,
        models,
        derived_seed(0, _LIRA_SEED),
        groups,
    )
    return [
        LiraScore(contender.name, of, number, attack)
        for of, found in attacks.items()
        for number, attack in enumerate(found)
    ]


@dataclass(frozen=True)
class DonorScore:
    """One row for one seed: equations (19) to (22), and what the generator promises."""

    contender: str
    seed: int
    attack: MembershipAttack
    ssim: float
    fid: float
    privacy: Mapping[str, Any] | None = None

    def figures(self) -> dict[str, float]:
        """What is averaged over seeds."""
        own = {name: getattr(self.attack, name) for name in ("auc", "success_rate", "tpr_at_1pct")}
        return {**own, "ssim": self.ssim, "fid": self.fid}


@dataclass(frozen=True)
class LiraScore:
    """LiRA on one target of a row: `of` is "classifier" or "generator"."""

    contender: str
    of: str
    target: int
    attack: MembershipAttack

    def figures(self) -> dict[str, float]:
        """What is averaged over targets."""
        own = {name: getattr(self.attack, name) for name in ("auc", "tpr_at_1pct", "tpr_at_01pct")}
        return {f"lira_{self.of}_{name}": v for name, v in own.items() if v is not None}


@dataclass(frozen=True)
class Step:
    """Two neighbours in the paper's order, and how far the first is above the second here.

    All rows of a seed have the same members, so differences are taken within seeds; `error` is
    their standard error, if there are several seeds.
    """

    above: str
    below: str
    difference: float
    error: float | None


@dataclass(frozen=True)
class DonorStudy:
    """All rows for all seeds, and all targets of LiRA."""

    keep: str
    hide: str
    scores: tuple[DonorScore, ...] = ()
    lira: tuple[LiraScore, ...] = ()

    def __add__(self, more: DonorScore | Sequence[LiraScore]) -> DonorStudy:
        """The same with more scores."""
        if isinstance(more, DonorScore):
            return replace(self, scores=(*self.scores, more))
        return replace(self, lira=(*self.lira, *more))

    def _all(self) -> tuple[DonorScore | LiraScore, ...]:
        return (*self.scores, *self.lira)

    def contenders(self) -> tuple[str, ...]:
        """The names of the rows, in their order."""
        return tuple(dict.fromkeys(score.contender for score in self._all()))

    def values(self, contender: str, figure: str) -> dict[int, float]:
        """A figure by seed or by target."""
        own = [score for score in self._all() if score.contender == contender]
        found = {
            score.seed if isinstance(score, DonorScore) else score.target: score.figures()[figure]
            for score in own
            if figure in score.figures()
        }
        return dict(sorted(found.items()))

    def mean(self, contender: str, figure: str) -> tuple[float, float | None] | None:
        """A figure's mean, and its standard deviation if there are several values."""
        found = np.array([*self.values(contender, figure).values()])
        if not len(found):
            return None
        return float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else None

    def steps(self, figure: str) -> list[Step]:
        """The differences of neighbours in the paper's order, over the seeds that both have."""
        rows = {name: self.values(name, figure) for name in ORDERS[figure]}
        found = []
        for above, below in pairwise([name for name, values in rows.items() if values]):
            seeds = sorted(rows[above].keys() & rows[below].keys())
            apart = np.array([rows[above][seed] - rows[below][seed] for seed in seeds])
            if seeds:
                error = float(sem(apart)) if len(seeds) > 1 else None
                found.append(Step(above, below, float(apart.mean()), error))
        return found

    def orders(self) -> dict[str, bool]:
        """For each figure with two rows or more, whether the means are in the paper's order."""
        steps = {figure: self.steps(figure) for figure in ORDERS}
        return {
            figure: all(step.difference > 0 for step in own) for figure, own in steps.items() if own
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        means: dict[str, dict[str, Any]] = {name: {} for name in self.contenders()}
        for score in self._all():
            for figure in score.figures():
                means[score.contender][figure] = self.mean(score.contender, figure)
        return {
            **asdict(self),
            "means": means,
            "paper_on_widar3": {name: dict(row) for name, row in PAPER.items()},
            "orders_held": self.orders(),
            "orders": {figure: [vars(step) for step in self.steps(figure)] for figure in ORDERS},
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> DonorStudy:
        """What `as_dict` gave."""
        try:
            return TypeAdapter(cls).validate_python(stored)
        except ValidationError as error:
            raise Refusal(
                f"this is no result of a donor study: {error.errors()[0]['msg']}"
            ) from None

    @classmethod
    def join(cls, parts: Sequence[DonorStudy]) -> DonorStudy:
        """Join parts of one study.

        A score that several parts hold counts once. Two that differ for the same row and seed are
        refused.
        """
        whole = cls(parts[0].keep, parts[0].hide)
        for part in parts:
            scores = [score for score in part.scores if score not in whole.scores]
            lira = [score for score in part.lira if score not in whole.lira]
            whole = replace(whole, scores=(*whole.scores, *scores), lira=(*whole.lira, *lira))
        named = [(score.contender, score.seed) for score in whole.scores]
        named_lira = [(score.contender, score.of, score.target) for score in whole.lira]
        if len({*named}) < len(named) or len({*named_lira}) < len(named_lira):
            raise Refusal("the parts hold the same row twice, for the same seed, and differ in it")
        return whole
