"""CLOAK: latents led towards the kept class; a bottleneck that lets the class alone through."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cloak_sizes import PUBLISHED, TINY

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.cloak import Cloak
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.policy import Policy
from sensorveil.methods.run import load_run, save_run
from sensorveil.train import Checkpoint


def copied(obfuscator: Cloak, **settings: Any) -> Cloak:
    """What was learnt, under other settings."""
    other = Cloak(**{**TINY, **settings})
    other.__dict__ |= {
        name: value for name, value in vars(obfuscator).items() if name.endswith("_")
    }
    return other


@pytest.fixture(scope="module")
def tiny() -> Cloak:
    return Cloak(**TINY).fit(example_windows(), "activity", "gender")


@pytest.fixture(scope="module")
def trained() -> Cloak:
    """Trained until its output can be read."""
    settings: dict[str, Any] = {"epochs": 150, "reader_epochs": 20, "width": 64, "blocks": 2}
    return Cloak(batch=48, **settings).fit(example_windows(), "activity", "gender")


def test_the_paper_preset_is_the_papers() -> None:
    """Sections V-C and V-D."""
    chosen = Cloak("paper").settings
    assert (chosen.keep, chosen.avoid, chosen.divergence) == (4.5, 0.008, 1e-6)
    assert (chosen.sampler, chosen.steps, chosen.levels) == ("ddim", 50, 1000)
    assert (chosen.latent, chosen.bottleneck, chosen.coder_rate) == (60, 0.0, 1e-3)
    weights = {
        name: (Cloak(name).settings.keep, Cloak(name).settings.avoid)
        for name in ("mobiact", "wifihar", "audiomnist", "adience")
    }
    assert weights == {
        "mobiact": (4.0, 0.05),
        "wifihar": (6.0, 0.005),
        "audiomnist": (2.0, 0.07),
        "adience": (6.0, 0.5),
    }
    assert Cloak("audiomnist").settings.divergence == 1e-7
    assert [Cloak(name).settings.epochs for name in ("mobiact", "wifihar", "audiomnist")] == [
        28, 80, 120,
    ]  # fmt: skip


def blank(preset: str, shape: tuple[int, ...]) -> Cloak:
    """The networks of a preset on windows of a shape, without any weights."""
    obfuscator = Cloak(preset)
    obfuscator.shape_, obfuscator.complex_ = shape, False
    obfuscator.policy_ = Policy.of("activity", "gender")
    obfuscator.classes_ = {"activity": ("a", "b", "c", "d"), "gender": ("f", "m")}
    obfuscator.roles_, obfuscator.nets_ = np.zeros((2 if obfuscator.settings.coin else 0, 1)), {}
    with torch.device("cpu" if preset == "fast" else "meta"):
        for which in obfuscator._net_names():
            obfuscator.nets_[which] = obfuscator._blank_net(which)
    return obfuscator


def parameters(net: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in net.parameters())


def test_the_networks_of_preset_paper_are_those_of_table_vi() -> None:
    """U-Net (see test_dense), decoder, Aux-U and Aux-S: in all 80.21 M and 305.98 MB."""
    nets = blank("paper", (2, 128)).nets_
    beside = parameters(nets["generator"].condition[0])
    counts = [
        parameters(nets["generator"]) - beside,
        parameters(nets["autoencoder"].decoder),
        parameters(nets["encoder.activity"]),
        parameters(nets["auxiliary.gender"]),
    ]
    assert [round(count / 1e6, 2) for count in counts] == [38.41, 7.38, 34.19, 0.23]
    assert round(sum(counts) / 1e6, 2) == 80.21
    assert round(sum(counts) * 4 / 2**20, 2) == 305.98


def test_images_have_latents_of_two_dimensions_in_preset_adience() -> None:
    obfuscator = blank("adience", (1, 80, 80))
    assert obfuscator._space() == (8, 16, 16)
    assert obfuscator.nets_["generator"].settings.kernels == 2


@pytest.mark.parametrize("shape", [(2, 128), (6, 128), (40, 64), (1, 16, 16), (1, 80, 80)])
def test_preset_fast_takes_at_most_ten_megabytes(shape: tuple[int, ...]) -> None:
    obfuscator = blank("fast", shape)
    assert sum(parameters(net) for net in obfuscator.nets_.values()) * 4 < 10e6


def test_the_kept_class_is_what_comes_out(trained: Cloak) -> None:
    windows = example_windows(seed=5)
    for bottleneck in (0.0, 1.0):
        hidden = trained.obfuscate(windows, {"keep": 2.0, "bottleneck": bottleneck}, seed=1)
        features = trained._features(hidden.scaled(trained.scaling_)).numpy()
        read = trained.cells_[(features @ trained.centres_.T).argmax(1), 0]
        assert (read == windows.labels["activity"]).mean() > 0.85


def test_it_is_led_away_from_what_is_avoided(trained: Cloak) -> None:
    """The more weight, the less likely the auxiliary model finds the class that was avoided."""
    windows = example_windows(seed=5)
    obfuscator = trained.with_settings(avoids="predicted")
    avoided = obfuscator._avoided(windows.scaled(obfuscator.scaling_), np.random.default_rng(0))[
        "gender"
    ]
    likely = []
    for weight in (0.0, 2.0, 5.0):
        hidden = obfuscator.obfuscate(windows, {"bottleneck": 0.0, "gender": weight}, seed=1)
        logs = obfuscator._read(hidden.scaled(obfuscator.scaling_), "gender")
        likely.append(logs.exp().gather(1, avoided[:, None]).mean().item())
    assert likely[0] > likely[1] > likely[2]
    assert likely[2] < likely[0] - 0.05


def test_the_bottleneck_can_be_another_one_on_the_same_weights(trained: Cloak) -> None:
    windows = example_windows()
    strength = {"bottleneck": 0.0}
    told = trained.obfuscate(windows, strength, seed=1).signal
    other = trained.with_settings(bottleneck=0.0)
    np.testing.assert_array_equal(other.obfuscate(windows, seed=1).signal, told)
    assert not np.array_equal(trained.obfuscate(windows, seed=1).signal, told)
    with pytest.raises(Refusal, match="latent"):
        trained.with_settings(latent=3)
    # What probes found of what was told is not true of the other.
    assert "told" in trained.metrics_["probe"]
    assert set(other.metrics_["probe"]) == {"people", "windows", "z_U"}
    assert trained.with_settings(keep=1.0).metrics_["probe"] == trained.metrics_["probe"]


def test_with_the_whole_bottleneck_the_class_alone_is_told(tiny: Cloak) -> None:
    """Other windows that are read alike give the same output from the same noise."""
    windows, others = example_windows(), example_windows(seed=9)
    centre = torch.from_numpy(tiny.centres_)
    cells = [
        (tiny._features(some.scaled(tiny.scaling_)) @ centre.T).argmax(1).numpy()
        for some in (windows, others)
    ]
    same = cells[0] == cells[1]
    assert same.mean() > 0.5
    told = [tiny.condition(some) for some in (windows, others)]
    np.testing.assert_array_equal(told[0][same], told[1][same])
    alone = [tiny.obfuscate(some, {"bottleneck": 1.0}, seed=4).signal for some in (windows, others)]
    np.testing.assert_array_equal(alone[0][same], alone[1][same])
    half = [copied(tiny, bottleneck=0.5).condition(some) for some in (windows, others)]
    assert (half[0] != half[1]).any(axis=1).all()


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_what_is_told_lies_around_its_class_as_features_do(trained: Cloak, share: float) -> None:
    """The spread shrinks with the bottleneck, and of the rest the bottleneck's share is noise."""
    windows = example_windows()
    windows = windows.select(np.tile(np.arange(len(windows)), 40)).scaled(trained.scaling_)
    features = trained._features(windows).numpy()
    given = {"bottleneck": np.full(len(windows), share)}
    told = trained._told(windows, given, np.random.default_rng(0)).numpy()
    np.testing.assert_allclose(np.linalg.norm(told, axis=1), 1, atol=1e-5)
    cells = (features @ trained.centres_.T).argmax(1)
    for cell in range(2):
        before, after = (some[cells == cell] for some in (features, told))
        assert after.mean(0) @ trained.centres_[cell] > 0.9
        assert after.var(0).sum() == pytest.approx((1 - share) * before.var(0).sum(), rel=0.4)
        _, copies = np.unique(before.round(4), axis=0, return_inverse=True)
        noise = np.mean([after[copies == one].var(0).sum() for one in range(copies.max() + 1)])
        assert noise == pytest.approx(share * after.var(0).sum(), rel=0.3)


