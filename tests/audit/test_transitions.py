"""Changes of a class over recordings: predictions that are late by a known time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.audit.transitions import follow, transitions
from sensorveil.data.windows import UNKNOWN, Windows

STRIDE, RATE = 10, 50.0
SITTING, WALKING, TURNING = 0, 1, 2
DAY = np.repeat([SITTING, WALKING, TURNING, WALKING, SITTING], 20)


def recordings(*classes: np.ndarray) -> Windows:
    """One recording for each sequence of classes."""
    counts = [len(one) for one in classes]
    codes = np.concatenate(classes)
    windows = Windows.from_signal(np.zeros((len(codes), 1, 4)), {"activity": codes}, RATE)
    return replace(
        windows,
        recording=np.repeat(np.arange(len(counts)), counts),
        start=STRIDE * np.concatenate([np.arange(count) for count in counts]),
    )


@pytest.mark.parametrize("late", [-5, -1, 0, 3, 12])
def test_a_known_delay(late: int) -> None:
    windows = recordings(DAY)
    found = follow(windows, "activity", DAY[np.clip(np.arange(100) - late, 0, 99)])
    assert (found.true.tolist(), found.predicted.tolist()) == ([4], [4])
    np.testing.assert_allclose(found.delays, abs(late) * STRIDE / RATE)


def test_the_order_of_windows_does_not_matter() -> None:
    windows = recordings(DAY, DAY[::-1])
    predicted = np.concatenate([np.roll(DAY, 4), np.roll(DAY[::-1], 4)])
    mixed = np.random.default_rng(0).permutation(len(windows))
    one, other = (
        follow(windows, "activity", predicted),
        follow(windows.select(mixed), "activity", predicted[mixed]),
    )
    np.testing.assert_array_equal(one.delays, other.delays)
    assert one.predicted.tolist() == other.predicted.tolist() == [4, 4]


def test_changes_that_are_missed_or_made_up() -> None:
    windows = recordings(DAY)
    asleep = follow(windows, "activity", np.full(100, SITTING))
    assert (asleep.predicted.tolist(), np.isnan(asleep.delays).all()) == ([0], True)
    found = transitions([asleep], [asleep])
    assert found
    assert (found.raw.changes, found.raw.noticed, found.raw.delay) == (0, 0, None)
    # Turning, from 40 to 59, is predicted as walking: the two changes around it are missed.
    predicted = np.where(DAY == TURNING, WALKING, DAY)
    predicted[[5, 95]] = WALKING  # two windows that are wrong: four changes more
    restless = follow(windows, "activity", predicted)
    assert restless.predicted.tolist() == [6]
    np.testing.assert_array_equal(restless.delays, [0, np.nan, np.nan, 0])


def test_the_nearest_predicted_change_counts() -> None:
    predicted = DAY.copy()
    predicted[15:17] = WALKING  # early, then wrong again, then right at once
    np.testing.assert_array_equal(follow(recordings(DAY), "activity", predicted).delays, 0)


def test_recordings_of_one_class_and_unknown_windows_are_left_out() -> None:
    once = np.repeat([SITTING, WALKING], 10)
    alone = recordings(np.zeros(20, int), np.ones(20, int))
    still = follow(alone, "activity", np.tile(once, 2))
    assert (len(still.true), len(still.delays)) == (0, 0)
    assert transitions([still], [still]) is None
    unknown = np.where(np.arange(20) % 10 == 9, UNKNOWN, once)
    found = follow(recordings(np.zeros(20, int), unknown), "activity", np.tile(once, 2))
    assert (found.true.tolist(), found.predicted.tolist(), found.delays.tolist()) == ([1], [1], [0])


def test_all_applications_folds_and_seeds_count() -> None:
    windows = recordings(DAY)
    late = [follow(windows, "activity", np.roll(DAY, k)) for k in (0, 1, 5)]
    found = transitions(late[:1] * 3, late)
    assert found
    assert found.changes == 4
    assert (found.raw.delay, found.unchanged.delay) == (0, pytest.approx(STRIDE / RATE))
    assert found.unchanged.noticed == 1
