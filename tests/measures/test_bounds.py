"""The bound holds: against enumeration, closed forms, and people whose truth is known."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from bound_tables import of_levels, of_nothing, simulated_bounds, simulated_truth
from scipy.optimize import brentq

from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal
from sensorveil.measures.bounds import (
    Bound,
    _upper,
    _usual,
    bound_code,
    private_accuracy,
    private_information,
    sequence_codes,
    together,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "seal.md"


def people_with_codes(
    channel: np.ndarray, people: int, windows: int, seed: int, together: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, classes and people, codes drawn by class; `together`: one code for a whole person."""
    generator = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), windows)
    label = person % len(channel)
    drawn = generator.random(people if together else len(person))
    drawn = drawn[person] if together else drawn
    codes = (drawn[:, None] > np.cumsum(channel, axis=1)[label]).sum(1)
    return codes, label, person


def true_accuracy(channel: np.ndarray) -> float:
    return float((channel / len(channel)).max(0).sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("levels", "relative", "gender"),
    [(5, True, 2.0), (3, True, 2.0), (3, False, 0.6), (5, False, 1.0), (3, False, 2.0)],
)
def test_holds_on_500_simulated_people_and_is_not_loose(levels, relative, gender):
    advantage, telling = simulated_truth(levels, relative, gender=gender)
    bounds = simulated_bounds(200, levels, relative, gender=gender)
    holds = np.mean([b.advantage >= advantage and b.telling >= telling for b in bounds])
    assert holds >= 0.95
    if advantage >= 0.05:
        assert np.mean([b.advantage <= 2 * advantage for b in bounds]) >= 0.99
    else:  # a code relative to the past: next to nothing, and that can be shown
        assert np.median([b.advantage for b in bounds]) <= 0.03


@pytest.mark.slow
@pytest.mark.parametrize(("gender", "people"), [(0.56, 500), (0.6, 500), (0.6, 750)])
def test_how_near_the_truth_it_is_is_what_the_document_says(gender, people):
    assert of_levels(gender, people) in DOCUMENT.read_text("utf-8").splitlines()


def test_holds_on_simulated_people():
    options = {"gender": 2.0, "windows": 5, "recordings": 1}
    advantage, telling = simulated_truth(3, False, **options)
    bounds = simulated_bounds(20, 3, False, people=200, **options)
    assert all(b.advantage >= advantage and b.telling >= telling for b in bounds)
    assert np.mean([b.advantage for b in bounds]) <= 2 * advantage


@pytest.mark.slow
def test_how_many_people_it_takes_is_what_the_document_says():
    lines = DOCUMENT.read_text("utf-8").splitlines()
    assert all(of_nothing(people) in lines for people in (6, 12, 24, 100, 500))


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("people", [12, 40, 200])
def test_holds_however_windows_of_a_person_depend_on_each_other(people, together):
    channel = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    truth = true_accuracy(channel)
    fails = [
        bound_code(*people_with_codes(channel, people, 5, seed, together)).accuracy < truth
        for seed in range(100)
    ]
    assert np.mean(fails) <= 0.05


def test_holds_for_three_classes_of_unequal_size():
    """Accuracy and telling part, against the channel that the codes were drawn from."""
    channel = np.array([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]])
    generator = np.random.default_rng(0)
    person = np.repeat(np.arange(90), 8)
    label = np.repeat([0, 0, 0, 1, 1, 2], 15)[person]
    prior = np.array([3, 2, 1]) / 6
    accuracy = (prior[:, None] * channel).max(0).sum()
    telling = 1 - channel.min(0).sum()
    for _ in range(60):
        drawn = generator.random(len(person))
        codes = (drawn[:, None] > np.cumsum(channel, axis=1)[label]).sum(1)
        bound = bound_code(codes, label, person)
        assert accuracy <= bound.accuracy < 1
        assert telling <= bound.telling
        assert bound.guess == pytest.approx(0.5)


def test_windows_are_not_taken_for_people():
    """A bound that counted windows as independent would be far below the truth's own spread."""
    channel = np.full((2, 4), 0.25)
    few = bound_code(*people_with_codes(channel, 40, 1, 0, together=True))
    many = bound_code(*people_with_codes(channel, 40, 500, 0, together=True))
    assert many.accuracy == pytest.approx(few.accuracy)


def test_two_even_classes_tell_what_the_best_rule_gains():
    """Where one rule is right the opposite one is wrong: 1 - common = 2 A - 1."""
    bound = bound_code(*people_with_codes(np.array([[0.6, 0.4], [0.4, 0.6]]), 80, 6, 0))
    assert bound.telling == pytest.approx(2 * bound.advantage)


