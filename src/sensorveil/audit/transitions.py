"""Transitions: when an application notices that the class has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sensorveil.audit.results import Transitions, TransitionsSeen
from sensorveil.data.windows import UNKNOWN, Windows


@dataclass(frozen=True)
class Followed:
    """How predictions follow the class through recordings of more than one class.

    Parameters
    ----------
    true, predicted : array of shape (recordings,)
        How often the true and the predicted class change.
    delays : array of shape (true changes,)
        Seconds between a change and the predicted change to the same class, early or late; NaN
        where none is predicted.
    """

    true: np.ndarray
    predicted: np.ndarray
    delays: np.ndarray


def follow(windows: Windows, attribute: str, predicted: np.ndarray) -> Followed:
    """Compares changes of the true class with those of a predicted one.

    A change is noticed if the class is predicted anew between the true change before it and the one
    after it. Of several, the nearest counts.

    Parameters
    ----------
    windows
        Windows in any order; those of unknown class are passed over.
    attribute
        The attribute that is predicted.
    predicted
        The predicted class of each window.

    Examples
    --------
    >>> from dataclasses import replace
    >>> windows = Windows.from_signal(np.zeros((6, 1, 4)), {"activity": [0, 0, 0, 1, 1, 1]})
    >>> windows = replace(windows, recording=np.zeros(6, int), start=4 * np.arange(6))
    >>> found = follow(windows, "activity", np.array([0, 0, 0, 0, 1, 1]))
    >>> found.true, found.predicted, found.delays
    (array([1]), array([1]), array([4.]))
    """
    codes = windows.codes(attribute)
    counts, delays = [], []
    for number in np.unique(windows.recording):
        mine = np.flatnonzero((windows.recording == number) & (codes != UNKNOWN))
        mine = mine[np.argsort(windows.start[mine], kind="stable")]
        true, seen = codes[mine], predicted[mine]
        changes, seen_changes = (np.flatnonzero(np.diff(one)) + 1 for one in (true, seen))
        if not len(changes):
            continue
        counts.append((len(changes), len(seen_changes)))
        seconds = windows.start[mine] / windows.sample_rate
        for before, now, after in zip(
            [0, *changes[:-1]], changes, [*changes[1:], len(mine)], strict=True
        ):
            same = seen_changes[seen[seen_changes] == true[now]]
            near = same[(same > before) & (same < after)]
            delays.append(np.abs(seconds[near] - seconds[now]).min() if len(near) else np.nan)
    table = np.array(counts, int).reshape(-1, 2)
    return Followed(table[:, 0], table[:, 1], np.array(delays))


def transitions(raw: Sequence[Followed], unchanged: Sequence[Followed]) -> Transitions | None:
    """Transitions of all applications, folds and seeds together.

    Parameters
    ----------
    raw, unchanged
        How unchanged applications follow the class on raw and on obfuscated windows.

    Returns
    -------
    Transitions or None
        None if every recording has one class.

    Examples
    --------
    >>> one = Followed(np.array([4]), np.array([5]), np.array([0.0, 1.0, 2.0, np.nan]))
    >>> transitions([one], [one]).unchanged
    TransitionsSeen(changes=5.0, noticed=0.75, delay=1.0)
    """
    true = np.concatenate([one.true for one in raw])
    if not len(true):
        return None
    return Transitions(float(true.mean()), _seen(raw), _seen(unchanged))


def _seen(found: Sequence[Followed]) -> TransitionsSeen:
    delays = np.concatenate([one.delays for one in found])
    known = delays[~np.isnan(delays)]
    return TransitionsSeen(
        changes=float(np.concatenate([one.predicted for one in found]).mean()),
        noticed=len(known) / len(delays),
        delay=float(np.median(known)) if len(known) else None,
    )
