"""The bound holds: against enumeration of all rules, closed forms, and simulated truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import brentq

from benchmarks.seal_bound import simulated_bounds, simulated_truth
from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal
from sensorveil.methods.seal_bound import (
    Bound,
    _centres,
    _curvature,
    _largest_of_rules,
    _largest_quadratic,
    _price,
    _upper,
    bound_code,
    combine_bounds,
    epsilon_within_budget,
    private_accuracy,
    randomize_codes,
    sequence_codes,
)


def people_with_codes(
    channel: np.ndarray, people: int, windows: int, seed: int, constant: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, classes and people, codes drawn by class; `constant`: one code for a whole person."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), windows)
    label = person % len(channel)
    drawn = rng.random(people if constant else len(person))
    drawn = drawn[person] if constant else drawn
    codes = (drawn[:, None] > np.cumsum(channel, axis=1)[label]).sum(1)
    return codes, label, person


def true_accuracy(channel: np.ndarray) -> float:
    return float((channel / len(channel)).max(0).sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bins", "relative", "gender"),
    [(3, True, 2.0), (3, False, 0.6), (5, False, 1.0)],
)
def test_bound_holds_on_500_simulated_people_and_is_not_loose(bins, relative, gender):
    advantage, telling = simulated_truth(bins, relative, gender=gender)
    bounds = simulated_bounds(100, bins, relative, gender=gender)
    holds = np.mean([b.advantage >= advantage and b.telling >= telling for b in bounds])
    assert holds >= 0.95
    if advantage >= 0.05:
        assert np.mean([b.advantage <= 2 * advantage for b in bounds]) >= 0.99
    else:  # a code relative to the past tells next to nothing, and that can be shown
        assert np.median([b.advantage for b in bounds]) <= 0.03


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("people", [12, 40])
def test_bound_holds_however_windows_of_a_person_depend_on_each_other(people, constant):
    channel = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    truth = true_accuracy(channel)
    fails = [
        bound_code(*people_with_codes(channel, people, 5, seed, constant)).accuracy < truth
        for seed in range(100)
    ]
    assert np.mean(fails) <= 0.05


def test_bound_holds_for_three_classes_of_unequal_size():
    """Accuracy and telling share, against the channel that the codes were drawn from."""
    channel = np.array([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]])
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(90), 8)
    label = np.repeat([0, 0, 0, 1, 1, 2], 15)[person]
    prior = np.array([3, 2, 1]) / 6
    accuracy = (prior[:, None] * channel).max(0).sum()
    telling = 1 - channel.min(0).sum()
    for _ in range(20):
        drawn = rng.random(len(person))
        codes = (drawn[:, None] > np.cumsum(channel, axis=1)[label]).sum(1)
        bound = bound_code(codes, label, person)
        assert accuracy <= bound.accuracy < 1
        assert telling <= bound.telling
        assert bound.guess == pytest.approx(0.5)


@pytest.mark.parametrize("rare", [0.02, 0.1])
def test_bound_holds_for_rare_codes(rare):
    """One code for all windows of a person, and one of them rare in one class: far from normal."""
    channel = np.array([[1 - rare, rare], [0.5, 0.5]])
    telling = 1 - channel.min(0).sum()
    bounds = [bound_code(*people_with_codes(channel, 40, 3, seed, True)) for seed in range(100)]
    assert np.mean([b.accuracy < true_accuracy(channel) for b in bounds]) <= 0.05
    assert np.mean([b.telling < telling for b in bounds]) <= 0.05


def test_windows_are_not_counted_as_people():
    channel = np.full((2, 4), 0.25)
    few = bound_code(*people_with_codes(channel, 40, 1, 0, constant=True))
    many = bound_code(*people_with_codes(channel, 40, 500, 0, constant=True))
    assert many.accuracy == pytest.approx(few.accuracy)


def test_with_two_even_classes_the_telling_share_is_twice_the_advantage():
    """Where one rule is right the opposite one is wrong: 1 - common = 2 A - 1."""
    bound = bound_code(*people_with_codes(np.array([[0.6, 0.4], [0.4, 0.6]]), 80, 6, 0))
    assert bound.telling == pytest.approx(2 * bound.advantage)


def test_bound_tightens_with_people():
    channel = np.array([[0.6, 0.4], [0.4, 0.6]])
    found = [bound_code(*people_with_codes(channel, n, 20, 0)).accuracy for n in (20, 200, 2000)]
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


def test_each_person_counts_alike():
    person = np.repeat(np.arange(60), np.arange(60) % 7 + 1)
    codes, labels = np.random.default_rng(0).integers(3, size=len(person)), person % 2
    often = np.concatenate([np.arange(len(person)), np.flatnonzero(person == 3)])
    one, other = (bound_code(codes[i], labels[i], person[i]) for i in (slice(None), often))
    assert one.accuracy == pytest.approx(other.accuracy)
    assert one.guess == pytest.approx(0.5)


def test_windows_of_unknown_class_do_not_count():
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
    assert bound_code(np.arange(len(person)) * 10, person % 2, person).vacuous
    assert bound_code(np.arange(1000), np.arange(1000) % 2, np.arange(1000)).vacuous


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_confidence_outside_0_to_1_is_refused(confidence):
    with pytest.raises(Refusal, match="confidence"):
        bound_code(np.zeros(4), np.zeros(4), np.arange(4), confidence=confidence)


HALVES = ((0.85, 0.9), (0.15, 0.45))
"""Weights and bets for 40 people: the largest bet cannot be doubled."""
FIRST = math.sqrt(32 * math.log(20) / 2000)
DOUBLES = ((0.85, FIRST), (0.075, 2 * FIRST), (0.075, 4 * FIRST))
"""Those for 2,000 people, at 95%."""


def own_bound(
    rule: tuple[int, ...], shares: np.ndarray, alpha: float, mixed: tuple = HALVES
) -> float:
    """The bound of one rule as the module states it, person by person: where the bets pay."""
    people = len(shares)
    share, seen = np.zeros(shares.shape[2]), np.zeros(shares.shape[2])
    paid = {bet: 0.0 for _, bet in mixed}
    for person in shares:
        (label,) = np.flatnonzero(person.sum(0))
        right = sum(person[code, label] for code, named in enumerate(rule) if named == label)
        centre = (0.5 + share[label]) / (1 + seen[label])
        for bet in paid:
            paid[bet] += math.log(1 - bet * (right - centre)) - bet * centre
        share[label] += right
        seen[label] += 1

    def evidence(a: float) -> float:
        each = [math.log(weight) + paid[bet] + people * bet * a for weight, bet in mixed]
        return float(np.logaddexp.reduce(each)) + math.log(alpha)

    return brentq(evidence, -1, 9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("classes", [2, 3])
def test_bound_is_that_of_the_worst_rule(seed, classes):
    """Against the bounds of all rules, one by one."""
    rng = np.random.default_rng(seed)
    shares = np.zeros((40, 4, classes))
    for i, person in enumerate(shares):
        person[:, i % classes] = rng.dirichlet(np.roll([4.0, 1.0, 1.0, 1.0], i % classes))
    worst = max(own_bound(r, shares, 0.05) for r in itertools.product(range(classes), repeat=4))
    assert worst - 1e-9 <= _upper(shares, _centres(shares), 0.05) <= worst + 0.01


def test_bound_of_many_people_is_that_of_the_worst_rule():
    """There the further bets are doubles of the first one."""
    rng = np.random.default_rng(0)
    shares = np.zeros((2000, 3, 2))
    for i, person in enumerate(shares):
        person[:, i % 2] = rng.dirichlet(np.roll([4.0, 1.0, 1.0], i % 2))
    assert 4 * FIRST < 0.9 < 8 * FIRST
    worst = max(own_bound(r, shares, 0.05, DOUBLES) for r in itertools.product((0, 1), repeat=3))
    assert _upper(shares, _centres(shares), 0.05) == pytest.approx(worst, abs=1e-3)


def drawn_people(seed: int, people: int, codes: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares and centres of people; every other one has windows of several classes."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(codes * classes, 0.3), people)
    shares = shares.reshape(people, codes, classes)
    for person in shares[::2]:
        person[:] = person.sum(1)[:, None] * np.eye(classes)[rng.integers(classes)]
    centres = rng.dirichlet(np.ones(codes), people)[:, :, None] * rng.random()
    return shares, centres * shares.sum(1, keepdims=True)


def all_rules(shares: np.ndarray, centres: np.ndarray, bet: float, sign: int = 1) -> list[float]:
    """The mean of X_i + p(X_i - c_i), with p from its series and half of what is missing added."""
    _, codes, classes = shares.shape
    found = []
    for rule in itertools.product(range(classes), repeat=codes):
        right = sum(shares[:, code, named] for code, named in enumerate(rule))
        centre = sum(centres[:, code, named] for code, named in enumerate(rule))
        deviation = sign * (right - centre - (1 - centres.sum((1, 2))) / 2)
        price = sum(bet ** (k - 1) * deviation**k / k for k in range(2, 400))
        found.append(float((sign * right + price).mean()))
    return found


@pytest.mark.parametrize("sign", [1, -1])  # the smallest share bounds the common part
@pytest.mark.parametrize("bet", [0.05, 0.9])
@pytest.mark.parametrize("classes", [2, 3])
def test_no_rule_is_above_the_largest(classes, bet, sign):
    for seed in range(5):
        shares, centres = drawn_people(seed, 9, 4, classes)
        found = _largest_of_rules(sign * shares, sign * centres, bet)
        assert max(all_rules(shares, centres, bet, sign)) <= found + 1e-9


@pytest.mark.parametrize("size", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("others", [1, 2])
def test_no_way_to_move_codes_gains_more_than_the_largest_quadratic(others, size):
    codes = 5 if others == 1 else 4
    for seed in range(10):
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


@pytest.mark.parametrize("largest", [-0.2, 0.3001, 0.3, 1.0])
def test_the_parabola_lies_above_the_price_and_touches_it_at_the_largest(largest):
    bet, x = 0.9, min(0.3, largest)
    b = _curvature(np.array([x]), np.array([largest]), bet)
    z = np.linspace(-1, largest, 2001)
    parabola = _price(np.array([x]), bet) + bet * x / (1 - bet * x) * (z - x) + b * (z - x) ** 2
    assert (parabola >= _price(z, bet) - 1e-12).all()
    assert parabola[-1] == pytest.approx(_price(z, bet)[-1], abs=1e-6)


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
    assert both.people == 40
    assert both.accuracy == pytest.approx(0.85)
    assert both.confidence == pytest.approx(0.95)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_randomized_codes_have_warners_probabilities(epsilon):
    """And so no output is more than e^epsilon times as likely for one code as for another."""
    count, draws = 4, 40_000
    rng = np.random.default_rng(0)
    other = 1 / (math.exp(epsilon) + count - 1)
    table = np.full((count, count), other) + np.eye(count) * (1 - count * other)
    assert np.max(table[:, None] / table[None]) == pytest.approx(math.exp(epsilon))
    for code in range(count):
        released = randomize_codes(np.full(draws, code), count, np.full(draws, epsilon), rng)
        share = np.bincount(released, minlength=count) / draws
        error = np.sqrt(table[code] * (1 - table[code]) / draws)
        assert (np.abs(share - table[code]) < 5 * error).all()


def test_no_group_spends_more_than_its_budget():
    rng = np.random.default_rng(0)
    group, start = rng.integers(5, size=200), rng.permutation(200)
    epsilon = rng.uniform(0.1, 1.0, 200)
    allowed = epsilon_within_budget(epsilon, np.full(200, 4.0), group, start)
    for one in range(5):
        order = np.flatnonzero(group == one)[np.argsort(start[group == one])]
        assert allowed[order].sum() <= 4.0
        stopped = np.flatnonzero(allowed[order] == 0)
        # From the first that is stopped on, all are; and it would have been too much.
        assert (np.diff(stopped) == 1).all()
        assert stopped[-1] == len(order) - 1
        assert epsilon[order][: stopped[0] + 1].sum() > 4.0
    exact = epsilon_within_budget(np.full(12, 0.1), np.ones(12), np.zeros(12, int), np.arange(12))
    assert (exact > 0).sum() == 10


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_randomised_response_stays_below_its_accuracy(epsilon):
    """Two classes, released by randomised response over all runs of three: by enumeration."""
    honest = math.exp(epsilon) / (1 + math.exp(epsilon))
    prior = (0.7, 0.3)
    joint = [
        [prior[y] * math.prod(honest if c == y else 1 - honest for c in run) for y in (0, 1)]
        for run in itertools.product((0, 1), repeat=3)
    ]
    assert np.max(joint, axis=1).sum() <= private_accuracy(0.7, 3 * epsilon)
