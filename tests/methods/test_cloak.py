"""CLOAK: the paper's networks and presets, InfoNCE, guidance, and what z_U tells."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.cloak import AuxiliaryModel, Cloak, info_nce
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.policy import Policy
from sensorveil.train import Checkpoint

TINY: dict[str, Any] = {
    "epochs": 2,
    "autoencoder_epochs": 1,
    "encoder_epochs": 3,
    "unet_width": 8,
    "features": 8,
    "latent_size": 8,
    "autoencoder_sizes": (16, 12),
    "autoencoder_channels": (4, 6, 8),
    "encoder_channels": (4, 4),
    "encoder_hidden_sizes": (8,),
    "auxiliary_sizes": (16,),
    "sampling_steps": 4,
    "timesteps": 50,
    "batch_size": 32,
}


@pytest.fixture(scope="module")
def tiny() -> Cloak:
    return Cloak(**TINY).fit(example_windows(), "activity", "gender")


def test_preset_paper_has_the_papers_values() -> None:
    """Sections V-C and V-D."""
    chosen = Cloak("paper").settings
    scales = (chosen.guidance.guidance_scale, chosen.guidance.negative_scale)
    assert (*scales, chosen.training.kl_weight) == (4.5, 0.008, 1e-6)
    assert chosen.guidance.negative_target == "wearer"
    sampling = chosen.sampling
    assert (sampling.sampler, sampling.sampling_steps, sampling.timesteps) == ("ddim", 50, 1000)
    assert (chosen.networks.latent_size, chosen.training.autoencoder_learning_rate) == (60, 1e-3)
    found = {}
    for name in ("mobiact", "wifihar", "audiomnist", "adience"):
        settings = Cloak(name).settings
        scales = settings.guidance.guidance_scale, settings.guidance.negative_scale
        found[name] = (*scales, settings.training.epochs)
    assert found == {
        "mobiact": (4.0, 0.05, 28),
        "wifihar": (6.0, 0.005, 80),
        "audiomnist": (2.0, 0.07, 120),
        "adience": (6.0, 0.5, 80),
    }
    assert Cloak("audiomnist").settings.training.kl_weight == 1e-7


def parameters(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


def built(preset: str, shape: tuple[int, ...]) -> Cloak:
    """A method that knows its windows and policy, not fitted."""
    cloak = Cloak(preset)
    cloak.shape_, cloak.complex_ = shape, False
    cloak.policy_ = Policy.of("activity", "gender")
    cloak.classes_ = {"activity": ("a", "b", "c", "d"), "gender": ("f", "m")}
    return cloak


def test_networks_of_preset_paper_have_the_sizes_of_table_vi() -> None:
    """U-Net, decoder, Aux-U and Aux-S in millions: in all 80.21, and 305.98 MB."""
    cloak = built("paper", (2, 128))
    with torch.device("meta"):
        autoencoder, encoder = cloak._build_autoencoder(), cloak._build_network("encoder of x")
        unet, auxiliary = cloak._build_unet((60,)), AuxiliaryModel(60, 60, 2)
    counts = [
        parameters(unet) - parameters(unet.condition[0]),  # the table leaves that out
        parameters(autoencoder.decoder),
        parameters(encoder),
        parameters(auxiliary),
    ]
    assert [round(count / 1e6, 2) for count in counts] == [38.41, 7.38, 34.19, 0.23]
    assert round(sum(counts) * 4 / 2**20, 2) == 305.98


def test_latents_of_images_are_images_in_preset_adience() -> None:
    cloak = built("adience", (1, 80, 80))
    with torch.device("meta"):
        latent_shape = cloak._build_autoencoder().latent_shape
        assert latent_shape == (8, 16, 16)
        assert cloak._build_unet(latent_shape).settings.kernel_dims == 2


def unit(count: int, size: int) -> torch.Tensor:
    return nn.functional.normalize(
        torch.randn(count, size, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    )


def slow_info_nce(features: torch.Tensor, codes: list[int], temperature: float) -> float:
    """Equation (6) written out: every anchor, every positive, all negatives."""
    losses = []
    for i, anchor in enumerate(features):
        negatives = sum(
            math.exp(float(anchor @ other) / temperature)
            for other, code in zip(features, codes, strict=True)
            if code != codes[i]
        )
        for j, positive in enumerate(features):
            if j != i and codes[j] == codes[i]:
                alike = math.exp(float(anchor @ positive) / temperature)
                losses.append(-math.log(alike / (alike + negatives)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("temperature", [0.1, 2.0])
@pytest.mark.parametrize("codes", [[0, 1, 0, 1, 2, 2, 0], [0, 0, 1, 2, 3, 4, 5]])
def test_info_nce_is_equation_6_written_out(codes: list[int], temperature: float) -> None:
    features = unit(7, 4)
    found = info_nce(features, torch.tensor(codes), temperature)
    assert float(found) == pytest.approx(slow_info_nce(features, codes, temperature))


def test_gradients_of_info_nce_are_finite_without_a_pair_and_right_with_one() -> None:
    for codes in ([0, 0, 0], [0, 1, 2]):
        features = unit(3, 4).requires_grad_()
        loss = info_nce(features, torch.tensor(codes), 0.05)
        (gradient,) = torch.autograd.grad(loss, features)
        assert loss.item() == pytest.approx(0.0, abs=1e-6)
        assert torch.isfinite(gradient).all()
    features, codes = unit(5, 3).requires_grad_(), torch.tensor([0, 1, 0, 1, 2])
    assert torch.autograd.gradcheck(lambda z: info_nce(z, codes, 0.3), (features,))


@pytest.mark.slow
def test_the_kept_class_comes_out() -> None:
    settings = {"epochs": 120, "encoder_epochs": 20, "autoencoder_epochs": 80, "unet_width": 16}
    windows = example_windows()
    cloak = Cloak(batch_size=48, **settings).fit(windows, "activity", "gender")
    hidden = cloak.obfuscate(windows, {"guidance_scale": 2.0}, seed=1)
    before, after = (cloak._make_conditions(cloak._standard(w)) for w in (windows, hidden))
    codes = torch.from_numpy(windows.labels["activity"])
    centers = torch.stack([before[codes == code].mean(0) for code in (0, 1)])
    assert ((after @ centers.T).argmax(1) == codes).float().mean() > 0.85


def test_a_larger_negative_scale_makes_the_avoided_class_less_likely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the latents that are sampled, as the auxiliary model finds."""
    cloak = Cloak(**{**TINY, "encoder_epochs": 40, "negative_target": "predicted"})
    windows = cloak.fit(example_windows(), "activity", "gender")._standard(example_windows())
    monkeypatch.setattr(cloak._diffusion, "decode", lambda z: z)
    avoided = torch.from_numpy(cloak._predict_hidden(windows, "gender"))
    features, likely = cloak._make_conditions(windows), []
    for scale in (0.0, 5.0, 20.0):
        strength = {"gender": np.full(96, scale)}
        z = torch.from_numpy(cloak._obfuscate(windows, strength, np.random.default_rng(0)))
        with torch.no_grad():
            log_probs = cloak._hidden_log_probs("gender", z, features)
        likely.append(log_probs.exp().gather(1, avoided[:, None]).mean().item())
    assert likely[0] > likely[1] > likely[2]
    assert likely[2] < likely[0] - 0.05


