"""Local differential privacy of Seal's bins, by memoised randomised response.

Release. The kept class is released as it is, since the policy keeps it. The bins of the features
(rhythm, energy, sharpness) are released by randomised response alone.

Intervals. Time is divided into intervals on a fixed grid, whatever the data. The bins of the first
window of an interval are randomised once, and all its windows get that answer. An answer drawn anew
where the bin changes would tell when it changed; RAPPOR memoises for the same reason. So an
interval spends epsilon once, however many windows it has, and a recording spends the sum.

Promise. Take two wearers with the same times and classes of windows, and any two sequences of
ranks. No sequence of released bins is more than e^(sum of epsilons) times as likely for one as for
the other. One input window changes the ranks of later ones, so it has no smaller epsilon.

Limits. Nothing is promised about the class, nor about the number and the times of windows. The
memory lasts for one call of `respond`: a second call on the same recording spends epsilon again.
Random numbers must be unpredictable: a known seed undoes the responses.

References
----------
Warner, Randomized Response, JASA 1965: the response itself.
Kairouz, Oh, Viswanath, Extremal Mechanisms for Local Differential Privacy, NeurIPS 2014: responses
with several answers, which keep most information where epsilon is large.
Erlingsson, Pihur, Korolova, RAPPOR, CCS 2014: memoised responses.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from sensorveil.errors import Refusal


def respond(
    ranks: np.ndarray,
    recording: np.ndarray,
    start: np.ndarray,
    group: np.ndarray,
    epsilon: float | np.ndarray,
    budget: float | np.ndarray,
    samples: int,
    bins: Sequence[int],
    rng: np.random.Generator,
) -> np.ndarray:
    """The released bins of each window, (n, features).

    Parameters
    ----------
    ranks
        Rank in (0, 1) of each feature in the wearer's own past, (n, features).
    recording, start
        The recording of each window, and the sample of it at which the window begins, (n,).
    group
        Whose epsilons add up: the recording of each window, or its person, (n,).
    epsilon
        What an interval spends, in all or for each window; that of its first window counts.
    budget
        Largest sum of epsilons in a group, in all or for each window; `math.inf` for no limit.
    samples
        Samples of an interval.
    bins
        Number of bins of each feature, such as `choose_bins` gives.
    rng
        A source of random numbers that no attacker can predict.

    Examples
    --------
    >>> ranks, recording, start = np.array([[0.1, 0.9], [0.6, 0.2]]), np.zeros(2, int), np.arange(2)
    >>> rng = np.random.default_rng()
    >>> respond(ranks, recording, start, recording, 50.0, math.inf, 2, (2, 2), rng).tolist()
    [[0, 1], [0, 1]]
    """
    interval = intervals(recording, start, samples)
    spends = epsilon_of_intervals(epsilon, budget, interval, start, group)
    # One response over all joint bins spends epsilon once; one for each feature would spend more.
    joint = np.ravel_multi_index(tuple(to_bins(ranks, bins).T), tuple(bins))
    released = memoised(joint, math.prod(bins), spends, interval, start, rng)
    return np.stack(np.unravel_index(released, tuple(bins)), axis=1)


# Bins.


def choose_bins(epsilon: float, max_bins: Sequence[int]) -> tuple[int, ...]:
    """The numbers of bins, each at most as large as given, of which a response keeps most.

    They have the largest sum of `released_correlations`; of equal ones, the fewest joint bins, and
    then more bins for earlier features.

    >>> choose_bins(1.0, (9, 5)), choose_bins(30.0, (9, 5)), choose_bins(0.0, (9, 5))
    ((2, 2), (9, 5), (1, 1))
    """
    if min(max_bins) < 1:
        raise Refusal(f"a feature needs one bin or more, not {min(max_bins)}")
    choices = 1 + np.indices(tuple(max_bins)).reshape(len(max_bins), -1).T
    kept = _truth_share(epsilon, choices.prod(1)) * np.sqrt(1 - 1 / choices**2).sum(1)
    best = choices[kept >= kept.max() * (1 - 1e-12)].tolist()
    return tuple(min(best, key=lambda one: (math.prod(one), [-bins for bins in one])))


def released_correlations(epsilon: float, bins: Sequence[int]) -> tuple[float, ...]:
    """For each feature, the correlation of a uniform rank with the centre of its released bin.

    Let K be the number of joint bins, U the rank, c its bin's centre, C that of the released bin.
    1. A response is the truth with probability s = (e^epsilon - 1) / (e^epsilon + K - 1), else
       uniform over all K. So Cov(U, C) = s Cov(U, c), and C is as uniform as c.
    2. c is the mean of U in its bin, so Cov(U, c) = Var(c) = (1 - 1 / k^2) / 12 with k bins.
    3. Var(U) = 1 / 12 and Var(C) = Var(c), so the correlation is s sqrt(1 - 1 / k^2).

    >>> [round(one, 3) for one in released_correlations(1.0, (2, 2))]
    [0.26, 0.26]
    """
    share = float(_truth_share(epsilon, math.prod(bins)))
    return tuple(share * math.sqrt(1 - 1 / one**2) for one in bins)


def to_bins(ranks: np.ndarray, bins: Sequence[int]) -> np.ndarray:
    """The bin of each rank, (n, features); a feature's bins have equal width.

    >>> to_bins(np.array([[0.1, 0.5], [1.0, 0.7]]), (4, 3)).tolist()
    [[0, 1], [3, 2]]
    """
    count = np.asarray(bins)
    return np.clip((ranks * count).astype(int), 0, count - 1)


# Responses.


def randomised_response(
    truth: np.ndarray, count: int, epsilon: float | np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The truth with probability e^epsilon / (e^epsilon + count - 1), else any other answer.

    `truth` has numbers below `count`, (n,). `epsilon` is one number, or one for each. No answer is
    more than e^epsilon times as likely for one truth as for another.

    >>> truth, rng = np.zeros(100_000, int), np.random.default_rng(0)
    >>> answers = randomised_response(truth, 3, math.log(2), rng)
    >>> (np.bincount(answers) / len(answers)).round(2).tolist()
    [0.5, 0.25, 0.25]
    """
    # A uniform answer may be the truth too. All draws are made whatever the truth is.
    keep = rng.random(len(truth)) < _truth_share(epsilon, count)
    return np.where(keep, truth, rng.integers(count, size=len(truth)))


