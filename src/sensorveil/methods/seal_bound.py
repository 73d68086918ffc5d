"""Seal's counted bound: how often an attacker is right who sees one output window.

The output is made from a discrete code and noise alone. So an attacker who sees one output window
and knows how often each code occurs in each class, but nothing else about the wearer, is right in
at most a share

    A = sum over codes of max over classes of p(code, class)

of the windows. A is the posterior Bayes vulnerability of the class (Smith 2009; Alvim et al. 2020).
The prior vulnerability is the share of the most frequent class: it needs no window.

A is unknown. It is counted on n people who took no part in training. With confidence 1 - alpha,

    A <= best share of any rule in the sample + sqrt(ln(1 / alpha) / (2 n)).

Proof. A rule f predicts a class from a code, and X_i(f) is the share of the windows of person i in
which it is right. Let f* be the rule that is best for the population, so A = E X_i(f*). An
attacker on the output mixes such rules at random, and is right no more often.

1. Codes and f* do not depend on the sample: the encoder was trained on other people. So X_1(f*),
   ..., X_n(f*) are independent numbers in [0, 1].
2. By Hoeffding's inequality (1963), A <= mean of X_i(f*) + sqrt(ln(1 / alpha) / (2 n)) in all but a
   share alpha of samples.
3. The rule that is best in the sample has at least the share of f* there.

A person is one number, so their windows may depend on each other in any way. The number of codes
does not matter: many codes on few people make the best share large, never too small. People may
also be chosen by their class, as long as they are independent within it: then A is the mean of
E X_i(f*) over the n people, and the inequality is the same.

References
----------
Alvim et al., The Science of Quantitative Information Flow, 2020.
Hoeffding, Probability Inequalities for Sums of Bounded Random Variables, JASA 1963.
Smith, On the Foundations of Quantitative Information Flow, FoSSaCS 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal

CONFIDENCE = 0.95
NOT_COVERED = (
    "The bound does not cover more windows of a person together than it names, an attacker with"
    " side information about the person (such as their age, or other windows known to be theirs),"
    " the most exposed person (it is a mean over people), or what the number, the times and the"
    " lengths of released windows tell."
)
"""What no `Bound` covers; it stands wherever `Bound.sentence` stands."""


@dataclass(frozen=True)
class Bound:
    """An upper confidence bound on the posterior Bayes vulnerability of one attribute.

    Parameters
    ----------
    attribute
        Name of the attribute.
    people, codes
        Number of people that were counted, and of different codes among them.
    guess
        Prior vulnerability among these people: the share of the most frequent class, each person
        counting alike. It is the majority baseline.
    counted
        Share of the best rule on the very people that were counted.
    accuracy
        Upper bound on the share of any rule for people like them.
    confidence
        `accuracy` holds with this confidence.
    windows
        Number of consecutive windows of a recording that the attacker sees at once.

    Examples
    --------
    >>> bound = Bound("gender", 500, 9, 0.5, 0.505, 0.5597)
    >>> print(f"{bound.advantage:.4f} {bound.rounded_up}")
    0.0597 0.56
    """

    attribute: str
    people: int
    codes: int
    guess: float
    counted: float
    accuracy: float
    confidence: float = CONFIDENCE
    windows: int = 1

    @property
    def advantage(self) -> float:
        """Upper bound on accuracy above the majority baseline."""
        return self.accuracy - self.guess

    @property
    def vacuous(self) -> bool:
        """Whether the bound says nothing."""
        return self.accuracy >= 1

    @property
    def rounded_up(self) -> float:
        """The accuracy for people to read, in tenths of a percent: never below what was proved."""
        return math.ceil(1000 * self.accuracy - 1e-9) / 1000

    def sentence(self) -> str:
        """The promise in one sentence, or that there is none.

        >>> print(Bound("gender", 6, 84, 0.5, 0.9, 1.0).sentence())
        The bound on gender is vacuous: 6 people with 84 codes allow none below 100%.
        """
        if self.vacuous:
            return (
                f"The bound on {self.attribute} is vacuous: {self.people} people with {self.codes}"
                " codes allow none below 100%."
            )
        seen, each = "one output window", "windows"
        if self.windows > 1:
            seen, each = f"{self.windows} consecutive output windows", "cases"
        return (
            f"With {100 * self.confidence:g}% confidence for {self.attribute} alone, an attacker who"
            f" sees {seen} and knows how often each code occurs in each class, but nothing else about"
            f" the wearer, predicts {self.attribute} right in at most {self.rounded_up:.1%} of {each}"
            " on average, with any amount of computing, for wearers drawn independently like the"
            f" {self.people} people counted, none of whom took part in training, each person counting"
            f" alike; always predicting the most frequent class is right in {self.guess:.1%}."
        )


def bound_code(
    codes: np.ndarray,
    labels: np.ndarray,
    person: np.ndarray,
    attribute: str = "attribute",
    confidence: float = CONFIDENCE,
    windows: int = 1,
) -> Bound:
    """The bound on an attribute, counted on people held out of training.

    Windows of unknown class do not count. Where classes have fewer than two people on average
    (identity), other people are of other classes, counting says nothing of them, and the bound is
    vacuous.

    Parameters
    ----------
    codes, labels, person
        Code, class and person of each window, (n,) integers.
    attribute
        Name for messages.
    confidence
        Between 0 and 1; default 0.95.
    windows
        Number of windows behind each code, where codes are those of `sequence_codes`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> person = np.repeat(np.arange(200), 50)
    >>> bound = bound_code(rng.integers(3, size=10000), person % 2, person)
    >>> print(f"{bound.guess:.3f} {bound.counted:.3f} {bound.accuracy:.3f}")
    0.500 0.509 0.596
    """
    if not 0 < confidence < 1:
        raise Refusal(f"the confidence is {confidence}; it must lie between 0 and 1")
    known = labels != UNKNOWN
    if not known.any():
        raise Refusal(f"the class of '{attribute}' is known of no window: nothing can be counted")
    (who, number), (code_values, code), (classes, label) = (
        np.unique(values[known], return_inverse=True) for values in (person, codes, labels)
    )
    people, shape = len(who), (len(code_values), len(classes))
    weight = 1 / (people * np.bincount(number)[number])  # each person alike, and each window of one
    cells = np.ravel_multi_index((code, label), shape)
    joint = np.bincount(cells, weight, math.prod(shape)).reshape(shape)  # (codes, classes)
    counted = float(joint.max(1).sum())
    accuracy = counted + math.sqrt(-math.log(1 - confidence) / (2 * people))
    if 2 * len(classes) > people:
        accuracy = 1.0
    return Bound(
        attribute,
        people,
        len(code_values),
        guess=float(joint.sum(0).max()),
        counted=counted,
        accuracy=min(accuracy, 1.0),
        confidence=confidence,
        windows=windows,
    )


def combine_bounds(bounds: Sequence[Bound]) -> Bound:
    """One bound for several groups of people who were counted with encoders of their own.

    All of n bounds must hold at once, so each needs the confidence 1 - 0.05 / n for 95% together
    (Bonferroni). All people count alike.
    """
    if len(bounds) == 1:
        return bounds[0]
    people = np.array([bound.people for bound in bounds])
    figures = np.array([(bound.guess, bound.counted, bound.accuracy) for bound in bounds])
    guess, counted, accuracy = map(float, people @ figures / people.sum())
    return replace(
        bounds[0],
        people=int(people.sum()),
        codes=max(bound.codes for bound in bounds),
        guess=guess,
        counted=counted,
        accuracy=accuracy,
        confidence=1 - sum(1 - bound.confidence for bound in bounds),
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
