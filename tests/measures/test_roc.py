"""The area under the curve against scikit-learn, with weights and ties."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sensorveil.measures.paired import paired_difference
from sensorveil.measures.roc import auc, auc_over_people


def test_auc_agrees_with_scikit_learn():
    generator = np.random.default_rng(0)
    for _ in range(20):
        scores = generator.integers(0, 8, 60) / 8  # many ties
        truth = generator.random(60) < 0.4
        weights = generator.integers(0, 4, (3, 60)).astype(float)
        expected = [roc_auc_score(truth, scores, sample_weight=w) for w in weights]
        assert auc(scores, truth, weights) == pytest.approx(expected)


def test_mean_over_classes_and_people():
    generator = np.random.default_rng(1)
    true = generator.integers(0, 3, 300)
    scores = generator.normal(size=(1, 300, 3))
    scores[0, np.arange(300), true] += 1
    found = auc_over_people(scores, true, np.arange(300) % 20, generator)
    each = [roc_auc_score(true == c, scores[0][:, c]) for c in range(3)]
    assert found.value == pytest.approx(np.mean(each))
    assert found.low < found.value < found.high
    assert found.people == 20


def test_only_windows_of_one_stratum_are_compared():
    """Two folds whose attackers lean to different sides: together blurred, apart they see."""
    generator = np.random.default_rng(3)
    true = generator.integers(0, 2, 2000)
    fold = np.arange(2000) % 2
    evidence = true + generator.normal(size=2000)
    leaning = evidence + 3 * fold
    scores = np.stack([-leaning, leaning], axis=1)[None]
    person = np.arange(2000) % 50
    apart = auc_over_people(scores, true, person, generator, fold)
    counts = [((true == 0) & (fold == f)).sum() * ((true == 1) & (fold == f)).sum() for f in (0, 1)]
    each = [roc_auc_score(true[fold == f], evidence[fold == f]) for f in (0, 1)]
    assert apart.value == pytest.approx(np.average(each, weights=counts))
    assert apart.low < apart.value < apart.high
    assert auc_over_people(scores, true, person, generator).value < apart.value - 0.05


def test_paired_differences():
    generator = np.random.default_rng(2)
    base = {str(p): float(v) for p, v in enumerate(generator.random(30))}
    same = {p: v + float(generator.normal() * 0.05) for p, v in base.items()}
    better = {p: v + 0.1 + float(generator.normal() * 0.05) for p, v in base.items()}
    assert paired_difference(base, same).p_value > 0.01
    found = paired_difference(better, base)
    assert found.low < 0.1 < found.high
    assert found.p_value < 0.001
