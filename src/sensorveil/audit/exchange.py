"""The exchange test: could the best of all attackers be as good by luck?

Under the null hypothesis the output says nothing about an attribute beyond the kept class. Then the
classes could as well be exchanged between people (or, where attackers know the people, between
recordings of one kept class), and every attacker would be as good as before. All attackers and all
numbers of windows are tested together, so that many attackers do not find a leak by luck.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sensorveil.data.windows import UNKNOWN

SHUFFLES = 1999
_MOST_UNITS = 500
_BLOCK = 250
"""Exchanges that are computed at once."""


@dataclass(frozen=True, eq=False)
class Units:
    """What classes are exchanged between.

    Parameters
    ----------
    of_window : array of shape (windows,)
        The unit of each window, or -1 where the class is not known.
    codes, strata : array of shape (units,)
        The class of each unit, and the stratum within which classes are exchanged.
    classes : int
        Number of classes.
    """

    of_window: np.ndarray
    codes: np.ndarray
    strata: np.ndarray
    classes: int

    def __len__(self) -> int:
        return len(self.codes)

    def counts(self, predicted: np.ndarray, window: np.ndarray) -> np.ndarray:
        """Shares (units, classes) of predictions (n,) made of some windows, (n,)."""
        table = np.zeros((len(self), self.classes))
        np.add.at(table, (self.of_window[window], predicted), 1 / max(len(window), 1))
        return table

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sums (units, classes) of values (windows, classes), divided by the number of windows."""
        known = self.of_window >= 0
        table = np.zeros((len(self), self.classes))
        np.add.at(table, self.of_window[known], values[known] / max(known.sum(), 1))
        return table


def exchange_units(
    codes: np.ndarray, member: np.ndarray, strata: np.ndarray, classes: int
) -> Units:
    """Units of windows that have one member (person or recording), class and stratum.

    Members of more than about 500 are taken together, those of one class and stratum, in order.

    Examples
    --------
    >>> units = exchange_units(
    ...     np.array([0, 0, 1, -1]), np.array([5, 5, 7, 9]), np.zeros(4, int), classes=2
    ... )
    >>> units.of_window.tolist(), units.codes.tolist()
    ([0, 0, 1, -1], [0, 1])
    """
    known = codes != UNKNOWN
    rows = np.stack([strata[known], codes[known], member[known]], axis=1)
    found, unit = np.unique(rows, axis=0, return_inverse=True)
    merged = len(found) // _MOST_UNITS + 1
    if merged > 1:
        _, first, kind = np.unique(found[:, :2], axis=0, return_index=True, return_inverse=True)
        blocks = np.stack([kind, (np.arange(len(found)) - first[kind]) // merged], axis=1)
        _, start, again = np.unique(blocks, axis=0, return_index=True, return_inverse=True)
        found, unit = found[start], again[unit]
    of_window = np.full(len(codes), -1)
    of_window[known] = unit
    return Units(of_window, found[:, 1], found[:, 0], classes)


def exchange_p_values(units: Units, tables: np.ndarray) -> np.ndarray:
    """How often the best of all statistics stands out as much under exchanges, for each of them.

    A statistic is the sum over units of the entry of the unit's class. Each is measured in its own
    standard deviations under exchanges, and compared with the largest of all under each exchange
    (the maximum test of Westfall and Young, 1993).

    Parameters
    ----------
    units : Units
        Units and their classes.
    tables : array of shape (statistics, units, classes)
        For example the number of windows of each unit that were predicted as each class.

    Returns
    -------
    array of shape (statistics,)
        P-values, corrected for the number of statistics.

    Examples
    --------
    >>> codes = np.arange(40) % 2
    >>> units = exchange_units(codes, np.arange(40), np.zeros(40, int), classes=2)
    >>> right, constant = (units.counts(one, np.arange(40)) for one in (codes, 0 * codes))
    >>> exchange_p_values(units, np.stack([right, constant])).tolist()
    [0.0005, 1.0]
    """
    count, flat = len(tables), tables.reshape(len(tables), -1).astype(float)
    rng = np.random.default_rng(0)
    places = np.arange(len(units)) * units.classes
    true = flat[:, places + units.codes].sum(1)
    found = np.empty((count, SHUFFLES))
    members = [np.flatnonzero(units.strata == one) for one in np.unique(units.strata)]
    for first in range(0, SHUFFLES, _BLOCK):
        here = slice(first, min(first + _BLOCK, SHUFFLES))
        exchanged = np.tile(units.codes, (here.stop - here.start, 1))
        for own in members:
            exchanged[:, own] = rng.permuted(exchanged[:, own], axis=1)
        chosen = np.zeros((flat.shape[1], len(exchanged)))
        np.put_along_axis(chosen, (places + exchanged).T, 1, axis=0)
        found[:, here] = flat @ chosen
    mean, deviation = found.mean(1), found.std(1)
    varies = deviation > 1e-9
    scale = np.where(varies, deviation, np.inf)
    largest = ((found - mean[:, None]) / scale[:, None]).max(0)
    as_good = (largest >= ((true - mean) / scale)[:, None] - 1e-6).sum(1)
    return np.where(varies, (1 + as_good) / (1 + SHUFFLES), 1.0)