def test_tightens_with_people():
    channel = np.array([[0.6, 0.4], [0.4, 0.6]])
    found = [bound_code(*people_with_codes(channel, n, 20, 0)).accuracy for n in (20, 200, 2000)]
    assert found[0] > found[1] > found[2] > 0.6
    assert found[2] < 0.62


def test_a_code_that_is_the_class_leaves_nothing_hidden():
    person = np.repeat(np.arange(100), 10)
    bound = bound_code(person % 2, person % 2, person)
    assert bound.accuracy == bound.counted == bound.telling == 1
    assert bound.vacuous
    assert bound.information == bound.entropy == pytest.approx(1)


def test_counts_by_hand():
    """Three people of class 0, one of 1: p(code, class) is 0.5, 0.25 and 0.25."""
    codes = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    codes[4] = codes[5] = 1
    bound = bound_code(codes, labels, np.array([0, 0, 1, 1, 2, 2, 3, 3]))
    assert (bound.guess, bound.counted, bound.people, bound.codes) == (0.75, 0.75, 4, 2)


def test_each_person_counts_alike():
    person = np.repeat(np.arange(60), np.arange(60) % 7 + 1)
    codes, labels = np.random.default_rng(0).integers(3, size=len(person)), person % 2
    often = np.concatenate([np.arange(len(person)), np.flatnonzero(person == 3)])
    one, other = (bound_code(codes[i], labels[i], person[i]) for i in (slice(None), often))
    assert one.accuracy == pytest.approx(other.accuracy)
    assert one.guess == pytest.approx(0.5)


def test_unknown_windows_do_not_count():
    codes, labels, person = people_with_codes(np.array([[0.7, 0.3], [0.3, 0.7]]), 50, 8, 0)
    known = bound_code(codes, labels, person)
    more = [np.concatenate([part, part[:5]]) for part in (codes, labels, person)]
    more[1][-5:] = UNKNOWN
    assert bound_code(*more) == known
    with pytest.raises(Refusal, match="no window"):
        bound_code(codes, np.full(len(codes), UNKNOWN), person)


def test_identity_and_too_many_codes_are_vacuous_and_say_so():
    person = np.repeat(np.arange(30), 4)
    identity = bound_code(person % 5, person, person, "subject")
    assert identity.vacuous
    assert "vacuous" in identity.sentence()
    unique = bound_code(np.arange(len(person)) * 10, person % 2, person)
    assert unique.vacuous
    huge = bound_code(np.arange(1000), np.arange(1000) % 2, np.arange(1000))
    assert huge.vacuous


HALVES = ((0.85, 0.9), (0.15, 0.45))
"""Weights and steps of 40 people: the largest step cannot be doubled."""
FIRST = math.sqrt(32 * math.log(20) / 2000)
DOUBLES = ((0.85, FIRST), (0.075, 2 * FIRST), (0.075, 4 * FIRST))
"""Those of 2,000 people, at 95%."""


def own_bound(
    rule: tuple[int, ...], shares: np.ndarray, alpha: float, mixed: tuple = HALVES
) -> float:
    """The bound of one rule as the module states it, person by person: where the bets pay."""
    people = len(shares)
    share, seen = np.zeros(shares.shape[2]), np.zeros(shares.shape[2])
    paid = {step: 0.0 for _, step in mixed}
    for person in shares:
        (label,) = np.flatnonzero(person.sum(0))
        right = sum(person[code, label] for code, read in enumerate(rule) if read == label)
        centre = (0.5 + share[label]) / (1 + seen[label])
        for step in paid:
            paid[step] += math.log(1 - step * (right - centre)) - step * centre
        share[label] += right
        seen[label] += 1

    def evidence(a: float) -> float:
        each = [math.log(weight) + paid[step] + people * step * a for weight, step in mixed]
        return float(np.logaddexp.reduce(each)) + math.log(alpha)

    return brentq(evidence, -1, 9)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("classes", [2, 3])
def test_is_that_of_the_worst_rule(seed, classes):
    """Against the bounds of all rules, one by one."""
    generator = np.random.default_rng(seed)
    shares = np.zeros((40, 4, classes))
    for i, person in enumerate(shares):
        person[:, i % classes] = generator.dirichlet(np.roll([4.0, 1.0, 1.0, 1.0], i % classes))
    worst = max(own_bound(r, shares, 0.05) for r in itertools.product(range(classes), repeat=4))
    bound = _upper(shares, _usual(shares), 0.05)
    assert worst - 1e-9 <= bound <= worst + 0.01


