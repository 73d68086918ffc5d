"""Joint classes: one code for each combination that occurs, by hand."""

from __future__ import annotations

import numpy as np

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.methods.classes import joint_classes


def test_combinations_that_occur_and_unknown_labels() -> None:
    labels = {"activity": [2, 0, 2, UNKNOWN, 0], "gender": [1, 1, 1, 0, UNKNOWN]}
    windows = Windows.from_signal(np.zeros((5, 1, 4)), labels)
    codes, combinations = joint_classes(windows, ["activity", "gender"])
    assert combinations.tolist() == [[0, 1], [2, 1]]
    assert codes.tolist() == [1, 0, 1, UNKNOWN, UNKNOWN]


def test_one_attribute_is_numbered_without_gaps() -> None:
    windows = Windows.from_signal(np.zeros((3, 1, 4)), {"gender": [3, 0, 3]})
    codes, values = joint_classes(windows, ["gender"])
    assert codes.tolist() == [1, 0, 1]
    assert values.tolist() == [[0], [3]]
