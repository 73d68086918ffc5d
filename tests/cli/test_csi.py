"""sensorveil csi: the paper's experiments at a small size, and what the commands refuse."""

import json
import re
from pathlib import Path

import intel5300_writer as writer
import numpy as np
import pytest
from opacus.optimizers import DPOptimizer

from sensorveil.audit.donors import membership
from sensorveil.classifiers import ClassifierSettings
from sensorveil.methods.csi import CsiGenerator

TINY = (
    "width=8,blocks=1,heads=2,epochs=1,classifier_epochs=1,sampling_steps=2,privacy.steps=2,"
    "expected_batch_size=8,noise_multiplier=8"
)
DATA = ("--data", "simulated-csi", "--option", "people=4,recordings=2,windows=2")
SMALL = (*DATA, "--set", TINY, "--quick", "--seeds", "1")


@pytest.fixture(autouse=True)
def smaller_classifiers(monkeypatch):
    """Smaller still than those of --quick."""
    size = ClassifierSettings(4, 2, 16, 4e-3, network="resnet18")
    monkeypatch.setattr(ClassifierSettings, "resnet18", lambda quick: size)
    monkeypatch.setattr(ClassifierSettings, "quick", lambda: ClassifierSettings(4, 2, 64, 4e-3))


def result(name):
    return json.loads(Path(name).read_text())


# generate


@pytest.fixture(scope="module")
def runs(command, tmp_path_factory):
    """Small runs, plain and private, and one of a method that cannot generate."""
    place = tmp_path_factory.mktemp("generators")
    wanted = {
        "plain": ("csi", "--set", TINY),
        "dp": ("csi", "--set", f"{TINY},mode=dp"),
        "none": ("none",),
    }
    for name, arguments in wanted.items():
        policy = ("--keep", "activity", "--hide", "subject")
        outcome = command("fit", *arguments, *policy, *DATA, "--out", place / name)
        assert outcome.code == 0, outcome.err
    return {name: place / name for name in wanted}


def test_generate_writes_windows_of_a_class(runs, done):
    asked = ("csi", "generate", runs["plain"], "--class", "activity=waving", "--n", "3")
    outcome = done(*asked, "--seed", "1", "--out", "made.npz")
    assert "3 windows of shape (30, 64)" in outcome.out
    assert "no epsilon" in outcome.out
    with np.load("made.npz", allow_pickle=False) as file:
        content = dict(file)
    assert content["signal"].shape == (3, 30, 64)
    assert content["signal"].dtype == np.complex64
    names = np.array(content["classes_activity"])[content["label_activity"]]
    assert names.tolist() == ["waving"] * 3
    assert content["subject"].tolist() == ["generated"] * 3
    done(*asked, "--seed", "1", "--out", "again.npz")
    with np.load("again.npz", allow_pickle=False) as file:
        assert (file["signal"] == content["signal"]).all()


def test_generate_states_the_epsilon_of_a_private_run(runs, done):
    asked = ("csi", "generate", runs["dp"], "--class", "activity=walking", "--n", "2")
    assert re.search(r"epsilon \d", done(*asked, "--out", "made.npz").out)
    found = json.loads(done(*asked, "--length", "80", "--json", "--out", "long.npz").out)
    assert found["shape"] == [30, 80]
    assert found["privacy"]["epsilon"] > 0


@pytest.mark.parametrize(
    ("run", "arguments", "line"),
    [
        ("plain", ("--class", "activity=flying"), "class of 'activity' 'flying' is unknown"),
        ("plain", ("--class", "room=office"), "a class of 'activity' must be named"),
        ("plain", ("--class", "walking"), "not of the form name=value"),
        ("plain", ("--class", "activity=walking", "--n", "0"), "at least one window"),
        ("none", ("--class", "activity=walking"), "none cannot generate"),
        ("plain", ("--class", "activity=walking", "--out", "made.csv"), "must end in .npz"),
    ],
)
def test_generate_refuses(run, arguments, line, runs, refused):
    out = () if "--out" in arguments else ("--out", "made.npz")
    assert line in refused("csi", "generate", runs[run], *arguments, *out)


# donors and join


