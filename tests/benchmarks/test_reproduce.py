"""Running recipes, on simulated people and on files in the datasets' official formats."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from benchmarks.accuracy import accuracies
from benchmarks.obscurenet import grid, timing, training
from benchmarks.plan import DENSE, Plan
from benchmarks.recipe import Recipe, recipe
from benchmarks.run import measure
from sensorveil.audit.attackers import Budget
from sensorveil.audit.threat_models import thinned
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.cli.main import app
from sensorveil.data.catalog import load
from sensorveil.errors import Refusal
from sensorveil.methods.registry import method
from sensorveil.methods.seal_code import FEATURES

TINY = {
    "epochs": 20,
    "classifier.epochs": 6,
    "regulariser_epochs": 1,
    "batch_size": 32,
    "hidden_sizes": (64, 32),
    "discriminator_steps": 2,
}
GUIDED = {
    "epochs": 4,
    "surrogate_epochs": 3,
    "encoder_epochs": 3,
    "autoencoder_epochs": 1,
    "unet_width": 8,
    "sampling_steps": 4,
    "batch_size": 32,
    "ensemble_size": 1,
    "training_steps": 20,
    "num_candidates": 2,
    "windows_per_code": 2,
}


@pytest.fixture(autouse=True, scope="module")
def small_dense_classifiers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.plan.DENSE", replace(DENSE, epochs=3))
        yield


def nothing(so_far: dict[str, Any]) -> None:
    """Where results so far are not looked at."""


@pytest.fixture(scope="module")
def plan() -> Plan:
    split = load("simulated", "recording", people=8, windows=8, recordings=2, gender=4.0)
    small = ClassifierSettings(width=8, epochs=10, batch_size=32, learning_rate=8e-3)
    return Plan(split, seeds=(0, 1), preset="fast", inference=small, overrides=TINY)


@pytest.fixture(scope="module")
def larger(plan: Plan) -> Plan:
    """Enough windows to learn something from."""
    split = load("simulated", "recording", people=12, windows=12, recordings=2, gender=4.0)
    network = ClassifierSettings(width=16, epochs=10, batch_size=32, learning_rate=4e-3)
    return replace(plan, split=split, inference=network)


@pytest.fixture(scope="module")
def gait() -> Recipe:
    """ObscureNet's recipe for simulated people, with the rows that differ most."""
    whole = recipe("obscurenet-motionsense-gender")
    rows = tuple(row for row in whole.rows if row.method in ("general-vae", "obscurenet"))
    parts = {"grid": {"alpha": [0.1, 1.0], "beta": [0.5]}}
    return replace(whole, data="simulated", rows=rows, parts=parts)


@pytest.mark.slow
def test_accuracies(larger: Plan, gait: Recipe) -> None:
    kept: list[int] = []
    found = accuracies(gait, larger, lambda so_far: kept.append(len(so_far["rows"])), 2)
    assert kept == [0, 1, 2, 3, 4], "saved as it goes"
    assert found["raw"]["read"]["gender"]["accuracy"]["value"] > 0.9
    rows = {row["label"]: row for row in found["rows"]}
    deterministic, randomized = (
        rows[f"ObscureNet, {name}"] for name in ("deterministic", "randomized")
    )
    for row in (deterministic, randomized):
        assert row["read"]["gender"]["accuracy"]["value"] < 0.7
    assert deterministic["settings"] == {**randomized["settings"], "modifier": "deterministic"}
    assert deterministic["paper"]["gender"] == 17.06
    assert deterministic["read_dense"]["activity"]["accuracy"]["seeds"] == 2
    assert [again["runs"] for again in deterministic["reidentification"]] == [2]
    assert "reidentification" not in rows["General VAE"]


def test_the_accuracy_within_classes_adds_up(plan: Plan, gait: Recipe) -> None:
    short = replace(plan, seeds=(0,))
    found = accuracies(replace(gait, rows=()), short, nothing, 0)["raw"]["read"]
    test = plan.split.test
    share = np.bincount(test.codes("activity")) / len(test)
    within = list(found["gender"]["within"].values())
    assert np.dot(share, within) == pytest.approx(found["gender"]["accuracy"]["value"])


@pytest.mark.slow
def test_grid_timing_and_training(plan: Plan, gait: Recipe) -> None:
    short = replace(plan, seeds=(0,), overrides={**TINY, "epochs": 1})
    points = grid(gait, short, nothing)["points"]
    assert [(p["alpha"], p["beta"]) for p in points] == [(0.1, 0.5), (1.0, 0.5)]
    stages = timing(gait, short, nothing, windows=64)
    for way in ("in one batch", "one by one"):
        assert set(stages["seconds_a_window"][way]) == set(gait.paper["milliseconds"])
    found = training(gait, short, nothing, epochs=1)
    assert found["ratio"] == pytest.approx(found["one by one"] / found["batched"])


