"""Seal's counted bound: what a discrete code tells about an attribute, and so all made from it.

An output made from a code and fresh noise alone tells no more about an attribute
than the code does (data processing inequality). An attacker who knows the distribution of codes in
each class is right in at most a share

    A = sum over codes of max over classes of p(code, class)

of the windows (the posterior Bayes vulnerability of Smith 2009 and Alvim et al. 2020). A is the
expected share of correct windows under the best rule f* from codes to classes. Which rule is the
best is unknown, but it does not depend on the sample of people. So the share of f* in the sample
deviates from A as a plain mean over people does, and the best rule *in the sample* has at least
that share. Hence

    A <= best share of any rule in the sample + deviation of one mean over people,

for any number of codes: many codes on few people make the first term large, never too small.

The deviation. People are the independent units; the windows of one person may depend on each other
in any way. Two inequalities bound it, and the smaller result counts. With shares X_i in [0, 1] of n
independent people, that of Hoeffding (1963) is

    mean of E X_i  <=  mean of X_i + sqrt(log(1 / alpha) / (2 n)).

It is the smaller one where each person keeps to few codes. Where a person's windows vary, so that
shares of people are alike, a betting martingale (Waudby-Smith and Ramdas 2024) is. Let c_i in
[0, 1] be centres that depend on earlier people only, and l in (0, 1). Given the earlier people,
1 - l (X_i - c_i) is positive with mean 1 - l (E X_i - c_i) <= exp(-l (E X_i - c_i)). (Nothing else
is used about the range; for the common part of the classes below, X_i and c_i lie in [-1, 0].) So
with

    p(x) = -log(1 - l x) / l - x  =  l x^2 / 2 + l^2 x^3 / 3 + ...

    E exp( l * sum over people of (E X_i - X_i - p(X_i - c_i)) )  <=  1,

and by Markov's inequality

    mean of E X_i  <=  mean of X_i + p(X_i - c_i) + log(1 / alpha) / (l n)

in all but a share alpha of samples. Share and p are bounded for all rules at once
(`_largest_of_rules`). All this is conditional on the classes of the counted people: `guess` is
exactly the share of the most frequent class among them.

References
----------
Alvim et al., The Science of Quantitative Information Flow, 2020.
Hoeffding, Probability Inequalities for Sums of Bounded Random Variables, JASA 1963.
Smith, On the Foundations of Quantitative Information Flow, FoSSaCS 2009.
Waudby-Smith and Ramdas, Estimating Means of Bounded Random Variables by Betting, JRSS B 2024.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal

CONFIDENCE = 0.95
MAX_CELLS = 1000
"""Codes times classes above which counting takes long and the bound is vacuous anyway."""
MAX_BET = 0.9
"""The largest l: at 1 a single person at the far end of the range would cost everything."""
HOEFFDING_SHARE = 0.2
"""The share of alpha for Hoeffding's inequality; the rest is for the betting martingale."""
ASSUMED = (
    "people are drawn independently of each other and none of them took part in training; within"
    " one person windows may depend on each other in any way; each person counts alike; the"
    " attacker sees the window alone and knows nothing else about the person"
)
"""The assumptions of a bound on single windows."""
ASSUMED_OF_SESSIONS = "that windows are independent of each other given the class"
"""The further assumption of `Bound.of_session`."""
SESSION = 10
"""Number of windows in the session for which a card or page states a bound."""


