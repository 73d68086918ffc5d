"""Every command does what it says, and says what it did."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest
import torch
import typer.main

import sensorveil
from sensorveil.audit.evaluation import Evaluation
from sensorveil.audit.results import SignalUtility
from sensorveil.cli.main import app
from sensorveil.cli.runs import _of_signal
from sensorveil.data.catalog import list_datasets
from sensorveil.data.windows import Windows
from sensorveil.methods.policy import Policy

OPTIONS: dict[str, Any] = {"people": 8, "recordings": 1, "windows": 3}
POLICY = ("--keep", "activity", "--hide", "gender")
Command = Callable[..., Any]


def strict(text: str) -> Any:
    """JSON as the standard has it: Python alone would also read NaN and Infinity."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def content(path: Path | str) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, none of them pickled."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


@pytest.fixture(scope="session")
def truth() -> Any:
    """The simulated windows that the runs were trained on, loaded without the command."""
    return sensorveil.load("simulated", "subject", 0, **OPTIONS)


# Help and version.


def commands() -> Iterator[tuple[str, ...]]:
    """The path of every command and group."""

    def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        if isinstance(command, click.Group):
            for name, part in command.commands.items():
                yield from walk(part, (*path, name))

    return walk(typer.main.get_command(app), ())


def found(path: tuple[str, ...]) -> click.Command:
    command = typer.main.get_command(app)
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


def test_the_commands() -> None:
    wanted = {"demo", "data", "methods", "fit", "obfuscate", "evaluate"}
    assert wanted <= {path[0] for path in commands() if path}
    assert {("data", name) for name in ("list", "info", "prepare")} <= set(commands())


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_mentions_everything(path: tuple[str, ...], done: Command) -> None:
    command = found(path)
    asked = "--help" if isinstance(command, click.Group) else "--help-all"
    shown = re.sub(r"\x1b\[[0-9;]*m", "", done(*path, asked).out)
    assert command.help
    assert command.help.split(".")[0][:60] in shown
    parts = command.commands.values() if isinstance(command, click.Group) else ()
    for part in parts:
        assert re.search(rf"\b{part.name}\b", shown)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for name in parameter.opts:
                assert name in shown
        about = getattr(parameter, "help", None)
        assert about, f"{parameter.name} has no help"
        # Words may be broken over lines, but the first one stands beside the option.
        assert about.split()[0] in shown


@pytest.mark.parametrize("path", [(), ("data",)], ids=["sensorveil", "data"])
def test_no_command_shows_the_help(path: tuple[str, ...], command: Command) -> None:
    outcome = command(*path)
    assert "Usage" in outcome.out + outcome.err
    assert "--help" in outcome.out + outcome.err


def test_version(done: Command) -> None:
    assert done("--version").out == f"{sensorveil.__version__}\n"


def test_from_a_shell() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sensorveil.cli.main", "methods", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(strict(done.stdout)) == set(sensorveil.list_methods())
    assert done.stderr == ""


# What holds for all commands.

EVERY = {
    "data list": "data list",
    "data info": "data info {simulated}",
    "data prepare": "data prepare motionsense --from {downloads} --to prepared.safetensors",
    "methods": "methods",
    "fit": "fit resample --set epochs=1,width=4 --keep activity --hide gender --out run {data}",
    "obfuscate": "obfuscate {noise} --out out.npz {data}",
    "evaluate": "evaluate {none} --quick --attribute gender --out out.json {data}",
}


@pytest.fixture(params=list(EVERY.values()), ids=list(EVERY))
def every(
    request: pytest.FixtureRequest,
    runs: dict[str, Path],
    simulated: tuple[str, ...],
    motionsense: Path,
) -> list[str]:
    """Each command in turn, as one would type it."""
    text: str = request.param
    short = ["simulated", *simulated[2:]]
    return text.format(
        **runs, data=" ".join(simulated), simulated=" ".join(short), downloads=motionsense
    ).split()


