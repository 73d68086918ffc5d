"""The bound holds: against its closed form, all rules one by one, and known truth."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.seal_bound import (
    WINDOWS,
    cases,
    draw_codes,
    draw_gait,
    gait_vulnerability,
    measure,
    vulnerability,
)
from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal
from sensorveil.methods.seal_bound import Bound, bound_code, combine_bounds, sequence_codes

LEAK = np.array([[0.6, 0.4], [0.4, 0.6]])


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("people", [40, 300])
def test_the_deviation_is_that_of_hoeffding(people: int, confidence: float) -> None:
    """2 n deviation^2 = ln(1 / alpha): alpha = exp(-2 n deviation^2)."""
    bound = bound_code(*draw_codes(LEAK, 5, 0.5, people, seed=0), confidence=confidence)
    deviation = bound.accuracy - bound.counted
    assert math.exp(-2 * people * deviation**2) == pytest.approx(1 - confidence)
    assert bound.confidence == confidence


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [2, 3])
def test_the_best_share_is_that_of_the_best_of_all_rules(seed: int, classes: int) -> None:
    """Rule by rule and person by person; people have different numbers of windows and classes."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(20), rng.integers(1, 6, size=20))
    codes, labels = (rng.integers(size, size=len(person)) for size in (4, classes))
    shares = []
    for rule in itertools.product(range(classes), repeat=4):
        right = np.array(rule)[codes] == labels
        shares.append(np.mean([right[person == one].mean() for one in range(20)]))
    assert bound_code(codes, labels, person).counted == pytest.approx(max(shares))


def test_in_the_worst_case_the_bound_fails_in_few_samples() -> None:
    """The exact share of samples of 20 people with one code, of whom half have the first class.

    The other half are of nine further classes, as evenly as can be, so no other rule helps. With a
    deviation of sqrt(ln(20) / (4 n)) or sqrt(1 / (2 n)) the bound would fail in 5.8%.
    """
    people, alpha, fails = 20, 0.05, 0.0
    for first in range(people + 1):
        others = np.arange(people - first) % 9 + 1
        labels = np.concatenate([np.zeros(first, int), others])
        bound = bound_code(np.zeros(people, int), labels, np.arange(people), confidence=1 - alpha)
        fails += math.comb(people, first) / 2**people * (bound.accuracy < 0.5)
    assert 0 < fails <= alpha


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_bound_holds_on_simulated_people(case) -> None:
    for people in (20, 100):
        assert measure(case, people, 100)["bound holds, %"] >= 95


@pytest.mark.parametrize("own", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    ("channel", "people"),
    [
        ([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], 12),
        ([[0.98, 0.02], [0.5, 0.5]], 40),  # a code that is rare in one class: far from normal
        ([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]], 30),
    ],
)
def test_bound_holds_however_windows_of_a_person_depend_on_each_other(channel, people, own) -> None:
    table = np.array(channel)
    found = [bound_code(*draw_codes(table, 4, own, people, seed)) for seed in range(200)]
    assert np.mean([bound.accuracy < vulnerability(table) for bound in found]) <= 0.05


def test_the_benchmarks_truth_is_that_of_many_people() -> None:
    for absolute, truth in ((True, gait_vulnerability()), (False, 0.5)):
        codes, label, person = draw_gait(not absolute, 20_000, seed=0)
        assert bound_code(codes, label, person).counted == pytest.approx(truth, abs=0.01)
    channel = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    for own in (0.0, 0.5, 1.0):
        sample = draw_codes(channel, WINDOWS, own, 20_000, seed=0)
        assert bound_code(*sample).counted == pytest.approx(vulnerability(channel), abs=0.01)


def test_windows_are_not_counted_as_people() -> None:
    channel = np.full((2, 4), 0.25)
    few, many = (bound_code(*draw_codes(channel, n, 1.0, 40, seed=0)) for n in (1, 500))
    assert many.accuracy == pytest.approx(few.accuracy)


def test_bound_tightens_with_people() -> None:
    found = [bound_code(*draw_codes(LEAK, 20, 0.0, n, seed=0)).accuracy for n in (20, 200, 20_000)]
    assert 0.62 > found[2] > 0.6
    assert found[0] > found[1] > found[2]


def test_a_code_that_is_the_class_tells_everything() -> None:
    person = np.repeat(np.arange(100), 10)
    bound = bound_code(person % 2, person % 2, person)
    assert bound.counted == pytest.approx(1)
    assert bound.accuracy == 1
    assert bound.vacuous


