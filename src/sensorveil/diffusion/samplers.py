"""Samplers: from noise to windows, by a prediction of the noise at a few of the levels.

All are pure functions of one signature. A sampler knows neither how the network was built nor how
it is guided (`diffusion/guidance.py`): it is given a predictor. `steps` is how often it asks. All
begin at the highest level, ask last at the lowest, and return the clean window found there.

`ddim` and `ddpm` visit levels at even distances, as the authors' code does. The two solvers visit
`balanced_levels`: the usual even distances of log(signal / noise), in which the equation they solve
is smooth, made wider at both ends, where windows in standard units are all noise or all but done.

Coefficients are Python numbers and nothing waits for the device, so a pass of `ddim`,
`dpm-solver++` or `unipc` can be recorded as a CUDA graph; `ddpm` draws on the CPU in every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch

from sensorveil.diffusion.schedule import CLEAN, NoiseSchedule, Predictor, drawn_noise
from sensorveil.errors import Refusal


class Sampler(Protocol):
    """Turns x (n, *shape), noise of the highest level, into windows; x stays as it is."""

    def __call__(
        self,
        predict: Predictor,
        x: torch.Tensor,
        levels: NoiseSchedule,
        steps: int,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """`generator` (on the CPU) is needed by samplers that draw, and no other looks at it."""
        ...


def even_levels(levels: NoiseSchedule, steps: int) -> tuple[int, ...]:
    """Levels at even distances, from the highest to the lowest.

    >>> even_levels(NoiseSchedule.linear(), 5)
    (999, 749, 499, 249, 0)
    """
    top = _checked(levels, steps) - 1
    if steps == 1:
        return (top,)
    return tuple(top * place // (steps - 1) for place in reversed(range(steps)))


@lru_cache(maxsize=16)  # a stream asks for every window
def balanced_levels(levels: NoiseSchedule, steps: int) -> tuple[int, ...]:
    """Levels at even distances of arctan sqrt(noise / signal), from the highest to the lowest.

    They are closest where signal and noise are alike. For mixtures of Gaussians in standard units
    on the linear levels, 15 steps of either solver are about twice as exact as at even distances of
    log(signal / noise), and seven times or more as at even levels. No level is visited twice:
    where levels are too coarse for that, the next ones are taken.

    >>> balanced_levels(NoiseSchedule.linear(), 5)
    (999, 559, 266, 67, 0)
    """
    count = _checked(levels, steps)
    turns = np.arctan(np.exp([-levels.log_snr(t) / 2 for t in range(count)]))
    wanted = np.linspace(turns[-1], turns[0], steps)
    nearest: list[int] = np.abs(turns - wanted[:, None]).argmin(1).tolist()
    visited: list[int] = []
    for left, level in zip(reversed(range(steps)), nearest, strict=True):
        above = visited[-1] if visited else count
        visited.append(max(min(level, above - 1), left))
    return tuple(visited)


def _checked(levels: NoiseSchedule, steps: int) -> int:
    if not 1 <= steps <= len(levels):
        raise Refusal(f"steps must be from 1 to {len(levels)}, the noise levels; here is {steps}")
    return len(levels)


def ddim(
    predict: Predictor,
    x: torch.Tensor,
    levels: NoiseSchedule,
    steps: int,
    generator: torch.Generator | None = None,
    *,
    eta: float = 0.0,
) -> torch.Tensor:
    """DDIM of Song and others: equation (9) where eta is 0, and nothing is drawn then.

    With eta = 1 a step is drawn from q(x_s | x_t, x_0) at the x_0 that was predicted.

    >>> levels, x = NoiseSchedule.linear(), torch.randn(4, 2, 8)
    >>> of_zeros = lambda x, t: levels.epsilon_of(x, torch.zeros_like(x), t)
    >>> float(ddim(of_zeros, x, levels, steps=10).abs().max()) < 1e-5
    True
    """
    if not 0 <= eta <= 1:
        raise Refusal(f"eta must be from 0 to 1; here is {eta}")

    def exchanged(now: int, then: int) -> tuple[float, float]:
        spread = eta * _posterior_spread(levels, now, then)
        return spread, spread

    return _exchanging(predict, x, levels, steps, generator, exchanged)


def ddpm(
    predict: Predictor,
    x: torch.Tensor,
    levels: NoiseSchedule,
    steps: int,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """The ancestral sampler of Ho and others, equation (3): their algorithm 2.

    Its mean is that of DDIM with eta = 1, and the variance that it draws is beta, that of all
    noise since the next level, as in the authors' code. DDIM draws less (their beta tilde): with
    250 steps a standard normal comes out with a variance of 0.97 there, and of 1.00 here.
    """

    def exchanged(now: int, then: int) -> tuple[float, float]:
        fresh = 0.0 if then == CLEAN else _fresh_spread(levels, now, then)
        return _posterior_spread(levels, now, then), fresh

    return _exchanging(predict, x, levels, steps, generator, exchanged)


@torch.no_grad()
def _exchanging(
    predict: Predictor,
    x: torch.Tensor,
    levels: NoiseSchedule,
    steps: int,
    generator: torch.Generator | None,
    exchanged: Callable[[int, int], tuple[float, float]],
) -> torch.Tensor:
    """Equation (9), with some of the predicted noise exchanged for noise that is drawn.

    `exchanged` says for a step from one level to another the standard deviation of what is left
    out, and of what is drawn.
    """
    for now, then in pairwise([*even_levels(levels, steps), CLEAN]):
        epsilon = predict(x, now)
        signal, noise = levels.at(then)
        left_out, drawn = exchanged(now, then)
        rest = math.sqrt(noise**2 - left_out**2)
        x = signal * levels.clean_of(x, epsilon, now) + rest * epsilon
        if drawn > 0:
            if generator is None:
                raise ValueError("a sampler that draws noise needs a generator")
            x = x + drawn * drawn_noise(x, generator)
    return x


def _fresh_spread(levels: NoiseSchedule, now: int, then: int) -> float:
    """Standard deviation of q(x_now | x_then): the root of beta, if these are neighbours."""
    (signal, noise), (signal_then, noise_then) = levels.at(now), levels.at(then)
    return math.sqrt(noise**2 - (signal / signal_then * noise_then) ** 2)


def _posterior_spread(levels: NoiseSchedule, now: int, then: int) -> float:
    """Standard deviation of q(x_then | x_now, x_0): the root of Ho and others' beta tilde."""
    return levels.at(then)[1] / levels.at(now)[1] * _fresh_spread(levels, now, then)


