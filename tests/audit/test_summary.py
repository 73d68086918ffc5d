"""From predictions to estimates of one attacker."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.audit.attackers import TREES
from sensorveil.audit.results import SEMI
from sensorveil.audit.sessions import Predictions
from sensorveil.audit.summary import attack_estimates, confusion_tables
from sensorveil.audit.truth import Truth


def truth_of(codes: np.ndarray, kept: np.ndarray, prior: np.ndarray | None = None) -> Truth:
    """Twenty people in one fold, whose windows are in no order."""
    count, nowhere = len(codes), np.zeros(len(codes), int)
    shares = np.zeros((count, 2)) if prior is None else np.tile(np.log(prior), (count, 1))
    return Truth(codes, np.arange(count) % 20, nowhere, nowhere, 2, shares, nowhere, kept)


def estimates(truth: Truth, scores: np.ndarray):
    predictions = Predictions(SEMI, TREES, scores, scores)
    return attack_estimates(truth, predictions, confusion_tables(truth, predictions))


def test_what_the_kept_class_shows_is_in_the_overall_auc_alone():
    """Scores that are the kept class and nothing else, where one gender does more of it."""
    generator = np.random.default_rng(0)
    codes = generator.integers(2, size=2000)
    kept = (generator.random(2000) < np.where(codes, 0.8, 0.2)).astype(int)
    scores = np.log(np.where(kept[:, None], [0.2, 0.8], [0.8, 0.2]))[None]
    found = estimates(truth_of(codes, kept), scores)
    assert found.auc.value == pytest.approx(0.5)
    assert found.overall_auc is not None
    assert found.overall_auc.value == pytest.approx(0.8, abs=0.03)


def test_the_true_positive_rate_of_an_attacker_who_is_sure_of_a_tenth():
    """A tenth of the windows is a giveaway, the rest is noise: 10% and 1% of the other 90%."""
    generator = np.random.default_rng(1)
    codes = np.arange(8000) % 2
    sure = generator.random(8000) < 0.1
    score = np.where(sure, 20.0 * (2 * codes - 1), generator.normal(size=8000))
    found = estimates(truth_of(codes, 0 * codes), np.stack([-score, score], axis=1)[None])
    assert found.tpr_at_1pct is not None
    assert found.tpr_at_1pct.value == pytest.approx(0.1 + 0.9 * 0.01 / 0.9, abs=0.015)
    assert found.tpr_at_1pct.low <= found.tpr_at_1pct.value <= found.tpr_at_1pct.high


def test_the_shares_of_training_do_not_decide_the_class():
    """An attacker with exact odds who learnt from nine in ten of one class loses nothing by it."""
    generator = np.random.default_rng(2)
    codes = np.arange(6000) % 2
    odds = 2 * (2 * codes - 1) + 2 * generator.normal(size=6000)  # log odds: mean 2, deviation 2
    learnt = np.array([0.9, 0.1])
    scores = -np.logaddexp(0, np.stack([odds, -odds], axis=1)) + np.log(learnt)
    found = estimates(truth_of(codes, 0 * codes, learnt), scores[None])
    assert found.accuracy.value == pytest.approx(0.841, abs=0.02)  # the normal law at one
    assert found.advantage.value == pytest.approx(0.341, abs=0.02)
