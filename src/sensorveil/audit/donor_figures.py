"""Figures of the study of donors, the paper's beside them, and whether its orders hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from sensorveil.audit.membership import Attack
from sensorveil.errors import Refusal

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
    "fid": ("dp", "hybrid", "plain"),
}
"""What is highest first in the paper."""


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
class LiraScore:
    """LiRA on one target of a row: its classifier, or its generator."""

    contender: str
    of: str
    target: int
    attack: Attack

    def figures(self) -> dict[str, float]:
        """What is averaged over targets."""
        found = {"auc": self.attack.auc, "at_1": self.attack.at_1}
        if self.attack.at_01 is not None:
            found["at_01"] = self.attack.at_01
        return {f"lira_{self.of}_{name}": value for name, value in found.items()}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "attack": self.attack.as_dict()}


@dataclass(frozen=True)
class Step:
    """Two neighbours in the paper's order: how far the first is above the second here.

    `error` is the standard error of that over seeds, where there are several. Recordings are dealt
    alike to all rows of a seed, so differences are taken within seeds.
    """

    above: str
    below: str
    difference: float
    error: float | None


@dataclass(frozen=True)
class DonorStudy:
    """All rows for all seeds, and for all targets of LiRA."""

    keep: str
    hide: str
    scores: tuple[DonorScore, ...] = ()
    lira: tuple[LiraScore, ...] = ()

    def __add__(self, more: DonorScore | Sequence[LiraScore]) -> DonorStudy:
        """The same with more scores."""
        if isinstance(more, DonorScore):
            return replace(self, scores=(*self.scores, more))
        return replace(self, lira=(*self.lira, *more))

    def contenders(self) -> tuple[str, ...]:
        """The rows, in the order in which they were asked for."""
        return tuple(dict.fromkeys(score.contender for score in self._all()))

    def _all(self) -> list[DonorScore | LiraScore]:
        """All scores, those of one row by seed and target."""
        by_target = sorted(self.lira, key=lambda score: score.target)
        return [*sorted(self.scores, key=lambda score: score.seed), *by_target]

    def values(self, contender: str, figure: str) -> np.ndarray:
        """A figure for each seed or target, as far as it is known."""
        own = [s for s in self._all() if s.contender == contender and figure in s.figures()]
        return np.array([score.figures()[figure] for score in own])

    def mean(self, contender: str, figure: str) -> tuple[float, float | None] | None:
        """A figure's mean, and its standard deviation where it was taken several times."""
        found = self.values(contender, figure)
        if not len(found):
            return None
        return float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else None

    def steps(self, figure: str) -> list[Step]:
        """How far neighbours in the paper's order are apart, over the seeds that both have."""
        rows: dict[str, dict[int, float]] = {name: {} for name in ORDERS[figure]}
        for score in self.scores:
            if score.contender in rows:
                rows[score.contender][score.seed] = score.figures()[figure]
        found = []
        for above, below in pairwise([name for name, values in rows.items() if values]):
            seeds = sorted({*rows[above]} & {*rows[below]})
            apart = np.array([rows[above][seed] - rows[below][seed] for seed in seeds])
            error = float(apart.std(ddof=1) / np.sqrt(len(apart))) if len(apart) > 1 else None
            if seeds:
                found.append(Step(above, below, float(apart.mean()), error))
        return found

    def orders(self) -> dict[str, bool]:
        """Whether the means come in the paper's order; nothing of figures that show no order."""
        steps = {figure: self.steps(figure) for figure in ORDERS}
        return {
            figure: all(step.difference > 0 for step in own) for figure, own in steps.items() if own
        }

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "keep": self.keep,
            "hide": self.hide,
            "scores": [score.as_dict() for score in self.scores],
            "lira": [score.as_dict() for score in self.lira],
            "means": {
                name: {figure: self.mean(name, figure) for figure in self._figures(name)}
                for name in self.contenders()
            },
            "paper_on_widar3": {name: dict(row) for name, row in PAPER.items()},
            "orders_held": self.orders(),
            "orders": {figure: [vars(step) for step in self.steps(figure)] for figure in ORDERS},
        }

    def _figures(self, contender: str) -> tuple[str, ...]:
        own = [score.figures() for score in self._all() if score.contender == contender]
        return tuple(dict.fromkeys(name for each in own for name in each))

    @classmethod
    def joined(cls, parts: Sequence[DonorStudy]) -> DonorStudy:
        """Studies of the same thing, in parts, as one.

        A score that several parts hold alike, to the last digit, counts once. Two that differ for
        the same row and seed are refused.
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

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> DonorStudy:
        """What `as_dict` gave."""
        scores, lira = (
            [{**one, "attack": Attack(**one["attack"])} for one in stored[kind]]
            for kind in ("scores", "lira")
        )
        return cls(
            stored["keep"],
            stored["hide"],
            tuple(DonorScore(**one) for one in scores),
            tuple(LiraScore(**one) for one in lira),
        )