@pytest.fixture(scope="module")
def diffusion() -> Recipe:
    """PrivDiffuser's recipe for simulated people, at a small size."""
    whole = recipe("privdiffuser-motionsense-gender")
    each = [{"sampler": "ddim", "sampling_steps": 4}, {"negative_target": "none"}]
    wearer = {"negative_target": "wearer"}
    parts = {
        "tradeoff": {
            "guidance_scale": [0, 2],
            "negative_scale": [0.0, 0.5],
            "with_settings": wearer,
            "test": 30,
        },
        "samplers": {"windows": 60, "each": each},
        "information": {"guidance_scale": 1.0, "negative_scale": [0.0], "quick": True},
        "cost": {"windows": 64, "each": [[["activity"], ["gender", "weight"]]]},
        "growth": {"hide": "weight"},
        "chosen": {"each": [wearer], "quick": True},
        "validated": {"windows": 50, "each": [{}, {"guidance_scale": 0.0}]},
    }
    rows = tuple(row for row in whole.rows if row.method == "privdiffuser")
    return replace(whole, data="simulated", unlisted=("weight",), parts=parts, rows=rows)


@pytest.fixture(scope="module")
def guided(plan: Plan, diffusion: Recipe) -> Plan:
    """A plan with a trained run: one seed, forty test windows."""
    plan = replace(plan, seeds=(3,), overrides=GUIDED, windows=40)
    obfuscator = plan.made(diffusion, "privdiffuser", 3, {})
    return replace(plan, runs=(obfuscator.fit(plan.split.train, "activity", "gender"),))


def test_rows_of_diffusion_share_their_generator(guided: Plan, diffusion: Recipe) -> None:
    found = accuracies(diffusion, guided, nothing, 0)
    none, negation, papers, whole = (row["settings"] for row in found["rows"])
    for settings, target, weight in (
        (none, "none", whole["training"]["mutual_information_weight"]),
        (negation, "wearer", 0.0),
        (papers, "wearer", whole["training"]["mutual_information_weight"]),
    ):
        assert settings["guidance"]["negative_target"] == target
        assert settings["training"]["mutual_information_weight"] == weight
        assert settings["networks"] == whole["networks"]
    assert whole == guided.runs[0].about()
    scores = found["rows"][-1]["read"]
    assert set(scores) == {"activity", "gender", "weight"}
    assert (scores["activity"]["accuracy"]["value"] * 40) % 1 == pytest.approx(0, abs=1e-6)


def test_seal_is_a_row_beside_them(guided: Plan) -> None:
    whole = replace(recipe("privdiffuser-motionsense-gender"), unlisted=())
    rows = tuple(row for row in whole.rows if row.method == "seal")
    plan = replace(guided, runs=())
    (row,) = accuracies(replace(whole, rows=rows), plan, nothing, 0)["rows"]
    settings = row["settings"]
    assert settings["generation"]["sampling_steps"] == GUIDED["sampling_steps"]
    assert {settings["code"][f"{name}_bins"] for name in FEATURES} == {1}
    assert 0 <= row["read"]["gender"]["accuracy"]["value"] <= 1


@pytest.mark.slow
def test_a_part_asks_for_some_seeds_and_other_settings(guided: Plan, diffusion: Recipe) -> None:
    plan = replace(guided, seeds=(3, 4), runs=(guided.runs[0], copy.copy(guided.runs[0])))
    asked = {**diffusion.parts["tradeoff"], "seeds": 1}
    found = measure("tradeoff", replace(diffusion, parts={"tradeoff": asked}), plan, nothing)
    assert found["seeds"] == [3]
    assert found["settings"]["guidance"]["negative_target"] == "wearer"
    assert found["windows"] == 30, "of the forty, what the part asks for"
    assert [plan.seeds_for(diffusion, name) for name in ("gender", "weight")] == [(3, 4), (3,)]


def test_strengths_and_variants_use_the_same_weights(guided: Plan, diffusion: Recipe) -> None:
    kept: list[int] = []
    found = measure(
        "tradeoff", diffusion, guided, lambda so_far: kept.append(len(so_far["points"]))
    )
    assert kept == [1, 2, 3, 4]
    pairs = [(p["guidance_scale"], p["negative_scale"]) for p in found["points"]]
    assert pairs == [(0, 0), (0, 0.5), (2, 0), (2, 0.5)]
    # The first pair has the noise that it would have alone.
    obfuscator = guided.runs[0].with_settings(negative_target="wearer")
    some = thinned(guided.test, 30, seed=0)
    alone = obfuscator.obfuscate(some, {"guidance_scale": 0.0, "gender": 0.0}, seed=3)
    codes = guided.models["read", 3, "activity"].predict(alone)
    accuracy = found["points"][0]["read"]["activity"]["accuracy"]["value"]
    assert accuracy == pytest.approx((codes == some.codes("activity")).mean())
    rows = measure("samplers", diffusion, guided, nothing)["rows"]
    for row, settings in zip(rows, diffusion.parts["samplers"]["each"], strict=True):
        assert row["settings"] == settings
        assert row["seconds_a_window"] > 0
        assert 0 <= row["retrained"]["gender"]["accuracy"]["value"] <= 1


