"""The audit of donors: copies, memory, methods that ignore windows, resuming, verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import sensorveil
from sensorveil.audit.attackers import CONVOLUTIONS, Budget
from sensorveil.audit.audit import AuditSettings, audit_run
from sensorveil.audit.criterion import judge_donors
from sensorveil.audit.donors.audit import audit_donors
from sensorveil.audit.donors.lira import complementary_halves
from sensorveil.audit.results import HIDDEN, INCONCLUSIVE, NOT_HIDDEN, Membership, Nearness
from sensorveil.audit.store import Store
from sensorveil.audit.threat_models import Fold, Output
from sensorveil.classifiers import ClassifierSettings
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.statistics import Estimate


def simulated(split: str, windows: int = 3) -> Split:
    return sensorveil.load("simulated", split, people=12, recordings=4, windows=windows)


class Fresh(Obfuscator):
    """Draws windows from a Gaussian; its score is luck, the same for all that have one seed."""

    name, summary = "fresh", "windows of nobody"
    capabilities = Capabilities()
    membership_score = "luck"
    trained: ClassVar[list[int]] = []

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        if self.trained and self.trained[-1] < 0:
            raise InterruptedError
        self.trained.append(len(windows))
        self.learn(windows.signal)

    def learn(self, signal: np.ndarray) -> None:
        pass

    def _obfuscate(self, windows, strength, rng):
        return rng.normal(size=windows.signal.shape)

    def _membership_scores(self, windows: Windows) -> np.ndarray:
        rng = np.random.default_rng(self.seed)
        return np.linspace(0, 9, len(windows)) + rng.normal(size=len(windows))


class Memory(Fresh):
    """The same output, but a score that knows half of the training windows."""

    name = "memory"

    def learn(self, signal: np.ndarray) -> None:
        self.known_ = {row.tobytes() for row in np.round(self.scaling_.undo(signal), 2)}

    def _membership_scores(self, windows: Windows) -> np.ndarray:
        rows = np.round(windows.recorded.signal, 2)
        known = np.array([row.tobytes() in self.known_ for row in rows])
        return super()._membership_scores(windows) + 8 * known * (np.arange(len(rows)) % 2)


class Copies(Fresh):
    """Gives training windows back; it has no score, so that attackers see its output alone."""

    name = "copies"
    membership_score = ""

    def learn(self, signal: np.ndarray) -> None:
        self.windows_ = signal

    def _obfuscate(self, windows, strength, rng):
        return self.windows_[rng.integers(len(self.windows_), size=len(windows))]

    def _membership_scores(self, windows: Windows) -> None:
        return None


def audited(made: type[Obfuscator], split: Split, models: int, store: Store | None = None):
    obfuscator = made().fit(split.train, "activity", "gender")
    test = obfuscator.obfuscate(split.test, seed=1)
    output = Output(np.zeros(0, int), split.train.select([]), (test,))
    return audit_donors(Fold(obfuscator, split), output, models, store=store)


@pytest.mark.parametrize("models", [0, 4])
def test_copies_are_found_with_and_without_models(models: int) -> None:
    found = audited(Copies, simulated("recording", windows=8), models)
    assert found.verdict.status == NOT_HIDDEN
    assert found.nearness.copies == found.nearness.outputs == 384
    assert found.nearness.excess.low > 0.02
    assert (found.membership is None) == (models == 0)
    if found.membership:
        assert found.membership.score == "distance to the nearest output"
        # 384 draws from 576 windows: so many of the members are in the output.
        drawn = 1 - (1 - 1 / 576) ** 384
        assert found.membership.tpr_at_1pct.value == pytest.approx(drawn, abs=0.06)


def test_memory_is_found_and_luck_is_not() -> None:
    """Half of the members stand out by eight deviations; the windows themselves differ by more."""
    split = simulated("subject")
    memory, luck = (audited(made, split, 8) for made in (Memory, Fresh))
    assert memory.verdict.status == NOT_HIDDEN
    assert memory.membership.tpr_at_1pct.value == pytest.approx(0.5, abs=0.1)
    assert memory.nearness.copies == 0
    assert abs(memory.nearness.excess.value) < 0.05
    assert luck.membership.auc.low < 0.5 < luck.membership.auc.high
    assert luck.membership.auc.value == pytest.approx(0.5, abs=0.02)
    assert luck.membership.tpr_at_1pct.value == pytest.approx(0.01, abs=0.01)
    assert luck.membership.tpr_at_01pct is None  # there are no 1,000 nonmembers
    assert luck.verdict.status != NOT_HIDDEN
    assert luck.not_asked == {}


def test_what_a_quick_audit_cannot_ask() -> None:
    known, unseen = (audited(Fresh, simulated(name), 0) for name in ("recording", "subject"))
    assert set(known.not_asked) == {"membership"}
    assert set(unseen.not_asked) == {"membership", "nearness"}
    assert known.nearness.nearer is not None
    assert unseen.nearness.nearer is None
    assert known.verdict.status == unseen.verdict.status == INCONCLUSIVE


def test_methods_that_learn_nothing_have_no_donors() -> None:
    split = simulated("recording")
    for made in (sensorveil.NoObfuscation, sensorveil.Noise, sensorveil.Downsample):
        assert audited(made, split, 4) is None


def test_an_interrupted_audit_goes_on(tmp_path: Path) -> None:
    """Two of four models are there when it is stopped; the result is that of one that was not."""
    split, store = simulated("subject"), Store(tmp_path, "one")
    Fresh.trained.clear()
    whole = audited(Fresh, split, 4)
    assert len(Fresh.trained) == 5  # the method under audit, and four models
    assert sum(Fresh.trained[1:3]) == sum(Fresh.trained[3:]) == len(split.train)

    class Stopped(Fresh):
        def learn(self, signal: np.ndarray) -> None:
            if len(self.trained) == 3:
                self.trained.append(-1)  # the next one is interrupted

    Fresh.trained.clear()
    with pytest.raises(InterruptedError):
        audited(Stopped, split, 4, store)
    Fresh.trained.clear()
    assert audited(Fresh, split, 4, store) == whole
    assert len(Fresh.trained) == 3
    Fresh.trained.clear()
    assert audited(Fresh, split, 4, store) == whole
    assert len(Fresh.trained) == 1


def test_too_few_recordings_are_said() -> None:
    rng = np.random.default_rng(0)
    labels = {"activity": np.array([0, 1, 1]), "gender": np.array([0, 0, 1])}
    few = Windows.from_signal(rng.normal(size=(3, 2, 16)), labels)
    found = audited(Copies, Split(few, few, few, few), 4)
    assert "3 training recordings" in found.not_asked["membership"]
    assert found.membership is None


@pytest.mark.parametrize("models", [2, 5])
def test_numbers_of_models_that_cannot_attack_each_other(models: int) -> None:
    with pytest.raises(Refusal, match="no pairs"):
        AuditSettings(donors=models)


def test_halves_are_alike_in_strata_and_drawn_anew() -> None:
    """Two recordings of each person and class: one is in each half, and pairs of models differ."""
    person, activity = np.indices((10, 3)).reshape(2, -1).repeat(2, axis=1)
    strata = np.stack([activity, person], axis=1)
    halves = complementary_halves(np.arange(60), 100, seed=0, strata=strata)
    assert (halves[::2] == ~halves[1::2]).all()
    for half in halves:
        assert (np.bincount(activity[half]) == 10).all()
        assert (half[::2] != half[1::2]).all()
    assert np.abs(halves[::2].mean(0) - 0.5).max() < 0.2
    assert np.abs(np.corrcoef(halves[::2].T[::2])[np.triu_indices(30, 1)]).max() < 0.5


def test_the_whole_audit_asks_about_donors() -> None:
    """`resample` on people who are in training: every output window is a donor's."""
    rng, count = np.random.default_rng(0), 320
    person, activity = np.arange(count) % 8, np.arange(count) // 8 % 2
    signal = 0.2 * rng.normal(size=(count, 2, 16))
    signal += np.stack([activity, person], axis=1)[..., None]
    windows = Windows.from_signal(signal, {"activity": activity, "subject": person})
    train, test = windows.select(slice(0, 160)), windows.select(slice(160, count))
    split = Split(train, test, train, test)
    resample = sensorveil.Resample(epochs=1, width=4).fit(train, "activity", "subject")
    network = ClassifierSettings(width=4, epochs=1, batch_size=64, learning_rate=5e-3)
    budget = Budget(network=network, kernels=40, attackers=(CONVOLUTIONS,), session_attackers=())
    settings = AuditSettings(budget, (0,), True, False, 0, 0, (), workers=1)
    donors = audit_run(resample, split, settings).main.donors
    assert donors.verdict.status == NOT_HIDDEN
    assert donors.nearness.copies == donors.nearness.outputs == len(split.test)
    assert set(donors.not_asked) == {"membership"}


