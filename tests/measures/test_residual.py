"""The ResNet18 classifier learns what is there, and its windows by heart."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.measures.residual import ResidualModel, ResidualSettings
from sensorveil.methods.conformance import example_windows

SMALL = ResidualSettings(width=4, epochs=12, batch=16, rate=4e-3)


@pytest.mark.parametrize("kind", ["signal", "complex"])
def test_it_reads_a_class_of_windows_it_never_saw(kind: str) -> None:
    model = ResidualModel(SMALL).fit(example_windows(kind), "activity")
    fresh = example_windows(kind, seed=1)
    assert (model.predict(fresh) == fresh.codes("activity")).mean() > 0.8
    shares = np.exp(model.log_probabilities(fresh))
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)


def test_it_learns_noise_by_heart() -> None:
    """Which is what an attack on membership lives on."""
    chance = np.random.default_rng(0)
    windows = Windows.from_signal(
        chance.normal(size=(48, 2, 32)), {"activity": chance.integers(2, size=48)}
    )
    model = ResidualModel(ResidualSettings(width=8, epochs=40, batch=16, rate=4e-3))
    model.fit(windows, "activity")
    assert (model.predict(windows) == windows.codes("activity")).mean() > 0.95


def test_unknown_classes_are_left_out_and_images_refused() -> None:
    windows = example_windows()
    codes = windows.codes("activity").copy()
    codes[:10] = UNKNOWN
    some = Windows.from_signal(windows.signal, {"activity": codes})
    assert ResidualModel(SMALL).fit(some, "activity").log_probabilities(some).shape == (96, 2)
    with pytest.raises(Refusal, match="not images"):
        ResidualModel(SMALL).fit(example_windows("image"), "activity")


def test_the_seed_decides() -> None:
    windows = example_windows()
    first, second = (ResidualModel(SMALL, seed=3).fit(windows, "activity") for _ in range(2))
    assert (first.log_probabilities(windows) == second.log_probabilities(windows)).all()
