"""Nearness to training windows: distances, matched counts, copies, and known truths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from sensorveil.audit.donors.nearness import (
    copy_tolerance,
    count_copies,
    matched,
    nearest,
    nearness_of,
    nearness_table,
)
from sensorveil.data.windows import Windows

PEOPLE = 12


def drawn(count: int, seed: int, size: int = 16) -> Windows:
    """Windows of several people, all drawn alike, in two classes and recordings of ten."""
    rng = np.random.default_rng(seed)
    person, activity = np.arange(count) % PEOPLE, np.arange(count) // PEOPLE % 2
    labels = {"activity": activity, "subject": person}
    return Windows.from_signal(rng.normal(size=(count, 2, size)), labels)


@pytest.mark.parametrize("others", [False, True])
def test_nearest_against_scipy(others: bool) -> None:
    """In several batches; a person whose windows are the only ones has none to be compared with."""
    windows, pool = drawn(40, 0, 4), drawn(5000, 1, 4)
    pool = replace(pool, labels={**pool.labels, "subject": np.minimum(pool.subject, 5)})
    distance = cdist(windows.signal.reshape(40, -1), pool.signal.reshape(5000, -1))
    if others:
        distance[windows.subject[:, None] == pool.subject] = np.inf
    where, found = nearest(windows, pool, others=others)
    np.testing.assert_array_equal(where, distance.argmin(1))
    np.testing.assert_allclose(found, distance.min(1), rtol=1e-5)
    alone = windows.select(windows.subject == 3)
    lonely = pool.select(pool.subject == 3)
    assert (nearest(alone, lonely, others=True)[0] == -1).all()


def test_counts_are_matched_by_person_and_class_in_runs() -> None:
    """Windows of one long recording, and not some of each; unknown classes are left out."""
    first, second = drawn(960, 0), drawn(240, 1)
    recording = np.arange(960) // 240
    first = replace(first, recording=recording, recordings=("a", "b", "c", "d"))
    first = replace(first, start=np.arange(960) % 240)
    unknown = np.where(second.subject == 0, -1, second.labels["activity"])
    second = replace(second, labels={**second.labels, "activity": unknown})
    ours, theirs = matched(first, second, ["activity"])
    kinds = [
        np.unique(one.joint_codes(["subject", "activity"]), return_counts=True)
        for one in (first.select(ours), second.select(theirs))
    ]
    for left, right in zip(*kinds, strict=True):
        np.testing.assert_array_equal(left, right)
    assert len(theirs) == (second.subject != 0).sum()
    assert 0 not in first.subject[ours]
    assert len(np.unique(first.recording[ours])) == 1
    assert len(matched(first, second, ["activity"], most=50)[0]) < 100


def test_copies_are_counted_and_nothing_else() -> None:
    """Complex windows too, rounded, near ones not; a copy of what a raw window was is none."""
    rng, trained, raw = np.random.default_rng(0), drawn(300, 0), drawn(100, 1)
    for factor in (1.0, 1 + 0.5j):
        seen, before = (one.replaced(1000 + 50 * factor * one.signal) for one in (trained, raw))
        signal = before.signal
        signal[:30] = seen.batch(np.arange(30)) * (1 + 1e-7)
        signal[30:60] = seen.batch(np.arange(30)) + rng.normal(size=signal[:30].shape)
        assert count_copies(before.replaced(signal), before, seen) == 30
        rest = before.signal
        rest[:10] = seen.batch(np.arange(10))
        assert count_copies(before.replaced(signal), before.replaced(rest), seen) == 20
    assert copy_tolerance(trained.select([0])) == 0.0


def share_of(released: Windows, trained: Windows, fresh: Windows):
    table = nearness_table(released, trained, fresh, ["activity"])
    return nearness_of([table], len(released), copies=0)


def test_fresh_output_is_not_nearer_and_copies_are() -> None:
    """Output that is drawn like both sides, and output of which half repeats training windows."""
    trained, fresh, released = drawn(480, 0), drawn(480, 1), drawn(600, 2)
    found = share_of(released, trained, fresh)
    assert found.windows == 480
    assert found.nearer.low < 0.5 < found.nearer.high
    assert found.excess.low < 0 < found.excess.high
    assert found.control.low > 0.02
    assert found.p_value > 0.05
    # A copy of another person's window is nearer for sure; 1 of 12 has no window of another person.
    signal = released.signal
    rng = np.random.default_rng(3)
    signal[::2] = trained.batch(rng.integers(480, size=300)) + 0.05 * rng.normal(size=(300, 2, 16))
    copying = share_of(released.replaced(signal), trained, fresh)
    assert copying.nearer.value == pytest.approx(0.5 + 0.25 * 11 / 12, abs=0.06)
    assert copying.excess.low > 0.1
    assert copying.p_value < 0.005


def test_other_days_are_no_leak() -> None:
    """All windows of the test are shifted: output like training windows is nearer without any leak."""
    trained, released = drawn(480, 0), drawn(600, 2)
    fresh = drawn(480, 1)
    fresh = fresh.replaced(fresh.signal + 0.4)
    found = share_of(released, trained, fresh)
    assert found.nearer.low > 0.6
    assert found.excess.low < 0.02


def test_two_models_have_one_half_by_luck() -> None:
    """Each is trained on what the other was not, so that the luck of the pool cancels."""
    both, released = drawn(480, 0), [drawn(300, seed) for seed in (2, 3)]
    shifted = both.signal
    shifted[:240] += 0.5
    both = both.replaced(shifted)
    halves = both.select(slice(0, 240)), both.select(slice(240, 480))
    tables = [
        nearness_table(one, *sides, ["activity"])
        for one, sides in zip(released, (halves, halves[::-1]), strict=True)
    ]
    assert abs(nearness_of(tables[:1], 300, 0).nearer.value - 0.5) > 0.1
    found = nearness_of(tables, 300, 0)
    assert abs(found.nearer.value - 0.5) < 0.04
    assert found.excess.value == pytest.approx(found.nearer.value - 0.5)


def test_nobody_on_both_sides() -> None:
    windows = drawn(48, 0)
    table, compared = nearness_table(
        windows,
        windows.select(windows.subject < 3),
        windows.select(windows.subject > 3),
        ["activity"],
    )
    assert compared == 0
    found = nearness_of([(table, compared)], 48, copies=2)
    assert (found.nearer, found.copies) == (None, 2)
