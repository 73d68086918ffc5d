"""Settings of the class autoencoders, and the three modifiers against their closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.errors import Refusal
from sensorveil.methods.autoencoder_settings import (
    AutoencoderSettings,
    MeanSettings,
    VariationalSettings,
    modified,
)

SIZES = (2, 3)


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def test_deterministic_is_an_injective_map_without_a_fixed_point() -> None:
    read = np.array([[first, second] for first in range(2) for second in range(3)])
    told = modified("deterministic", SIZES, read, 6, generator())
    first, second = told[:, :2].argmax(1), told[:, 2:].argmax(1)
    assert (first != read[:, 0]).all()
    assert (second != read[:, 1]).all()
    assert len({*zip(first.tolist(), second.tolist(), strict=True)}) == 6
    assert sorted(np.unique(told).tolist()) == [0, 1]
    np.testing.assert_array_equal(told.sum(1), 2)


def test_deterministic_needs_what_was_read() -> None:
    with pytest.raises(ValueError, match="needs what was read"):
        modified("deterministic", SIZES, None, 4, generator())


def test_probabilistic_is_uniform_and_independent() -> None:
    told = modified("probabilistic", SIZES, None, 60_000, generator())
    first, second = told[:, :2].argmax(1), told[:, 2:].argmax(1)
    shares = np.bincount(3 * first + second, minlength=6) / 60_000
    np.testing.assert_allclose(shares, 1 / 6, atol=0.006)  # four standard deviations
    assert sorted(np.unique(told).tolist()) == [0, 1]


def test_randomized_is_uniform_on_the_simplex() -> None:
    """A component of K has mean 1/K, variance (K-1)/(K^2 (K+1)); of two it is uniform itself."""
    told = modified("randomized", SIZES, None, 60_000, generator())
    pair, triple = told[:, :2], told[:, 2:]
    for part in (pair, triple):
        assert (part >= 0).all()
        np.testing.assert_allclose(part.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.quantile(pair[:, 0], [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.01)
    np.testing.assert_allclose(triple.mean(0), 1 / 3, atol=0.005)
    np.testing.assert_allclose(triple.var(0), 2 / 9 / 4, rtol=0.03)


def test_chance_comes_from_the_generator() -> None:
    for modifier in ("probabilistic", "randomized"):
        first = modified(modifier, SIZES, None, 9, generator())
        np.testing.assert_array_equal(first, modified(modifier, SIZES, None, 9, generator()))
        other = modified(modifier, SIZES, None, 9, np.random.default_rng(1))
        assert (first != other).any()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("widths", "256,128", "whole numbers with '-' between them"),
        ("widths", "", "whole numbers with '-' between them"),
        ("widths", "0-5", "whole numbers with '-' between them"),
        ("latent", 0, "above 0"),
        ("epochs", 0, "above 0"),
        ("reader_rate", 0.0, "above 0"),
        ("beta", -0.1, "0 or more"),
        ("modifier", "random", "known: deterministic, probabilistic, randomized"),
    ],
)
def test_settings_without_sense(name: str, value: object, expected: str) -> None:
    with pytest.raises(Refusal, match=expected):
        VariationalSettings(**{name: value})


def test_moving_between_means_needs_a_class() -> None:
    with pytest.raises(Refusal, match="modifier 'randomized' needs a decoder that is told"):
        MeanSettings(modifier="randomized")
    assert AutoencoderSettings(modifier="randomized").layers() == (512, 512, 256, 128)
