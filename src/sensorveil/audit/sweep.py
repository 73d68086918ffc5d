"""Trade-off curves over strengths, without training again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from sensorveil.audit.attackers import CONVOLUTIONS, AttackDataset, Budget
from sensorveil.audit.folds import obfuscated_part, thin_places
from sensorveil.audit.results import SweepPoint
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.measures.scores import accuracy, confusion_by_person, majority
from sensorveil.methods.base import Obfuscator
from sensorveil.progress import track


@dataclass(frozen=True)
class Sweep:
    """A trade-off curve; `area` is 1 for an ideal method and 0 for one that is never better."""

    keep: str
    hide: str
    points: tuple[SweepPoint, ...]
    raw_kept: float
    raw_hidden: float
    guess_kept: float
    guess_hidden: float
    area: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"format": 1, "kind": "sweep", **asdict(self)}


def sweep(
    obfuscator: Obfuscator,
    train: Windows,
    test: Windows,
    grid: Mapping[str, Sequence[float]],
    budget: Budget | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> Sweep:
    """Obfuscates with every combination of strengths, and reads each with one quick attacker.

    Both application and attacker are random convolutions with a linear head; the attacker is
    trained on the output of that very strength.
    """
    if not grid:
        raise Refusal("the grid is empty; give strengths as name=1:9:1 or name=0,0.1,0.3")
    budget = budget or Budget.quick()
    keep, hide = obfuscator.policy_.keep[0], obfuscator.policy_.hide[0]
    whole, chosen = train, thin_places(train, budget.windows, seed)
    train = whole.select(chosen)
    reader = AttackDataset(train, {"raw": test}, budget, seed, device)
    raw_kept, raw_hidden = (read(reader, train, test, name)["raw"] for name in (keep, hide))
    points = []
    for values in track(list(product(*grid.values())), "strengths"):
        strength = dict(zip(grid, values, strict=True))
        hidden_test = obfuscator.obfuscate(test, strength, seed=2 * seed + 1)
        hidden_train = obfuscated_part(obfuscator, whole, chosen, strength, seed=2 * seed)
        application = AttackDataset(train, {"out": hidden_test}, budget, seed, device)
        attacker = AttackDataset(hidden_train, {"out": hidden_test}, budget, seed, device)
        points.append(
            SweepPoint(
                strength,
                read(application, train, test, keep)["out"],
                read(attacker, hidden_train, test, hide)["out"],
            )
        )
    guess_kept, guess_hidden = (_guess(test, name) for name in (keep, hide))
    return Sweep(
        keep=keep,
        hide=hide,
        points=tuple(points),
        raw_kept=raw_kept,
        raw_hidden=raw_hidden,
        guess_kept=guess_kept,
        guess_hidden=guess_hidden,
        area=area_under(points, (guess_kept, raw_kept), (guess_hidden, raw_hidden)),
    )


def read(evidence: AttackDataset, train: Windows, test: Windows, name: str) -> dict[str, float]:
    """The accuracy on each test set of an attribute, by random convolutions."""
    codes, true = train.codes(name), test.codes(name)
    classes = len(train.classes[name])
    found = evidence.attack(CONVOLUTIONS, codes, classes, codes != UNKNOWN)
    return {
        part: float(
            accuracy(confusion_by_person(true, scores.argmax(1), test.subject, classes).sum(0))
        )
        for part, scores in found.items()
    }


def area_under(
    points: Sequence[SweepPoint], kept: tuple[float, float], hidden: tuple[float, float]
) -> float:
    """Area under the best kept accuracy that is to be had at each level of the attacker.

    Both axes run from guessing (0) to raw data (1).

    >>> ideal = [SweepPoint({}, kept=0.9, hidden=0.5)]
    >>> area_under(ideal, (0.25, 0.9), (0.5, 1.0))
    1.0
    """

    def scaled(value: float, ends: tuple[float, float]) -> float:
        return float(np.clip((value - ends[0]) / max(ends[1] - ends[0], 1e-9), 0, 1))

    marks = sorted((scaled(p.hidden, hidden), scaled(p.kept, kept)) for p in points)
    area, best, place = 0.0, 0.0, 0.0
    for across, up in marks:
        area += (across - place) * best
        best, place = max(best, up), across
    return area + (1 - place) * best


def _guess(windows: Windows, name: str) -> float:
    codes = windows.codes(name)
    known = codes[codes != UNKNOWN]
    return float(majority(np.diag(np.bincount(known))))
