"""Run folders: whole or refused in one line, never unpickled, nothing left behind."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sensorveil.data.windows import Origin, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.baselines import Noise, NoObfuscation, Resample
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.run import FILES, load_run, run_card, save_run
from sensorveil.methods.seal_bound import NOT_COVERED, Bound
from sensorveil.version import __version__

ORIGIN = Origin("watch", "recording", 0, "0123456789abcdef", "train")


def windows(kind: str = "signal") -> Windows:
    return replace(example_windows(kind), origin=ORIGIN)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    obfuscator = Noise(seed=7, snr=3.0).fit(windows(), keep="activity", hide=["gender", "weight"])
    return save_run(obfuscator, tmp_path / "run")


def refusal(path: Path) -> str:
    with pytest.raises(Refusal) as caught:
        load_run(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message or path.parent.name in message
    return message


def edit(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Changes the configuration of a run, as a careless hand would."""
    place = run / "config.json"
    config = json.loads(place.read_text())
    change(config)
    place.write_text(json.dumps(config))


def test_four_files_and_no_more(run: Path) -> None:
    assert sorted(entry.name for entry in run.iterdir()) == sorted(FILES)
    assert set(FILES) == {"config.json", "model.safetensors", "card.md", "metrics.json"}


def test_a_run_comes_back(run: Path) -> None:
    obfuscator = load_run(run)
    assert isinstance(obfuscator, Noise)
    assert (obfuscator.preset, obfuscator.seed, obfuscator.settings.snr) == ("fast", 7, 3.0)
    assert (obfuscator.policy_.keep, obfuscator.policy_.hide) == (
        ("activity",),
        ("gender", "weight"),
    )
    assert obfuscator.origin_ == ORIGIN
    assert (obfuscator.shape_, obfuscator.complex_, obfuscator.sample_rate_) == (
        (2, 32),
        False,
        50.0,
    )
    assert obfuscator.classes_["gender"] == ("0", "1")
    assert obfuscator.metrics_["windows"] == 96
    assert obfuscator.made_["sensorveil"] == __version__
    fresh = Noise(seed=7, snr=3.0).fit(windows(), "activity", ["gender", "weight"])
    np.testing.assert_array_equal(
        obfuscator.obfuscate(windows(), seed=1).signal, fresh.obfuscate(windows(), seed=1).signal
    )


def test_a_run_without_an_origin_and_with_complex_windows(tmp_path: Path) -> None:
    csi = example_windows("complex")
    obfuscator = Resample(width=4, epochs=1, ensemble_size=2).fit(csi, "activity", "gender")
    again = load_run(save_run(obfuscator, tmp_path / "run"))
    assert again.origin_ is None
    np.testing.assert_array_equal(again.scaling_.mean, obfuscator.scaling_.mean)
    outputs = [one.obfuscate(csi, seed=3).signal for one in (again, obfuscator)]
    np.testing.assert_array_equal(*outputs)


def test_a_setting_that_came_later_has_its_default(tmp_path: Path) -> None:
    obfuscator = Resample("paper", width=4, epochs=1).fit(windows(), "activity", "gender")
    place = save_run(obfuscator, tmp_path / "older") / "config.json"
    config = json.loads(place.read_text())
    del config["settings"]["ensemble_size"]
    place.write_text(json.dumps(config))
    found = load_run(place.parent).settings
    assert found == obfuscator.settings.with_changes({"ensemble_size": 1})
    assert obfuscator.settings.ensemble_size != 1


