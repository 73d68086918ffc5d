"""PrivDiffuser: led towards the kept class and away from the hidden one; killed, it goes on."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sensorveil.data.windows import UNKNOWN
from sensorveil.diffusion.features import FeatureSettings
from sensorveil.diffusion.unet import UNetSettings
from sensorveil.errors import Refusal
from sensorveil.methods import pieces as in_pieces
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.privdiffuser import PrivDiffuser
from sensorveil.methods.run import load_run, run_card, save_run

TINY: dict[str, Any] = {
    "epochs": 2,
    "reader_epochs": 3,
    "width": 8,
    "steps": 4,
    "levels": 50,
    "avoids": "predicted",
}


@pytest.fixture(scope="module")
def trained() -> PrivDiffuser:
    """Trained until its output can be read; regularised a little, on so few windows."""
    settings: dict[str, Any] = {"batch": 32, "epochs": 150, "width": 16, "avoids": "predicted"}
    settings["regularise"] = 0.1
    return PrivDiffuser(reader_epochs=40, **settings).fit(example_windows(), "activity", "gender")


@pytest.fixture(scope="module")
def tiny() -> PrivDiffuser:
    return PrivDiffuser(**TINY).fit(example_windows(), "activity", "gender")


def test_the_paper_preset_is_the_papers() -> None:
    chosen = PrivDiffuser("paper").settings
    assert (chosen.keep, chosen.avoid, chosen.regularise) == (7.8, 0.05, 8.0)
    assert (chosen.sampler, chosen.steps, chosen.levels) == ("ddim", 50, 1000)
    # Whose parameters are counted in tests/nets/test_unet.py and test_features.py.
    assert chosen.unet(flat=False) == UNetSettings()
    assert chosen.reader(flat=False) == FeatureSettings()


def test_the_kept_class_is_what_comes_out(trained: PrivDiffuser) -> None:
    windows = example_windows(seed=5)
    hidden = trained.obfuscate(windows, {"keep": 3.0, "gender": 0.0}, seed=1)
    features_of = trained._features(hidden.scaled(trained.scaling_))
    read = trained.nets_["surrogate"].heads[0](features_of).argmax(1).numpy()
    assert (read == windows.labels["activity"]).mean() > 0.85


def test_it_is_led_away_from_what_is_avoided(trained: PrivDiffuser) -> None:
    """The more weight, the less likely the auxiliary model finds the class that was avoided."""
    windows = example_windows(seed=5)
    avoided = trained._avoided(windows.scaled(trained.scaling_), np.random.default_rng(0))["gender"]
    likely = []
    for weight in (0.0, 2.0, 5.0):
        hidden = trained.obfuscate(windows, {"keep": 0.0, "gender": weight}, seed=1)
        logs = trained._read(hidden.scaled(trained.scaling_), "gender")
        likely.append(logs.exp().gather(1, avoided[:, None]).mean().item())
    assert likely[0] > likely[1] > likely[2]
    assert likely[2] < likely[0] - 0.03


def test_of_several_tries_one_leaves_that_is_unlike_what_is_avoided(trained: PrivDiffuser) -> None:
    """The class that was told comes first: it is read as often, or more often."""
    windows, slight = example_windows(seed=5), {"keep": 1.0, "gender": 1e-9}
    scaled = windows.scaled(trained.scaling_)
    avoided = trained._avoided(scaled, np.random.default_rng(0))["gender"]
    told = trained._told(scaled, {}, np.random.default_rng(0))
    centres = torch.from_numpy(trained.centres_)
    likely, right = [], []
    for tries, strength in ((1, slight), (6, slight), (6, {**slight, "gender": 0.0})):
        hidden = trained.with_settings(tries=tries).obfuscate(windows, strength, seed=1)
        output = hidden.scaled(trained.scaling_)
        logs = trained._read(output, "gender")
        likely.append(logs.exp().gather(1, avoided[:, None]).mean().item())
        read = (trained._features(output) @ centres.T).argmax(1)
        right.append((read == (told @ centres.T).argmax(1)).float().mean().item())
    assert right[1] >= right[0]
    assert likely[1] < likely[0] - 0.05
    assert likely[1] < likely[2] - 0.05, "a strength of 0 switches it off"


def test_a_strength_for_each_window(tiny: PrivDiffuser) -> None:
    windows = example_windows()
    keep = np.where(np.arange(len(windows)) % 2, 3.0, 0.5)
    gender = np.where(np.arange(len(windows)) % 3, 0.0, 2.0)
    mixed = tiny.obfuscate(windows, {"keep": keep, "gender": gender}, seed=1).signal
    for k, g in {*zip(keep.tolist(), gender.tolist(), strict=True)}:
        alone = tiny.obfuscate(windows, {"keep": k, "gender": g}, seed=1).signal
        own = (keep == k) & (gender == g)
        np.testing.assert_allclose(mixed[own], alone[own], rtol=1e-4, atol=1e-5)


def test_avoiding_none_is_avoiding_with_no_weight(tiny: PrivDiffuser) -> None:
    windows = example_windows()
    none = tiny.with_settings(avoids="none").obfuscate(windows, seed=1).signal
    weightless = tiny.obfuscate(windows, {"gender": 0.0}, seed=1).signal
    np.testing.assert_array_equal(none, weightless)


def test_the_wearers_own_class_is_avoided(tiny: PrivDiffuser) -> None:
    windows, strong = example_windows(), {"gender": 3.0}
    obfuscator = tiny.with_settings(avoids="wearer")
    gender = windows.labels["gender"]
    flipped = replace(windows, labels={**windows.labels, "gender": 1 - gender})
    own = obfuscator.obfuscate(windows, strong, seed=1).signal
    assert np.abs(own - obfuscator.obfuscate(flipped, strong, seed=1).signal).max() > 1e-6
    unknown = replace(windows, labels={**windows.labels, "gender": np.full_like(gender, UNKNOWN)})
    np.testing.assert_array_equal(
        obfuscator.obfuscate(unknown, strong, seed=1).signal,
        obfuscator.obfuscate(windows, {"gender": 0.0}, seed=1).signal,
    )
    nameless = replace(windows, labels={"activity": windows.labels["activity"]})
    with pytest.raises(Refusal, match="true 'gender'"):
        obfuscator.obfuscate(nameless, strong, seed=1)


def test_random_classes_are_drawn_anew(tiny: PrivDiffuser) -> None:
    obfuscator, windows = tiny.with_settings(avoids="random"), example_windows()
    drawn = [obfuscator._avoided(windows, np.random.default_rng(seed))["gender"] for seed in (1, 2)]
    assert not torch.equal(*drawn)
    assert {*torch.cat(drawn).tolist()} == {0, 1}


def test_one_more_attribute_leaves_the_generator_alone(tiny: PrivDiffuser, tmp_path: Path) -> None:
    windows = example_windows()
    more = tiny.add_hidden(windows, "weight")
    assert more.nets_["generator"] is tiny.nets_["generator"]
    assert more.nets_["auxiliary.gender"] is tiny.nets_["auxiliary.gender"]
    assert more.strength_names() == ("keep", "gender", "weight")
    assert tiny.policy_.hide == ("gender",), "the old one must stay as it was"
    both = PrivDiffuser(**TINY).fit(windows, "activity", ["gender", "weight"])
    np.testing.assert_array_equal(
        more.obfuscate(windows, seed=1).signal, both.obfuscate(windows, seed=1).signal
    )
    again = load_run(save_run(more, tmp_path / "run"))
    np.testing.assert_array_equal(
        again.obfuscate(windows, seed=2).signal, more.obfuscate(windows, seed=2).signal
    )
    for name, complaint in (("gender", "twice"), ("activity", "at once"), ("age", "unknown")):
        with pytest.raises(Refusal, match=complaint):
            tiny.add_hidden(windows, name)


def test_one_more_attribute_must_be_the_one_of_training(tiny: PrivDiffuser) -> None:
    windows = example_windows()
    renamed = replace(windows, classes={**windows.classes, "weight": ("light", "heavy")})
    with pytest.raises(Refusal, match="other classes"):
        tiny.add_hidden(renamed, "weight")
    unknown = replace(
        windows,
        labels={**windows.labels, "age": windows.labels["weight"]},
        classes={**windows.classes, "age": ("young", "old")},
    )
    with pytest.raises(Refusal, match="other classes"):
        tiny.add_hidden(unknown, "age")


def test_readers_can_be_trained_anew_for_the_same_generator(tiny: PrivDiffuser) -> None:
    windows = example_windows()
    plain = tiny.with_settings(windows, regularise=0.0)
    assert plain.nets_["generator"] is tiny.nets_["generator"]
    alone = PrivDiffuser(**{**TINY, "regularise": 0.0}).fit(windows, "activity", "gender")
    np.testing.assert_array_equal(
        plain.obfuscate(windows, seed=1).signal, alone.obfuscate(windows, seed=1).signal
    )
    assert tiny.settings.regularise > 0, "the old one must stay as it was"
    with pytest.raises(Refusal, match="training windows"):
        tiny.with_settings(regularise=0.0)
    for bad in ({"width": 16}, {"levels": 20}, {"nonsense": 1}):
        with pytest.raises(Refusal, match="anew"):
            tiny.with_settings(windows, **bad)


def test_samples_are_held_within_the_range_of_training(tiny: PrivDiffuser) -> None:
    """However strong the guidance."""
    windows = example_windows()
    hidden = tiny.obfuscate(windows, {"keep": 50.0, "gender": 20.0}, seed=1).signal
    rest = (0, 2)
    room = 1e-3 * windows.signal.std(rest)
    assert (hidden.min(rest) >= windows.signal.min(rest) - room).all()
    assert (hidden.max(rest) <= windows.signal.max(rest) + room).all()


def test_sampling_can_be_timed(tiny: PrivDiffuser) -> None:
    assert tiny.sampling_seconds(example_windows(), repeats=1) > 0


def test_pieces_make_what_one_pass_makes(
    tiny: PrivDiffuser, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = example_windows(seed=5)
    whole = tiny.obfuscate(windows, seed=1).signal
    monkeypatch.setattr(in_pieces, "SMALL_PIECE", 40)
    np.testing.assert_allclose(tiny.obfuscate(windows, seed=1).signal, whole, rtol=1e-3, atol=1e-3)


def test_the_card_says_whose_labels_are_needed(tiny: PrivDiffuser) -> None:
    needed = "needs the wearer's true hidden labels"
    assert needed in run_card(tiny.with_settings(avoids="wearer"))
    assert needed not in run_card(tiny)
    assert PrivDiffuser("paper").needs_wearer()


@pytest.mark.parametrize("sampler", ["ddpm", "ddim", "dpm-solver++", "unipc"])
def test_every_sampler_serves(tiny: PrivDiffuser, sampler: str) -> None:
    other, windows = tiny.with_settings(sampler=sampler), example_windows()
    first, second = (other.obfuscate(windows, seed=1).signal for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_condition_is_all_it_is_told(tiny: PrivDiffuser) -> None:
    """60 features and the read hidden class; two windows that agree in them come out alike."""
    windows = example_windows()
    assert tiny.condition(windows).shape == (len(windows), 62)
    assert tiny.with_settings(avoids="random").condition(windows).shape == (len(windows), 60)


def test_told_the_class_alone_the_output_depends_on_nothing_else(tiny: PrivDiffuser) -> None:
    """Windows of other people with the same kept class give the same output from the same noise."""
    other = tiny.with_settings(told="class", avoids="none")
    windows, others = example_windows(), example_windows(seed=9)
    codes = other.condition(windows)
    assert len(np.unique(codes.round(5), axis=0)) == 2
    np.testing.assert_allclose(np.linalg.norm(codes, axis=1), 1, atol=1e-5)
    same = (codes == other.condition(others)).all(1)
    assert same.mean() > 0.5
    first, second = (other.obfuscate(some, seed=4).signal for some in (windows, others))
    np.testing.assert_array_equal(first[same], second[same])


def test_a_panel_reads_the_class_that_is_told(tmp_path: Path) -> None:
    windows = example_windows()
    settings = {**TINY, "avoids": "none", "panel": 2}
    obfuscator = PrivDiffuser(**settings).fit(windows, "activity", "gender")
    read = obfuscator.panel_.predict(windows)
    assert (read == windows.labels["activity"]).mean() > 0.9
    obfuscator.centres_ = obfuscator.centres_[
        ::-1
    ].copy()  # by its features each window is of the other class
    told = obfuscator._told(
        windows.scaled(obfuscator.scaling_), {}, np.random.default_rng(0)
    ).numpy()
    np.testing.assert_array_equal(told, obfuscator.centres_[read])
    again = load_run(save_run(obfuscator, tmp_path / "run"))
    np.testing.assert_array_equal(
        again.obfuscate(windows, seed=1).signal, obfuscator.obfuscate(windows, seed=1).signal
    )


def test_a_class_is_read_among_those_that_occur() -> None:
    """Two kept attributes of which one combination never occurs: it is never told."""
    windows = example_windows()
    both = windows.labels["activity"] * (1 - windows.labels["weight"])
    windows = replace(windows, labels={**windows.labels, "weight": both})
    obfuscator = PrivDiffuser(**{**TINY, "told": "class"}).fit(
        windows, ["activity", "weight"], "gender"
    )
    assert obfuscator.cells_.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert obfuscator.centres_.shape == (3, 60)


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("avoids", "nobody", "unknown"),
        ("sampler", "euler", "unknown"),
        ("steps", 2000, "at most 1000"),
        ("dropped", 1.0, "below 1"),
        ("filters", "8-x", "whole numbers"),
        ("keep", -1.0, "0 or more"),
        ("epochs", 0, "above 0"),
        ("panel", -1, "0 or more"),
    ],
)
def test_settings_are_checked(name: str, value: object, limit: str) -> None:
    with pytest.raises(Refusal, match=limit):
        PrivDiffuser(**{name: value})


SCRIPT = """
import sys, torch
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.privdiffuser import PrivDiffuser
from sensorveil.methods.run import save_run
from sensorveil.train import Checkpoint
torch.set_num_threads(1)
obfuscator = PrivDiffuser(epochs=25, reader_epochs=3, width=8, batch=16)
checkpoint = Checkpoint(sys.argv[1] + ".unfinished", seconds=0)
save_run(obfuscator.fit(example_windows(), "activity", "gender", checkpoint), sys.argv[1])
"""


def test_killed_and_started_again_it_ends_the_same(tmp_path: Path) -> None:
    """A real process, killed while its generator is trained; the weights are the same to a bit."""

    def start(name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / name)])

    killed = start("killed")
    under_way = tmp_path / "killed.unfinished" / "generator.safetensors"
    while not under_way.exists():
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    assert not (tmp_path / "killed").exists()
    assert start("killed").wait() == 0
    assert start("whole").wait() == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("killed", "whole")]
    assert weights[0] == weights[1]


def test_a_generator_of_velocities_is_kept_and_found_again(tmp_path: Path) -> None:
    windows = example_windows()
    obfuscator = PrivDiffuser(**TINY, predicts="velocity").fit(windows, "activity", "gender")
    save_run(obfuscator, tmp_path / "run")
    np.testing.assert_array_equal(
        load_run(tmp_path / "run").obfuscate(windows, seed=1).signal,
        obfuscator.obfuscate(windows, seed=1).signal,
    )


@pytest.mark.parametrize(
    ("preset", "settings", "said"),
    [
        ("fast", {"predicts": "weather"}, "predicts"),
        ("paper", {"fold": 4}, "fold"),
        ("fast", {"width": 7}, "width"),
        ("fast", {"heads": 5}, "heads"),
    ],
)
def test_what_cannot_be_built_is_refused_before_training(
    preset: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refusal, match=said):
        PrivDiffuser(preset, **settings)


@pytest.mark.slow
def test_what_the_document_shows_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "privdiffuser.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    exec(code, {})
    assert capsys.readouterr().out.strip() == "('keep', 'gender', 'weight')"
