"""sensorveil federated and personalise: runs, resumed runs, refusals."""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import replace

import pytest
import torch

from benchmarks import blinder as experiments
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.cli import federated
from sensorveil.cli.main import main
from sensorveil.data.catalog import load
from sensorveil.errors import Refusal
from sensorveil.federated.dataset import DataSource
from sensorveil.federated.simulation import LocalClients
from sensorveil.methods.run import load_run

DATA = ["--data", "simulated", "--option", "people=6"]
SMALL = ["--set", "hidden_sizes=24-24-16-16,classifier.epochs=1,width=4,classifier_weight=0"]
POLICY = ["--keep", "activity", "--hide", "gender"]
ROUNDS = ["--federation", "epochs=1,rounds=2,client_fraction=0.5,balance=0"]


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["sensorveil", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert ended.value.code == code, said.err
        return said.err if code else said.out

    return run


def simulate(command, out: str, *words: str, code: int = 0) -> str:
    given = ["federated", "simulate", *DATA, *ROUNDS, "--engine", "process", "--out", out]
    fresh = [] if "--start" in words else [*POLICY, *SMALL]
    return command(*given, *fresh, *words, code=code)


def test_a_federation_leaves_a_run_and_nothing_else(command, tmp_path):
    told = json.loads(simulate(command, "run", "--json"))["federation"]
    assert (told["rounds"], len(told["bytes_by_round"])) == (2, 2)
    assert [place.name for place in tmp_path.iterdir()] == ["run"]
    obfuscator = load_run(tmp_path / "run")
    assert obfuscator.metrics_["federation"]["bytes"] == told["bytes"]
    assert (told["kind"], told["clients"]) == ("Blinder", 4)  # of six, two are tested
    kept = json.loads((tmp_path / "run" / "config.json").read_text())["federation"]
    assert kept == {name: told[name] for name in ("kind", "clients", "rounds", "config")}
    assert (kept["config"]["rounds"], kept["config"]["learning_rate"]) == (2, 1e-3)
    assert obfuscator.origin_.dataset == "simulated"


def test_it_goes_on_with_what_was_stopped(command, tmp_path, monkeypatch):
    simulate(command, "whole")
    train = LocalClients.train

    def stopped(self, server):
        server.aggregate(self.updates(server.state.weights, 0, server.sample(list(self.data))))
        raise Refusal("the power is gone")

    monkeypatch.setattr(LocalClients, "train", stopped)
    assert "the power is gone" in simulate(command, "run", code=2)
    assert (tmp_path / "run.unfinished").is_dir()
    assert "go on with --resume" in simulate(command, "run", code=2)
    assert "go on with --resume" in simulate(command, "run", "--start", "run.start", code=2)
    monkeypatch.setattr(LocalClients, "train", train)
    simulate(command, "run", "--resume")
    assert torch.equal(*(load_run(tmp_path / name).weights() for name in ("run", "whole")))
    assert sorted(place.name for place in tmp_path.iterdir()) == ["run", "whole"]


def test_a_private_one_says_its_epsilon_and_its_unit(command):
    said = simulate(
        command, "run", "--federation", "noise_multiplier=4.0", "--federation", "seed=3"
    )
    assert "round 2: epsilon " in said
    assert "at delta 1e-05, for all data of one person" in said


def test_fedblinder_and_a_start_of_ones_own(command, tmp_path):
    simulate(command, "first")
    simulate(command, "second", "--start", "first", "--fedblinder")
    second = load_run(tmp_path / "second")
    assert second.made_with()["federation"]["kind"] == "FedBlinder"
    config = second.metrics_["federation"]["config"]
    assert (config["algorithm"], config["local_steps"], config["adaptation.steps"]) == (
        "fedavg", 5, 0
    )  # fmt: skip
    assert (tmp_path / "first").is_dir()


def test_fedblinder_honours_local_steps(command, tmp_path):
    """They used to be reset to 5 without a word."""
    simulate(command, "run", "--fedblinder", "--federation", "local_steps=2")
    config = load_run(tmp_path / "run").metrics_["federation"]["config"]
    assert (config["local_steps"], config["algorithm"]) == (2, "fedavg")
    said = simulate(command, "other", "--fedblinder", "--federation", "adaptation.steps=1", code=2)
    assert "'support_size' is 0" in said or "does not adapt" in said


def test_a_run_is_adapted_to_a_new_person(command, tmp_path, monkeypatch):
    simulate(command, "run")
    words = [
        "federated",
        "personalise",
        "run",
        *DATA,
        "--person",
        "2",
        "--steps",
        "3",
        "--out",
        "own",
    ]
    told = json.loads(command(*words, "--json"))
    assert (told["steps"], 0 < told["windows"] < 20) == (3, True)
    assert not torch.equal(
        load_run(tmp_path / "own").weights(), load_run(tmp_path / "run").weights()
    )
    assert "person 'nobody' is unknown" in command(
        "federated", "personalise", "run", *DATA, "--person", "nobody", "--out", "other", code=2
    )
    two = load("simulated", people=6).train.select(slice(0, 2))
    monkeypatch.setattr(DataSource, "person", lambda own, name: two)
    said = command(
        "federated", "personalise", "run", *DATA, "--person", "2", "--out", "other", code=2
    )
    assert " ".join(said.split()) == (
        "sensorveil: person 2 of simulated: 2 windows are too few: less than 5% of them are taken,"
        " and at least 2 are needed, so there must be 41; record more"
    )
    assert not (tmp_path / "other").exists()


def test_the_app_of_a_deployment_is_one_file_of_settings(command, tmp_path):
    simulate(command, "run")
    command("federated", "app", "app", "--start", "run", "--out", "end", "--clients", "3", *ROUNDS)
    assert [place.name for place in (tmp_path / "app").iterdir()] == ["pyproject.toml"]
    told = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert told["components"]["clientapp"] == "sensorveil.federated.client_app:app"
    assert told["config"]["federation"]["rounds"] == 2
    assert told["config"]["run"] == str(tmp_path / "run")


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
def test_what_cannot_be_is_refused_before_it_starts(command, tmp_path, words, line):
    assert line in simulate(command, "run", *words, code=2)
    assert list(tmp_path.iterdir()) == []


def test_without_flower_it_says_which_extra(command, monkeypatch):
    monkeypatch.setattr(federated, "find_spec", lambda name: None)
    said = simulate(command, "run", "--engine", "flower", code=2)
    assert "pip install 'sensorveil[federated]', or take --engine process" in said


@pytest.mark.slow
def test_an_experiment_writes_its_points(command, tmp_path, monkeypatch):
    tiny = ClassifierSettings(width=4, epochs=1)
    monkeypatch.setattr(ClassifierSettings, "quick", lambda: tiny)
    monkeypatch.setattr(experiments, "MLP_SETTINGS", replace(experiments.MLP_SETTINGS, epochs=1))
    assert "figure 9" in command("papers", "experiment", "list").lower()
    words = ["papers", "experiment", "shadows", *DATA, *POLICY, *SMALL, *ROUNDS, "--quick"]
    said = command(*words, "--out", "shadows.json")
    assert "shadows True" in said
    found = json.loads((tmp_path / "shadows.json").read_text())
    assert [len(point["discriminators"]) for point in found["points"]] == [1, 1]
    assert (found["data"]["dataset"], found["seeds"]) == ("simulated", [0])
    assert "exists already" in command(*words, "--out", "shadows.json", code=2)
    words[2] = "information,shadows"  # several train what they share but once
    fits: list[str] = []
    fit = Classifier.fit
    monkeypatch.setattr(
        Classifier,
        "fit",
        lambda own, windows, name: fits.append(name) or fit(own, windows, name),
    )
    command(*words, "--out", "both")
    assert sorted(fits) == ["activity", "activity", "gender", "gender"]
    again = json.loads((tmp_path / "both" / "shadows.json").read_text())
    assert again["points"] == found["points"]
    assert (tmp_path / "both" / "information.json").exists()
    words[2] = "information,nothing"
    assert "known: " in command(*words, "--out", "more", code=2)


@pytest.fixture
def tiny(monkeypatch) -> list[str]:
    """An experiment of few rounds with small fixed models."""
    monkeypatch.setattr(ClassifierSettings, "quick", lambda: ClassifierSettings(width=4, epochs=1))
    monkeypatch.setattr(experiments, "MLP_SETTINGS", replace(experiments.MLP_SETTINGS, epochs=1))
    return [*DATA, *POLICY, *SMALL, *ROUNDS, "--quick"]


@pytest.mark.slow
def test_tuning_says_which_rates_are_best_and_results_takes_both(command, tmp_path, tiny):
    said = command("papers", "experiment", "tuning", *tiny, "--out", "tuning.json")
    found = json.loads((tmp_path / "tuning.json").read_text())
    assert found["data"]["subset"] == "validation"
    assert "points of an even guess" in found["chosen"]["rule"]
    best = {name: found["chosen"][name]["rate"] for name in ("Blinder", "FedBlinder")}
    assert f"Rates: {best}, by " in " ".join(said.split())
    rates = ["--federation", "learning_rate=0.002", "--baseline", "learning_rate=0.0005"]
    command("papers", "experiment", "results", *tiny, *rates, "--out", "results.json")
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["data"]["subset"] == "test"
    assert [(p["algorithm"], p["plan"]["learning_rate"]) for p in found["points"]] == [
        ("Blinder", 0.002),
        ("FedBlinder", 0.0005),
    ]
    assert found["plan"]["learning_rate"] == 0.002
    assert found["baseline"] == {"learning_rate": "0.0005"}


@pytest.mark.slow
def test_an_experiment_that_was_cut_off_goes_on(command, tmp_path, tiny, monkeypatch):
    words = ["papers", "experiment", "results", *tiny, "--out", "results.json"]
    train, measured = LocalClients.train, []

    def noted(self, server):
        measured.append(server.config.seed)
        if len(measured) == 2:
            raise Refusal("the power is gone")
        return train(self, server)

    monkeypatch.setattr(LocalClients, "train", noted)
    assert "the power is gone" in command(*words, code=2)
    assert len(json.loads((tmp_path / "results.json").read_text())["points"]) == 1
    assert "results.json exists already; go on with --resume" in command(*words, code=2)
    command(*words, "--resume", "--seeds", "2")
    assert measured == [0, 0, 0, 1, 1]  # the first was there, the second was cut off
    found = json.loads((tmp_path / "results.json").read_text())
    assert (found["seeds"], len(found["raw"])) == ([0, 1], 2)
    assert len(found["earlier"]) == 1
    assert "--resume" not in found["earlier"][0]["command"]
    assert [(p["algorithm"], p["seed"]) for p in found["points"]] == [
        (name, seed) for seed in (0, 1) for name in ("Blinder", "FedBlinder")
    ]
    fewer, other = ["--resume"], ["--resume", "--seeds", "2", "--federation", "learning_rate=0.5"]
    assert "it has other seeds" in command(*words, *fewer, code=2)
    assert "it has other plan" in command(*words, *other, code=2)
    several = ["results,unseen", *words[3:], "--resume"]
    assert "is a file; several" in command(*words[:2], *several, code=2)


def test_fedblinder_is_compared_with_as_many_rounds(command, tmp_path):
    words = ["papers", "experiment", "results", *DATA, *POLICY, *ROUNDS, "--out", "r.json"]
    said = command(*words, "--baseline", "rounds=3", code=2)
    assert "FedBlinder would have 3 rounds and Blinder 2" in said
    assert list(tmp_path.iterdir()) == []
