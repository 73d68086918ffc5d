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
from safetensors.numpy import load_file

from sensorveil.data.catalog import load
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import FIXED_NOISE, Obfuscator
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.guarantee import Guarantee
from sensorveil.methods.run import load_run, run_card, save_run
from sensorveil.methods.seal import Seal
from sensorveil.methods.seal_code import Movement
from sensorveil.methods.seal_generators import Generator
from sensorveil.methods.seal_response import choose_bins
from sensorveil.train import Checkpoint

CODE: Mapping[str, Any] = {
    "width": 8,
    "epochs": 3,
    "rhythm_bins": 3,
    "energy_bins": 3,
    "sharpness_bins": 1,
}
POOL: Mapping[str, Any] = {**CODE, "generator": "pool"}
"""For all that does not depend on the generator: nothing is trained but a classifier."""
DIFFUSION: Mapping[str, Any] = {
    **CODE,
    "generator": "diffusion",
    "training_steps": 40,
    "num_candidates": 2,
    "windows_per_code": 3,
    "sampling_steps": 3,
    "latent_size": 8,
    "autoencoder_widths": (4,),
    "denoiser_width": 16,
    "denoiser_blocks": 1,
}
"""It has learnt next to nothing, which is enough where the quality of windows does not matter."""


@cache
def simulated() -> Split:
    return load("simulated", people=16, windows=12, gender=3.0, activity=8.0)


@cache
def few() -> Split:
    return load("simulated", people=8, windows=8, recordings=1, gender=3.0, activity=8.0)


@cache
def sealed(**settings: Any) -> Seal:
    return Seal(**{**POOL, **settings}).fit(simulated().train, "activity", "gender")


@cache
def diffused(**settings: Any) -> Seal:
    return Seal(**{**DIFFUSION, **settings}).fit(few().train, "activity", "gender")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def clips(count: int = 160) -> Windows:
    """Single windows, two of each person, of two activities that differ in loudness."""
    subject, activity = np.arange(count) // 8, np.arange(count) % 2
    loud = np.exp(activity + 0.1 * rng().normal(size=count))
    rhythm = 0.4 * np.exp(0.2 * rng(1).normal(size=(count, 1, 1)))
    signal = loud[:, None, None] * np.sin(np.arange(64) * rhythm + np.array([[0], [1]]))
    signal += 0.05 * rng(2).normal(size=signal.shape)
    labels = {"activity": activity, "gender": subject % 2, "subject": subject}
    return Windows.from_signal(signal.astype(np.float32), labels, 50.0)


def same_arrays(first: Obfuscator, second: Obfuscator, folder: Path) -> bool:
    """Whether all that was learnt is the same to the bit, as it lies in the runs' files."""
    one, other = (
        load_file(save_run(run, folder / name) / "model.safetensors")
        for run, name in ((first, "first"), (second, "second"))
    )
    assert one.keys() == other.keys()
    return all((one[name] == other[name]).all() for name in one)


# The output comes from the code.


def test_windows_of_one_code_give_the_same_output_to_the_bit() -> None:
    test = simulated().test
    other = test.replaced(test.signal + rng().normal(size=test.signal.shape) * 0.005)
    for seal in (sealed(), diffused()):
        differs = test.recording[seal.encode(test) != seal.encode(other)]
        same = ~np.isin(test.recording, differs)
        assert same.mean() > 0.3
        one, moved = test.select(same), other.select(same)
        assert (moved.signal != one.signal).any((1, 2)).all()
        first, second = (seal.obfuscate(windows, seed=1).signal for windows in (one, moved))
        np.testing.assert_array_equal(first, second)


