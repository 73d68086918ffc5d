"""What class autoencoders share: readers, means, conditions, unknown labels, runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods import class_autoencoder
from sensorveil.methods.autoencoder import AttributeCAE, AttributeCVAE, AttributeVAE, GeneralVAE
from sensorveil.methods.class_autoencoder import ClassAutoencoder
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.registry import _REGISTERED as registry  # noqa: N811
from sensorveil.methods.run import load_run, save_run


@pytest.fixture(autouse=True)
def _known_to_load_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for made in (AttributeCAE, AttributeCVAE, AttributeVAE, GeneralVAE):
        monkeypatch.setitem(registry, made.name, made)


def fitted(
    made: type[ClassAutoencoder] = AttributeCVAE,
    windows: Windows | None = None,
    hide: str | list[str] = "gender",
    **rest: Any,
) -> Any:
    settings = {"epochs": 3, "reader_epochs": 4, "reader_width": 8} | rest
    return made(**settings).fit(windows or example_windows(), keep="activity", hide=hide)


def relabelled(**labels: np.ndarray) -> Windows:
    windows = example_windows()
    return replace(windows, labels={**windows.labels, **labels})


@pytest.mark.parametrize(
    ("made", "modifier", "read_hidden", "readers"),
    [
        (AttributeCVAE, "deterministic", False, 1),
        (AttributeCVAE, "probabilistic", False, 0),
        (AttributeCVAE, "randomized", False, 0),
        (AttributeCVAE, "randomized", True, 1),
        (AttributeVAE, "probabilistic", False, 1),
    ],
)
def test_hidden_readers_only_where_needed(
    made: type[ClassAutoencoder], modifier: str, read_hidden: bool, readers: int
) -> None:
    obfuscator = fitted(made, modifier=modifier, read_hidden=read_hidden)
    assert len(obfuscator.hidden_readers_) == readers


def test_another_modifier_without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    obfuscator = fitted(modifier="randomized", read_hidden=True)

    def forbidden(*_: Any, **__: Any) -> None:
        pytest.fail("something was trained")

    monkeypatch.setattr(class_autoencoder, "train_factorised", forbidden)
    monkeypatch.setattr(class_autoencoder.Classifier, "fit_codes", forbidden)
    other = obfuscator.with_modifier("deterministic")
    assert (obfuscator.settings.modifier, other.settings.modifier) == (
        "randomized",
        "deterministic",
    )
    assert other.nets_ is obfuscator.nets_
    windows = example_windows()
    assert (
        other.obfuscate(windows, seed=1).signal != obfuscator.obfuscate(windows, seed=1).signal
    ).any()


def test_another_modifier_that_needs_readers_is_refused() -> None:
    obfuscator = fitted(modifier="randomized", hide=["gender", "weight"])
    obfuscator.with_modifier("probabilistic")
    with pytest.raises(Refusal, match=r"needs readers of gender, weight.*read_hidden=true"):
        obfuscator.with_modifier("deterministic")
    with pytest.raises(Refusal, match="modifier 'none' is unknown"):
        obfuscator.with_modifier("none")
    with pytest.raises(Refusal, match="call fit first"):
        AttributeCVAE().with_modifier("probabilistic")


def test_windows_of_unknown_labels_are_left_out() -> None:
    windows = example_windows()
    gender, activity = windows.labels["gender"].copy(), windows.labels["activity"].copy()
    gender[:20], activity[10:30] = UNKNOWN, UNKNOWN
    obfuscator = fitted(windows=relabelled(gender=gender, activity=activity))
    known = np.arange(96) >= 30
    expected = np.bincount(windows.labels["activity"][known]).tolist()
    assert obfuscator.metrics_["windows_by_network"] == expected
    assert obfuscator.hidden_sizes_ == (2,)


@pytest.mark.parametrize("made", [AttributeCVAE, GeneralVAE])
def test_a_class_without_any_known_label_is_refused(made: type[ClassAutoencoder]) -> None:
    windows = example_windows()
    gender = np.where(windows.labels["activity"] == 1, UNKNOWN, windows.labels["gender"])
    with pytest.raises(Refusal, match="class of activity has no window whose gender is known"):
        fitted(made, relabelled(gender=gender))


def test_hidden_classes_that_do_not_occur_are_never_told() -> None:
    gender = np.where(example_windows().labels["gender"] == 1, 4, 2)
    obfuscator = fitted(windows=relabelled(gender=gender))
    assert obfuscator.hidden_sizes_ == (2,)
    assert obfuscator.nets_.decoder.layers[0].weight.shape[1] == 10 + 2


def test_an_epoch_goes_once_through_the_largest_class() -> None:
    obfuscator = AttributeCVAE(epochs=3, batch=10, reader_epochs=1)
    obfuscator.shared_readers = {}  # no training of the networks yet
    activity = np.arange(96) % 4 == 0
    obfuscator.fit(relabelled(activity=activity.astype(int)), "activity", "gender")
    schedule = obfuscator._schedule()
    assert (schedule.epochs, schedule.steps) == (3, 8)  # 72 windows and 24, in batches of 10


@pytest.mark.parametrize(
    ("made", "modifier", "numbers"),
    [
        (AttributeCVAE, "randomized", 2 + 20),
        (AttributeCVAE, "deterministic", 2 + 20 + 2),
        (AttributeCAE, "probabilistic", 2 + 10),
        (GeneralVAE, "probabilistic", 2 + 20 + 2),
    ],
)
def test_the_condition_holds_all_that_the_output_is_made_of(
    made: type[ClassAutoencoder], modifier: str, numbers: int
) -> None:
    obfuscator, windows = fitted(made, modifier=modifier), example_windows()
    condition = obfuscator.condition(windows)
    assert condition.shape == (96, numbers)
    read = obfuscator.reader_.predict(windows.scaled(obfuscator.scaling_))
    np.testing.assert_array_equal(condition[:, :2].argmax(1), read)
    with torch.no_grad():
        numbers_of_5 = torch.from_numpy(windows.scaled(obfuscator.scaling_).signal[5]).reshape(
            1, -1
        )
        group = 0 if made is GeneralVAE else int(read[5])
        mu = obfuscator.nets_.encode(numbers_of_5, group)[0][0]
    np.testing.assert_allclose(condition[5, 2:12], mu, atol=1e-4)


def test_many_windows_are_obfuscated_as_one_by_one() -> None:
    """Sorting by class and cutting into pieces must not mix windows up."""
    obfuscator, windows = fitted(AttributeCAE), example_windows()
    together = obfuscator.obfuscate(windows).signal
    for which in (0, 1, 50):
        one = obfuscator.obfuscate(windows.select([which]).compact()).signal[0]
        np.testing.assert_allclose(together[which], one, rtol=1e-4, atol=1e-4)


def test_a_run_comes_back_with_its_readers(tmp_path: Path) -> None:
    windows = example_windows("complex")
    obfuscator = fitted(AttributeVAE, windows, hide=["gender", "weight"])
    again = load_run(save_run(obfuscator.with_modifier("probabilistic"), tmp_path / "run"))
    assert isinstance(again, AttributeVAE)
    assert again.settings.modifier == "probabilistic"
    expected = obfuscator.obfuscate(windows, seed=1).signal
    got = again.with_modifier("deterministic").obfuscate(windows, seed=1).signal
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "missing", ["cells", "hidden_sizes", "effects", "nets.encoder.layers.0.weight", "hidden.0.mean"]
)
def test_a_model_file_that_lacks_something(missing: str, tmp_path: Path) -> None:
    folder = save_run(fitted(GeneralVAE), tmp_path / "run")
    arrays = load_file(folder / "model.safetensors")
    del arrays[f"method.{missing}"]
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(Refusal, match=missing.split(".")[-1]):
        load_run(folder)


def test_stages_are_timed() -> None:
    obfuscator, windows = fitted(read_hidden=True), example_windows()
    stages = ["desired inference", "sensitive inference", "encoder", "decoder"]
    found = obfuscator.stage_seconds(windows, repeats=1)
    assert list(found) == stages
    assert all(0 < seconds < 1 for seconds in found.values())
    stages.remove("sensitive inference")
    assert list(obfuscator.with_modifier("randomized").stage_seconds(windows, 1)) == stages
