"""Noise levels: equations (1) and (2) by plain arithmetic, and the ways between x_0, x_t, noise."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.diffusion.schedule import CLEAN, NoiseSchedule, drawn_noise
from sensorveil.errors import Refusal

LINEAR, COSINE = NoiseSchedule.linear(), NoiseSchedule.cosine()


def test_linear_levels_are_products_of_what_is_left() -> None:
    product = 1.0
    for t in range(1000):
        product *= 1 - (1e-4 + (0.02 - 1e-4) * t / 999)
        signal, noise = LINEAR.at(t)
        assert signal == pytest.approx(math.sqrt(product), rel=1e-12)
        assert noise == pytest.approx(math.sqrt(1 - product), rel=1e-9)


def test_cosine_levels_follow_the_cosine() -> None:
    levels = NoiseSchedule.cosine(200)

    def part(t: int) -> float:
        return math.cos((t / 200 + 0.008) / 1.008 * math.pi / 2) ** 2

    for t in range(199):  # the last beta is cut, so that some signal is left
        assert levels.at(t)[0] ** 2 == pytest.approx(part(t + 1) / part(0), rel=1e-9)
    assert levels.at(199)[0] ** 2 == pytest.approx(1e-3 * levels.at(198)[0] ** 2, rel=1e-9)


def test_steps_of_equation_1_add_up_to_equation_2() -> None:
    chance = torch.Generator().manual_seed(0)
    betas = torch.linspace(0.01, 0.2, 12, dtype=torch.float64)
    levels = NoiseSchedule.of_betas(betas)
    x = torch.full((40_000,), 3.0)
    for t, beta in enumerate(betas.tolist()):
        x = math.sqrt(1 - beta) * x + math.sqrt(beta) * torch.randn(x.shape, generator=chance)
        signal, noise = levels.at(t)
        assert float(x.mean()) == pytest.approx(3 * signal, abs=0.025)
        assert float(x.std()) == pytest.approx(noise, rel=0.025)


def test_numbers_and_tensors_say_the_same() -> None:
    assert len(LINEAR) == len(LINEAR.signal) == len(LINEAR.noise) == 1000
    assert [LINEAR.at(t) for t in (0, 999)] == [
        (float(LINEAR.signal[t]), float(LINEAR.noise[t])) for t in (0, 999)
    ]
    assert LINEAR.log_snr(500) == pytest.approx(
        math.log(float(LINEAR.signal[500] / LINEAR.noise[500]))
    )
    moved = LINEAR.to("cpu")
    assert torch.equal(moved.signal, LINEAR.signal)
    assert moved.at(7) == LINEAR.at(7)


def test_below_the_lowest_there_is_only_the_clean_window() -> None:
    assert LINEAR.at(CLEAN) == (1.0, 0.0)
    for t in (-2, 1000):
        with pytest.raises(IndexError, match="noise level"):
            LINEAR.at(t)


@given(
    t=st.integers(0, 999),
    shape=st.lists(st.integers(1, 4), max_size=3),
    cosine=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_two_of_three_give_the_third(t: int, shape: list[int], cosine: bool) -> None:
    levels = COSINE if cosine else LINEAR
    chance = torch.Generator().manual_seed(t)
    clean, epsilon = torch.randn(2, 3, *shape, generator=chance, dtype=torch.float64)
    x = levels.noised(clean, epsilon, t)
    torch.testing.assert_close(levels.clean_of(x, epsilon, t), clean)
    torch.testing.assert_close(levels.epsilon_of(x, clean, t), epsilon)
    everywhere = torch.full((3,), t)
    torch.testing.assert_close(levels.noised(clean, epsilon, everywhere), x)
    torch.testing.assert_close(levels.clean_of(x, epsilon, everywhere), clean)
    torch.testing.assert_close(levels.epsilon_of(x, clean, everywhere), epsilon)


def test_every_window_has_its_own_level() -> None:
    x, epsilon = torch.ones(3, 2, 5), torch.full((3, 2, 5), 2.0)
    t = torch.tensor([0, 400, 999])
    noised = LINEAR.noised(x, epsilon, t)
    assert noised.dtype == torch.float32
    for window, level in zip(noised, t.tolist(), strict=True):
        signal, noise = LINEAR.at(level)
        torch.testing.assert_close(window, torch.full((2, 5), signal + 2 * noise))


@pytest.mark.parametrize(
    "make",
    [
        lambda: NoiseSchedule.linear(count=0),
        lambda: NoiseSchedule.linear(first=0.0),
        lambda: NoiseSchedule.linear(first=0.1, last=0.01),
        lambda: NoiseSchedule.linear(last=1.0),
        lambda: NoiseSchedule.cosine(count=0),
        lambda: NoiseSchedule.cosine(offset=0.0),
        lambda: NoiseSchedule(torch.tensor([0.9, 0.9]), torch.tensor([0.1, 0.1])),
        lambda: NoiseSchedule(torch.tensor([0.9, 0.0]), torch.tensor([0.1, 1.0])),
        lambda: NoiseSchedule(torch.tensor([]), torch.tensor([])),
    ],
)
def test_levels_that_are_none_are_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(Refusal, match="noise levels"):
        make()


def test_noise_need_not_be_what_the_signal_lacks() -> None:
    """RF-Diffusion adds amplitudes: equation (12) of the CSI paper without blur."""
    betas = torch.linspace(1e-4, 0.003, 100, dtype=torch.float64)
    signal = (1 - betas).cumprod(0).sqrt()
    noise = torch.stack(
        [(betas[: t + 1].sqrt() * signal[t] / signal[: t + 1]).sum() for t in range(100)]
    )
    levels = NoiseSchedule(signal, noise)
    assert levels.at(99)[0] == pytest.approx(0.925, abs=1e-3)
    assert levels.at(99)[1] == pytest.approx(3.59, abs=5e-3)


def test_drawn_noise_is_standard_and_the_generator_s() -> None:
    like = torch.zeros(50, 4, 100, dtype=torch.float64)
    noise = drawn_noise(like, torch.Generator().manual_seed(3))
    assert (noise.shape, noise.dtype) == (like.shape, like.dtype)
    assert float(noise.mean()) == pytest.approx(0, abs=0.02)
    assert float(noise.std()) == pytest.approx(1, abs=0.02)
    assert torch.equal(noise, drawn_noise(like, torch.Generator().manual_seed(3)))
    assert not torch.equal(noise, drawn_noise(like, torch.Generator().manual_seed(4)))