def test_the_kept_class_is_kept_and_rhythm_and_energy_go_along() -> None:
    test, seal = simulated().test, sealed()
    hidden = seal.obfuscate(test, seed=0)
    kept = seal.classifier_.predict(hidden) == test.codes("activity")
    assert kept.mean() > 0.9
    classes, bins = seal.encoder_.parts(seal.encode(test))
    assert seal.encoder_.shape == (4, 3, 3, 1)
    made = Movement.of(hidden, classes, "none", 1).values
    for one in range(4):
        for which in (0, 1):
            means = [
                made[(classes == one) & (bins[:, which] == part), which].mean() for part in range(3)
            ]
            assert means[0] < means[1] < means[2]


def test_windows_that_are_classified_wrong_are_not_emitted() -> None:
    """A tenth of the windows of each class is silence, which is taken for one class or another."""
    train = simulated().train
    silent = np.arange(len(train)) % 10 == 0
    signal = train.signal
    signal[silent] = 0
    spoilt = replace(train.replaced(signal), origin=train.origin)
    seal = Seal(**POOL).fit(spoilt, "activity", "gender")
    predicted = seal.classifier_.predict(seal.obfuscate(simulated().test, seed=0))
    classes, _ = seal.encoder_.parts(seal.encode(simulated().test))
    np.testing.assert_array_equal(predicted, seal.kept_classes_[classes, 0])
    assert seal.metrics_["donor_windows"] <= len(train) - silent.sum() * 3 / 4


@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
def test_what_stands_alone_has_the_class_for_its_code(kind: str) -> None:
    """A single clip has no past to rank in, and an image has no rhythm."""
    windows = example_windows(kind)
    seal = Seal(**{**POOL, "epochs": 8}, donors="made up").fit(windows, "activity", "gender")
    assert seal.encoder_.shape == ((2,) if kind == "image" else (2, 1, 1, 1))
    assert seal.metrics_["bins"] == list(seal.encoder_.bins)
    codes = seal.encode(windows)
    assert set(codes) == {0, 1}
    for epsilon in (None, {"epsilon": 1.0}):  # the class is released as it is
        made = seal.classifier_.predict(seal.obfuscate(windows, epsilon, seed=0))
        np.testing.assert_array_equal(made, codes)


def test_clips_of_one_person_rank_among_each_other() -> None:
    alone, person = (
        Seal(**POOL, donors="made up", rank_reference=reference).fit(clips(), "activity", "gender")
        for reference in ("recording", "person")
    )
    assert alone.encoder_.bins == (1, 1, 1)
    assert person.encoder_.bins == (3, 2, 1)
    assert len(np.unique(person.encode(clips()))) > 6


# People: who agreed, and who is held out.


def test_people_who_did_not_agree_are_not_emitted_and_consent_is_recorded(tmp_path: Path) -> None:
    windows = replace(few().train, origin=None)
    with pytest.raises(Refusal, match="agreed"):
        Seal(**POOL).fit(windows, "activity", "gender")
    with pytest.raises(Refusal, match="agreed"):
        Seal(**POOL, donors="  ").fit(windows, "activity", "gender")
    seal = Seal(**POOL, donors="all agreed in writing").fit(windows, "activity", "gender")
    again = load_run(save_run(seal, tmp_path / "run"))
    assert again.emits_donor_windows()
    card = (tmp_path / "run" / "card.md").read_text()
    assert "all agreed in writing" in card
    assert "own windows" in card


def test_by_default_nobody_is_emitted(tmp_path: Path) -> None:
    assert Seal().settings.generation.generator == "diffusion"
    train, seal = few().train, diffused()
    assert not seal.emits_donor_windows()
    assert "own windows" not in run_card(seal)
    # Neither the output nor an array in the run has a window of training in it.
    raw = train.standardized(seal.scaling_).signal
    made = seal.obfuscate(few().test, seed=0).standardized(seal.scaling_).signal
    assert np.abs(made[:, None] - raw[None, :100]).mean((2, 3)).min() > 0.1
    stored = load_file(save_run(seal, tmp_path / "run") / "model.safetensors")
    longest = max(array.shape[-1] for name, array in stored.items() if "latents" in name)
    assert longest < np.prod(train.shape) / 20