def test_with_the_whole_bottleneck_the_centre_of_the_class_is_told(trained: Cloak) -> None:
    windows = example_windows().scaled(trained.scaling_)
    told = trained._told(windows, {"bottleneck": np.ones(96)}, np.random.default_rng(0)).numpy()
    cells = (trained._features(windows).numpy() @ trained.centres_.T).argmax(1)
    np.testing.assert_allclose(told, trained.centres_[cells], atol=1e-6)


def test_none_of_the_bottleneck_is_the_paper(tiny: Cloak) -> None:
    windows = example_windows().scaled(tiny.scaling_)
    told = tiny._told(windows, {"bottleneck": np.zeros(96)}, np.random.default_rng(0))
    torch.testing.assert_close(told, tiny._features(windows))


def test_a_bottleneck_for_each_window(tiny: Cloak) -> None:
    windows = example_windows()
    share = np.where(np.arange(96) % 2, 0.2, 1.0)
    mixed = tiny.obfuscate(windows, {"bottleneck": share}, seed=1).signal
    for value in (0.2, 1.0):
        alone = tiny.obfuscate(windows, {"bottleneck": value}, seed=1).signal
        np.testing.assert_allclose(mixed[share == value], alone[share == value], rtol=1e-4)


def test_a_bottleneck_beyond_its_range_is_refused(tiny: Cloak) -> None:
    for share in (-0.1, 1.1):
        with pytest.raises(Refusal, match="from 0 to 1"):
            tiny.obfuscate(example_windows(), {"bottleneck": share})


