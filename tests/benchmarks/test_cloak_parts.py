"""Figure 5, table VI and tuned applications, on simulated people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.plan import Plan
from benchmarks.recipe import Recipe, Row, recipe
from benchmarks.run import measure
from sensorveil.classifiers import ClassifierSettings
from sensorveil.data.catalog import load
from sensorveil.methods.baselines import Noise

SMALL = {
    "epochs": 2,
    "autoencoder_epochs": 1,
    "encoder_epochs": 2,
    "unet_width": 8,
    "sampling_steps": 4,
    "ensemble_size": 1,
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    split = load("simulated", "recording", people=8, windows=8, recordings=2, gender=4.0)
    small = ClassifierSettings(width=8, epochs=8, batch_size=32, learning_rate=4e-3)
    return Plan(split, seeds=(0,), preset="fast", inference=small, overrides=SMALL)


@pytest.fixture(scope="module")
def gait() -> Recipe:
    whole = recipe("cloak-motionsense-gender")
    parts = {
        "over_training": {"windows": 60, "quick": True, "seeds": 1},
        "overhead": {"windows": 64, "presets": ["fast"], "repeats": 2},
        "tuned": {"epochs": 10},
    }
    return replace(whole, data="simulated", unlisted=(), parts=parts, rows=whole.rows[-1:])


@pytest.mark.slow
def test_bits_of_every_attribute_after_each_epoch(plan: Plan, gait: Recipe) -> None:
    two = replace(plan, seeds=(0, 1))  # of which the first is asked for
    found = measure("over_training", gait, two, lambda so_far: None)
    assert found["windows"] <= 60
    assert found["seeds"] == [0]
    (epochs,) = found["seeds_bits"]
    assert len(epochs) == SMALL["encoder_epochs"]
    assert set(epochs[0]) == set(plan.split.test.attributes)


def test_costs_of_each_preset(plan: Plan, gait: Recipe) -> None:
    kept: list[int] = []
    found = measure("overhead", gait, plan, lambda so_far: kept.append(len(so_far["rows"])))
    (row,) = found["rows"]
    assert kept == [1]
    assert row["preset"] == "fast"
    assert row["networks"]["total"]["megabytes"] < 10
    # Alone, a window waits for every call; in a batch all of them share it.
    assert row["seconds_alone"] > row["seconds_a_window"] > 0


@pytest.mark.slow
def test_a_tuned_application_predicts_what_an_unchanged_one_does_not(
    plan: Plan, gait: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a method that turns all windows upside down, until somebody learns from its output."""
    monkeypatch.setattr(Noise, "_obfuscate", lambda self, windows, *rest: -3 * windows.signal)
    row = Row("upside down", "nowhere", "noise")
    found = measure("tuned", replace(gait, rows=(row,)), plan, lambda so_far: None)
    (entry,) = found["rows"]
    unchanged, tuned = (entry[kind]["activity"]["accuracy"] for kind in ("read", "tuned"))
    assert tuned["value"] > unchanged["value"] + 0.1