def estimate(value: float, width: float = 0.01) -> Estimate:
    return Estimate(value, value - width, value + width, people=20)


def nearness(
    copies: int = 0, excess: float = 0.0, control: float = 0.1, p_value: float = 0.001
) -> Nearness:
    nearer = estimate(0.5 + excess)
    return Nearness(500, copies, 900, nearer, estimate(excess), estimate(control), p_value)


def membership(auc: float = 0.5, tpr: float = 0.01, width: float = 0.01) -> Membership:
    return Membership("luck", 8, 4000, estimate(auc, width), estimate(tpr, width / 2))


@pytest.mark.parametrize(
    ("near", "member", "status", "reason"),
    [
        (nearness(), membership(), HIDDEN, "no output is a training window"),
        (nearness(copies=1), membership(), NOT_HIDDEN, "1 of 500"),
        (nearness(), membership(auc=0.54), NOT_HIDDEN, "curve of 0.54"),
        (nearness(), membership(tpr=0.04), NOT_HIDDEN, "finds 4.0%"),
        (nearness(excess=0.04), membership(), NOT_HIDDEN, "4.0 points"),
        (nearness(excess=0.04), None, NOT_HIDDEN, "4.0 points"),
        (nearness(excess=0.025), membership(), INCONCLUSIVE, "may be"),
        (nearness(excess=0.04, p_value=0.01), None, INCONCLUSIVE, "not asked"),
        (replace(nearness(excess=0.04), nearer=estimate(0.5)), None, INCONCLUSIVE, "not asked"),
        (nearness(), membership(auc=0.525), INCONCLUSIVE, "may be"),
        (nearness(), None, INCONCLUSIVE, "not asked"),
        (nearness(control=0.02), membership(), INCONCLUSIVE, "planted"),
        (Nearness(500, 0), membership(), INCONCLUSIVE, "could not be measured"),
        (nearness(), membership(width=0.08), INCONCLUSIVE, "differ too much"),
    ],
)
def test_verdicts(near: Nearness, member: Membership | None, status: str, reason: str) -> None:
    verdict = judge_donors(near, member)
    assert verdict.status == status
    assert reason in verdict.reason
