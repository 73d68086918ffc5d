"""Re-identification: a fixed relabelling falls, resampling does not; runs and parts are counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.audit import reidentification
from sensorveil.audit.attackers import CONVOLUTIONS
from sensorveil.audit.reidentification import (
    CLOAK,
    OBSCURENET,
    cloak_reidentification,
    obscurenet_reidentification,
)
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.baselines import NoObfuscation, Resample

SMALL = ClassifierSettings(width=4, epochs=8, batch_size=16, learning_rate=8e-3)


class Relabel(NoObfuscation):
    """Turns the channel that shows the gender: every woman looks like a man, and the reverse."""

    def _obfuscate(self, windows, strength, rng):
        signal = windows.signal
        signal[:, 1] *= -1
        return signal


def gendered(count: int, seed: int) -> Windows:
    """Channel 0 shows the activity and channel 1 the gender; 60% are of the first gender."""
    generator = np.random.default_rng(seed)
    activity, gender = np.arange(count) % 2, (np.arange(count) // 2 % 5 > 2).astype(int)
    signal = generator.normal(size=(count, 2, 16)) * 0.2
    signal[:, 0] += 2 * activity[:, None] - 1
    signal[:, 1] += 2 * gender[:, None] - 1
    return Windows.from_signal(signal, {"activity": activity, "gender": gender})


TRAIN, TEST = gendered(160, 0), gendered(240, 1)


def test_a_fixed_relabelling_is_reidentified() -> None:
    """The fixed attacker is always wrong, and both papers' attacks are always right."""
    obfuscator = Relabel().fit(TRAIN, "activity", "gender")
    train, test = obfuscator.obfuscate(TRAIN, seed=1), obfuscator.obfuscate(TEST, seed=2)
    fixed = Classifier(SMALL).fit(TRAIN, "gender").predict(test)
    assert (fixed == TEST.labels["gender"]).mean() < 0.05
    leak = obscurenet_reidentification(test, "gender", runs=3, settings=SMALL)
    assert (leak.protocol, leak.runs, leak.attribute) == (OBSCURENET, 3, "gender")
    assert leak.mean > 0.95
    assert leak.majority == pytest.approx(0.6)
    whole = cloak_reidentification(train, test, "gender", runs=2, settings=SMALL)
    assert (whole.protocol, whole.runs) == (CLOAK, 2)
    assert whole.mean > 0.95
    assert whole.majority == pytest.approx(0.6)


def test_resampling_is_not_reidentified() -> None:
    obfuscator = Resample(width=8, epochs=6, batch_size=16).fit(TRAIN, "activity", "gender")
    train, test = obfuscator.obfuscate(TRAIN, seed=1), obfuscator.obfuscate(TEST, seed=2)
    leak = obscurenet_reidentification(test, "gender", runs=4, settings=SMALL)
    whole = cloak_reidentification(train, test, "gender", runs=2, settings=SMALL)
    assert leak.mean < leak.majority + 0.06
    assert whole.mean < whole.majority + 0.06
    assert leak.spread > 0


def test_other_families_of_attackers() -> None:
    result = obscurenet_reidentification(TEST, "gender", runs=1, attacker=CONVOLUTIONS)
    assert result.mean > 0.95
    assert result.spread == 0


def test_mean_spread_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth leaks, the rest is tested, nothing is in both, and every run draws anew."""
    seen = []

    def spy(train: Windows, test: Windows, *rest: object) -> float:
        seen.append((frozenset(train.offset.tolist()), frozenset(test.offset.tolist())))
        return len(seen) / 10

    monkeypatch.setattr(reidentification, "attack_accuracy", spy)
    result = obscurenet_reidentification(TEST, "gender", runs=4)
    assert result.mean == pytest.approx(0.25)
    assert result.spread == pytest.approx(np.std([0.1, 0.2, 0.3, 0.4], ddof=1))
    assert {(len(leaked), len(rest)) for leaked, rest in seen} == {(48, 192)}
    assert not any(leaked & rest for leaked, rest in seen)
    assert len({leaked for leaked, _ in seen}) == 4
    again, seen = seen, []
    obscurenet_reidentification(TEST, "gender", runs=4)
    assert seen == again, "the same seed draws the same parts"
    seen = []
    obscurenet_reidentification(TEST, "gender", runs=4, seed=1)
    assert not set(seen) & set(again)


def test_windows_of_unknown_class_are_left_out() -> None:
    codes = TEST.labels["gender"].copy()
    codes[:40] = UNKNOWN
    some = replace(TEST, labels={**TEST.labels, "gender": codes})
    result = obscurenet_reidentification(some, "gender", runs=1, settings=SMALL)
    assert result.majority == pytest.approx((codes == 0).sum() / 200)
    assert result.mean > 0.95


def test_refusals() -> None:
    with pytest.raises(Refusal, match="known: activity, gender, subject"):
        obscurenet_reidentification(TEST, "gendr")
    with pytest.raises(Refusal, match="fewer than two classes"):
        obscurenet_reidentification(TEST, "subject")
    with pytest.raises(Refusal, match="between 0 and 1"):
        obscurenet_reidentification(TEST, "gender", leaked=1.0)
    with pytest.raises(Refusal, match="too few"):
        obscurenet_reidentification(TEST.select(slice(0, 8)), "gender", leaked=0.1)
    with pytest.raises(Refusal, match="at least one run"):
        cloak_reidentification(TRAIN, TEST, "gender", runs=0, settings=SMALL)
    others = replace(
        TEST,
        labels={**TEST.labels, "gender": TEST.labels["gender"] + 2},
        classes={**TEST.classes, "gender": ("a", "b", "c", "d")},
    )
    with pytest.raises(Refusal, match="occurs in training"):
        cloak_reidentification(TRAIN, others, "gender")
