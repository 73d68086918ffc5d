"""The experiments: their points are the paper's, and each measures what it says."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

import sensorveil
from benchmarks import blinder as experiments
from benchmarks.blinder import EXPERIMENTS, Setting, run_experiment, sampled_people
from benchmarks.blinder_rates import choose_rates
from sensorveil.classifiers import ClassifierSettings
from sensorveil.cli.main import main
from sensorveil.data.splits import Split
from sensorveil.errors import Refusal
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.simulation import LocalClients
from sensorveil.methods.blinder import Blinder

SMALL = {
    "hidden_sizes": (16, 16, 8, 8),
    "convolutional": False,
    "latent_size": 4,
    "classifier.epochs": 1,
    "classifier.width": 4,
    "classifier_weight": 0.0,
    "training.epochs": 0,
}
TINY = ClassifierSettings(width=4, epochs=1, batch_size=64, learning_rate=4e-3)


@pytest.fixture(autouse=True)
def _small_classifiers(monkeypatch):
    monkeypatch.setattr(experiments, "MLP_SETTINGS", replace(TINY, network="mlp"))
    monkeypatch.setattr(ClassifierSettings, "quick", lambda: TINY)


@pytest.fixture(scope="module")
def setting():
    return Setting(
        split=sensorveil.load("simulated", "recording", people=10, windows=60),
        keep=("activity",),
        hide=("gender",),
        config=FederationConfig(
            epochs=1, rounds=2, query_size=1, balance=12, client_fraction=0.2, seed=3
        ),
        start=lambda seed: Blinder(seed=seed, **SMALL),
        inference=TINY,
    )


def changed(setting, **values):
    return replace(setting, config=setting.config.with_values(values))


def nothing(found):
    """What a caller does after every point who keeps none."""


# Points.


def points_of(name, config=None, **own):
    config = config or FederationConfig()
    return EXPERIMENTS[name](config, config.fedblinder(own))


def test_points_are_those_of_the_paper():
    ratios = [point.values["ratio"] for point in points_of("heterogeneity")]
    assert ratios == [1, 1, 3, 3, 5, 5, 7, 7, 9, 9]
    assert [p.fraction for p in points_of("unseen")] == [0.5, 0.6, 0.7, 0.8, 0.9]
    batches = [p.config for p in points_of("communication")]
    assert [c.batch_size for c in batches[:4]] == [16, 64, 128, 256]
    windows = [c.batch_size * c.rounds * c.local_steps for c in batches]
    assert max(windows[:5]) / min(windows[:5]) < 1.15  # an epoch goes through as many windows
    assert windows[5] == 1.6 * windows[0]  # but here: more steps, a fifth of the bytes
    assert [c.adaptation.steps for c in batches[:4]] == [1, 4, 8, 16]
    assert [batches[0].rounds / c.rounds for c in batches[4:]] == [150 / 18, 5]
    assert [p.config.adaptation.shadow_samples for p in points_of("shadows")] == [True, False]


def test_uneven_classes_are_the_same_for_both():
    config = FederationConfig(balance=90)
    for point in points_of("heterogeneity", config, learning_rate=0.5):
        own = (point.config.class_ratio, point.config.balance, point.config.total_rounds)
        assert own == (point.values["ratio"], 90, config.total_rounds)
        plain = point.values["algorithm"] == "FedBlinder"
        found = (point.config.adaptation.steps, point.config.learning_rate)
        assert found == ((0, 0.5) if plain else (1, config.learning_rate))


def test_both_are_tuned_by_a_grid_of_one_size():
    config = FederationConfig(learning_rate=0.003)
    for name in ("Blinder", "FedBlinder"):
        own = [p.config for p in points_of("tuning", config) if p.values["algorithm"] == name]
        assert [c.learning_rate for c in own] == [0.0003, 0.0009, 0.003, 0.009]
        assert {c.adaptation.steps for c in own} == {int(name == "Blinder")}
        assert {c.total_rounds for c in own} == {config.total_rounds}


def test_both_have_as_many_rounds(setting):
    with pytest.raises(Refusal, match="FedBlinder would have 3 rounds and Blinder 2"):
        replace(setting, baseline={"rounds": 3}).fedblinder()


# What is measured.


class Untouchable:
    """Test windows that nobody may look at."""

    def __getattr__(self, name):
        raise AssertionError(f"'{name}' of test windows was used")


def without_test(split: Split) -> Split:
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


@pytest.mark.slow
def test_tuning_never_looks_at_test_windows(setting):
    found = run_experiment("tuning", setting, nothing)
    blind = replace(setting, split=without_test(setting.split))
    assert run_experiment("tuning", blind, nothing) == found
    assert len(found["points"]) == 8
    with pytest.raises(AssertionError, match="of test windows was used"):
        run_experiment("results", blind, nothing)


@pytest.mark.slow
def test_a_rate_that_diverges_costs_no_other(setting, monkeypatch):
    train = LocalClients.train

    def diverging(self, server):
        if server.config.learning_rate > 0.002:
            raise Refusal("round 1: not finite")
        return train(self, server)

    monkeypatch.setattr(LocalClients, "train", diverging)
    kept = []
    found = run_experiment("tuning", setting, lambda so_far: kept.append(len(so_far["points"])))
    failed = [one for one in found["points"] if "failed" in one]
    assert [one["rate"] for one in failed] == [0.003, 0.003]  # three times the default
    assert kept == [*range(1, 9), 8]  # and once more with what was chosen
    assert found["chosen"]["FedBlinder"]["rate"] < 0.002
    always = changed(setting, learning_rate=0.1)
    with pytest.raises(Refusal, match="Blinder failed at every rate; the first time: round 1"):
        run_experiment("tuning", always, nothing)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "points"), [("heterogeneity", 10), ("unseen", 5)])
def test_every_point_is_measured(setting, name, points):
    found = run_experiment(name, setting, nothing)
    assert len(found["points"]) == points
    for point in (*found["points"], *found["raw"]):
        for kind in ("read", "read_dense"):
            assert set(point[kind]) == {"activity", "gender"}
    json.dumps(found)


@pytest.mark.slow
def test_curves_have_a_value_for_each_epoch(setting):
    setting = changed(setting, epochs=2, rounds=1)
    found = run_experiment("shadows", setting, nothing)["points"]
    assert [len(point["discriminators"]) for point in found] == [2, 2]
    assert 0.3 < found[0]["discriminators"][0] < 1.2  # near log 2 before anything is learnt
    (point,) = run_experiment("information", setting, nothing)["points"]
    assert [set(bits) for bits in point["information"]] == [{"activity", "gender"}] * 2


@pytest.mark.slow
def test_runs_are_adapted_to_people_who_were_not_trained_on(setting):
    (point,) = run_experiment("personal", setting, nothing)["points"]
    assert point["people"] == 5  # of ten
    assert 0 < len(point["adapted"]) <= 5
    before = [one["before"]["read"]["activity"] for one in point["adapted"]]
    assert before == sorted(before)  # the worst first


def test_those_who_take_part_are_whole_people(setting):
    train = setting.split.train
    inside = sampled_people(train, 0.5, seed=3)
    assert len(np.unique(train.subject[inside])) == 5
    assert not set(train.subject[inside]) & set(train.subject[~inside])


# The choice of learning rates: what the rule says, by hand.


def point(rate, activity, gender, dense_gender=0.5, algorithm="Blinder"):
    return {
        "algorithm": algorithm,
        "rate": rate,
        "read": {"activity": activity, "gender": gender},
        "read_dense": {"activity": activity - 0.1, "gender": dense_gender},
    }


def best(*points, algorithm="Blinder"):
    return choose_rates(points, ("activity",), {"gender": 0.5})[algorithm]


def test_the_best_rate_is_the_most_useful_of_those_that_hide():
    found = best(point(1, 0.8, 0.5), point(2, 0.9, 0.56), point(3, 0.99, 0.58))
    assert (found["rate"], found["within"], found["seeds"], found["of"]) == (2, True, 1, [1, 2, 3])
    assert (found["kept"], found["off"]) == pytest.approx((0.85, 0.06))
    assert best(point(1, 0.9, 0.4), point(2, 0.7, 0.5))["rate"] == 2  # wrong too often: no hiding
    assert best(point(1, 0.9, 0.5, dense_gender=0.6), point(2, 0.7, 0.5))["rate"] == 2
    found = best(point(1, 0.9, 0.7), point(2, 0.6, 0.6))
    assert (found["rate"], found["within"]) == (2, False)  # none hides: the nearest


def test_means_of_seeds_are_judged_and_failures_left_out():
    apart = [point(1, 0.9, 0.40), point(2, 0.8, 0.5), point(1, 0.9, 0.60), point(2, 0.8, 0.5)]
    assert best(*apart)["rate"] == 1
    failed = {"algorithm": "FedBlinder", "rate": 9, "failed": "round 2: not finite"}
    points = [point(1, 0.8, 0.5), point(2, 0.7, 0.5, algorithm="FedBlinder"), failed]
    assert best(*points, algorithm="FedBlinder")["rate"] == 2
    with pytest.raises(Refusal, match="FedBlinder failed at every rate; the first time: round 2"):
        best(*points, {**failed, "rate": 2})


# The command.

ROUNDS = ["--federation", "epochs=1,rounds=2,client_fraction=0.5,balance=0"]
WORDS = [
    *("--data", "simulated", "--option", "people=6,windows=30", "--quick", *ROUNDS),
    *("--keep", "activity", "--hide", "gender"),
    *("--set", "hidden_sizes=16-16-8-8,classifier.epochs=1,width=4,classifier_weight=0"),
]


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["sensorveil", "papers", "experiment", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert ended.value.code == code, said.err
        return " ".join((said.err if code else said.out).split())

    return run


@pytest.mark.slow
def test_several_experiments_go_to_a_folder_each_once(command, tmp_path):
    assert "figure 9" in command("list").lower()
    assert "shadows True" in command("shadows", *WORDS, "--out", "shadows.json")
    found = json.loads((tmp_path / "shadows.json").read_text())
    assert [len(point["discriminators"]) for point in found["points"]] == [1, 1]
    assert (found["data"]["dataset"], found["seeds"]) == ("simulated", [0])
    assert "exists already" in command("shadows", *WORDS, "--out", "shadows.json", code=2)
    command("shadows,information,shadows", *WORDS, "--out", "both")
    places = {place.name for place in (tmp_path / "both").iterdir()}
    assert places == {"shadows.json", "information.json"}
    again = json.loads((tmp_path / "both" / "shadows.json").read_text())
    assert again["points"] == found["points"]


@pytest.mark.slow
def test_tuning_says_which_rates_are_best_and_results_takes_both(command, tmp_path):
    said = command("tuning", *WORDS, "--out", "tuning.json")
    found = json.loads((tmp_path / "tuning.json").read_text())
    assert found["data"]["subset"] == "validation"
    best = {name: found["chosen"][name]["rate"] for name in ("Blinder", "FedBlinder")}
    assert f"Rates: {best}, by " in said
    rates = ["--federation", "learning_rate=0.002", "--baseline", "learning_rate=0.0005"]
    command("results", *WORDS, *rates, "--out", "results.json")
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["data"]["subset"] == "test"
    assert [(p["algorithm"], p["plan"]["learning_rate"]) for p in found["points"]] == [
        ("Blinder", 0.002),
        ("FedBlinder", 0.0005),
    ]
    assert found["baseline"] == {"learning_rate": "0.0005"}


@pytest.mark.slow
def test_an_experiment_that_was_cut_off_goes_on(command, tmp_path, monkeypatch):
    words = ["results", *WORDS, "--out", "results.json"]
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
    assert (found["seeds"], len(found["raw"]), len(found["earlier"])) == ([0, 1], 2, 1)
    assert [(p["algorithm"], p["seed"]) for p in found["points"]] == [
        (name, seed) for seed in (0, 1) for name in ("Blinder", "FedBlinder")
    ]
    other = ["--resume", "--seeds", "2", "--federation", "learning_rate=0.5"]
    assert "it has other seeds" in command(*words, "--resume", code=2)
    assert "it has other plan" in command(*words, *other, code=2)
    several = ["results,unseen", *words[1:], "--resume"]
    assert "is a file; several" in command(*several, code=2)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["results", "--baseline", "rounds=3"], "FedBlinder would have 3 rounds and Blinder 2"),
        (["nothing"], "experiment 'nothing' is unknown; known: communication"),
        ([","], "experiment ',' is unknown"),
        (["results", "--seeds", "0"], "--seeds is 0; at least one is needed"),
    ],
)
def test_what_cannot_be_is_refused_before_it_starts(command, tmp_path, words, line):
    assert line in command(*words, *WORDS, "--out", "r.json", code=2)
    assert list(tmp_path.iterdir()) == []
