"""The diffusion: what it makes follows code and noise alone, and comes back from a run."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from sensorveil.data.windows import Windows
from sensorveil.methods import conformance
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.seal import Seal
from sensorveil.methods.seal_diffusion import Diffusion, _course

LENGTH = 32


class Small(Diffusion):
    latent, coder, width, blocks = 6, (4,), 32, 1


def waves(count: int = 600) -> tuple[Windows, np.ndarray]:
    """Codes 0, 1 and 2 have one, two and four waves in a window, of any phase."""
    generator = np.random.default_rng(0)
    codes = np.arange(count) % 3
    angle = 2 * np.pi * np.arange(LENGTH) / LENGTH * 2.0 ** codes[:, None]
    wave = np.sin(angle + generator.uniform(0, 2 * np.pi, (count, 1)))
    return Windows.from_signal(np.stack([wave, -wave], axis=1) * 1.4), codes


@cache
def learnt() -> Small:
    windows, codes = waves()
    made = Small(steps=1500)
    made.fit(windows, codes, 3)
    return made


def test_what_is_made_follows_the_code():
    asked = np.repeat([0, 1, 2], 100)
    drawn = learnt().make(asked, np.random.default_rng(0))
    strongest = np.abs(np.fft.rfft(drawn[:, 0])).argmax(1)
    assert (strongest == 2**asked).mean() > 0.9
    np.testing.assert_allclose(drawn[:, 1], -drawn[:, 0], atol=0.5)
    assert 0.8 < drawn.std() < 1.4  # guidance makes it a little larger
    for code in range(3):  # and it is not always the same window
        assert drawn[asked == code].std(0).mean() > 0.5


def test_codes_and_noise_are_all_that_counts():
    asked = np.array([0, 1, 2, 1])
    one, same, other = (learnt().make(asked, np.random.default_rng(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any((1, 2)).all()


def test_training_is_repeated_by_its_seed():
    windows, codes = waves(60)
    drawn = [
        Small(seed, steps=8).fit(windows, codes, 3).make(codes, np.random.default_rng(0))
        for seed in (3, 3, 4)
    ]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()


@pytest.mark.parametrize("count", [50, 128, 1000, 60_000])
def test_trains_for_so_many_steps_however_many_windows_there_are(count):
    course = _course(500, 128, 1e-3, count)
    each = count // min(course.batch_size, count)
    assert 500 <= course.epochs * each < 500 + each


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_seal_conforms_with_it(check):
    check(Diffused, example_windows())


class Diffused(Seal):
    presets = {"fast": {"generator": "diffusion", "steps": 4, "epochs": 1, "width": 4}}  # noqa: RUF012


def test_joins_are_smooth():
    windows = example_windows()
    order = np.arange(len(windows))
    stream = replace(windows, recording=order // 24, start=order % 24 * LENGTH)
    rough, smooth = (
        Diffused(join=join).fit(stream, "activity", "gender").obfuscate(stream, seed=0).signal
        for join in (0.0, 0.2)
    )

    def jumps(signal: np.ndarray) -> np.ndarray:
        follows = np.flatnonzero(stream.start[1:])
        return np.abs(signal[follows + 1, :, 0] - signal[follows, :, -1]).mean(0)

    assert (jumps(smooth) < 0.1 * jumps(rough)).all()
