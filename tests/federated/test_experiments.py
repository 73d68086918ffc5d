"""The experiments: their points are the paper's, and each measures what it says."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import sensorveil
from sensorveil.cli.main import app
from sensorveil.data.splits import Split
from sensorveil.errors import Refusal
from sensorveil.federated import experiments
from sensorveil.federated.experiments import EXPERIMENTS, Setting, run_experiment, taking_part
from sensorveil.federated.plan import Plan
from sensorveil.measures.inference import ClassifierSettings
from sensorveil.methods.blinder import Blinder


@pytest.fixture(autouse=True)
def _small_dense_models(monkeypatch):
    monkeypatch.setattr(experiments, "DENSE", replace(experiments.DENSE, epochs=1))


@pytest.fixture(scope="module")
def setting(plan):
    small = {"widths": "24-24-16-16", "latent": 6, "reader_epochs": 1, "reader_width": 4}
    return Setting(
        split=sensorveil.load("simulated", "recording", people=10),
        keep=("activity",),
        hide=("gender",),
        plan=replace(plan, epochs=1, rounds=8, query=1, balance=12, share=0.2),
        obfuscator=lambda seed: Blinder(seed=seed, **small),
        inference=ClassifierSettings(width=4, epochs=1, batch=64, rate=4e-3),
    )


def test_points_are_those_of_the_paper():
    plan = Plan()
    points = {name: made(plan, plan.fedblinder()) for name, made in EXPERIMENTS.items()}
    assert [p.values["ratio"] for p in points["heterogeneity"]] == [1, 1, 3, 3, 5, 5, 7, 7, 9, 9]
    assert [p.taking_part for p in points["unseen"]] == [0.5, 0.6, 0.7, 0.8, 0.9]
    batches = points["communication"]
    assert [p.plan.batch for p in batches[:4]] == [16, 64, 128, 256]
    windows = [p.plan.batch * p.plan.rounds * p.plan.local_steps for p in batches]
    assert max(windows[:5]) / min(windows[:5]) < 1.15  # an epoch goes through as many windows
    assert windows[5] == 1.6 * windows[0]  # but here: more steps, a fifth of the bytes
    assert [p.plan.inner_steps for p in batches[:4]] == [1, 4, 8, 16]
    assert [batches[0].plan.rounds / p.plan.rounds for p in batches[4:]] == [150 / 18, 5]
    assert [p.plan.shadows for p in points["shadows"]] == [True, False]


def test_uneven_classes_are_the_same_for_both():
    plan = Plan(balance=90)
    for point in EXPERIMENTS["heterogeneity"](plan, plan.fedblinder(rate=0.5)):
        own = (point.plan.skew, point.plan.balance, point.plan.total)
        assert own == (point.values["ratio"], 90, plan.total)
        plain = point.values["algorithm"] == "FedBlinder"
        assert (point.plan.inner_steps, point.plan.rate) == ((0, 0.5) if plain else (1, plan.rate))


def test_both_are_tuned_by_a_grid_of_one_size():
    plan = Plan(rate=0.003)
    points = EXPERIMENTS["tuning"](plan, plan.fedblinder())
    for name in ("Blinder", "FedBlinder"):
        own = [p.plan for p in points if p.values["algorithm"] == name]
        assert [p.rate for p in own] == [0.0003, 0.0009, 0.003, 0.009]
        assert {p.inner_steps for p in own} == {int(name == "Blinder")}
        assert {p.total for p in own} == {plan.total}


class Untouchable:
    """Test windows that nobody may look at."""

    def __getattr__(self, name):
        raise AssertionError(f"'{name}' of test windows was read")

    def __len__(self):
        raise AssertionError("test windows were counted")


def unread(split: Split) -> Split:
    """The same, with test windows that raise, and noise where their samples lay."""
    spoilt = split.train.store.copy()
    where = np.flatnonzero(split.test.coverage())
    assert not split.train.coverage()[where].any()  # no sample is in both
    spoilt[..., where] = np.random.default_rng(0).normal(size=(*spoilt.shape[:-1], len(where)))
    parts = {
        part: replace(getattr(split, part), store=spoilt)
        for part in ("train", "fitting", "validation")
    }
    return Split(test=Untouchable(), **parts)


def test_tuning_never_looks_at_test_windows(setting):
    found = run_experiment("tuning", setting, lambda so_far: None)
    again = run_experiment("tuning", replace(setting, split=unread(setting.split)), lambda _: None)
    assert again == found
    assert len(found["points"]) == 8
    with pytest.raises(AssertionError, match="of test windows was read"):
        run_experiment("results", replace(setting, split=unread(setting.split)), lambda _: None)


def test_tuning_learns_from_fitting_windows_and_reads_validation_windows(setting, monkeypatch):
    learnt, looked = [], []
    fit, obfuscate = Blinder.prepare, Blinder.obfuscate
    monkeypatch.setattr(
        Blinder,
        "prepare",
        lambda own, windows, *rest: learnt.append(windows) or fit(own, windows, *rest),
    )
    monkeypatch.setattr(
        Blinder,
        "obfuscate",
        lambda own, windows, **rest: looked.append(windows) or obfuscate(own, windows, **rest),
    )
    run_experiment("tuning", setting, lambda so_far: None)
    assert [part.origin.subset for part in learnt] == ["fitting"]
    assert [part.origin.subset for part in looked] == ["validation"] * 8
    assert not setting.split.fitting.coverage()[looked[0].coverage() > 0].any()


def test_a_rate_that_diverges_costs_no_other(setting, monkeypatch):
    rounds = experiments.run_rounds

    def diverging(state, plan, *rest, **named):
        if plan.rate > 0.002:
            raise Refusal("round 1: not finite")
        return rounds(state, plan, *rest, **named)

    monkeypatch.setattr(experiments, "run_rounds", diverging)
    kept = []
    found = run_experiment("tuning", setting, lambda so_far: kept.append(len(so_far["points"])))
    failed = [one for one in found["points"] if "failed" in one]
    assert [one["rate"] for one in failed] == [0.003, 0.003]  # three times the default
    assert kept == [*range(1, 9), 8]  # and once more with what was chosen
    assert found["chosen"]["FedBlinder"]["rate"] < 0.002
    always = replace(setting, plan=replace(setting.plan, rate=0.1))
    with pytest.raises(Refusal, match="Blinder failed at every rate; the first time: round 1"):
        run_experiment("tuning", always, lambda so_far: None)


def test_what_is_known_is_not_measured_again(setting, monkeypatch):
    two = replace(setting, seeds=(0, 1))
    whole = run_experiment("results", two, lambda so_far: None)
    known = {"points": whole["points"][:3], "raw": whole["raw"]}
    measured = []
    rounds = experiments.run_rounds
    monkeypatch.setattr(
        experiments,
        "run_rounds",
        lambda state, plan, *rest, **named: (
            measured.append((plan.seed, plan.inner_steps)) or rounds(state, plan, *rest, **named)
        ),
    )
    assert run_experiment("results", two, lambda so_far: None, known) == whole
    assert measured == [(1, 0)]  # FedBlinder's second seed alone
    other = replace(two, baseline={"rate": 0.002})
    again = run_experiment("results", other, lambda so_far: None, known)
    assert measured[1:] == [(0, 0), (1, 0)]  # with another rate it is another point
    assert [one["plan"]["rate"] for one in again["points"]] == [1e-3, 1e-3, 1e-3, 2e-3, 2e-3]


@pytest.mark.parametrize("name", ["heterogeneity", "unseen"])
def test_every_point_is_read(setting, name):
    kept = []
    found = run_experiment(name, setting, lambda so_far: kept.append(len(so_far["points"])))
    assert kept == list(range(1, {"heterogeneity": 10, "unseen": 5}[name] + 1))
    for point in found["points"]:
        for kind in ("read", "read_dense"):
            assert set(point[kind]) == {"activity", "gender"}
        assert point["bytes"] > 0
    assert set(found["raw"][0]) == {"read", "read_dense"}
    json.dumps(found)


def test_changes_of_eight_steps_take_an_eighth_of_the_bytes(setting):
    points = run_experiment("communication", setting, lambda found: None)["points"]
    assert points[4]["bytes"] == points[0]["bytes"] / 8
    assert [point["rounds"] for point in points] == [8, 2, 1, 1, 1, 1]


def test_curves_have_a_value_for_each_epoch(setting):
    setting = replace(setting, plan=replace(setting.plan, epochs=2, rounds=1))
    found = run_experiment("shadows", setting, lambda found: None)["points"]
    assert [len(point["discriminators"]) for point in found] == [2, 2]
    assert 0.3 < found[0]["discriminators"][0] < 1.2  # near log 2 before anything is learnt
    (point,) = run_experiment("information", setting, lambda found: None)["points"]
    assert [set(bits) for bits in point["information"]] == [{"activity", "gender"}] * 2


def test_runs_are_adapted_to_people_who_were_not_trained_on(setting):
    (point,) = run_experiment("personal", setting, lambda found: None)["points"]
    assert point["people"] == 5  # of ten
    assert 0 < len(point["adapted"]) <= 5
    for one in point["adapted"]:
        assert 0 < one["windows"] < 10
        assert set(one["before"]["read"]) == set(one["after"]["read"]) == {"activity", "gender"}
    before = [one["before"]["read"]["activity"] for one in point["adapted"]]
    assert before == sorted(before)  # the worst first


def test_those_who_take_part_are_whole_people(setting):
    train = setting.split.train
    inside = taking_part(train, 0.5, seed=3)
    assert len(np.unique(train.subject[inside])) == 5
    assert not set(train.subject[inside]) & set(train.subject[~inside])


def test_an_unknown_experiment_is_refused(setting):
    with pytest.raises(Refusal, match="experiment 'nothing' is unknown; known: communication"):
        run_experiment("nothing", setting, lambda found: None)


def test_the_command_measures_what_is_named_twice_once(tmp_path, monkeypatch):
    measured = []

    def noted(name, setting, done, known):
        measured.append(name)
        found = {"experiment": name, "points": []}
        done(found)
        return found

    def command(names: str, out: str) -> None:
        policy = ["--keep", "activity", "--hide", "gender", "--quiet"]
        data = ["--data", "simulated", "--option", "people=4", "--out", str(tmp_path / out)]
        app(["federated", "experiment", names, *data, *policy], standalone_mode=False)

    monkeypatch.setattr(experiments, "run_experiment", noted)
    command("shadows,shadows", "one.json")  # as one: a file
    assert json.loads((tmp_path / "one.json").read_text())["experiment"] == "shadows"
    command("shadows,unseen,shadows", "two")
    assert {place.name for place in (tmp_path / "two").iterdir()} == {"shadows.json", "unseen.json"}
    assert measured == ["shadows", "shadows", "unseen"]
    with pytest.raises(Refusal, match="experiment ',' is unknown"):
        command(",", "none")
