"""Small data of four people, a Blinder that is prepared for it, and a plan of a few rounds."""

from __future__ import annotations

import pytest

from sensorveil.data.windows import Windows
from sensorveil.federated.plan import Plan
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.conformance import example_windows


@pytest.fixture(scope="session")
def windows() -> Windows:
    return example_windows()


@pytest.fixture(scope="session")
def veil(windows) -> Blinder:
    small = {"widths": "24-24-16-16", "ends": "dense", "latent": 6, "discriminator_width": 8}
    return Blinder("paper", seed=5, reader_epochs=1, reader_width=4, **small).prepare(
        windows, "activity", "gender"
    )


@pytest.fixture(scope="session")
def plan() -> Plan:
    return Plan(epochs=2, rounds=3, share=0.5, support=1, query=7, balance=0, seed=3)
