"""The contract: what the base does for every method, shown on the smallest of methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sensorveil.data.catalog import load
from sensorveil.data.windows import Scaling, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.baselines import Noise
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.registry import method, register_method
from sensorveil.methods.settings import Settings


class LoudSettings(Settings):
    gain: float = 2.0
    shift: float = 0.0


class Loud(Obfuscator):
    """Multiplies by its gain, in standard units; remembers what it was shown."""

    name = "loud"
    summary = "louder"
    capabilities = Capabilities(
        strengths={"gain": "how loud"},
        strength_per_hidden=True,
        several_keeps=False,
        modalities=("signal", "image"),
        random=True,
    )
    Settings = LoudSettings
    presets = {"fast": {}, "paper": {"gain": 5.0}}  # noqa: RUF012
    settings: LoudSettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        self.seen_ = windows.signal
        self.drawn_ = rng.random()

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        self.given = dict(strength)
        gain = strength.get("gain", np.full(len(windows), self.settings.gain))
        self.drawn = rng.random()
        return windows.signal * gain.reshape(-1, *(1,) * len(windows.shape))


def fitted(windows: Windows | None = None, **rest: Any) -> Loud:
    return Loud(**rest).fit(windows or example_windows(), keep="activity", hide="gender")


def test_settings_beat_presets_beat_defaults() -> None:
    assert Loud().settings == LoudSettings(gain=2.0)
    assert Loud("paper").settings == LoudSettings(gain=5.0)
    assert Loud("paper", gain=7.0).settings == LoudSettings(gain=7.0)
    assert Loud("paper", shift=1.0).about() == {"gain": 5.0, "shift": 1.0}


def test_unknown_presets_and_settings_list_the_known() -> None:
    with pytest.raises(Refusal, match="preset of loud 'papr' is unknown; known: fast, paper"):
        Loud("papr")
    with pytest.raises(Refusal, match="setting of loud 'gian' is unknown; known: gain, shift"):
        Loud(gian=1.0)


def test_a_split_is_not_taken_for_windows_nor_windows_for_a_split() -> None:
    split = load("simulated", people=4, recordings=1, windows=2)
    method = Noise().fit(split.train, keep="activity", hide="gender")
    with pytest.raises(Refusal, match=r"noise takes Windows, such as `\.train`.*not Split"):
        Noise().fit(split, keep="activity", hide="gender")  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="noise takes Windows"):
        method.obfuscate(split)  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="an audit needs a whole split"):
        method.audit(split.test)  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="noise has learnt nothing yet"):
        Noise().audit(split)


def test_the_hooks_see_standard_units() -> None:
    windows = example_windows()
    obfuscator = fitted(windows)
    np.testing.assert_allclose(obfuscator.seen_.mean((0, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(obfuscator.seen_.std((0, 2)), 1, rtol=1e-4)
    signal = windows.signal.astype(np.float64)
    mean = signal.mean((0, 2), keepdims=True)
    np.testing.assert_allclose(
        obfuscator.obfuscate(windows).signal, mean + 2 * (signal - mean), rtol=1e-4, atol=1e-4
    )


def test_test_windows_are_scaled_by_training() -> None:
    """A level that only the test windows have must not be centred away."""
    windows = example_windows()
    louder = windows.replaced(windows.signal + 100)
    mean = windows.signal.astype(np.float64).mean((0, 2), keepdims=True)
    got = fitted(windows).obfuscate(louder).signal
    np.testing.assert_allclose(got, mean + 2 * (louder.signal - mean), rtol=1e-4)


def test_windows_that_are_scaled_already_make_no_difference() -> None:
    windows = example_windows()
    scaled = windows.scaled(Scaling(np.full((2, 1), 3.0, "f4"), np.full((2, 1), 7.0, "f4")))
    plain = fitted(windows).obfuscate(windows)
    other = fitted(scaled).obfuscate(scaled)
    np.testing.assert_array_equal(plain.signal, other.signal)
    assert other.scaling is None


def test_chance_comes_from_the_seed_or_from_nowhere_known() -> None:
    windows = example_windows()
    assert fitted(seed=3).drawn_ == fitted(seed=3).drawn_ != fitted(seed=4).drawn_
    obfuscator, drawn = fitted(), []
    for seed in (5, 5, 6, None, None):
        obfuscator.obfuscate(windows, seed=seed)
        drawn.append(obfuscator.drawn)
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 4


def test_strengths_reach_the_hook_one_a_window() -> None:
    windows = example_windows()
    obfuscator = fitted(windows)
    gains = np.linspace(1, 3, len(windows))
    hidden = obfuscator.obfuscate(windows, {"gain": gains, "gender": 0.5})
    np.testing.assert_array_equal(obfuscator.given["gain"], gains)
    np.testing.assert_array_equal(obfuscator.given["gender"], np.full(len(windows), 0.5))
    assert "weight" not in obfuscator.given
    mean = windows.signal.astype(np.float64).mean((0, 2), keepdims=True)
    expected = mean + gains[:, None, None] * (windows.signal - mean)
    np.testing.assert_allclose(hidden.signal, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, np.ones(3), np.ones((96, 1)), [1.0, np.nan]])
def test_strengths_that_are_no_numbers(bad: Any) -> None:
    with pytest.raises(Refusal, match="strength 'gain' must be one finite number, or one a window"):
        fitted().obfuscate(example_windows(), {"gain": bad})


def test_unknown_strengths_list_the_known() -> None:
    with pytest.raises(Refusal, match="strength of loud 'weight' is unknown; known: gain, gender"):
        fitted().obfuscate(example_windows(), {"weight": 1.0})


def test_a_refused_fit_leaves_nothing_learnt() -> None:
    obfuscator = Loud()
    with pytest.raises(Refusal, match="cannot be kept and hidden"):
        obfuscator.fit(example_windows(), keep="gender", hide="gender")
    assert not [name for name in vars(obfuscator) if name.endswith("_")]


def test_abilities_are_held_to() -> None:
    with pytest.raises(Refusal, match="loud keeps one attribute; activity, weight were named"):
        Loud().fit(example_windows(), keep=["activity", "weight"], hide="gender")
    with pytest.raises(Refusal, match="loud cannot take complex windows; it takes signal, image"):
        fitted(example_windows("complex"))
    fitted(example_windows("image")).obfuscate(example_windows("image"))


def test_windows_that_do_not_fit() -> None:
    obfuscator = fitted()
    with pytest.raises(Refusal, match=r"shape \(2, 16, 16\) .* do not fit a run .* \(2, 32\)"):
        obfuscator.obfuscate(example_windows("image"))
    with pytest.raises(Refusal, match="there are no windows"):
        obfuscator.obfuscate(example_windows().select([]))
    with pytest.raises(Refusal, match="hold NaN or infinite values"):
        obfuscator.obfuscate(example_windows().replaced(np.full((96, 2, 32), np.nan)))


def test_fitting_again_forgets() -> None:
    """A second training stands alone, whatever was learnt before."""
    obfuscator = fitted()
    other = example_windows(seed=5)
    obfuscator.fit(other, keep="weight", hide=["gender", "subject"])
    assert obfuscator.policy_.keep == ("weight",)
    np.testing.assert_array_equal(obfuscator.seen_, fitted(other).seen_)


def test_a_new_preset_replaces_all_settings() -> None:
    loud = Loud("paper", seed=3, shift=1.0)
    assert loud.set_params(gain=4.0).settings == LoudSettings(gain=4.0, shift=1.0)
    assert loud.set_params(preset="fast").settings == LoudSettings()
    assert repr(loud) == "Loud(preset='fast', seed=3), not fitted"
    assert repr(fitted()).endswith("fitted to keep activity and hide gender")


def test_a_hidden_attribute_with_the_name_of_a_strength_is_refused() -> None:
    windows = example_windows()
    named = replace(
        windows,
        labels={**windows.labels, "gain": windows.labels["gender"]},
        classes={**windows.classes, "gain": windows.classes["gender"]},
    )
    with pytest.raises(Refusal, match="attribute 'gain' has the name of a strength"):
        Loud().fit(named, "activity", "gain")


def test_a_registered_method_is_found_and_takes_no_name_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sensorveil.methods.registry._REGISTERED", {})
    assert register_method(Loud) is method("loud") is Loud
    with pytest.raises(Refusal, match="method 'seal' exists already"):
        register_method(type("Mine", (Loud,), {"name": "seal"}))