def _truth_share(epsilon: float | np.ndarray, count: int | np.ndarray) -> np.ndarray:
    """(e^epsilon - 1) / (e^epsilon + count - 1), without overflow."""
    inverse = np.exp(-np.asarray(epsilon, float))
    return (1 - inverse) / (1 + (np.asarray(count) - 1) * inverse)


def intervals(recording: np.ndarray, start: np.ndarray, samples: int) -> np.ndarray:
    """The interval in which each window begins, (n,): from 0 on, by recording and then by time.

    The grid begins at sample 0 of each recording, so it does not depend on the data.

    >>> intervals(np.array([0, 0, 0, 1]), np.array([0, 99, 100, 0]), 100).tolist()
    [0, 0, 1, 2]
    """
    if samples < 1:
        raise Refusal(f"an interval needs one sample or more, not {samples}")
    place = np.unique(start // samples, return_inverse=True)[1]
    which = np.unique(recording, return_inverse=True)[1]
    return np.unique(which * len(place) + place, return_inverse=True)[1]


def memoised(
    truth: np.ndarray,
    count: int,
    epsilon: np.ndarray,
    interval: np.ndarray,
    start: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """The response of each window's interval, (n,): drawn once, from its first window in time.

    `epsilon` and `interval` are those of each window, as the functions here give them.

    >>> truth, start, rng = np.array([1, 0, 2]), np.array([5, 0, 9]), np.random.default_rng()
    >>> memoised(truth, 3, np.full(3, 50.0), np.zeros(3, int), start, rng).tolist()
    [0, 0, 0]
    """
    first = _first_windows(interval, start)
    return randomised_response(truth[first], count, epsilon[first], rng)[interval]


def _first_windows(interval: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The row of each interval's first window in time."""
    order = np.lexsort([start, interval])
    return order[np.unique(interval[order], return_index=True)[1]]


# What is spent.


def epsilon_of_intervals(
    epsilon: float | np.ndarray,
    budget: float | np.ndarray,
    interval: np.ndarray,
    start: np.ndarray,
    group: np.ndarray,
) -> np.ndarray:
    """What each window's interval spends, (n,): 0 from where its group would exceed the budget.

    Parameters are those of `respond`. A group spends recording after recording, each in time.

    >>> starts, group = np.array([0, 1, 2, 4]), np.zeros(4, int)
    >>> epsilon_of_intervals(0.5, 1.2, np.array([0, 0, 1, 2]), starts, group).tolist()
    [0.5, 0.5, 0.5, 0.0]
    """
    first = _first_windows(interval, start)
    if (group != group[first][interval]).any():
        raise Refusal("a recording has windows of two groups; its epsilons add up in one")
    each = np.broadcast_to(epsilon, interval.shape)[first]
    limit = np.broadcast_to(budget, interval.shape)[first]
    if not (each >= 0).all():  # one that is not a number is refused too
        raise Refusal("an epsilon must be 0 or more")
    spends, sums = np.zeros(len(first)), defaultdict[int, float](float)
    rows = zip(group[first].tolist(), each.tolist(), limit.tolist(), strict=True)
    for number, (one, more, most) in enumerate(rows):
        if sums[one] + more <= most * (1 + 1e-12):  # sums of decimals are inexact
            sums[one] += more
            spends[number] = more
        else:
            sums[one] = math.inf  # who has stopped stays stopped, even for a smaller epsilon
    return spends[interval]


def epsilon_per_window(
    epsilon: np.ndarray, interval: np.ndarray, previous: np.ndarray | None = None
) -> np.ndarray:
    """The epsilon of each output window by itself, (n,); `epsilon` is of `epsilon_of_intervals`.

    With crossfading, `previous` is the row of the window before each, or -1. A window then holds a
    little of that one: two responses, where the intervals differ. A recording spends no more.

    >>> epsilon, interval = np.ones(3), np.array([0, 0, 1])
    >>> epsilon_per_window(epsilon, interval, np.array([-1, 0, 1])).tolist()
    [1.0, 1.0, 2.0]
    """
    if previous is None:
        return epsilon
    other = (previous >= 0) & (interval[previous] != interval)
    return epsilon + np.where(other, epsilon[previous], 0.0)


def spent(epsilon: np.ndarray, interval: np.ndarray, group: np.ndarray) -> dict[int, float]:
    """The sum of epsilons of each group; `epsilon` is of `epsilon_of_intervals`.

    Responses are drawn independently, so their likelihood ratios multiply (basic composition).

    >>> spent(np.ones(4), np.array([0, 0, 1, 2]), np.array([7, 7, 7, 8]))
    {7: 2.0, 8: 1.0}
    """
    first = np.unique(interval, return_index=True)[1]
    groups, number = np.unique(group[first], return_inverse=True)
    sums = np.bincount(number, epsilon[first], len(groups))
    return dict(zip(groups.tolist(), sums.tolist(), strict=True))


def epsilon_per_hour(epsilon: float, seconds: float) -> float:
    """What the first hour of a recording spends, with intervals of so many seconds.

    An hour that begins within an interval has a part of one interval more.

    >>> epsilon_per_hour(0.5, 600), epsilon_per_hour(0.5, 7200)
    (3.0, 0.5)
    """
    return epsilon * math.ceil(3600 / seconds - 1e-9)  # seconds may be inexact


def private_accuracy(guess: float, epsilon: float) -> float:
    """The largest accuracy against an epsilon-locally private output, exactly.

    Odds change by at most e^epsilon. So a class of share `guess` has afterwards at most the
    probability guess e^epsilon / (guess e^epsilon + 1 - guess). It holds for any attribute and any
    number of windows, of which epsilon is the sum.

    >>> round(private_accuracy(0.5, math.log(3)), 9), private_accuracy(0.25, 0.0)
    (0.75, 0.25)
    """
    return guess / (guess + (1 - guess) * math.exp(-epsilon))


def promise(epsilon: float, guess: float) -> str:
    """What a sum of epsilons promises, in one sentence, rounded up.

    >>> promise(1.0, 0.5)
    'a guess at any attribute that the class does not tell rises from 50.0% to at most 73.2%'
    """
    most = math.ceil(1000 * private_accuracy(guess, epsilon) - 1e-9) / 1000
    known = "a guess at any attribute that the class does not tell"
    return f"{known} rises from {guess:.1%} to at most {most:.1%}"