def test_json_is_json_alone(every: list[str], done: Command) -> None:
    outcome = done(*every, "--json")
    assert strict(outcome.out)
    assert outcome.out.count("\n") == 1
    assert outcome.err == ""


def test_quiet_prints_nothing(every: list[str], done: Command, tmp_path: Path) -> None:
    outcome = done(*every, "--quiet")
    assert (outcome.out, outcome.err) == ("", "")
    if "--out" in every or "--to" in every:
        assert (tmp_path / every[every.index("--out" if "--out" in every else "--to") + 1]).exists()


@pytest.mark.usefixtures("terminal")
def test_bars_stay_off_the_output(every: list[str], done: Command) -> None:
    outcome = done(*every)
    assert outcome.out
    assert "\x1b" not in outcome.out
    assert "━" * 20 not in outcome.out or every[0] in ("data", "methods", "evaluate")  # tables
    assert "inference model" not in outcome.out
    trains = "resample" in every or every[0] == "evaluate"
    assert ("inference model" in outcome.err) == trains


def test_no_bars_without_a_terminal(every: list[str], done: Command) -> None:
    assert done(*every).err == ""


def test_no_temporary_files_are_left(every: list[str], done: Command, tmp_path: Path) -> None:
    done(*every)
    assert not [path for path in tmp_path.rglob(".*")]


# data.


def test_list(done: Command, motionsense: Path, tmp_path: Path) -> None:
    def here() -> set[str]:
        return {
            entry["name"] for entry in strict(done("data", "list", "--json").out) if entry["here"]
        }

    listed = strict(done("data", "list", "--json").out)
    assert [entry["name"] for entry in listed] == list(list_datasets())
    watch = next(entry for entry in listed if entry["name"] == "watch")
    assert (watch["people"], watch["sample_rate"]) == (10, 50.0)
    # Nothing but what comes with the install and what is made on the spot is here.
    assert here() == {"watch", "simulated", "simulated-csi", "simulated-images"}
    (tmp_path / "datasets").mkdir()
    motionsense.rename(tmp_path / "datasets" / "motionsense")
    assert "motionsense" in here()


def test_list_for_people(done: Command) -> None:
    rows = {
        cells[1].strip(): cells[-2].strip()
        for cells in (line.split("│") for line in done("data", "list").out.splitlines())
        if len(cells) > 3
    }
    assert rows["watch"] == "yes"
    assert rows["motionsense"] == "no"


def test_info_counts_what_is_there(done: Command) -> None:
    options = ("--option", "people=8,recordings=1,windows=3")
    here = strict(done("data", "info", "simulated", *options, "--json").out)["here"]
    # 8 people, 4 activities, once each, 3 windows of 128 at 50 Hz.
    assert (here["people"], here["recordings"], here["windows"]) == (8, 32, 96)
    assert here["hours"] == round(96 * 128 / 50 / 3600, 3)
    assert here["attributes"]["activity"]["windows"] == dict.fromkeys(
        ("downstairs", "upstairs", "walking", "jogging"), 24
    )
    assert here["attributes"]["gender"]["people"] == {"female": 4, "male": 4}
    split = here["splits"]["subject"]
    assert (split["train"], split["test"]) == (72, 24)


def test_info_for_people(done: Command) -> None:
    shown = done("data", "info", "watch").out
    for words in ("Smartwatch", "seglearn", "BSD", "10 people", "140 recordings", "left", "1877"):
        assert words in shown


def test_info_on_what_is_not_here(done: Command) -> None:
    shown = done("data", "info", "motionsense").out
    assert "not here" in shown
    assert "A_DeviceMotion_data.zip" in shown
    assert strict(done("data", "info", "motionsense", "--json").out)["here"] is None


def test_info_on_a_table(done: Command, table: Path) -> None:
    told = strict(done("data", "info", table, "--json").out)
    here = told["here"]
    assert (here["people"], here["recordings"], here["windows"]) == (4, 12, 108)
    assert here["channels"] == ["ax", "ay"]
    assert here["attributes"]["activity"]["windows"] == {"rest": 54, "walk": 54}
    shown = done("data", "info", table).out
    assert "4 people, 12 recordings" in shown
    assert "activity: rest" in shown


