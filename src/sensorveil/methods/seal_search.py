"""Seal's search for the numbers of bins: what an attacker who counts codes gains, and what is kept.

More bins keep more of the movement, and may tell more. The search looks at single windows;
sessions are for the audit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from sensorveil.data.signal_features import within_correlation
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.seal_code import Encoder, Movement
from sensorveil.progress import track

POOL_SHARE = 0.75
"""The share of people who are donors; the others are obfuscated."""


@dataclass(frozen=True)
class Candidate:
    """Numbers of bins, with the cost and the benefit of their code."""

    bins: tuple[int, ...]
    """Of each feature."""
    advantages: dict[str, float]
    """By hidden attribute: what an attacker who counts codes gains on people it did not count."""
    kept: tuple[float, ...]
    """Of each feature, the correlation within recordings between windows and donors' windows of
    their code."""


def try_bins(
    windows: Windows,
    movement: Movement,
    unseen: Movement,
    donors: np.ndarray,
    num_classes: int,
    hide: Sequence[str],
    max_bins: Sequence[int],
    rng: np.random.Generator,
) -> list[Candidate]:
    """A candidate for each of 1, 3, 5, ... bins up to `max_bins`, smaller codes first.

    `movement` is that of the training windows with the true class, `unseen` that with the class
    by classifiers that do not know the person. A wearer may be known to the classifier or not: the
    larger advantage counts. `donors` are the windows that may be emitted (`donor_mask`).
    """
    people = rng.permutation(np.unique(windows.subject))
    pooled = np.isin(windows.subject, people[: max(1, round(POOL_SHARE * len(people)))])
    pool, others = np.flatnonzero(pooled & donors), np.flatnonzero(~pooled)
    sizes = product(*(range(1, most + 1, 2) for most in max_bins))
    found = []
    for bins in track(sorted(sizes, key=lambda one: (math.prod(one), one)), "codes"):
        encoder = Encoder(bins).fit(movement.select(donors), num_classes)
        known_codes, codes = encoder.encode(movement), encoder.encode(unseen)
        advantages = {
            name: max(_advantage(one, windows, name) for one in (known_codes, codes))
            for name in hide
        }
        kept = _kept(encoder, movement, codes, pool, others, windows.recording, rng)
        found.append(Candidate(bins, advantages, kept))
    return found


def choose_candidate(candidates: Sequence[Candidate], max_advantage: float) -> Candidate:
    """The candidate that keeps most within the limit, the one with fewer bins among equals."""
    allowed = [one for one in candidates if max(one.advantages.values()) <= max_advantage]
    if not allowed:
        least = min(candidates, key=lambda one: max(one.advantages.values()))
        name = max(least.advantages, key=lambda name: least.advantages[name])
        raise Refusal(
            f"no code has an advantage of at most {100 * max_advantage:.1f} points: the safest,"
            f" {' x '.join(map(str, least.bins)) or 'no'} bins, has"
            f" {100 * least.advantages[name]:.1f} for '{name}'; raise max_advantage, or set"
            " rank_reference=recording"
        )
    return max(allowed, key=lambda one: round(sum(one.kept) / max(1, len(one.kept)), 3))


def _advantage(codes: np.ndarray, windows: Windows, name: str) -> float:
    """On people not counted, or, where people are the classes, on the other half of each."""
    people = len(np.unique(windows.subject))
    if 2 * len(np.unique(windows.codes(name))) <= people:
        fold = people_folds(windows.subject)
    else:  # half of each recording, or of a person's clips where each clip is a recording
        clips = len(np.unique(windows.recording)) == len(windows)
        fold = half_folds(windows.subject if clips else windows.recording, windows.start)
    return counted_advantage(codes, windows.codes(name), windows.subject, fold)


def _kept(
    encoder: Encoder,
    movement: Movement,
    codes: np.ndarray,
    pool: np.ndarray,
    others: np.ndarray,
    recording: np.ndarray,
    rng: np.random.Generator,
) -> tuple[float, ...]:
    """Correlations of each feature, with donors drawn as the pool draws them."""
    donor_codes = encoder.donor_codes(movement)[pool]
    pool = pool[np.argsort(donor_codes, kind="stable")]
    numbers = np.bincount(donor_codes, minlength=encoder.count)
    wanted = encoder.nearest(numbers > 0)[codes[others]]
    first = np.cumsum(numbers) - numbers
    drawn = pool[first[wanted] + rng.integers(numbers[wanted])]
    before, after = np.exp(movement.values[others]), np.exp(movement.values[drawn])
    return tuple(
        within_correlation(before[:, which], after[:, which], recording[others]) or 0.0
        for which in range(before.shape[1])
    )


def counted_advantage(
    codes: np.ndarray, labels: np.ndarray, person: np.ndarray, fold: np.ndarray
) -> float:
    """Cross-validated advantage over the majority baseline of an attacker who counts codes.

    `fold` numbers the windows that are held out together: the attacker counts codes and classes of
    all other folds and predicts the likeliest class. Each person counts alike; windows of unknown
    class do not count.

    >>> person = np.repeat(np.arange(20), 10)
    >>> round(counted_advantage(person % 2, person % 2, person, people_folds(person)), 9)
    0.5
    """
    known = labels != UNKNOWN
    fold = fold[known]
    _, code = np.unique(codes[known], return_inverse=True)
    _, label = np.unique(labels[known], return_inverse=True)
    _, who, windows = np.unique(person[known], return_inverse=True, return_counts=True)
    weight = 1 / (windows[who] * len(windows))
    share = np.bincount(label, weight)
    right = 0.0
    for held in np.unique(fold):
        other, here = fold != held, fold == held
        joint = np.zeros((code.max() + 1, len(share)))
        np.add.at(joint, (code[other], label[other]), weight[other])
        # Where other folds have more of a class, this one has less: that must not mislead.
        joint *= share / np.maximum(joint.sum(0), 1e-12)
        joint += 1e-9 * share  # a code that was never seen: the majority class
        right += float(weight[here] @ (joint.argmax(1)[code[here]] == label[here]))
    return right - float(share.max())


def people_folds(person: np.ndarray, folds: int = 5, seed: int = 0) -> np.ndarray:
    """The fold of each window; people are dealt to folds at random.

    >>> people_folds(np.array([7, 7, 9]), 2)
    array([0, 0, 1])
    """
    people, who = np.unique(person, return_inverse=True)
    return np.random.default_rng(seed).permutation(len(people))[who] % folds


def half_folds(recording: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Whether each window lies in the first (0) or the second half (1) of its recording.

    >>> half_folds(np.array([0, 0, 1, 1]), np.array([0, 10, 50, 90]))
    array([0, 1, 0, 1])
    """
    half = np.empty(len(start), int)
    for one in np.unique(recording):
        rows = np.flatnonzero(recording == one)
        rows = rows[np.argsort(start[rows], kind="stable")]
        half[rows] = np.arange(len(rows)) >= len(rows) / 2
    return half