@pytest.mark.slow
def test_what_is_trained_for_one_part_serves_the_others(guided: Plan, diffusion: Recipe) -> None:
    plan, diffusion = replace(guided, runs=()), replace(diffusion, unlisted=())
    measure("accuracy", diffusion, plan, nothing, 0)
    models, trained = dict(plan.models), dict(plan.trained)
    assert set(models) == {(k, 3, a) for k in ("read", "read_dense") for a in diffusion.attributes}
    assert len(trained) == 1
    measure("tradeoff", diffusion, plan, nothing)
    assert (plan.models, plan.trained) == (models, trained)
    assert replace(plan, seeds=(4,)).trained == {}, "another plan trains anew"


def test_cost_and_growth(guided: Plan, diffusion: Recipe) -> None:
    (row,) = measure("cost", diffusion, guided, nothing)["rows"]
    assert row["hide"] == ["gender", "weight"]
    assert row["seconds_a_window"] > 0
    more = measure("growth", diffusion, guided, nothing)
    assert more["training"] == guided.runs[0].metrics_["seconds"]
    assert more["ratio"] == pytest.approx(more["one more"] / more["training"])


@pytest.mark.slow
def test_information(guided: Plan, larger: Plan, diffusion: Recipe) -> None:
    plan = replace(guided, split=larger.split, windows=None)
    found = measure("information", diffusion, plan, nothing)
    assert set(found["points"][0]["bits"]) == {"activity", "gender", "weight"}
    assert found["raw"]["activity"] > 0.2  # of two bits, by few windows


