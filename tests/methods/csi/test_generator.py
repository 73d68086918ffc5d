"""CsiGenerator: an epsilon only where it is true, no trace of private windows, good waves."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import sensorveil
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.files import read_json
from sensorveil.methods.baselines import NoObfuscation
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.csi import CsiGenerator, dp_sgd, released_for_training
from sensorveil.methods.csi.dp_sgd import PrivacySpent, compute_epsilon
from sensorveil.methods.run import load_run, run_card, save_run

TINY = {
    "width": 8,
    "blocks": 1,
    "heads": 2,
    "epochs": 2,
    "classifier_epochs": 2,
    "sampling_steps": 3,
    "privacy.steps": 5,
    "expected_batch_size": 24,
    "noise_multiplier": 8.0,
}
MODES = {
    "plain": {"mode": "plain"},
    "hybrid": {"mode": "hybrid"},
    "dp": {"mode": "dp"},
    "dp-repeatable": {"mode": "dp", "repeatable": True},
    "hybrid-dp": {"mode": "hybrid-dp", "public": "0+2"},
    "hybrid-dp-repeatable": {"mode": "hybrid-dp", "public": "0+2", "repeatable": True},
}
PRIVATE = {"dp", "hybrid-dp"}
"""Modes in which every update with private windows is clipped and noised, by secret noise."""


def fitted(windows=None, keep="activity", **settings):
    windows = windows or example_windows("complex")
    return CsiGenerator(seed=1, **{**TINY, **settings}).fit(windows, keep, "gender")


@pytest.fixture(scope="module")
def plain():
    return fitted()


# What is promised.


@pytest.mark.parametrize("mode", MODES)
def test_an_epsilon_is_stated_only_where_all_updates_are_private(mode, tmp_path):
    """Everything that a run says of itself is searched for a number behind the word."""
    method = fitted(**MODES[mode])
    folder = save_run(method, tmp_path / "run")
    loaded = load_run(folder)
    assert loaded.guarantee() == method.guarantee()
    said = " ".join([str(loaded.guarantee()), run_card(loaded), (folder / "card.md").read_text()])
    kept = read_json(folder / "metrics.json")["privacy"]
    stated = re.findall(r"epsilon\W+(?:is\W+)?\d", said)
    assert bool(stated) == (mode in PRIVATE)
    assert (kept["epsilon"] is not None) == (mode in PRIVATE)
    assert (kept["delta"] is not None) == (mode in PRIVATE)
    if mode == "hybrid":
        assert "first phase" in method.guarantee().why
        assert "lines 11, 14 and 15" in run_card(method)


def test_epsilon_is_that_of_all_private_steps():
    found = fitted(mode="dp", delta=1e-4).guarantee()
    each = PrivacySpent(8.0, 24 / 96, 5)  # the classifier, and the generator
    assert found.epsilon == pytest.approx(compute_epsilon([each, each], 1e-4))
    assert (found.delta, found.unit) == (1e-4, "one window")
    found = fitted(mode="hybrid-dp", public="0+2").guarantee()
    assert found.epsilon == pytest.approx(compute_epsilon([PrivacySpent(8.0, 24 / 48, 5)], 1e-5))
    assert "0+2" in found.why


def test_the_unit_can_be_a_person():
    found = fitted(mode="dp", unit="person", expected_batch_size=2, samples_per_unit=3).guarantee()
    each = PrivacySpent(8.0, 2 / 4, 5)  # of four people
    assert found.epsilon == pytest.approx(compute_epsilon([each, each], 1e-5))
    assert found.unit == "all windows of one person"


@pytest.mark.parametrize("mode", ["plain", "hybrid", "dp-repeatable", "hybrid-dp-repeatable"])
def test_overwhelming_noise_leaves_no_trace_of_private_windows(mode):
    """Weights, scaling, classifier and losses: all that a run holds, for two sets of windows."""
    windows = example_windows("complex")
    public = np.isin(windows.subject, [0, 2]).reshape(-1, 1, 1)
    twisted = np.where(public, windows.signal, 3 * windows.signal.conj()[..., ::-1] + 1)
    held = []
    for one in (windows, windows.replaced(twisted)):
        method = fitted(one, **MODES[mode], noise_multiplier=1e7, scale=10.0)
        scaling = {"mean": method.scaling_.mean, "deviation": method.scaling_.deviation}
        metrics = {name: value for name, value in method.metrics_.items() if name != "seconds"}
        held.append(({**method._state(), **scaling}, metrics))
    (first, metrics), (second, other_metrics) = held
    gap = max(float(np.abs(first[name] - second[name]).max()) for name in first)
    is_private = mode.endswith("repeatable")
    assert (gap < 1e-4) == is_private
    assert (metrics == other_metrics) == is_private


def test_secret_noise_is_not_that_of_the_seed():
    first, second = (fitted(mode="dp")._state() for _ in range(2))
    assert any((first[name] != second[name]).any() for name in first)
    for settings in ({"mode": "dp", "repeatable": True}, {"mode": "hybrid"}):
        same, again = (fitted(**settings)._state() for _ in range(2))
        assert all((same[name] == again[name]).all() for name in same)


def test_private_modes_need_opacus_and_name_the_extra(monkeypatch):
    monkeypatch.setattr(dp_sgd, "find_spec", lambda name: None)
    fitted(mode="plain")
    for settings in ({"mode": "dp"}, {"mode": "hybrid"}, {"mode": "hybrid-dp", "public": "0"}):
        with pytest.raises(Refusal, match=r"Opacus: pip install 'sensorveil\[dp\]'"):
            fitted(**settings)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"mode": "hybrid-dp"}, "privacy.public"),
        ({"mode": "dp", "public": "0"}, "privacy.public"),
        ({"mode": "hybrid-dp", "public": "0+nobody"}, "public person 'nobody' is unknown"),
        ({"mode": "hybrid-dp", "public": "0+1+2+3"}, "and of others"),
        ({"mode": "secret"}, "'mode' is secret"),
        ({"unit": "house"}, "'privacy.unit' is house"),
        ({"sampler": "luck"}, "'sampler' is luck"),
        ({"sampling_steps": 300}, "at most 200"),
        ({"blur": 0.1}, "rf-diffusion"),
        ({"width": 9}, "multiple"),
        ({"noise_multiplier": 0.0}, "greater than 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, line):
    with pytest.raises(Refusal, match=line):
        fitted(**settings)


# What is generated.


def test_generate_takes_any_length_and_names_its_windows():
    method = fitted(keep=["activity", "weight"])
    classes = {"activity": "1", "weight": "0"}
    made = method.generate(classes, 5, seed=3, length=50)
    assert made.shape == (2, 50)
    assert made.is_complex
    assert made.labels["activity"].tolist() == [1] * 5
    assert made.labels["weight"].tolist() == [0] * 5
    assert made.classes["subject"] == ("generated",)
    assert (made.sample_rate, made.channels) == (method.sample_rate_, method.channels_)
    assert (made.signal == method.generate(classes, 5, seed=3, length=50).signal).all()
    assert (made.signal != method.generate(classes, 5, length=50).signal).any()


@pytest.mark.parametrize(
    ("classes", "more", "line"),
    [
        ({}, {}, "a class of 'activity' must be named: 0, 1"),
        ({"activity": "7"}, {}, "class of 'activity' '7' is unknown"),
        ({"activity": "0", "gender": "1"}, {}, "kept attribute 'gender' is unknown"),
        ({"activity": "0"}, {"count": 0}, "at least one"),
        ({"activity": "0"}, {"seed": -1}, "seed is -1"),
        ({"activity": "0"}, {"strength": {"guidance_scale": 1e39}, "seed": 0}, "not finite"),
    ],
)
def test_generate_refuses(plain, classes, more, line):
    with pytest.raises(Refusal, match=re.escape(line)):
        plain.generate(classes, **{"count": 1, **more})


def test_a_kept_person_is_named():
    made = fitted(keep="subject").generate({"subject": "2"}, 3, seed=0)
    assert made.classes["subject"][made.subject[0]] == "2"


@pytest.mark.parametrize("sampler", ["ddim", "rf-diffusion"])
def test_every_sampler_samples(plain, sampler):
    made = plain.with_settings(sampler=sampler).generate({"activity": "0"}, 4, seed=0).signal
    assert np.isfinite(made).all()


def test_the_class_alone_decides_what_obfuscation_makes(plain):
    """Two windows with the same predicted class, and the same noise, give the same window."""
    windows = example_windows("complex")
    predicted = plain.condition(windows)
    same = np.flatnonzero((predicted == predicted[0]).all(1))[:2]
    first, second = (plain.obfuscate(windows.select([row]), seed=4).signal for row in same)
    np.testing.assert_array_equal(first, second)


def test_windows_to_train_on_depend_on_true_labels_alone(plain):
    windows = example_windows("complex")
    made = released_for_training(plain, windows, seed=2)
    np.testing.assert_array_equal(made.codes("activity"), windows.codes("activity"))
    blank = windows.replaced(np.zeros_like(windows.signal))
    np.testing.assert_array_equal(plain.generate_like(blank, seed=2).signal, made.signal)
    other = NoObfuscation().fit(windows, "activity", "gender")
    released = released_for_training(other, windows, 5).signal
    np.testing.assert_allclose(released, windows.signal, atol=1e-4)


def test_restored_windows_are_the_true_ones_where_little_was_taken():
    """Nearly all of a window remains at the last level: a trained network gives it back."""
    windows = example_windows("complex")
    gentle = {"levels": 3, "first_beta": 1e-4, "last_beta": 1e-4, "epochs": 40}
    method = fitted(windows, **gentle, **{"training.learning_rate": 1e-2})
    back = method.restore(windows, seed=1)
    error = np.abs(back.signal - windows.signal).mean()
    assert error < 0.1 * np.abs(windows.signal).mean()
    np.testing.assert_array_equal(back.codes("activity"), windows.codes("activity"))
    made = method.generate_like(windows, seed=1)
    assert np.abs(made.signal - windows.signal).mean() > 5 * error


@pytest.mark.parametrize("mode", ["plain", "hybrid"])
def test_reconstruction_errors_are_low_for_training_windows(mode):
    windows = example_windows("complex")
    known, others = windows.select(slice(0, 16)), windows.select(slice(16, 32))
    longer = {"width": 32, "epochs": 100, "training.learning_rate": 1e-2}
    method = fitted(known, mode=mode, **longer)
    own, other = method.reconstruction_errors(known), method.reconstruction_errors(others)
    assert np.median(own) < 0.9 * np.median(other)
    assert own.shape == (16,)
    np.testing.assert_array_equal(own, method.reconstruction_errors(known))
    blind = replace(known, labels={**known.labels, "activity": np.full(16, -1)})
    with pytest.raises(Refusal, match="no class of activity"):
        method.reconstruction_errors(blind)


def test_aligned_phases_remove_what_the_card_adds(plain):
    """Windows whose packets are all rotated at random are classified and restored alike."""
    windows = example_windows("complex")
    rotation = np.exp(2j * np.pi * np.random.default_rng(0).random(windows.store.shape[1]))
    rotated = replace(windows, store=(windows.store * rotation).astype(np.complex64))
    method = fitted(windows, phases="aligned")
    np.testing.assert_allclose(method.condition(rotated), method.condition(windows))
    errors = method.reconstruction_errors
    np.testing.assert_allclose(errors(rotated), errors(windows), rtol=1e-3)
    kept = plain.reconstruction_errors
    assert np.abs(kept(rotated) / kept(windows) - 1).max() > 0.01


def test_channels_have_unit_variance_in_standard_units(plain):
    windows = example_windows("complex")
    signal = plain._standard(windows).signal
    assert signal.shape[1] == 2 * windows.shape[0]
    pairs = signal.reshape(len(signal), -1, 2, signal.shape[-1])
    np.testing.assert_allclose(pairs.var((0, 2, 3)), 1.0, rtol=0.02)


@pytest.mark.slow
def test_fast_preset_on_simulated_csi():
    """Its windows are of the class that was asked for, according to a classifier of real ones."""
    split = sensorveil.load("simulated-csi", people=10)
    method = CsiGenerator(seed=1).fit(split.train, "activity", "subject")
    classifier = Classifier(ClassifierSettings.quick()).fit(split.train, "activity")
    made = method.obfuscate(split.test, seed=1)
    true = split.test.codes("activity")
    assert (classifier.predict(split.test) == true).mean() > 0.9
    assert (classifier.predict(made) == true).mean() > 0.8
    shares = []
    for one in (made, split.test):
        signal = torch.from_numpy(method.scaling_.apply(one.signal))
        power = torch.fft.fft(signal).abs().square().mean((0, 1))
        shares.append(power / power.sum())
    assert float((shares[0] - shares[1]).abs().sum()) / 2 < 0.3


@pytest.mark.data
def test_real_csi_is_easier_to_restore_with_aligned_phases(real_data, monkeypatch):
    """What the card adds to phases cannot be restored; windows have a power of 1 either way."""
    monkeypatch.setenv("SENSORVEIL_DATA", str(real_data))
    windows: Windows = sensorveil.load("csi5300").train
    some = windows.select(slice(None, None, len(windows) // 150)).compact()
    losses = {}
    for phases in ("kept", "aligned"):
        method = CsiGenerator(seed=1, phases=phases, epochs=12, classifier_epochs=1, batch_size=32)
        losses[phases] = method.fit(some, "activity", "subject").metrics_["generator_loss"][-1]
    assert losses["aligned"] < losses["kept"] - 0.05
