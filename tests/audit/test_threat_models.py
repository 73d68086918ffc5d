"""What attackers are given of a method that looks back is what it gives out in use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sensorveil.audit.attackers import Budget
from sensorveil.audit.sweep import sweep
from sensorveil.audit.threat_models import (
    Fold,
    condition_of,
    obfuscate_fold,
    thinned,
    thinned_positions,
)
from sensorveil.data.catalog import load
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.baselines import Noise
from sensorveil.methods.seal import Seal


@pytest.fixture(scope="module")
def split() -> Split:
    return load("simulated", people=12, windows=30, recordings=1)


@pytest.fixture(scope="module")
def sealed(split: Split) -> Seal:
    return Seal(width=4, epochs=1, rhythm_bins=3, energy_bins=3).fit(
        split.train, "activity", "gender"
    )


def given(obfuscator: Obfuscator, split: Split, count: int) -> np.ndarray:
    return obfuscate_fold(
        Fold(obfuscator, split, obfuscator), None, 5, Budget(windows=count)
    ).train.signal


def test_a_part_of_the_windows_is_obfuscated_among_all_of_them(split: Split, sealed: Seal) -> None:
    chosen = thinned_positions(len(split.train), 40, 5)
    whole = sealed.obfuscate(split.train, seed=10).signal
    np.testing.assert_array_equal(given(sealed, split, 40), whole[chosen])
    # Codes of these windows alone, each with a past of gaps, are other ones.
    alone, among = sealed.encode(split.train.select(chosen)), sealed.encode(split.train)[chosen]
    assert (alone != among).any()
    condition = condition_of(sealed, split.train, chosen)
    assert condition is not None
    np.testing.assert_array_equal(condition.argmax(1), among)


def test_a_sweep_does_the_same(split: Split, sealed: Seal, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    whole = sealed.obfuscate

    def watched(windows: Windows, *given: Any, **named: Any) -> Windows:
        seen.append(len(windows))
        return whole(windows, *given, **named)

    monkeypatch.setattr(sealed, "obfuscate", watched)
    quick = replace(Budget.quick(), windows=40)
    sweep(sealed, split.train, split.test, {"epsilon": [2.0]}, quick)
    assert sorted(seen) == sorted([len(split.train), len(split.test)])


def test_others_are_given_the_part_alone(split: Split) -> None:
    obfuscator = Noise().fit(split.train, "activity", "gender")
    wanted = obfuscator.obfuscate(thinned(split.train, 40, 5), seed=10).signal
    np.testing.assert_array_equal(given(obfuscator, split, 40), wanted)
    assert condition_of(obfuscator, split.train, np.arange(3)) is None
