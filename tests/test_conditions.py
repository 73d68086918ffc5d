"""The conditions of a figure: enough to repeat it, and nothing about the machine's owner."""

from __future__ import annotations

import datetime
import json
import platform
import shlex
import sys

import pytest
import torch

from sensorveil.conditions import command_line, conditions, hardware
from sensorveil.version import __version__


def test_versions_and_day() -> None:
    before = datetime.date.today()
    noted = conditions()
    assert noted["sensorveil"] == __version__
    assert noted["torch"] == torch.__version__
    assert noted["python"] == platform.python_version()
    assert before <= datetime.date.fromisoformat(noted["date"]) <= datetime.date.today()
    assert json.loads(json.dumps(noted)) == noted


def test_the_command_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["evaluate", "my run", "--strength", "keep=4;rm -rf 'x'"]
    monkeypatch.setattr(sys, "argv", ["/home/ann/.venv/bin/sensorveil", *given])
    command = conditions()["command"]
    assert shlex.split(command) == ["sensorveil", *given]
    assert "ann" not in command


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fit", "--out", "/home/ann/run"], "fit --out run"),
        (["fit", "--out=/home/ann/run"], "fit --out=run"),
        (["fit", "--out", "runs/a", "--set", "rate=1e-3"], "fit --out runs/a --set rate=1e-3"),
    ],
)
def test_no_place_of_this_machine_is_told(words: list[str], expected: str) -> None:
    assert command_line(words) == expected


def test_hardware_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words = hardware("cpu")
    assert words.endswith(f", {torch.get_num_threads()} threads")
    assert len(words.split(",")[0]) > 2
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card {device}")
    assert hardware("cuda:1") == "card cuda:1"
