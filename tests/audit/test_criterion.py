"""The verdict, one condition after another."""

from __future__ import annotations

import pytest
import sample

from sensorveil.audit.criterion import judge
from sensorveil.audit.results import CONTROL, HIDDEN, IGNORANT, INCONCLUSIVE, NOT_HIDDEN, RAW, SEMI


def attack(threat_model, accuracy, auc=float("nan"), attacker="network"):
    return sample.attack(threat_model, attacker, accuracy, 0.5, auc)


GOOD = (attack(RAW, 0.95, 0.98), attack(IGNORANT, 0.45, 0.45), attack(SEMI, 0.51, 0.52))
CONTROLLED = attack(CONTROL, 0.58, 0.6)


@pytest.mark.parametrize(
    ("attacks", "control", "status"),
    [
        (GOOD, CONTROLLED, HIDDEN),
        ((*GOOD, attack(SEMI, 0.53, 0.52, "trees")), CONTROLLED, NOT_HIDDEN),
        ((*GOOD, attack(SEMI, 0.50, 0.56, "trees")), CONTROLLED, NOT_HIDDEN),
        ((*GOOD, attack(SEMI, 0.50, attacker="trees")), CONTROLLED, INCONCLUSIVE),
        (GOOD, attack(CONTROL, 0.54, 0.6), INCONCLUSIVE),
        ((attack(RAW, 0.53, 0.5), *GOOD[1:]), CONTROLLED, INCONCLUSIVE),
    ],
)
def test_each_condition_counts(attacks, control, status):
    assert judge(attacks, control, 0.10, ()).status == status


@pytest.mark.parametrize(("found", "status"), [(True, NOT_HIDDEN), (False, HIDDEN)])
def test_a_session_that_was_found_is_enough(found, status):
    curve = sample.curve((0.0, 0.05, 0.1, 0.15, 0.2), found=found)
    assert judge(GOOD, CONTROLLED, 0.10, curve).status == status