@pytest.mark.slow
def test_a_choice_is_made_by_attacks_on_validation_windows(
    guided: Plan, diffusion: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = ClassifierSettings(width=8, epochs=4, batch_size=32)
    small = Budget(
        windows=200,
        draws=1,
        network=network,
        kernels=50,
        rounds=5,
        session_attackers=(),
        looks=0,
    )
    monkeypatch.setattr(Budget, "quick", lambda: small)
    found = measure("chosen", diffusion, guided, nothing)
    validation = guided.split.validation
    assert found["windows"] == len(validation)
    assert validation.origin
    assert found["data"] == asdict(validation.origin)
    (row,) = found["rows"]
    gender, raw = row["hidden"]["gender"], row["kept"]["raw"]
    codes, kept = validation.codes("gender"), validation.codes("activity")
    assert raw > np.bincount(kept).max() / len(kept)
    right = [max((codes[kept == a] == g).sum() for g in (0, 1)) for a in np.unique(kept)]
    assert gender["by kept class"] == pytest.approx(sum(right) / len(validation))
    assert {"raw", "lazy", "semi-informed"} <= {one["threat_model"] for one in gender["attacks"]}


@pytest.mark.slow
def test_settings_are_compared_on_validation_windows(guided: Plan, diffusion: Recipe) -> None:
    found = measure("validated", diffusion, guided, nothing)
    assert [row["settings"] for row in found["rows"]] == [{}, {"guidance_scale": 0.0}]
    assert found["rows"][1]["all_settings"]["guidance"]["guidance_scale"] == 0.0
    assert found["windows"] == 50
    look = thinned(guided.split.validation, 50, seed=0)
    model = Classifier(guided.inference, 3).fit(guided.split.fitting, "gender")
    right = (model.predict(look) == look.codes("gender")).mean()
    assert found["raw"]["read"]["gender"]["accuracy"]["value"] == pytest.approx(right)
    for row in found["rows"]:
        assert sum(row["read_as"]["gender"]["read"].values()) == pytest.approx(1)


@pytest.mark.data
def test_runs_of_other_data_are_refused(
    guided: Plan, tmp_path: Path, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sensorveil.methods.run import save_run

    monkeypatch.setenv("SENSORVEIL_DATA", str(real_data))
    place = save_run(guided.runs[0], tmp_path / "run")
    for name, complaint in (
        ("privdiffuser-motionsense-gender", "training windows"),
        ("privdiffuser-csi5300-user", "policy"),
    ):
        words = ["papers", "reproduce", name, "--run", str(place), "--out", str(tmp_path / "out")]
        with pytest.raises(Refusal, match=complaint):
            app(words, standalone_mode=False)
    assert not (tmp_path / "out").exists()


def mobiact_folder(root: Path) -> None:
    """Six of the papers' people, four activities each, in the official format.

    Each activity has its rhythm and each person an amplitude.
    """
    generator = np.random.default_rng(0)
    heading = "timestamp,rel_time,acc_x,acc_y,acc_z,gyro_x,gyro_y,gyro_z,azimuth,pitch,roll,label"
    for person in (1, 2, 3, 4, 5, 6):  # men and women, of all three weight groups
        for number, task in enumerate(("WAL", "STD", "JOG", "STU")):
            time = np.arange(400)
            wave = np.sin(time * (0.05 + 0.1 * number)) * (1 + person / 3)
            rows = wave[:, None] + generator.normal(size=(400, 6)) / 10
            lines = [
                ",".join(f"{v:g}" for v in (1e12 + t * 5e6, t * 0.005, *row, 0, 0, 0)) + f",{task}"
                for t, row in zip(time, rows, strict=True)
            ]
            place = root / "Annotated Data" / task / f"{task}_{person}_1_annotated.csv"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("\n".join([heading, *lines]) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "obscurenet-mobiact-both",
        "privdiffuser-mobiact-three-hidden",
        "cloak-mobiact-two-kept",
    ],
)
def test_recipes_run_on_official_files(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = recipe(name)
    mobiact_folder(tmp_path / "data")
    known = {name for row in wanted.rows for name in method(row.method).Settings.names()}
    last = {name.rpartition(".")[2] for name in known}
    small = {**TINY, **GUIDED, "hidden_sizes": "64-32"}
    given = {key: value for key, value in small.items() if key in known | last}
    settings = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    places = ["--from", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    small = ["--seeds", "1", "--preset", "fast", "--quick", "--leaks", "0", *settings]
    app(["papers", "reproduce", name, *places, *small], standalone_mode=False)
    found = json.loads((tmp_path / "out" / f"{name}-accuracy.json").read_text())
    assert [row["label"] for row in found["rows"]] == [row.label for row in wanted.rows]
    assert set(found["rows"][0]["read"]) == set(wanted.attributes)
    assert found["data"]["dataset"] == wanted.data
    assert found["conditions"]["command"]
    printed = capsys.readouterr().out
    assert wanted.title in " ".join(printed.split())


@pytest.mark.slow
def test_rows_are_trained_where_the_data_stays(tmp_path: Path) -> None:
    """Blinder's recipe for MobiAct, small, on official files."""
    mobiact_folder(tmp_path / "data")
    small = {"epochs": 2, "rounds": 3, "query_size": 7, "classifier.epochs": 1}
    settings = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    places = ["--from", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    wanted = ["--method", "blinder", "--seeds", "1", "--preset", "fast", "--quick"]
    app(
        ["papers", "reproduce", "blinder-mobiact-gender", *places, *wanted, *settings],
        standalone_mode=False,
    )
    place = tmp_path / "out" / "blinder-mobiact-gender-accuracy.json"
    found = json.loads(place.read_text())
    assert [row["label"] for row in found["rows"]] == ["FedBlinder", "Blinder"]
    plans = [row["federation"] for row in found["rows"]]
    assert [plan["algorithm"] for plan in plans] == ["fedavg", "fedsgd"]
    assert all(plan["epochs"] == 2 and plan["rounds"] == 3 for plan in plans)
    assert not any(row["settings"]["network"]["convolutional"] for row in found["rows"])


def test_bad_input(tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        with pytest.raises((Refusal, click.UsageError)) as refusal:
            app(["papers", "reproduce", *words], standalone_mode=False)
        return str(refusal.value)

    name = "obscurenet-motionsense-gender"
    out = ["--out", str(tmp_path / "out")]
    assert "unknown" in refused("table1", *out)
    assert "out" in refused(name)
    assert "part" in refused(name, *out, "--part", "figure9")
    assert "--seeds" in refused(name, *out, "--seeds", "0")
    assert "--windows" in refused(name, *out, "--windows", "0")
    assert "method" in refused(name, *out, "--method", "cloak")
    assert "'epoch'" in refused(name, *out, "--set", "epoch=3")
    assert "'epochs'" in refused(name, *out, "--set", "epochs=-3")
    # Sizes look like a number where there is one, and are text all the same.
    assert "'dense'" in refused("privdiffuser-geotec-gender", *out, "--set", "dense=0")
    assert "'slow'" in refused(name, *out, "--preset", "slow")
    assert "'grid'" in refused("obscurenet-mobiact-both", *out, "--part", "accuracy,grid")
    assert "'alpha'" in refused(name, *out, "--part", "grid", "--set", "alpha=1")
    older = tmp_path / "older" / f"{name}-grid.json"
    older.parent.mkdir()
    older.write_text("kept")
    assert "exists already" in refused(name, "--out", str(older.parent), "--part", "grid")
    assert older.read_text() == "kept"
    assert not (tmp_path / "out").exists()
    assert app(["papers", "list"], standalone_mode=False) is None
