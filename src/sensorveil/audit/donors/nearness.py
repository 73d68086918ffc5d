"""How near the output lies to training windows, against as many fresh windows of the same people.

An obfuscated window is never compared with windows of its own wearer, since it may be like those for
a good reason. What is left are other people's windows: those that the method was trained on, and as
many that it never saw. An output that repeats training windows is nearer to the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sensorveil.audit.results import Nearness
from sensorveil.audit.threat_models import stacked, thinned, thinned_positions
from sensorveil.data.windows import UNKNOWN, Scaling, Windows, batches
from sensorveil.statistics import Estimate, bootstrap, paired_difference

PLANTED = 0.2
"""The share of the output that the positive control replaces by training windows. About half of the
output is nearer to training windows anyway, so a fifth adds about ten points."""

COPY = 1e-3
"""A copy is this near to a training window, as a share of the usual distance of two of them."""

_POOL = 8_000
"""The most training windows, and the most fresh ones, that output is compared with."""


def nearest(
    windows: Windows, pool: Windows, device: str = "cpu", others: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The position of the nearest window of a pool, and its Euclidean distance, (n,) each.

    Parameters
    ----------
    windows, pool
        In standard units.
    device
        Where distances are computed.
    others
        Whether windows of one's own person are left out. A window without any other has position -1.

    Examples
    --------
    >>> pool = Windows.from_signal(np.array([[[0.0, 0.0]], [[3.0, 4.0]]]))
    >>> where, distance = nearest(Windows.from_signal(np.array([[[0.0, 1.0]]])), pool)
    >>> where.tolist(), distance.tolist()
    ([0], [1.0])
    """
    every, own = pool.on(device), _rows(windows, device)
    persons = [torch.from_numpy(one.subject).to(device) for one in (windows, pool)]
    best = torch.full((len(own),), torch.inf, device=device)
    where = torch.full((len(own),), -1, device=device)
    for part in batches(len(pool), size=2048):
        index = torch.arange(part.start, part.stop, device=device)
        distance = torch.cdist(own, every[index].flatten(1))
        if others:
            distance.masked_fill_(persons[0][:, None] == persons[1][part], torch.inf)
        value, place = distance.min(1)
        nearer = value < best
        best, where = torch.where(nearer, value, best), torch.where(nearer, index[place], where)
    # Products of large matrices round: the distance of the one that was found is taken again.
    exact = [
        (own[rows] - every[where[rows].clamp(min=0)].flatten(1)).norm(dim=1)
        for rows in batches(len(own), size=2048)
    ]
    return where.cpu().numpy(), torch.where(where < 0, torch.inf, torch.cat(exact)).cpu().numpy()


def _rows(windows: Windows, device: str) -> torch.Tensor:
    """All windows as rows, (n, numbers)."""
    return torch.from_numpy(windows.signal).to(device).flatten(1)


def copy_tolerance(windows: Windows, device: str = "cpu") -> float:
    """The distance up to which a window is a copy: `COPY` of the median distance of two windows.

    >>> signal = np.random.default_rng(0).normal(size=(50, 1, 32))
    >>> 0.007 < copy_tolerance(Windows.from_signal(signal)) < 0.009  # of about sqrt(2 * 32)
    True
    """
    rows = _rows(thinned(windows, 500, 0), device)
    pairs = torch.triu_indices(len(rows), len(rows), 1)
    if not pairs.numel():
        return 0.0
    return COPY * float(torch.cdist(rows, rows)[pairs[0], pairs[1]].median())


def count_copies(released: Windows, raw: Windows, trained: Windows, device: str = "cpu") -> int:
    """How many obfuscated windows are training windows.

    One whose raw window is the same training window, as a sensor at rest may give it, does not count.

    Parameters
    ----------
    released, raw
        The obfuscated windows, and what they were made from.
    trained
        All training windows.
    device
        Where distances are computed.

    Examples
    --------
    >>> signal = np.random.default_rng(0).normal(size=(40, 1, 8))
    >>> trained = Windows.from_signal(signal[:20])
    >>> fresh = Windows.from_signal(signal[20:])
    >>> count_copies(trained, fresh, trained), count_copies(fresh, fresh, trained)
    (20, 0)
    """
    scaling = Scaling.of(trained)
    released, raw, trained = (one.standardized(scaling) for one in (released, raw, trained))
    tolerance = copy_tolerance(trained, device)
    where, distance = nearest(released, trained, device)
    copies = np.flatnonzero(distance <= tolerance)
    if not len(copies):
        return 0
    copied, own = trained.batch(where[copies]), raw.batch(copies)
    apart = np.linalg.norm((copied - own).reshape(len(copies), -1), axis=1)
    return int((apart > tolerance).sum())


