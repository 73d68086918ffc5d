"""The true classes, and what is known of them beforehand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.audit.truth import Truth, kept_prior, log_prior
from sensorveil.data.windows import UNKNOWN, Windows


def test_the_prior_of_each_kept_class():
    """Shares of a hidden class within each kept class, by hand."""
    labels = {"activity": [0, 0, 0, 1, 1, -1], "gender": [0, 0, 1, 1, 1, 0]}
    learnt = Windows.from_signal(np.zeros((6, 1, 4)), labels)
    asked = Windows.from_signal(np.zeros((3, 1, 4)), {"activity": [0, 1, -1], "gender": [0, 0, 0]})
    asked = replace(asked, classes=learnt.classes)
    found = np.exp(kept_prior(learnt, asked, "gender", ["activity"]))
    np.testing.assert_allclose(found[0], [2.5 / 4, 1.5 / 4])
    np.testing.assert_allclose(found[1], [0.5 / 3, 2.5 / 3])
    np.testing.assert_allclose(found[2], [0.5, 0.5])


def test_a_class_that_does_not_occur_never_wins():
    codes = np.array([0, 0, 2, UNKNOWN])
    np.testing.assert_allclose(log_prior(codes, 3)[[0, 2]], np.log([2 / 3, 1 / 3]))
    assert (np.zeros(3) - log_prior(codes, 3)).argmin() == 1


def known(unseen_people: bool) -> Truth:
    """Two people of different gender, with two recordings of each of two activities."""
    recording = np.arange(40) // 5
    person, kept = recording // 4, recording // 2 % 2
    nowhere = np.zeros(40, int)
    return Truth(
        codes=person,
        person=person,
        recording=recording,
        start=np.arange(40) % 5,
        classes=2,
        log_prior=np.zeros((40, 2)),
        fold=nowhere,
        kept=kept,
        unseen_people=unseen_people,
    )


def test_classes_are_exchanged_between_people_whom_nobody_knows():
    units = known(unseen_people=True).units()
    assert units.codes.tolist() == [0, 1]
    assert len(set(units.strata)) == 1


def test_classes_are_exchanged_between_recordings_of_one_kept_class_where_people_are_known():
    truth = known(unseen_people=False)
    units = truth.units()
    assert len(units) == 8
    of_unit = units.strata[units.of_window]
    pairs = set(zip(of_unit.tolist(), truth.kept.tolist(), strict=True))
    assert len(pairs) == len(set(of_unit)) == 2  # a stratum is a kept class


@pytest.mark.parametrize("unseen_people", [True, False])
def test_folds_are_strata_of_their_own(unseen_people):
    truth = known(unseen_people)
    truth = replace(truth, fold=truth.recording % 2)
    units = truth.units()
    of_unit = units.strata[units.of_window]
    pairs = set(zip(of_unit.tolist(), truth.fold.tolist(), strict=True))
    assert len(pairs) == len(set(of_unit))