def same(one: Windows, other: Windows) -> bool:
    """Whether two windows are the same in all that a method could see."""
    return (
        np.array_equal(one.signal, other.signal)
        and one.channels == other.channels
        and one.classes == other.classes
        and np.array_equal(one.start, other.start)
        and [one.recordings[i] for i in one.recording]
        == [other.recordings[i] for i in other.recording]
        and all(np.array_equal(one.codes(name), other.codes(name)) for name in one.attributes)
    )


def test_prepare(done: Command, motionsense: Path, tmp_path: Path) -> None:
    raw = sensorveil.load("motionsense", source=motionsense)
    outcome = done("data", "prepare", "motionsense", "--from", motionsense, "--json")
    written = Path(strict(outcome.out)["written"])
    assert written == tmp_path / "datasets" / "motionsense" / "prepared.safetensors"
    assert "yes" in next(
        line for line in done("data", "list").out.splitlines() if " motionsense " in line
    )
    prepared = sensorveil.load("motionsense")
    for part in ("train", "test", "fitting", "validation"):
        assert same(getattr(raw, part), getattr(prepared, part))
    # The test is trials 11 to 16: one of two trials each, of 4 people, with 2 windows.
    assert (len(prepared.train), len(prepared.test)) == (16, 16)


def test_prepared_signal_is_that_of_the_files(done: Command, motionsense: Path) -> None:
    done("data", "prepare", "motionsense", "--from", motionsense, "--to", "ms.safetensors")
    windows = sensorveil.load("motionsense", source="ms.safetensors").train
    chosen = windows.recordings.index("03-wlk-7")
    window = windows.select((windows.recording == chosen) & (windows.start == 10)).signal[0]
    file = pd.read_csv(motionsense / "A_DeviceMotion_data" / "wlk_7" / "sub_3.csv")[10:138]
    turn = sum(file[f"rotationRate.{axis}"] ** 2 for axis in "xyz") ** 0.5
    pull = sum((file[f"userAcceleration.{a}"] + file[f"gravity.{a}"]) ** 2 for a in "xyz") ** 0.5
    assert np.allclose(window, [turn, pull], atol=1e-5)


def test_prepare_into_a_folder(done: Command, motionsense: Path, tmp_path: Path) -> None:
    shown = done("data", "prepare", "motionsense", "--from", motionsense, "--to", "place").out
    assert (tmp_path / "place" / "prepared.safetensors").is_file()
    assert "place/prepared.safetensors" in shown
    here = done("data", "info", "motionsense", "--from", "place", "--json")
    assert strict(here.out)["here"]["recordings"] == 16


def test_prepare_into_a_folder_with_a_dot(done: Command, motionsense: Path, tmp_path: Path) -> None:
    (tmp_path / "motionsense.v1").mkdir()
    done("data", "prepare", "motionsense", "--from", motionsense, "--to", "motionsense.v1")
    assert (tmp_path / "motionsense.v1" / "prepared.safetensors").is_file()


# methods.


def test_methods(done: Command) -> None:
    told = strict(done("methods", "--json").out)
    assert set(told) == set(sensorveil.list_methods())
    classifier = {"width": 24, "epochs": 12, "batch_size": 64, "learning_rate": 0.004}
    own = {"ensemble_size": 1, "classifier": classifier}
    assert told["resample"]["settings"] == own
    assert told["resample"]["presets"]["paper"]["classifier"]["epochs"] == 20
    assert set(told["noise"]["capabilities"]["strengths"]) == {"snr", "epsilon"}
    lines = done("methods").out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(told)
    assert all(len(line) <= 80 for line in lines)
    one = done("methods", "noise").out
    for word in ("presets: fast", "snr", "local epsilon"):
        assert word in one


# fit.


