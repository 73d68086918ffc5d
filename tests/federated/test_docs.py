"""What docs/federated.md shows is run, on small files with few rounds.

How it starts Flower's SuperLink and SuperNodes is compared in test_deployment.py, which runs them.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import metadata
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
import typer

from sensorveil.cli import options
from sensorveil.cli.main import app, main
from sensorveil.federated import experiments
from sensorveil.federated.plan import Plan
from sensorveil.measures.inference import ClassifierSettings
from sensorveil.methods.run import load_run
from sensorveil.recipes import plan as recipe_plan

NETWORKS = "widths=24-24-16-16,latent=6,reader_epochs=1,reader_width=4"
SMALL = {"epochs": "1", "rounds": "2", "query": "1"}  # 16 times larger batches are tried too
ADDED = {
    "fit": f"--set {NETWORKS},epochs=1",
    "federated personalise": "",
    "federated app": "",
    "federated simulate": f"--set {NETWORKS}",
    "federated experiment": f"--quick --set {NETWORKS}",
    # The whole recipe is run, on a few small files in the official form.
    "papers reproduce": f"--quick --seeds 1 --set {NETWORKS},epochs=1,rounds=2,balance=24,query=7",
}
"""What each command is given besides, so that it ends soon; one that is not here is not known."""

ELSEWHERE = {"flower-superlink", "flower-supernode", "export"}
"""Looked at in test_deployment.py."""

TABLE = """
file = "{file}"
subject = "person"
recording = "session"
rate = 50
channels = ["rotation rate magnitude", "acceleration magnitude"]

[attributes.activity]
classes = ["downstairs", "upstairs", "walking", "jogging"]