def test_donors_prints_and_writes_every_row(done):
    asked = ("--row", "raw,plain,hybrid-dp,csi-vae", "--public", "1", "--lambda", "0.5")
    files = ("--out", "donors.json", "--features", "features.safetensors")
    outcome = done("csi", "donors", *SMALL, *asked, *files)
    content = result("donors.json")
    rows = ["raw", "plain", "hybrid-dp", "csi-vae", "hybrid, lambda 0.5"]
    assert [score["contender"] for score in content["scores"]] == rows
    for row in rows:
        assert row in outcome.out
    assert "[0.99]" in outcome.out  # the paper's, and that it is of other data
    assert "Widar3.0: other data" in outcome.out
    promised = {score["contender"]: score["privacy"] for score in content["scores"]}
    assert promised["hybrid-dp"]["epsilon"] > 0
    assert promised["hybrid, lambda 0.5"]["epsilon"] is None
    assert content["conditions"]["command"].startswith("sensorveil csi donors")
    before = Path("features.safetensors").read_bytes()
    done("csi", "donors", *SMALL, "--row", "raw", *files)
    assert Path("features.safetensors").read_bytes() == before


def test_join_makes_one_table_of_a_study_in_parts(done, refused):
    """Seeds and LiRA by themselves, as several processes would make them."""
    asked = ("csi", "donors", *SMALL[:-2], "--row", "raw", "--phases", "aligned")
    for seed in ("0", "1"):
        done(*asked, "--seeds", "1", "--first-seed", seed, "--out", f"{seed}.json")
    done(*asked, "--seeds", "0", "--lira", "4", "--out", "lira.json")
    parts = ["0.json", "1.json", "lira.json"]
    outcome = done("csi", "join", *parts, "--out", "all.json")
    content = result("all.json")
    assert [score["seed"] for score in content["scores"]] == [0, 1]
    assert len(content["lira"]) == 4
    assert [part["command"].split()[-1] for part in content["parts"]] == parts
    assert content["study"]["phases"] == "aligned"
    assert "by LiRA" in outcome.out
    assert "±" in outcome.out
    done("csi", "donors", *SMALL, "--row", "raw", "--out", "other.json")
    Path("empty.json").write_text("{}")
    Path("damaged.json").write_text(json.dumps({**content, "scores": [{"seed": 0}]}))
    for places, line in (
        (("0.json", "other.json"), "another study"),
        (("empty.json",), "no result"),
        (("0.json", "damaged.json"), "no result of a donor study"),
        (("missing.json",), "is missing"),
    ):
        assert line in refused("csi", "join", *places, "--out", "bad.json")


def test_restored_windows_are_released_without_a_promise(done):
    done("csi", "donors", *SMALL, "--row", "dp", "--restored", "--out", "donors.json")
    (score,) = result("donors.json")["scores"]
    assert score["privacy"]["epsilon"] is None


# augment


def test_augment_measures_and_joins_seeds(done):
    asked = ("csi", "augment", "csi", *SMALL, "--split", "subject", "--folds", "2")
    content = json.loads(done(*asked, "--json", "--out", "gain.json").out)
    assert content == result("gain.json")
    assert content["asked"]["split"] == "subject"
    assert content["real"]["people"] == 2  # one of four people in each of two folds
    assert 0 <= content["mixed"]["value"] <= 1
    done(*asked, "--first-seed", "1", "--out", "more.json")
    done("csi", "join", "gain.json", "more.json", "--out", "all.json")
    both = result("all.json")
    assert both["gain"]["seeds"] == 2
    assert both["table"][0] == content["table"][0]


def test_augment_with_some_of_the_training_windows(done, monkeypatch):
    """The test stays whole: all windows of the one person in the first fold."""
    learnt, fit = [], CsiGenerator.fit

    def recorded(method, windows, *rest):
        learnt.append(len(windows))
        return fit(method, windows, *rest)

    monkeypatch.setattr(CsiGenerator, "fit", recorded)
    asked = ("--split", "subject", "--windows", "20", "--out", "gain.json")
    done("csi", "augment", "csi", *SMALL, *asked)
    assert learnt == [20]
    assert result("gain.json")["asked"]["windows"] == 20
    assert np.array(result("gain.json")["table"])[0, :, 2].tolist() == [32]


@pytest.mark.slow
def test_donors_and_augment_on_widar_in_the_authors_folders(done, tmp_path, monkeypatch):
    """What several receivers heard at once is never divided."""
    writer.widar_folder(tmp_path / "logs")
    seen, divide = [], membership.divide

    def recorded(groups, *rest):
        seen.append(groups)
        return divide(groups, *rest)

    monkeypatch.setattr(membership, "divide", recorded)
    data = ("--data", "widar", "--from", "logs", "--keep", "gesture")
    small = ("--set", f"{TINY},patch=32", "--quick", "--seeds", "1")
    done("csi", "donors", *data, "--row", "raw,plain", *small, "--out", "donors.json")
    assert [row["contender"] for row in result("donors.json")["scores"]] == ["raw", "plain"]
    for groups in seen:
        assert np.unique(groups, return_counts=True)[1].tolist() == [2] * 36
    done("csi", "augment", "csi", *data, "--split", "subject", *small, "--out", "gain.json")
    assert result("gain.json")["real"]["people"] == 1  # of nine, in the first fold