def test_fit_writes_a_run(done: Command, simulated: tuple[str, ...], tmp_path: Path) -> None:
    shown = done("fit", "resample", "--set", "epochs=2", *POLICY, *simulated, "--out", "deep/run")
    assert "resample learnt from 72 windows" in shown.out
    assert "deep/run" in shown.out
    folder = tmp_path / "deep" / "run"
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "model.safetensors",
        "card.md",
        "metrics.json",
    }
    config = strict((folder / "config.json").read_text("utf-8"))
    assert (config["method"], config["keep"], config["hide"]) == (
        "resample",
        ["activity"],
        ["gender"],
    )
    classifier = {"width": 24, "epochs": 2, "batch_size": 64, "learning_rate": 0.004}
    own = {"ensemble_size": 1, "classifier": classifier}
    assert config["settings"] == own
    assert config["origin"]["dataset"] == "simulated"
    (losses,) = strict((folder / "metrics.json").read_text("utf-8"))["classifier_loss"]
    assert len(losses) == 2
    card = (folder / "card.md").read_text("utf-8")
    assert "keeps: activity" in card
    assert "hides: gender" in card


def test_fit_takes_seed_fold_preset_and_several_names(
    done: Command, simulated: tuple[str, ...], tmp_path: Path
) -> None:
    hide = ("--keep", "activity", "--hide", "gender,weight", "--hide", "subject")
    more = ("--seed", "7", "--fold", "2", "--preset", "paper", "--split", "subject")
    small = ("--set", "epochs=1,width=4")
    done("fit", "resample", *hide, *more, *small, *simulated, "--out", "run")
    config = strict((tmp_path / "run" / "config.json").read_text("utf-8"))
    assert config["hide"] == ["gender", "weight", "subject"]
    assert (config["seed"], config["preset"], config["origin"]["fold"]) == (7, "paper", 2)
    classifier = {"width": 4, "epochs": 1, "batch_size": 512, "learning_rate": 0.003}
    own = {"ensemble_size": 5, "classifier": classifier}
    assert config["settings"] == own


def test_fit_by_seed(done: Command, simulated: tuple[str, ...], tmp_path: Path) -> None:
    for name, seed in (("one", 3), ("same", 3), ("other", 4)):
        more = ("--set", "epochs=1,width=4", "--seed", str(seed), "--out", name)
        done("fit", "resample", *POLICY, *simulated, *more)
    one, same_seed, other = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "same", "other")
    )
    assert one == same_seed
    assert one != other


# obfuscate.


def test_npz_holds_what_is_documented(
    done: Command, runs: dict[str, Path], simulated: tuple[str, ...], truth: Any
) -> None:
    shown = done("obfuscate", runs["none"], *simulated, "--out", "out.npz").out
    assert shown == "24 windows of shape (3, 128): out.npz\n"
    told, test = content("out.npz"), truth.test
    names = ("activity", "gender", "weight")
    wanted = {"signal", "start", "subject", "recording", "sample_rate", "channels"}
    wanted |= {f"{what}_{name}" for what in ("label", "classes") for name in names}
    assert set(told) == wanted
    assert told["signal"].dtype == np.float32
    assert np.allclose(told["signal"], test.signal, atol=1e-5)
    assert np.array_equal(told["start"], test.start)
    assert told["subject"].tolist() == [test.classes["subject"][code] for code in test.subject]
    assert told["recording"].tolist() == [test.recordings[index] for index in test.recording]
    for name in names:
        assert np.array_equal(told[f"label_{name}"], test.codes(name))
        assert tuple(told[f"classes_{name}"]) == test.classes[name]
    assert float(told["sample_rate"]) == 50
    assert tuple(told["channels"]) == test.channels


