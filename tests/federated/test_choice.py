"""The choice of rates: what the rule says, by hand."""

from __future__ import annotations

import pytest

from sensorveil.errors import Refusal
from sensorveil.federated.choice import chosen


def point(rate, activity, gender, dense_gender=0.5, algorithm="Blinder"):
    return {
        "algorithm": algorithm,
        "rate": rate,
        "read": {"activity": activity, "gender": gender},
        "read_dense": {"activity": activity - 0.1, "gender": dense_gender},
    }


def best(points, algorithm="Blinder"):
    return chosen(points, ("activity",), {"gender": 0.5})[algorithm]


def test_the_best_is_the_most_useful_of_those_who_hide():
    points = [point(1, 0.8, 0.5), point(2, 0.9, 0.56), point(3, 0.99, 0.58)]
    found = best(points)
    assert (found["rate"], found["within"], found["seeds"], found["of"]) == (2, True, 1, [1, 2, 3])
    assert (found["kept"], found["off"]) == pytest.approx((0.85, 0.06))


def test_who_is_read_wrong_too_often_does_not_hide_either():
    assert best([point(1, 0.9, 0.4), point(2, 0.7, 0.5)])["rate"] == 2


def test_both_kinds_of_models_count():
    assert best([point(1, 0.9, 0.5, dense_gender=0.6), point(2, 0.7, 0.5)])["rate"] == 2


def test_seeds_are_taken_together():
    points = [point(1, 0.9, 0.55), point(2, 0.8, 0.5), point(1, 0.5, 0.55), point(2, 0.8, 0.5)]
    assert (best(points)["rate"], best(points)["seeds"]) == (2, 2)
    apart = [point(1, 0.9, 0.40), point(2, 0.8, 0.5), point(1, 0.9, 0.60), point(2, 0.8, 0.5)]
    assert best(apart)["rate"] == 1  # means of seeds are judged


def test_where_nobody_hides_the_nearest_is_named_as_such():
    found = best([point(1, 0.9, 0.7), point(2, 0.6, 0.6)])
    assert (found["rate"], found["within"]) == (2, False)


def test_algorithms_are_judged_apart_and_failures_left_out():
    failed = {"algorithm": "FedBlinder", "rate": 9, "failed": "round 2: not finite"}
    points = [point(1, 0.8, 0.5), point(2, 0.7, 0.5, algorithm="FedBlinder"), failed]
    assert best(points)["rate"] == 1
    assert best(points, "FedBlinder") | {"kept": 0} == {
        "rate": 2, "kept": 0, "off": 0, "within": True, "seeds": 1, "of": [2, 9]
    }  # fmt: skip
    again = [*points, {**failed, "rate": 2}]  # with another seed
    with pytest.raises(Refusal, match="FedBlinder failed at every rate; the first time: round 2"):
        chosen(again[2:], ("activity",), {"gender": 0.5})
    with pytest.raises(Refusal, match="FedBlinder failed at every rate"):
        chosen(again, ("activity",), {"gender": 0.5})
