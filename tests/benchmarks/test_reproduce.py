"""Running recipes, on simulated people and on files in MobiAct's official format."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.accuracy import accuracies
from benchmarks.diffusion import _for_each, _veils
from benchmarks.obscurenet import grid, timing, training
from benchmarks.plan import Plan
from benchmarks.recipe import Recipe, recipe
from benchmarks.run import measure
from benchmarks.tables import print_part
from sensorveil.audit.attackers import Budget
from sensorveil.audit.threat_models import thinned
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.cli.main import app
from sensorveil.cli.screen import Screen
from sensorveil.data.catalog import load
from sensorveil.methods.registry import method

TINY = {
    "epochs": 20,
    "classifier.epochs": 6,
    "regulariser_epochs": 1,
    "batch_size": 32,
    "hidden_sizes": (64, 32),
    "discriminator_steps": 2,
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    split = load("simulated", "recording", people=12, windows=12, recordings=2, gender=4.0)
    small = ClassifierSettings(width=16, epochs=10, batch_size=32, learning_rate=4e-3)
    return Plan(split, seeds=(0, 1), preset="fast", inference=small, overrides=TINY)


@pytest.fixture(scope="module")
def gait() -> Recipe:
    """MotionSense's recipe for simulated people, with the rows that differ most."""
    whole = recipe("obscurenet-motionsense-gender")
    rows = tuple(row for row in whole.rows if row.method in ("general-vae", "obscurenet", "aae"))
    return replace(
        whole, data="simulated", rows=rows, parts={"grid": {"alpha": [0.1, 1.0], "beta": [0.5]}}
    )


def test_accuracies(plan: Plan, gait: Recipe) -> None:
    kept: list[dict[str, Any]] = []
    found = accuracies(gait, plan, lambda so_far: kept.append(json.loads(json.dumps(so_far))), 2)
    assert [len(so_far["rows"]) for so_far in kept] == [0, 1, 2, 3, 4, 5]  # saved as it goes
    raw = found["raw"]["read"]
    assert raw["gender"]["accuracy"]["value"] > 0.9
    rows = {row["label"]: row for row in found["rows"]}
    deterministic = rows["ObscureNet, deterministic"]
    randomized = rows["ObscureNet, randomized"]
    # The decoder is told the other gender: a fixed model is wrong more often than not.
    assert deterministic["read"]["gender"]["accuracy"]["value"] < 0.5
    assert (
        deterministic["read"]["gender"]["accuracy"]["value"]
        < randomized["read"]["gender"]["accuracy"]["value"]
    )
    assert deterministic["settings"] == {**randomized["settings"], "modifier": "deterministic"}
    assert deterministic["paper"]["gender"] == 17.06
    for kind in ("read", "read_dense"):
        estimate = deterministic[kind]["activity"]["accuracy"]
        assert estimate["seeds"] == 2
        within = deterministic[kind]["activity"]["within"]
        assert set(within) == set(plan.split.test.classes["activity"])
    assert [again["runs"] for again in deterministic["reidentification"]] == [2]
    assert "reidentification" not in rows["General VAE"]


def test_the_accuracy_within_classes_adds_up(plan: Plan, gait: Recipe) -> None:
    found = accuracies(replace(gait, rows=()), plan, lambda so_far: None, 0)["raw"]["read"]
    test = plan.split.test
    share = np.bincount(test.codes("activity")) / len(test)
    within = list(found["gender"]["within"].values())
    assert np.dot(share, within) == pytest.approx(found["gender"]["accuracy"]["value"])


def test_grid(plan: Plan, gait: Recipe) -> None:
    found = grid(gait, replace(plan, seeds=(0,)), lambda so_far: None)
    assert [(p["alpha"], p["beta"]) for p in found["points"]] == [(0.1, 0.5), (1.0, 0.5)]
    read = [point["read"]["gender"]["accuracy"]["value"] for point in found["points"]]
    assert all(0 <= value <= 1 for value in read)