def test_several_kept_attributes_have_an_encoder_each(tiny: Cloak) -> None:
    """Section V-K: z_U of all of them side by side."""
    windows = example_windows()
    cloak = Cloak(**TINY).fit(windows, ["activity", "weight"], "gender")
    features = cloak._make_conditions(cloak._standard(windows))
    assert features.shape == (96, 16)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(96))
    alone = tiny._make_conditions(tiny._standard(windows))  # the very encoder trained alone
    torch.testing.assert_close(features[:, :8] * 2**0.5, alone)


def test_one_more_hidden_attribute_is_as_if_trained_at_once(tiny: Cloak) -> None:
    windows, strong = example_windows(), {"gender": 1.0, "weight": 2.0}
    more = tiny.add_hidden(windows, "weight").obfuscate(windows, strong, seed=1)
    both = Cloak(**TINY).fit(windows, "activity", ["gender", "weight"])
    np.testing.assert_array_equal(more.signal, both.obfuscate(windows, strong, seed=1).signal)


def leaky_people() -> Windows:
    """Two activities; the strength of a wave names its person, and women's waves are weaker."""
    rng, count = np.random.default_rng(0), 480
    subject, activity = np.arange(count) % 8, np.arange(count) // 8 % 2
    wave = (1 + 0.5 * subject[:, None]) * np.sin(np.arange(32) * (0.4 + 0.6 * activity[:, None]))
    signal = wave[:, None] + 0.1 * rng.normal(size=(count, 2, 32))
    labels = {"activity": activity, "gender": (subject > 3).astype(int), "subject": subject}
    return Windows.from_signal(signal, labels, sample_rate=50.0)


def test_the_probe_finds_what_z_u_tells_beyond_the_class() -> None:
    windows = leaky_people()
    cloak = Cloak(**{**TINY, "encoder_epochs": 8, "features": 16}).fit(
        windows, "activity", "gender"
    )
    assert "probe" not in cloak.metrics_
    found = {probe.attribute: probe for probe in cloak.condition_probe(windows)}
    assert set(found) == {"gender", "subject"}
    gender = found["gender"]
    assert (gender.source, gender.people, gender.windows) == ("z_U", 4, 240)
    assert gender.accuracy > gender.class_alone + 0.15
    with pytest.raises(Refusal, match="do not fit"):
        cloak.condition_probe(example_windows("image"))


def test_a_finished_training_is_taken_from_the_checkpoint(tmp_path: Path) -> None:
    windows, outputs = example_windows(), []
    for _ in range(2):
        checkpoint = Checkpoint(tmp_path / "kept", seconds=0)
        cloak = Cloak(**TINY).fit(windows, "activity", "gender", checkpoint)
        outputs.append(cloak.obfuscate(windows, seed=1).signal)
    np.testing.assert_array_equal(*outputs)
    kept = {path.stem for path in (tmp_path / "kept").glob("*.safetensors")}
    assert kept == {"autoencoder", "encoder-activity", "denoiser", "auxiliary-gender"}


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("sampler", "euler", "ddim"),
        ("sampling_steps", 2000, "at most 1000"),
        ("negative_target", "nobody", "wearer"),
        ("condition_dropout", 1.0, "less than 1"),
        ("autoencoder_sizes", "8,x", "integer"),
        ("auxiliary_sizes", (), "whole numbers"),
        ("temperature", 0.0, "greater than 0"),
        ("guidance_scale", -1.0, "greater than or equal to 0"),
        ("unet_width", 7, "must be even"),
        ("tries", 4, "unknown"),
    ],
)
def test_impossible_settings_are_refused(name: str, value: object, limit: str) -> None:
    with pytest.raises(Refusal, match=limit):
        Cloak(**{name: value})
