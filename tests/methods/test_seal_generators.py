"""Generators see codes and noise; what they make has the statistics of the donors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.data.windows import Scaling, Windows
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.seal import Seal
from sensorveil.methods.seal_generators import Gaussian, Pool, adjoining, joined


def donors(kind: str = "signal", count: int = 400) -> tuple[Windows, np.ndarray]:
    generator = np.random.default_rng(0)
    codes = generator.integers(3, size=count)
    shape = {"image": (2, 4, 6)}.get(kind, (2, 12))
    signal = generator.normal(size=(count, *shape)) * (1 + codes).reshape(-1, *[1] * len(shape))
    if kind == "complex":
        signal = signal + 1j * generator.normal(size=signal.shape)
    return Windows.from_signal(signal), codes


def test_the_pool_gives_donors_of_the_code_and_all_alike():
    windows, codes = donors(count=30)
    asked = np.tile([0, 1, 2], 2000)
    made = Pool().fit(windows, codes, 3).make(asked, np.random.default_rng(0))
    apart = np.abs(made[:, None, 0, 0] - windows.signal[None, :, 0, 0])
    which = apart.argmin(1)
    np.testing.assert_array_equal(made, windows.signal[which])
    np.testing.assert_array_equal(codes[which], asked)
    counts, each = np.bincount(which, minlength=30), 2000 / np.bincount(codes)[codes]
    assert (np.abs(counts - each) < 5 * np.sqrt(each)).all()


def test_the_pool_is_in_standard_units_and_holds_its_donors_alone():
    windows, _ = donors(count=30)
    scaled = windows.scaled(Scaling.of(windows))
    pool = Pool().fit(scaled.select(slice(0, 10)), np.zeros(10, int), 1)
    made = pool.make(np.zeros(200, int), np.random.default_rng(0))
    assert set(made[:, 0, 0].tolist()) == set(scaled.signal[:10, 0, 0].tolist())
    assert pool.state()["store"].shape[-1] == 10 * windows.length


def test_overlapping_donors_cost_their_samples_once():
    recording = np.random.default_rng(0).normal(size=(1, 1, 100))
    whole = Windows.from_signal(recording)
    windows = replace(
        whole,
        length=20,
        offset=np.arange(0, 80, 5),
        start=np.arange(0, 80, 5),
        recording=np.zeros(16, int),
        labels={"subject": np.zeros(16, int)},
    )
    pool = Pool().fit(windows, np.arange(16) % 2, 2)
    assert pool.state()["store"].size == 95
    made = pool.make(np.array([1]), np.random.default_rng(0))[0]
    assert any((made == one).all() for one in windows.signal[1::2])


@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
def test_gaussians_have_the_mean_and_spread_of_their_code(kind):
    windows, codes = donors(kind, 3000)
    made = Gaussian().fit(windows, codes, 3)
    for code in range(3):
        own = windows.signal[codes == code]
        drawn = made.make(np.full(4000, code), np.random.default_rng(0))
        assert drawn.shape[1:] == own.shape[1:]
        assert np.iscomplexobj(drawn) == np.iscomplexobj(own)
        assert drawn.std() == pytest.approx(own.std(), rel=0.1)  # it leans on other codes
        np.testing.assert_allclose(drawn.mean(0), own.mean(0), atol=0.2)


def test_gaussians_keep_rhythm_and_how_channels_go_together():
    generator = np.random.default_rng(0)
    phase = generator.uniform(0, 2 * np.pi, (500, 1))
    wave = np.sin(np.arange(64) * 0.6 + phase)
    windows = Windows.from_signal(np.stack([wave, -2 * wave], axis=1))
    drawn = Gaussian().fit(windows, np.zeros(500, int), 1).make(np.zeros(200, int), generator)
    np.testing.assert_allclose(drawn[:, 1], -2 * drawn[:, 0], atol=1e-3)
    peak = np.abs(np.fft.rfft(drawn[:, 0] - drawn[:, 0].mean(-1, keepdims=True))).argmax(1)
    assert np.median(peak) == round(0.6 * 64 / (2 * np.pi))


def test_few_windows_make_few_codes_so_that_no_donor_is_given_away():
    windows = example_windows()
    obfuscator = Seal(epochs=1, width=4).fit(windows, "activity", "gender")
    assert obfuscator.metrics_["generator"] == "gaussian"
    assert min(n for n in obfuscator.metrics_["windows_by_code"] if n) >= 5
    made = obfuscator.obfuscate(windows, seed=0).signal
    scale = windows.signal.std((0, 2), keepdims=True)
    apart = np.abs((made[:, None] - windows.signal[None]) / scale).max((2, 3))
    assert apart.min() > 0.05


def test_gaussians_give_out_no_donor():
    windows, codes = donors(count=40)
    made = Gaussian().fit(windows, codes, 3).make(codes, np.random.default_rng(0))
    apart = np.abs(made[:, None] - windows.signal[None]).max((2, 3))
    assert apart.min() > 0.1


@pytest.mark.parametrize("made", [Pool, Gaussian])
def test_generators_come_back_from_their_arrays(made):
    windows, codes = donors("complex")
    first = made().fit(windows, codes, 3)
    again = made().restore(first.state(), windows.length)
    draws = [one.make(codes, np.random.default_rng(3)) for one in (first, again)]
    np.testing.assert_array_equal(*draws)


def test_only_what_adjoins_is_joined():
    recording = np.array([0, 0, 0, 1])
    start = np.array([8, 0, 4, 8])
    before = adjoining(recording, start, 8)
    assert before.tolist() == [1, -1, -1, -1]
    signal = np.random.default_rng(0).normal(size=(4, 2, 8))
    smooth = joined(signal, before, 4)
    np.testing.assert_array_equal(smooth[1:], signal[1:])
    np.testing.assert_allclose(smooth[0, :, 0], signal[1, :, -1])
    np.testing.assert_array_equal(smooth[0, :, 4:], signal[0, :, 4:])