def test_counts_by_hand() -> None:
    """Three people of class 0, one of 1: p(code, class) is 0.5, 0.25 and 0.25."""
    codes, labels = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 0, 0, 0, 0, 1, 1])
    bound = bound_code(codes, labels, np.array([0, 0, 1, 1, 2, 2, 3, 3]))
    assert (bound.guess, bound.counted, bound.people, bound.codes) == (0.75, 0.75, 4, 2)


def test_each_person_counts_alike_and_unknown_classes_do_not_count() -> None:
    person = np.repeat(np.arange(60), np.arange(60) % 7 + 1)
    codes, labels = np.random.default_rng(0).integers(3, size=len(person)), person % 2
    often = np.concatenate([np.arange(len(person)), np.flatnonzero(person == 3)])
    one, other = (bound_code(codes[i], labels[i], person[i]) for i in (slice(None), often))
    assert one.accuracy == pytest.approx(other.accuracy)
    assert one.guess == pytest.approx(0.5)
    more = [np.concatenate([part, part[:5]]) for part in (codes, labels, person)]
    more[1][-5:] = UNKNOWN
    assert bound_code(*more) == one
    with pytest.raises(Refusal, match="no window"):
        bound_code(codes, np.full(len(codes), UNKNOWN), person)


def test_identity_codes_of_ones_own_and_a_single_class_are_vacuous() -> None:
    person = np.repeat(np.arange(30), 4)
    assert bound_code(person % 5, person, person, "subject").vacuous
    assert bound_code(np.arange(len(person)) * 10, person % 2, person).vacuous
    assert bound_code(person % 5, np.zeros(len(person), int), person).vacuous


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_confidence_outside_0_to_1_is_refused(confidence) -> None:
    with pytest.raises(Refusal, match="confidence"):
        bound_code(np.zeros(4), np.zeros(4), np.arange(4), confidence=confidence)


def test_the_sentence_has_the_numbers_and_promises_no_more_than_was_proved() -> None:
    bound = Bound("gender", 500, 84, 0.57, 0.58, 0.60001)
    said = bound.sentence()
    assert said.count(".") - said.count(".1%") - said.count(".0%") == 1  # one sentence
    for number in ("gender", "95%", "one output window", "60.1%", "500 people", "57.0%"):
        assert number in said
    assert "60.0%" in replace(bound, accuracy=0.6).sentence()
    assert "97.5%" in replace(bound, confidence=0.975).sentence()
    assert "3 consecutive output windows" in replace(bound, windows=3).sentence()
    vacuous = replace(bound, accuracy=1.0).sentence()
    for number in ("gender", "vacuous", "500 people", "84 codes"):
        assert number in vacuous


def test_runs_bound_what_single_windows_hide() -> None:
    """Each window is a fair coin, but two in a row agree in one class and differ in the other."""
    people = np.arange(400)
    first = np.random.default_rng(0).integers(2, size=400)
    codes = np.stack([first, first ^ (people % 2)], axis=1).ravel()
    person, start = np.repeat(people, 2), np.tile([0, 1], 400)
    runs, where = sequence_codes(codes, person, start, 2)
    assert bound_code(codes, person % 2, person).accuracy < 0.6
    assert bound_code(runs, person[where] % 2, person[where]).counted == pytest.approx(1)
    assert len(sequence_codes(codes, person, start, 3)[0]) == 0


def test_runs_keep_to_their_recording_and_order() -> None:
    recording, start = np.array([1, 0, 1, 0, 0]), np.array([5, 0, 0, 20, 10])
    codes = np.array([7, 1, 6, 3, 2])
    runs, first = sequence_codes(codes, recording, start, 2)
    # Recording 0 in order: 1, 2, 3; recording 1: 6, 7.
    assert codes[first].tolist() == [1, 2, 6]
    assert runs.tolist() == [0, 1, 2]


def test_bounds_of_groups_combine() -> None:
    one = Bound("gender", 10, 4, 0.5, 0.6, 0.7, confidence=0.975)
    two = Bound("gender", 30, 5, 0.6, 0.6, 0.9, confidence=0.975)
    both = combine_bounds([one, two])
    assert (both.people, both.codes) == (40, 5)
    assert (both.accuracy, both.guess) == (pytest.approx(0.85), pytest.approx(0.575))
    assert both.confidence == pytest.approx(0.95)
