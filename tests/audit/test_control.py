"""The planted leak has the size it says, and nothing else is changed."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.audit.control import plant, planted_share
from sensorveil.methods.conformance import example_windows


@pytest.mark.parametrize("modality", ["signal", "complex", "image"])
def test_only_a_share_is_marked(modality):
    windows = example_windows(modality)
    codes = windows.codes("gender")
    marked = plant(windows, codes, 2, 0.3, np.random.default_rng(0))
    changed = (marked.signal != windows.signal).reshape(len(windows), -1).any(1)
    assert 0.1 < changed.mean() < 0.5
    assert plant(windows, codes, 2, 0.0, np.random.default_rng(0)).signal == pytest.approx(
        windows.signal
    )


def test_a_perfect_attacker_gains_ten_points():
    for majority in (0.5, 0.57, 0.9):
        share = planted_share(majority)
        assert share + (1 - share) * majority - majority == pytest.approx(0.10)
    assert planted_share(0.99) == 1.0
