"""What a discrete code can tell anybody: upper confidence bounds, from counts over people.

If an output is made from a code and fresh noise alone, nobody learns more about an attribute from
the output than from the code (the data processing inequality). And what a code tells can be
counted. Whoever knows how often each code occurs in each class does best to name the likeliest
class, and is right in a share

    A = sum over codes of the largest of p(code, class)

of the windows. A is the maximum over all rules f, from codes to classes, of the expected share of
windows in which f is right. One rule f* is the best; which one is unknown, but it does not depend
on who was sampled. So its share in a sample misses A as a plain mean misses its expectation, and
the best share of any rule in the sample is at least as large as that of f*. Hence

    A  <=  best share in the sample + deviation of one mean over people,

however many codes there are: many codes on few people make the first term large, never too small.

People, not windows, are the independent units: the windows of one person may depend on each other
in any way. The deviation is that of a bet on each person (Waudby-Smith and Ramdas 2024), exact for
any number of people. Take shares X_i in [0, 1] of independent people, centres c_i in [0, 1] that
depend on earlier people only, and any l in (0, 1). Given the earlier people 1 - l (X_i - c_i) is
positive and has the mean 1 - l (E X_i - c_i), at most exp(-l (E X_i - c_i)). (No more is
needed of their range: for `telling`, X_i and c_i lie in [-1, 0].) So with

    p(x) = -log(1 - l x) / l - x  =  l x^2 / 2 + l^2 x^3 / 3 + ...

    E exp( l times the sum of E X_i - X_i - p(X_i - c_i) )  <=  1,

and by Markov the exponential exceeds 1 / alpha in at most a part alpha of all samples. The same
holds of a mean of exponentials with several l: one is near the best for any variance to 1/16. Share
and p together are bounded for all rules at once. All this is given the classes of the people who
were counted: `guess` is exactly the share of the most frequent one among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal
from sensorveil.measures.rules import largest_of_rules

CONFIDENCE = 0.95
MOST_CELLS = 1000
"""Codes times classes above which counting would take long, and say nothing."""
STEEPEST = 0.9
"""The largest l: at 1 a single person as far from the centre as can be would cost everything."""
MAIN = 0.85
"""The part of the mean over several l that belongs to the one expected to be best."""
ASSUMED = (
    "people are drawn independently of each other and none of them took part in training; within"
    " one person windows may depend on each other in any way; each person counts alike"
)
"""What a bound of single windows rests on."""
ASSUMED_OF_SESSIONS = "that windows are independent of each other given the class"
"""What the bound of several windows needs beside that."""
SESSION = 10
"""Windows that are looked at together where a card or page says what a session tells."""


@dataclass(frozen=True)
class Bound:
    """The most that anybody can learn about one attribute from one window, with confidence.

    `counted` is the accuracy of the best rule on the very people that were counted, `accuracy`
    the upper bound for people like them. `telling` bounds the part of windows that tell anything
    at all: the code is no better than one that is kept back in all other windows. `information`
    follows from it, in bits, of the `entropy` that there is to know. Accuracy and information
    hold each with the given confidence.
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
        """How much better than guessing anybody can be."""
        return self.accuracy - self.guess

    @property
    def information(self) -> float:
        """Bits: a class that is shown in a part of the windows, and in the others nothing is."""
        return self.telling * self.entropy

    @property
    def vacuous(self) -> bool:
        """Whether it says nothing that was not known before anybody was counted."""
        return self.accuracy >= 1

    def of_session(self, windows: int) -> Bound:
        """The same for so many windows of one person together, if these are independent.

        Each of k windows tells nothing with probability 1 - telling, and so do all of them with
        its k-th power. Without independence given the class, only sequences of codes that were
        counted (`sequence_codes`) or randomised response (`private_accuracy`) bound a session.

        >>> one = Bound("gender", 500, 9, 0.5, 0.505, 0.51, 0.02, 1.0)
        >>> round(one.of_session(10).accuracy, 3)
        0.591
        """
        telling = 1 - (1 - self.telling) ** windows
        accuracy = self.guess + (1 - self.guess) * telling
        return replace(self, accuracy=min(accuracy, 1.0), telling=telling)

    def sentence(self) -> str:
        """The bound in words, with what it is worth."""
        counted = f"{self.people} people and {self.codes} codes"
        if self.vacuous:
            return (
                f"{self.attribute}: {counted} are not enough to bound what the code tells; the"
                " bound is vacuous"
            )
        return (
            f"{self.attribute}: with {self.confidence:.0%} confidence nobody is right in more than"
            f" {self.accuracy:.1%} of single windows (guessing: {self.guess:.1%}) or learns more"
            f" than {self.information:.3f} of {self.entropy:.3f} bits; from {counted}"
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def bound_code(
    codes: np.ndarray,
    labels: np.ndarray,
    person: np.ndarray,
    attribute: str = "attribute",
    confidence: float = CONFIDENCE,
) -> Bound:
    """The bound on an attribute from the codes of windows of people held out of training.

    Windows of unknown class do not count. Where nearly every person is a class of their own
    (identity), counting other people says nothing, and the bound is vacuous.

    >>> generator = np.random.default_rng(0)
    >>> person = np.repeat(np.arange(200), 50)
    >>> bound = bound_code(generator.integers(3, size=10000), person % 2, person)
    >>> print(f"{bound.guess:.3f} {bound.counted:.3f} {bound.accuracy:.3f}")
    0.500 0.510 0.534
    """
    if not 0 < confidence < 1:
        raise Refusal(f"the confidence is {confidence}; it must lie between 0 and 1")
    known = labels != UNKNOWN
    if not known.any():
        raise Refusal(f"the class of '{attribute}' is known of no window: nothing can be counted")
    codes, labels, person = codes[known], labels[known], person[known]
    empty = _vacuous(codes, labels, person, attribute, confidence)
    classes = len(np.unique(labels))
    if classes < 2 or 2 * classes > empty.people or classes * empty.codes > MOST_CELLS:
        return empty
    shares = _shares(codes, labels, person)
    usual, joint = _usual(shares), shares.mean(0)
    prior = joint.sum(0)
    # What all classes have in common, the sum over codes of the smallest p(code | class), is a
    # minimum over rules just as A is a maximum, where all classes are equally frequent.
    even = 1 / (classes * prior)
    even, largest = even / even.max(), float(even.max())
    common = -classes * largest * _upper(-shares * even, -usual * even, 1 - confidence)
    return replace(
        empty,
        guess=float(prior.max()),
        counted=float(joint.max(1).sum()),
        accuracy=float(min(_upper(shares, usual, 1 - confidence), 1.0)),
        telling=float(np.clip(1 - common, 0, 1)),
        entropy=_entropy(prior),
    )


def together(bounds: Sequence[Bound]) -> Bound:
    """One bound for several groups of people who were counted with codes of their own.

    Each must hold with so much confidence that all do: of n groups, 1 - 0.05 / n for 95%. All
    people count alike.
    """
    if len(bounds) == 1:
        return bounds[0]
    weight = np.array([bound.people for bound in bounds]) / sum(bound.people for bound in bounds)

    def mean(name: str) -> float:
        return float(weight @ [getattr(bound, name) for bound in bounds])

    return Bound(
        attribute=bounds[0].attribute,
        people=sum(bound.people for bound in bounds),
        codes=max(bound.codes for bound in bounds),
        guess=mean("guess"),
        counted=mean("counted"),
        accuracy=mean("accuracy"),
        telling=mean("telling"),
        entropy=mean("entropy"),
        confidence=1 - sum(1 - bound.confidence for bound in bounds),
    )


def sequence_codes(
    codes: np.ndarray, recording: np.ndarray, start: np.ndarray, windows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Runs of so many consecutive windows as codes of their own, and each run's first window.

    `bound_code` of these bounds whoever sees the whole run, and assumes nothing about how its
    windows depend on each other. There are many runs: it takes many people before it says much.

    >>> runs, first = sequence_codes(
    ...     np.array([3, 5, 3, 5]), np.zeros(4, int), np.array([0, 10, 20, 30]), 2
    ... )
    >>> runs, first
    (array([0, 1, 0]), array([0, 1, 2]))
    """
    order = np.lexsort([start, recording])
    last = len(order) - windows + 1
    if last < 1:
        return np.zeros(0, int), np.zeros(0, int)
    runs = np.stack([order[step : last + step] for step in range(windows)], axis=1)
    runs = runs[recording[runs[:, 0]] == recording[runs[:, -1]]]
    _, numbered = np.unique(codes[runs], axis=0, return_inverse=True)
    return numbered.reshape(-1), runs[:, 0]


def private_accuracy(guess: float, epsilon: float) -> float:
    """The most that anybody can be right where the output is epsilon-locally private, exactly.

    Odds change by at most exp(epsilon), so the likeliest class has at most the share
    guess e^epsilon / (guess e^epsilon + 1 - guess). It holds for any attribute and any number
    of windows, of which epsilon is the sum.

    >>> round(private_accuracy(0.5, math.log(3)), 9), private_accuracy(0.25, 0.0)
    (0.75, 0.25)
    """
    return guess / (guess + (1 - guess) * math.exp(-epsilon))


def private_information(entropy: float, epsilon: float) -> float:
    """The most bits that an epsilon-locally private output tells of an attribute.

    What all classes have in common is at least exp(-epsilon), so at most the rest tells
    anything; nor does anything tell more than epsilon in natural units.

    >>> private_information(1.0, 0.0), round(private_information(1.0, 0.1), 3)
    (0.0, 0.095)
    """
    return min(entropy * -math.expm1(-epsilon), epsilon / math.log(2))


def _shares(codes: np.ndarray, labels: np.ndarray, person: np.ndarray) -> np.ndarray:
    """Each person's share of windows with each code and class: (people, codes, classes)."""
    (who, number), (_, code), (_, label) = (
        np.unique(values, return_inverse=True) for values in (person, codes, labels)
    )
    counts = np.zeros((len(who), code.max() + 1, label.max() + 1))
    np.add.at(counts, (number, code, label), 1)
    return counts / counts.sum((1, 2), keepdims=True)


def _upper(shares: np.ndarray, usual: np.ndarray, alpha: float) -> float:
    """The upper bound on the expected share of the best rule.

    `worst` has, for each of a few l, the largest share + mean p(X_i - c_i) of any rule. With the
    best rule's own in its place, the mean over l of exp(people l (A - worst)) would exceed
    1 / alpha in at most a part alpha of all samples; as it stands it is smaller still. The bound is
    the A at which it is 1 / alpha. The main l is the best for a variance of 1/16, above which
    shares of people seldom vary. The others are its doubles, for codes that vary less, or where it
    cannot be doubled its half.
    """
    people = len(shares)
    main = min(math.sqrt(32 * math.log(1 / alpha) / people), STEEPEST)
    doubles = main * 2.0 ** np.arange(1, 1 + math.floor(math.log2(STEEPEST / main)))
    others = doubles if len(doubles) else np.array([main / 2])
    steps = np.array([main, *others])
    parts = np.array([MAIN] + [(1 - MAIN) / len(others)] * len(others))
    worst = np.array([largest_of_rules(shares, usual, step) for step in steps])
    low, high = worst.min(), (worst - np.log(alpha * parts) / (people * steps)).min()
    for _ in range(40):
        middle = (low + high) / 2
        if parts @ np.exp(people * steps * (middle - worst)) < 1 / alpha:
            low = middle
        else:
            high = middle
    return float(high)


def _usual(shares: np.ndarray) -> np.ndarray:
    """What earlier people of the same classes had of each cell: the centre c_i of a rule.

    Before anybody was seen it is 0; half of what is missing is added in `largest_of_rules`.
    """
    before = np.cumsum(shares, axis=0) - shares
    return before / (1 + before.sum(1, keepdims=True)) * shares.sum(1, keepdims=True)


def _entropy(prior: np.ndarray) -> float:
    present = prior[prior > 0]
    return float(-(present * np.log2(present)).sum())


def _vacuous(
    codes: np.ndarray, labels: np.ndarray, person: np.ndarray, attribute: str, confidence: float
) -> Bound:
    _, counts = np.unique(labels, return_counts=True)
    share = counts / counts.sum()
    return Bound(
        attribute=attribute,
        people=len(np.unique(person)),
        codes=len(np.unique(codes)),
        guess=float(share.max()),
        counted=1.0,
        accuracy=1.0,
        telling=1.0,
        entropy=_entropy(share),
        confidence=confidence,
    )
