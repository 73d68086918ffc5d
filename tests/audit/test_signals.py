"""What survives of the signal: known rhythms, louder, faster, still and exchanged windows."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from sensorveil.audit.results import SignalUtility
from sensorveil.audit.signals import signal_utility, utility_table, walking_windows
from sensorveil.data.catalog import load
from sensorveil.data.windows import Windows
from sensorveil.methods.conformance import example_windows


@pytest.fixture(scope="module")
def gait() -> Windows:
    return load("simulated", people=12, recordings=1, windows=12, gender=4.0).test


def test_nothing_is_lost_where_nothing_was_done(gait: Windows) -> None:
    same = asdict(signal_utility(gait, gait, ["activity"]))
    assert same.pop("cadence_reference") > 0  # an error of other people's cadence
    for name, value in same.items():
        assert value == ("correlation" in name), name


def test_louder_windows(gait: Windows) -> None:
    louder = signal_utility(gait, gait.replaced(gait.signal * 3), ["activity"])
    assert louder.frequency_error == pytest.approx(0, abs=1e-4)
    assert louder.energy_error == pytest.approx(2 * np.log(3), rel=1e-3)
    assert louder.energy_correlation == pytest.approx(1)
    assert louder.spectrum_correlation == pytest.approx(1)
    assert louder.spectrum_distance == pytest.approx(0, abs=1e-4)
    assert louder.step_error == 0


def test_a_rhythm_that_is_twice_as_fast() -> None:
    base = np.random.default_rng(0).uniform(1.0, 1.4, 64)
    count = np.arange(128) / 50
    signals = [np.sin(2 * np.pi * (times * base)[:, None] * count)[:, None] for times in (1, 2)]
    raw, hidden = (
        replace(
            Windows.from_signal(signal, {"activity": np.zeros(64, int)}, sample_rate=50.0),
            recording=np.arange(64) // 16,
            channels=("acc",),
            classes={"activity": ("Walk slowly",), "subject": ("0",)},
        )
        for signal in signals
    )
    found = signal_utility(raw, hidden, ["activity"])
    assert found.frequency_error == pytest.approx(base.mean(), abs=0.05)
    assert found.frequency_correlation > 0.98
    assert found.spectrum_distance > 0.9
    assert found.step_error == pytest.approx(1.0, abs=0.25)


def test_windows_that_changed_places_keep_no_rhythm(gait: Windows) -> None:
    order = np.random.default_rng(0).permutation(len(gait))
    found = signal_utility(gait, gait.replaced(gait.signal[order]), ["activity"])
    assert abs(found.frequency_correlation) < 0.3
    assert abs(found.energy_correlation) < 0.3
    assert abs(found.spectrum_correlation) < 0.1
    assert found.spectrum_distance == pytest.approx(0, abs=1e-4)
    assert found.frequency_error > 0.05


def test_still_windows_are_counted(gait: Windows) -> None:
    found = signal_utility(gait, gait.replaced(np.zeros_like(gait.signal)), ["activity"])
    assert found.spectrum_distance == 1
    assert found.step_error == 1
    assert found.energy_correlation == 0
    assert np.isfinite(list(asdict(found).values())).all()


def test_where_measures_mean_nothing(gait: Windows) -> None:
    images = example_windows("image")
    assert signal_utility(images, images, ["activity"]) == SignalUtility()
    waves = example_windows("complex")
    found = signal_utility(waves, waves, ["activity"])
    assert (found.frequency_error, found.step_error, found.intensity_error) == (0, None, None)
    assert found.frequency_correlation is None  # each window is its own recording
    turned = waves.replaced(waves.signal * 1j)  # the magnitude stays
    assert signal_utility(waves, turned).energy_error == pytest.approx(0, abs=1e-3)
    assert signal_utility(gait, gait).step_error is None
    nameless = replace(gait, channels=("a", "b", "c"))
    assert signal_utility(nameless, nameless, ["activity"]).step_error is None


def test_a_table_has_a_row_for_each_output(gait: Windows) -> None:
    outputs = {"none": gait, "louder": gait.replaced(gait.signal * 3)}
    table = utility_table(gait, outputs, ["activity"])
    assert table.index.tolist() == ["none", "louder"]
    for name, hidden in outputs.items():
        assert table.loc[name].to_dict() == asdict(signal_utility(gait, hidden, ["activity"]))


def test_walking_windows(gait: Windows) -> None:
    found = walking_windows(gait, ["activity", "gender"])
    np.testing.assert_array_equal(found, gait.labels["activity"] == 2)
    assert walking_windows(gait, ["gender"]) is None
    assert walking_windows(gait, []) is None
