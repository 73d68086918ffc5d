"""The attacker who counts: people it counted do not count."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.data.windows import UNKNOWN
from sensorveil.measures.counting import counted_advantage, half_folds, people_folds


def test_codes_that_tell_nothing_give_no_advantage():
    """Within-sample counting would find much in 200 codes of 40 people."""
    person = np.repeat(np.arange(40), 10)
    codes = np.random.default_rng(0).integers(200, size=400)
    assert abs(counted_advantage(codes, person % 2, person, people_folds(person))) < 0.1


def test_codes_that_name_the_person_tell_nothing_of_new_people():
    person = np.repeat(np.arange(40), 10)
    assert counted_advantage(person, person % 2, person, people_folds(person)) == pytest.approx(
        0, abs=0.01
    )


def test_codes_that_name_the_person_tell_the_person_in_another_half():
    person = np.repeat(np.arange(10), 10)
    halves = half_folds(person, np.tile(np.arange(10), 10))
    assert np.bincount(halves).tolist() == [50, 50]
    assert counted_advantage(person, person, person, halves) == pytest.approx(0.9)
    nothing = np.random.default_rng(0).integers(3, size=100)
    assert abs(counted_advantage(nothing, person, person, halves)) < 0.1


def test_a_known_leak_is_found_in_full():
    generator = np.random.default_rng(0)
    person = np.repeat(np.arange(400), 20)
    gender = person % 2
    codes = np.where(generator.random(len(person)) < 0.3, gender, 2)
    # Three in ten windows show it, half of the others are guessed right.
    assert counted_advantage(codes, gender, person, people_folds(person)) == pytest.approx(
        0.15, abs=0.02
    )


def test_unknown_windows_do_not_count():
    person = np.repeat(np.arange(20), 10)
    labels = np.where(np.arange(200) % 2, person % 2, UNKNOWN)
    assert counted_advantage(person % 2, labels, person, people_folds(person)) == pytest.approx(0.5)


def test_each_person_counts_alike():
    """Half of the people have three times as many windows: guessing is still right in half."""
    person = np.repeat(np.arange(20), np.where(np.arange(20) % 2, 30, 10))
    told = counted_advantage(person % 2, person % 2, person, people_folds(person))
    assert told == pytest.approx(0.5)
