"""The plain baselines: noise as loud and as private as it says, block means, and donors' windows."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from sensorveil.data.catalog import load
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.baselines import Downsample, Noise, Resample
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.run import save_run

# Noise.


def noise(windows, **settings):
    return Noise(**settings).fit(windows, keep="activity", hide="gender")


def many(kind="signal"):
    """Enough windows to measure noise well, each channel in units of its own."""
    windows = example_windows(kind)
    return Windows.from_signal(
        np.tile(windows.signal, (10, *(1,) * len(windows.shape))),
        {name: np.tile(codes, 10) for name, codes in windows.labels.items()},
    )


@pytest.mark.parametrize("snr", [-5.0, 12.0])
@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
def test_gaussian_noise_is_as_loud_as_it_says(kind, snr):
    windows = many(kind)
    added = noise(windows, snr=snr).obfuscate(windows, seed=1).signal - windows.signal
    axes = (0, *range(2, added.ndim))
    decibels = 10 * np.log10(windows.signal.var(axes) / added.var(axes))
    np.testing.assert_allclose(decibels, snr, atol=0.2)
    assert (np.abs(added.mean(axes)) < 0.02 * added.std(axes) + 1e-3 * windows.signal.std()).all()
    if kind == "complex":
        np.testing.assert_allclose(added.real.var(axes), added.imag.var(axes), rtol=0.05)


def test_gaussian_noise_is_gaussian_and_independent():
    windows = many()
    added = noise(windows, snr=0.0).obfuscate(windows, seed=1).signal - windows.signal
    unit = (added / windows.signal.std((0, 2), keepdims=True)).astype(np.float64)
    assert np.mean(unit**4) / np.mean(unit**2) ** 2 == pytest.approx(3, abs=0.15)
    assert abs(np.mean(unit[:, 0] * unit[:, 1])) < 0.02
    assert abs(np.mean(unit[..., 1:] * unit[..., :-1])) < 0.02


def test_each_window_has_its_own_epsilon():
    windows = many()
    obfuscator = noise(windows, kind="laplace", clip=10.0)
    epsilon = np.where(np.arange(960) % 2, 1000.0, 100.0)
    output = obfuscator.obfuscate(windows, {"epsilon": epsilon}, seed=1).signal
    added = obfuscator.scaling_.apply(output) - obfuscator.scaling_.apply(windows.signal)
    for start, own in ((1, 1000), (0, 100)):
        assert np.abs(added[start::2]).mean() == pytest.approx(2 * 10 * 64 / own, rel=0.03)


@pytest.mark.parametrize(("kind", "numbers"), [("signal", 64), ("complex", 128), ("image", 512)])
def test_laplace_noise_has_its_scale(kind, numbers):
    """The mean absolute deviation of Laplace noise is its scale, 2 clip d / epsilon."""
    windows = many(kind)
    obfuscator = noise(windows, kind="laplace", epsilon=50.0, clip=2.0)
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

    def __init__(self, value):
        self.value = value

    def laplace(self, size):
        return np.full(size, self.value)


def scale_and_clipped(obfuscator, signal):
    """The scale of the noise and the clipped signal, from the method's own output."""
    windows = Windows.from_signal(signal).standardized(obfuscator.scaling_)
    clipped, shifted = (obfuscator._obfuscate(windows, {}, Constant(v)) for v in (0.0, 1.0))
    return shifted - clipped, clipped


def log_density(at, middle, scale):
    return (-np.log(2 * scale) - np.abs(at - middle) / scale).sum()


@settings(max_examples=40, deadline=None)
@given(
    epsilon=st.floats(0.1, 20),
    clip=st.floats(0.5, 4),
    seed=st.integers(0, 999),
    is_complex=st.booleans(),
    spread=st.sampled_from([0.1, 1.0, 50.0]),
)
def test_no_output_tells_two_windows_apart_by_more_than_epsilon(
    epsilon, clip, seed, is_complex, spread
):
    """Local differential privacy: p(y | x) / p(y | x') <= exp(epsilon), for all x, x' and y."""
    rng = np.random.default_rng(seed)

    def drawn(count):
        signal = rng.normal(size=(count, 1, 3)) * spread
        return signal + 1j * rng.normal(size=signal.shape) if is_complex else signal

    training = Windows.from_signal(drawn(40), {"activity": [0, 1] * 20, "gender": [1, 0] * 20})
    obfuscator = noise(training, kind="laplace", epsilon=epsilon, clip=clip)
    scale, middle = scale_and_clipped(obfuscator, drawn(2))
    for at in (middle[0], middle[1], rng.normal(size=middle[0].shape) * spread):
        first, second = (log_density(at, middle[i], scale[i]) for i in (0, 1))
        assert abs(first - second) <= epsilon * (1 + 1e-3)