def test_parts(done: Command, runs: dict[str, Path], simulated: tuple[str, ...]) -> None:
    parts = {}
    for part in ("train", "validation", "test", "all"):
        done("obfuscate", runs["none"], *simulated, "--subset", part, "--out", f"{part}.npz")
        told = content(f"{part}.npz")
        places = zip(told["recording"].tolist(), told["start"].tolist(), strict=True)
        parts[part] = set(places)
        assert len(parts[part]) == len(told["signal"])
    assert [len(parts[part]) for part in ("train", "test", "all")] == [72, 24, 96]
    assert parts["train"] | parts["test"] == parts["all"]
    assert not parts["train"] & parts["test"]
    assert parts["validation"] < parts["train"]


def test_fold_is_that_of_the_run(
    done: Command, runs: dict[str, Path], simulated: tuple[str, ...]
) -> None:
    def people(*arguments: str | Path) -> set[str]:
        done("obfuscate", *arguments, *simulated, "--out", "out.npz")
        return set(content("out.npz")["subject"].tolist())

    first, second = people(runs["none"]), people(runs["fold1"])
    assert len(first) == len(second) == 2
    assert not first & second
    assert people(runs["none"], "--fold", "1") == second


@pytest.mark.parametrize("ratio", [-10, 0, 30])
def test_strength_is_obeyed(
    ratio: int, done: Command, runs: dict[str, Path], simulated: tuple[str, ...], truth: Any
) -> None:
    strength = ("--strength", f"snr={ratio}", "--seed", "1")
    done("obfuscate", runs["noise"], *simulated, *strength, "--subset", "train", "--out", "out.npz")
    added = content("out.npz")["signal"] - truth.train.signal
    measured = 10 * np.log10(truth.train.signal.var((0, 2)) / added.var((0, 2)))
    assert np.abs(measured - ratio).max() < 0.5


def test_strength_of_the_run_by_default(
    done: Command, runs: dict[str, Path], simulated: tuple[str, ...]
) -> None:
    for name, more in (("own", ()), ("same", ("--strength", "snr=20"))):
        done("obfuscate", runs["noise"], *simulated, *more, "--seed", "1", "--out", f"{name}.npz")
    assert np.array_equal(content("own.npz")["signal"], content("same.npz")["signal"])


@pytest.mark.parametrize("method", ["noise", "resample"])
def test_seed_repeats_and_no_seed_never_does(
    method: str, done: Command, runs: dict[str, Path], simulated: tuple[str, ...]
) -> None:
    signals = {}
    wanted = {"a": ("--seed", "5"), "b": ("--seed", "5"), "c": ("--seed", "6"), "d": (), "e": ()}
    for name, more in wanted.items():
        shown = done("obfuscate", runs[method], *simulated, *more, "--out", f"{name}.npz").out
        # Who knows the seed can take the noise out again, and is told so.
        assert ("do not release" in shown) == bool(more)
        signals[name] = content(f"{name}.npz")["signal"]
    assert np.array_equal(signals["a"], signals["b"])
    for one, other in (("a", "c"), ("a", "d"), ("d", "e")):
        assert not np.array_equal(signals[one], signals[other])


def test_resampled_windows_are_those_of_training(
    done: Command, runs: dict[str, Path], simulated: tuple[str, ...], truth: Any
) -> None:
    done("obfuscate", runs["resample"], *simulated, "--out", "out.npz")
    told = content("out.npz")["signal"].reshape(24, 1, -1)
    nearest = np.abs(told - truth.train.signal.reshape(1, 72, -1)).max(2).min(1)
    assert nearest.max() < 1e-5


def test_run_on_a_table_serves_new_recordings(done: Command, table: Path, tmp_path: Path) -> None:
    """The steward's way: trained on one table, used on all of another."""
    done("fit", "noise", "--data", table, *POLICY, "--out", "run")
    new = pd.read_csv(tmp_path / "walks.csv").assign(person=lambda rows: "new " + rows["person"])
    new.to_csv(tmp_path / "new.csv", index=False)
    toml = table.read_text("utf-8").replace("walks.csv", "new.csv")
    (tmp_path / "new.toml").write_text(toml, "utf-8")
    done("obfuscate", "run", "--data", "new.toml", "--subset", "all", "--out", "out.npz")
    told = content("out.npz")
    assert told["signal"].shape == (108, 2, 8)
    assert set(told["subject"].tolist()) == {f"new p{i}" for i in range(4)}


