"""The CSI generator: an epsilon only where it is true, no trace of private windows, good waves."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sensorveil
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.files import read_json
from sensorveil.measures.inference import Classifier, ClassifierSettings
from sensorveil.methods import csi as module
from sensorveil.methods.baselines import NoObfuscation
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.csi import CsiGenerator
from sensorveil.methods.generator import to_learn_from
from sensorveil.methods.run import load_run, run_card, save_run
from sensorveil.nets.private_training import Spent, epsilon

TINY: dict[str, Any] = {
    "width": 8,
    "blocks": 1,
    "heads": 2,
    "epochs": 2,
    "reader_epochs": 2,
    "steps": 3,
    "private_steps": 5,
    "lot": 24,
    "noise": 8.0,
}
MODES: dict[str, dict[str, Any]] = {
    "plain": {"mode": "plain"},
    "hybrid": {"mode": "hybrid"},
    "dp": {"mode": "dp"},
    "dp-repeatable": {"mode": "dp", "repeatable": True},
    "hybrid-dp": {"mode": "hybrid-dp", "public": "0+2"},
    "hybrid-dp-repeatable": {"mode": "hybrid-dp", "public": "0+2", "repeatable": True},
}
HONEST = {"dp", "hybrid-dp"}
"""Modes in which every update that sees private windows is clipped and noised, by secret noise."""


def fitted(windows: Windows | None = None, **settings: Any) -> CsiGenerator:
    windows = windows or example_windows("complex")
    return CsiGenerator(seed=1, **{**TINY, **settings}).fit(windows, "activity", "gender")


@pytest.mark.parametrize("which", MODES)
def test_an_epsilon_is_stated_only_where_all_updates_are_private(
    which: str, tmp_path: Path
) -> None:
    """Everything that a run says of itself is searched for a number behind the word."""
    obfuscator = fitted(**MODES[which])
    folder = save_run(obfuscator, tmp_path / "run")
    loaded = load_run(folder)
    assert isinstance(loaded, CsiGenerator)
    assert loaded.guarantee() == obfuscator.guarantee()
    said = " ".join([str(loaded.guarantee()), run_card(loaded), (folder / "card.md").read_text()])
    kept = read_json(folder / "metrics.json")["privacy"]
    stated = re.findall(r"epsilon\W+(?:is\W+)?\d", said)
    assert bool(stated) == (which in HONEST)
    assert (kept["epsilon"] is not None) == (which in HONEST)
    assert (kept["delta"] is not None) == (which in HONEST)


def test_why_hybrid_has_none() -> None:
    obfuscator = fitted(mode="hybrid")
    why = obfuscator.guarantee().why
    assert "first phase" in why
    assert "lines 11, 14 and 15" in why
    assert f"no epsilon: {why}" in run_card(obfuscator)


def test_epsilon_is_that_of_all_private_steps() -> None:
    found = fitted(mode="dp", delta=1e-4).guarantee()
    each = Spent(noise=8.0, chance=24 / 96, steps=5)  # the reader, and the generator
    assert found.epsilon == pytest.approx(epsilon([each, each], 1e-4))
    assert (found.delta, found.unit) == (1e-4, "one window")
    found = fitted(mode="hybrid-dp", public="0+2").guarantee()
    assert found.epsilon == pytest.approx(epsilon([Spent(8.0, 24 / 48, 5)], 1e-5))
    assert "0+2" in found.why


def test_the_unit_can_be_a_person() -> None:
    obfuscator = fitted(mode="dp", unit="person", lot=2, each=3)
    each = Spent(noise=8.0, chance=2 / 4, steps=5)  # of four people
    assert obfuscator.guarantee().epsilon == pytest.approx(epsilon([each, each], 1e-5))
    assert obfuscator.guarantee().unit == "all windows of one person"


@pytest.mark.parametrize("which", ["plain", "hybrid", "dp-repeatable", "hybrid-dp-repeatable"])
def test_overwhelming_noise_leaves_no_trace_of_private_windows(which: str) -> None:
    """Weights, scaling, reader and losses: all that a run holds, for two sets of windows."""
    windows = example_windows("complex")
    public = np.isin(windows.subject, [0, 2]).reshape(-1, 1, 1)
    twisted = np.where(public, windows.signal, 3 * windows.signal.conj()[..., ::-1] + 1)
    held = []
    for one in (windows, windows.replaced(twisted)):
        obfuscator = fitted(one, **MODES[which], noise=1e7, scale=10.0)
        parts = {
            **obfuscator._state(),
            "mean": obfuscator.scaling_.mean,
            "deviation": obfuscator.scaling_.deviation,
        }
        metrics = {name: value for name, value in obfuscator.metrics_.items() if name != "seconds"}
        held.append((parts, metrics))
    (first, told), (second, told_too) = held
    gaps = [float(np.abs(first[name] - second[name]).max()) for name in first]
    private = which.endswith("repeatable")
    assert (max(gaps) < 1e-4) == private
    assert (told == told_too) == private


def test_the_secret_noise_is_not_that_of_the_seed() -> None:
    first, second = (fitted(mode="dp")._state() for _ in range(2))
    assert any((first[name] != second[name]).any() for name in first)
    for settings in ({"mode": "dp", "repeatable": True}, {"mode": "hybrid"}):
        same, again = (fitted(**settings)._state() for _ in range(2))
        assert all((same[name] == again[name]).all() for name in same)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"mode": "hybrid-dp"}, "'public'"),
        ({"mode": "dp", "public": "0"}, "'public'"),
        ({"mode": "hybrid-dp", "public": "0+nobody"}, "public person 'nobody' is unknown"),
        ({"mode": "hybrid-dp", "public": "0+1+2+3"}, "and of others"),
        ({"mode": "secret"}, "mode 'secret' is unknown"),
        ({"unit": "house"}, "unit 'house' is unknown"),
        ({"blur": 0.1}, "rf-diffusion"),
        ({"width": 9}, "multiple"),
        ({"noise": 0.0}, "above 0"),
    ],
)
def test_refusals(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(Refusal, match=line):
        fitted(**settings)


def test_private_modes_need_opacus_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise Refusal("private training needs Opacus: pip install 'sensorveil[dp]'")

    monkeypatch.setattr(module, "require_opacus", missing)
    fitted(mode="plain")
    for settings in ({"mode": "dp"}, {"mode": "hybrid"}, {"mode": "hybrid-dp", "public": "0"}):
        with pytest.raises(Refusal, match="Opacus"):
            fitted(**settings)


def test_generate_takes_any_length_and_names_its_windows() -> None:
    obfuscator = CsiGenerator(seed=1, **TINY).fit(
        example_windows("complex"), ["activity", "weight"], "gender"
    )
    made = obfuscator.generate({"activity": "1", "weight": "0"}, 5, seed=3, length=50)
    assert made.shape == (2, 50)
    assert made.is_complex
    assert made.labels["activity"].tolist() == [1] * 5
    assert made.labels["weight"].tolist() == [0] * 5
    assert made.classes["subject"] == ("generated",)
    assert (made.sample_rate, made.channels) == (obfuscator.sample_rate_, obfuscator.channels_)
    again = obfuscator.generate({"activity": "1", "weight": "0"}, 5, seed=3, length=50)
    assert (made.signal == again.signal).all()
    other = obfuscator.generate({"activity": "1", "weight": "0"}, 5, length=50)
    assert (made.signal != other.signal).any()


@pytest.mark.parametrize(
    ("classes", "count", "line"),
    [
        ({}, 3, "a class of 'activity' must be named: 0, 1"),
        ({"activity": "7"}, 3, "class of 'activity' '7' is unknown"),
        ({"activity": "0", "gender": "1"}, 3, "kept attribute 'gender' is unknown"),
        ({"activity": "0"}, 0, "at least one"),
    ],
)
def test_generate_refuses(classes: dict[str, str], count: int, line: str) -> None:
    with pytest.raises(Refusal, match=re.escape(line)):
        fitted().generate(classes, count)


def test_generate_refuses_bad_seeds_and_strengths_that_break_it() -> None:
    obfuscator = fitted()
    with pytest.raises(Refusal, match="seed is -1"):
        obfuscator.generate({"activity": "0"}, 1, seed=-1)
    with pytest.raises(Refusal, match="not finite"):
        obfuscator.generate({"activity": "0"}, 1, {"keep": 1e39}, seed=0)


def test_a_kept_person_is_named() -> None:
    obfuscator = CsiGenerator(seed=1, **TINY).fit(example_windows("complex"), "subject", "gender")
    made = obfuscator.generate({"subject": "2"}, 3, seed=0)
    assert made.classes["subject"][made.subject[0]] == "2"


@pytest.mark.parametrize("sampler", ["ddim", "ddpm", "unipc", "rf-diffusion"])
def test_every_sampler_samples(sampler: str) -> None:
    blur = 0.05 if sampler == "rf-diffusion" else 0.0
    obfuscator = fitted(sampler=sampler, blur=blur)
    made = obfuscator.generate({"activity": "0"}, 4, seed=0).signal
    assert np.isfinite(made).all()


def test_the_class_alone_decides() -> None:
    """Two windows that are read alike, and the same noise, give the same window."""
    obfuscator = fitted()
    windows = example_windows("complex")
    read = obfuscator.condition(windows)
    same = np.flatnonzero((read == read[0]).all(1))[:2]
    first, second = (obfuscator.obfuscate(windows.select([row]), seed=4).signal for row in same)
    np.testing.assert_array_equal(first, second)


def test_imitations_have_the_true_classes_whatever_the_reader_finds() -> None:
    """An untrained reader finds one class everywhere; the labels are told all the same."""
    windows = example_windows("complex")
    obfuscator = fitted(windows)
    made = obfuscator.imitate(windows, seed=2)
    np.testing.assert_array_equal(made.codes("activity"), windows.codes("activity"))
    told: list[np.ndarray] = []
    make = obfuscator._make
    obfuscator._make = lambda told_of, *rest: (told.append(told_of.numpy()), make(told_of, *rest))[
        1
    ]  # type: ignore[method-assign]
    obfuscator.imitate(windows, seed=2)
    np.testing.assert_array_equal(np.concatenate(told).argmax(1), windows.codes("activity"))
    blank = windows.replaced(np.zeros_like(windows.signal))  # nothing of the windows but labels
    np.testing.assert_array_equal(obfuscator.imitate(blank, seed=2).signal, made.signal)


def test_what_others_learn_from() -> None:
    windows = example_windows("complex")
    obfuscator = fitted(windows)
    made = to_learn_from(obfuscator, windows, seed=5)
    np.testing.assert_array_equal(made.signal, obfuscator.imitate(windows, seed=5).signal)
    other = NoObfuscation().fit(windows, "activity", "gender")
    np.testing.assert_allclose(to_learn_from(other, windows, 5).signal, windows.signal, atol=1e-4)


def test_restored_windows_are_the_true_ones_where_little_was_taken() -> None:
    """Nearly all of a window remains at the last level: a network that learnt gives it back."""
    windows = example_windows("complex")
    gentle = {"levels": 3, "first": 1e-4, "last": 1e-4, "epochs": 40, "rate": 1e-2}
    obfuscator = fitted(windows, **gentle)
    back = obfuscator.restored(windows, seed=1)
    lost = np.abs(back.signal - windows.signal).mean() / np.abs(windows.signal).mean()
    assert lost < 0.1
    np.testing.assert_array_equal(back.codes("activity"), windows.codes("activity"))
    made = obfuscator.imitate(windows, seed=1)
    assert (
        np.abs(made.signal - windows.signal).mean()
        > 5 * np.abs(back.signal - windows.signal).mean()
    )


@pytest.mark.slow
def test_fast_preset_on_simulated_csi() -> None:
    """Its windows are of the class that was asked for, in the eyes of a model that saw real ones.

    A minute of one core, of the three that the preset may take on two.
    """
    split = sensorveil.load("simulated-csi")
    obfuscator = CsiGenerator(seed=1).fit(split.train, "activity", "subject")
    judge = Classifier(ClassifierSettings.quick()).fit(split.train, "activity")
    made = obfuscator.obfuscate(split.test, seed=1)
    true = split.test.codes("activity")
    assert (judge.predict(split.test) == true).mean() > 0.9
    assert (judge.predict(made) == true).mean() > 0.8
    spectra = [
        torch.fft.fft(torch.from_numpy(obfuscator.scaling_.apply(one.signal)))
        .abs()
        .square()
        .mean((0, 1))
        for one in (made, split.test)
    ]
    shares = [one / one.sum() for one in spectra]
    assert float((shares[0] - shares[1]).abs().sum()) / 2 < 0.3


@pytest.mark.parametrize("mode", ["plain", "hybrid"])
def test_errors_are_low_where_it_learnt(mode: str) -> None:
    """A generator that had time to learn eight windows by heart knows them from eight others."""
    windows = example_windows("complex")
    learnt, others = windows.select(slice(0, 16)), windows.select(slice(16, 32))
    longer = {"width": 32, "epochs": 150, "rate": 1e-2, "private_steps": 5}
    obfuscator = fitted(learnt, mode=mode, **longer)
    assert np.median(obfuscator.errors(learnt)) < 0.9 * np.median(obfuscator.errors(others))
    np.testing.assert_array_equal(
        obfuscator.errors(learnt, seed=3), obfuscator.errors(learnt, seed=3)
    )
    assert obfuscator.errors(learnt).shape == (16,)


def test_errors_need_the_class() -> None:
    windows = example_windows("complex")
    obfuscator = fitted(windows)
    blind = replace(windows, labels={**windows.labels, "activity": np.full(len(windows), -1)})
    with pytest.raises(Refusal, match="no class of activity"):
        obfuscator.errors(blind)


def test_aligned_phases_make_the_cards_part_vanish() -> None:
    """Turned anew in every packet, windows are read alike, and known alike."""
    windows = example_windows("complex")
    turn = np.exp(2j * np.pi * np.random.default_rng(0).random(windows.store.shape[1]))
    turned = replace(windows, store=(windows.store * turn).astype(np.complex64))
    obfuscator = fitted(windows, phases="aligned")
    np.testing.assert_allclose(obfuscator.condition(turned), obfuscator.condition(windows))
    np.testing.assert_allclose(obfuscator.errors(turned), obfuscator.errors(windows), rtol=1e-3)
    kept = fitted(windows)
    assert np.abs(kept.errors(turned) / kept.errors(windows) - 1).max() > 0.01


@pytest.mark.data
def test_real_csi_is_learnt_once_phases_are_aligned(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the card adds to phases cannot be restored: without it more of the rest can.

    Windows have a power of 1 either way, so that the losses tell what part of them is not restored.
    """
    monkeypatch.setenv("SENSORVEIL_DATA", str(real_data))
    windows = sensorveil.load("csi5300").train
    some = windows.select(slice(None, None, len(windows) // 150)).compact()
    lost = {}
    for phases in ("kept", "aligned"):
        obfuscator = CsiGenerator(seed=1, phases=phases, epochs=12, reader_epochs=1, batch=32)
        obfuscator.fit(some, "activity", "subject")
        lost[phases] = obfuscator.metrics_["generator_loss"][-1]
    assert lost["aligned"] < lost["kept"] - 0.05