def test_epsilon_is_not_wasted():
    """Two windows at opposite ends of the clip reach the bound: the noise is no louder than due."""
    labels = {"activity": [0, 1] * 20, "gender": [1, 0] * 20}
    training = Windows.from_signal(np.random.default_rng(0).normal(size=(40, 1, 3)), labels)
    obfuscator = noise(training, kind="laplace", epsilon=2.0, clip=3.0)
    ends = np.stack([np.full((1, 3), 1e6), np.full((1, 3), -1e6)])
    scale, middle = scale_and_clipped(obfuscator, ends)
    ratio = log_density(middle[0], middle[0], scale[0]) - log_density(
        middle[0], middle[1], scale[1]
    )
    assert ratio == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"kind": "pink"}, "kind"),
        ({"kind": "laplace", "epsilon": 0.0}, "epsilon"),
        ({"kind": "laplace", "clip": -1.0}, "clip"),
        ({"kind": "laplace", "epsilon": np.inf}, "epsilon"),
        ({"snr": np.nan}, "snr"),
    ],
    ids=str,
)
def test_noise_settings_without_sense_are_refused(values, expected):
    with pytest.raises(Refusal, match=expected):
        Noise(**values)


def test_strengths_that_cannot_act_are_refused():
    windows = example_windows()
    with pytest.raises(Refusal, match="gaussian noise takes no strength 'epsilon'"):
        noise(windows).obfuscate(windows, {"epsilon": 1.0})
    obfuscator = noise(windows, kind="laplace")
    with pytest.raises(Refusal, match="laplace noise takes no strength 'snr'"):
        obfuscator.obfuscate(windows, {"snr": 1.0})
    with pytest.raises(Refusal, match="strength 'epsilon' must be above 0"):
        obfuscator.obfuscate(windows, {"epsilon": 0.0})


# Downsampling.


def downsampled(signal, strength=None, **settings):
    codes = np.arange(len(signal)) % 2
    windows = Windows.from_signal(signal, {"activity": codes, "gender": 1 - codes})
    obfuscator = Downsample(**settings).fit(windows, "activity", "gender")
    return obfuscator.obfuscate(windows, strength).signal


def by_hand(row, factor):
    """Means of blocks, then straight lines between the blocks' middles, level at the ends."""
    means = row.reshape(-1, factor).mean(1)
    middles = np.arange(len(means)) * factor + (factor - 1) / 2
    return np.interp(np.arange(len(row)), middles, means)


@settings(max_examples=30, deadline=None)
@given(
    factor=st.integers(1, 8),
    blocks=st.integers(2, 12),
    seed=st.integers(0, 99),
    is_complex=st.booleans(),
)
def test_downsampling_against_block_means_by_hand(factor, blocks, seed, is_complex):
    real, imaginary = np.random.default_rng(seed).normal(size=(2, 4, 2, factor * blocks))
    got = downsampled(real + 1j * imaginary if is_complex else real, factor=float(factor))
    parts = [(real, got.real), (imaginary, got.imag)][: 1 + is_complex]
    for before, after in parts:
        for window, output in zip(before.reshape(8, -1), after.reshape(8, -1), strict=True):
            np.testing.assert_allclose(output, by_hand(window, factor), atol=1e-4)


def test_a_large_factor_leaves_the_mean():
    signal = np.random.default_rng(0).normal(size=(4, 2, 30))
    means = np.broadcast_to(signal.mean(-1, keepdims=True), signal.shape)
    np.testing.assert_allclose(downsampled(signal, factor=1e9), means, atol=1e-5)


