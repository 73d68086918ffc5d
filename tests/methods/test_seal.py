"""Seal: the output is made from codes and noise alone, and what codes tell is counted."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sensorveil.cli.main import main
from sensorveil.data.catalog import load
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.measures.bounds import Bound
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.run import load_run, run_card, save_run
from sensorveil.methods.seal import Seal

SMALL: Mapping[str, Any] = {"width": 8, "epochs": 3, "rhythm": 3, "intensity": 3}


@cache
def simulated() -> Split:
    return load("simulated", people=16, windows=12, gender=3.0, activity=8.0)


@cache
def sealed(**settings: Any) -> Seal:
    return Seal(**{**SMALL, **settings}).fit(simulated().train, "activity", "gender")


def unknown_origin() -> Windows:
    return replace(simulated().train, origin=None)


def test_windows_of_one_code_are_not_told_apart():
    """Other signals with the same codes give, with the same noise, the same output to the bit."""
    test, obfuscator = simulated().test, sealed()
    noise = np.random.default_rng(0).normal(size=test.signal.shape) * 0.005
    other = test.replaced(test.signal + noise)
    differs = test.recording[obfuscator.encode(test) != obfuscator.encode(other)]
    same = ~np.isin(test.recording, differs)
    assert same.mean() > 0.3
    test, other = test.select(same), other.select(same)
    assert (other.signal != test.signal).any((1, 2)).all()
    first, second = (obfuscator.obfuscate(w, seed=1).signal for w in (test, other))
    np.testing.assert_array_equal(first, second)


def test_windows_one_at_a_time_are_those_of_all_at_once():
    """A single window takes shorter ways at many places; the output is the same to the bit."""
    obfuscator, test = sealed(), simulated().test
    test = replace(test, recording=np.arange(len(test)))  # nobody has a past
    whole = obfuscator._obfuscate(test.scaled(obfuscator.scaling_), {}, rng())
    noise = rng()
    singles = [test.select([place]).compact() for place in range(len(test))]
    made = [obfuscator._obfuscate(one.scaled(obfuscator.scaling_), {}, noise) for one in singles]
    np.testing.assert_array_equal(np.concatenate(made), whole)


def test_the_time_of_a_window_is_that_of_windows_that_come_alone(monkeypatch):
    """The clock goes by what windows take: 9 s to start up, then 1, 5, 2, 8 and 3."""
    obfuscator, seen, clock = copy(sealed()), [], [0.0]
    lasts = iter([9.0, 1.0, 5.0, 2.0, 8.0, 3.0])

    def obfuscate(windows: Windows) -> None:
        seen.append(windows)
        clock[0] += next(lasts)

    monkeypatch.setattr(obfuscator, "obfuscate", obfuscate)
    monkeypatch.setattr("sensorveil.measures.timing.perf_counter", lambda: clock[0])
    assert obfuscator.window_seconds(simulated().test, most=5) == 3.0
    assert [len(one) for one in seen] == [1] * 6
    assert [one.start[0] for one in seen[1:]] == simulated().test.start[:5].tolist()
    assert {one.store.shape[-1] for one in seen} == {simulated().test.length}


def test_no_windows_take_no_time():
    with pytest.raises(Refusal, match="no windows"):
        sealed().window_seconds(simulated().test.select([]))


def test_what_is_kept_is_kept_and_movement_goes_along():
    test, obfuscator = simulated().test, sealed()
    hidden = obfuscator.obfuscate(test, seed=0)
    assert (obfuscator.reader_.predict(hidden) == test.codes("activity")).mean() > 0.9
    codes = obfuscator.encode(test)
    rhythm, intensity = codes // 3 % 3, codes % 3
    walking = test.codes("activity") == 2
    power = hidden.signal[:, 2].var(-1)
    means = [power[walking & (intensity == level)].mean() for level in range(3)]
    assert means[0] < means[1] < means[2]
    assert set(rhythm) == {0, 1, 2}


def test_windows_that_nobody_reads_right_are_not_given_out():
    """A tenth of the windows of each class is silence, which is read as one class or another."""
    train = simulated().train
    silent = np.arange(len(train)) % 10 == 0
    signal = train.signal
    signal[silent] = 0
    spoilt = replace(train.replaced(signal), origin=train.origin)
    obfuscator = Seal(**SMALL).fit(spoilt, "activity", "gender")
    made = obfuscator.obfuscate(simulated().test, seed=0)
    read = obfuscator.reader_.predict(made)
    codes = obfuscator.encode(simulated().test)
    np.testing.assert_array_equal(read, obfuscator.cells_[codes // 9, 0])
    assert obfuscator.metrics_["donor_windows"] <= len(train) - silent.sum() * 3 / 4


def test_a_class_of_which_only_the_unusual_is_read_right_keeps_the_usual(monkeypatch):
    train, obfuscator = simulated().train, Seal(**SMALL)
    common = np.ones(len(train), bool)
    codes = train.codes("activity")
    odd = np.flatnonzero(codes == 1)[:2]
    common[odd] = False
    read = np.where(codes == 1, 0, codes)
    read[odd] = 1  # the others of class 1 are taken for 0, and so are none of the rest
    obfuscator.reader_ = obfuscator._reader()
    monkeypatch.setattr(obfuscator.reader_, "predict", lambda windows: read)
    np.testing.assert_array_equal(obfuscator._clear(train, codes, common), common)


def test_people_who_did_not_agree_are_not_given_out():
    windows = unknown_origin()
    with pytest.raises(Refusal, match="agreed"):
        Seal(**SMALL, generator="pool").fit(windows, "activity", "gender")
    obfuscator = Seal(**SMALL).fit(windows, "activity", "gender")
    assert obfuscator.metrics_["generator"] == "gaussian"
    assert "own windows" not in run_card(obfuscator)


def test_consent_is_recorded_in_the_run(tmp_path: Path):
    windows = unknown_origin()
    obfuscator = Seal(**SMALL, donors="all agreed in writing").fit(windows, "activity", "gender")
    assert obfuscator.metrics_["generator"] == "pool"
    again = load_run(save_run(obfuscator, tmp_path / "run"))
    assert again.metrics_["donors"] == "all agreed in writing"
    card = (tmp_path / "run" / "card.md").read_text()
    assert "all agreed in writing" in card
    assert "own windows" in card
    test = simulated().test
    np.testing.assert_array_equal(
        again.obfuscate(test, seed=1).signal, obfuscator.obfuscate(test, seed=1).signal
    )


def test_people_held_out_are_counted_and_never_learnt_from():
    obfuscator = sealed(held_out=0.5)
    found = [Bound(**one) for one in obfuscator.metrics_["bounds"]]
    assert {one.attribute for one in found} == {"gender", "weight", "subject"}
    people = len(np.unique(simulated().train.subject))
    assert all(one.people == people // 2 for one in found)
    assert found[[one.attribute for one in found].index("subject")].vacuous
    # Half of the windows may be donors: their samples, and no others, are in the run.
    donors = obfuscator.metrics_["donor_windows"]
    assert 0.7 < donors / (len(simulated().train) / 2) <= 1  # without what is extreme
    assert obfuscator._state()["generator.store"].shape[-1] == donors * simulated().train.length
    # With the windows of the others a thousand times as large, all that was learnt is the same.
    train = simulated().train
    held = obfuscator._held_out(train, np.random.default_rng(obfuscator.seed))
    factor = np.where(held, 1000.0, 1.0).reshape(-1, 1, 1)
    other = replace(train.replaced(train.signal * factor), origin=train.origin)
    again = Seal(**SMALL, held_out=0.5).fit(other, "activity", "gender")
    np.testing.assert_array_equal(again.scaling_.mean, obfuscator.scaling_.mean)
    for name, array in obfuscator._state().items():
        np.testing.assert_array_equal(again._state()[name], array)
    card = run_card(obfuscator)
    assert "## Bound" in card
    assert "independently" in card


def test_without_people_held_out_the_card_says_so():
    assert "nobody was held out" in run_card(sealed())


def test_the_card_states_the_epsilon():
    card = run_card(sealed(epsilon=1.0, budget=5.0))
    assert "local epsilon of 1, k windows" in card
    assert "at most 5 for one recording" in card
    assert "more than 73.1% of single windows" in card  # e / (1 + e)
    assert "epsilon of" not in run_card(sealed())


def test_holding_out_nobody_or_everybody_is_refused():
    for part in (0.001, 0.99):
        with pytest.raises(Refusal, match="held_out"):
            Seal(**SMALL, held_out=part).fit(example_windows(), "activity", "gender")


def test_a_code_of_absolute_levels_tells_and_is_refused_by_the_search():
    windows = load("simulated", people=60, windows=8, gender=4.0, recordings=1).train
    small = {**SMALL, "epochs": 1, "max_advantage": 0.1}
    relative = Seal(**small).fit(windows, "activity", "gender")
    assert relative.metrics_["levels"] == [3, 3]
    absolute = Seal(**small, past="none").fit(windows, "activity", "gender")
    assert absolute.metrics_["levels"][0] == 1  # gender changes the rhythm
    for one in absolute.metrics_["search"]:
        assert (one["advantages"]["gender"] > 0.1) == (one["rhythm"] == 3)
    # Where the kept attribute itself is what tells, there is no code to take.
    told = replace(windows, labels={**windows.labels, "activity": windows.codes("gender")})
    with pytest.raises(Refusal, match="no code tells at most 10"):
        Seal(**small).fit(told, "activity", "gender")


def test_the_search_reads_people_by_readers_of_others():
    """Each person does each activity in a way of their own: who knows them reads it, others not."""
    generator = np.random.default_rng(0)
    person, activity = np.repeat(np.arange(6), 40), np.tile(np.arange(2), 120)
    ways = generator.normal(size=(6, 2, 3, 32))
    signal = ways[person, activity] + 0.1 * generator.normal(size=(240, 3, 32))
    labels = {"activity": activity, "gender": person % 2, "subject": person}
    windows = Windows.from_signal(signal.astype(np.float32), labels, 32.0)
    obfuscator = Seal(width=8, epochs=10, rhythm=1, intensity=1, max_advantage=0.9)
    obfuscator.fit(windows, "activity", "gender")
    assert (obfuscator.reader_.predict(windows) == activity).mean() > 0.95
    read = obfuscator._read_by_strangers(windows, activity)
    assert (read == activity).mean() < 0.8


def test_a_search_needs_two_people():
    windows = simulated().train
    alone = windows.select(windows.subject == windows.subject[0])
    turns = np.arange(len(alone)) // 2 % 2  # else there is nothing to hide
    alone = replace(alone, labels={**alone.labels, "gender": turns})
    with pytest.raises(Refusal, match="two people"):
        Seal(**SMALL, max_advantage=0.5).fit(alone, "activity", "gender")


def test_epsilon_blurs_the_code_and_a_budget_stops_it():
    test, obfuscator = simulated().test, sealed()
    plain = obfuscator.encode(test)
    told = {
        name: obfuscator._told(
            plain, test, {k: np.full(len(test), v) for k, v in given.items()}, rng()
        )
        for name, given in {
            "much": {"epsilon": 50.0},
            "little": {"epsilon": 1e-6},
            "stopped": {"epsilon": 50.0, "budget": 200.0},
        }.items()
    }
    np.testing.assert_array_equal(told["much"], plain)
    assert np.mean(told["little"] == plain) < 0.1
    # Four windows of each recording are told, the others say nothing.
    order = test.start // test.length
    np.testing.assert_array_equal(told["stopped"][order < 4], plain[order < 4])
    assert np.mean(told["stopped"][order >= 4] == plain[order >= 4]) < 0.1


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_epsilon_of_a_whole_output():
    """Two recordings as different as can be: no output code is e^epsilon times as likely."""
    obfuscator, epsilon = sealed(), 1.0
    test, count, draws = simulated().test, obfuscator.encoder_.count, 20_000
    codes = obfuscator.encode(test)
    pair = [int(codes.min()), int(codes.max())]
    told = [
        obfuscator._told(
            np.full(draws, code),
            test,
            {"epsilon": np.full(draws, epsilon)},
            np.random.default_rng(9),
        )
        for code in pair
    ]
    shares = [np.bincount(t, minlength=count) for t in told]
    ratio = np.log(shares[0] / shares[1])
    error = np.sqrt(1 / shares[0] + 1 / shares[1])
    assert (np.abs(ratio) - 5 * error <= epsilon).all()
    assert np.abs(ratio).max() > epsilon / 2


@pytest.mark.parametrize(
    "strength", [{"epsilon": 0.0}, {"epsilon": -1.0}, {"budget": 1.0}, {"budget": 0.0}]
)
def test_strengths_without_sense_are_refused(strength):
    with pytest.raises(Refusal, match=r"epsilon|budget"):
        sealed().obfuscate(simulated().test, strength)


@pytest.mark.parametrize(
    "bad",
    [
        {"past": "future"},
        {"generator": "magic"},
        {"rhythm": 0},
        {"budget": 1.0},
        {"epsilon": -1.0},
        {"held_out": 1.0},
        {"max_advantage": -0.1},
        {"memory": 0},
        {"steady": -1.0},
        {"steps": 0},
        {"readers": 0},
    ],
)
def test_settings_without_sense_are_refused(bad):
    with pytest.raises(Refusal, match=next(iter(bad))):
        Seal(**bad)


def test_joins_are_smooth_and_counted_in_the_bound():
    test = simulated().test
    rough, smooth = sealed(), sealed(join=0.2)
    first, second = (obfuscator.obfuscate(test, seed=0).signal for obfuscator in (rough, smooth))

    def jumps(signal: np.ndarray) -> float:
        follows = np.flatnonzero(test.start[1:] == test.start[:-1] + test.length)
        return float(np.abs(signal[follows + 1, :, 0] - signal[follows, :, -1]).mean())

    assert jumps(second) < 0.1 * jumps(first)
    codes = [len(np.unique(obfuscator.condition(test), axis=0)) for obfuscator in (rough, smooth)]
    assert codes[1] > codes[0]
    assert smooth.count_bounds(test)[0].codes == codes[1]
    assert rough.count_bounds(test)[0].codes == codes[0]


def test_runs_of_windows_are_counted_as_they_are():
    test, obfuscator = simulated().test, sealed()
    single, pairs = (obfuscator.count_bounds(test, run)[0] for run in (1, 2))
    codes = obfuscator.encode(test).reshape(-1, 12)  # windows of a recording lie in order
    wanted = {(a, b) for row in codes for a, b in pairwise(row)}
    assert pairs.codes == len(wanted) > single.codes == len(np.unique(codes))
    assert pairs.counted >= single.counted - 1e-9
    assert obfuscator.count_bounds(test, 13) == ()


def test_the_condition_is_the_code_unless_it_is_randomised():
    test, obfuscator = simulated().test, sealed()
    condition = obfuscator.condition(test)
    assert condition is not None
    np.testing.assert_array_equal(condition.argmax(1), obfuscator.encode(test))
    assert (condition.sum(1) == 1).all()
    assert sealed(epsilon=1.0).condition(test) is None


@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
@pytest.mark.parametrize("generator", ["pool", "gaussian", "diffusion"])
def test_every_kind_of_window_by_every_generator(kind, generator, tmp_path):
    windows = example_windows(kind)
    obfuscator = Seal(
        epochs=1, width=4, steps=4, generator=generator, donors="made up", past="person"
    )
    obfuscator.fit(windows, "activity", "gender")
    again = load_run(save_run(obfuscator, tmp_path / "run"))
    outputs = [one.obfuscate(windows, seed=0).signal for one in (obfuscator, again)]
    np.testing.assert_array_equal(*outputs)


@pytest.mark.slow
def test_the_document_runs(tmp_path, monkeypatch, capsys):
    text = (Path(__file__).parents[2] / "docs" / "seal.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    exec(code, {})
    assert "nobody is right in more than" in capsys.readouterr().out
    (script,) = re.findall(r"^```sh\n(.*?)^```", text, flags=re.M | re.S)
    monkeypatch.chdir(tmp_path)
    for line in script.splitlines():
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 0, capsys.readouterr().err
    assert (tmp_path / "private.npz").is_file()
