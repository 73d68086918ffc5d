"""Small data of four people, a Blinder and a plan for it, and what docs/federated.md shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sensorveil.data.windows import Windows
from sensorveil.federated.plan import Plan
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.conformance import example_windows


@pytest.fixture(scope="session")
def windows() -> Windows:
    return example_windows()


@pytest.fixture(scope="session")
def obfuscator(windows) -> Blinder:
    small = {"widths": "24-24-16-16", "ends": "dense", "latent": 6, "discriminator_width": 8}
    return Blinder("paper", seed=5, reader_epochs=1, reader_width=4, **small).prepare(
        windows, "activity", "gender"
    )


@pytest.fixture(scope="session")
def plan() -> Plan:
    return Plan(epochs=2, rounds=3, share=0.5, support=1, query=7, balance=0, seed=3)


@pytest.fixture(scope="session")
def document() -> str:
    return (Path(__file__).parents[2] / "docs" / "federated.md").read_text("utf-8")


@pytest.fixture(scope="session")
def blocks(document) -> list[str]:
    """The indented blocks of the document, without their indent."""
    found = re.findall(r"(?:^ {4}.*\n?)+", document, flags=re.M)
    return [re.sub(r"^ {4}", "", block, flags=re.M) for block in found]


@pytest.fixture(scope="session")
def shown(blocks) -> list[str]:
    """All commands of the document, each in one line; a block that starts with '[' is a file."""
    commands = "".join(block for block in blocks if not block.startswith("["))
    return commands.replace("\\\n", "").splitlines()
