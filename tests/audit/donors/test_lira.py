"""LiRA: the likelihood ratio of two normals, halves that are fair, and members that are found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

from sensorveil.audit.donors.lira import (
    balanced_halves,
    likelihood_ratios,
    lira,
    lira_in_turn,
    logit_score,
    reconstruction_score,
)
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal


def windows(count: int = 400) -> Windows:
    signal = np.random.default_rng(0).normal(size=(count, 1, 4)).astype(np.float32)
    return Windows.from_signal(signal, {"activity": np.arange(count) % 3})


class Fixed:
    """A model that answers with fixed log-probabilities."""

    def __init__(self, logs: np.ndarray):
        self.logs = logs

    def log_probabilities(self, _: Windows) -> np.ndarray:
        return self.logs


def test_confidence_is_the_margin_of_the_true_class():
    shares = np.array([[0.7, 0.2, 0.1], [0.5, 0.25, 0.25], [1 - 2e-12, 1e-12, 1e-12]])
    found = logit_score("activity")(Fixed(np.log(shares)), windows(3))
    wanted = [np.log(0.7 / 0.3), np.log(0.25 / 0.75), np.log(1e-12 / (1 - 1e-12))]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("models", [20, 80])
def test_ratios_against_scipy(models: int):
    """Few models share one variance over all windows, many have one for each."""
    generator = np.random.default_rng(1)
    scores = generator.normal(size=(models, 30)) * np.linspace(0.5, 2, 30)
    inside = balanced_halves(np.arange(30), models + 1, 0)[:-1]
    asked = generator.normal(size=30)
    logs = []
    for side in (True, False):
        centres = [np.median(scores[inside[:, i] == side, i]) for i in range(30)]
        spreads = [np.mean((scores[inside[:, i] == side, i] - centres[i]) ** 2) for i in range(30)]
        if models < 64:
            spreads = [np.mean(spreads)] * 30
        logs.append(norm.logpdf(asked, centres, np.sqrt(spreads)))
    np.testing.assert_allclose(likelihood_ratios(scores, inside, asked), logs[0] - logs[1])


def test_halves_are_fair_and_keep_recordings_together():
    groups = np.repeat(np.arange(50), 3)
    inside = balanced_halves(groups, 17, seed=4)
    assert inside.shape == (17, 150)
    assert (inside[:16].sum(0) == 8).all()
    assert inside[-1].sum() == 75
    assert (inside[:, ::3] == inside[:, 1::3]).all()
    assert np.abs(np.corrcoef(inside[:, ::3])[np.triu_indices(17, 1)]).max() < 0.6


def remembering(memory: float) -> Callable[[Windows, int], np.ndarray]:
    """Trains models that score what they saw higher, on top of how easy a window is by itself."""
    some = windows()
    easy = np.random.default_rng(5).normal(size=len(some)) * 5
    place = {row.tobytes(): number for number, row in enumerate(some.signal)}

    def train(members: Windows, seed: int) -> np.ndarray:
        seen = np.zeros(len(some), bool)
        seen[[place[row.tobytes()] for row in members.signal]] = True
        noise = np.random.default_rng(seed).normal(size=len(some)) * 0.3
        return easy + memory * seen + noise

    return train


def attacked(memory: float) -> float:
    found = lira(remembering(memory), lambda model, _: model, windows(), shadows=16, seed=2)
    assert found.members == found.nonmembers == 200
    return found.tpr_at_1pct


def test_members_are_found_among_windows_that_differ_more_than_they_do():
    """One threshold for all windows would find few: windows differ by 5, members by 2."""
    assert attacked(2.0) > 0.9
    assert attacked(0.0) < 0.1


def test_each_model_is_the_target_once():
    """The others find its members by a score of memory, and by a score of chance they do not."""
    noise = np.random.default_rng(8)
    scores = {
        "own": lambda model, _: model,
        "chance": lambda model, _: noise.normal(size=len(model)),
    }
    found = lira_in_turn(remembering(2.0), scores, windows(), models=8, seed=2)
    assert {(attack.members, attack.nonmembers) for attack in found["own"]} == {(200, 200)}
    assert min(attack.tpr_at_1pct for attack in found["own"]) > 0.8
    assert np.mean([attack.auc for attack in found["chance"]]) == pytest.approx(0.5, abs=0.03)
    for models in (2, 5):
        with pytest.raises(Refusal, match="no pairs"):
            lira_in_turn(remembering(2.0), scores, windows(), models)


def test_nobody_is_found_in_turn_where_nothing_is_remembered():
    """Few shadows, and many repetitions: an attack that is worse than chance is wrong as well."""
    found = [
        attack.auc
        for seed in range(20)
        for attack in lira_in_turn(
            remembering(0.0), {"own": lambda model, _: model}, windows(), models=4, seed=seed
        )["own"]
    ]
    assert np.mean(found) == pytest.approx(0.5, abs=0.01)


def test_too_few_shadows():
    with pytest.raises(Refusal, match="shadow models"):
        lira(lambda some, seed: None, lambda model, some: np.zeros(1), windows(), shadows=1)


def test_a_generator_that_knows_its_windows_is_found_out():
    """By `reconstruction_score`, in place of `logit_score`: here of a stand-in whose errors are known."""

    class Known:
        def __init__(self, members: Windows, seed: int):
            self.seen = {row.tobytes() for row in members.signal}
            self.chance = np.random.default_rng(seed)

        def reconstruction_errors(self, some: Windows) -> np.ndarray:
            seen = np.array([row.tobytes() in self.seen for row in some.signal])
            size = np.abs(some.signal).mean((1, 2))  # some windows are harder than others
            return size * np.exp(0.1 * self.chance.normal(size=len(some)) - 0.5 * seen)

    found = lira(Known, reconstruction_score, windows(), shadows=12, seed=1)
    assert found.tpr_at_1pct > 0.8
