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
in any way. The deviation is that of an empirical Bernstein bound (Waudby-Smith and Ramdas 2024,
after Howard and others 2021), exact for any number of people. For shares X_i in [0, 1] of
independent people, centres c_i that depend on earlier people only, and any l in (0, 1),

    E exp( sum of l (E X_i - X_i) - psi(l) (X_i - c_i)^2 )  <=  1,    psi(l) = -log(1 - l) - l,

so by Markov the sum exceeds log(1 / alpha) in at most a part alpha of all samples. Share and
squares are bounded for all rules at once, by an eigenvalue. All this is given the classes of the
people who were counted: `guess` is exactly the share of the most frequent one among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal

CONFIDENCE = 0.95
MOST_CELLS = 1000
"""Codes times classes above which counting would take long, and say nothing."""
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
    0.500 0.510 0.535
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
    residuals, joint = _residuals(shares), shares.mean(0)
    prior = joint.sum(0)
    # What all classes have in common, the sum over codes of the smallest p(code | class), is a
    # minimum over rules just as A is a maximum, where all classes are equally frequent.
    even = 1 / (classes * prior)
    even, largest = even / even.max(), float(even.max())
    common = -classes * largest * _upper(-joint * even, residuals * even, 1 - confidence)
    return replace(
        empty,
        guess=float(prior.max()),
        counted=float(joint.max(1).sum()),
        accuracy=float(min(_upper(joint, residuals, 1 - confidence), 1.0)),
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


def _upper(table: np.ndarray, residuals: np.ndarray, alpha: float) -> float:
    """The upper bound on the expected share of the best rule; `table` has the means over people.

    For each of a few l the bound of the Bernstein kind, at its worst over all rules; all of them
    hold together, so the smallest counts. The l are doubled from the one that is best for a
    variance of 1/16, above which shares of people seldom vary: one is nearly best for any below.
    """
    people = len(residuals)
    least = min(math.sqrt(32 * math.log(1 / alpha) / people), 0.9)
    steps = least * 2.0 ** np.arange(1 + math.floor(math.log2(0.9 / least)))
    rows = residuals.reshape(people, -1)
    squares = rows.T @ rows / people
    found = []
    for step in steps:
        psi = -math.log1p(-step) - step
        chance = math.log(len(steps) / alpha) / (people * step)
        found.append(_largest(table, squares, psi / step) + chance)
    return min(found)


def _largest(table: np.ndarray, squares: np.ndarray, cost: float) -> float:
    """At least the share of any rule plus `cost` times its mean square (X_i - c_i)^2.

    A rule is a vector u of 1 (a code is read as a class) and -1 (it is not). Its share is linear
    in u and its mean square is u' squares u / 4: both together are a quadratic form in (1, u).
    For any positive diagonal D that form is at most trace(D) times the largest eigenvalue of
    D^-1/2 form D^-1/2. That is exact for the linear part with D = |gain|, and near for the squares
    with D = the root of their diagonal. Three mixtures are tried; each of them is a bound.
    """
    # One class a code is read as: the same may be taken off all classes of a code, and added
    # again. Half way between the two best, the linear part alone picks one class by itself.
    between = np.sort(table, axis=1)[:, -2:].mean(1)
    gain = (table - between[:, None]).ravel()
    spread = np.sqrt(np.diag(squares))
    used = spread > 0
    # Where no person differs from others, the linear part decides.
    fixed = between.sum() + gain.sum() / 2 + np.abs(gain[~used]).sum() / 2
    gain, spread, squares = gain[used], spread[used], squares[np.ix_(used, used)]
    form = np.zeros((len(gain) + 1, len(gain) + 1))
    form[0, 1:] = form[1:, 0] = gain / 4
    form[1:, 1:] = cost * squares / 4
    if not used.any():
        return float(fixed)
    top = cost / 4 * np.linalg.eigvalsh(squares / np.sqrt(np.outer(spread, spread)))[-1]
    found = []
    for part in (1.0, 0.5, 0.25):
        scale = np.concatenate([[np.abs(gain).sum() / 4], np.abs(gain) / 4 + part * top * spread])
        scale = np.maximum(scale, 1e-12)  # all gains, or the cost, may be 0
        value = np.linalg.eigvalsh(form / np.sqrt(np.outer(scale, scale)))[-1]
        found.append(float(scale.sum() * value))
    return float(fixed + min(found))


def _residuals(shares: np.ndarray) -> np.ndarray:
    """Shares less what earlier people of the same classes had: X_i - c_i of each cell.

    Before anybody was seen, the centre lies half way between right and wrong for every rule (that
    is u = 0): it needs no place in the table.
    """
    before = np.cumsum(shares, axis=0) - shares
    usual = before / (1 + before.sum(1, keepdims=True))
    return shares - usual * shares.sum(1, keepdims=True)


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
