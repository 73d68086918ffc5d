"""Likeness: nearer windows score better, and a stored network scores the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.measures.inference import ClassifierSettings
from sensorveil.measures.likeness import Likeness

SMALL = ClassifierSettings(width=8, epochs=6, batch=32, rate=4e-3)


def waves(count: int, seed: int, noise: float = 0.1, shift: float = 0.0) -> Windows:
    """Slow and fast waves, two classes."""
    chance = np.random.default_rng(seed)
    codes = np.arange(count) % 2
    speed = (0.4 + 0.8 * codes + shift)[:, None] * np.arange(64)
    signal = np.sin(speed + chance.random((count, 1)) * 6)[:, None] * np.ones((1, 2, 1))
    return Windows.from_signal(
        signal + noise * chance.normal(size=signal.shape), {"activity": codes}
    )


@pytest.fixture(scope="module")
def learnt() -> Likeness:
    return Likeness("activity", SMALL).fit(waves(200, 0))


def test_the_further_away_the_worse(learnt: Likeness) -> None:
    real, chance = waves(200, 1), np.random.default_rng(0)
    others = [waves(200, 2), waves(200, 2, noise=0.6), waves(200, 2, noise=3.0)]
    fids = [learnt.fid(real, made) for made in others]
    ssims = [learnt.ssim(real, made, chance) for made in others]
    assert fids == sorted(fids)
    assert ssims == sorted(ssims, reverse=True)
    assert fids[0] < 0.2 * fids[2]


def test_ssim_compares_within_the_class(learnt: Likeness) -> None:
    real, made = waves(200, 1), waves(200, 2)
    crossed = Windows.from_signal(made.signal, {"activity": 1 - made.codes("activity")})
    chance = np.random.default_rng(0)
    assert learnt.ssim(real, made, chance) > learnt.ssim(real, crossed, chance) + 0.1
    with pytest.raises(Refusal, match="no real window"):
        learnt.ssim(real.select(real.codes("activity") == 0), made, chance)


def test_ssim_of_originals_is_place_by_place(learnt: Likeness) -> None:
    real = waves(60, 1)
    assert learnt.ssim(real, real) == pytest.approx(1.0)
    assert learnt.ssim(real, real.select(np.arange(60)[::-1])) < 0.95
    with pytest.raises(Refusal, match="as many"):
        learnt.ssim(real, waves(50, 1))


def test_a_stored_network_scores_the_same(learnt: Likeness, tmp_path: Path) -> None:
    real, made = waves(60, 1), waves(60, 2)
    place = tmp_path / "features.safetensors"
    learnt.save(place)
    again = Likeness("activity", SMALL).load(place, real)
    assert again.fid(real, made) == pytest.approx(learnt.fid(real, made), rel=1e-5)
    np.testing.assert_allclose(again.features(made), learnt.features(made), atol=1e-5)
    assert learnt.features(made).shape == (60, 64)


def test_files_that_do_not_fit(learnt: Likeness, tmp_path: Path) -> None:
    place = tmp_path / "features.safetensors"
    learnt.save(place)
    three = Windows.from_signal(np.zeros((6, 2, 64)), {"activity": np.arange(6) % 3})
    with pytest.raises(Refusal, match="does not fit"):
        Likeness("activity", SMALL).load(place, three)
    place.write_bytes(b"no network")
    with pytest.raises(Refusal, match="safetensors"):
        Likeness("activity", SMALL).load(place, three)
