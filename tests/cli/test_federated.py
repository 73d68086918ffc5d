"""sensorveil federated and personalise: runs, resumed runs, refusals."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import import_module

import pytest
import torch

from sensorveil.cli import federated
from sensorveil.errors import Refusal
from sensorveil.federated.simulation import LocalClients
from sensorveil.methods.run import load_run

DATA = ["--data", "simulated", "--option", "people=6"]
SMALL = ["--set", "hidden_sizes=24-24-16-16,classifier.epochs=1,width=4,classifier_weight=0"]
POLICY = ["--keep", "activity", "--hide", "gender"]
ROUNDS = ["--federation", "epochs=1,rounds=2,client_fraction=0.5,balance=0"]


@pytest.fixture
def run(command):
    """Calls the command, insists on its exit code, and gives what it printed on one line."""

    def insist(*words, code=0):
        outcome = command(*words)
        assert outcome.code == code, outcome.err
        return " ".join((outcome.err if code else outcome.out).split())

    return insist


@pytest.fixture
def simulate(run):
    def insist(out, *words, code=0):
        given = ["federated", "simulate", *DATA, *ROUNDS, "--engine", "process", "--out", out]
        fresh = [] if "--start" in words else [*POLICY, *SMALL]
        return run(*given, *fresh, *words, code=code)

    return insist


def test_a_federation_leaves_a_run_and_nothing_else(simulate, tmp_path):
    found = json.loads(simulate("run", "--json"))["federation"]
    assert (found["rounds"], len(found["bytes_by_round"])) == (2, 2)
    assert [place.name for place in tmp_path.iterdir()] == ["run"]
    obfuscator = load_run(tmp_path / "run")
    assert obfuscator.metrics_["federation"]["bytes"] == found["bytes"]
    assert (found["kind"], found["clients"]) == ("Blinder", 4)  # of six, two are tested
    kept = json.loads((tmp_path / "run" / "config.json").read_text())["federation"]
    assert kept == {name: found[name] for name in ("kind", "clients", "rounds", "config")}
    assert (kept["config"]["rounds"], kept["config"]["learning_rate"]) == (2, 1e-3)
    assert obfuscator.origin_.dataset == "simulated"


def test_it_goes_on_with_what_was_stopped(simulate, tmp_path, monkeypatch):
    simulate("whole")
    train = LocalClients.train

    def stopped(self, server):
        server.aggregate(self.updates(server.state.weights, 0, server.sample(list(self.data))))
        raise Refusal("the power is gone")

    monkeypatch.setattr(LocalClients, "train", stopped)
    assert "the power is gone" in simulate("run", code=2)
    assert (tmp_path / "run.unfinished").is_dir()
    assert "go on with --resume" in simulate("run", code=2)
    assert "go on with --resume" in simulate("run", "--start", "run.start", code=2)
    monkeypatch.setattr(LocalClients, "train", train)
    simulate("run", "--resume")
    assert torch.equal(*(load_run(tmp_path / name).weights() for name in ("run", "whole")))
    assert sorted(place.name for place in tmp_path.iterdir()) == ["run", "whole"]


def test_a_private_one_says_its_epsilon_and_its_unit(simulate):
    said = simulate("run", "--federation", "noise_multiplier=4.0", "--federation", "seed=3")
    assert "round 2: epsilon " in said
    assert "at delta 1e-05, for all data of one person" in said


def test_fedblinder_honours_what_is_given_and_a_start_of_ones_own(simulate, tmp_path):
    simulate("first")
    local = ["--fedblinder", "--federation", "local_steps=2"]
    simulate("second", "--start", "first", *local)
    federation = load_run(tmp_path / "second").made_with()["federation"]
    config = federation["config"]
    assert (federation["kind"], config["algorithm"]) == ("FedBlinder", "fedavg")
    assert (config["local_steps"], config["adaptation.steps"]) == (2, 0)
    assert (tmp_path / "first").is_dir()
    adapting = ["--fedblinder", "--federation", "adaptation.steps=1,support_size=1"]
    assert "FedBlinder does not adapt" in simulate("other", *adapting, code=2)


def test_a_run_is_adapted_to_a_new_person(simulate, run, tmp_path):
    simulate("run")
    words = ["federated", "personalise", "run", *DATA]
    own = ["--person", "2", "--out", "own"]
    found = json.loads(run(*words, *own, "--steps", "3", "--json"))
    assert (found["steps"], 0 < found["windows"] < 20) == (3, True)
    assert not torch.equal(*(load_run(tmp_path / name).weights() for name in ("own", "run")))
    other = ["--out", "other"]
    said = run(*words, "--person", "nobody", *other, code=2)
    assert "person 'nobody' is unknown" in said
    few = ["--data", "simulated", "--option", "people=6,windows=2"]
    said = run("federated", "personalise", "run", *few, "--person", "2", *other, code=2)
    assert re.search(r"person 2 of simulated: \d+ windows are too few: .* record more", said)
    assert "must be above 0" in run(*words, "--person", "2", "--steps", "0", *other, code=2)
    assert not (tmp_path / "other").exists()


def test_the_app_of_a_deployment_is_one_file_of_settings(simulate, run, tmp_path):
    simulate("run")
    run("federated", "app", "app", "--start", "run", "--out", "end", "--clients", "3", *ROUNDS)
    assert [place.name for place in (tmp_path / "app").iterdir()] == ["pyproject.toml"]
    found = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    for place in found["components"].values():
        module, name = place.split(":")
        assert hasattr(import_module(module), name)
    assert found["config"]["federation"]["rounds"] == 2
    assert found["config"]["run"] == str(tmp_path / "run")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--federation", "ronds=3"], "setting of a federation 'ronds' is unknown"),
        (["--federation", "quorum=2"], "setting 'robustness.quorum' is 2"),
        (["--set", "training.epochs=3"], "is of central training; see --federation"),
        (["--engine", "post"], "engine 'post' is unknown; known: flower, process"),
        (["--set", "latent_size=0"], "setting 'network.latent_size' is 0; it should be greater"),
        (["--start", "old", "--hide", "gender"], "are those of the run given with --start"),
    ],
)
def test_what_cannot_be_is_refused_before_it_starts(simulate, tmp_path, words, line):
    assert line in simulate("run", *words, code=2)
    assert list(tmp_path.iterdir()) == []


def test_without_flower_it_says_which_extra(simulate, monkeypatch):
    monkeypatch.setattr(federated, "find_spec", lambda name: None)
    said = simulate("run", "--engine", "flower", code=2)
    assert "pip install 'sensorveil[federated]', or take --engine process" in said
