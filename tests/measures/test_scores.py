"""The papers' measures against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.data.windows import UNKNOWN
from sensorveil.measures.scores import (
    accuracy,
    confusion_by_person,
    f1_by_class,
    macro_f1,
    majority,
    privacy_loss,
    recall_by_class,
)

metrics = pytest.importorskip("sklearn.metrics")

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(pairs)
def test_against_scikit_learn(answers: list[tuple[int, int]]) -> None:
    true, read = np.array(answers).T
    table = metrics.confusion_matrix(true, read, labels=range(4))
    occurs = np.unique(true)
    assert accuracy(table) == pytest.approx(metrics.accuracy_score(true, read))
    assert privacy_loss(table) == pytest.approx(abs(metrics.accuracy_score(true, read) - 1 / 4))
    expected = metrics.f1_score(true, read, labels=occurs, average="macro", zero_division=0)
    assert macro_f1(table) == pytest.approx(expected)
    each = metrics.f1_score(true, read, labels=range(4), average=None, zero_division=np.nan)
    np.testing.assert_allclose(f1_by_class(table), each)
    recall = metrics.recall_score(true, read, labels=range(4), average=None, zero_division=np.nan)
    np.testing.assert_allclose(recall_by_class(table), recall)
    assert majority(table) == pytest.approx(np.bincount(true).max() / len(true))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-1, 2), st.integers(0, 2), st.sampled_from([3, 7, 40])),
        min_size=1,
        max_size=30,
    )
)
def test_tables_of_people_by_counting(answers: list[tuple[int, int, int]]) -> None:
    true, read, person = np.array(answers).T
    people = sorted({who for what, _, who in answers if what != UNKNOWN})
    table = confusion_by_person(true, read, person, 3)
    assert table.shape == (len(people), 3, 3)
    for place, who in enumerate(people):
        for a in range(3):
            for b in range(3):
                assert table[place, a, b] == answers.count((a, b, who))


def test_any_leading_axes() -> None:
    tables = np.random.default_rng(0).integers(1, 9, (2, 5, 3, 3))
    for measure in (accuracy, privacy_loss, macro_f1, majority):
        got = measure(tables)
        assert got.shape == (2, 5)
        for at in np.ndindex(2, 5):
            assert got[at] == measure(tables[at])
    for measure in (f1_by_class, recall_by_class):
        assert measure(tables).shape == (2, 5, 3)
        np.testing.assert_array_equal(measure(tables)[1, 2], measure(tables[1, 2]))


def test_guessing_is_no_loss_and_certainty_is_all() -> None:
    assert privacy_loss(np.full((4, 4), 5)) == 0
    assert privacy_loss(np.diag([3, 3, 3, 3])) == 0.75
    assert privacy_loss(np.array([[0, 5], [5, 0]])) == 0.5  # always wrong tells as much


def test_measures_do_not_change_their_table() -> None:
    table = np.array([[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    before = table.copy()
    for measure in (accuracy, privacy_loss, macro_f1, majority, f1_by_class, recall_by_class):
        measure(table)
    np.testing.assert_array_equal(table, before)
    assert macro_f1(table) == pytest.approx((16 / 19 + 18 / 21) / 2)
