"""Mutual information with labels: against integrals, scikit-learn, and nothing at all."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import scipy.stats

from sensorveil.data.windows import UNKNOWN
from sensorveil.information import (
    entropy,
    mutual_information_knn,
    mutual_information_mine,
    principal_components,
    window_features,
)


def two_classes(distance: float, count: int, seed: int = 0, dimensions: int = 1) -> tuple:
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    points = generator.normal(size=(count, dimensions))
    points[:, 0] += distance * labels
    return points, labels


def truth(distance: float) -> float:
    """Information, in bits, of a point about which of two unit Gaussians it came from."""
    grid = np.linspace(-12, 12 + distance, 200_001)
    first, second = (
        np.exp(-((grid - centre) ** 2) / 2) / math.sqrt(2 * math.pi) for centre in (0, distance)
    )
    both = (first + second) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.nan_to_num(one * np.log2(one / both)) / 2 for one in (first, second)]
    return float(np.trapezoid(parts[0] + parts[1], grid))


@pytest.mark.parametrize(("distance", "dimensions"), [(0.0, 40), (1.0, 1), (2.0, 4), (8.0, 1)])
@pytest.mark.parametrize("estimator", ["neighbours", "mine"])
def test_two_gaussians(estimator: str, distance: float, dimensions: int) -> None:
    points, labels = two_classes(distance, 3000, dimensions=dimensions)
    if estimator == "neighbours":
        found, slack = mutual_information_knn(points, labels), 0.05
    else:  # from 600 held-out windows: their standard error alone is up to 0.03
        found, slack = mutual_information_mine(points, labels, quick=True), 0.08
    assert found == pytest.approx(truth(distance), abs=slack)


def test_neighbours_against_scikit_learn() -> None:
    selection = pytest.importorskip("sklearn.feature_selection")
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 3, 400)
    points = generator.normal(size=(400, 1)) + labels[:, None]
    theirs = selection.mutual_info_classif(points, labels, random_state=0, n_neighbors=3)[0]
    ours = mutual_information_knn(points, labels, neighbours=3) * math.log(2)
    assert ours == pytest.approx(theirs, abs=0.01)  # they scale and add a little noise


def test_only_the_first_components_are_seen() -> None:
    points, labels = two_classes(6.0, 1000, dimensions=3)
    wide = points * [1.0, 100.0, 100.0]
    assert mutual_information_knn(wide, labels, components=3) == pytest.approx(0, abs=0.35)
    assert mutual_information_knn(wide, labels, components=2) == pytest.approx(0, abs=0.1)
    assert mutual_information_knn(points, labels, components=1) > 0.9


def test_neither_the_codes_of_the_classes_nor_unknown_ones_matter() -> None:
    points, labels = two_classes(1.0, 135, dimensions=2)
    labels[::7] = 1
    codes = np.where(np.arange(135) % 3, np.array([4, 30])[labels], UNKNOWN)
    known = codes != UNKNOWN
    for measure in (mutual_information_knn, partial(mutual_information_mine, quick=True)):
        assert measure(points, codes) == measure(points[known], labels[known])
    share = np.bincount(labels[known])
    assert entropy(codes) == pytest.approx(scipy.stats.entropy(share, base=2))


def test_windows_that_overlap_are_not_neighbours() -> None:
    """Near copies of points without meaning: their class is read off the copy, unless left out."""
    generator = np.random.default_rng(7)
    points = np.repeat(generator.normal(size=(120, 3)), 6, axis=0)
    points += 1e-4 * generator.normal(size=points.shape)
    labels = np.repeat(generator.integers(0, 2, 120), 6)
    place = np.repeat(np.arange(120) * 1000, 6) + np.tile(np.arange(6), 120) * 10
    assert mutual_information_knn(points, labels) > 0.9
    assert -0.4 < mutual_information_knn(points, labels, places=place, reach=128) < 0.1


def test_exact_copies_are_counted_fairly() -> None:
    """A handful of windows emitted again and again, whatever the class, tells nothing."""
    generator = np.random.default_rng(8)
    points = generator.normal(size=(20, 2))[generator.integers(0, 20, 2000)]
    labels = generator.integers(0, 2, 2000)
    assert abs(mutual_information_knn(points, labels)) < 0.02


def test_what_never_changes_tells_nothing() -> None:
    labels = np.arange(100) % 2
    assert mutual_information_mine(np.ones((100, 4)), labels, quick=True) == 0
    assert mutual_information_knn(np.ones((100, 4)), labels) == pytest.approx(0, abs=0.02)
    assert mutual_information_mine(np.eye(100), np.zeros(100, int), quick=True) == 0
    assert mutual_information_knn(np.arange(4.0)[:, None], np.arange(4)) == 0  # each alone


def test_components_against_the_singular_values() -> None:
    generator = np.random.default_rng(9)
    for shape in ((60, 10), (10, 60)):
        rows = generator.normal(size=shape)
        u, s, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
        np.testing.assert_allclose(
            np.abs(principal_components(rows, 4)), np.abs(u * s)[:, :4], atol=1e-8
        )


@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
def test_features_of_every_kind_of_window(kind: str) -> None:
    generator = np.random.default_rng(10)
    shape = (80, 2, 8, 8) if kind == "image" else (80, 2, 32)
    labels = np.arange(80) % 2
    signal = generator.normal(size=shape) + labels.reshape(-1, *(1,) * (len(shape) - 1))
    if kind == "complex":
        signal = signal + 1j * generator.normal(size=shape)
    rows = window_features(signal, 5)
    assert rows.shape == (80, 5 if kind == "image" else 10)
    assert mutual_information_knn(rows, labels) > 0.8


def test_units_do_not_matter() -> None:
    signal = np.random.default_rng(11).normal(size=(60, 2, 32)).astype(np.float32)
    other = signal * np.array([[1000.0], [0.001]], np.float32)
    np.testing.assert_allclose(
        np.abs(window_features(signal, 4)), np.abs(window_features(other, 4)), rtol=0.02, atol=1e-3
    )


def test_a_rhythm_is_found_whatever_its_phase() -> None:
    generator = np.random.default_rng(12)
    labels = np.arange(600) % 2
    cadence = (0.25 + 0.1 * labels)[:, None]
    phase = generator.uniform(0, 2 * np.pi, (600, 1))
    signal = np.sin(cadence * np.arange(128) + phase)[:, None]
    rows = window_features(signal + 0.5 * generator.normal(size=signal.shape), 8)
    assert mutual_information_knn(rows, labels) > 0.95


def test_distances_between_wide_windows_are_kept() -> None:
    wide = np.random.default_rng(13).normal(size=(20, 2, 5000)).cumsum(axis=2)
    wide /= wide.std((0, 2), keepdims=True)
    small = window_features(wide, 20)[:, :20]
    apart = [
        ((a[:, None] - a) ** 2).sum(-1)[np.triu_indices(20, 1)]
        for a in (wide.reshape(20, -1), small)
    ]
    ratio = apart[1] / apart[0]
    np.testing.assert_allclose(ratio, ratio.mean(), rtol=0.12)
