"""Small data of four people, a Blinder that a federation starts from, and its configuration."""

from __future__ import annotations

import pytest

from sensorveil.data.windows import Windows
from sensorveil.federated.config import FederationConfig
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.conformance import example_windows

SMALL = {
    "hidden_sizes": (24, 24, 16, 16),
    "convolutional": False,
    "latent_size": 6,
    "classifier.epochs": 1,
    "classifier.width": 4,
    "training.epochs": 0,
}


@pytest.fixture(scope="session")
def small() -> dict:
    return SMALL


@pytest.fixture(scope="session")
def windows() -> Windows:
    return example_windows()


@pytest.fixture(scope="session")
def start(windows) -> Blinder:
    blinder = Blinder("paper", seed=5, **SMALL)
    return blinder.fit(windows, "activity", "gender")


@pytest.fixture(scope="session")
def config() -> FederationConfig:
    return FederationConfig(
        epochs=2, rounds=3, client_fraction=0.5, support_size=1, query_size=7, balance=0, seed=3
    )
