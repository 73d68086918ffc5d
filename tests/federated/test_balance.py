"""Balancing: counts, windows between neighbours of one class, and what stays as it is."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from sensorveil.errors import Refusal
from sensorveil.federated.balance import balanced, skewed


def sample(counts, seed=0):
    """Windows of class c lie on a line of their own: (x, 10 c)."""
    generator = np.random.default_rng(seed)
    kept = np.repeat(np.arange(len(counts)), counts)
    line = np.stack([generator.random(len(kept)), 10.0 * kept], axis=1)
    return line[:, None].astype(np.float32), kept, np.zeros((len(kept), 1), int)


def test_every_class_has_as_many_and_new_windows_lie_between_old_ones():
    signal, kept, hidden = sample([100, 30, 7])
    new, classes, secret = balanced((signal, kept, hidden), target=40, neighbours=5, seed=1)
    assert np.bincount(classes).tolist() == [40, 40, 40]
    assert secret.shape == (120, 1)
    assert new.dtype == np.float32
    np.testing.assert_allclose(new[:, 0, 1], 10.0 * classes)  # never between two classes
    for one in (1, 2):
        own = signal[kept == one, 0, 0]
        made = new[classes == one, 0, 0]
        assert own.min() <= made.min() <= made.max() <= own.max()
        assert len(np.unique(made)) == 40  # no copies
    old = {float(x) for x in signal[kept == 0, 0, 0]}
    assert {float(x) for x in new[classes == 0, 0, 0]} <= old  # the large class loses some


def test_what_is_balanced_already_stays():
    given = sample([19, 10])
    for before, after in zip(given, balanced(given, 40, 5, 1), strict=True):
        assert after is before


def test_hidden_classes_are_not_mixed():
    signal, kept, _ = sample([60, 20])
    hidden = (np.arange(80) % 2)[:, None]
    signal[:, 0, 1] += hidden[:, 0]
    new, classes, secret = balanced((signal, kept, hidden), 40, 5, 1)
    assert np.bincount(classes * 2 + secret[:, 0]).tolist() == [20] * 4
    np.testing.assert_allclose(new[:, 0, 1], 10.0 * classes + secret[:, 0])


def test_a_single_window_has_no_neighbours():
    _, classes, _ = balanced(sample([20, 1]), 10, 5, 1)
    assert np.bincount(classes).tolist() == [10, 1]


def test_the_seed_decides():
    first, again, other = (balanced(sample([50, 9]), 30, 5, seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_without_the_package_it_says_which_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "imblearn.over_sampling", None)
    with pytest.raises(Refusal, match=r"sensorveil\[federated\]"):
        balanced(sample([20, 5]), 10, 5, 1)


def test_a_skew_is_the_ratio_of_the_largest_to_the_smallest_class():
    shares = []
    for seed in range(12):
        _, classes, _ = skewed(sample([30, 30, 30, 30]), 9.0, 90, 5, seed)
        counts = np.bincount(classes, minlength=4)
        assert sorted(counts) == [10, 10, 90, 90]
        shares.append(tuple(counts == 90))
    assert len(set(shares)) > 2  # people differ in which classes they have much of
    _, classes, _ = skewed(sample([50, 20]), 1.0, 30, 5, 1)
    assert np.bincount(classes).tolist() == [30, 30]
