"""Evaluation: known accuracies come out, people are counted once, mixed runs are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from sensorveil.audit.evaluation import Evaluation, evaluate
from sensorveil.classifiers import ClassifierSettings
from sensorveil.data.catalog import load
from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.baselines import Noise, NoObfuscation
from sensorveil.progress import listen

TINY = ClassifierSettings(width=6, epochs=6, batch_size=16, learning_rate=5e-3)
SMALL = ClassifierSettings(width=8, epochs=16, batch_size=16, learning_rate=5e-3)


class Mirror(NoObfuscation):
    """Turns the first windows upside down: as many as its tests say."""

    part = 0.3

    def _obfuscate(self, windows, strength, rng):
        signal = windows.signal
        signal[: round(self.part * len(windows))] *= -1
        return signal


def separable(count: int, seed: int, people: int = 5) -> Windows:
    """The sign of channel 0 is the activity and that of channel 1 the gender: no doubt is left."""
    generator = np.random.default_rng(seed)
    activity, gender = np.arange(count) % 2, np.arange(count) // 2 % 2
    signal = generator.normal(size=(count, 2, 16)) * 0.1
    signal[:, 0] += 2 * activity[:, None] - 1
    signal[:, 1] += 2 * gender[:, None] - 1
    labels = {"activity": activity, "gender": gender, "subject": np.arange(count) // 4 % people}
    return Windows.from_signal(signal, labels)


def toy() -> Split:
    train, test = separable(80, 0), separable(40, 1)
    return Split(train, test, train, test)


def folds(people: int = 8, windows: int = 3) -> list[Split]:
    return [
        load("simulated", "subject", fold, people=people, recordings=1, windows=windows, gender=4.0)
        for fold in range(4)
    ]


def fitted(made: Obfuscator, split: Split) -> Obfuscator:
    return made.fit(split.train, keep="activity", hide="gender")


@pytest.fixture(scope="module")
def mirrored() -> Evaluation:
    split = toy()
    return evaluate(fitted(Mirror(), split), split, settings=TINY)


def test_known_accuracies(mirrored: Evaluation) -> None:
    for name, role in (("activity", "keep"), ("gender", "hide")):
        score = mirrored.score(name)
        assert score.role == role
        assert score.raw_accuracy.value == 1.0
        assert score.raw_f1.value == 1.0
        assert score.raw_privacy_loss.value == 0.5
        assert score.accuracy.value == pytest.approx(0.7)  # the mirrored 12 of 40 are wrong
        assert score.f1.value == pytest.approx(0.7)  # 6 of 20 wrong either way
        assert score.privacy_loss.value == pytest.approx(0.2)
        assert (score.chance, score.majority, score.windows) == (0.5, 0.5, 40)
        assert score.recall_by_class == pytest.approx({"0": 0.7, "1": 0.7})
        assert score.f1_by_class == pytest.approx({"0": 0.7, "1": 0.7})
        assert score.accuracy.people == 5
        assert score.accuracy.low <= 0.7 <= score.accuracy.high


def test_the_interval_is_that_of_the_people(mirrored: Evaluation) -> None:
    """Windows 0-11 are wrong: persons 0, 1, 2 have four wrong of eight each, 3 and 4 none."""
    generator = np.random.default_rng(5)
    right = np.array([4, 4, 4, 8, 8])
    draws = generator.integers(5, size=(20_000, 5))
    low, high = np.quantile(right[draws].sum(1) / 40, [0.025, 0.975])
    accuracy = mirrored.score("activity").accuracy
    assert accuracy.low == pytest.approx(low, abs=0.05)
    assert accuracy.high == pytest.approx(high, abs=0.05)


def test_results_are_plain_json(mirrored: Evaluation) -> None:
    content = mirrored.as_dict()
    again = json.loads(json.dumps(content, allow_nan=False))
    assert (again["format"], again["kind"]) == (1, "evaluation")
    assert again["policy"] == {"keep": ["activity"], "hide": ["gender"]}
    assert (again["method"], again["seeds"], again["folds"]) == ("none", [0], [0])
    assert [score["role"] for score in again["scores"]] == ["keep", "hide", "unlisted"]
    assert again["scores"][0]["accuracy"]["value"] == pytest.approx(0.7)
    assert set(again["scores"][0]["accuracy"]) == {
        *("value", "low", "high", "people", "seeds", "spread"),
    }


def test_without_obfuscation_both_sides_are_equal() -> None:
    split = folds()[0]
    result = evaluate(fitted(NoObfuscation(), split), split, settings=SMALL)
    assert {score.attribute for score in result.scores} == {"activity", "gender", "weight"}
    for score in result.scores:
        assert score.accuracy == score.raw_accuracy
        assert score.f1 == score.raw_f1
        assert score.privacy_loss == score.raw_privacy_loss
    assert result.score("activity").accuracy.value > 0.6


def test_people_who_are_disjoint_cannot_be_recognised() -> None:
    split = folds()[0]
    result = evaluate(fitted(NoObfuscation(), split), split, attributes=["subject"], settings=TINY)
    assert result.scores == ()
    assert "people are disjoint" in result.left_out["subject"]
    with pytest.raises(Refusal, match="'subject' was not scored: no class of the test windows"):
        result.score("subject")
    with pytest.raises(Refusal, match="'age' was not scored: the dataset does not have it"):
        result.score("age")


def test_only_the_attributes_that_were_asked_for() -> None:
    split = toy()
    obfuscator = fitted(NoObfuscation(), split)
    result = evaluate(obfuscator, split, attributes=["gender"], settings=TINY)
    assert [score.attribute for score in result.scores] == ["gender"]
    with pytest.raises(Refusal, match="attribute 'age' is unknown; known: activity, gender"):
        evaluate(obfuscator, split, attributes=["age"], settings=TINY)


def test_one_class_in_training_is_left_out() -> None:
    split = toy()
    obfuscator = fitted(NoObfuscation(), split)
    train = replace(split.train, labels={**split.train.labels, "subject": np.zeros(80, int)})
    result = evaluate(obfuscator, replace(split, train=train), settings=TINY)
    assert result.left_out == {"subject": "it has one class only in the training windows"}


def test_unknown_classes_are_not_scored() -> None:
    split = toy()
    codes = split.test.labels["gender"].copy()
    codes[12:20] = UNKNOWN
    test = replace(split.test, labels={**split.test.labels, "gender": codes})
    result = evaluate(
        fitted(Mirror(), split), replace(split, test=test), attributes=["gender"], settings=TINY
    )
    assert result.score("gender").windows == 32
    assert result.score("gender").accuracy.value == pytest.approx(20 / 32)


def test_folds_are_pooled_and_cover_everybody_once() -> None:
    parts = folds()
    obfuscators = [fitted(Noise(snr=-30.0), part) for part in parts]
    result = evaluate(obfuscators, parts, attributes=["activity", "gender"], settings=SMALL)
    assert result.folds == (0, 1, 2, 3)
    for score in result.scores:
        assert score.accuracy.people == 8
        assert score.windows == sum(len(part.test) for part in parts) == 8 * 4 * 3
    everybody = np.concatenate([part.test.labels["gender"] for part in parts])
    assert result.score("gender").majority == np.bincount(everybody).max() / len(everybody)
    assert result.score("activity").raw_accuracy.value > 0.6
    assert result.score("activity").accuracy.value < 0.5  # drowned in noise


def test_every_fold_has_its_signal_utility() -> None:
    class EveryOther(NoObfuscation):
        """Leaves the windows of two of the folds as they are, and silences the others."""

        def _obfuscate(self, windows, strength, _):
            return windows.signal * (windows.origin.fold % 2 if windows.origin else 0)

    parts = folds(people=4, windows=12)
    obfuscators = [fitted(EveryOther(), part) for part in parts]
    result = evaluate(obfuscators, parts, attributes=["gender"], settings=TINY)
    assert [one.energy_correlation for one in result.signal] == pytest.approx([0, 1, 0, 1])
    assert [one.frequency_correlation for one in result.signal] == pytest.approx([0, 1, 0, 1])


@pytest.mark.parametrize(
    "other",
    [
        lambda split: fitted(NoObfuscation(), split),
        lambda split: fitted(Noise(snr=5.0), split),
        lambda split: Noise().fit(split.train, keep="activity", hide="weight"),
    ],
    ids=["method", "setting", "policy"],
)
def test_mixed_runs_are_not_pooled(other) -> None:
    first, second = folds()[:2]
    with pytest.raises(Refusal, match="different methods, settings or policies cannot be pooled"):
        evaluate([fitted(Noise(), first), other(second)], [first, second], settings=TINY)


def test_one_run_for_each_fold() -> None:
    first = folds()[0]
    with pytest.raises(Refusal, match="two of the runs were trained on the same fold"):
        evaluate([fitted(Noise(), first), fitted(Noise(), first)], [first, first], settings=TINY)


def test_a_run_is_not_scored_on_people_it_was_trained_on() -> None:
    """Folds given in another order than their runs would leak test people into training."""
    first, second = folds()[:2]
    obfuscators = [fitted(Noise(), first), fitted(Noise(), second)]
    with pytest.raises(Refusal):
        evaluate(obfuscators, [second, first], attributes=["gender"], settings=TINY)


class Chancy(Mirror):
    """Turns as many windows upside down as chance says."""

    def _obfuscate(self, windows, strength, rng):
        self.part = rng.random()
        return super()._obfuscate(windows, strength, rng)


def test_every_seed_obfuscates_anew_and_seeds_are_averaged_and_spread() -> None:
    split = toy()
    obfuscator = fitted(Chancy(), split)
    found = evaluate(obfuscator, split, seeds=[3, 4], attributes=["gender"], settings=TINY)
    values = [1 - round(40 * np.random.default_rng(seed).random()) / 40 for seed in (3, 4)]
    score = found.score("gender")
    assert score.accuracy.value == pytest.approx(np.mean(values))
    assert score.accuracy.spread == pytest.approx(np.std(values, ddof=1))
    assert (score.accuracy.seeds, found.seeds, score.windows) == (2, (3, 4), 40)


def test_the_strength_is_used_and_the_same_seed_gives_the_same_result() -> None:
    split = toy()
    obfuscator = fitted(Noise(), split)
    loud, again, quiet = (
        evaluate(obfuscator, split, attributes=["gender"], settings=TINY, strength={"snr": snr})
        for snr in (-40.0, -40.0, 40.0)
    )
    assert loud == again
    assert quiet.strength == {"snr": 40.0}
    assert quiet.score("gender").accuracy.value == 1.0
    assert loud.score("gender").accuracy.value < 0.8


def test_test_windows_are_left_alone_and_progress_is_reported() -> None:
    split = toy()
    before = split.test.store.copy()
    heard = []
    with listen(lambda what, done, total: heard.append((what, done, total))):
        evaluate(fitted(Mirror(), split), split, attributes=["gender"], settings=TINY)
    np.testing.assert_array_equal(split.test.store, before)
    assert ("inference models", 1, 1) in heard
