"""What all tests share: one thread, and the real datasets where they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch


def pytest_configure() -> None:
    # Two threads on two busy cores make small steps up to 60 times slower.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the real datasets; tests that need it skip elsewhere."""
    named = os.environ.get("SENSORVEIL_DATA")
    if not named or not Path(named).is_dir():
        pytest.skip("SENSORVEIL_DATA names no folder with the real datasets")
    return Path(named)