def test_timing_and_training(plan: Plan, gait: Recipe) -> None:
    stages = timing(gait, plan, lambda so_far: None, windows=64)
    for way in ("in one batch", "one by one"):
        assert set(stages["seconds_a_window"][way]) == set(gait.paper["milliseconds"])
    assert stages["randomized_one_window"] > 0
    found = training(gait, plan, lambda so_far: None, epochs=2)
    assert found["ratio"] == pytest.approx(found["one by one"] / found["batched"])


GUIDED = {
    "epochs": 4,
    "reader_epochs": 3,
    "width": 8,
    "steps": 4,
    "batch": 32,
    "reader_batch": 32,
    "panel": 1,
}


@pytest.fixture(scope="module")
def diffusion() -> Recipe:
    """MotionSense's recipe for simulated people, at a small size."""
    whole = recipe("privdiffuser-motionsense-gender")
    each = [{"sampler": "ddim", "steps": 4}, {"avoids": "none", "told": "class"}]
    parts = {
        "tradeoff": {
            "keep": [0, 2],
            "avoid": [0.0, 0.5],
            "with_settings": {"tries": 1},
            "test": 30,
        },
        "samplers": {"windows": 60, "each": each},
        "information": {"keep": 1.0, "avoid": [0.0], "quick": True},
        "cost": {"windows": 64, "each": [[["activity"], ["gender", "weight"]]]},
        "growth": {"hide": "weight"},
        "chosen": {"each": [{"avoids": "wearer"}], "quick": True},
        "validated": {"windows": 50, "each": [{}, {"keep": 0.0, "tries": 1}]},
    }
    return replace(whole, data="simulated", unlisted=("weight",), parts=parts, rows=whole.rows[1:])


@pytest.fixture(scope="module")
def guided(plan: Plan, diffusion: Recipe) -> Plan:
    """A plan whose runs are trained already: one seed, forty test windows."""
    plan = replace(plan, seeds=(3,), overrides=GUIDED, windows=40)
    obfuscator = plan.made(diffusion, "privdiffuser", 3, {})
    return replace(plan, runs=(obfuscator.fit(plan.split.train, "activity", "gender"),))


def test_rows_of_diffusion_share_their_generator(guided: Plan, diffusion: Recipe) -> None:
    found = accuracies(diffusion, guided, lambda so_far: None, 0)
    plain, negation, papers, alone, whole = (row["settings"] for row in found["rows"])
    assert {**plain, "avoids": "wearer", "avoid": 0.05} == papers
    assert negation == {**papers, "regularise": 0.0}
    assert papers == {**whole, "avoids": "wearer", "avoid": 0.05, "told": "features", "tries": 1}
    assert alone == {**papers, "told": "class", "tries": whole["tries"]}
    read = found["rows"][-1]["read"]
    assert set(read) == {"activity", "gender", "weight"}
    # 40 windows are read, of which each is 1/40.
    assert (read["activity"]["accuracy"]["value"] * 40) % 1 == pytest.approx(0, abs=1e-6)
    assert whole == guided.runs[0].about()


def test_a_part_asks_for_some_seeds_and_other_settings(guided: Plan, diffusion: Recipe) -> None:
    first = guided.runs[0]
    plan = replace(guided, seeds=(3, 4), runs=(first, copy.copy(first)))
    few = replace(
        diffusion, parts={"tradeoff": {"seeds": 1, "with_settings": {"tries": 1}}, "all": {}}
    )
    (obfuscator,) = _veils(few, plan, "tradeoff")
    assert obfuscator.about() == {**first.about(), "tries": 1}
    assert [one.about() for one in _veils(few, plan, "all")] == [first.about()] * 2
    assert [plan.seeds_for(few, name) for name in ("gender", "weight")] == [(3, 4), (3,)]