# evaluate.


def scores(told: dict[str, Any]) -> dict[str, Any]:
    return {score["attribute"]: score for score in told["scores"]}


def test_evaluate(
    done: Command, runs: dict[str, Path], simulated: tuple[str, ...], tmp_path: Path
) -> None:
    shutil.copytree(runs["none"], tmp_path / "run")
    typed = ["evaluate", "run", "--quick", "--seeds", "2", *simulated, "--json", "--out"]
    outcome = done(*typed, tmp_path / "o.json")
    told = strict((tmp_path / "o.json").read_text("utf-8"))
    assert strict(outcome.out) == told
    assert told["seeds"] == [0, 1]
    assert told["folds"] == [0]
    assert told["data"][0]["dataset"] == "simulated"
    assert len(told["data"][0]["protocol"]) == 16
    # Where the files lie on this machine is nobody's business, so only the file's name is left.
    assert told["conditions"]["command"] == " ".join(["sensorveil", *typed, "o.json"])
    assert told["conditions"]["hardware"].endswith(f", {torch.get_num_threads()} threads")
    assert told["inference"]["epochs"] == 12
    assert (told["runs"][0]["preset"], told["runs"][0]["seed"]) == ("fast", 0)
    assert "fit none" in told["runs"][0]["made"]["command"]
    found = scores(told)
    assert {name: found[name]["role"] for name in found} == {
        "activity": "keep",
        "gender": "hide",
        "weight": "unlisted",
    }
    # The test is two people with twelve windows each.
    assert all(score["windows"] == 24 for score in found.values())
    assert found["activity"]["majority"] == found["activity"]["chance"] == 0.25
    assert found["activity"]["accuracy"]["people"] == 2
    # Nothing was changed, so nothing is read differently.
    for score in found.values():
        assert score["raw_accuracy"]["value"] == score["accuracy"]["value"]
    assert "subject" in told["left_out"]


def test_evaluate_for_people(
    done: Command, runs: dict[str, Path], simulated: tuple[str, ...]
) -> None:
    shown = done("evaluate", runs["noise"], "--quick", *simulated).out
    for words in ("noise", "activity (keep)", "gender (hide)", "weight (unlisted)", "obfuscated"):
        assert words in shown
    assert "subject was not scored" in shown


def test_evaluate_says_what_is_left_of_the_signal() -> None:
    left = (
        SignalUtility(frequency_correlation=0.5, energy_correlation=0.9),
        SignalUtility(frequency_correlation=0.7),
    )
    found = Evaluation("seal", Policy.of("a", "b"), (), {}, (0,), (0, 1), {}, left)
    assert _of_signal(found) == "frequency 0.60, energy 0.90"
    assert _of_signal(replace(found, signal=(SignalUtility(),))) == ""


def test_evaluate_one_attribute(
    done: Command, runs: dict[str, Path], simulated: tuple[str, ...]
) -> None:
    arguments = ("--quick", "--attribute", "gender,weight", *simulated, "--json")
    told = strict(done("evaluate", runs["none"], *arguments).out)
    assert list(scores(told)) == ["gender", "weight"]


def test_evaluate_pools_folds(
    done: Command, runs: dict[str, Path], simulated: tuple[str, ...]
) -> None:
    arguments = ("--quick", "--attribute", "activity", *simulated, "--json")
    pooled = strict(done("evaluate", runs["none"], runs["fold1"], *arguments).out)
    apart = [
        scores(strict(done("evaluate", runs[name], *arguments).out))["activity"]
        for name in ("none", "fold1")
    ]
    whole = scores(pooled)["activity"]
    assert pooled["folds"] == [0, 1]
    assert [place["fold"] for place in pooled["data"]] == [0, 1]
    assert whole["windows"] == 48
    assert whole["accuracy"]["people"] == 4
    mean = np.mean([score["accuracy"]["value"] for score in apart])
    assert whole["accuracy"]["value"] == pytest.approx(mean)


