"""Probes of a condition: how well a linear classifier predicts an attribute from it."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.methods.base import ConditionProbe

_MIN_UNITS = 4
"""People or recordings that it takes to hold some out, and to divide those again."""
_SHRINKAGE = 0.01
"""Half of this times the squared weights is added to the mean cross-entropy."""


def held_out_people(windows: Windows, attribute: str, seed: int) -> np.ndarray | None:
    """A mask of the windows of half of the people, and of half of each class of the attribute.

    Where there are fewer than four people, recordings take their place; None where these are too
    few as well.

    >>> labels = {"subject": [0, 0, 1, 2, 3], "gender": [0, 0, 0, 1, 1]}
    >>> windows = Windows.from_signal(np.zeros((5, 1, 4)), labels)
    >>> held = held_out_people(windows, "gender", seed=0)
    >>> [len(np.unique(windows.select(held).labels[name])) for name in ("subject", "gender")]
    [2, 2]
    """
    for unit in (windows.subject, windows.recording):
        units, first, place = np.unique(unit, return_index=True, return_inverse=True)
        if len(units) >= _MIN_UNITS:
            random = np.random.default_rng(seed).random(len(units))
            order = np.lexsort([random, windows.codes(attribute)[first]])
            held = np.zeros(len(units), bool)
            held[order[::2]] = True
            return held[place]
    return None


def probe_attribute(
    condition: np.ndarray, kept: np.ndarray, windows: Windows, attribute: str, source: str
) -> ConditionProbe | None:
    """Predict an attribute from the condition, and from the kept class alone.

    The probe is linear within each kept class: a direction that betrays a walker need not betray a
    runner. It is trained on every second recording and tested on the others, and the other way
    round, as an attacker has labelled recordings of the very people.

    Parameters
    ----------
    condition
        Condition of each window, (n, size).
    kept
        Number of the kept class that the condition stands for, (n,).
    windows
        Labels and recordings.
    attribute
        The attribute to predict.
    source
        Name of the condition, for the result.

    Returns
    -------
    ConditionProbe or None
        None where a half has one class only.
    """
    labels = windows.codes(attribute)
    known = labels != UNKNOWN
    every_second = np.unique(windows.recording, return_inverse=True)[1] % 2 == 0
    halves = [known & every_second, known & ~every_second]
    if min(len(np.unique(labels[half])) for half in halves) < 2:
        return None
    one_hot = np.eye(int(kept.max()) + 1, dtype=np.float32)[kept]
    within = (one_hot[:, :, None] * condition[:, None, :]).reshape(len(condition), -1)
    total = int(known.sum())

    def accuracy(features: np.ndarray) -> float:
        right = 0
        for train, test in (halves, halves[::-1]):
            classifier = make_pipeline(
                StandardScaler(), LogisticRegression(C=1 / (_SHRINKAGE * train.sum()), max_iter=300)
            )
            classifier.fit(features[train], labels[train])
            right += int((classifier.predict(features[test]) == labels[test]).sum())
        return right / total

    return ConditionProbe(
        attribute,
        source,
        accuracy=accuracy(np.concatenate([one_hot, within], 1)),
        class_alone=accuracy(one_hot),
        majority=float(np.bincount(labels[known]).max() / total),
        people=len(np.unique(windows.subject)),
        windows=len(windows),
    )


def probe_condition(
    condition: np.ndarray, kept: np.ndarray, windows: Windows, keep: tuple[str, ...], source: str
) -> tuple[ConditionProbe, ...]:
    """`probe_attribute` for each attribute that is not kept and can be predicted."""
    found = (
        probe_attribute(condition, kept, windows, name, source)
        for name in windows.attributes
        if name not in keep
    )
    return tuple(one for one in found if one)
