"""Membership attacks find members where models remember them, and no members elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.audit.donors.membership import (
    divide,
    evaluate_attack,
    shadow_attack,
    top_posteriors,
)
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal


class Memory:
    """A model that is sure of the windows it saw, by a given strength, and of no others."""

    def __init__(self, windows: Windows, strength: float, seed: int):
        self.seen = {_name(row) for row in windows.signal}
        self.strength, self.chance = strength, np.random.default_rng(seed)

    def log_probabilities(self, windows: Windows) -> np.ndarray:
        known = np.array([_name(row) in self.seen for row in windows.signal])
        scores = self.chance.normal(size=(len(windows), 4))
        scores[:, 0] += self.strength * known
        return scores - np.log(np.exp(scores).sum(1, keepdims=True))


def _name(row: np.ndarray) -> bytes:
    """The same for a window that was standardised and brought back."""
    return row.round(2).tobytes()


def windows(count: int = 800) -> Windows:
    signal = np.random.default_rng(0).integers(-50, 50, size=(count, 1, 4)) / 10
    labels = {"activity": np.arange(count) % 4, "gender": np.arange(count) % 2}
    return Windows.from_signal(signal, labels)


def test_the_attack_on_a_model_that_remembers():
    strong = shadow_attack(lambda some, seed: Memory(some, 8.0, seed), windows())[0]
    weak = shadow_attack(lambda some, seed: Memory(some, 2.0, seed), windows())[0]
    assert strong.auc > 0.99
    assert strong.success_rate > 0.95
    assert 0.6 < weak.auc < strong.auc
    assert (strong.members, strong.nonmembers) == (200, 200)


def test_a_model_without_memory_gives_nobody_away():
    found = [
        shadow_attack(lambda some, seed: Memory(some, 0.0, seed), windows(), seed)[0]
        for seed in range(5)
    ]
    assert np.mean([one.auc for one in found]) == pytest.approx(0.5, abs=0.04)
    assert np.mean([one.success_rate for one in found]) == pytest.approx(0.5, abs=0.04)


def test_the_attacker_keeps_the_threshold_that_the_shadow_taught():
    """A target more confident than its shadow: ranked well, but all are taken for members.

    Moving the threshold until it fits the target would need to know who is a member.
    """
    made: list[Shifted] = []

    class Shifted(Memory):
        def log_probabilities(self, windows: Windows) -> np.ndarray:
            scores = super().log_probabilities(windows)
            scores[:, 0] += 4.0 if self is made[0] else 0.0  # the first is the target
            return scores - np.log(np.exp(scores).sum(1, keepdims=True))

    def train(some: Windows, seed: int) -> Shifted:
        made.append(Shifted(some, 3.0, seed))
        return made[-1]

    found = shadow_attack(train, windows())[0]
    assert found.auc > 0.8
    assert found.success_rate < 0.6


def test_judged_against_counting():
    generator = np.random.default_rng(2)
    inside = generator.random(3000) < 0.5
    scores = generator.normal(size=3000).round(1) + inside  # many ties
    found = evaluate_attack("counted", scores, inside)
    members, others = scores[inside], scores[~inside]
    wins = (members[:, None] > others).mean() + (members[:, None] == others).mean() / 2
    assert found.auc == pytest.approx(wins)
    best = max(
        ((members >= limit).mean() + (others < limit).mean()) / 2 for limit in np.unique(scores)
    )
    assert found.success_rate == pytest.approx(best)
    for accused, share in ((0.01, found.tpr_at_1pct), (0.001, found.tpr_at_01pct)):
        allowed = [x for x in np.unique(scores) if (others > x).mean() <= accused]
        assert share == pytest.approx((members > min(allowed)).mean())
    fixed = evaluate_attack("fixed", scores, inside, threshold=0.5)
    assert fixed.success_rate == pytest.approx(
        ((members >= 0.5).mean() + (others < 0.5).mean()) / 2
    )
    assert evaluate_attack("few", scores[:900], inside[:900]).tpr_at_01pct is None


def test_recordings_stay_together():
    groups = np.repeat(np.arange(40), 5)
    parts = divide(groups, 4, seed=1)
    for group in range(40):
        assert len(set(parts[groups == group])) == 1
    assert np.bincount(parts).tolist() == [50, 50, 50, 50]
    assert (parts != divide(groups, 4, seed=2)).any()
    with pytest.raises(Refusal, match="too few"):
        divide(np.zeros(9), 4, seed=0)


def test_groups_are_divided_in_place_of_recordings():
    """Windows of one group that were torn apart would be near members: here they are copies."""
    some = windows(400)
    twice = some.select(np.repeat(np.arange(400), 2))
    together, _ = shadow_attack(
        lambda w, seed: Memory(w, 8.0, seed), twice, groups=np.repeat(np.arange(400), 2)
    )
    torn = shadow_attack(lambda w, seed: Memory(w, 8.0, seed), twice, groups=np.arange(800))[0]
    assert together.auc > 0.99 > torn.auc


def test_the_largest_posteriors_come_first():
    found = top_posteriors(Memory(windows(8), 3.0, 0), windows(8))
    assert found.shape == (8, 3)
    assert (np.diff(found, axis=1) <= 0).all()
    assert (found.sum(1) < 1).all()


def test_both_sides_are_needed():
    with pytest.raises(Refusal, match="members and nonmembers"):
        evaluate_attack("none", np.zeros(3), np.ones(3, bool))