@pytest.mark.parametrize("judge", ["features", "panel"])
def test_of_several_tries_the_one_leaves_that_is_most_like_what_was_told(
    trained: Cloak, judge: str
) -> None:
    """Found again by hand: from each try's noise alone, and by the encoder or the panel."""
    windows = example_windows(seed=5)
    scaled = windows.scaled(trained.scaling_)
    several, single = (copy.copy(trained) for _ in range(2))
    several.settings = trained.settings.with_changes(dict(tries=3, judge=judge))
    single.settings = trained.settings.with_changes(dict(tries=1))
    inputs = several._inputs(scaled, {}, np.random.default_rng(2))
    assert inputs["noise"].shape[:2] == (96, 3)
    with torch.no_grad():
        found = several._sampling(torch.Generator(), many=False)(inputs)
        each = torch.stack(
            [
                single._sampling(torch.Generator(), many=False)(
                    {**inputs, "noise": inputs["noise"][:, one]}
                )
                for one in range(3)
            ]
        )
        if judge == "features":
            like = [(trained._encoded(one) * inputs["told"]).sum(1) for one in each]
        else:
            told = trained._cells(scaled).unsqueeze(1)  # one of two: the likelier is the class
            signals = [trained.scaling_.undo(one.numpy()) for one in each]
            shares = [trained.panel_.probabilities(windows.replaced(one)) for one in signals]
            like = [torch.from_numpy(one).gather(1, told).squeeze(1) for one in shares]
        likeness = torch.stack(like)
        best = each[likeness.argmax(0), torch.arange(96)]
    torch.testing.assert_close(found, best, atol=1e-4, rtol=1e-4)
    assert len(likeness.argmax(0).unique()) == 3


def test_a_limit_holds_whatever_the_windows() -> None:
    obfuscator = Cloak(**{**TINY, "epochs": 50, "batch": 32, "limit": 12, "reader_epochs": 9,
                    "reader_batch": 24, "reader_limit": 8, "coder_limit": 1}).fit(
        example_windows(), "activity", "gender"
    )  # fmt: skip
    found = obfuscator.metrics_
    assert [len(found["generator_loss"]), len(found["encoder_loss_activity"])] == [4, 2]
    assert len(found["autoencoder_loss"]) == 1


def leaky_people() -> Windows:
    """Two activities; how strong a wave is names its person, and women's waves are weaker."""
    chance, count = np.random.default_rng(0), 480
    subject, activity = np.arange(count) % 8, np.arange(count) // 8 % 2
    time = np.arange(32)
    wave = (1 + 0.5 * subject[:, None]) * np.sin(time * (0.4 + 0.6 * activity[:, None]))
    signal = wave[:, None] + 0.1 * chance.normal(size=(count, 2, 32))
    labels = {"activity": activity, "gender": (subject > 3).astype(int), "subject": subject}
    return Windows.from_signal(signal, labels, sample_rate=50.0)


def test_the_run_says_what_is_told_beyond_the_class() -> None:
    """Amplitudes tell the gender; an encoder passes some of it on, and the bottleneck does not."""
    found = Cloak(**{**TINY, "reader_epochs": 8, "features": 16, "encoder": "8"}).fit(
        leaky_people(), "activity", "gender"
    )
    probe = found.metrics_["probe"]
    assert (probe["people"], probe["windows"]) == (4, 240)
    assert set(probe["z_U"]) == set(probe["told"]) == {"activity", "gender", "subject"}
    assert probe["told"]["activity"]["class_alone"] > 0.9
    open_, closed = probe["z_U"]["gender"], probe["told"]["gender"]
    assert open_["accuracy"] > open_["class_alone"] + 0.15
    assert closed["accuracy"] < closed["class_alone"] + 0.1