@pytest.mark.parametrize("generator", ["pool", "diffusion"])
def test_people_held_out_are_never_trained_on(generator: str, tmp_path: Path) -> None:
    """With their windows a thousand times as large, all that was learnt is the same."""
    train, settings = few().train, {**DIFFUSION, "generator": generator, "held_out": 0.5}
    seal = Seal(**settings).fit(train, "activity", "gender")
    held_out = seal._held_out(train)
    assert len(np.unique(train.subject[held_out])) == len(np.unique(train.subject)) // 2
    for changed, same in ((held_out, True), (~held_out, False)):
        factor = np.where(changed, 1000.0, 1.0).reshape(-1, 1, 1)
        other = replace(train.replaced(train.signal * factor), origin=train.origin)
        again = Seal(**settings).fit(other, "activity", "gender")
        assert same_arrays(again, seal, tmp_path / str(same)) == same


def test_people_held_out_are_counted(tmp_path: Path) -> None:
    seal, train = sealed(held_out=0.5), simulated().train
    bounds = {one.attribute: one for one in seal.bounds()}
    assert set(bounds) == {"gender", "weight", "subject"}
    assert all(one.people == len(np.unique(train.subject)) // 2 for one in bounds.values())
    assert bounds["subject"].vacuous
    # The samples of donors, and no others, are in the run.
    donors = seal.metrics_["donor_windows"]
    assert 0.5 < donors / (len(train) / 2) <= 1  # not extreme, and classified right
    folder = save_run(seal, tmp_path / "run")
    store = load_file(folder / "model.safetensors")["method.generator.store"]
    assert store.shape[-1] == donors * train.length
    # The bounds come back from the run, and the card states them.
    loaded = load_run(folder)
    assert loaded.bounds() == seal.bounds()
    card = run_card(loaded)
    assert all(one.sentence() in card for one in seal.bounds())
    assert "nobody was held out" in run_card(sealed())


@pytest.mark.parametrize("share", [0.001, 0.99])
def test_holding_out_nobody_or_everybody_is_refused(share: float) -> None:
    with pytest.raises(Refusal, match="held_out"):
        Seal(**POOL, held_out=share).fit(example_windows(), "activity", "gender")


# The search.


def test_the_search_refuses_absolute_bins_that_tell() -> None:
    windows = load("simulated", people=60, windows=8, gender=4.0, recordings=1).train
    small = {**POOL, "epochs": 1, "max_advantage": 0.1}
    relative = Seal(**small).fit(windows, "activity", "gender")
    assert relative.metrics_["bins"] == [3, 3, 1]
    absolute = Seal(**small, rank_reference="none").fit(windows, "activity", "gender")
    assert absolute.metrics_["bins"][0] == 1  # gender changes the rhythm
    assert absolute.encoder_.shape == (4, *absolute.metrics_["bins"])
    for one in absolute.metrics_["search"]:
        assert (one["advantages"]["gender"] > 0.1) == (one["bins"][0] == 3)
    # Where the kept attribute itself tells, there is no code to take.
    leaking = replace(windows, labels={**windows.labels, "activity": windows.codes("gender")})
    with pytest.raises(Refusal, match="no code has an advantage of at most 10"):
        Seal(**small).fit(leaking, "activity", "gender")


@pytest.mark.parametrize("kind", ["signal", "image"])
def test_the_search_judges_the_class_alone_where_there_is_nothing_else(kind: str) -> None:
    windows = example_windows(kind)
    twins = replace(windows, labels={**windows.labels, "gender": windows.codes("activity")})
    settings = {**POOL, "epochs": 8, "donors": "made up", "max_advantage": 0.3}
    seal = Seal(**settings).fit(windows, "activity", "gender")
    (only,) = seal.metrics_["search"]
    assert only["bins"] == seal.encoder_.bins
    assert abs(only["advantages"]["gender"]) < 0.3
    with pytest.raises(Refusal, match="no code has an advantage of at most 30"):
        Seal(**settings).fit(twins, "activity", "gender")


def test_the_search_predicts_people_by_classifiers_of_others() -> None:
    """Each person does each activity in a way of their own: only who knows them recognises it."""
    person, activity = np.repeat(np.arange(6), 40), np.tile(np.arange(2), 120)
    ways = rng().normal(size=(6, 2, 3, 32))
    signal = ways[person, activity] + 0.1 * rng(1).normal(size=(240, 3, 32))
    labels = {"activity": activity, "gender": person % 2, "subject": person}
    windows = Windows.from_signal(signal.astype(np.float32), labels, 32.0)
    small = {**POOL, "donors": "made up", "max_advantage": 0.9}
    seal = Seal(**{**small, "epochs": 10}).fit(windows, "activity", "gender")
    assert (seal.classifier_.predict(windows) == activity).mean() > 0.95
    unseen = seal._predict_unseen_people(seal._standard(windows), activity)
    assert (unseen == activity).mean() < 0.8
    alone = windows.select(person == 0)
    turns = {**alone.labels, "gender": np.arange(40) // 2 % 2}  # else there is nothing to hide
    with pytest.raises(Refusal, match="two people"):
        Seal(**small).fit(replace(alone, labels=turns), "activity", "gender")


# Randomised response.


class Echo(Generator):
    """Shows the code that it is given, in standard units."""

    def fit(
        self, donors: Windows, movement: Movement, checkpoint: Checkpoint | None = None
    ) -> Echo:
        self.shape = donors.shape
        return self

    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.broadcast_to(codes[:, None, None], (len(codes), *self.shape))

    def state(self) -> dict[str, np.ndarray]:
        return {}

    def restore(self, state: Mapping[str, np.ndarray]) -> Echo:
        return self


THREE_WINDOWS = 7.68
"""Seconds; recordings of 12 windows have four such intervals."""


def echoing(**settings: Any) -> Seal:
    more = {"rhythm_bins": 4, "energy_bins": 2, "interval_seconds": THREE_WINDOWS}
    seal = copy(sealed(**{**more, **settings}))
    echo = Echo(seal.settings.generation, seal.encoder_, seal.classifier_)
    seal.generator_ = echo.fit(simulated().test, Movement(np.zeros((0, 3)), None, np.zeros(0)))
    return seal


def shown(
    seal: Seal, strength: Mapping[str, Any] | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Classes and bins that the output is made from."""
    hidden = seal.obfuscate(simulated().test, strength, seed).standardized(seal.scaling_)
    return seal.encoder_.parts(hidden.signal[:, 0, 0].round().astype(int))


def interval_and_first() -> tuple[np.ndarray, np.ndarray]:
    """The number of each window's interval, and the row of its first window."""
    test = simulated().test
    number = test.start // (3 * test.length) + 100 * test.recording
    rows = [np.flatnonzero(number == one) for one in number]
    return number, np.array([mine[test.start[mine].argmin()] for mine in rows])


def true_parts(seal: Seal) -> tuple[np.ndarray, np.ndarray]:
    return seal.encoder_.parts(seal.encode(simulated().test))


def test_without_epsilon_the_code_is_released_as_it_is() -> None:
    seal = echoing()
    assert seal.encoder_.bins == (4, 2, 1)
    for found, wanted in zip(shown(seal), true_parts(seal), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("strength", [1e-6, 1.0, 50.0])
def test_the_class_is_released_as_it_is_whatever_epsilon(strength: float) -> None:
    seal, test = sealed(), simulated().test
    np.testing.assert_array_equal(
        shown(echoing(), {"epsilon": strength})[0], true_parts(echoing())[0]
    )
    plain, private = (
        seal.classifier_.predict(seal.obfuscate(test, given, seed=0))
        for given in (None, {"epsilon": strength})
    )
    np.testing.assert_array_equal(private, plain)


def test_a_large_epsilon_releases_the_bins_of_each_intervals_first_window() -> None:
    seal = echoing()
    number, first = interval_and_first()
    released, truth = shown(seal, {"epsilon": 50.0})[1], true_parts(seal)[1]
    np.testing.assert_array_equal(released, truth[first])
    assert (released != truth).any()
    for one in np.unique(number):
        assert len(np.unique(released[number == one], axis=0)) == 1


def test_bins_stay_the_same_within_an_interval_and_are_drawn_anew_in_the_next() -> None:
    """At epsilon 1 a response has 2 x 2 bins. Each stands for two of the code's four bins."""
    seal = echoing()
    assert choose_bins(1.0, seal.encoder_.bins) == (2, 2, 1)
    number, _ = interval_and_first()
    released = shown(seal, {"epsilon": 1.0})[1]
    halves = released // np.array([2, 1, 1])
    intervals = [np.unique(halves[number == one], axis=0) for one in np.unique(number)]
    assert all(len(one) == 1 for one in intervals)
    changes = [(one != other).any() for one, other in pairwise(intervals)]
    assert 0.6 < np.mean(changes) < 0.9  # three in four, if they were uniform
    # Where the rank lies in the released half is drawn for each window.
    inside = released[:, 0] % 2
    assert 0.4 < inside.mean() < 0.6
    assert any(len(set(inside[number == one])) == 2 for one in np.unique(number))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_responses_are_true_as_often_as_epsilon_says(epsilon: float) -> None:
    seal = echoing()
    few_bins = np.array(choose_bins(epsilon, seal.encoder_.bins))
    assert (few_bins == [2, 2, 1]).all()
    number, first = interval_and_first()
    _, once = np.unique(number, return_index=True)
    truth = (true_parts(seal)[1] * few_bins // np.array(seal.encoder_.bins))[first[once]]
    right = [
        (shown(seal, {"epsilon": epsilon}, seed)[1] * few_bins // np.array(seal.encoder_.bins))[
            once
        ]
        for seed in range(30)
    ]
    share = np.mean([(one == truth).all(1) for one in right])
    wanted = math.exp(epsilon) / (math.exp(epsilon) + 3)
    assert share == pytest.approx(wanted, abs=5 * math.sqrt(0.25 / (30 * len(once))))


@pytest.mark.parametrize("rank_reference", ["recording", "person", "none"])
def test_a_budget_ends_the_release_of_bins(rank_reference: str) -> None:
    """Two intervals of each recording; of each person, where a person has one budget."""
    test, seal = simulated().test, echoing(rank_reference=rank_reference)
    number, first = interval_and_first()
    classes, bins = shown(seal, {"epsilon": 50.0, "budget": 100.0})
    true_classes, truth = true_parts(seal)
    np.testing.assert_array_equal(classes, true_classes)
    by_person = rank_reference == "person"
    group = test.subject if by_person else test.recording
    allowed = np.concatenate([np.unique(number[group == one])[:2] for one in np.unique(group)])
    released = np.isin(number, allowed)
    assert len(np.unique(group)) > 3
    np.testing.assert_array_equal(bins[released], truth[first[released]])
    assert (bins[~released] == truth[first[~released]]).all(1).mean() < 0.3  # one in eight
    shares = [np.mean(bins[~released, 0] == one) for one in range(4)]
    np.testing.assert_allclose(shares, 0.25, atol=0.15)
    # An epsilon above the budget releases nothing.
    nothing = shown(seal, {"epsilon": 50.0, "budget": 49.0})[1]
    assert (nothing == truth[first]).all(1).mean() < 0.3


def test_each_window_may_have_its_own_epsilon() -> None:
    """That of an interval's first window counts; the bins are those of the smallest epsilon."""
    test, seal = simulated().test, echoing()
    _, first = interval_and_first()
    odd = test.recording % 2 == 1
    epsilon = np.where(odd, 50.0, 0.3)
    epsilon[first != np.arange(len(test))] = 1.0
    halves = np.array([2, 1, 1])
    wanted = true_parts(seal)[1][first] // halves
    found = [shown(seal, {"epsilon": epsilon}, seed)[1] for seed in range(5)]
    right = np.mean([(one // halves == wanted).all(1) for one in found], axis=0)
    assert (right[odd] == 1).all()
    assert right[~odd].mean() < 0.6
    upper = np.mean([one[odd, 0] % 2 for one in found])  # of two in a half, drawn at random
    assert upper == pytest.approx(0.5, abs=0.1)
    assert not all((one[odd] == true_parts(seal)[1][first][odd]).all() for one in found)


def test_epsilon_and_budget_as_settings_are_those_as_strengths() -> None:
    private = echoing(epsilon=1.0, budget=2.0)
    wanted = shown(echoing(), {"epsilon": 1.0, "budget": 2.0})
    for found, one in zip(shown(private), wanted, strict=True):
        np.testing.assert_array_equal(found, one)
    # A strength comes before the setting.
    np.testing.assert_array_equal(
        shown(private, {"epsilon": 50.0, "budget": 1e6})[1],
        shown(echoing(), {"epsilon": 50.0})[1],
    )


def test_responses_depend_on_the_seed_and_without_one_on_nothing() -> None:
    seal = echoing()
    released = [shown(seal, {"epsilon": 1.0}, seed)[1] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(released[0], released[1])
    assert (released[0] != released[2]).any()
    free = [
        seal.obfuscate(simulated().test, {"epsilon": 1.0}).standardized(seal.scaling_).signal
        for _ in range(2)
    ]
    assert (free[0] != free[1]).any()


@pytest.mark.parametrize(
    ("strength", "said"),
    [
        ({"epsilon": 0.0}, "'epsilon' must be above 0"),
        ({"epsilon": -1.0}, "'epsilon' must be above 0"),
        ({"epsilon": 1.0, "budget": 0.0}, "'budget' must be above 0"),
        ({"epsilon": 1.0, "budget": -1.0}, "'budget' must be above 0"),
        ({"budget": 1.0}, "give 'epsilon' too"),
        ({"budget": 0.0}, "'budget' must be above 0"),
    ],
)
def test_strengths_without_sense_are_refused(strength: Mapping[str, float], said: str) -> None:
    with pytest.raises(Refusal, match=said):
        sealed().obfuscate(simulated().test, strength)
    one_of_many = {
        name: np.where(np.arange(len(simulated().test)) == 5, value, 1.0)
        for name, value in strength.items()
    }
    with pytest.raises(Refusal, match=said):
        sealed().obfuscate(simulated().test, one_of_many)


# Promises in words.


def promised(**settings: Any) -> Guarantee:
    """What a run promises; that needs no training but the pool's."""
    found = diffused(**{"generator": "pool", **settings}).guarantee()
    assert found is not None
    return found


def test_the_guarantee_states_window_interval_hour_and_budget() -> None:
    plain = promised(epsilon=1.0)
    assert (plain.epsilon, plain.delta) == (1.0, 0.0)
    assert plain.unit == "one output window of the wearer (local)"
    assert "the class is released as it is" in plain.why
    assert "each interval of 60 s spends 1, an hour of a recording 60;" in plain.why
    assert "rises from 50.0% to at most 73.2%" in plain.why  # e / (1 + e), rounded up
    assert "budget" not in plain.why
    assert "at most 60" not in plain.why
    slow = promised(epsilon=0.5, interval_seconds=600.0, budget=2.0)
    assert slow.epsilon == 0.5
    assert "each interval of 600 s spends 0.5, an hour of a recording 3;" in slow.why
    assert "a recording spends at most 2;" in slow.why
    assert "to at most 62.3%" in slow.why  # e^0.5 / (1 + e^0.5)
    person = promised(epsilon=1.0, budget=3.0, rank_reference="person")
    assert "a person spends at most 3;" in person.why
    assert diffused().guarantee() is None


def test_a_crossfaded_window_spends_epsilon_twice() -> None:
    """Against the largest likelihood ratio of a pair of codes, by enumeration."""
    epsilon, count = 1.0, 3
    other = 1 / (math.exp(epsilon) + count - 1)
    table = np.full((count, count), other) + np.eye(count) * (1 - count * other)
    # A window shows its own code and, by its first sample, the one before.
    pairs = np.einsum("ax,by->abxy", table, table).reshape(count**2, count**2)
    ratio = float((pairs[:, None] / pairs[None]).max())
    faded = promised(epsilon=epsilon, crossfade_seconds=0.2)
    assert faded.epsilon == pytest.approx(math.log(ratio))
    assert "may hold two intervals and spend 2 x 1" in faded.why
    assert "to at most 88.1%" in faded.why  # e^2 / (1 + e^2)
    # The codes of a recording are spent once each, so the budget still limits all of it.
    limited = promised(epsilon=epsilon, crossfade_seconds=0.2, budget=1.5)
    assert limited.epsilon == 1.5
    assert "to at most 81.8%" in limited.why  # e^1.5 / (1 + e^1.5)


def test_the_card_states_epsilon_and_crossfading() -> None:
    card = run_card(diffused(generator="pool", epsilon=1.0, budget=5.0))
    assert "epsilon 1.00 for one output window" in card
    assert "to at most 73.2%" in card
    card = run_card(diffused(generator="pool", epsilon=1.0, crossfade_seconds=0.2))
    assert "epsilon 2.00 for one output window" in card
    assert "pairs of codes" in card
    assert "epsilon" not in run_card(diffused(generator="pool")).split("## Beware")[1]


# Crossfading, bounds and conditions.


def test_crossfaded_windows_are_smooth_and_bounds_count_pairs_of_codes() -> None:
    test = simulated().test
    rough, smooth = sealed(), sealed(crossfade_seconds=0.2)
    first, second = (seal.obfuscate(test, seed=0).signal for seal in (rough, smooth))

    def jumps(signal: np.ndarray) -> float:
        follows = np.flatnonzero(test.start[1:] == test.start[:-1] + test.length)
        return float(np.abs(signal[follows + 1, :, 0] - signal[follows, :, -1]).mean())

    assert jumps(second) < 0.1 * jumps(first)
    conditions = [seal.condition(test) for seal in (rough, smooth)]
    codes = [len(np.unique(one, axis=0)) for one in conditions if one is not None]
    assert codes[1] > codes[0]
    assert [seal.bounds(test)[0].codes for seal in (rough, smooth)] == codes


def test_runs_of_windows_are_counted_without_assumptions() -> None:
    test, seal = simulated().test, sealed()
    single, pairs = (seal.bounds(test, run)[0] for run in (1, 2))
    codes = seal.encode(test).reshape(-1, 12)  # windows of a recording lie in order
    wanted = {(a, b) for row in codes for a, b in pairwise(row)}
    assert pairs.codes == len(wanted) > single.codes == len(np.unique(codes))
    assert pairs.counted >= single.counted - 1e-9
    assert seal.bounds(test, 13) == ()


def test_the_condition_is_the_code_unless_it_is_randomised() -> None:
    test, seal = simulated().test, sealed()
    condition = seal.condition(test)
    assert condition is not None
    np.testing.assert_array_equal(condition.argmax(1), seal.encode(test))
    assert (condition.sum(1) == 1).all()
    assert diffused(generator="pool", epsilon=1.0).condition(test) is None


# Settings, runs and scores.


@pytest.mark.parametrize(
    "bad",
    [
        {"rank_reference": "future"},
        {"generator": "magic"},
        {"rhythm_bins": 0},
        {"sharpness_bins": 100},
        {"budget": 1.0},
        {"epsilon": -1.0},
        {"interval_seconds": 0.0},
        {"held_out": 1.0},
        {"max_advantage": -0.1},
        {"max_advantage": 1.1},
        {"dwell_seconds": -1.0},
        {"ensemble_size": 0},
    ],
)
def test_settings_without_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match=next(iter(bad))):
        Seal(**bad)


def test_there_is_a_preset_for_two_cores_and_one_for_a_gpu() -> None:
    fast, large = Seal("fast").settings, Seal("large").settings
    assert fast == Seal().settings
    assert large.ensemble_size == fast.ensemble_size
    assert large.classifier.width > fast.classifier.width
    for name in ("num_candidates", "windows_per_code", "denoiser_width", "training_steps"):
        assert getattr(large.generation, name) > getattr(fast.generation, name)
    assert large.code == fast.code
    with pytest.raises(Refusal, match="known: fast, large"):
        Seal("paper")


@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
@pytest.mark.parametrize("generator", ["pool", "diffusion"])
def test_every_kind_of_window_with_every_generator_from_a_run(
    kind: str, generator: str, tmp_path: Path
) -> None:
    windows = example_windows(kind)
    seal = Seal(**{**DIFFUSION, "generator": generator, "donors": "made up", "epochs": 1})
    seal.fit(windows, "activity", "gender")
    again = load_run(save_run(seal, tmp_path / "run"))
    outputs = [one.obfuscate(windows, seed=0).signal for one in (seal, again)]
    np.testing.assert_array_equal(*outputs)
    scores = [one.membership_scores(windows) for one in (seal, again)]
    if generator == "pool":
        assert scores == [None, None]
        assert again.membership_score == ""
    else:
        assert scores[0] is not None
        assert scores[0].shape == (len(windows),)
        assert np.isfinite(scores[0]).all()
        np.testing.assert_array_equal(*scores)
        assert again.membership_score == FIXED_NOISE


def test_a_loaded_run_generates_kept_and_new_windows_to_the_bit(tmp_path: Path) -> None:
    test, seal = few().test, diffused()
    again = load_run(save_run(seal, tmp_path / "run"))
    outputs = []
    for change in ({}, {"windows_per_code": 0}, {"windows_per_code": 0, "num_candidates": 1}):
        first, second = (
            one.with_settings(**change).obfuscate(test, seed=3).signal for one in (seal, again)
        )
        np.testing.assert_array_equal(first, second)
        outputs.append(first)
    kept, anew, only = outputs
    assert (kept != anew).any((1, 2)).mean() > 0.9
    assert (only != anew).any((1, 2)).any()
    # Each code has three kept windows; generated anew, no two are the same.
    codes = seal.encode(test)
    for signal, most in ((kept, 3), (anew, len(test))):
        flat = signal.reshape(len(test), -1).round(4)
        counts = [len(np.unique(flat[codes == one], axis=0)) for one in np.unique(codes)]
        assert max(counts) <= most
        assert (sum(counts) == len(test)) == (most > 3)
    for trained in ("training_steps", "latent_size", "generator", "epsilon", "crossfade_seconds"):
        with pytest.raises(Refusal, match="training again"):
            seal.with_settings(**{trained: 1})
    with pytest.raises(Refusal, match="keeps 3"):
        seal.with_settings(windows_per_code=4).obfuscate(test, seed=3)


def test_a_training_is_taken_from_the_checkpoint(tmp_path: Path) -> None:
    train, found = few().train, []
    for _ in range(2):
        checkpoint = Checkpoint(tmp_path / "kept", seconds=0)
        found.append(Seal(**DIFFUSION).fit(train, "activity", "gender", checkpoint))
    assert len(list((tmp_path / "kept").glob("*.safetensors"))) == 2  # autoencoder and denoiser
    assert same_arrays(*found, tmp_path / "again")
    assert same_arrays(found[0], diffused(), tmp_path / "without")