@dataclass(frozen=True)
class Bound:
    """An upper confidence bound on what one window tells about one attribute.

    Parameters
    ----------
    attribute
        Name of the attribute.
    people, codes
        Number of people that were counted, and of different codes among them.
    guess
        Majority baseline: the share of the most frequent class, each person counting alike.
    counted
        Accuracy of the best rule on the very people that were counted.
    accuracy
        Upper bound on the accuracy of any rule for people like them.
    telling
        Upper bound on the share of windows that tell anything at all: the code is no better than
        one that shows the class in this share of windows and nothing in the others (erasure).
    entropy
        Entropy of the attribute in bits.
    confidence
        `accuracy` and `information` hold with this confidence each.
    """

    attribute: str
    people: int
    codes: int
    guess: float
    counted: float
    accuracy: float
    telling: float
    entropy: float
    confidence: float = CONFIDENCE

    @property
    def advantage(self) -> float:
        """Upper bound on accuracy above the majority baseline."""
        return self.accuracy - self.guess

    @property
    def information(self) -> float:
        """Upper bound in bits: an erasure channel's, `telling` times the entropy."""
        return self.telling * self.entropy

    @property
    def vacuous(self) -> bool:
        """Whether the bound says nothing."""
        return self.accuracy >= 1

    def of_session(self, windows: int) -> Bound:
        """The bound for several windows of one person together, if they are independent.

        Each of k windows tells nothing with probability 1 - telling, all of them with its k-th
        power. Without independence given the class, only counted sequences (`sequence_codes`) or
        randomised response (`private_accuracy`) bound a session.

        >>> one = Bound("gender", 500, 9, 0.5, 0.505, 0.51, 0.02, 1.0)
        >>> round(one.of_session(10).accuracy, 3)
        0.591
        """
        telling = 1 - (1 - self.telling) ** windows
        accuracy = self.guess + (1 - self.guess) * telling
        return replace(self, accuracy=min(accuracy, 1.0), telling=telling)

    def sentence(self) -> str:
        """The bound in words."""
        counted = f"{self.people} people and {self.codes} codes"
        if self.vacuous:
            return (
                f"{self.attribute}: the bound is vacuous; {counted} are too few people, or too many"
                " codes, to bound what the code tells"
            )
        return (
            f"{self.attribute}: with {self.confidence:.0%} confidence no rule is right in more than"
            f" {self.accuracy:.1%} of single windows (majority baseline: {self.guess:.1%}) or learns"
            f" more than {self.information:.3f} of {self.entropy:.3f} bits; from {counted}"
        )


def bound_code(
    codes: np.ndarray,
    labels: np.ndarray,
    person: np.ndarray,
    attribute: str = "attribute",
    confidence: float = CONFIDENCE,
) -> Bound:
    """The bound on an attribute, counted on people held out of training.

    Windows of unknown class do not count. Where nearly every person is a class of their own
    (identity), counting other people says nothing, and the bound is vacuous.

    Parameters
    ----------
    codes, labels, person
        Code, class and person of each window, (n,) integers.
    attribute
        Name for messages.
    confidence
        Between 0 and 1; default 0.95.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> person = np.repeat(np.arange(200), 50)
    >>> bound = bound_code(rng.integers(3, size=10000), person % 2, person)
    >>> print(f"{bound.guess:.3f} {bound.counted:.3f} {bound.accuracy:.3f}")
    0.500 0.510 0.534
    """
    if not 0 < confidence < 1:
        raise Refusal(f"the confidence is {confidence}; it must lie between 0 and 1")
    known = labels != UNKNOWN
    if not known.any():
        raise Refusal(f"the class of '{attribute}' is known of no window: nothing can be counted")
    codes, labels, person = codes[known], labels[known], person[known]
    sizes = [len(np.unique(values)) for values in (person, codes, labels)]
    people, num_codes, num_classes = sizes
    if num_classes < 2 or 2 * num_classes > people or num_classes * num_codes > MAX_CELLS:
        share = np.unique(labels, return_counts=True)[1] / len(labels)
        guess, bits = float(share.max()), _entropy(share)
        return Bound(attribute, people, num_codes, guess, 1.0, 1.0, 1.0, bits, confidence)
    shares, alpha = _shares(codes, labels, person), 1 - confidence
    centres, joint = _centres(shares), shares.mean(0)
    prior = joint.sum(0)
    return Bound(
        attribute,
        people,
        num_codes,
        guess=float(prior.max()),
        counted=float(joint.max(1).sum()),
        accuracy=float(min(_upper(shares, centres, alpha), 1.0)),
        telling=float(np.clip(1 - _common_part(shares, centres, alpha), 0, 1)),
        entropy=_entropy(prior),
        confidence=confidence,
    )


