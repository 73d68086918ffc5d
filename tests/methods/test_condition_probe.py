"""Probes find what a code tells beyond its class, and nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.methods.condition_probe import (
    held_out_people,
    probe_attribute,
    probe_condition,
)


def people(count: int = 400) -> Windows:
    """Eight people of two genders, each with five recordings of two activities."""
    chance = np.random.default_rng(0)
    subject = np.arange(count) % 8
    labels = {"activity": chance.integers(2, size=count), "gender": subject % 2, "subject": subject}
    windows = Windows.from_signal(np.zeros((count, 1, 4)), labels)
    object.__setattr__(windows, "recording", np.arange(count) // 10)
    return windows


def test_a_code_that_tells_gender_in_one_direction_for_each_activity() -> None:
    windows, chance = people(), np.random.default_rng(1)
    activity, gender = windows.labels["activity"], windows.labels["gender"]
    turned = (2 * gender - 1) * (2 * activity - 1)  # no one direction tells it for both
    code = np.stack([turned + 0.1 * chance.normal(size=400), chance.normal(size=400)], axis=1)
    found = probe_attribute(code.astype(np.float32), activity, windows, "gender", "code")
    assert found is not None
    assert found.accuracy > 0.97
    assert found.class_alone < 0.6


def test_a_code_of_noise_tells_nothing_beyond_the_class() -> None:
    windows, chance = people(4000), np.random.default_rng(1)
    code = chance.normal(size=(4000, 3)).astype(np.float32)
    found = probe_attribute(code, windows.labels["activity"], windows, "gender", "code")
    assert found is not None
    assert found.accuracy == pytest.approx(0.5, abs=0.04)
    assert found.majority == 0.5


def test_what_the_class_tells_is_counted_apart() -> None:
    windows = people()
    found = probe_attribute(
        np.zeros((400, 2), np.float32), windows.labels["gender"], windows, "gender", "code"
    )
    assert found is not None
    assert found.accuracy == found.class_alone == 1.0


def test_recordings_are_never_on_both_sides() -> None:
    """A code that names the recording, of labels drawn by recording, is worth nothing."""
    windows, chance = people(), np.random.default_rng(2)
    label = chance.integers(2, size=40)[windows.recording]
    windows.labels["mood"] = label  # type: ignore[index]
    windows.classes["mood"] = ("0", "1")  # type: ignore[index]
    code = np.eye(40, dtype=np.float32)[windows.recording]
    found = probe_attribute(code, np.zeros(400, int), windows, "mood", "code")
    assert found is not None
    assert found.accuracy < 0.7


def test_attributes_that_cannot_be_read_are_left_out() -> None:
    windows = people()
    windows.labels["gender"][:] = UNKNOWN
    code = np.zeros((400, 2), np.float32)
    found = probe_condition(code, windows.labels["activity"], windows, ("activity",), "code")
    assert [(one.attribute, one.people, one.windows) for one in found] == [("subject", 8, 400)]


def test_half_of_the_people_of_each_class_are_held_out() -> None:
    windows = people()
    held = held_out_people(windows, "gender", seed=3)
    assert held is not None
    inside, outside = windows.select(held), windows.select(~held)
    assert not set(inside.subject) & set(outside.subject)
    for part in (inside, outside):
        assert len(np.unique(part.subject)) == 4
        assert (np.bincount(part.labels["gender"]) == 100).all()


def test_recordings_where_people_are_few_and_none_where_these_are_too() -> None:
    alone = Windows.from_signal(np.zeros((12, 1, 4)), {"gender": [0, 1] * 6})
    held = held_out_people(alone, "gender", seed=0)
    assert held is not None
    assert held.sum() == 6
    assert held_out_people(alone.select([0, 1, 2]), "gender", seed=0) is None