def test_evaluate_by_strength(
    done: Command, runs: dict[str, Path], simulated: tuple[str, ...]
) -> None:
    def read(ratio: int) -> float:
        arguments = ("--quick", "--attribute", "activity", "--strength", f"snr={ratio}")
        told = strict(done("evaluate", runs["noise"], *arguments, *simulated, "--json").out)
        assert told["strength"] == {"snr": ratio}
        accuracy: float = scores(told)["activity"]["accuracy"]["value"]
        return accuracy

    # Under noise of ten thousand times the signal nothing is left but guessing.
    assert read(60) > 0.5
    assert read(-40) <= 0.5


# demo.


@pytest.mark.slow
def test_demo(done: Command, tmp_path: Path) -> None:
    shown = done("demo", "--out", "my demo").out
    assert "kept: exercise" in shown
    assert "side (hide)" in shown
    assert "my demo/audit.html" in shown
    place = tmp_path / "my demo"
    written = {"run", "hidden.npz", "audit.json", "audit.html"}
    assert {path.name for path in place.iterdir()} == written
    told = strict((place / "audit.json").read_text("utf-8"))
    part = told["splits"][0]
    side = next(entry for entry in part["attributes"] if entry["attribute"] == "side")
    # What the demo is to show: the exercise stays, and no attacker reads the arm.
    assert part["kept"][0]["unchanged"]["value"] > 0.7
    assert max(a["accuracy"]["value"] for a in side["attacks"] if a["threat_model"] == "raw") > 0.9
    # With ten people the verdict is at the edge of its 2 points, and rounding can turn it.
    worst = max(a["accuracy"]["value"] for a in side["attacks"] if a["threat_model"] != "raw")
    assert worst < side["majority"] + 0.04, side["verdict"]
    assert side["verdict"]["status"] in ("hidden", "not hidden")
    assert not any(session["found"] for session in side["sessions"])
    assert told["conditions"]["command"] == "sensorveil demo --out 'my demo'"
    assert told["dataset"] == "watch"
    assert "<html" in (place / "audit.html").read_text("utf-8")
    done("obfuscate", place / "run", "--seed", "0", "--out", "again.npz")
    assert np.array_equal(content("again.npz")["signal"], content(place / "hidden.npz")["signal"])


def test_extend_hides_one_more(done, refused, simulated, tmp_path):
    small = [
        "--set",
        "epochs=1",
        "--set",
        "reader_epochs=1",
        "--set",
        "width=8",
        "--set",
        "steps=3",
    ]
    done("fit", "privdiffuser", *simulated, *POLICY, *small, "--out", "run")
    assert not (tmp_path / "run.unfinished").exists()
    shown = done("extend", "run", *simulated[2:], "--hide", "weight", "--out", "more").out
    assert "gender, weight" in shown
    done("obfuscate", "more", *simulated[2:], "--strength", "keep=1,weight=0.5", "--out", "a.npz")
    again = ("extend", "run", *simulated[2:], "--out", "no", "--hide")
    assert "twice" in refused(*again, "gender")
    assert "unknown" in refused(*again, "height")
    done("fit", "none", *simulated, *POLICY, "--out", "plain")
    asked = ("extend", "plain", *simulated[2:], "--hide", "weight", "--out", "no")
    assert "anew" in refused(*asked)
    assert not (tmp_path / "no").exists()


def test_another_training_that_was_not_finished_is_not_taken(refused, simulated, tmp_path):
    (tmp_path / "run.unfinished").mkdir()
    (tmp_path / "run.unfinished" / "purpose.json").write_text("{}", "utf-8")
    asked = ("fit", "none", *simulated, *POLICY, "--out", "run")
    assert "another training" in refused(*asked)
    assert not (tmp_path / "run").exists()
