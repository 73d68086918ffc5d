"""The bound holds: against enumeration of all rules, closed forms, and simulated truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from benchmarks.seal_bound import simulated_bounds, simulated_truth
from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal
from sensorveil.methods.seal_bound import (
    Bound,
    _largest_of_rules,
    _largest_quadratic,
    bound_code,
    combine_bounds,
    sequence_codes,
)

LEAK = np.array([[0.6, 0.4], [0.4, 0.6]])


def people_with_codes(
    channel: np.ndarray, people: int, windows: int, seed: int, constant: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, classes and people, codes drawn by class; `constant`: one code for a whole person."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), windows)
    label = person % len(channel)
    drawn = rng.random(people)[person] if constant else rng.random(len(person))
    codes = (drawn[:, None] > np.cumsum(channel, axis=1)[label]).sum(1)
    return codes, label, person


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bins", "relative", "gender"),
    [(3, True, 2.0), (3, False, 0.6), (5, False, 1.0)],
)
def test_bound_holds_on_500_simulated_people_and_is_not_loose(bins, relative, gender):
    advantage, telling = simulated_truth(bins, relative, gender=gender)
    bounds = simulated_bounds(40, bins, relative, gender=gender)
    holds = np.mean([b.advantage >= advantage and b.telling >= telling for b in bounds])
    assert holds >= 0.95
    if advantage >= 0.05:
        assert np.mean([b.advantage <= 2 * advantage for b in bounds]) >= 0.95
    else:  # a code relative to the past tells next to nothing, and that can be shown
        assert np.median([b.advantage for b in bounds]) <= 0.03


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("channel", "people"),
    [
        ([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], 12),
        ([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], 40),
        ([[0.98, 0.02], [0.5, 0.5]], 40),  # a code that is rare in one class: far from normal
        ([[0.9, 0.1], [0.5, 0.5]], 40),
    ],
)
def test_bound_holds_however_windows_of_a_person_depend_on_each_other(channel, people, constant):
    table = np.array(channel)
    truth, telling = (table / 2).max(0).sum(), 1 - table.min(0).sum()
    bounds = [bound_code(*people_with_codes(table, people, 4, n, constant)) for n in range(100)]
    assert np.mean([b.accuracy < truth for b in bounds]) <= 0.05
    assert np.mean([b.telling < telling for b in bounds]) <= 0.05


def test_bound_holds_for_three_classes_of_unequal_size():
    """Accuracy and telling share, against the channel that the codes were drawn from."""
    channel = np.array([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]])
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(90), 8)
    label = np.repeat([0, 0, 0, 1, 1, 2], 15)[person]
    accuracy = (np.array([3, 2, 1])[:, None] / 6 * channel).max(0).sum()
    for _ in range(20):
        drawn = rng.random(len(person))
        codes = (drawn[:, None] > np.cumsum(channel, axis=1)[label]).sum(1)
        bound = bound_code(codes, label, person)
        assert accuracy <= bound.accuracy < 1
        assert 1 - channel.min(0).sum() <= bound.telling
        assert bound.guess == pytest.approx(0.5)


def test_windows_are_not_counted_as_people():
    channel = np.full((2, 4), 0.25)
    few, many = (bound_code(*people_with_codes(channel, 40, n, 0, True)) for n in (1, 500))
    assert many.accuracy == pytest.approx(few.accuracy)


def test_with_two_even_classes_the_telling_share_is_twice_the_advantage():
    """Where one rule is right the opposite one is wrong: 1 - common = 2 A - 1."""
    for constant in (False, True):
        bound = bound_code(*people_with_codes(LEAK, 80, 6, 0, constant))
        assert bound.telling == pytest.approx(2 * bound.advantage)


def test_bound_tightens_with_people():
    found = [bound_code(*people_with_codes(LEAK, n, 20, 0)).accuracy for n in (20, 200, 2000)]
    assert 0.62 > found[2] > 0.6
    assert found[0] > found[1] > found[2]


def test_a_code_that_is_the_class_tells_everything():
    person = np.repeat(np.arange(100), 10)
    bound = bound_code(person % 2, person % 2, person)
    assert bound.accuracy == bound.counted == bound.telling == 1
    assert bound.vacuous
    assert bound.information == bound.entropy == pytest.approx(1)


def test_counts_by_hand():
    """Three people of class 0, one of 1: p(code, class) is 0.5, 0.25 and 0.25."""
    codes, labels = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 0, 0, 0, 0, 1, 1])
    bound = bound_code(codes, labels, np.array([0, 0, 1, 1, 2, 2, 3, 3]))
    assert (bound.guess, bound.counted, bound.people, bound.codes) == (0.75, 0.75, 4, 2)


def test_each_person_counts_alike_and_unknown_classes_do_not_count():
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


def test_identity_and_too_many_codes_are_vacuous_and_say_so():
    person = np.repeat(np.arange(30), 4)
    identity = bound_code(person % 5, person, person, "subject")
    assert identity.vacuous
    assert "vacuous" in identity.sentence()
    assert bound_code(np.arange(len(person)) * 10, person % 2, person).vacuous
    assert bound_code(np.arange(1000), np.arange(1000) % 2, np.arange(1000)).vacuous


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_confidence_outside_0_to_1_is_refused(confidence):
    with pytest.raises(Refusal, match="confidence"):
        bound_code(np.zeros(4), np.zeros(4), np.arange(4), confidence=confidence)


def bound_of_rule(rule: tuple[int, ...], shares: np.ndarray) -> tuple[float, float]:
    """Hoeffding's and the martingale's, as the module states them, person by person, at 95%."""
    people, cost = len(shares), -math.log(0.8 * 0.05) / len(shares)
    bet = min(math.sqrt(32 * cost), 0.9)
    right, seen = np.zeros(shares.shape[2]), np.zeros(shares.shape[2])
    share, price = 0.0, 0.0
    for person in shares:
        each = np.array(
            [person[np.array(rule) == label, label].sum() for label in range(len(seen))]
        )
        prior = person.sum(0)
        deviation = each.sum() - prior @ ((0.5 + right) / (1 + seen))
        share += each.sum() / people
        price -= (math.log(1 - bet * deviation) / bet + deviation) / people
        right, seen = right + each, seen + prior
    return share + math.sqrt(-math.log(0.2 * 0.05) / (2 * people)), share + price + cost / bet


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("people", "windows"), [(40, 50), (200, 5), (100, 1)])
def test_bound_is_that_of_the_worst_rule(seed, classes, people, windows):
    """Against the bounds of all rules, one by one; every third person is of several classes."""
    rng, person = np.random.default_rng(seed), np.repeat(np.arange(people), windows)
    mixed = rng.integers(classes, size=len(person))
    labels = np.where(person % 3 == 2, mixed, person % classes)
    codes = np.where(rng.random(len(person)) < 0.2, labels, rng.integers(4, size=len(person)))
    shares = np.zeros((people, 4, classes))
    np.add.at(shares, (person, codes, labels), 1 / windows)
    each = [bound_of_rule(r, shares) for r in itertools.product(range(classes), repeat=4)]
    hoeffding, betting = np.max(each, axis=0)
    found = bound_code(codes, labels, person).accuracy
    assert min(hoeffding, betting) - 1e-9 <= found <= hoeffding + 1e-9
    if windows > 1:  # single windows are far from each other: there the maximum is bounded loosely
        assert found <= betting + 0.01


def people_of_all_kinds(seed: int, people: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares and centres of people; every other one has windows of several classes."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(4 * classes, 0.3), people).reshape(people, 4, classes)
    for person in shares[::2]:
        person[:] = person.sum(1)[:, None] * np.eye(classes)[rng.integers(classes)]
    centres = rng.dirichlet(np.ones(4), people)[:, :, None] * rng.random()
    return shares, centres * shares.sum(1, keepdims=True)


@pytest.mark.parametrize("sign", [1, -1])  # the smallest share bounds the common part
@pytest.mark.parametrize("bet", [0.05, 0.9])
@pytest.mark.parametrize("classes", [2, 3])
def test_no_rule_is_above_the_largest(classes, bet, sign):
    """Rule by rule, with p from its series and half of what is missing added."""
    powers = np.arange(2, 300)[:, None]
    for seed in range(8):
        shares, centres = people_of_all_kinds(seed, 9, classes)
        found = _largest_of_rules(sign * shares, sign * centres, bet)
        for rule in itertools.product(range(classes), repeat=4):
            right, centre = (part[:, range(4), rule].sum(1) for part in (shares, centres))
            deviation = sign * (right - centre - (1 - centres.sum((1, 2))) / 2)
            price = (bet ** (powers - 1) * deviation**powers / powers).sum(0)
            assert (sign * right + price).mean() <= found + 1e-9


@pytest.mark.parametrize("size", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("others", [1, 2])
def test_no_way_to_move_codes_gains_more_than_the_largest_quadratic(others, size):
    codes = 5 if others == 1 else 4
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(6, codes * others)) * size
        squares, loss = rows.T @ rows, 5 * rng.random((codes, others)) - 0.5
        best = 0.0
        for moved in itertools.product(range(others + 1), repeat=codes):
            v = np.eye(others + 1)[list(moved)][:, 1:].ravel()
            best = max(best, v @ squares @ v - loss.ravel() @ v)
        assert best <= _largest_quadratic(loss, squares) + 1e-9
        alone = _largest_quadratic(loss, np.zeros_like(squares))
        assert alone == pytest.approx(np.maximum(-loss, 0).max(1).sum())


def test_sessions_of_an_erasing_code_are_exact():
    """A code that shows the class in a share t of the windows: k of them show it with 1-(1-t)^k."""
    telling, windows = 0.1, 7
    bound = Bound("gender", 100, 3, 0.6, 0.64, 0.64, telling, 1.0)
    shown = 1 - (1 - telling) ** windows
    assert bound.of_session(windows).accuracy == pytest.approx(0.6 + 0.4 * shown)
    assert bound.of_session(10_000).vacuous


def test_runs_bound_what_single_windows_hide():
    """Each window is a fair coin, but two in a row agree in one class and differ in the other."""
    people = np.arange(400)
    first = np.random.default_rng(0).integers(2, size=400)
    codes = np.stack([first, first ^ (people % 2)], axis=1).ravel()
    person, start = np.repeat(people, 2), np.tile([0, 1], 400)
    runs, where = sequence_codes(codes, person, start, 2)
    assert bound_code(codes, person % 2, person).accuracy < 0.6
    assert bound_code(runs, person[where] % 2, person[where]).counted == 1
    assert len(sequence_codes(codes, person, start, 3)[0]) == 0


def test_runs_keep_to_their_recording_and_order():
    recording, start = np.array([1, 0, 1, 0, 0]), np.array([5, 0, 0, 20, 10])
    codes = np.array([7, 1, 6, 3, 2])
    runs, first = sequence_codes(codes, recording, start, 2)
    # Recording 0 in order: 1, 2, 3; recording 1: 6, 7.
    assert codes[first].tolist() == [1, 2, 6]
    assert runs.tolist() == [0, 1, 2]


def test_bounds_of_groups_combine():
    one = Bound("gender", 10, 4, 0.5, 0.6, 0.7, 0.4, 1.0, confidence=0.975)
    two = Bound("gender", 30, 4, 0.6, 0.6, 0.9, 0.8, 0.9, confidence=0.975)
    both = combine_bounds([one, two])
    assert (both.people, both.accuracy) == (40, pytest.approx(0.85))
    assert both.confidence == pytest.approx(0.95)
