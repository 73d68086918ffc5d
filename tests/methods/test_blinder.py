"""Blinder: the paper's numbers, its two modifications, what a federation takes from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.measures.inference import Classifier, ClassifierSettings
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.run import load_run, save_run

QUICK: dict[str, Any] = {"epochs": 2, "reader_epochs": 2, "reader_width": 8}


def test_the_paper_preset_is_the_papers():
    chosen = Blinder("paper").settings
    assert (chosen.alpha, chosen.beta, chosen.gamma, chosen.latent) == (0.9, 2, 0.2, 25)
    assert (chosen.layers(), chosen.ends) == ((512, 512, 256, 128), "convolutional")
    assert (chosen.rate, chosen.epochs, chosen.modification) == (1e-3, 30, "stochastic")


def loudness(windows: Windows) -> np.ndarray:
    """How loud the example's wave is in each window: 1 for gender 0 and 1.5 for gender 1."""
    wave = np.sin(np.arange(32) * (0.4 + 0.6 * windows.labels["activity"][:, None]))
    return ((windows.signal[:, 0] / 9.81 - 5) * wave).sum(1) / (wave**2).sum(1)


def test_the_planted_loudness_is_swapped_or_random():
    windows = example_windows()
    gender = windows.labels["gender"]
    papers = {"beta": 2.0, "told": 0.0, "warm_up": 0.0, "cycle": False, "rate": 2e-3}
    obfuscator = Blinder(modification="deterministic", epochs=120, batch=48, seed=1, **papers)
    obfuscator.fit(windows, "activity", "gender")
    found = loudness(obfuscator.obfuscate(windows, seed=1))
    np.testing.assert_allclose([found[gender == g].mean() for g in (0, 1)], [1.5, 1], atol=0.15)
    obfuscator.settings = obfuscator.settings.with_changes(dict(modification="stochastic"))
    found = loudness(obfuscator.obfuscate(windows, seed=1))
    np.testing.assert_allclose([found[gender == g].mean() for g in (0, 1)], [1.25] * 2, atol=0.15)


def test_the_condition_is_all_the_output_is_made_from():
    windows = example_windows()
    obfuscator = Blinder(modification="deterministic", **QUICK)
    obfuscator.fit(windows, "activity", ["gender", "weight"])
    assert obfuscator.condition(windows).shape == (96, 2 + 2 * 25 + 4)
    assert Blinder(**QUICK).fit(windows, "activity", "gender").condition(windows).shape == (96, 52)


def test_prepared_networks_are_drawn_and_not_trained():
    windows = example_windows()
    prepared = Blinder(**QUICK).prepare(windows, "activity", "gender")
    again = Blinder(**{**QUICK, "epochs": 7}).prepare(windows, "activity", "gender")
    trained = Blinder(**QUICK).fit(windows, "activity", "gender")
    assert torch.equal(prepared.weights(), again.weights())
    assert not torch.equal(prepared.weights(), trained.weights())
    same = prepared.with_weights(trained.weights())
    np.testing.assert_array_equal(
        same.obfuscate(windows, seed=1).signal, trained.obfuscate(windows, seed=1).signal
    )
    assert not torch.equal(prepared.weights(), same.weights())  # the first one stays as it was


def test_a_run_keeps_its_discriminators(tmp_path):
    """They are needed to personalise, or to go on with a federation."""
    obfuscator = Blinder(**QUICK).fit(example_windows(), "activity", "gender")
    assert torch.equal(
        load_run(save_run(obfuscator, tmp_path / "run")).weights(), obfuscator.weights()
    )


def test_relative_errors_are_shares_of_each_class_spread(tmp_path):
    windows = example_windows()
    obfuscator = Blinder(**QUICK, relative=True).prepare(windows, "activity", "gender")
    signal = windows.scaled(obfuscator.scaling_).signal
    spreads = [signal[windows.labels["activity"] == k].var(0).mean() for k in range(2)]
    shares = load_run(save_run(obfuscator, tmp_path / "run")).loss_weights().errors.numpy()
    np.testing.assert_allclose(shares * spreads, (shares * spreads)[0], rtol=1e-4)
    assert shares.mean() == pytest.approx(1)
    plain = Blinder(**QUICK, relative=False).prepare(windows, "activity", "gender")
    assert plain.loss_weights().errors is None