def matched(
    first: Windows, second: Windows, keep: Sequence[str], most: int = _POOL
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of as many windows of either side, by person and kept class.

    They are taken in runs from as few recordings as will do, since a run of windows that overlap covers
    less than as many windows from everywhere.

    Examples
    --------
    >>> labels = {"activity": np.array([0, 0, 0, 1]), "subject": np.array([0, 0, 0, 1])}
    >>> one = Windows.from_signal(np.zeros((4, 1, 2)), labels)
    >>> [len(side) for side in matched(one, one.select([0, 1]), ["activity"])]
    [2, 2]
    """
    sides = first, second
    rank = np.random.default_rng(0).permutation(max(len(one.recordings) for one in sides))
    groups = [one.joint_codes(["subject", *keep]) for one in sides]
    orders = [np.lexsort([one.start, rank[one.recording]]) for one in sides]
    shared = np.intersect1d(groups[0], groups[1])
    counts = {
        code: min((group == code).sum() for group in groups) for code in shared if code != UNKNOWN
    }
    share = min(1.0, most / max(1, sum(counts.values())))
    found = [
        [
            order[group[order] == code][: int(np.ceil(share * count))]
            for code, count in counts.items()
        ]
        for order, group in zip(orders, groups, strict=True)
    ]
    first_found, second_found = (np.concatenate([np.zeros(0, int), *one]) for one in found)
    return first_found, second_found


def nearness_table(
    released: Windows,
    trained: Windows,
    fresh: Windows,
    keep: Sequence[str],
    device: str = "cpu",
) -> tuple[np.ndarray, int]:
    """How often the nearest window is one that was trained on, by whose window it is.

    Parameters
    ----------
    released
        The output.
    trained, fresh
        Windows that the method learnt from and windows that it did not, of the same people.
    keep
        The kept attributes, within whose classes counts are matched.
    device
        Where distances are computed.

    Returns
    -------
    tuple of array of shape (people, 3, 2) and int
        For the output, for raw training windows, and for the output with planted copies: how often the
        nearest window is a training window of this person, and how often it is any of this person. And
        how many training windows there are to be compared with; 0 if nobody has windows on either side.
    """
    people, (ours, theirs) = len(trained.classes["subject"]), matched(trained, fresh, keep)
    table = np.zeros((people, 3, 2))
    if not len(ours):
        return table, 0
    scaling = Scaling.of(trained)
    mixed = np.random.default_rng(3).permutation(2 * len(ours))  # so that ties go either way
    pool = stacked_pools(trained.select(ours), fresh.select(theirs)).select(mixed)
    is_trained, pool = mixed < len(ours), pool.standardized(scaling)
    raw = thinned(trained, len(released), 1)
    sides = [released, raw, with_planted(released, trained.select(ours))]
    for number, side in enumerate(sides):
        where, _ = nearest(side.standardized(scaling), pool, device, others=True)
        where = where[where >= 0]
        counted = np.stack([is_trained[where], np.ones(len(where))], axis=1)
        np.add.at(table[:, number], pool.subject[where], counted)
    return table, len(ours)


def stacked_pools(first: Windows, second: Windows) -> Windows:
    """Two parts of one dataset, one after the other."""
    return stacked([first.compact().recorded, second.compact().recorded])


def with_planted(released: Windows, trained: Windows) -> Windows:
    """The output, of which a share is replaced by windows that were trained on."""
    rng = np.random.default_rng(2)
    places = thinned_positions(len(released), int(PLANTED * len(released)), 2)
    signal = released.recorded.signal
    signal[places] = trained.recorded.batch(rng.integers(len(trained), size=len(places)))
    return released.replaced(signal)


def nearness_of(tables: Sequence[tuple[np.ndarray, int]], outputs: int, copies: int) -> Nearness:
    """What the tables of one or more models say; the people whose windows are nearest are drawn.

    Models come in pairs, each trained on what the other was not. So training windows and fresh ones are
    the same, and by luck the share of both together is one half. That of one model need not be: its
    test can be of other days, or of other recordings. It is compared with the share of raw windows.

    >>> table = np.tile([[60, 100], [50, 100], [70, 100]], (20, 1, 1))
    >>> found = nearness_of([(table, 500)], outputs=2000, copies=0)
    >>> found.nearer.value, round(found.excess.value, 2), round(found.control.value, 2)
    (0.6, 0.1, 0.2)
    """
    compared = [windows for _, windows in tables if windows]
    if not compared:
        return Nearness(outputs, copies)
    stack = np.stack([table for table, _ in tables])
    stack = stack[:, stack[..., 1].sum((0, 2)) > 0]  # people with a window among the nearest

    def share(number: int) -> Estimate:
        return bootstrap(stack, lambda table: _share(table, number))

    def excess(number: int) -> Estimate:
        if len(tables) > 1:
            return share(number).above(0.5)
        return bootstrap(stack, lambda table: _share(table, number) - _share(table, 1))

    windows, luck = int(np.mean(compared)), _luck(stack[:, :, 0].sum(0))
    return Nearness(outputs, copies, windows, share(0), excess(0), excess(2), luck)


def _luck(counts: np.ndarray) -> float:
    """How often it is as far from one half if each person's two sides are exchanged; (people, 2)."""
    if len(counts) < 2:
        return 1.0
    trained, fresh = (
        {str(person): float(count) for person, count in enumerate(side)}
        for side in (counts[:, 0], counts[:, 1] - counts[:, 0])
    )
    return paired_difference(trained, fresh).p_value


def _share(table: np.ndarray, number: int) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.asarray(table[..., number, 0] / table[..., number, 1])