def test_images_are_downsampled_both_ways():
    image = np.random.default_rng(0).normal(size=(2, 1, 8, 12))
    for window, output in zip(image[:, 0], downsampled(image, factor=4.0)[:, 0], strict=True):
        wide = np.stack([by_hand(row, 4) for row in window])
        high = np.stack([by_hand(column, 4) for column in wide.T]).T
        np.testing.assert_allclose(output, high, atol=1e-4)


@pytest.mark.parametrize("factor", [0.5, -2.0, np.nan])
def test_factors_below_one_are_refused(factor):
    """Not a number would compare as no factor at all, and let the raw data through."""
    windows = example_windows()
    with pytest.raises(Refusal, match="factor"):
        Downsample(factor=factor)
    obfuscator = Downsample().fit(windows, "activity", "gender")
    with pytest.raises(Refusal, match="factor"):
        obfuscator.obfuscate(windows, {"factor": factor})


# Resampling.


def resample(windows, keep="activity", **settings):
    settings = {"width": 8, "epochs": 6, "batch_size": 16, **settings}
    return Resample(**settings).fit(windows, keep=keep, hide="gender")


def donors(output, training):
    """For each window of the output, the training window that it is, up to rounding."""
    output, training = (x.reshape(len(x), -1) for x in (output, training))
    scale = training.std(0) + 1e-12
    distances = np.abs((output[:, None] - training[None]) / scale).max(-1)
    assert (distances.min(1) < 1e-3).all()
    return distances.argmin(1)


def predicted(obfuscator, windows):
    standard = windows.standardized(obfuscator.scaling_)
    return obfuscator.kept_classes_[obfuscator.classifier_.predict(standard)]


@pytest.mark.parametrize("keep", [["activity"], ["activity", "weight"]])
def test_the_output_is_training_windows_of_the_predicted_class(keep):
    train, test = example_windows(), example_windows(seed=1)
    obfuscator = resample(train, keep)
    taken = donors(obfuscator.obfuscate(test, seed=1).signal, train.signal)
    for place, name in enumerate(keep):
        wanted = predicted(obfuscator, test)[:, place]
        np.testing.assert_array_equal(train.labels[name][taken], wanted)


@pytest.mark.parametrize("gender", [0, 1])
def test_every_donor_of_a_class_is_equally_likely_whatever_the_hidden_class(gender):
    train, counts = example_windows(), np.zeros(96)
    obfuscator, some = resample(train), train.select(train.labels["gender"] == gender)
    for seed in range(40):
        np.add.at(counts, donors(obfuscator.obfuscate(some, seed=seed).signal, train.signal), 1)
    found = np.bincount(predicted(obfuscator, some)[:, 0], minlength=2)
    expected = 40 * found[train.labels["activity"]] / 48
    # 96 draws like these lie within four standard deviations with near certainty.
    assert (np.abs(counts - expected) < 4 * np.sqrt(expected)).all()


def test_windows_of_unknown_class_are_never_given_away():
    train = example_windows()
    codes = train.labels["activity"].copy()
    codes[:40] = UNKNOWN
    obfuscator = resample(replace(train, labels={**train.labels, "activity": codes}))
    assert donors(obfuscator.obfuscate(train, seed=1).signal, train.signal).min() >= 40
    assert len(obfuscator.donors_) == len(train) - 40


def test_a_saved_run_holds_no_test_window(tmp_path):
    split = load("watch", "recording")
    # Samples that are all different can be recognised.
    store = np.arange(split.train.store.size, dtype=np.float32).reshape(split.train.store.shape)
    train, test = (replace(windows, store=store) for windows in (split.train, split.test))
    train, test = train.select(slice(None, None, len(train) // 60)), test.select(slice(0, 200))
    obfuscator = Resample(width=4, epochs=1).fit(train, "exercise", "side")
    arrays = load_file(save_run(obfuscator, tmp_path / "run") / "model.safetensors")
    assert set(arrays["method.donors.store"].ravel().tolist()) == set(train.signal.ravel().tolist())
    for name, array in arrays.items():
        if array.size > 1000:
            assert not np.isin(test.signal, array).any(), name
