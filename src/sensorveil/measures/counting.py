"""An attacker who counts: what each code says about people whom it never counted."""

from __future__ import annotations

import numpy as np

from sensorveil.data.windows import UNKNOWN


def counted_advantage(
    codes: np.ndarray, labels: np.ndarray, person: np.ndarray, fold: np.ndarray
) -> float:
    """How much better than guessing one reads an attribute from codes that others had.

    `fold` says which windows are held out together: the attacker counts codes and classes of all
    other folds and names the likeliest class. Each person counts alike, and windows of unknown
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
        # Where others have more of a class, these have less: that must not lead astray.
        joint *= share / np.maximum(joint.sum(0), 1e-12)
        joint += 1e-9 * share  # a code that was never seen says what is said of all
        right += float(weight[here] @ (joint.argmax(1)[code[here]] == label[here]))
    return right - float(share.max())


def people_folds(person: np.ndarray, folds: int = 5, seed: int = 0) -> np.ndarray:
    """People dealt to folds at random: the fold of each window.

    >>> people_folds(np.array([7, 7, 9]), 2)
    array([0, 0, 1])
    """
    _, who = np.unique(person, return_inverse=True)
    return np.random.default_rng(seed).permutation(who.max() + 1)[who] % folds


def half_folds(recording: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The first or second half of its recording that each window is in.

    >>> half_folds(np.array([0, 0, 1, 1]), np.array([0, 10, 50, 90]))
    array([0, 1, 0, 1])
    """
    _, which, sizes = np.unique(recording, return_inverse=True, return_counts=True)
    order = np.lexsort([start, which])
    place = np.empty(len(order), int)
    place[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return (place >= sizes[which] / 2).astype(int)
