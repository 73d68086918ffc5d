"""ObscureNet: it conforms, clears and swaps; many at once equal one by one; the pipeline chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sensorveil.errors import Refusal
from sensorveil.methods import conformance
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.obscurenet import ObscureNet, ObscureNetPipeline
from sensorveil.methods.registry import _REGISTERED as registry  # noqa: N811
from sensorveil.methods.run import load_run, save_run
from sensorveil.methods.together import fit_together

QUICK: dict[str, Any] = {"epochs": 5, "reader_epochs": 4, "reader_width": 8}


@pytest.fixture(autouse=True)
def _known_to_load_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for made in (ObscureNet, ObscureNetPipeline):
        monkeypatch.setitem(registry, made.name, made)


@pytest.mark.parametrize("made", [ObscureNet, ObscureNetPipeline], ids=lambda made: made.name)
def test_conforms(made: type[Obfuscator], monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {**made.presets["fast"], "epochs": 8, "reader_epochs": 8}
    monkeypatch.setattr(made, "presets", {"fast": quick, "paper": {}})
    conformance.check_method(made)


def test_the_paper_preset_is_the_papers() -> None:
    chosen = ObscureNet("paper").settings
    assert len(chosen.layers()) + 1 == 5
    assert (chosen.latent, chosen.alpha, chosen.beta) == (10, 0.2, 2)
    assert (chosen.epochs, chosen.batch, chosen.rate, chosen.modifier) == (
        450,
        512,
        1e-3,
        "randomized",
    )
    obfuscator = ObscureNet("paper", epochs=1, reader_epochs=1)
    obfuscator.fit(example_windows(), "activity", "gender")
    assert len(obfuscator.nets_.encoder.layers) == len(obfuscator.nets_.decoder.layers) == 5
    assert len(obfuscator._adversary().widths) + 1 == 4


def test_the_planted_loudness_is_swapped_and_then_random() -> None:
    """The example's waves are 1 loud for gender 0 and 1.5 for gender 1."""
    windows = example_windows()
    gender, activity = windows.labels["gender"], windows.labels["activity"]
    wave = np.sin(np.arange(32) * (0.4 + 0.6 * activity[:, None]))
    obfuscator = ObscureNet(read_hidden=True, epochs=150).fit(windows, "activity", "gender")
    means = {}
    for modifier in ("deterministic", "probabilistic", "randomized"):
        signal = (
            obfuscator.with_modifier(modifier).obfuscate(windows, seed=1).signal[:, 0] / 9.81 - 5
        )
        loudness = (signal * wave).sum(1) / (wave**2).sum(1)
        means[modifier] = [loudness[gender == own].mean() for own in (0, 1)]
    np.testing.assert_allclose(means["deterministic"], [1.5, 1], atol=0.15)
    for modifier in ("probabilistic", "randomized"):
        np.testing.assert_allclose(means[modifier], [1.25, 1.25], atol=0.15)


def test_many_at_once_are_one_by_one() -> None:
    windows = example_windows()
    grid = [
        {"seed": seed, "alpha": alpha, "beta": beta}
        for seed, alpha, beta in ((1, 0.2, 2.0), (2, 0.2, 2.0), (1, 10.0, 0.1))
    ]
    together = fit_together(
        [ObscureNet(**own, **QUICK) for own in grid], windows, "activity", ["gender", "weight"]
    )
    outputs = []
    for obfuscator, own in zip(together, grid, strict=True):
        alone = ObscureNet(**own, **QUICK).fit(windows, "activity", ["gender", "weight"])
        for name, weights in alone.nets_.state_dict().items():
            got = obfuscator.nets_.state_dict()[name]
            np.testing.assert_allclose(got, weights, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(obfuscator.metrics_["error"], alone.metrics_["error"], rtol=1e-3)
        outputs.append(obfuscator.obfuscate(windows, seed=3).signal)
        expected = alone.obfuscate(windows, seed=3).signal
        scale = windows.signal.std((0, 2), keepdims=True)
        assert (np.abs(outputs[-1] - expected) / scale).max() < 0.01
    assert together[0].reader_ is together[2].reader_ is not together[1].reader_  # one per seed
    assert (outputs[0] != outputs[1]).any()
    assert (outputs[0] != outputs[2]).any()


def test_only_what_is_alike_is_fitted_together() -> None:
    obfuscators = [ObscureNet(**QUICK), ObscureNet(latent=4, **QUICK)]
    with pytest.raises(Refusal, match="fitted together must have one 'latent'"):
        fit_together(obfuscators, example_windows(), "activity", "gender")
    again = ObscureNet(**QUICK).fit(example_windows(), "activity", "gender")
    assert again.nets_ is not None


def test_alpha_must_not_be_negative() -> None:
    with pytest.raises(Refusal, match=r"setting 'alpha' is -1\.0; it must be 0 or more"):
        ObscureNet(alpha=-1.0)


def pipeline(**rest: Any) -> ObscureNetPipeline:
    obfuscator = ObscureNetPipeline(seed=4, **QUICK, **rest)
    return obfuscator.fit(example_windows(), "activity", ["gender", "weight"])


def test_each_stage_is_trained_on_raw_windows() -> None:
    windows, chain = example_windows(), pipeline()
    for name, stage in zip(("gender", "weight"), chain.stages_, strict=True):
        alone = ObscureNet(seed=4, **QUICK).fit(windows, "activity", name)
        for part, array in alone._state().items():
            np.testing.assert_array_equal(stage._state()[part], array)
        assert chain.metrics_[name]["error"] == alone.metrics_["error"]


def test_stages_are_fed_one_by_the_other() -> None:
    windows, chain = example_windows(), pipeline()
    generator = np.random.default_rng(7)
    first, second = chain.stages_
    half = first._obfuscate(windows.scaled(chain.scaling_), {}, generator)
    between = windows.replaced(chain.scaling_.undo(half)).scaled(chain.scaling_)
    expected = chain.scaling_.undo(second._obfuscate(between, {}, generator))
    np.testing.assert_array_equal(chain.obfuscate(windows, seed=7).signal, expected)
    np.testing.assert_array_equal(chain.condition(windows), first.condition(windows))


def test_a_pipeline_comes_back_and_takes_other_modifiers(tmp_path: Path) -> None:
    windows, chain = example_windows(), pipeline(read_hidden=True)
    again = load_run(save_run(chain, tmp_path / "run"))
    assert isinstance(again, ObscureNetPipeline)
    got = again.with_modifier("deterministic").obfuscate(windows, seed=1).signal
    other = chain.with_modifier("deterministic")
    np.testing.assert_array_equal(got, other.obfuscate(windows, seed=1).signal)
    assert (got != chain.obfuscate(windows, seed=1).signal).any()
    with pytest.raises(Refusal, match="needs readers of gender"):
        pipeline().with_modifier("deterministic")
