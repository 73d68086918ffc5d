"""The counted bound next to the attackers: an attacker who exceeds it found more than the code.

Where a method makes its output from a discrete code and noise alone, `methods.seal_bound` counts
the codes of people whom it was not trained on. An attacker whose accuracy exceeds that, beyond its
interval, found more in the output than the code: the attribute is not hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sensorveil.audit.results import CONTROL, NOT_HIDDEN, RAW, Attack, AttributeAudit, Verdict
from sensorveil.audit.threat_models import Fold
from sensorveil.data.windows import UNKNOWN
from sensorveil.methods.seal_bound import CONFIDENCE, Bound, bound_code, combine_bounds


def with_bounds(
    folds: Sequence[Fold], found: Sequence[AttributeAudit]
) -> tuple[AttributeAudit, ...]:
    """Each attribute with its bound, where there is one, and with the verdict that follows."""
    coded = [_codes(fold) for fold in folds]
    if any(codes is None for codes in coded):
        return tuple(found)
    return tuple(
        _judged(part, _bound(folds, [c for c in coded if c is not None], part.attribute))
        for part in found
    )


def _codes(fold: Fold) -> np.ndarray | None:
    """The code of each test window; None where there is none, or where people were trained on."""
    obfuscator, test = fold.obfuscator, fold.split.test
    if obfuscator is None or obfuscator.needs_wearer() or not fold.unseen_people:
        return None
    condition = obfuscator.condition(test)
    if condition is None or not np.isin(condition, (0, 1)).all():
        return None  # no code, or numbers that cannot be counted
    return np.unique(condition, axis=0, return_inverse=True)[1].reshape(-1)


def _bound(folds: Sequence[Fold], coded: Sequence[np.ndarray], name: str) -> Bound | None:
    """Folds have encoders of their own, so each has its own bound, and all of them must hold."""
    confidence = 1 - (1 - CONFIDENCE) / len(folds)
    tests = [fold.split.test for fold in folds]
    if any((test.codes(name) == UNKNOWN).all() for test in tests):
        return None
    return combine_bounds(
        [
            bound_code(codes, test.codes(name), test.subject, name, confidence)
            for codes, test in zip(coded, tests, strict=True)
        ]
    )


def _beats(attack: Attack, bound: Bound) -> bool:
    """Whether an attack is above the bound, beyond its interval.

    In the bound each person counts alike, in an attack each window. Where people with many windows
    are of one class, the majority baseline is larger for windows than for people. So the advantage
    over that baseline must be above the bound as well.
    """
    return attack.accuracy.low > bound.accuracy and attack.advantage.low > bound.advantage


def _judged(found: AttributeAudit, bound: Bound | None) -> AttributeAudit:
    if bound is None:
        return found
    beaten = [
        attack
        for attack in found.attacks
        if attack.threat_model not in (RAW, CONTROL) and _beats(attack, bound)
    ]
    if not beaten:
        return replace(found, bound=bound)
    worst = max(beaten, key=lambda attack: attack.accuracy.value)
    reason = (
        f"the {worst.threat_model} attacker ({worst.attacker}) is right in {worst.accuracy.value:.1%} of"
        f" windows; from the code alone it is at most {bound.rounded_up:.1%} with"
        f" {100 * bound.confidence:g}% confidence: the output holds more of the window than its code"
    )
    return replace(found, bound=bound, verdict=Verdict(NOT_HIDDEN, reason))
