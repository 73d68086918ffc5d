"""Released bins keep their epsilon: likelihood ratios of whole sequences, enumerated and counted.

The same two checks are made of the real `respond` and of mechanisms with a planted fault.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import beta, chi2_contingency, chisquare

from sensorveil.errors import Refusal
from sensorveil.methods.seal_generators import previous_windows
from sensorveil.methods.seal_response import (
    choose_bins,
    epsilon_of_intervals,
    epsilon_per_hour,
    epsilon_per_window,
    intervals,
    memoised,
    private_accuracy,
    promise,
    randomised_response,
    released_correlations,
    respond,
    spent,
    to_bins,
)

Mechanism = Callable[..., np.ndarray]
SAMPLES = 100  # of an interval
LN3 = math.log(3)  # makes all probabilities of responses over 2 and 4 joint bins simple fractions


@dataclass(frozen=True)
class Wearer:
    """When one wearer has windows; what is true of them is for the checks to vary."""

    start: tuple[int, ...]
    recording: tuple[int, ...] = ()
    budget: float = math.inf

    @property
    def recordings(self) -> tuple[int, ...]:
        return self.recording or (0,) * len(self.start)

    def first_windows(self) -> list[int]:
        """The window whose bins each window's interval is to release, by the plainest of loops."""
        rows = range(len(self.start))
        places = [(self.recordings[row], self.start[row] // SAMPLES) for row in rows]
        return [
            min((r for r in rows if places[r] == place), key=lambda r: self.start[r])
            for place in places
        ]


WEARERS = {
    "two intervals, windows overlap by half": Wearer((0, 50, 100, 150)),
    "one interval": Wearer((0, 25, 50, 75)),
    "an interval for each window": Wearer((0, 100, 200)),
    "gaps, and a late start": Wearer((30, 90, 110, 390)),
    "two recordings": Wearer((0, 50, 0, 50), (0, 0, 1, 1)),
    "rows in no order": Wearer((150, 0, 100, 50)),
}


def sequences(count: int, windows: int) -> np.ndarray:
    """All sequences of joint bins, (count ** windows, windows)."""
    return np.array(list(itertools.product(range(count), repeat=windows)))


def release(
    mechanism: Mechanism, wearer: Wearer, bins: tuple[int, ...], epsilon: float, copies: int, rng
) -> np.ndarray:
    """How often each sequence is released for each true one, (truths, released sequences).

    Each truth is that of `copies` people of one call of the mechanism.
    """
    count, windows = math.prod(bins), len(wearer.start)
    truths = sequences(count, windows)
    person = np.repeat(np.arange(len(truths) * copies), windows)
    joint = np.repeat(truths, copies, axis=0).reshape(-1)
    ranks = (np.stack(np.unravel_index(joint, bins), axis=1) + 0.5) / bins
    people = len(truths) * copies
    recording = np.tile(wearer.recordings, people) + 10 * person
    start = np.tile(wearer.start, people)
    released = mechanism(
        ranks, recording, start, person, epsilon, wearer.budget, SAMPLES, bins, rng
    )
    assert released.shape == ranks.shape
    joint = np.ravel_multi_index(tuple(released.T), bins).reshape(-1, windows)
    sequence = joint @ count ** np.arange(windows)[::-1]
    key = np.repeat(np.arange(len(truths)), copies) * len(truths) + sequence
    return np.bincount(key, minlength=len(truths) ** 2).reshape(len(truths), -1)


class EveryOutcome:
    """In place of random numbers: copy i of a truth gets the i-th outcome of all its draws.

    A draw is one of `parts` equal parts of [0, 1), and one of `count` numbers. The probability of
    telling the truth is a multiple of 1 / parts, so each outcome stands for equally many others.
    """

    def __init__(self, draws: int, parts: int, count: int) -> None:
        outcomes = sequences(parts * count, draws)
        self.copies, self.count, self.parts = len(outcomes), count, parts
        self.outcomes = outcomes.reshape(-1)

    def random(self, size: int) -> np.ndarray:
        assert size % len(self.outcomes) == 0
        return np.resize((self.outcomes // self.count + 0.5) / self.parts, size)

    def integers(self, high: int, size: int) -> np.ndarray:
        assert high == self.count
        return np.resize(self.outcomes % self.count, size)


def enumerated(
    mechanism: Mechanism, wearer: Wearer, bins: tuple[int, ...], draws: int
) -> np.ndarray:
    """The exact probability of each released sequence for each true one, at epsilon ln 3.

    `draws` is the number of responses that the mechanism draws for a wearer.
    """
    count = math.prod(bins)
    parts = {2: 2, 4: 3}[count]  # the truth has 1/2 or 1/3 of the draws, else any bin
    every = EveryOutcome(draws, parts, count)
    return release(mechanism, wearer, bins, LN3, every.copies, every) / every.copies


def by_formula(wearer: Wearer, count: int, epsilon: float) -> np.ndarray:
    """The same by Warner's probabilities, adding up all answers of all intervals."""
    first = wearer.first_windows()
    asked = sorted(set(first))
    truths = sequences(count, len(first))
    index = {tuple(one): number for number, one in enumerate(truths.tolist())}
    table = np.zeros((len(truths), len(truths)))
    other = 1 / (math.exp(epsilon) + count - 1)
    for number, truth in enumerate(truths.tolist()):
        for answers in itertools.product(range(count), repeat=len(asked)):
            answer = dict(zip(asked, answers, strict=True))
            likelihood = math.prod(
                other * (math.exp(epsilon) if answer[row] == truth[row] else 1) for row in asked
            )
            table[number, index[tuple(answer[row] for row in first)]] += likelihood
    return table


def largest_ratios(table: np.ndarray) -> np.ndarray:
    """How much likelier any release is for one truth than for another, (truths, truths)."""
    largest = np.zeros((len(table), len(table)))
    for released in table.T:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = released[:, None] / released[None]
        largest = np.fmax(largest, ratio)  # 0 / 0 is not a number, and counts for nothing
    return largest


def counted_ratio(mechanism: Mechanism, wearer: Wearer, epsilon: float, seed: int = 0) -> float:
    """A ratio that the true largest one exceeds, but for an error of 1 in 1,000; from counts.

    Each probability has a Clopper-Pearson interval; all of them hold together (Bonferroni).
    """
    copies = 200_000 // 2 ** len(wearer.start)
    counts = release(mechanism, wearer, (2,), epsilon, copies, np.random.default_rng(seed))
    share = 0.001 / (2 * counts.size)
    lower = np.where(counts > 0, beta.ppf(share, counts, copies - counts + 1), 0)
    upper = np.where(counts < copies, beta.isf(share, counts + 1, copies - counts), 1)
    return float(np.max(lower.max(0) / upper.min(0)))


# Mechanisms with a planted fault. Rows are in order of recording and time.


def redrawn_where_the_bin_changes(
    ranks, recording, start, group, epsilon, budget, samples, bins, rng
) -> np.ndarray:
    """Memoised as long as the bin stays the same, as one might write it at first."""
    interval = intervals(recording, start, samples)
    joint = np.ravel_multi_index(tuple(to_bins(ranks, bins).T), bins)
    answer = randomised_response(joint, math.prod(bins), epsilon, rng)
    fresh = np.append(True, (np.diff(interval) != 0) | (np.diff(joint) != 0))
    drawn = np.maximum.accumulate(np.where(fresh, np.arange(len(joint)), 0))
    return np.stack(np.unravel_index(answer[drawn], bins), axis=1)


def answered_for_each_window(
    ranks, recording, start, group, epsilon, budget, samples, bins, rng
) -> np.ndarray:
    """No memory: each window has a response of its own."""
    return respond(ranks, recording, start, group, epsilon, budget, 1, bins, rng)


def answered_from_the_next_window(
    ranks, recording, start, group, epsilon, budget, samples, bins, rng
) -> np.ndarray:
    """No memory, and another window's truth, in the next one's place."""
    windows = int((group == group[0]).sum())
    moved = np.roll(ranks.reshape(-1, windows, len(bins)), -1, axis=1).reshape(ranks.shape)
    return respond(moved, recording, start, group, epsilon, budget, 1, bins, rng)


FAULTY = [redrawn_where_the_bin_changes, answered_for_each_window, answered_from_the_next_window]


# Likelihood ratios of whole sequences.


@pytest.mark.parametrize("bins", [(2,), (2, 2)])
@pytest.mark.parametrize("name", WEARERS)
def test_no_release_is_likelier_than_its_epsilon_allows_by_enumeration(name, bins):
    """For any two people the largest ratio is e^epsilon for each interval in which they differ."""
    wearer = WEARERS[name]
    if bins == (2, 2):  # fewer windows, or it takes a minute
        wearer = Wearer(wearer.start[:3], wearer.recordings[:3])
    first = wearer.first_windows()
    asked = sorted(set(first))
    table = enumerated(respond, wearer, bins, len(asked))
    np.testing.assert_allclose(table, by_formula(wearer, math.prod(bins), LN3), atol=1e-12)
    np.testing.assert_allclose(table.sum(1), 1)
    truths = sequences(math.prod(bins), len(first))[:, asked]
    differ = (truths[:, None] != truths[None]).sum(2)
    np.testing.assert_allclose(largest_ratios(table), 3.0**differ)
    assert differ.max() == len(asked)  # so the bound is attained


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("name", WEARERS)
def test_ratios_at_other_epsilons_by_formula(name, epsilon):
    wearer = WEARERS[name]
    asked = sorted(set(wearer.first_windows()))
    truths = sequences(2, len(wearer.start))[:, asked]
    differ = (truths[:, None] != truths[None]).sum(2)
    ratios = largest_ratios(by_formula(wearer, 2, epsilon))
    np.testing.assert_allclose(np.log(ratios), epsilon * differ, atol=1e-12)


@pytest.mark.parametrize("faulty", FAULTY)
def test_the_enumeration_finds_planted_faults(faulty):
    wearer = WEARERS["two intervals, windows overlap by half"]
    largest = largest_ratios(enumerated(faulty, wearer, (2,), draws=4)).max()
    assert largest > 3.0**2 * (1 + 1e-9)
    # A changed answer within an interval is impossible for people who did not change; else 4 responses.
    expected = math.inf if faulty is redrawn_where_the_bin_changes else 3.0**4
    assert largest == pytest.approx(expected)


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
@pytest.mark.parametrize("name", WEARERS)
def test_no_release_is_likelier_than_its_epsilon_allows_by_counting(name, epsilon):
    wearer = WEARERS[name]
    asked = set(wearer.first_windows())
    assert counted_ratio(respond, wearer, epsilon) <= math.exp(epsilon * len(asked))


@pytest.mark.parametrize("faulty", FAULTY)
def test_counting_finds_planted_faults(faulty):
    wearer = WEARERS["two intervals, windows overlap by half"]
    assert counted_ratio(faulty, wearer, 1.0) > math.exp(2.0)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_counts_are_those_of_the_formula(epsilon):
    """At any epsilon, with real random numbers; and the ratio is seen to be attained."""
    wearer, copies = WEARERS["two intervals, windows overlap by half"], 12_500
    counts = release(respond, wearer, (2,), epsilon, copies, np.random.default_rng(1))
    table = by_formula(wearer, 2, epsilon)
    assert (np.abs(counts / copies - table) <= 5 * np.sqrt(table * (1 - table) / copies)).all()
    # From all people of which the first windows are (0, 0), and of which they are (1, 1).
    first = sequences(2, 4)[:, [0, 2]]
    same, opposite = (counts[(first == one).all(1), 0].sum() for one in (0, 1))
    error = math.sqrt(1 / same + 1 / opposite)
    assert abs(math.log(same / opposite) - 2 * epsilon) < 4 * error


# Responses.


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_row_has_warners_probabilities_of_its_epsilon(count):
    draws, epsilons = 40_000, np.array([0.0, 0.7, 3.0, 800.0])
    truth = np.tile(np.arange(4) % count, draws)
    answers = randomised_response(
        truth, count, np.tile(epsilons, draws), np.random.default_rng(0)
    ).reshape(draws, 4)
    for column, epsilon in enumerate(epsilons):
        other = 1 / (math.exp(min(epsilon, 700)) + count - 1)
        expected = np.full(count, other)
        expected[column % count] = 1 - (count - 1) * other
        share = np.bincount(answers[:, column], minlength=count) / draws
        error = np.sqrt(np.maximum(expected * (1 - expected), 0) / draws)
        assert (np.abs(share - expected) <= 5 * error + 1e-12).all()


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("count", [2, 6])
def test_the_probability_of_the_truth_is_exact(count, epsilon):
    """A uniform number just below or above it decides; what is left is uniform over all answers."""
    honest = math.exp(epsilon) / (math.exp(epsilon) + count - 1)
    share = (honest - 1 / count) / (1 - 1 / count)  # honest = share + (1 - share) / count

    class Fixed:
        def random(self, size):
            return np.array([share * (1 - 1e-9), share * (1 + 1e-9)])

        def integers(self, high, size):
            assert high == count
            return np.array([1, 1])

    assert randomised_response(np.zeros(2, int), count, epsilon, Fixed()).tolist() == [0, 1]


def test_bins_have_equal_width_and_end_at_0_and_1():
    ranks = np.array([0.0, 0.24, 0.26, 0.74, 0.76, 1.0])
    assert to_bins(ranks[:, None], (4,))[:, 0].tolist() == [0, 0, 1, 2, 3, 3]
    counts = np.bincount(to_bins(np.random.default_rng(0).random((9000, 1)), (9,))[:, 0])
    assert chisquare(counts).pvalue > 0.001


def test_intervals_and_their_answers_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(0)
    recording, start = rng.integers(3, 9, 300), rng.permutation(300) * 7
    found = intervals(recording, start, SAMPLES)
    places = sorted({(r, s // SAMPLES) for r, s in zip(recording, start, strict=True)})
    expected = [places.index((r, s // SAMPLES)) for r, s in zip(recording, start, strict=True)]
    assert found.tolist() == expected
    ranks = rng.random((300, 2))
    one = respond(ranks, recording, start, recording, 1.0, 9.0, SAMPLES, (3, 2), rng_of(1))
    mixed = rng.permutation(300)
    other = respond(
        *(part[mixed] for part in (ranks, recording, start, recording)),
        *(1.0, 9.0, SAMPLES, (3, 2), rng_of(1)),
    )
    np.testing.assert_array_equal(other, one[mixed])
    assert all(len(np.unique(one[found == each], axis=0)) == 1 for each in range(len(places)))
    assert len(np.unique(one, axis=0)) == 6


def test_memoised_takes_the_first_window_in_time():
    truth, start = np.array([3, 1, 2, 0]), np.array([9, 4, 30, 20])
    answers = memoised(truth, 4, np.full(4, math.inf), np.array([0, 0, 1, 1]), start, rng_of(0))
    assert answers.tolist() == [1, 1, 0, 0]


def test_nothing_but_first_windows_has_an_influence():
    rng = np.random.default_rng(0)
    recording, start = np.repeat(np.arange(50), 20), np.tile(np.arange(20) * 30, 50)
    ranks = rng.random((1000, 2))
    first = np.isin(np.arange(1000) % 20, [0, 4, 7, 10, 14, 17])  # at 0, 120, 210, 300, ...
    assert first.sum() == len(np.unique(intervals(recording, start, SAMPLES)))
    rest = (recording, start, recording, 2.0, math.inf, SAMPLES, (4, 4))
    released = respond(ranks, *rest, rng_of(3))
    changed = np.where(first[:, None], ranks, rng.random((1000, 2)))
    np.testing.assert_array_equal(respond(changed, *rest, rng_of(3)), released)
    # Whereas without randomness, first windows are released as they are.
    exact = (recording, start, recording, math.inf, math.inf, SAMPLES, (4, 4))
    np.testing.assert_array_equal(respond(ranks, *exact, rng)[first], to_bins(ranks, (4, 4))[first])


def test_no_windows_no_answers():
    none = np.zeros(0, int)
    released = respond(np.zeros((0, 2)), none, none, none, 1.0, 1.0, 10, (2, 2), rng_of(0))
    assert released.shape == (0, 2)
    assert spent(np.zeros(0), none, none) == {}


def test_what_makes_no_sense_is_refused():
    zeros = np.zeros(2, int)
    with pytest.raises(Refusal, match="one sample or more"):
        intervals(zeros, zeros, 0)
    with pytest.raises(Refusal, match="one bin or more"):
        choose_bins(1.0, (3, 0))
    for epsilon in (-1.0, math.nan, np.array([1.0, -0.1])):
        with pytest.raises(Refusal, match="0 or more"):
            respond(np.ones((2, 1)), zeros, np.arange(2), zeros, epsilon, 1.0, 1, (2,), rng_of(0))
    with pytest.raises(Refusal, match="two groups"):
        epsilon_of_intervals(1.0, 1.0, zeros, np.arange(2), np.arange(2))


# The choice of bins.


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_the_chosen_bins_keep_most_by_simulation(epsilon):
    """And each feature's correlation is that of the formula."""
    rng, windows, most = np.random.default_rng(0), 200_000, (4, 3)
    ranks, one_each = rng.random((windows, 2)), np.arange(windows)
    kept = {}
    for bins in itertools.product(range(1, 5), range(1, 4)):
        released = respond(ranks, one_each, 0 * one_each, one_each, epsilon, math.inf, 1, bins, rng)
        centres = (released + 0.5) / bins
        found = [
            np.corrcoef(ranks[:, one], centres[:, one])[0, 1] if bins[one] > 1 else 0.0
            for one in (0, 1)
        ]
        np.testing.assert_allclose(found, released_correlations(epsilon, bins), atol=0.01)
        kept[bins] = sum(found)
    assert kept[choose_bins(epsilon, most)] > max(kept.values()) - 0.01


@pytest.mark.parametrize("most", [(9, 5), (4, 4, 3), (1, 7), (6,)])
def test_the_chosen_bins_are_the_best_of_all(most):
    for epsilon in (0.01, 0.3, 1.0, 1.7, 2.5, 4.0, 6.0, 9.0):
        sums = {
            bins: sum(
                (math.exp(epsilon) - 1)
                / (math.exp(epsilon) + math.prod(bins) - 1)
                * math.sqrt(1 - bins[one] ** -2)
                for one in range(len(bins))
            )
            for bins in itertools.product(*(range(1, bound + 1) for bound in most))
        }
        chosen = choose_bins(epsilon, most)
        assert sums[chosen] == pytest.approx(max(sums.values()))
        assert sum(released_correlations(epsilon, chosen)) == pytest.approx(sums[chosen])
        best = [bins for bins in sums if sums[bins] == pytest.approx(sums[chosen], rel=1e-10)]
        assert math.prod(chosen) == min(map(math.prod, best))
    assert choose_bins(0.0, most) == (1,) * len(most)
    assert choose_bins(100.0, most) == choose_bins(1e4, most) == most


def test_two_features_get_two_bins_each_at_epsilon_1():
    assert choose_bins(1.0, (9, 5)) == (2, 2)
    assert choose_bins(1.0, (9, 1)) == (2, 1)
    assert choose_bins(1.0, (9, 5, 5)) == (2, 2, 1)  # three would each be released too seldom


# Budget and accounts.


def test_nothing_is_released_beyond_the_budget_by_enumeration():
    """Three intervals, a budget of two: the third answer is uniform, whatever is true."""
    wearer = Wearer((0, 100, 200), budget=2 * LN3)
    table = enumerated(respond, wearer, (2,), 3)
    within = enumerated(respond, Wearer((0, 100)), (2,), 2)
    expected = np.kron(within, np.full((2, 2), 0.5))
    np.testing.assert_allclose(table, expected, atol=1e-12)
    assert largest_ratios(table).max() == pytest.approx(math.exp(wearer.budget))


@pytest.mark.parametrize("budget", [0.0, 1.5, 2.0, 3.9])
def test_a_person_spends_no_more_than_the_budget_over_recordings(budget):
    """Two recordings of two intervals. Whole epsilons are spent, so e^floor(budget) is attained."""
    wearer = Wearer((0, 100, 0, 100), (0, 0, 1, 1), budget * LN3)
    largest = largest_ratios(enumerated(respond, wearer, (2,), 4)).max()
    assert largest == pytest.approx(3.0 ** math.floor(budget))

    def by_recording(ranks, recording, start, group, *rest) -> np.ndarray:
        return respond(ranks, recording, start, recording, *rest)

    if budget >= 1:  # the wrong group is found
        assert largest_ratios(enumerated(by_recording, wearer, (2,), 4)).max() > 3.0**budget


def test_nothing_is_released_beyond_the_budget_by_chi_square():
    rng = np.random.default_rng(0)
    recording, start = np.repeat(np.arange(20_000), 6), np.tile(np.arange(6) * SAMPLES, 20_000)
    ranks = rng.random((len(start), 2))
    released = respond(ranks, recording, start, recording, 1.0, 4.0, SAMPLES, (2, 3), rng)
    truth, answer = (
        np.ravel_multi_index(tuple(one.T), (2, 3)) for one in (to_bins(ranks, (2, 3)), released)
    )
    beyond = start >= 4 * SAMPLES
    for rows, says_nothing in ((beyond, True), (~beyond, False)):
        table = np.bincount(6 * truth[rows] + answer[rows], minlength=36).reshape(6, 6)
        assert (chi2_contingency(table).pvalue > 0.001) == says_nothing
        assert chisquare(table.sum(0)).pvalue > 0.001  # uniform ranks: uniform answers


def test_budgets_are_spent_in_time_and_a_group_that_stopped_stays_stopped():
    rng = np.random.default_rng(0)
    person = rng.integers(5, size=400)
    recording, start = 2 * person + rng.integers(2, size=400), rng.permutation(400) * 10
    epsilon, budget = rng.uniform(0.1, 1, 400), 6.0 + person
    interval = intervals(recording, start, SAMPLES)
    found = epsilon_of_intervals(epsilon, budget, interval, start, person)
    totals: dict[int, float] = dict.fromkeys(range(5), 0.0)
    stopped: set[int] = set()
    seen: dict[int, float] = {}
    for row in np.lexsort([start, recording]).tolist():
        one = int(person[row])
        if interval[row] not in seen:
            stopped |= {one} if totals[one] + epsilon[row] > budget[row] else set()
            seen[interval[row]] = 0.0 if one in stopped else float(epsilon[row])
            totals[one] += seen[interval[row]]
        assert found[row] == seen[interval[row]]
    assert len(stopped) == 5
    assert spent(found, interval, person) == pytest.approx(totals)
    assert all(totals[one] <= 6 + one for one in range(5))
    assert sum(spent(found, interval, recording).values()) == pytest.approx(sum(totals.values()))


@pytest.mark.parametrize(("budget", "fit"), [(0.3, 3), (1.0, 10)])
def test_tenths_fit_although_their_sums_are_inexact(budget, fit):
    numbers = np.arange(12)
    found = epsilon_of_intervals(0.1, budget, numbers, numbers, 0 * numbers)
    assert found.tolist() == [0.1] * fit + [0.0] * (12 - fit)


@pytest.mark.parametrize(("seconds", "expected"), [(60, 60), (600, 6), (1000, 4), (5400, 1)])
def test_an_hour_is_what_the_windows_of_an_hour_spend(seconds, expected):
    rate, length = 50, 128
    start = np.arange(0, 3600 * rate - length + 1, length)
    interval = intervals(0 * start, start, seconds * rate)
    epsilon = epsilon_of_intervals(0.5, math.inf, interval, start, 0 * start)
    assert spent(epsilon, interval, 0 * start) == {0: 0.5 * expected}
    assert epsilon_per_hour(0.5, seconds) == 0.5 * expected
    assert epsilon_per_hour(0.5, seconds / 0.7 * 0.7) == 0.5 * expected


def test_a_crossfaded_window_spends_two_epsilons_where_it_holds_two_responses():
    """The epsilon of a window is the largest log ratio of all responses that it is made from."""
    start = np.array([0, 50, 100, 150])
    interval = intervals(0 * start, start, SAMPLES)
    epsilon = epsilon_of_intervals(LN3, math.inf, interval, start, 0 * start)
    table = enumerated(respond, Wearer(tuple(start)), (2,), 2)
    previous = previous_windows(0 * start, start, 50)
    assert previous.tolist() == [-1, 0, 1, 2]
    for holds, expected in (
        (None, epsilon_per_window(epsilon, interval)),
        (previous, epsilon_per_window(epsilon, interval, previous)),
    ):
        for window in range(4):
            parts = {window} if holds is None else {window, int(holds[window])} - {-1}
            axes = tuple(1 + other for other in range(4) if other not in parts)
            seen = table.reshape(-1, 2, 2, 2, 2).sum(axes).reshape(16, -1)
            assert math.log(largest_ratios(seen).max()) == pytest.approx(expected[window])
    joined = epsilon_per_window(epsilon, interval, previous)
    np.testing.assert_allclose(joined, [LN3, LN3, 2 * LN3, LN3])
    assert spent(epsilon, interval, 0 * start) == pytest.approx({0: 2 * LN3})


# Accuracy of attackers.


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_no_rule_is_right_more_often_than_the_private_accuracy(epsilon):
    """All rules from two answers to a class, for random classes, priors and truths."""
    rng, honest = np.random.default_rng(0), math.exp(epsilon) / (math.exp(epsilon) + 1)
    response = np.array([[honest, 1 - honest], [1 - honest, honest]])
    both = np.kron(response, response)  # from two truths to two answers
    for classes in (2, 3):
        rules = np.array(list(itertools.product(range(classes), repeat=4)))
        for _ in range(50):
            prior = rng.dirichlet(np.ones(classes))
            truths = rng.dirichlet(np.full(4, 0.1), size=classes)  # often nearly one truth a class
            joint = prior[:, None] * (truths @ both)
            best = max(joint[rule, np.arange(4)].sum() for rule in rules)
            assert best <= private_accuracy(prior.max(), 2 * epsilon) + 1e-12


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_private_accuracy_is_exact(count, epsilon):
    """For the likeliest class after an answer; and on average, where classes are equally likely."""
    other = 1 / (math.exp(epsilon) + count - 1)
    response = np.full((count, count), other) + np.eye(count) * (1 - count * other)
    rules = itertools.product(range(count), repeat=count)
    best = max(sum(response[c, answer] for answer, c in enumerate(rule)) / count for rule in rules)
    assert best == pytest.approx(private_accuracy(1 / count, epsilon))
    for prior in np.random.default_rng(0).dirichlet(np.ones(count), size=20):
        joint = prior[:, None] * response
        posterior = (joint / joint.sum(0)).diagonal()
        np.testing.assert_allclose(posterior, [private_accuracy(one, epsilon) for one in prior])


def test_a_promise_is_never_rounded_down():
    for epsilon, guess in itertools.product((0.0, 0.3, 1.0, 7.0), (0.2, 0.5, 0.9)):
        words = promise(epsilon, guess)
        start, most = (float(one.rstrip("%")) / 100 for one in words.split() if "%" in one)
        assert start == pytest.approx(guess)
        exact = private_accuracy(guess, epsilon)
        assert exact - 1e-9 <= most <= exact + 0.0011
        assert "\n" not in words
        assert "the class does not tell" in words
