"""What the tests of the commands share: a way to call them, tiny runs, and small good files."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from sensorveil.cli import screen
from sensorveil.cli.main import main

SIMULATED = ("--data", "simulated", "--option", "people=8,recordings=1,windows=3")
POLICY = ("--keep", "activity", "--hide", "gender")
TOML = """
file = "walks.csv"
subject = "person"
recording = "session"
sample_rate = 50
channels = ["ax", "ay"]
attributes = ["activity", "gender"]

[window]
length = 8
stride = 4
"""


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str


def call(*arguments: str | Path) -> Outcome:
    """Runs the command in this process: a new one would import torch for seconds."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["sensorveil", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        _warnings_shown(),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Outcome(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _warnings_shown() -> Iterator[None]:
    """Warnings on the error stream, where a user would see them, and not in the tests' report."""

    def show(message: Warning | str, kind: type[Warning], *place: object) -> None:
        print(f"{kind.__name__}: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for hidden in (DeprecationWarning, PendingDeprecationWarning, ImportWarning):
            warnings.simplefilter("ignore", hidden)
        warnings.simplefilter("ignore", ResourceWarning)
        with mock.patch.object(warnings, "showwarning", show):
            yield


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test in a folder of its own, with no datasets, no terminal and wide lines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENSORVEIL_DATA", str(tmp_path / "datasets"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error stream as on a terminal, where bars are drawn."""
    monkeypatch.setenv("TERM", "xterm")
    console = Console(stderr=True, force_terminal=True, force_interactive=True)
    monkeypatch.setattr(screen, "errors", console)


@pytest.fixture(scope="session")
def command() -> Callable[..., Outcome]:
    """Calls the command line: `command("fit", "none", ...)`."""
    return call


@pytest.fixture
def done(command: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Calls the command line and insists that it went well."""

    def insist(*arguments: str | Path) -> Outcome:
        outcome = command(*arguments)
        assert outcome.code == 0, outcome.err
        return outcome

    return insist


@pytest.fixture
def refused(command: Callable[..., Outcome], tmp_path: Path) -> Callable[..., str]:
    """Calls the command line, insists on a proper refusal, and gives its line.

    Proper is: exit code 2, nothing on stdout, one line on stderr, and every file as it was, so
    that nothing half-written and no temporary file can be anywhere in the test's folder.
    """

    def insist(*arguments: str | Path) -> str:
        before = _tree(tmp_path)
        outcome = command(*arguments)
        assert outcome.code == 2, outcome
        assert outcome.out == ""
        assert outcome.err.startswith("sensorveil: "), outcome.err
        assert outcome.err.count("\n") == 1, outcome.err
        assert outcome.err.endswith("\n")
        assert _tree(tmp_path) == before
        return outcome.err.rstrip("\n")

    return insist


def _tree(place: Path) -> dict[str, bytes | None]:
    """Every folder and file below a place, with the files' content."""
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() else None
        for path in place.rglob("*")
    }


@pytest.fixture(scope="session")
def simulated() -> tuple[str, ...]:
    """The options for 96 simulated windows: 8 people, 4 activities, 3 windows each."""
    return SIMULATED


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run folders trained on the simulated windows; tests only read them."""
    place = tmp_path_factory.mktemp("runs")
    wanted = {
        "none": ("none",),
        "fold1": ("none", "--fold", "1"),
        "noise": ("noise", "--set", "snr=20"),
        "resample": ("resample", "--set", "epochs=1,width=4"),
    }
    for name, arguments in wanted.items():
        outcome = call("fit", *arguments, *POLICY, *SIMULATED, "--out", place / name)
        assert outcome.code == 0, outcome.err
    return {name: place / name for name in wanted}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The TOML of a good table: 4 people, 3 recordings each of 40 samples, so 9 windows each."""
    generator = np.random.default_rng(0)
    parts = [
        pd.DataFrame(
            {
                "person": f"p{person}",
                "session": session,
                "ax": (person * 10 + session) * 100 + np.arange(40),
                "ay": generator.normal(size=40).round(3),
                "activity": ["walk", "rest"][(person + session) % 2],
                "gender": ["f", "m"][person % 2],
            }
        )
        for person in range(4)
        for session in (1, 2, 3)
    ]
    pd.concat(parts).to_csv(tmp_path / "walks.csv", index=False)
    place = tmp_path / "walks.toml"
    place.write_text(TOML, "utf-8")
    return place


@pytest.fixture
def motionsense(tmp_path: Path) -> Path:
    """A folder as the authors of MotionSense lay it out: 4 people, 4 recordings of 140 samples."""
    generator = np.random.default_rng(1)
    folder = tmp_path / "downloads"
    vectors = ("attitude", "gravity", "rotationRate", "userAcceleration")
    columns = [f"{vector}.{axis}" for vector in vectors for axis in "xyz"]
    for trial in ("wlk_7", "wlk_15", "jog_9", "jog_16"):
        for person in (1, 2, 3, 4):
            place = folder / "A_DeviceMotion_data" / trial / f"sub_{person}.csv"
            place.parent.mkdir(parents=True, exist_ok=True)
            values = generator.normal(size=(140, len(columns))).round(6)
            pd.DataFrame(values, columns=columns).to_csv(place)
    people = "code,weight,height,age,gender\n1,102,188,46,1\n2,72,180,28,1\n3,48,161,28,0\n"
    (folder / "data_subjects_info.csv").write_text(people + "4,90,176,31,0\n", "utf-8")
    return folder
