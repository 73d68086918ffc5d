"""The conditions that a figure was measured under; they stand in every result file."""

from __future__ import annotations

import datetime
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from sensorveil.version import __version__


def conditions(device: str = "cpu") -> dict[str, Any]:
    """Command, versions, hardware and day.

    >>> sorted(conditions())
    ['command', 'date', 'hardware', 'python', 'sensorveil', 'torch']
    """
    return {
        "command": command_line(sys.argv),
        "sensorveil": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "hardware": hardware(device),
        "date": datetime.date.today().isoformat(),
    }


def command_line(words: list[str]) -> str:
    """A command as it can be typed elsewhere: absolute paths are cut down to their names.

    >>> command_line(["/usr/bin/sensorveil", "evaluate", "runs/a", "--out", "/home/ann/a.json"])
    'sensorveil evaluate runs/a --out a.json'
    """
    return shlex.join([Path(words[0]).name, *(_without_place(word) for word in words[1:])])


def _without_place(word: str) -> str:
    option, equals, value = word.partition("=")
    if equals:
        return f"{option}={_without_place(value)}"
    return Path(word).name if Path(word).is_absolute() else word


def hardware(device: str) -> str:
    """The processor that did the work, in words."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.get_num_threads()} threads"


def _processor() -> str:
    place = Path("/proc/cpuinfo")
    if place.is_file():
        for line in place.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