@dataclass(frozen=True)
class _Move:
    """One step of the solvers: x_then = left x + gained ∫ e^(u - h) x̂_0(u) du over 0 to h.

    u is the growth of log(signal / noise), h is all of it; `moments` are that integral of 1, u
    and u². That is the exact solution that DPM-Solver++ (Lu and others) starts from.
    """

    left: float
    gained: float
    h: float
    moments: tuple[float, float, float]

    @classmethod
    def between(cls, levels: NoiseSchedule, now: int, then: int) -> _Move:
        signal, noise = levels.at(then)
        h = levels.log_snr(then) - levels.log_snr(now)
        zeroth = -math.expm1(-h)
        first = h - zeroth
        return cls(noise / levels.at(now)[1], signal, h, (zeroth, first, h**2 - 2 * first))

    def straight(
        self, x: torch.Tensor, clean: torch.Tensor, slope: torch.Tensor | None
    ) -> torch.Tensor:
        """With x̂_0 on the line from `clean` on, held at its value halfway."""
        middle = clean if slope is None else clean + self.h / 2 * slope
        return self.left * x + self.gained * self.moments[0] * middle

    def curved(
        self,
        x: torch.Tensor,
        clean: torch.Tensor,
        slope: torch.Tensor | None,
        reached: torch.Tensor,
        before: float,
    ) -> torch.Tensor:
        """With x̂_0 on the parabola through `reached`, and where the `slope` over `before` began."""
        ahead = (reached - clean) / self.h
        bend = torch.zeros_like(ahead) if slope is None else (ahead - slope) / (self.h + before)
        # Newton's form at u = 0 and u = h: clean + ahead u + bend u (u - h).
        zeroth, first, second = self.moments
        integral = zeroth * clean + first * ahead + (second - self.h * first) * bend
        return self.left * x + self.gained * integral


@torch.no_grad()
def _multistep(
    predict: Predictor,
    x: torch.Tensor,
    levels: NoiseSchedule,
    steps: int,
    generator: torch.Generator | None = None,
    *,
    corrected: bool,
) -> torch.Tensor:
    """Second-order steps in the predicted clean window, from what was asked already.

    The way from the lowest level to no noise is infinitely long in log(signal / noise), so no
    line is drawn there: what is predicted at the lowest level is the result.
    """
    visited = balanced_levels(levels, steps)
    clean = levels.clean_of(x, predict(x, visited[0]), visited[0])
    slope, before = None, 0.0
    for now, then in pairwise(visited):
        move = _Move.between(levels, now, then)
        guess = move.straight(x, clean, slope)
        reached = levels.clean_of(guess, predict(guess, then), then)
        x = move.curved(x, clean, slope, reached, before) if corrected else guess
        slope, before, clean = (reached - clean) / move.h, move.h, reached
    return clean


dpm_solver: Sampler = partial(_multistep, corrected=False)
"""DPM-Solver++ (2M) of Lu and others (2022): second order, one prediction a step."""

unipc: Sampler = partial(_multistep, corrected=True)
"""UniPC-2 of Zhao and others (2023): each step is corrected by the prediction at its own end.

The predictor with B(h) = e^h - 1 is the step of DPM-Solver++. In the corrector B(h) cancels, and
what is left is the integral of the parabola through the last three predictions; in the first step,
of the line through two. No prediction is made again at the corrected place, so it costs none.
"""

SAMPLERS: Mapping[str, Sampler] = {
    "ddpm": ddpm,
    "ddim": ddim,
    "dpm-solver++": dpm_solver,
    "unipc": unipc,
}
"""The samplers by name."""
