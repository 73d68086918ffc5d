"""Trade-offs: of a run beside plain baselines, and over strengths without training again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from sensorveil.audit.attack import attack, attack_accuracy
from sensorveil.audit.attackers import CONVOLUTIONS, Budget
from sensorveil.audit.evaluation import scorable
from sensorveil.audit.results import SweepPoint, TradeOff
from sensorveil.audit.threat_models import (
    AttackDataset,
    Fold,
    Output,
    obfuscate_some,
    thinned,
    thinned_positions,
)
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator, Strength
from sensorveil.methods.registry import method
from sensorveil.progress import track

GIVEN = "given output"
"""What output is called that something else made."""

TRADE_OFF_WINDOWS = 4_000
"""The most test windows for a point of the trade-off plot, since methods can be slow."""


def trade_off(
    fold: Fold,
    output: Output,
    budget: Budget,
    plain: Sequence[str],
    strength: Strength | None = None,
    device: str = "cpu",
) -> tuple[TradeOff, ...]:
    """This run, its variants and the plain baselines, by one cheap attacker and application.

    The kept accuracy is the unchanged application's, the hidden one a semi-informed attacker's.
    Both are random convolutions, on one fold and seed, and on some of the test windows.

    Parameters
    ----------
    fold, output
        What is audited, and its output.
    budget
        How much the attacker learns from.
    plain
        The baselines to compare with.
    strength
        The strengths to obfuscate with.
    device
        Where the attacker works.
    """
    obfuscator, policy = fold.obfuscator, fold.policy
    hide = next((n for n in policy.hide if n in scorable(fold.split)[0]), None)
    if hide is None:
        return ()
    shown = thinned_positions(len(fold.split.test), TRADE_OFF_WINDOWS, 0)
    test, train = fold.split.test.select(shown), thinned(fold.split.train, budget.windows, 0)
    own = obfuscator.name if obfuscator else GIVEN
    outputs = {own: (thinned(output.train, budget.windows, 0), output.test.select(shown))}
    for name, other in obfuscator.variants().items() if obfuscator else ():
        outputs[name] = (
            other.obfuscate(train, strength, seed=1),
            other.obfuscate(test, strength, seed=2),
        )
    for name in plain:
        if name != own:
            other = method(name)(device=device).fit(fold.split.train, policy.keep, policy.hide)
            outputs[name] = (other.obfuscate(train, seed=1), other.obfuscate(test, seed=2))
    keep = policy.keep[0]
    tests = {name: hidden_test for name, (_, hidden_test) in outputs.items()}
    application = attack(AttackDataset(train, tests), CONVOLUTIONS, [keep], budget, device=device)
    true = test.codes(keep)
    return tuple(
        TradeOff(
            name,
            kept=float((application[keep, name].argmax(1) == true)[true != UNKNOWN].mean()),
            hidden=attack_accuracy(
                hidden_train, hidden_test, hide, CONVOLUTIONS, budget, device=device
            ),
            attribute=hide,
        )
        for name, (hidden_train, hidden_test) in outputs.items()
    )


@dataclass(frozen=True)
class Sweep:
    """A trade-off curve; `area` is 1 for an ideal method and 0 for one that is never better."""

    keep: str
    hide: str
    points: tuple[SweepPoint, ...]
    raw_kept: float
    raw_hidden: float
    majority_kept: float
    majority_hidden: float
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
    """Obfuscate with every combination of strengths, and attack each with one quick attacker.

    Application and attacker are random convolutions with a linear head. The application is trained
    on raw windows, the attacker on the output at that very strength.

    Parameters
    ----------
    obfuscator
        A fitted method.
    train, test
        Its training windows, and windows to obfuscate and attack.
    grid
        Values for each strength.
    budget, seed, device
        As in `Attacker`.
    """
    if not grid:
        raise Refusal("the grid is empty; give strengths as name=1:9:1 or name=0,0.1,0.3")
    budget = budget or Budget.quick()
    keep, hide = obfuscator.policy_.keep[0], obfuscator.policy_.hide[0]
    chosen = thinned_positions(len(train), budget.windows, seed)
    raw = train.select(chosen)

    def predicted(learnt: Windows, attacked: Windows, name: str) -> float:
        return attack_accuracy(learnt, attacked, name, CONVOLUTIONS, budget, seed, device)

    raw_kept, raw_hidden = (predicted(raw, test, name) for name in (keep, hide))
    points = []
    for values in track(list(product(*grid.values())), "strengths"):
        strength = dict(zip(grid, values, strict=True))
        hidden_test = obfuscator.obfuscate(test, strength, seed=2 * seed + 1)
        hidden_train = obfuscate_some(obfuscator, train, chosen, strength, seed=2 * seed)
        kept, hidden = predicted(raw, hidden_test, keep), predicted(hidden_train, hidden_test, hide)
        points.append(SweepPoint(strength, kept, hidden))
    majority_kept, majority_hidden = (_majority(test, name) for name in (keep, hide))
    return Sweep(
        keep=keep,
        hide=hide,
        points=tuple(points),
        raw_kept=raw_kept,
        raw_hidden=raw_hidden,
        majority_kept=majority_kept,
        majority_hidden=majority_hidden,
        area=area_under(points, (majority_kept, raw_kept), (majority_hidden, raw_hidden)),
    )


def area_under(
    points: Sequence[SweepPoint], kept: tuple[float, float], hidden: tuple[float, float]
) -> float:
    """Area under the best kept accuracy that is to be had at each accuracy of the attacker.

    Both axes run from the majority baseline (0) to raw data (1).

    Examples
    --------
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


def _majority(windows: Windows, name: str) -> float:
    codes = windows.codes(name)
    known = codes[codes != UNKNOWN]
    return float(np.bincount(known).max() / len(known))
