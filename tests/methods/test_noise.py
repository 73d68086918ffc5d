"""Noise: as loud as it says, and as private as it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.noise import Noise


def fitted(windows: Windows, **settings: Any) -> Noise:
    return Noise(**settings).fit(windows, keep="activity", hide="gender")


def many(kind: str = "signal") -> Windows:
    """Enough windows to measure noise well, each channel in units of its own."""
    windows = example_windows(kind)
    return Windows.from_signal(
        np.tile(windows.signal, (10, *(1,) * len(windows.shape))),
        {name: np.tile(codes, 10) for name, codes in windows.labels.items()},
    )


def decibels(signal: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Signal-to-noise ratio of each channel."""
    axes = (0, *range(2, signal.ndim))
    return 10 * np.log10(signal.var(axes) / noise.var(axes))


@pytest.mark.parametrize("snr", [-5.0, 0.0, 12.0])
@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
def test_gaussian_noise_is_as_loud_as_it_says(kind: str, snr: float) -> None:
    windows = many(kind)
    added = fitted(windows, snr=snr).obfuscate(windows, seed=1).signal - windows.signal
    np.testing.assert_allclose(decibels(windows.signal, added), snr, atol=0.2)
    axes = (0, *range(2, added.ndim))
    assert (np.abs(added.mean(axes)) < 0.02 * added.std(axes) + 1e-3 * windows.signal.std()).all()


def test_gaussian_noise_is_gaussian_and_independent() -> None:
    windows = many()
    added = fitted(windows, snr=0.0).obfuscate(windows, seed=1).signal - windows.signal
    unit = (added / windows.signal.std((0, 2), keepdims=True)).astype(np.float64)
    assert np.mean(unit**4) / np.mean(unit**2) ** 2 == pytest.approx(3, abs=0.15)
    assert abs(np.mean(unit[:, 0] * unit[:, 1])) < 0.02
    assert abs(np.mean(unit[..., 1:] * unit[..., :-1])) < 0.02


def test_complex_noise_falls_on_both_parts_alike() -> None:
    windows = many("complex")
    added = fitted(windows, snr=3.0).obfuscate(windows, seed=1).signal - windows.signal
    np.testing.assert_allclose(added.real.var((0, 2)), added.imag.var((0, 2)), rtol=0.05)


def test_each_window_has_its_own_ratio() -> None:
    windows = many()
    snr = np.where(np.arange(len(windows)) % 2, 20.0, -10.0)
    added = fitted(windows).obfuscate(windows, {"snr": snr}, seed=1).signal - windows.signal
    power = windows.signal.var((0, 2)) / added[1::2].var((0, 2))
    np.testing.assert_allclose(10 * np.log10(power), 20, atol=0.3)
    power = windows.signal.var((0, 2)) / added[::2].var((0, 2))
    np.testing.assert_allclose(10 * np.log10(power), -10, atol=0.3)


def test_a_strength_beats_the_setting() -> None:
    windows = many()
    by_setting = fitted(windows, snr=6.0).obfuscate(windows, seed=1).signal
    by_strength = fitted(windows, snr=-6.0).obfuscate(windows, {"snr": 6.0}, seed=1).signal
    np.testing.assert_array_equal(by_setting, by_strength)


@pytest.mark.parametrize(("kind", "numbers"), [("signal", 64), ("complex", 128), ("image", 512)])
def test_laplace_noise_has_its_scale(kind: str, numbers: int) -> None:
    """The mean absolute deviation of Laplace noise is its scale, 2 clip d / epsilon."""
    windows = many(kind)
    obfuscator = fitted(windows, kind="laplace", epsilon=50.0, clip=2.0)
    unit = obfuscator.scaling_.apply(obfuscator.obfuscate(windows, seed=1).signal)
    before = obfuscator.scaling_.apply(windows.signal)
    parts = [(unit.real, before.real), (unit.imag, before.imag)]
    for noisy, clean in parts[: 2 if kind == "complex" else 1]:
        added = noisy - np.clip(clean, -2, 2)
        scale = 2 * 2.0 * numbers / 50.0
        assert np.abs(added).mean() == pytest.approx(scale, rel=0.02)
        # Laplace, not Gaussian: the standard deviation is the root of two times the scale.
        assert added.std() == pytest.approx(np.sqrt(2) * scale, rel=0.03)


class Constant:
    """Stands for the generator, so that the scale of the noise can be read off the output."""

    def __init__(self, value: float) -> None:
        self.value = value

    def laplace(self, size: tuple[int, ...]) -> np.ndarray:
        return np.full(size, self.value)