def test_strengths_and_variants_leave_the_weights_alone(guided: Plan, diffusion: Recipe) -> None:
    kept: list[int] = []
    found = measure(
        "tradeoff", diffusion, guided, lambda so_far: kept.append(len(so_far["points"]))
    )
    assert kept == [1, 2, 3, 4]
    assert [(p["keep"], p["avoid"]) for p in found["points"]] == [
        (0, 0),
        (0, 0.5),
        (2, 0),
        (2, 0.5),
    ]
    assert found["seeds"] == [3]
    assert found["windows"] == 30, "of the forty, what the part asks for"
    shares = [30 * p["read"]["activity"]["accuracy"]["value"] for p in found["points"]]
    assert shares == pytest.approx([round(share) for share in shares], abs=1e-6)
    rows = measure("samplers", diffusion, guided, lambda so_far: None)["rows"]
    for row, settings in zip(rows, diffusion.parts["samplers"]["each"], strict=True):
        assert row["settings"] == settings
        assert row["seconds_a_window"] > 0
        assert 0 <= row["retrained"]["gender"]["accuracy"]["value"] <= 1


def test_in_one_pass_every_window_has_its_own_strengths(guided: Plan, diffusion: Recipe) -> None:
    (obfuscator,) = _veils(replace(diffusion, parts={"all": {}}), guided, "all")
    obfuscator, test = obfuscator.with_settings(tries=1, avoids="wearer"), guided.test
    pairs = [(0.0, 5.0), (3.0, 0.0)]
    for order in (pairs, pairs[::-1]):
        first, second = _for_each(obfuscator, test, order, ("gender",))
        # The first ones have the noise that they would have alone.
        strength = dict(zip(("keep", "gender"), order[0], strict=True))
        alone = obfuscator.obfuscate(test, strength, seed=obfuscator.seed)
        np.testing.assert_allclose(first.signal, alone.signal, rtol=1e-3, atol=1e-3)
        assert (second.start == test.start).all()
        assert (second.codes("gender") == test.codes("gender")).all()
        # The second ones have the noise of the second half, whatever strengths the first half has.
        strength = dict(zip(("keep", "gender"), order[1], strict=True))
        twice = test.select(np.tile(np.arange(len(test)), 2))
        both = obfuscator.obfuscate(twice, strength, seed=obfuscator.seed).signal
        np.testing.assert_allclose(second.signal, both[len(test) :], rtol=1e-3, atol=1e-3)
        assert not np.allclose(first.signal, both[: len(test)], atol=1e-2)


def test_what_is_trained_for_one_part_serves_the_others(guided: Plan, diffusion: Recipe) -> None:
    plan = replace(guided, runs=())
    measure("accuracy", diffusion, plan, lambda so_far: None, 0)
    models, trained = dict(plan.models), dict(plan.trained)
    assert set(models) == {(k, 3, a) for k in ("read", "read_dense") for a in diffusion.attributes}
    assert len(trained) == 1
    measure("tradeoff", diffusion, plan, lambda so_far: None)
    assert (plan.models, plan.trained) == (models, trained)
    assert replace(plan, seeds=(4,)).trained == {}, "another plan trains anew"


def test_information_cost_and_growth(guided: Plan, diffusion: Recipe) -> None:
    whole = replace(guided, windows=None)
    found = measure("information", diffusion, whole, lambda so_far: None)
    assert set(found["points"][0]["bits"]) == {"activity", "gender", "weight"}
    assert found["raw"]["activity"] > 0.2  # of two bits, by few windows
    (row,) = measure("cost", diffusion, guided, lambda so_far: None)["rows"]
    assert row["hide"] == ["gender", "weight"]
    assert row["seconds_a_window"] > 0
    more = measure("growth", diffusion, guided, lambda so_far: None)
    assert more["training"] == guided.runs[0].metrics_["seconds"]
    assert more["ratio"] == pytest.approx(more["one more"] / more["training"])
    assert more["ratio"] < 1