def test_nothing_in_a_run_is_a_pickle(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        pytest.fail("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    load_run(run)
    for entry in run.iterdir():
        assert b"\x80\x04\x95" not in entry.read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_each_file_must_be_there(run: Path, name: str) -> None:
    (run / name).unlink()
    assert f"run is not a whole run: {name} is missing" in refusal(run)


def test_a_foreign_file_is_refused(run: Path) -> None:
    (run / "model.pkl").write_bytes(pickle.dumps({}))
    assert "holds 'model.pkl', which is no part of a run" in refusal(run)


def test_no_folder_at_all(tmp_path: Path, run: Path) -> None:
    assert "is no run folder; make one with 'sensorveil fit'" in refusal(tmp_path / "nowhere")
    assert "is no run folder" in refusal(run / "config.json")


@pytest.mark.parametrize("name", ["config.json", "metrics.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00"])
def test_files_that_are_not_json(run: Path, name: str, content: bytes) -> None:
    (run / name).write_bytes(content)
    assert f"{name} is not JSON" in refusal(run)


@pytest.mark.parametrize("content", ["[]", "3", "null", '"run"'])
def test_a_configuration_that_is_no_table(run: Path, content: str) -> None:
    (run / "config.json").write_text(content)
    assert "is not a run of sensorveil, or is damaged" in refusal(run)


@pytest.mark.parametrize(
    "entry",
    [
        *("format", "method", "preset", "seed", "settings", "keep", "hide"),
        *("origin", "shape", "complex", "rate", "channels", "classes", "made"),
    ],
)
def test_each_entry_must_be_there(run: Path, entry: str) -> None:
    edit(run, lambda config: config.pop(entry))
    assert f"is not a run of sensorveil, or is damaged ('{entry}')" in refusal(run)


@pytest.mark.parametrize(
    ("entry", "value", "expected"),
    [
        ("format", 2, "has format 2; this version reads 1"),
        ("method", "os.system", "method 'os.system' is unknown; known: "),
        ("method", ["noise"], "damaged"),
        ("preset", "mine", "preset of noise 'mine' is unknown"),
        ("settings", {"loudness": 1}, "setting of noise 'loudness' is unknown"),
        ("settings", [1], "damaged"),
        ("keep", ["gender"], "cannot be kept and hidden at once"),
        ("keep", None, "damaged"),
        ("origin", {"dataset": "watch"}, "damaged"),
        ("origin", {"run": "rm"}, "damaged"),
        ("shape", 3, "damaged"),
        ("rate", "fast", "damaged"),
        ("rate", None, "damaged"),
        ("classes", ["a"], "damaged"),
    ],
)
def test_entries_that_were_tampered_with(run: Path, entry: str, value: Any, expected: str) -> None:
    edit(run, lambda config: config.update({entry: value}))
    with pytest.raises(Refusal, match=expected) as caught:
        load_run(run)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_no_fault(run: Path) -> None:
    place = run / "config.json"
    place.write_bytes(b"\xef\xbb\xbf" + place.read_bytes())
    load_run(run)


@pytest.mark.parametrize("size", [0, 4, -1])
def test_a_damaged_model_file(run: Path, size: int) -> None:
    place = run / "model.safetensors"
    place.write_bytes(place.read_bytes()[:size])
    assert "model.safetensors is not a whole safetensors file" in refusal(run)


def test_a_pickle_in_the_place_of_the_model(run: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof"

    class Payload:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (exec, (f"open({str(proof)!r}, 'w').write('gotcha')",))

    (run / "model.safetensors").write_bytes(pickle.dumps(Payload()))
    assert "not a whole safetensors file" in refusal(run)
    assert not proof.exists()


def rewritten(run: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    arrays = load_file(run / "model.safetensors")
    change(arrays)
    save_file(arrays, run / "model.safetensors")


def test_arrays_that_nobody_asked_for(run: Path) -> None:
    rewritten(run, lambda arrays: arrays.update({"method.extra": np.zeros(2)}))
    with pytest.raises(Refusal, match="noise has no learnt arrays, but the file holds extra"):
        load_run(run)


def test_arrays_that_are_real_by_half_or_of_another_size(tmp_path: Path) -> None:
    obfuscator = Resample(width=4, epochs=1).fit(example_windows("complex"), "activity", "gender")
    for name, change in (
        ("half", lambda arrays: arrays.pop("scaling.mean.im")),
        (
            "size",
            lambda a: a.update({"method.classifier.0.network.head.0.bias": np.zeros(3, "f4")}),
        ),
    ):
        run = save_run(obfuscator, tmp_path / name)
        rewritten(run, change)
        refusal(run)


def test_what_is_there_is_not_overwritten(run: Path) -> None:
    before = {entry.name: entry.read_bytes() for entry in run.iterdir()}
    obfuscator = NoObfuscation().fit(windows(), "activity", "gender")
    with pytest.raises(Refusal, match="run exists already"):
        save_run(obfuscator, run)
    assert {entry.name: entry.read_bytes() for entry in run.iterdir()} == before


def test_what_has_learnt_nothing_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="call fit first"):
        save_run(NoObfuscation(), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    obfuscator = NoObfuscation().fit(windows(), "activity", "gender")
    obfuscator.metrics_["not for JSON"] = object()
    with pytest.raises(TypeError):
        save_run(obfuscator, tmp_path / "deep" / "run")
    assert list((tmp_path / "deep").iterdir()) == []


def test_the_card_says_what_people_must_know(run: Path) -> None:
    card = (run / "card.md").read_text()
    origin = "watch, split recording, fold 0, subset train (protocol 0123456789abcdef)"
    for text in ("keeps: activity", "hides: gender, weight", origin, "'snr': 3.0", __version__):
        assert text in card
    assert "training people's own windows" not in card
    obfuscator = Resample(width=4, epochs=1).fit(example_windows(), "activity", "gender")
    assert "training people's own windows: they must have agreed" in run_card(obfuscator)


def test_the_card_has_each_bound_and_what_bounds_do_not_cover(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    obfuscator = load_run(run)
    bound = Bound("gender", 500, 84, 0.57, 0.58, 0.6)
    vacuous = replace(bound, attribute="weight", accuracy=1.0)
    for bounds, covered in (((bound, vacuous), 1), ((vacuous,), 0), ((), 0)):
        monkeypatch.setattr(obfuscator, "bounds", lambda bounds=bounds: bounds)
        card = run_card(obfuscator)
        assert all(one.sentence() in card for one in bounds)
        assert card.count(NOT_COVERED) == covered
