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
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "sensorveil": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "hardware": hardware(device),
        "date": datetime.date.today().isoformat(),
    }


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
