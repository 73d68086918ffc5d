"""Samplers: from noise to clean windows in a few steps.

A sampler is made for a schedule and a number of steps. It is iterated for pairs of timesteps, and
`step` moves from one to the next, given the clean window that the denoiser predicts:

    sampler = DDIM(schedule, steps=50)
    for t, t_next in sampler:
        clean = schedule.to_clean(x, denoiser(x, t, condition), t)
        x = sampler.step(x, clean, t, t_next)

The last pair ends at `CLEAN`. Coefficients are Python numbers, so that a GPU never waits and the
loop can be captured as a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import torch

from sensorveil.diffusion.schedule import CLEAN, NoiseSchedule
from sensorveil.errors import Refusal


class DDIM:
    """DDIM of Song, Meng and Ermon (2020), deterministic: their equation (12) with sigma = 0.

    The papers' sampler. It visits timesteps at even distances.

    Examples
    --------
    >>> schedule, x = NoiseSchedule.linear(), torch.randn(4, 2, 8)
    >>> sampler = DDIM(schedule, steps=3)
    >>> list(sampler)
    [(999, 499), (499, 0), (0, -1)]
    >>> for t, t_next in sampler:
    ...     x = sampler.step(x, torch.zeros_like(x), t, t_next)
    >>> float(x.abs().max())
    0.0
    """

    def __init__(self, schedule: NoiseSchedule, steps: int) -> None:
        self.schedule, self.timesteps = schedule, even_timesteps(schedule, steps)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return pairwise((*self.timesteps, CLEAN))

    def step(self, x: torch.Tensor, clean: torch.Tensor, t: int, t_next: int) -> torch.Tensor:
        """x at t_next: the predicted clean window with the predicted noise of that timestep."""
        signal, noise = self.schedule.at(t_next)
        return signal * clean + noise * self.schedule.to_noise(x, clean, t)


class DPMSolver:
    """DPM-Solver++ (2M) of Lu and others (2022), their algorithm 2.

    Second order, with one prediction a step. It visits `balanced_timesteps`, and ends with the
    clean window predicted at the last of them: log(signal / noise) has no limit beyond. An object
    remembers the last prediction, so it serves one sampling.
    """

    def __init__(self, schedule: NoiseSchedule, steps: int) -> None:
        self.schedule, self.timesteps = schedule, balanced_timesteps(schedule, steps)
        self._last: tuple[torch.Tensor, float] | None = None

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return pairwise((*self.timesteps, CLEAN))

    def step(self, x: torch.Tensor, clean: torch.Tensor, t: int, t_next: int) -> torch.Tensor:
        """x at t_next, by a line through this prediction of the clean window and the last one."""
        if t_next == CLEAN:
            return clean
        signal, noise = self.schedule.at(t_next)
        h = self.schedule.log_snr(t_next) - self.schedule.log_snr(t)
        d = clean
        if self._last is not None:
            last, h_last = self._last
            d = clean + h / (2 * h_last) * (clean - last)  # D_i of algorithm 2, r_i = h_last / h
        self._last = clean, h
        return noise / self.schedule.at(t)[1] * x - signal * math.expm1(-h) * d


SAMPLERS: Mapping[str, type[DDIM | DPMSolver]] = {"ddim": DDIM, "dpm-solver++": DPMSolver}
"""The samplers by name."""


def even_timesteps(schedule: NoiseSchedule, steps: int) -> tuple[int, ...]:
    """Timesteps at even distances, from the highest to the lowest.

    >>> even_timesteps(NoiseSchedule.linear(), 5)
    (999, 749, 499, 249, 0)
    """
    top = _checked(schedule, steps) - 1
    if steps == 1:
        return (top,)
    return tuple(top * place // (steps - 1) for place in reversed(range(steps)))


def balanced_timesteps(schedule: NoiseSchedule, steps: int) -> tuple[int, ...]:
    """Timesteps at even distances of arctan sqrt(noise / signal), from the highest to the lowest.

    They are closest where signal and noise are alike. For mixtures of Gaussians in standard units,
    15 steps are about twice as exact as at even distances of log(signal / noise). No timestep is
    visited twice.

    >>> balanced_timesteps(NoiseSchedule.linear(), 5)
    (999, 559, 266, 67, 0)
    """
    count = _checked(schedule, steps)
    angles = np.arctan(np.exp([-schedule.log_snr(t) / 2 for t in range(count)]))
    wanted = np.linspace(angles[-1], angles[0], steps)
    nearest: list[int] = np.abs(angles - wanted[:, None]).argmin(1).tolist()
    visited: list[int] = []
    for left, t in zip(reversed(range(steps)), nearest, strict=True):
        above = visited[-1] if visited else count
        visited.append(max(min(t, above - 1), left))  # `left` timesteps are still to come
    return tuple(visited)


def _checked(schedule: NoiseSchedule, steps: int) -> int:
    if not 1 <= steps <= len(schedule):
        raise Refusal(f"steps must be from 1 to {len(schedule)}, the timesteps; here is {steps}")
    return len(schedule)
