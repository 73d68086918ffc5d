"""The verdict, one condition after another."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sample

from sensorveil.audit.criterion import judge
from sensorveil.audit.results import (
    CONTROL,
    HIDDEN,
    IGNORANT,
    INCONCLUSIVE,
    LOOKS,
    NOT_HIDDEN,
    RAW,
    SEMI,
    Attack,
    SessionPoint,
)

NAN = float("nan")


def attack(
    threat_model: str, accuracy: float, auc: float, p_value: float = 1.0, found: bool = False
) -> Attack:
    one = sample.attack(threat_model, "trees", accuracy, 0.5, auc)
    return replace(one, p_value=p_value, found=found)


GOOD = (attack(RAW, 0.95, 0.98), attack(IGNORANT, 0.45, 0.45), attack(SEMI, 0.51, 0.52))
CONTROLLED = attack(CONTROL, 0.58, 0.6, 0.0005, True)


@pytest.mark.parametrize(
    ("added", "control", "status", "reason"),
    [
        (None, CONTROLLED, HIDDEN, "no more than luck can give"),
        (attack(SEMI, 0.53, 0.52, 0.0005, True), CONTROLLED, NOT_HIDDEN, "is 3.0 points above"),
        (attack(SEMI, 0.50, 0.56, 0.0005, True), CONTROLLED, NOT_HIDDEN, "ROC curve of 0.56"),
        (attack(SEMI, 0.53, 0.52, 0.015), CONTROLLED, INCONCLUSIVE, "may be a leak"),
        (attack(SEMI, 0.50, 0.56, 0.015), CONTROLLED, INCONCLUSIVE, "may be a leak"),
        (attack(SEMI, 0.51, 0.54, 0.015), CONTROLLED, HIDDEN, "no more than luck"),
        (attack(SEMI, 0.53, 0.56, 0.1), CONTROLLED, HIDDEN, "no more than luck"),
        (attack(SEMI, 0.50, NAN), CONTROLLED, INCONCLUSIVE, "one class is missing"),
        (None, attack(CONTROL, 0.54, 0.6, 0.0005), INCONCLUSIVE, "too weak"),
        (None, attack(CONTROL, 0.58, 0.6, 0.03), INCONCLUSIVE, "people are too few"),
    ],
)
def test_each_condition_counts(
    added: Attack | None, control: Attack, status: str, reason: str
) -> None:
    verdict = judge((*GOOD, added) if added else GOOD, control, 0.10, ())
    assert verdict.status == status
    assert reason in verdict.reason


def test_raw_data_must_show_something() -> None:
    weak = (attack(RAW, 0.53, 0.5), *GOOD[1:])
    assert judge(weak, CONTROLLED, 0.10, ()).status == INCONCLUSIVE
    assert "nothing to hide" in judge(weak, CONTROLLED, 0.10, ()).reason
    # Where 97 of 100 are of one class, half of what is left to find is enough.
    assert judge(weak, CONTROLLED, 0.03, (), majority=0.97).status == HIDDEN


def test_the_best_attacker_of_one_half_must_not_be_better_on_the_other() -> None:
    assert judge(GOOD, CONTROLLED, 0.10, (), cross_fitted=0.015).status == HIDDEN
    verdict = judge(GOOD, CONTROLLED, 0.10, (), cross_fitted=0.025)
    assert verdict.status == INCONCLUSIVE
    assert "may be a leak" in verdict.reason


@pytest.mark.parametrize(
    ("p_value", "significant", "status"),
    [(0.001, True, NOT_HIDDEN), (0.015, False, INCONCLUSIVE), (0.1, False, HIDDEN)],
)
def test_sessions_count_as_attacks_do(p_value: float, significant: bool, status: str) -> None:
    curve = [
        replace(point, p_value=p_value, significant=significant and point.advantage.value > 0.1)
        for point in sample.curve((0.0, 0.05, 0.1, 0.15, 0.2))
    ]
    assert judge(GOOD, CONTROLLED, 0.10, curve).status == status


def test_the_reason_names_the_windows_that_were_attacked_together() -> None:
    def reason(**changed: object) -> str:
        (point, *_) = (one for one in sample.curve((0.0, 0.05, 0.1, 0.15, 0.2), found=True))
        leak: SessionPoint = replace(point, significant=True, **changed)  # type: ignore[arg-type]
        return judge(GOOD, CONTROLLED, 0.10, [leak]).reason

    assert "with 20 windows of one person" in reason(group="person", windows=20)
    assert "with all windows of one recording" in reason(group="recording", windows=None)
    assert "with 5 obfuscations of one window" in reason(group=LOOKS, windows=5)