def test_a_choice_is_made_by_what_validation_windows_tell(
    guided: Plan, diffusion: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = ClassifierSettings(width=8, epochs=4, batch=32)
    small = Budget(windows=200, network=network, kernels=50, rounds=5)
    monkeypatch.setattr(Budget, "quick", lambda: small)
    found = measure("chosen", diffusion, guided, lambda so_far: None)
    validation = guided.split.validation
    assert found["windows"] == len(validation)
    assert validation.origin
    assert found["data"] == asdict(validation.origin)
    assert found["data"]["part"] == "validation"
    (row,) = found["rows"]
    assert row["settings"] == {"avoids": "wearer"}
    gender, raw = row["hidden"]["gender"], row["kept"]["raw"]
    codes, kept = validation.codes("gender"), validation.codes("activity")
    assert raw > np.bincount(kept).max() / len(kept)
    right = [max((codes[kept == a] == g).sum() for g in (0, 1)) for a in np.unique(kept)]
    assert gender["by kept class"] == pytest.approx(sum(right) / len(validation))
    assert gender["by kept class"] >= gender["majority"]
    assert {"raw", "lazy", "semi-informed"} <= {one["threat_model"] for one in gender["attacks"]}


def test_settings_are_compared_on_validation_windows(
    guided: Plan, diffusion: Recipe, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measure("validated", diffusion, guided, lambda so_far: None)
    assert [row["settings"] for row in found["rows"]] == [{}, {"keep": 0.0, "tries": 1}]
    assert found["rows"][1]["all_settings"]["tries"] == 1
    assert found["data"]["part"] == "validation"
    look = thinned(guided.split.validation, 50, seed=0)
    model = Classifier(guided.inference, 3).fit(guided.split.fitting, "gender")
    right = (model.predict(look) == look.codes("gender")).mean()
    assert found["raw"]["read"]["gender"]["accuracy"]["value"] == pytest.approx(right)
    for row in found["rows"]:
        shares = row["read_as"]["gender"]["read"]
        assert set(shares) == set(look.classes["gender"])
        assert sum(shares.values()) == pytest.approx(1)
    print_part(Screen(), diffusion, "validated", found)
    shown = capsys.readouterr().out
    for word in ("raw windows", "keep 0.0, tries 1", "gender"):
        assert word in shown


def test_the_trade_off_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    whole = recipe("privdiffuser-motionsense-gender")
    read = {name: {"accuracy": {"value": 0.25}} for name in whole.attributes}
    print_part(Screen(), whole, "tradeoff", {"points": [{"keep": 3, "avoid": 0.1, "read": read}]})
    shown = capsys.readouterr().out
    for word in ("keep", "avoid", "0.1", "25.00"):
        assert word in shown


def test_choices_are_shown_with_the_worst_attacker(capsys: pytest.CaptureFixture[str]) -> None:
    def attack(level: str, accuracy: float, auc: float) -> dict[str, object]:
        return {"threat_model": level, "attacker": "network", "accuracy": accuracy, "auc": auc}

    attacks = [attack("raw", 0.99, 0.98), attack("lazy", 0.53, 0.61), attack("insider", 0.56, 0.5)]
    hidden = {
        "majority": 0.51,
        "by kept class": 0.54,
        "verdict": "inconclusive",
        "attacks": attacks,
    }
    row = {
        "settings": {"avoids": "none"},
        "kept": {"raw": 0.9, "unchanged": 0.8},
        "hidden": {"gender": hidden},
    }
    screen = Screen()
    screen.table = lambda title, columns, rows: print([*columns], rows)  # type: ignore[method-assign]
    print_part(screen, recipe("privdiffuser-motionsense-gender"), "chosen", {"rows": [row]})
    cells = (
        "avoids none",
        "90.00",
        "80.00",
        "gender",
        "51.00",
        "54.00",
        "56.00",
        "0.610",
        "inconclusive",
    )
    assert str([cells]) in capsys.readouterr().out


@pytest.mark.data
def test_runs_of_other_data_are_refused(
    guided: Plan, tmp_path: Path, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sensorveil.errors import Refusal
    from sensorveil.methods.run import save_run

    monkeypatch.setenv("SENSORVEIL_DATA", str(real_data))
    place = save_run(guided.runs[0], tmp_path / "run")
    for name, complaint in (
        ("privdiffuser-motionsense-gender", "training windows"),
        ("privdiffuser-csi5300-user", "policy"),
    ):
        with pytest.raises(Refusal, match=complaint):
            app(
                ["papers", "reproduce", name, "--run", str(place), "--out", str(tmp_path / "out")],
                standalone_mode=False,
            )
    assert not (tmp_path / "out").exists()


def mobiact_folder(root: Path) -> None:
    """Four of the papers' people, four activities each, in the official format.

    Each activity has a rhythm and each person a loudness, so that there is something to read.
    """
    generator = np.random.default_rng(0)
    heading = "timestamp,rel_time,acc_x,acc_y,acc_z,gyro_x,gyro_y,gyro_z,azimuth,pitch,roll,label"
    for person in (1, 2, 3, 4, 5, 6):  # men and women, of all three weight groups
        for number, task in enumerate(("WAL", "STD", "JOG", "STU")):
            time = np.arange(700)
            wave = np.sin(time * (0.05 + 0.1 * number)) * (1 + person / 3)
            rows = wave[:, None] + generator.normal(size=(700, 6)) / 10
            lines = [
                ",".join(f"{v:g}" for v in (1e12 + t * 5e6, t * 0.005, *row, 0, 0, 0)) + f",{task}"
                for t, row in zip(time, rows, strict=True)
            ]
            place = root / "Annotated Data" / task / f"{task}_{person}_1_annotated.csv"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("\n".join([heading, *lines]) + "\n")


def wifihar_folder(root: Path) -> None:
    """Four people in the authors' format, two of them heavy; activities differ in their rhythm."""
    root.mkdir()
    generator = np.random.default_rng(0)
    known = "timestamp_low,bfee_count,Nrx,Ntx,rssi_a,rssi_b,rssi_c,noise,agc,perm_1,perm_2,perm_3"
    numbers = ",".join(f"csi_1_{rx}_{sc}" for rx in (1, 2, 3) for sc in range(1, 31))
    for person in (1, 2, 3, 4):
        for number, activity in enumerate(("A01", "A03", "A04", "A07")):
            wave = 60 + 30 * np.sin(np.arange(400) * (0.1 + 0.2 * number)) + 3 * person
            real = (wave[:, None] + generator.normal(size=(400, 90)) * 5).astype(int)
            lines = [
                f"{3125 * i},{i},3,1,40,40,34,-127,44,2,1,3,256,"
                + ",".join(f"{value}+{value // 2}i" for value in packet)
                for i, packet in enumerate(real)
            ]
            place = root / f"E1_S{person:02d}_C01_{activity}_T01.csv"
            place.write_text("\n".join([f"{known},rate,{numbers}", *lines]) + "\n")
    people = [f"{person},{70 + 5 * person},male" for person in (1, 2, 3, 4)]
    (root / "people.csv").write_text("\n".join(["subject,weight,gender", *people]) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "obscurenet-mobiact-gender",
        "obscurenet-mobiact-weight",
        "obscurenet-mobiact-both",
        "privdiffuser-mobiact-gender",
        "privdiffuser-mobiact-three-hidden",
        "privdiffuser-wifihar-weight",
        "cloak-mobiact-two-kept",
    ],
)
def test_recipes_run_on_official_files(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = recipe(name)
    {"mobiact": mobiact_folder, "wifihar": wifihar_folder}[wanted.data](tmp_path / "data")
    known = {key for row in wanted.rows for key in method(row.method).Settings.names()}
    small = {**TINY, **GUIDED, "hidden_sizes": "64-32"}
    given = {key: value for key, value in small.items() if key in known}
    settings = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    places = ["--from", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    small = ["--seeds", "1", "--preset", "fast", "--quick", "--leaks", "0", *settings]
    app(["papers", "reproduce", name, *places, *small], standalone_mode=False)
    found = json.loads((tmp_path / "out" / f"{name}-accuracy.json").read_text())
    assert [row["label"] for row in found["rows"]] == [row.label for row in wanted.rows]
    if wanted.data == "mobiact" and "cloak" not in name:
        assert all(row["settings"].get("latent_size", 5) == 5 for row in found["rows"])
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
    from sensorveil.errors import Refusal

    def refused(*words: str) -> str:
        with pytest.raises(Refusal) as refusal:
            app(["papers", "reproduce", *words], standalone_mode=False)
        return str(refusal.value)

    name = "obscurenet-motionsense-gender"
    out = ["--out", str(tmp_path / "out")]
    assert "unknown" in refused("table1", *out)
    assert "--out" in refused(name)
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