def test_of_many_people_is_that_of_the_worst_rule_too():
    """There the steps are doubles of the first one."""
    generator = np.random.default_rng(0)
    shares = np.zeros((2000, 3, 2))
    for i, person in enumerate(shares):
        person[:, i % 2] = generator.dirichlet(np.roll([4.0, 1.0, 1.0], i % 2))
    assert 4 * FIRST < 0.9 < 8 * FIRST
    worst = max(own_bound(r, shares, 0.05, DOUBLES) for r in itertools.product((0, 1), repeat=3))
    assert _upper(shares, _usual(shares), 0.05) == pytest.approx(worst, abs=1e-3)


@pytest.mark.parametrize("rare", [0.02, 0.1])
def test_holds_for_what_is_rare(rare):
    """One code for all windows of a person, and one of them rare in one class: far from normal."""
    channel = np.array([[1 - rare, rare], [0.5, 0.5]])
    telling = 1 - channel.min(0).sum()
    bounds = [bound_code(*people_with_codes(channel, 40, 3, seed, True)) for seed in range(200)]
    assert np.mean([b.accuracy < true_accuracy(channel) for b in bounds]) <= 0.05
    assert np.mean([b.telling < telling for b in bounds]) <= 0.05


def test_sessions_of_an_erasing_code_are_exact():
    """A code that shows the class in a part of the windows: k windows show it with 1 - (1-t)^k."""
    part, windows = 0.1, 7
    bound = Bound("gender", 100, 3, 0.6, 0.64, 0.64, part, 1.0)
    shown = 1 - (1 - part) ** windows
    assert bound.of_session(windows).accuracy == pytest.approx(0.6 + 0.4 * shown)
    assert bound.of_session(10_000).vacuous


def test_sessions_of_independent_windows_hold():
    """Exact accuracy of k windows of a binary channel, by enumeration, against the bound."""
    channel = np.array([[0.55, 0.45], [0.45, 0.55]])
    bound = bound_code(*people_with_codes(channel, 2000, 20, 0))
    for windows in (1, 3, 8):
        joint = [
            [0.5 * math.prod(row[code] for code in run) for row in channel]
            for run in itertools.product((0, 1), repeat=windows)
        ]
        truth = sum(max(pair) for pair in joint)
        assert truth <= bound.of_session(windows).accuracy


def test_runs_bound_what_single_windows_hide():
    """Each window is a fair coin, but two in a row agree in one class and differ in the other."""
    generator = np.random.default_rng(0)
    people = np.arange(400)
    first = generator.integers(2, size=400)
    codes = np.stack([first, first ^ (people % 2)], axis=1).ravel()
    person, start = np.repeat(people, 2), np.tile([0, 1], 400)
    single = bound_code(codes, person % 2, person)
    runs, where = sequence_codes(codes, person, start, 2)
    pairs = bound_code(runs, person[where] % 2, person[where])
    assert single.accuracy < 0.6
    assert pairs.counted == 1
    assert len(sequence_codes(codes, person, start, 3)[0]) == 0


def test_runs_keep_to_their_recording_and_order():
    recording = np.array([1, 0, 1, 0, 0])
    start = np.array([5, 0, 0, 20, 10])
    codes = np.array([7, 1, 6, 3, 2])
    runs, first = sequence_codes(codes, recording, start, 2)
    # Recording 0 in order: 1, 2, 3; recording 1: 6, 7.
    assert codes[first].tolist() == [1, 2, 6]
    assert runs.tolist() == [0, 1, 2]
    assert len(sequence_codes(codes, recording, start, 9)[0]) == 0


def test_groups_together():
    one = Bound("gender", 10, 4, 0.5, 0.6, 0.7, 0.4, 1.0, confidence=0.975)
    two = Bound("gender", 30, 4, 0.6, 0.6, 0.9, 0.8, 0.9, confidence=0.975)
    both = together([one, two])
    assert both.people == 40
    assert both.accuracy == pytest.approx(0.85)
    assert both.confidence == pytest.approx(0.95)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_randomised_response_stays_below_its_bound(epsilon):
    """Two classes, told by randomised response over all runs of three: exact by enumeration."""
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    prior = (0.7, 0.3)
    joint = np.array(
        [
            [prior[y] * math.prod(right if c == y else 1 - right for c in run) for y in (0, 1)]
            for run in itertools.product((0, 1), repeat=3)
        ]
    )
    assert joint.max(1).sum() <= private_accuracy(0.7, 3 * epsilon)
    entropy = -sum(p * math.log2(p) for p in prior)
    bits = (joint * np.log2(joint / np.outer(joint.sum(1), prior))).sum()
    assert bits <= private_information(entropy, 3 * epsilon)


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_confidence_lies_between(confidence):
    with pytest.raises(Refusal, match="confidence"):
        bound_code(np.zeros(4), np.zeros(4), np.arange(4), confidence=confidence)
