"""Sentences beside the verdicts: intervals, gaps, bounds and applications."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sample

from sensorveil.methods.seal_bound import NOT_COVERED, Bound
from sensorveil.report import text
from sensorveil.statistics import Estimate


def test_few_people_stand_beside_the_verdict():
    found = sample.attribute()
    few = replace(found.worst, advantage=Estimate(0.006, 0.001, 0.011, people=6))
    note = text.interval_note(replace(found, worst=few))
    assert "past the 2 points" not in note
    assert "over 6 people" in note
    assert "so few people" in note


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (0.062, "6.2 points higher on split paper than on subject"),
        (-0.0312, "3.1 points lower"),
        (0.0001, "subject and paper agree"),
        (float("nan"), "could not be measured"),
    ],
)
def test_gap_between_the_splits(gap, said):
    assert said in text.gap_sentence(replace(sample.audit(), gaps={"gender": gap}), "gender")


def test_both_aucs_are_said_where_both_are_known():
    found = sample.attribute()
    assert "over all windows" not in text.worst_note(found)
    overall_auc = Estimate(0.64, 0.5, 0.7, people=24)
    known = tuple(replace(attack, overall_auc=overall_auc) for attack in found.attacks)
    said = text.worst_note(replace(found, attacks=known))
    assert "over all windows, with what the kept class itself tells, it is 0.640" in said


def test_the_bound_stands_beside_what_it_does_not_cover():
    found = sample.attribute()
    assert text.bound_note(found) is None
    bound = Bound("gender", 500, 84, 0.57, 0.58, 0.6)
    said = text.bound_note(replace(found, bound=bound))
    assert bound.sentence() in said
    assert NOT_COVERED in said
    vacuous = replace(bound, people=6, accuracy=1.0)
    said = text.bound_note(replace(found, bound=vacuous))
    assert vacuous.sentence() in said
    assert NOT_COVERED not in said


def test_applications_in_two_sentences_with_the_one_that_loses_most() -> None:
    kept = sample.kept()
    assert text.kept_sentence(kept) == (
        "Unchanged applications predict activity right in 97.7% of windows (mean of 2 designs); on"
        " raw data they are right in 98.1%. The worst, boosted trees, goes from 97.2% to 96.7%."
    )
    bare = text.kept_sentence(replace(kept, applications=()))
    assert "mean of" not in bare
    assert "worst" not in bare
