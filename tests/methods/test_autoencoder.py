"""The four baselines: they conform, and each does what its name says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sensorveil.errors import Refusal
from sensorveil.methods import conformance
from sensorveil.methods.autoencoder import AttributeCAE, AttributeCVAE, AttributeVAE, GeneralVAE
from sensorveil.methods.class_autoencoder import ClassAutoencoder, LabelledWindows
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.registry import _REGISTERED as registry  # noqa: N811

ALL = (AttributeCAE, AttributeCVAE, AttributeVAE, GeneralVAE)


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.name)
def test_conforms(made: type[ClassAutoencoder], monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {**made.presets["fast"], "epochs": 8, "reader_epochs": 8}
    monkeypatch.setattr(made, "presets", {"fast": quick, "paper": {}})
    monkeypatch.setitem(registry, made.name, made)
    conformance.check_method(made)


def loudness(signal: np.ndarray, activity: np.ndarray) -> np.ndarray:
    """How loud the wave of the example windows is: 1 for gender 0, 1.5 for gender 1."""
    wave = np.sin(np.arange(32) * (0.4 + 0.6 * activity[:, None]))
    standard = signal[:, 0] / 9.81 - 5
    return (standard * wave).sum(1) / (wave**2).sum(1)


@pytest.mark.parametrize(
    ("made", "most"),
    # A plain autoencoder's code holds the gender, whatever its decoder is told; the others swap it.
    [(AttributeCAE, 0.3), (AttributeCVAE, -0.2), (AttributeVAE, 0.0), (GeneralVAE, 0.0)],
    ids=lambda given: getattr(given, "name", ""),
)
def test_the_planted_attribute_is_moved(made: type[ClassAutoencoder], most: float) -> None:
    windows = example_windows()
    gender, activity = windows.labels["gender"], windows.labels["activity"]

    def gap(signal: np.ndarray) -> float:
        loud = loudness(signal, activity)
        return float(loud[gender == 1].mean() - loud[gender == 0].mean())

    assert gap(windows.signal) == pytest.approx(0.5, abs=0.05)
    obfuscator = made(epochs=150).fit(windows, "activity", "gender")
    assert gap(obfuscator.obfuscate(windows, seed=1).signal) < most


def test_networks_and_what_the_decoder_is_told() -> None:
    windows = example_windows()
    weights = {}
    for made in ALL:
        obfuscator = made(epochs=1, reader_epochs=1).fit(windows, "activity", ["gender", "weight"])
        encoder, decoder = obfuscator.nets_.encoder.layers, obfuscator.nets_.decoder.layers
        weights[made.name] = (*encoder[-1].weight.shape[::2], decoder[0].weight.shape[1])
    assert weights == {  # networks, numbers that the encoder gives, numbers that the decoder gets
        "attribute-cae": (2, 10, 14),
        "attribute-cvae": (2, 20, 14),
        "attribute-vae": (2, 20, 10),
        "general-vae": (1, 20, 10),
    }


def test_a_plain_autoencoder_is_random_only_by_its_modifier() -> None:
    windows = example_windows()
    obfuscator = AttributeCAE(epochs=1, reader_epochs=1).fit(windows, "activity", "gender")
    first, second = (obfuscator.obfuscate(windows, seed=seed).signal for seed in (1, 2))
    np.testing.assert_array_equal(first, second)
    drawn = obfuscator.with_modifier("randomized")
    assert (drawn.obfuscate(windows, seed=1).signal != first).any()


def test_moving_between_means_refuses_stochastic_vectors() -> None:
    with pytest.raises(Refusal, match="takes 'deterministic' or 'probabilistic'"):
        GeneralVAE(modifier="randomized")
    obfuscator = AttributeVAE(epochs=1, reader_epochs=1).fit(
        example_windows(), "activity", "gender"
    )
    with pytest.raises(Refusal, match="takes 'deterministic' or 'probabilistic'"):
        obfuscator.with_modifier("randomized")


def planted(codes: np.ndarray, kept: np.ndarray, hidden: np.ndarray, **known: Any) -> np.ndarray:
    """The effects that are learnt from codes that are given instead of encoded."""
    obfuscator = AttributeVAE(latent=codes.shape[1])
    obfuscator.cells_, obfuscator.hidden_sizes_ = np.arange(2)[:, None], known["sizes"]
    obfuscator._codes = lambda *_: (codes, None)  # type: ignore[method-assign]
    obfuscator._learn_more(LabelledWindows(example_windows(), kept, hidden, []))
    return obfuscator.effects_


def test_effects_of_one_attribute_are_the_class_means() -> None:
    generator = np.random.default_rng(0)
    kept, hidden = generator.integers(2, size=200), generator.integers(3, size=(200, 1))
    codes = generator.normal(size=(200, 4)) + hidden
    effects = planted(codes, kept, hidden, sizes=(3,))
    for cell in range(2):
        own = codes[kept == cell]
        means = [own[hidden[kept == cell, 0] == h].mean(0) for h in range(3)]
        np.testing.assert_allclose(effects[cell], np.array(means) - own.mean(0), atol=1e-6)


def test_effects_of_attributes_that_go_together_are_told_apart() -> None:
    """Class means would count twice what two attributes share; one combination never occurs."""
    generator = np.random.default_rng(0)
    kept = generator.integers(2, size=300)
    hidden = np.array([[0, 0], [1, 1], [1, 2], [0, 1], [0, 2]])[generator.integers(5, size=300)]
    first, second = np.array([0.0, 2.0]), np.array([0.0, 1.0, -3.0])
    codes = (5 + first[hidden[:, 0]] + second[hidden[:, 1]])[:, None]
    effects = planted(codes, kept, hidden, sizes=(2, 3))
    for cell in range(2):
        np.testing.assert_allclose(np.diff(effects[cell, :2, 0]), [2], atol=1e-5)
        np.testing.assert_allclose(np.diff(effects[cell, 2:, 0]), [1, -4], atol=1e-5)


def test_codes_move_from_mean_to_mean() -> None:
    obfuscator = AttributeVAE(epochs=1, reader_epochs=1).fit(
        example_windows(), "activity", "gender"
    )
    kept, read = np.array([0, 1, 1]), np.array([[0], [1], [0]])
    told = np.eye(2, dtype=np.float32)[[1, 0, 0]]
    effects = obfuscator.effects_
    expected = [effects[0, 1] - effects[0, 0], effects[1, 0] - effects[1, 1], np.zeros(10)]
    np.testing.assert_allclose(obfuscator._shift(kept, read, told), expected, atol=1e-6)