[attributes.gender]
classes = ["female", "male"]
"""


def test_every_command_is_known(document, shown):
    assert "```" not in document  # commands are looked for in indented blocks
    tested = {"sensorveil", "pip", "openssl", "printf", "ssh-keygen", "flwr", *ELSEWHERE}
    assert {line.split()[0] for line in shown} == tested
    assert {subcommand(words) for words in own_commands(shown)} == set(ADDED)


def test_commands_run(document, shown, run, tmp_path):
    """In their order and in one folder, since later ones take what earlier ones wrote."""
    for words in own_commands(shown):
        if not over_flower(words):
            run(words)
    assert load_run(tmp_path / "own").metrics_["personalised"]["steps"] == 80
    assert sorted(Path("several").iterdir()) == [
        Path("several", f"{name}.json") for name in ("communication", "unseen")
    ]
    assert Path("results", "blinder-mobiact-gender-accuracy.json").is_file()
    tried = json.loads(Path("tuning.json").read_text("utf-8"))["points"]
    assert [one["plan"]["rate"] / 0.003 for one in tried[::2]] == pytest.approx(
        [float(times) for times in re.findall(r"[\d.]+", said_of_rates(document))]
    )
    tuned = json.loads(Path("tuned.json").read_text("utf-8"))["points"]
    assert [one["plan"]["rate"] for one in tuned] == [0.009, 0.003]


@pytest.mark.slow
def test_commands_over_flower_run(shown, run, tmp_path):
    found = [words for words in own_commands(shown) if over_flower(words)]
    assert len(found) >= 2
    for words in found:
        run(words)
        assert load_run(tmp_path / "run").metrics_["federation"]["rounds"] == 2
        shutil.rmtree(tmp_path / "run")


def test_plans_are_plans(document):
    """Above, numbers of rounds are others; here all values are those of the document."""
    found = set(re.findall(r"--plan ([^\s`]+)", document)) - {"name=value"}
    assert len(found) >= 5
    for values in found:
        Plan(**options.settings([values], Plan, "a plan"))


def test_options_in_sentences_are_options(document):
    for words in re.findall(r"`(--[^`]+)`", document):
        if words != "--database":  # the SuperLink's
            understood(app, ["federated", "simulate", "--out", "run", *words.split()])


def test_flower_understands_its_commands(document, shown):
    from flwr.cli.app import app as flwr

    found = [line for line in shown if line.startswith("flwr ")]
    found += re.findall(r"`(flwr [^`]+)`", document)
    assert len(found) >= 3
    for line in found:
        understood(flwr, shlex.split(line, comments=True)[1:])


def test_extras_are_there(shown):
    (line,) = (line for line in shown if line.startswith("pip "))
    named = [extra for extras in re.findall(r"\[(.*?)\]", line) for extra in extras.split(",")]
    assert named
    assert set(named) <= set(metadata("sensorveil").get_all("Provides-Extra"))


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl")
def test_certificates_are_those_of_the_server(shown, tmp_path):
    for line in shown:
        if line.startswith(("openssl ", "printf ")):
            shell(line, tmp_path)
    check = "openssl verify -CAfile ca.crt -purpose sslserver -verify_hostname"
    assert "server.crt: OK" in shell(f"{check} server.example server.crt", tmp_path)
    with pytest.raises(AssertionError, match="hostname mismatch"):
        shell(f"{check} other.example server.crt", tmp_path)


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="there is no ssh-keygen")
def test_flower_takes_the_key_of_a_node(shown, tmp_path):
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.cli.supernode.register import try_load_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    (line,) = (line for line in shown if line.startswith("ssh-keygen "))
    shell(line, tmp_path)
    private = load_ssh_private_key((tmp_path / "node.key").read_bytes(), None)
    public = try_load_public_key(tmp_path / "node.key.pub")
    assert public == public_key_to_bytes(private.public_key())


def said_of_rates(document: str) -> str:
    (found,) = re.findall(r"`tuning` tries (.*) times the plan's", document)
    return found


def own_commands(shown: list[str]) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in shown if line.startswith("sensorveil ")]


def subcommand(words: list[str]) -> str:
    return " ".join(words[: 1 + (words[0] in ("federated", "papers"))])


def over_flower(words: list[str]) -> bool:
    return subcommand(words) == "federated simulate" and "process" not in words


def smaller(words: list[str]) -> list[str]:
    """The same command with what is added to it, one seed, and a small plan.

    What else its plan says stays, and so do its other words.
    """
    words = [*words, *ADDED[subcommand(words)].split()]
    if "--seeds" in words:
        words[words.index("--seeds") + 1] = "1"
    if words[0] != "federated" or words[1] == "personalise":
        return words
    if "--plan" not in words:
        words += ["--plan", ""]
    at = words.index("--plan") + 1
    told = dict(pair.split("=") for pair in words[at].split(",") if pair)
    words[at] = ",".join(f"{name}={value}" for name, value in {**told, **SMALL}.items())
    return words


def understood(commands: typer.Typer, words: list[str]) -> None:
    """Has words read as those of a command, which raises where they cannot be."""
    command, name = typer.main.get_command(commands), ""
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(click.Context(command), words)
    command.make_context(name, words)


def shell(line: str, folder: Path) -> str:
    done = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Callable[[list[str]], None]:
    """Runs a command where its data is, with small fixed models, and insists that it went well."""
    write_motionsense(tmp_path / "datasets" / "motionsense")
    write_mobiact(tmp_path / "MobiAct_Dataset_v2.0")
    write_table(tmp_path / "pilot.toml", people=("01", "02", "04", "05"))
    write_table(tmp_path / "mine.toml", people=("03",))
    monkeypatch.setenv("SENSORVEIL_DATA", str(tmp_path / "datasets"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ClassifierSettings, "quick", lambda: ClassifierSettings(width=4, epochs=1))
    for module in (experiments, recipe_plan):
        monkeypatch.setattr(module, "DENSE", replace(module.DENSE, epochs=1))

    def insist(words: list[str]) -> None:
        monkeypatch.setattr(sys, "argv", ["sensorveil", *smaller(words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0, f"{shlex.join(words)}: {capsys.readouterr().err}"

    return insist


def steps(person: int, number: int, samples: int, channels: int) -> np.ndarray:
    """Samples by channels: a rhythm for each activity, a loudness for each person, some noise."""
    noise = np.random.default_rng([person, number]).normal(size=(samples, channels)) / 10
    wave = np.sin(np.arange(samples) * (0.1 + 0.1 * number)) * (1 + person / 4)
    return (noise + wave[:, None]).round(4)


def write_motionsense(folder: Path) -> None:
    """Six people, men and women, eight recordings of eleven windows each, as it is published."""
    trials = ("dws_1", "ups_3", "wlk_7", "jog_9", "dws_11", "ups_12", "wlk_15", "jog_16")
    vectors = ("attitude", "gravity", "rotationRate", "userAcceleration")
    columns = [f"{vector}.{axis}" for vector in vectors for axis in "xyz"]
    people = ["code,weight,height,age,gender"]
    for person in range(1, 7):
        people.append(f"{person},{50 + 10 * person},{160 + 5 * person},{20 + person},{person % 2}")
        for number, trial in enumerate(trials):
            place = folder / "A_DeviceMotion_data" / trial / f"sub_{person}.csv"
            place.parent.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(steps(person, number % 4, 228, 12), columns=columns).to_csv(place)
    (folder / "data_subjects_info.csv").write_text("\n".join(people) + "\n")


def write_mobiact(folder: Path) -> None:
    """Four of the papers' people, two of them women, in the annotated form."""
    columns = [f"{sensor}_{axis}" for sensor in ("acc", "gyro") for axis in "xyz"]
    for person in (1, 2, 3, 5):
        for number, task in enumerate(("WAL", "STD", "JOG", "STU")):
            place = folder / "Annotated Data" / task / f"{task}_{person}_1_annotated.csv"
            place.parent.mkdir(parents=True, exist_ok=True)
            rows = pd.DataFrame(steps(person, number, 328, 6), columns=columns)
            rows.assign(label=task).to_csv(place, index=False)


def write_table(place: Path, people: tuple[str, ...]) -> None:
    """Recordings of one's own, with the channels that the windows of MotionSense have."""
    channels = ["rotation rate magnitude", "acceleration magnitude"]
    activities = ("downstairs", "upstairs", "walking", "jogging")
    parts = [
        pd.DataFrame(steps(int(person), number, 1280, 2), columns=channels).assign(
            person=person,
            session=number,
            activity=activity,
            gender=("female", "male")[int(person) % 2],
        )
        for person in people
        for number, activity in enumerate(activities)
    ]
    pd.concat(parts).to_csv(place.with_suffix(".csv"), index=False)
    place.write_text(TABLE.format(file=place.with_suffix(".csv").name))
