"""The experiments: their points are the paper's, and each measures what it says."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import sensorveil
from sensorveil.cli.main import app
from sensorveil.errors import Refusal
from sensorveil.federated import experiments
from sensorveil.federated.experiments import EXPERIMENTS, Setting, run_experiment, taking_part
from sensorveil.federated.plan import Plan
from sensorveil.measures.inference import InferenceSettings
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
        veil=lambda seed: Blinder(seed=seed, **small),
        inference=InferenceSettings(width=4, epochs=1, batch=64, rate=4e-3),
    )


def test_points_are_those_of_the_paper():
    plan = Plan()
    points = {name: made(plan) for name, made in EXPERIMENTS.items()}
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


@pytest.mark.parametrize("name", ["heterogeneity", "unseen"])
def test_every_point_is_read(setting, name):
    kept = []
    found = run_experiment(name, setting, lambda so_far: kept.append(len(so_far["points"])))
    assert kept == list(range(1, len(EXPERIMENTS[name](setting.plan)) + 1))
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

    def noted(name, setting, done):
        measured.append(name)
        found = {"experiment": name, "points": []}
        done(found)
        return found

    def command(names: str, out: str) -> None:
        policy = ["--keep", "activity", "--hide", "gender", "--quiet"]
        data = ["--data", "simulated", "--option", "people=4", "--out", str(tmp_path / out)]
        app(["federate", "experiment", names, *data, *policy], standalone_mode=False)

    monkeypatch.setattr(experiments, "run_experiment", noted)
    command("shadows,shadows", "one.json")  # as one: a file
    assert json.loads((tmp_path / "one.json").read_text())["experiment"] == "shadows"
    command("shadows,unseen,shadows", "two")
    assert {place.name for place in (tmp_path / "two").iterdir()} == {"shadows.json", "unseen.json"}
    assert measured == ["shadows", "shadows", "unseen"]
    with pytest.raises(Refusal, match="experiment ',' is unknown"):
        command(",", "none")
