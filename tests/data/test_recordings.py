"""Recordings: what a loader hands over is checked before anything is made of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sensorveil.data.recordings import Recording, Recordings
from sensorveil.errors import Refusal


def recording(name: str = "a", samples: int = 10, **rest: Any) -> Recording:
    signal = rest.pop("signal", np.zeros((2, samples), np.float32))
    return Recording(name, "ann", signal, **rest)


def made(*items: Recording) -> Recordings:
    return Recordings(items, ("x", "y"), sample_rate=20.0)


def test_hours_count_samples_of_all() -> None:
    assert made(recording("a", 20 * 3600), recording("b", 20 * 1800)).hours == 1.5


def test_images_and_complex_signals_pass() -> None:
    made(recording(signal=np.zeros((2, 8, 6), np.float32)))
    made(recording(signal=np.ones((2, 6), np.complex64)))
    with pytest.raises(Refusal, match="label 'act' has 8 values for 6 samples"):
        made(recording(signal=np.zeros((2, 8, 6)), labels={"act": np.zeros(8)}))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (recording(signal=np.zeros((3, 10))), r"'a' has shape \(3, 10\), but 2 channels"),
        (recording(signal=np.zeros(10)), r"'a' has shape \(10,\), but 2 channels"),
        (recording(samples=0), "'a' is empty"),
        (recording(labels={"act": np.zeros(9)}), "'act' has 9 values for 10 samples"),
    ],
)
def test_shapes_that_do_not_fit(item: Recording, expected: str) -> None:
    with pytest.raises(Refusal, match=expected):
        made(item)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (np.nan, "NaN"),
        (np.inf, "an infinite value"),
        (-np.inf, "an infinite value"),
        (complex(1, np.nan), "NaN"),
        (complex(np.inf, 0), "an infinite value"),
    ],
)
def test_values_that_are_no_numbers(value: complex, word: str) -> None:
    signal = np.zeros((2, 10), np.complex64 if isinstance(value, complex) else np.float32)
    signal[1, 7] = value
    with pytest.raises(Refusal, match=f"'a' holds {word} at channel 1, sample 7"):
        made(recording(signal=signal))


def test_names_are_unique_and_something_is_there() -> None:
    with pytest.raises(Refusal, match="'a' appears twice"):
        made(recording(), recording("b"), recording())
    with pytest.raises(Refusal, match="no recording was found"):
        made()
