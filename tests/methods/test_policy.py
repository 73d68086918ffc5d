"""Policies: what may be asked for, and every refusal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.policy import Policy

names = st.sampled_from(["activity", "gender", "weight", "age"])


@settings(deadline=None)
@given(keep=st.lists(names, max_size=3), hide=st.lists(names, max_size=3))
def test_a_policy_is_two_lists_without_repeats(keep: list[str], hide: list[str]) -> None:
    both = keep + hide
    if keep and hide and len(set(both)) == len(both):
        policy = Policy.of(keep, hide)
        assert policy == Policy(tuple(keep), tuple(hide))
        roles = {name: policy.role(name) for name in ("activity", "gender", "weight", "age")}
        assert [n for n in keep if roles[n] == "keep"] == keep
        assert [n for n in hide if roles[n] == "hide"] == hide
        assert all(roles[n] == "unlisted" for n in roles if n not in both)
    else:
        with pytest.raises(Refusal):
            Policy.of(keep, hide)


@pytest.mark.parametrize(
    ("keep", "hide", "expected"),
    [
        ("activity", "activity", "attribute 'activity' cannot be kept and hidden at once"),
        ("activity", [], "at least one attribute to keep and one to hide"),
        ([], "gender", "at least one attribute to keep and one to hide"),
        ("activity", ["gender", "gender"], "named twice in gender, gender"),
    ],
)
def test_refusals(keep: str | list[str], hide: str | list[str], expected: str) -> None:
    with pytest.raises(Refusal, match=expected):
        Policy.of(keep, hide)


def test_attributes_are_checked_against_windows() -> None:
    windows = example_windows()
    Policy.of("activity", ["gender", "subject"]).check(windows)
    with pytest.raises(Refusal, match="'gendr' is unknown; known: activity, gender, subject"):
        Policy.of("activity", "gendr").check(windows)


@pytest.mark.parametrize(("code", "count"), [(1, 1), (UNKNOWN, 0)])
def test_one_class_is_nothing_to_hide(code: int, count: int) -> None:
    windows = example_windows()
    codes = np.where(windows.labels["gender"] == 0, UNKNOWN, code)
    spoilt = replace(windows, labels={**windows.labels, "gender": codes})
    with pytest.raises(Refusal, match=f"'gender' has {count} class in the training windows"):
        Policy.of("activity", "gender").check(spoilt)
    with pytest.raises(Refusal, match="'gender' has"):
        Policy.of("gender", "activity").check(spoilt)
