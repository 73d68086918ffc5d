"""Reading in the course of a recording: against all courses one by one, and from the past alone."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sensorveil.methods.seal_reading import elapsed, followed

LENGTH = 10


def drawn(count: int, classes: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(classes), size=count)


def by_enumeration(shares: np.ndarray, start: np.ndarray, steady: float) -> int:
    """The likeliest class of the last window, adding up the weights of all courses of classes."""
    classes = shares.shape[1]
    total = np.zeros(classes)
    for course in itertools.product(range(classes), repeat=len(shares)):
        weight = shares[0, course[0]]
        for place in range(1, len(shares)):
            since = start[place] - start[place - 1]
            stays = math.exp(-since / steady)
            same = course[place] == course[place - 1]
            weight *= (stays if same else 0) + (1 - stays) / classes
            weight *= shares[place, course[place]] ** min(since / LENGTH, 1)
        total[course[-1]] += weight
    return int(total.argmax())


@pytest.mark.parametrize("steady", [2.0, 15.0, 200.0])
def test_is_the_sum_over_all_courses(steady):
    own = 0
    for seed in range(30):
        shares = drawn(6, seed=seed)
        start = np.cumsum([0, 3, 3, 10, 25, 3])
        read = followed(shares, np.zeros(6, int), start, LENGTH, steady)
        wanted = [by_enumeration(shares[: n + 1], start[: n + 1], steady) for n in range(6)]
        assert read.tolist() == wanted
        own += int((read != shares.argmax(1)).sum())
    assert own > 0  # it is not what single windows say


def test_rows_may_lie_in_any_order_and_recordings_do_not_mix():
    shares, recording = drawn(40), np.arange(40) % 3
    start = np.arange(40) // 3 * 4
    whole = followed(shares, recording, start, LENGTH, 30.0)
    for one in range(3):
        mine = recording == one
        alone = followed(shares[mine], recording[mine], start[mine], LENGTH, 30.0)
        np.testing.assert_array_equal(whole[mine], alone)
    other = np.random.default_rng(1).permutation(40)
    shuffled = followed(shares[other], recording[other], start[other], LENGTH, 30.0)
    np.testing.assert_array_equal(shuffled, whole[other])


def test_later_windows_change_nothing():
    shares, start = drawn(20), np.arange(20) * 4
    recording = np.zeros(20, int)
    for count in range(1, 20):
        part = followed(shares[:count], recording[:count], start[:count], LENGTH, 30.0)
        whole = followed(shares, recording, start, LENGTH, 30.0)
        np.testing.assert_array_equal(part, whole[:count])


def test_samples_that_windows_share_are_evidence_once():
    """Ten windows of nearly the same samples weigh no more than the few samples that are new."""
    shares = np.array([[0.9, 0.1], *[[0.4, 0.6]] * 10])
    recording = np.zeros(11, int)
    overlapping, apart = np.arange(11) * 0.01, np.arange(11) * LENGTH
    assert (followed(shares, recording, overlapping, LENGTH, 1e9) == 0).all()
    assert followed(shares, recording, apart, LENGTH, 1e9)[-1] == 1


def test_a_change_is_followed():
    """Sure readings of another class are believed within a window's length."""
    shares = np.array([[0.99, 0.01]] * 50 + [[0.01, 0.99]] * 50)
    read = followed(shares, np.zeros(100, int), np.arange(100), LENGTH, 30.0)
    assert (read[:50] == 0).all()
    assert 50 < read.argmax() <= 50 + LENGTH
    assert (read[read.argmax() :] == 1).all()


def test_certainty_does_not_last_for_ever():
    """A window that rules a class out does not rule it out for the whole recording."""
    shares = np.array([[1.0, 0.0], *[[0.0, 1.0]] * 3])
    read = followed(shares, np.zeros(4, int), np.arange(4) * LENGTH, LENGTH, 1e6)
    assert read.tolist()[-1] == 1


def test_clips_are_read_by_themselves():
    shares = drawn(20)
    read = followed(shares, np.arange(20), np.zeros(20, int), LENGTH, 30.0)
    np.testing.assert_array_equal(read, shares.argmax(1))


def test_time_goes_on_within_a_recording():
    recording, start = np.array([4, 4, 2, 2]), np.array([30, 10, 0, 5])
    assert elapsed(recording, start).tolist() == [20, np.inf, np.inf, 5]
    assert elapsed(np.zeros(0, int), np.zeros(0, int)).tolist() == []
