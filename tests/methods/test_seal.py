"""Seal: the output is made from codes and noise alone, and promises are kept and stated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sensorveil.data.catalog import load
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.run import load_run, run_card, save_run
from sensorveil.methods.seal import Seal
from sensorveil.methods.seal_generators import Generator

SMALL: Mapping[str, Any] = {"width": 8, "epochs": 3, "rhythm_bins": 3, "energy_bins": 3}


@cache
def simulated() -> Split:
    return load("simulated", people=16, windows=12, gender=3.0, activity=8.0)


@cache
def sealed(**settings: Any) -> Seal:
    return Seal(**{**SMALL, **settings}).fit(simulated().train, "activity", "gender")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_windows_of_one_code_give_the_same_output_to_the_bit():
    test, seal = simulated().test, sealed()
    other = test.replaced(test.signal + rng().normal(size=test.signal.shape) * 0.005)
    differs = test.recording[seal.encode(test) != seal.encode(other)]
    same = ~np.isin(test.recording, differs)
    assert same.mean() > 0.3
    test, other = test.select(same), other.select(same)
    assert (other.signal != test.signal).any((1, 2)).all()
    first, second = (seal.obfuscate(windows, seed=1).signal for windows in (test, other))
    np.testing.assert_array_equal(first, second)


def test_the_kept_class_is_kept_and_energy_goes_along():
    test, seal = simulated().test, sealed()
    hidden = seal.obfuscate(test, seed=0)
    kept = seal.classifier_.predict(hidden) == test.codes("activity")
    assert kept.mean() > 0.9
    codes = seal.encode(test)
    assert set(codes // 3 % 3) == {0, 1, 2}
    walking, power = test.codes("activity") == 2, hidden.signal[:, 2].var(-1)
    means = [power[walking & (codes % 3 == energy)].mean() for energy in range(3)]
    assert means[0] < means[1] < means[2]


def test_windows_that_are_classified_wrong_are_not_emitted():
    """A tenth of the windows of each class is silence, which is taken for one class or another."""
    train = simulated().train
    silent = np.arange(len(train)) % 10 == 0
    signal = train.signal
    signal[silent] = 0
    spoilt = replace(train.replaced(signal), origin=train.origin)
    seal = Seal(**SMALL).fit(spoilt, "activity", "gender")
    predicted = seal.classifier_.predict(seal.obfuscate(simulated().test, seed=0))
    codes = seal.encode(simulated().test)
    np.testing.assert_array_equal(predicted, seal.kept_classes_[codes // 9, 0])
    assert seal.metrics_["donor_windows"] <= len(train) - silent.sum() * 3 / 4


def test_people_who_did_not_agree_are_not_emitted_and_consent_is_recorded(tmp_path: Path):
    windows = replace(simulated().train, origin=None)
    with pytest.raises(Refusal, match="agreed"):
        Seal(**SMALL, generator="pool").fit(windows, "activity", "gender")
    seal = Seal(**SMALL).fit(windows, "activity", "gender")
    assert not seal.emits_donor_windows()
    assert "own windows" not in run_card(seal)
    seal = Seal(**SMALL, donors="all agreed in writing").fit(windows, "activity", "gender")
    again = load_run(save_run(seal, tmp_path / "run"))
    assert again.emits_donor_windows()
    card = (tmp_path / "run" / "card.md").read_text()
    assert "all agreed in writing" in card
    assert "own windows" in card


def test_people_held_out_are_counted_and_never_trained_on(tmp_path: Path):
    seal = sealed(held_out=0.5)
    bounds = {one.attribute: one for one in seal.bounds()}
    assert set(bounds) == {"gender", "weight", "subject"}
    people = len(np.unique(simulated().train.subject))
    assert all(one.people == people // 2 for one in bounds.values())
    assert bounds["subject"].vacuous
    # The samples of donors, and no others, are in the run.
    donors = seal.metrics_["donor_windows"]
    assert 0.5 < donors / (len(simulated().train) / 2) <= 1  # not extreme, and classified right
    assert seal._state()["generator.store"].shape[-1] == donors * simulated().train.length
    # With the windows of the others a thousand times as large, all that was learnt is the same.
    train = simulated().train
    factor = np.where(seal._held_out(train), 1000.0, 1.0).reshape(-1, 1, 1)
    other = replace(train.replaced(train.signal * factor), origin=train.origin)
    again = Seal(**SMALL, held_out=0.5).fit(other, "activity", "gender")
    np.testing.assert_array_equal(again.scaling_.mean, seal.scaling_.mean)
    for name, array in seal._state().items():
        np.testing.assert_array_equal(again._state()[name], array)
    # The bounds come back from the run, and the card states them.
    loaded = load_run(save_run(seal, tmp_path / "run"))
    assert loaded.bounds() == seal.bounds()
    card = run_card(loaded)
    assert all(one.sentence() in card for one in seal.bounds())
    assert "nobody was held out" in run_card(sealed())


@pytest.mark.parametrize("share", [0.001, 0.99])
def test_holding_out_nobody_or_everybody_is_refused(share):
    with pytest.raises(Refusal, match="held_out"):
        Seal(**SMALL, held_out=share).fit(example_windows(), "activity", "gender")


def test_the_search_refuses_absolute_bins_that_tell():
    windows = load("simulated", people=60, windows=8, gender=4.0, recordings=1).train
    small = {**SMALL, "epochs": 1, "max_advantage": 0.1}
    relative = Seal(**small).fit(windows, "activity", "gender")
    assert relative.metrics_["bins"] == [3, 3]
    absolute = Seal(**small, rank_reference="none").fit(windows, "activity", "gender")
    assert absolute.metrics_["bins"][0] == 1  # gender changes the rhythm
    for one in absolute.metrics_["search"]:
        assert (one["advantages"]["gender"] > 0.1) == (one["rhythm_bins"] == 3)
    # Where the kept attribute itself tells, there is no code to take.
    leaking = replace(windows, labels={**windows.labels, "activity": windows.codes("gender")})
    with pytest.raises(Refusal, match="no code has an advantage of at most 10"):
        Seal(**small).fit(leaking, "activity", "gender")


def test_the_search_predicts_people_by_classifiers_of_others():
    """Each person does each activity in a way of their own: only who knows them recognises it."""
    person, activity = np.repeat(np.arange(6), 40), np.tile(np.arange(2), 120)
    ways = rng().normal(size=(6, 2, 3, 32))
    signal = ways[person, activity] + 0.1 * rng(1).normal(size=(240, 3, 32))
    labels = {"activity": activity, "gender": person % 2, "subject": person}
    windows = Windows.from_signal(signal.astype(np.float32), labels, 32.0)
    seal = Seal(width=8, epochs=10, rhythm_bins=1, energy_bins=1, max_advantage=0.9)
    seal.fit(windows, "activity", "gender")
    assert (seal.classifier_.predict(windows) == activity).mean() > 0.95
    unseen = seal._predict_unseen_people(seal._standard(windows), activity)
    assert (unseen == activity).mean() < 0.8
    alone = windows.select(person == 0)
    turns = {**alone.labels, "gender": np.arange(40) // 2 % 2}  # else there is nothing to hide
    with pytest.raises(Refusal, match="two people"):
        Seal(**SMALL, max_advantage=0.5).fit(replace(alone, labels=turns), "activity", "gender")


class Echo(Generator):
    """Shows the code that it is given, in standard units."""

    def fit(self, donors: Windows, codes: np.ndarray, count: int) -> Echo:
        self.shape = donors.shape
        return self

    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.broadcast_to(codes[:, None, None], (len(codes), *self.shape))


def test_epsilon_randomises_the_code_and_a_budget_stops_it():
    test, seal = simulated().test, copy(sealed())
    seal.generator_ = Echo().fit(test, np.zeros(0), 0)
    seal.generator_code_ = np.arange(seal.encoder_.count)

    def released(**strength: float) -> np.ndarray:
        shown = seal.obfuscate(test, strength, seed=0).standardized(seal.scaling_)
        return shown.signal[:, 0, 0].round().astype(int)

    codes = seal.encode(test)
    np.testing.assert_array_equal(released(), codes)
    np.testing.assert_array_equal(released(epsilon=50.0), codes)
    assert np.mean(released(epsilon=1e-6) == codes) < 0.1
    assert np.mean(released(epsilon=50.0, budget=49.0) == codes) < 0.1
    # Four windows of each recording are released, the others say nothing.
    stopped, order = released(epsilon=50.0, budget=200.0), test.start // test.length
    np.testing.assert_array_equal(stopped[order < 4], codes[order < 4])
    assert np.mean(stopped[order >= 4] == codes[order >= 4]) < 0.1


@pytest.mark.parametrize(
    "strength", [{"epsilon": 0.0}, {"epsilon": -1.0}, {"budget": 1.0}, {"budget": 0.0}]
)
def test_strengths_without_sense_are_refused(strength):
    with pytest.raises(Refusal, match=r"epsilon|budget"):
        sealed().obfuscate(simulated().test, strength)


@pytest.mark.parametrize(
    "bad",
    [
        {"rank_reference": "future"},
        {"generator": "magic"},
        {"rhythm_bins": 0},
        {"budget": 1.0},
        {"epsilon": -1.0},
        {"held_out": 1.0},
        {"max_advantage": -0.1},
        {"max_advantage": 1.1},
        {"dwell_seconds": -1.0},
        {"ensemble_size": 0},
    ],
)
def test_settings_without_sense_are_refused(bad):
    with pytest.raises(Refusal, match=next(iter(bad))):
        Seal(**bad)


def test_crossfaded_windows_are_smooth_and_bounds_count_pairs_of_codes():
    test = simulated().test
    rough, smooth = sealed(), sealed(crossfade_seconds=0.2)
    first, second = (seal.obfuscate(test, seed=0).signal for seal in (rough, smooth))

    def jumps(signal: np.ndarray) -> float:
        follows = np.flatnonzero(test.start[1:] == test.start[:-1] + test.length)
        return float(np.abs(signal[follows + 1, :, 0] - signal[follows, :, -1]).mean())

    assert jumps(second) < 0.1 * jumps(first)
    codes = [len(np.unique(seal.condition(test), axis=0)) for seal in (rough, smooth)]
    assert codes[1] > codes[0]
    assert [seal.bounds(test)[0].codes for seal in (rough, smooth)] == codes


def test_a_crossfaded_window_spends_epsilon_twice():
    """Against the largest likelihood ratio of a pair of codes, by enumeration."""
    epsilon, count = 1.0, 3
    other = 1 / (math.exp(epsilon) + count - 1)
    table = np.full((count, count), other) + np.eye(count) * (1 - count * other)
    # A window shows its own code and, by its first sample, the one before.
    pairs = np.einsum("ax,by->abxy", table, table).reshape(count**2, count**2)
    ratio = float((pairs[:, None] / pairs[None]).max())
    plain = sealed(epsilon=epsilon).guarantee()
    faded = sealed(epsilon=epsilon, crossfade_seconds=0.2).guarantee()
    assert (plain.epsilon, faded.epsilon) == (epsilon, pytest.approx(math.log(ratio)))
    # The codes of a recording are spent once each, so the budget still limits all of it.
    limited = sealed(epsilon=epsilon, crossfade_seconds=0.2, budget=1.5).guarantee()
    assert limited.epsilon == 1.5
    assert sealed().guarantee() is None


def test_the_card_states_epsilon_and_crossfading():
    card = run_card(sealed(epsilon=1.0, budget=5.0))
    assert "epsilon 1.00 for one output window" in card
    assert "more than 73.1% of single windows" in card  # e / (1 + e)
    card = run_card(sealed(epsilon=1.0, crossfade_seconds=0.2))
    assert "epsilon 2.00 for one output window" in card
    assert "more than 88.1% of single windows" in card  # e^2 / (1 + e^2)
    assert "epsilon" not in run_card(sealed()).split("## Beware")[1]


def test_runs_of_windows_are_counted_without_assumptions():
    test, seal = simulated().test, sealed()
    single, pairs = (seal.bounds(test, run)[0] for run in (1, 2))
    codes = seal.encode(test).reshape(-1, 12)  # windows of a recording lie in order
    wanted = {(a, b) for row in codes for a, b in pairwise(row)}
    assert pairs.codes == len(wanted) > single.codes == len(np.unique(codes))
    assert pairs.counted >= single.counted - 1e-9
    assert seal.bounds(test, 13) == ()


def test_the_condition_is_the_code_unless_it_is_randomised():
    test, seal = simulated().test, sealed()
    condition = seal.condition(test)
    assert condition is not None
    np.testing.assert_array_equal(condition.argmax(1), seal.encode(test))
    assert (condition.sum(1) == 1).all()
    assert sealed(epsilon=1.0).condition(test) is None


@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
@pytest.mark.parametrize("generator", ["pool", "gaussian", "diffusion"])
def test_every_kind_of_window_with_every_generator_from_a_run(kind, generator, tmp_path):
    windows = example_windows(kind)
    seal = Seal(epochs=1, width=4, training_steps=4, generator=generator, donors="made up")
    seal.fit(windows, "activity", "gender")
    again = load_run(save_run(seal, tmp_path / "run"))
    outputs = [one.obfuscate(windows, seed=0).signal for one in (seal, again)]
    np.testing.assert_array_equal(*outputs)