# members and canaries


@pytest.mark.parametrize(("method", "of"), [("csi", "generator"), ("resample", "classifier")])
def test_members_of_any_method(method, of, done):
    setting = TINY if method == "csi" else "epochs=1,width=4"
    asked = ("--set", setting, "--of", of, "--shadows", "2", "--quick", "--out", "members.json")
    outcome = done("csi", "members", method, *DATA, *asked)
    content = result("members.json")
    assert content["members"] == content["nonmembers"] == 64  # of 128 windows
    assert 0 <= content["auc"] <= 1
    assert content["tpr_at_01pct"] is None
    assert "too few nonmembers" in outcome.out


SIZE = (
    "width=8,blocks=1,heads=2,classifier_epochs=1,epochs=1,privacy.steps=16,noise_multiplier=10,"
    "expected_batch_size=1000"
)
CANARIES = (
    "csi", "canaries", "--option", "people=4,recordings=1,windows=2", "--canaries", "1000",
    "--guesses", "200", "--out", "canaries.json",
)  # fmt: skip


@pytest.mark.parametrize("mode", ["mode=dp", "mode=hybrid-dp,public=1"])
def test_canaries_do_not_refute_honest_noise(mode, done):
    said = done(*CANARIES, "--set", f"{SIZE},{mode}").out
    content = result("canaries.json")
    assert content["guesses"] == 200
    assert content["bound"] < content["privacy"]["epsilon"]
    assert content["right"] > 115  # at this noise canaries can be seen, a little
    assert "epsilon is above" in said
    assert "REFUTED" not in said


def test_canaries_refute_too_little_noise(done, monkeypatch):
    """The run still claims what it claimed; its gradients show that it is not so."""
    honest = DPOptimizer.add_noise

    def weak(optimizer):
        optimizer.noise_multiplier = 10 / 8
        honest(optimizer)

    monkeypatch.setattr(DPOptimizer, "add_noise", weak)
    assert "REFUTED" in done(*CANARIES, "--set", f"{SIZE},mode=dp").out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("donors --row cooked", "row 'cooked' is unknown"),
        ("donors --row hybrid-dp", "needs --public"),
        ("donors --out a.csv", "must end in .json"),
        ("donors --features a.txt", "must end in .safetensors"),
        ("donors --row raw --seeds 0", "at least one"),
        ("donors --lambda much --row raw", "'much' is no number"),
        ("donors --phases odd --row raw", "phases 'odd'"),
        ("donors --lira 5 --row plain", "no pairs"),
        ("donors --row hybrid-dp --public ann", "public person 'ann' is unknown"),
        ("donors --first-seed -1 --row raw", "'--first-seed': -1 is not in the range"),
        ("members csi --of luck", "attack of 'luck' is unknown"),
        ("members none --of generator", "is no generator"),
        ("members csi --shadows 1", "'--shadows': 1 is not in the range"),
        ("augment csi --seeds 0", "'--seeds': 0 is not in the range"),
        ("augment csi --windows 0", "'--windows': 0 is not in the range"),
        ("augment nothing", "method 'nothing' is unknown"),
        ("augment csi --set mode=odd", "'mode' is odd"),
        ("canaries --set mode=hybrid", "mode hybrid promises nothing"),
    ],
)
def test_commands_refuse(arguments, line, refused):
    out = () if "--out" in arguments else ("--out", "a.json")
    assert line in refused("csi", *arguments.split(), *out)


@pytest.mark.parametrize("place", ["file", "/proc"])
@pytest.mark.parametrize(
    "arguments",
    [
        "generate nowhere --class activity=walking --out {}/made.npz",
        "donors --data nowhere --out {}/donors.json",
        "donors --data nowhere --features {}/fid.safetensors --out donors.json",
        "augment csi --data nowhere --out {}/gain.json",
        "members csi --data nowhere --out {}/members.json",
        "canaries --data nowhere --set mode=dp --out {}/canaries.json",
        "join nowhere.json --out {}/all.json",
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(arguments, place, refused):
    """Before anything else is looked at: neither run nor data nor parts exist."""
    Path("file").touch()
    line = refused("csi", *arguments.format(place).split())
    assert f"cannot write to {place}/" in line