def test_several_kept_attributes_have_an_encoder_each(tiny: Cloak) -> None:
    """Section V-K: z_U of all of them side by side."""
    windows = example_windows()
    obfuscator = Cloak(**TINY).fit(windows, ["activity", "weight"], "gender")
    features = obfuscator._features(windows.scaled(obfuscator.scaling_))
    assert features.shape == (96, 16)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(96))
    torch.testing.assert_close(  # the first is the very encoder that is trained alone
        features[:, :8] * 2**0.5, tiny._features(windows.scaled(tiny.scaling_))
    )
    assert obfuscator.centres_.shape == (4, 16)


def test_one_more_attribute_leaves_all_else_alone(tiny: Cloak, tmp_path: Path) -> None:
    windows = example_windows()
    more = tiny.add_hidden(windows, "weight")
    assert all(more.nets_[which] is net for which, net in tiny.nets_.items())
    assert more.strength_names() == ("keep", "bottleneck", "gender", "weight")
    both = Cloak(**TINY).fit(windows, "activity", ["gender", "weight"])
    strong = {"gender": 1.0, "weight": 2.0}
    np.testing.assert_array_equal(
        more.obfuscate(windows, strong, seed=1).signal,
        both.obfuscate(windows, strong, seed=1).signal,
    )
    again = load_run(save_run(more, tmp_path / "run"))
    np.testing.assert_array_equal(
        again.obfuscate(windows, strong, seed=2).signal,
        more.obfuscate(windows, strong, seed=2).signal,
    )
    assert again.metrics_["probe"] == more.metrics_["probe"]


@pytest.mark.parametrize("modality", ["signal", "complex"])
def test_published_layers(modality: str) -> None:
    windows = example_windows(modality)
    obfuscator = Cloak("paper", **PUBLISHED).fit(windows, "activity", "gender")
    assert obfuscator._space() == (1, 60)
    assert obfuscator.obfuscate(windows, seed=1).shape == windows.shape


def test_published_layers_for_images() -> None:
    signal = np.random.default_rng(0).normal(size=(40, 1, 20, 15))
    labels = {"subject": np.arange(40) % 4, "gender": np.arange(40) % 2}
    windows = Windows.from_signal(signal, labels)
    obfuscator = Cloak("adience", **PUBLISHED).fit(windows, "subject", "gender")
    assert obfuscator._space() == (8, 4, 3)
    assert obfuscator.obfuscate(windows, seed=1).shape == (1, 20, 15)


def test_windows_of_unknown_class_train_what_they_can() -> None:
    windows = example_windows()
    activity, gender = windows.labels["activity"].copy(), windows.labels["gender"].copy()
    activity[:10], gender[20:30] = UNKNOWN, UNKNOWN
    windows = replace(windows, labels={**windows.labels, "activity": activity, "gender": gender})
    obfuscator = Cloak(**TINY).fit(windows, "activity", "gender")
    assert obfuscator.cells_.tolist() == [[0], [1]]
    assert np.isfinite(obfuscator.obfuscate(windows, seed=1).signal).all()


def test_the_condition_is_all_it_is_told(tiny: Cloak) -> None:
    windows = example_windows()
    assert tiny.condition(windows).shape == (96, 8)
    assert copied(tiny, avoids="predicted").condition(windows).shape == (96, 10)


def test_trainings_that_were_kept_are_taken_over(tmp_path: Path) -> None:
    """Fitted again from what the first fit kept, nothing is trained, and all is the same."""
    windows, places = example_windows(), []
    for _ in range(2):
        checkpoint = Checkpoint(tmp_path / "kept", seconds=0)
        obfuscator = Cloak(**TINY).fit(windows, "activity", "gender", checkpoint)
        places.append(obfuscator.obfuscate(windows, seed=1).signal)
    np.testing.assert_array_equal(*places)
    kept = {place.stem for place in (tmp_path / "kept").glob("*.safetensors")}
    assert kept == {"autoencoder", "encoder-activity", "generator", "auxiliary-gender"}


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("layers", "large", "unknown"),
        ("contrast", "people", "unknown"),
        ("tries", 0, "above 0"),
        ("bottleneck", 1.5, "from 0 to 1"),
        ("bottleneck", -0.1, "0 or more"),
        ("coder", "8-x", "whole numbers"),
        ("encoder", "8-16", "one number"),
        ("temperature", 0.0, "above 0"),
        ("latent", 0, "above 0"),
    ],
)
def test_settings_are_checked(name: str, value: object, limit: str) -> None:
    with pytest.raises(Refusal, match=limit):
        Cloak(**{name: value})


def test_a_denoiser_that_cannot_be_built_is_refused_before_training() -> None:
    with pytest.raises(Refusal, match="width"):
        Cloak("paper", width=7)
