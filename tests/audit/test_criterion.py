"""The verdict, one condition after another."""

from __future__ import annotations

import pytest
import sample

from sensorveil.audit.criterion import judge
from sensorveil.audit.results import CONTROL, HIDDEN, IGNORANT, INCONCLUSIVE, NOT_HIDDEN, RAW, SEMI

GUESS = 0.5
GOOD = (
    sample.attack(RAW, "network", 0.95, GUESS, 0.98),
    sample.attack(IGNORANT, "network", 0.45, GUESS, 0.45),
    sample.attack(SEMI, "network", 0.51, GUESS, 0.52),
)
CONTROLLED = sample.attack(CONTROL, "network", 0.58, GUESS, 0.6)


@pytest.mark.parametrize(
    ("attacks", "control", "status"),
    [
        (GOOD, CONTROLLED, HIDDEN),
        ((*GOOD, sample.attack(SEMI, "trees", 0.53, GUESS, 0.52)), CONTROLLED, NOT_HIDDEN),
        ((*GOOD, sample.attack(SEMI, "trees", 0.50, GUESS, 0.56)), CONTROLLED, NOT_HIDDEN),
        (
            (*GOOD, sample.attack(SEMI, "trees", 0.50, GUESS, float("nan"))),
            CONTROLLED,
            INCONCLUSIVE,
        ),
        (GOOD, sample.attack(CONTROL, "network", 0.54, GUESS, 0.6), INCONCLUSIVE),
        ((sample.attack(RAW, "network", 0.53, GUESS), *GOOD[1:]), CONTROLLED, INCONCLUSIVE),
    ],
)
def test_each_condition_counts(attacks, control, status):
    assert judge(attacks, control, 0.10, ()).status == status


def test_a_session_that_was_found_is_enough():
    assert judge(
        GOOD, CONTROLLED, 0.10, sample.curve((0.0, 0.05, 0.1, 0.15, 0.2), found=True)
    ).status == (NOT_HIDDEN)
    assert judge(GOOD, CONTROLLED, 0.10, sample.curve((0.0, 0.05, 0.1, 0.15, 0.2))).status == HIDDEN
