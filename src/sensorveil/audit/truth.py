"""The true classes of the windows that are attacked, and what is known of them beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sensorveil.audit.exchange import Units, exchange_units
from sensorveil.audit.threat_models import Fold, Looks
from sensorveil.data.windows import UNKNOWN, Windows

_NEVER = 50.0
"""The log prior of a class that does not occur in training: scores minus it are never largest."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The test windows' true classes, and where each lies."""

    codes: np.ndarray
    person: np.ndarray
    recording: np.ndarray
    start: np.ndarray
    classes: int
    log_prior: np.ndarray
    """Log shares of the classes in the training windows of each test window's own fold."""
    fold: np.ndarray
    """The fold of each window; each fold has attackers of its own."""
    kept: np.ndarray
    """The kept class of each window, as one number."""
    unseen_people: bool = True
    """Whether attackers meet the people for the first time."""
    same_window: np.ndarray | None = None
    """For output of the same windows again: the number of each one's window."""

    def units(self) -> Units:
        """What classes are exchanged between.

        Between people, where attackers have never met them. Where they have, between recordings
        of one kept class: an attacker who recognises a person is no luck.
        """
        if self.unseen_people:
            return exchange_units(self.codes, self.person, self.fold, self.classes)
        kept = _most_frequent(self.recording, self.kept)
        strata = self.fold * (kept.max() + 2) + kept
        return exchange_units(self.codes, self.recording, strata, self.classes)


def _most_frequent(group: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The most frequent code of each window's group, from 0."""
    codes = codes - min(codes.min(initial=0), 0)
    _, index = np.unique(group, return_inverse=True)
    counts = np.zeros((index.max(initial=0) + 1, codes.max(initial=0) + 1), int)
    np.add.at(counts, (index, codes), 1)
    return np.asarray(counts.argmax(1)[index])


def truth(folds: Sequence[Fold], name: str) -> Truth:
    """The true classes of all folds' test windows."""
    tests = [fold.split.test for fold in folds]
    num_classes = len(tests[0].classes[name])
    priors = [
        np.tile(log_prior(fold.split.train.codes(name), num_classes), (len(fold.split.test), 1))
        for fold in folds
    ]
    keep = folds[0].policy.keep
    return Truth(
        codes=pooled_codes(folds, name),
        person=np.concatenate([test.subject for test in tests]),
        recording=np.concatenate([test.recording for test in tests]),
        start=np.concatenate([test.start for test in tests]),
        classes=num_classes,
        log_prior=np.concatenate(priors),
        fold=np.repeat(np.arange(len(tests)), [len(test) for test in tests]),
        kept=np.concatenate([test.joint_codes(keep) for test in tests]),
        unseen_people=all(fold.unseen_people for fold in folds),
    )


def looks_truth(
    whole: Truth, folds: Sequence[Fold], looks: Sequence[Looks], name: str
) -> tuple[Truth, np.ndarray]:
    """The truth about windows that were obfuscated again, and their positions in the whole test."""
    sizes = np.cumsum([0, *(len(fold.split.test) for fold in folds)])
    positions = np.concatenate(
        [
            np.tile(one.positions, len(one.test) // len(one.positions)) + size
            for one, size in zip(looks, sizes, strict=False)
        ]
    )
    rows = {
        field: value[positions]
        for field, value in vars(whole).items()
        if isinstance(value, np.ndarray)
    }
    draws = np.concatenate([one.test.start for one in looks])
    again = replace(whole, **{**rows, "start": draws, "same_window": positions})
    return again, positions


def pooled_codes(folds: Sequence[Fold], name: str) -> np.ndarray:
    """The classes of the test windows of all folds."""
    return np.concatenate([fold.split.test.codes(name) for fold in folds])


def largest_share(codes: np.ndarray) -> float:
    """The share of the most frequent class."""
    known = codes[codes != UNKNOWN]
    return float(np.bincount(known).max() / len(known))


def log_prior(codes: np.ndarray, num_classes: int) -> np.ndarray:
    """Log shares of the classes; 50 for a class that does not occur, so that it never wins."""
    counts = np.bincount(codes[codes != UNKNOWN], minlength=num_classes).astype(float)
    return np.where(counts > 0, np.log(np.maximum(counts, 1) / counts.sum()), _NEVER)


def kept_prior(learnt: Windows, windows: Windows, name: str, keep: Sequence[str]) -> np.ndarray:
    """Log shares (n, classes) of an attribute among learnt windows of each window's kept class.

    The shares of all windows count as one more window of each kept class, so that a kept class that
    hardly occurs has nearly those.
    """
    codes, num_classes = learnt.codes(name), len(learnt.classes[name])
    overall = log_prior(codes, num_classes)
    shares = np.where(overall > 0, 0, np.exp(np.minimum(overall, 0)))
    known = codes != UNKNOWN
    learnt_kept, kept = (part.joint_codes(keep) for part in (learnt, windows))
    found = np.tile(overall, (len(windows), 1))
    for kept_class in np.unique(kept[kept >= 0]):
        of_class = codes[known & (learnt_kept == kept_class)]
        counts = np.bincount(of_class, minlength=num_classes) + shares
        with np.errstate(divide="ignore"):
            logs = np.log(counts / counts.sum())
        found[kept == kept_class] = np.where(shares > 0, logs, _NEVER)
    return found
