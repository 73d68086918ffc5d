"""PrivDiffuser: presets, regularisation, strengths, negative targets; killed, it goes on."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.diffusion.features import FeatureSettings
from sensorveil.diffusion.unet import UNetSettings
from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.privdiffuser import MutualInformation, PrivDiffuser, regularised_loss
from sensorveil.methods.run import load_run, run_card, save_run

TINY: dict[str, Any] = {
    "epochs": 2,
    "surrogate_epochs": 3,
    "unet_width": 8,
    "channels": (4, 8),
    "hidden_sizes": (16,),
    "sampling_steps": 4,
    "timesteps": 50,
    "negative_target": "predicted",
}


@pytest.fixture(scope="module")
def tiny() -> PrivDiffuser:
    return PrivDiffuser(**TINY).fit(example_windows(), "activity", "gender")


@pytest.fixture(scope="module")
def trained() -> PrivDiffuser:
    """Trained until its output can be classified; regularised a little, on so few windows."""
    settings = {"batch_size": 32, "epochs": 120, "unet_width": 16, "negative_target": "predicted"}
    settings |= {"surrogate_epochs": 40, "mutual_information_weight": 0.1}
    return PrivDiffuser(**settings).fit(example_windows(), "activity", "gender")


def test_preset_paper_has_the_papers_values() -> None:
    """Section 5.4; parameters are counted in tests/diffusion."""
    chosen = PrivDiffuser("paper").settings
    scales = chosen.guidance.guidance_scale, chosen.guidance.negative_scale
    assert (*scales, chosen.training.mutual_information_weight) == (7.8, 0.05, 8.0)
    sampling = chosen.sampling
    assert (sampling.sampler, sampling.sampling_steps, sampling.timesteps) == ("ddim", 50, 1000)
    assert chosen.networks.unet(is_image=False) == UNetSettings()
    assert chosen.networks.features(is_image=False) == FeatureSettings()
    wifihar = PrivDiffuser("wifihar").settings
    assert not wifihar.networks.unet(is_image=False).strided  # the network of 282 MB
    for preset, target in (("paper", "wearer"), ("diffusion", "none"), ("negation", "wearer")):
        assert PrivDiffuser(preset).settings.guidance.negative_target == target


def predictions(method: PrivDiffuser, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """The surrogate's kept class, and the auxiliary model's probabilities of the hidden one."""
    signal = torch.from_numpy(method._standard(windows).signal)
    with torch.no_grad():
        z_p, (logits,) = method.networks_["surrogate"](signal)
        return logits.argmax(1).numpy(), method._hidden_log_probs(
            "gender", signal, z_p
        ).exp().numpy()


@pytest.mark.slow
def test_the_kept_class_comes_out(trained: PrivDiffuser) -> None:
    windows = example_windows(seed=5)
    hidden = trained.obfuscate(windows, {"guidance_scale": 3.0, "gender": 0.0}, seed=1)
    assert (predictions(trained, hidden)[0] == windows.labels["activity"]).mean() > 0.85


@pytest.mark.slow
def test_a_larger_negative_scale_makes_the_avoided_class_less_likely(trained: PrivDiffuser) -> None:
    windows = example_windows(seed=5)
    avoided = trained._predict_hidden(trained._standard(windows), "gender")
    likely = []
    for scale in (0.0, 2.0, 5.0):
        hidden = trained.obfuscate(windows, {"guidance_scale": 0.0, "gender": scale}, seed=1)
        likely.append(predictions(trained, hidden)[1][np.arange(96), avoided].mean())
    assert likely[0] > likely[1] > likely[2]
    assert likely[2] < likely[0] - 0.03


def test_a_negative_scale_near_zero_acts_like_zero(tiny: PrivDiffuser) -> None:
    """And in proportion: 1e-12 must not act like 1e-3."""
    windows = example_windows()
    none, tiniest, small, large = (
        tiny.obfuscate(windows, {"gender": scale}, seed=1).signal / windows.signal.std()
        for scale in (0.0, 1e-12, 1e-3, 100.0)
    )
    np.testing.assert_allclose(tiniest, none, atol=1e-5)
    assert np.abs(small - none).max() < 0.05 * np.abs(large - none).max()
    assert np.abs(large - none).max() > 1e-3


def test_a_strength_that_cannot_act_is_refused(tiny: PrivDiffuser) -> None:
    windows, none = example_windows(), tiny.with_settings(negative_target="none")
    assert none.strength_names() == ("guidance_scale",)
    with pytest.raises(Refusal, match="'gender' cannot act: negative_target is none"):
        none.obfuscate(windows, {"gender": 1.0})
    with pytest.raises(Refusal, match="unknown"):
        tiny.obfuscate(windows, {"weight": 1.0})  # not hidden in this run
    np.testing.assert_array_equal(
        none.obfuscate(windows, seed=1).signal,
        tiny.obfuscate(windows, {"gender": 0.0}, seed=1).signal,
    )


def test_an_attribute_on_which_nothing_would_act_is_not_added(tiny: PrivDiffuser) -> None:
    windows = example_windows()
    for changes in ({"negative_target": "none"}, {"negative_scale": 0.0}):
        with pytest.raises(Refusal, match="nothing would act on 'weight'"):
            tiny.with_settings(**changes).add_hidden(windows, "weight")


def test_an_attribute_named_like_a_strength_is_refused(tiny: PrivDiffuser) -> None:
    windows = example_windows()
    labels, name = {**windows.labels}, "guidance_scale"
    labels[name] = labels.pop("weight")
    windows = replace(windows, labels=labels, classes={**windows.classes, name: ("0", "1")})
    with pytest.raises(Refusal, match="name of a strength"):
        tiny.add_hidden(windows, name)


def test_variants_are_those_that_can_differ(tiny: PrivDiffuser) -> None:
    targets = [other.settings.guidance.negative_target for other in tiny.variants().values()]
    assert targets == ["wearer", "random"]
    assert tiny.with_settings(negative_scale=0.0).variants() == {}
    assert tiny.with_settings(negative_target="none").variants() == {}


def test_the_wearers_class_can_be_avoided(tiny: PrivDiffuser) -> None:
    windows, strong = example_windows(), {"gender": 3.0}
    wearer = tiny.with_settings(negative_target="wearer")
    gender = windows.labels["gender"]
    flipped = replace(windows, labels={**windows.labels, "gender": 1 - gender})
    own = wearer.obfuscate(windows, strong, seed=1).signal
    assert np.abs(own - wearer.obfuscate(flipped, strong, seed=1).signal).max() > 1e-6
    unknown = replace(windows, labels={**windows.labels, "gender": np.full_like(gender, UNKNOWN)})
    np.testing.assert_array_equal(
        wearer.obfuscate(unknown, strong, seed=1).signal,
        wearer.obfuscate(windows, {"gender": 0.0}, seed=1).signal,
    )
    nameless = replace(windows, labels={"activity": windows.labels["activity"]})
    with pytest.raises(Refusal, match="true 'gender'"):
        wearer.obfuscate(nameless, strong, seed=1)
    needed = "needs the wearer's true hidden labels"
    assert needed in run_card(wearer)
    assert needed not in run_card(tiny)


def test_random_classes_are_drawn_anew(tiny: PrivDiffuser) -> None:
    method, windows = tiny.with_settings(negative_target="random"), example_windows()
    drawn = [
        method._negative_classes(windows, np.random.default_rng(seed))["gender"] for seed in (1, 2)
    ]
    assert (drawn[0] != drawn[1]).any()
    assert {*np.concatenate(drawn).tolist()} == {0, 1}


def test_one_more_hidden_attribute_leaves_the_denoiser_alone(
    tiny: PrivDiffuser, tmp_path: Path
) -> None:
    windows = example_windows()
    more = tiny.add_hidden(windows, "weight")
    assert all(more.networks_[which] is network for which, network in tiny.networks_.items())
    assert more.strength_names() == ("guidance_scale", "gender", "weight")
    assert tiny.policy_.hide == ("gender",)
    both = PrivDiffuser(**TINY).fit(windows, "activity", ["gender", "weight"])
    wanted = more.obfuscate(windows, seed=1).signal
    np.testing.assert_array_equal(wanted, both.obfuscate(windows, seed=1).signal)
    again = load_run(save_run(more, tmp_path / "run"))
    np.testing.assert_array_equal(again.obfuscate(windows, seed=1).signal, wanted)
    renamed = replace(windows, classes={**windows.classes, "weight": ("light", "heavy")})
    with pytest.raises(Refusal, match="other classes"):
        tiny.add_hidden(renamed, "weight")


def test_auxiliary_models_can_be_trained_anew_for_the_same_denoiser(tiny: PrivDiffuser) -> None:
    windows = example_windows()
    plain = tiny.with_regularisation(windows, 0.0)
    assert plain.networks_["denoiser"] is tiny.networks_["denoiser"]
    alone = PrivDiffuser(**TINY, mutual_information_weight=0.0)
    alone.fit(windows, "activity", "gender")
    np.testing.assert_array_equal(
        plain.obfuscate(windows, seed=1).signal, alone.obfuscate(windows, seed=1).signal
    )
    assert tiny.settings.training.mutual_information_weight > 0
    for bad in ({"unet_width": 16}, {"timesteps": 20}):
        with pytest.raises(Refusal, match="without training again"):
            tiny.with_settings(**bad)


@pytest.mark.parametrize("settings", [{"gradient": "full"}, {"sampler": "ddim"}])
def test_guidance_and_sampling_change_without_training(
    tiny: PrivDiffuser, settings: dict[str, str]
) -> None:
    windows, strong = example_windows(), {"gender": 1.0}
    other = tiny.with_settings(**settings).obfuscate(windows, strong, seed=1).signal
    assert np.isfinite(other).all()
    assert (other != tiny.obfuscate(windows, strong, seed=1).signal).any()


def test_samples_stay_within_the_range_of_the_training_windows(tiny: PrivDiffuser) -> None:
    windows = example_windows()
    hidden = tiny.obfuscate(windows, {"guidance_scale": 50.0, "gender": 20.0}, seed=1).signal
    room = 1e-3 * windows.signal.std((0, 2))
    assert (hidden.min((0, 2)) >= windows.signal.min((0, 2)) - room).all()
    assert (hidden.max((0, 2)) <= windows.signal.max((0, 2)) + room).all()


def test_the_condition_is_z_p_and_the_predicted_class(tiny: PrivDiffuser) -> None:
    windows = example_windows()
    assert tiny.condition(windows).shape == (96, 62)
    assert tiny.with_settings(negative_target="random").condition(windows).shape == (96, 60)


def test_equation_18_by_hand() -> None:
    """CE + w3 (I_1 + I_2), an estimate below zero counting as zero; gradients by differences."""
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(12, 4, generator=generator)
    logits = torch.randn(12, 2, generator=generator)
    hidden = torch.randint(2, (12,), generator=generator)
    kept = torch.randint(3, (12, 2), generator=generator)
    torch.manual_seed(0)
    estimator = MutualInformation([3, 3], features=4)
    optimizer = torch.optim.Adam(estimator.parameters(), 1e-3)
    for _ in range(20):  # learns these few by heart
        optimizer.zero_grad()
        estimator.loss(features, kept).backward()
        optimizer.step()
    for weights in estimator.networks[1].parameters():  # and forgets the second attribute again
        weights.data = 3 * weights.data.flip(0)
    features.requires_grad_()
    found = regularised_loss(features, logits, hidden, kept, estimator, weight=0.7)
    total, cut = cross_entropy(logits, hidden).item(), 0
    for number, network in enumerate(estimator.networks):
        label = one_hot(kept[:, number], 3).float()
        others = torch.cat([features[-1:], features[:-1]])
        true, shuffled = network(label, features).tolist(), network(label, others).tolist()
        information = sum(true) / 12 - math.log(sum(math.exp(one) for one in shuffled) / 12)
        cut += information < 0
        total += 0.7 * max(information, 0)
    assert cut == 1, "one of the two estimates is to be below zero, or the test shows less"
    assert found.item() == pytest.approx(total, rel=1e-4)
    (slope,) = torch.autograd.grad(found, features)
    step = torch.zeros_like(features)
    step[2, 1] = 1e-2
    ends = [
        regularised_loss((features + s * step).detach(), logits, hidden, kept, estimator, 0.7)
        for s in (-1, 1)
    ]
    difference = (ends[1] - ends[0]).item() / 2e-2
    assert slope[2, 1].item() == pytest.approx(difference, rel=0.05, abs=1e-3)


@pytest.mark.slow
def test_mutual_information_is_log_2_for_the_class_and_0_for_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (4000, 2), generator=generator)
    features = torch.randn(4000, 4, generator=generator)
    features[:, 0] = labels[:, 0] * 2.0 - 1
    torch.manual_seed(0)
    estimator = MutualInformation([2, 2], features=4)
    optimizer = torch.optim.Adam(estimator.parameters(), 1e-3)
    for _ in range(150):
        index = torch.randint(4000, (256,), generator=generator)
        optimizer.zero_grad()
        estimator.loss(features[index], labels[index]).backward()
        optimizer.step()
    with torch.no_grad():
        first, second = estimator.information(features, labels).tolist()
    assert abs(first - math.log(2)) < 0.1
    assert abs(second) < 0.1


SCRIPT = """
import sys, torch
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.privdiffuser import PrivDiffuser
from sensorveil.methods.run import save_run
from sensorveil.train import Checkpoint
torch.set_num_threads(1)
method = PrivDiffuser(epochs=25, surrogate_epochs=3, unet_width=8, batch_size=16)
checkpoint = Checkpoint(sys.argv[1] + ".unfinished", seconds=0)
save_run(method.fit(example_windows(), "activity", "gender", checkpoint), sys.argv[1])
"""


@pytest.mark.slow
def test_killed_and_started_again_it_ends_the_same(tmp_path: Path) -> None:
    """A real process, killed while its denoiser is trained; the weights are the same to a bit."""

    def start(name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / name)])

    killed = start("killed")
    under_way = tmp_path / "killed.unfinished" / "denoiser.safetensors"
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


@pytest.mark.parametrize(
    ("preset", "settings", "said"),
    [
        ("fast", {"prediction": "weather"}, "noise"),
        ("paper", {"patch_size": 4}, "patch_size"),
        ("fast", {"unet_width": 7}, "must be even"),
        ("fast", {"channels": "8,x"}, "integer"),
        ("fast", {"sampling_steps": 2000}, "at most 1000"),
        ("fast", {"negative_scale": -1.0}, "greater than or equal to 0"),
    ],
)
def test_impossible_settings_are_refused(preset: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(Refusal, match=said):
        PrivDiffuser(preset, **settings)