def scale_and_clipped(obfuscator: Noise, signal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scale of the noise and the clipped signal, from the method's own output."""
    windows = Windows.from_signal(signal).scaled(obfuscator.scaling_)
    clipped, shifted = (
        obfuscator._obfuscate(windows, {}, Constant(value))  # type: ignore[arg-type]
        for value in (0.0, 1.0)
    )
    return shifted - clipped, clipped


def densities(at: np.ndarray, middle: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The logarithm of a Laplace density, added up over the numbers of a window."""
    return (-np.log(2 * scale) - np.abs(at - middle) / scale).sum()


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(0.1, 20),
    clip=st.floats(0.5, 4),
    seed=st.integers(0, 999),
    complex_=st.booleans(),
    spread=st.sampled_from([0.1, 1.0, 50.0]),
)
def test_no_output_tells_two_windows_apart_by_more_than_epsilon(
    epsilon: float, clip: float, seed: int, complex_: bool, spread: float
) -> None:
    """Local differential privacy: p(y | x) / p(y | x') <= exp(epsilon), for all x, x' and y."""
    generator = np.random.default_rng(seed)

    def drawn(count: int) -> np.ndarray:
        signal = generator.normal(size=(count, 1, 3)) * spread
        return signal + 1j * generator.normal(size=signal.shape) if complex_ else signal

    training = Windows.from_signal(drawn(40), {"activity": [0, 1] * 20, "gender": [1, 0] * 20})
    obfuscator = fitted(training, kind="laplace", epsilon=epsilon, clip=clip)
    scale, middle = scale_and_clipped(obfuscator, drawn(2))
    for at in (drawn(1)[0], middle[0], middle[1]):
        logs = [
            sum(
                densities(part(at), part(middle[i]), abs(scale[i].real))
                for part in ((np.real, np.imag) if complex_ else (np.real,))
            )
            for i in (0, 1)
        ]
        assert abs(logs[0] - logs[1]) <= epsilon * (1 + 1e-3)


def test_epsilon_is_not_wasted() -> None:
    """Two windows at opposite ends of the clip reach the bound: the noise is no louder than due."""
    labels = {"activity": [0, 1] * 20, "gender": [1, 0] * 20}
    training = Windows.from_signal(np.random.default_rng(0).normal(size=(40, 1, 3)), labels)
    obfuscator = fitted(training, kind="laplace", epsilon=2.0, clip=3.0)
    ends = np.stack([np.full((1, 3), 1e6), np.full((1, 3), -1e6)])
    scale, middle = scale_and_clipped(obfuscator, ends)
    ratio = densities(middle[0], middle[0], scale[0]) - densities(middle[0], middle[1], scale[1])
    assert ratio == pytest.approx(2.0, rel=1e-4)


def test_each_window_has_its_own_epsilon() -> None:
    windows = many()
    obfuscator = fitted(windows, kind="laplace", clip=10.0)
    epsilon = np.where(np.arange(len(windows)) % 2, 1000.0, 100.0)
    hidden = obfuscator.obfuscate(windows, {"epsilon": epsilon}, seed=1)
    added = obfuscator.scaling_.apply(hidden.signal) - obfuscator.scaling_.apply(windows.signal)
    assert np.abs(added[1::2]).mean() == pytest.approx(2 * 10 * 64 / 1000, rel=0.03)
    assert np.abs(added[::2]).mean() == pytest.approx(2 * 10 * 64 / 100, rel=0.03)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"kind": "pink"}, "kind of noise 'pink' is unknown; known: gaussian, laplace"),
        ({"kind": "laplace", "epsilon": 0.0}, "must be above 0"),
        ({"kind": "laplace", "clip": -1.0}, "must be above 0"),
        ({"kind": "laplace", "epsilon": np.nan}, "epsilon"),
        ({"kind": "laplace", "epsilon": np.inf}, "epsilon"),
        ({"snr": np.nan}, "snr"),
        ({"snr": np.inf}, "snr"),
    ],
    ids=str,
)
def test_wrong_settings(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(Refusal, match=expected):
        fitted(example_windows(), **settings)


def test_wrong_strengths() -> None:
    windows = example_windows()
    with pytest.raises(Refusal, match="gaussian noise takes no strength 'epsilon'"):
        fitted(windows).obfuscate(windows, {"epsilon": 1.0})
    obfuscator = fitted(windows, kind="laplace")
    with pytest.raises(Refusal, match="laplace noise takes no strength 'snr'"):
        obfuscator.obfuscate(windows, {"snr": 1.0})
    for bad in (0.0, -1.0):
        with pytest.raises(Refusal, match="strength 'epsilon' must be above 0"):
            obfuscator.obfuscate(windows, {"epsilon": bad})