def test_a_texture_makes_the_output_as_lively_as_the_input():
    """Noise that the code may not hold is missing in the output, unless there is a texture."""
    windows = example_windows()
    scale = windows.signal.std((0, 2), keepdims=True)
    noise = np.random.default_rng(0).normal(size=windows.signal.shape) * scale
    windows = windows.replaced((windows.signal + noise).astype(np.float32))
    settings = {"epochs": 150, "batch": 48, "reader_epochs": 2, "rate": 3e-3, "beta": 20.0}
    settings["told"] = 0.0

    def liveliness(texture: float) -> float:
        obfuscator = Blinder(texture=texture, seed=1, **settings).fit(windows, "activity", "gender")
        return roughness(obfuscator.obfuscate(windows, seed=1).signal)

    def roughness(signal: np.ndarray) -> float:
        return float(np.diff(signal / scale, axis=2).var())

    wanted = roughness(windows.signal)
    assert liveliness(0.0) < 0.5 * wanted
    assert 0.7 * wanted < liveliness(1.0) < 1.3 * wanted


def misread_by_others(obfuscator: Blinder, windows: Windows) -> float:
    """The share of what is told that models read wrong which had no part in the training."""
    output, wrong = obfuscator.obfuscate(windows, seed=1), []
    for name, truth in (("activity", windows.codes("activity")), ("gender", None)):
        model = Classifier(ClassifierSettings(8, 20, 16, 4e-3), seed=9).fit(windows, name)
        if truth is None:  # the deterministic modification tells the other class
            truth = 1 - obfuscator.hidden_readers_[0].predict(windows)
        wrong.append(float((model.predict(output) != truth).mean()))
    return sum(wrong)


def test_others_read_what_the_decoder_was_told():
    windows = example_windows()
    settings = {"epochs": 40, "batch": 48, "modification": "deterministic", "texture": 0.0}
    obfuscators = [
        Blinder(seed=1, told=told, **settings).fit(windows, "activity", "gender")
        for told in (1.0, 0.0)
    ]
    with_it, without = (misread_by_others(obfuscator, windows) for obfuscator in obfuscators)
    assert with_it < 0.5 * without


def test_witnesses_come_back_with_a_run(tmp_path):
    """Clients that go on with a run train by the same loss."""
    windows = example_windows()
    obfuscator = Blinder(**QUICK, told=0.5).prepare(windows, ["activity", "weight"], "gender")
    other = load_run(save_run(obfuscator, tmp_path / "run"))
    made = torch.randn(5, 2, 32, generator=torch.Generator().manual_seed(0))
    pairs = zip(obfuscator.loss_weights().witnesses, other.loss_weights().witnesses, strict=True)
    scores = [[[model(made) for model in models] for models in pair] for pair in pairs]
    assert [len(models) for models, _ in scores] == [2, 2]
    for one, again in scores:
        torch.testing.assert_close(one, again)
    assert not any(score.requires_grad for one, _ in scores for score in one)
    assert not Blinder(**QUICK, told=0.0).prepare(windows, "activity", "gender").dense_readers_


def test_the_lesson_counts_classes_as_in_training():
    windows = example_windows()
    obfuscator = Blinder(**QUICK).prepare(windows, ["activity", "weight"], "gender")
    one = windows.select(np.flatnonzero(windows.subject == 3))  # a person of one gender
    positions, kept, hidden = obfuscator.labelled_windows(one)
    assert len(positions) == len(one)
    assert set(hidden[:, 0]) == {1}
    expected = [tuple(cell) for cell in obfuscator.cells_[kept]]
    codes = zip(one.labels["activity"], one.labels["weight"], strict=True)
    assert expected == [(int(a), int(w)) for a, w in codes]
    strange = Windows.from_signal(one.signal, {**one.labels, "activity": [7] * len(one)}, 50.0)
    assert len(obfuscator.labelled_windows(strange)[0]) == 0


def test_classes_are_found_by_name():
    """A person's own table may list but the classes that are in it."""
    windows = example_windows()
    obfuscator = Blinder(**QUICK).prepare(windows, "activity", "gender")
    one = windows.select(np.flatnonzero(windows.labels["gender"] == 1))
    short = replace(
        one,
        labels={**one.labels, "gender": np.zeros(len(one), int)},
        classes={**one.classes, "gender": ("1",)},
    )
    for got, wanted in zip(
        obfuscator.labelled_windows(short), obfuscator.labelled_windows(one), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)
    unsure = replace(short, labels={**short.labels, "gender": np.full(len(one), -1)})
    assert len(obfuscator.labelled_windows(unsure)[0]) == 0


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"widths": "64-32"}, "must be four whole numbers"),
        ({"ends": "round"}, "known: convolutional, dense"),
        ({"modification": "none"}, "known: deterministic, stochastic"),
        ({"gamma": -1.0}, "'gamma' is -1.0; it must be 0 or more"),
        ({"latent": 0}, "'latent' is 0; it must be above 0"),
    ],
)
def test_settings_without_sense_are_refused(setting, words):
    with pytest.raises(Refusal, match=words):
        Blinder(**setting)
