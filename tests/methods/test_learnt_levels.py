"""What was tried for Seal's code and not taken: a level that is learnt."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from learnt_levels import Learnt, bands, given, table, worn

from sensorveil.data.windows import Windows
from sensorveil.methods.seal_code import NONE, Movement


def test_donors_are_parted_into_equal_shares() -> None:
    generator = np.random.default_rng(0)
    values, classes = generator.normal(size=(360, 3)), np.arange(360) % 2
    codes = given(values, classes, (3, 2, 5))
    assert (np.bincount(codes) == 6).all()
    assert len(np.unique(codes)) == 2 * 3 * 2 * 5
    lowest = values[codes // 10 == 0, 0]  # the first class, the lowest third
    assert lowest.max() < values[(codes // 10 == 1), 0].min()


def test_wearers_and_donors_have_the_same_codes() -> None:
    ranks = np.array([[0.1, 0.9, 0.5], [0.99, 0.0, 1.0]])
    classes = np.array([0, 1])
    np.testing.assert_array_equal(worn(ranks, classes, (3, 2, 5)), [0 * 10 + 1 * 5 + 2, 30 + 24])


def test_what_is_learnt_is_what_differs_beyond_rhythm_and_intensity() -> None:
    """Windows are louder and fainter, and a second wave of another frequency comes and goes."""
    generator, time = np.random.default_rng(0), np.arange(128) / 50
    strength = generator.uniform(0.05, 0.5, size=200)
    wave = np.sin(2 * np.pi * 2 * time) + strength[:, None] * np.sin(2 * np.pi * 12 * time)
    noise = 0.02 * generator.normal(size=(200, 1, 128))
    loud = generator.uniform(0.5, 2, size=(200, 1, 1))
    windows = Windows.from_signal(loud * (wave[:, None] + noise), sample_rate=50.0)
    windows.recording[:] = np.arange(200) // 50
    movement = Movement.of(windows, np.zeros(200, int), NONE, 1)
    found = Learnt(windows, movement).values(windows, movement)
    assert abs(np.corrcoef(found, np.log(strength))[0, 1]) > 0.8
    assert bands(windows).shape[0] == 200


@pytest.mark.slow
@pytest.mark.data
def test_the_document_shows_the_table(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORVEIL_DATA", str(real_data))
    text = (Path(__file__).parents[2] / "docs" / "seal.md").read_text("utf-8")
    head, rule, *rows = table()
    shown = text[text.index(f"{head}\n{rule}\n") :].splitlines()[2 : 2 + len(rows)]
    for row, said in zip(rows, shown, strict=True):
        assert row.split("|")[1] == said.split("|")[1]
        # Another processor may round another way.
        numbers, others = ([float(n) for n in re.findall(r"-?\d+\.\d+", r)] for r in (row, said))
        assert numbers[:3] == pytest.approx(others[:3], abs=0.011)
        assert numbers[3] == pytest.approx(others[3], abs=0.5)
