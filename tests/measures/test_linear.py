"""The linear reader against a library's solver of the same problem."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sensorveil.measures.linear import LinearReader


@pytest.mark.parametrize("classes", [2, 5])
def test_it_finds_the_minimum_that_scikit_learn_finds(classes: int) -> None:
    generator = np.random.default_rng(0)
    codes = generator.integers(classes, size=400)
    rows = generator.normal(size=(400, 12)) + codes[:, None] * generator.normal(size=12)
    scaled = (rows - rows.mean(0)) / rows.std(0)
    # C times the sum of losses plus half the squares, against the mean plus shrinkage over two. Of
    # two classes scikit-learn has one weight vector where we have two of half the size each.
    shrinkage = 0.05 if classes > 2 else 0.1
    theirs = LogisticRegression(C=1 / (400 * 0.05), tol=1e-8, max_iter=2000).fit(scaled, codes)
    ours = LinearReader(shrinkage, steps=500).fit(rows, codes, classes)
    found = np.exp(ours.log_probabilities(rows))
    np.testing.assert_allclose(found, theirs.predict_proba(scaled), atol=2e-3)


def test_a_class_that_never_occurred_is_never_read() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    found = LinearReader().fit(rows, np.arange(60) % 2 * 2, 3).log_probabilities(rows)
    assert found.shape == (60, 3)
    assert (found[:, 1] < -20).all()
    np.testing.assert_allclose(np.exp(found).sum(1), 1, atol=1e-5)


def test_a_feature_that_never_changes_does_no_harm() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    rows[:, 1] = 7.0
    codes = (rows[:, 0] > 0).astype(int)
    found = LinearReader().fit(rows, codes, 2).log_probabilities(rows)
    assert (found.argmax(1) == codes).mean() > 0.95