def combine_bounds(bounds: Sequence[Bound]) -> Bound:
    """One bound for several groups of people who were counted with encoders of their own.

    All of n bounds must hold at once, so each needs the confidence 1 - 0.05 / n for 95% together
    (Bonferroni). All people count alike.
    """
    if len(bounds) == 1:
        return bounds[0]
    people = [bound.people for bound in bounds]
    means = {
        name: float(np.average([getattr(bound, name) for bound in bounds], weights=people))
        for name in ("guess", "counted", "accuracy", "telling", "entropy")
    }
    return Bound(
        attribute=bounds[0].attribute,
        people=sum(people),
        codes=max(bound.codes for bound in bounds),
        confidence=1 - sum(1 - bound.confidence for bound in bounds),
        **means,
    )


def sequence_codes(
    codes: np.ndarray, recording: np.ndarray, start: np.ndarray, windows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers each run of consecutive windows of a recording; returns also its first window.

    `bound_code` of these runs bounds an attacker who sees the whole run and assumes nothing about
    how its windows depend on each other. There are many runs: it takes many people.

    >>> runs, first = sequence_codes(
    ...     np.array([3, 5, 3, 5]), np.zeros(4, int), np.array([0, 10, 20, 30]), 2
    ... )
    >>> runs, first
    (array([0, 1, 0]), array([0, 1, 2]))
    """
    order = np.lexsort([start, recording])
    if len(order) < windows:
        return np.zeros(0, int), np.zeros(0, int)
    runs = np.lib.stride_tricks.sliding_window_view(order, windows)
    runs = runs[recording[runs[:, 0]] == recording[runs[:, -1]]]
    _, numbered = np.unique(codes[runs], axis=0, return_inverse=True)
    return numbered.reshape(-1), runs[:, 0]


# The mathematics of the bound. Shapes: shares and centres are (people, codes, classes).


def _shares(codes: np.ndarray, labels: np.ndarray, person: np.ndarray) -> np.ndarray:
    """Each person's share of windows with each code and class: (people, codes, classes)."""
    (who, number), (_, code), (_, label) = (
        np.unique(values, return_inverse=True) for values in (person, codes, labels)
    )
    counts = np.zeros((len(who), code.max() + 1, label.max() + 1))
    np.add.at(counts, (number, code, label), 1)
    return counts / counts.sum((1, 2), keepdims=True)


def _centres(shares: np.ndarray) -> np.ndarray:
    """The mean of earlier people of the same classes in each cell: the c_i of any rule.

    Before anybody was seen it is 0; half of the missing mass is added in `_largest_of_rules`.
    """
    before = np.cumsum(shares, axis=0) - shares
    return before / (1 + before.sum(1, keepdims=True)) * shares.sum(1, keepdims=True)


def _upper(shares: np.ndarray, centres: np.ndarray, alpha: float) -> float:
    """The upper bound on the expected share of the best rule: Hoeffding's, or the martingale's.

    The bet is optimal for a variance of 1/16, which shares of people seldom exceed where windows
    of a person vary.
    """
    people = len(shares)
    counted = shares.mean(0).max(1).sum()  # by the best rule in the sample
    hoeffding = counted + math.sqrt(-math.log(HOEFFDING_SHARE * alpha) / (2 * people))
    cost = -math.log((1 - HOEFFDING_SHARE) * alpha) / people
    bet = min(math.sqrt(32 * cost), MAX_BET)
    betting = _largest_of_rules(shares, centres, bet) + cost / bet
    return float(min(hoeffding, betting))


def _common_part(shares: np.ndarray, centres: np.ndarray, alpha: float) -> float:
    """A lower bound on the sum over codes of the smallest p(code | class).

    With equally frequent classes it is a minimum over rules as A is a maximum, so it is minus the
    upper bound of the negated shares. Cells are divided by their class's prior for that, and
    scaled so that a person's shares stay within [0, 1].
    """
    prior = shares.mean(0).sum(0)
    balance = 1 / (len(prior) * prior)
    scale = float(balance.max())
    balance = balance / scale
    return -len(prior) * scale * _upper(-shares * balance, -centres * balance, alpha)


def _largest_of_rules(shares: np.ndarray, centres: np.ndarray, bet: float) -> float:
    """At least the mean of X_i + p(X_i - c_i) of any rule, and seldom much more.

    There are too many rules to try. The mean is convex in the rule: moving every code to the class
    that is best along the gradient increases it, and soon ends in a rule that is hard to beat. For
    any other rule each person's p lies below a parabola that touches p at this rule. So the mean is
    at most that of this rule, less the loss along the gradient, plus squares.
    """
    people = len(shares)
    table, residuals = shares.mean(0), shares - centres
    # Before anybody was seen, the centre lies half way between right and wrong for every rule.
    half = residuals.sum((1, 2)) / 2
    codes, better = np.arange(len(table)), table.argmax(1)
    for _ in range(9):  # two or three, as a rule
        rule = better  # the class of each code
        deviation = residuals[:, codes, rule].sum(1) - half  # X_i - c_i
        slope = bet * deviation / (1 - bet * deviation)  # p'
        gradient = table + np.tensordot(slope, residuals, 1) / people  # (codes, classes)
        better = gradient.argmax(1)
        if (better == rule).all():
            break
    value = table[codes, rule].sum() + _price(deviation, bet).mean()
    largest = np.maximum(residuals.max(2).sum(1) - half, deviation)
    # To move one code to another class: the loss along the gradient, and each person's change.
    other = np.arange(table.shape[1]) != rule[:, None]  # (codes, classes)
    loss = (gradient[codes, rule][:, None] - gradient)[other].reshape(len(table), -1)
    moves = (residuals - residuals[:, codes, rule][:, :, None])[:, other]
    curvature = _curvature(deviation, largest, bet)
    squares = (moves * curvature[:, None]).T @ moves / people
    return float(value + _largest_quadratic(loss, squares))


def _price(deviation: np.ndarray, bet: float) -> np.ndarray:
    """p(x): the cost of a deviation from the centre."""
    return -np.log1p(-bet * deviation) / bet - deviation


def _curvature(deviation: np.ndarray, largest: np.ndarray, bet: float) -> np.ndarray:
    """A b with p(z) <= p(x) + p'(x) (z - x) + b (z - x)^2 for all z <= `largest`, x = `deviation`.

    The b that z needs is a mean of p'' / 2 between x and z. p'' increases, so `largest` needs the
    largest b, and none needs more than p''(largest) / 2, which serves where x and `largest` are too
    close to divide by their distance.
    """
    width = np.maximum(largest - deviation, 1e-3)
    tangent = bet * deviation / (1 - bet * deviation) * width
    excess = _price(deviation + width, bet) - _price(deviation, bet) - tangent
    at_most = bet / 2 / (1 - bet * largest) ** 2
    return np.where(largest - deviation < width, at_most, excess / width**2)


def _largest_quadratic(loss: np.ndarray, squares: np.ndarray) -> float:
    """At least the maximum of v' squares v - loss v over all v that move some codes.

    v has a 1 where a code (row of `loss`) moves to that other class (column), at most one in a row.
    One more 1 adds its own square and twice its products with the other 1s, less its loss. Where
    that is at most 0 whatever the others are, some best v is without it: it is struck out, and with
    it others that only it could help. In a v of the rest, each 1 counts its own square and its
    products once, less its loss; the result is at most the sum of the positive ones of these.
    """
    codes, others = loss.shape
    own = np.diag(squares).reshape(loss.shape)
    products = np.maximum(squares, 0).reshape(codes, others, codes, others)
    products[np.arange(codes), :, np.arange(codes)] = 0
    possible = np.ones(loss.shape, bool)
    while True:
        helped = (products * possible).max(3).sum(2)
        remaining = possible & (own + 2 * helped > loss)
        if (remaining == possible).all():
            return float((np.maximum(own + helped - loss, 0) * possible).max(1).sum())
        possible = remaining


def _entropy(prior: np.ndarray) -> float:
    return float(-prior @ np.log2(prior))
