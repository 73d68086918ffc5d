"""The noise levels of a diffusion model, and what may be said of a window at one of them.

Equation (2) of PrivDiffuser (equation (2) of CLOAK): x_t = sqrt(alpha_bar_t) x_0 + sqrt(1 -
alpha_bar_t) epsilon. Here t counts from 0, the least noise, to T - 1; the papers count from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from sensorveil.errors import Refusal

Denoiser = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(x (n, *shape), t (n,) long, condition (n, d)) to the noise in x; a zero condition is none.

Some take fewer times and conditions, each for as many windows that follow one another.
"""

Predictor = Callable[[torch.Tensor, int], torch.Tensor]
"""(x (n, *shape), t) to the noise in x, all windows at one level: what a sampler is given."""

CLEAN = -1
"""The level below all others: no noise."""

_LARGEST = 0.999
"""The cosine schedule ends in a beta of 1, which leaves no signal to divide by; this is cut to."""


@dataclass(frozen=True, eq=False)
class NoiseSchedule:
    """How much signal and how much noise there is at each of T levels: two tensors (T,), float64.

    Nothing here needs signal² + noise² = 1, only that there is less signal for the noise at every
    next level; so the levels of RF-Diffusion, whose noise adds up otherwise, can be given as they
    are. `at` answers in Python numbers, without asking the device: a sampling pass on a GPU does
    not wait, and can be recorded.

    >>> levels = NoiseSchedule.linear()
    >>> len(levels), levels.at(CLEAN)
    (1000, (1.0, 0.0))
    >>> signal, noise = levels.at(999)
    >>> round(signal, 4), round(noise, 4)
    (0.0064, 1.0)
    """

    signal: torch.Tensor
    noise: torch.Tensor
    _numbers: tuple[tuple[float, float], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        numbers = tuple(zip(self.signal.tolist(), self.noise.tolist(), strict=True))
        object.__setattr__(self, "_numbers", numbers)
        if not numbers or min(map(min, numbers)) <= 0:
            raise Refusal("noise levels need some signal and some noise at every level")
        ratios = [self.log_snr(t) for t in range(len(numbers))]
        if any(after >= before for before, after in pairwise(ratios)):
            raise Refusal("noise levels must have more noise for the signal at every next level")

    @classmethod
    def linear(cls, count: int = 1000, first: float = 1e-4, last: float = 0.02) -> NoiseSchedule:
        """beta_t of equation (1) on a line, as in Ho and others and in both papers' code."""
        if not (count >= 1 and 0 < first <= last < 1):
            raise Refusal(
                f"linear noise levels need count >= 1 and 0 < first <= last < 1; here are "
                f"count {count}, first {first}, last {last}"
            )
        return cls.of_betas(torch.linspace(first, last, count, dtype=torch.float64))

    @classmethod
    def cosine(cls, count: int = 1000, offset: float = 0.008) -> NoiseSchedule:
        """alpha_bar on a squared cosine, of Nichol and Dhariwal: less time in noise alone."""
        if not (count >= 1 and 0 < offset < 1):
            raise Refusal(
                f"cosine noise levels need count >= 1 and 0 < offset < 1; here are count {count}, "
                f"offset {offset}"
            )
        time = torch.linspace(0, 1, count + 1, dtype=torch.float64)
        alpha_bar = torch.cos((time + offset) / (1 + offset) * math.pi / 2) ** 2
        return cls.of_betas((1 - alpha_bar[1:] / alpha_bar[:-1]).clamp(max=_LARGEST))

    @classmethod
    def of_betas(cls, betas: torch.Tensor) -> NoiseSchedule:
        """From the variances that are added from level to level, equation (1)."""
        log_alpha_bar = torch.log1p(-betas.double()).cumsum(0)
        return cls((log_alpha_bar / 2).exp(), (-torch.expm1(log_alpha_bar)).sqrt())

    def __len__(self) -> int:
        return len(self._numbers)

    def to(self, device: torch.device | str) -> NoiseSchedule:
        """The same levels with their tensors on that device."""
        return NoiseSchedule(self.signal.to(device), self.noise.to(device))

    def at(self, t: int) -> tuple[float, float]:
        """Signal and noise at level t, or where nothing is noised at all (`CLEAN`)."""
        if t == CLEAN:
            return 1.0, 0.0
        if not 0 <= t < len(self):
            raise IndexError(f"noise level {t} of {len(self)}")
        return self._numbers[t]

    def log_snr(self, t: int) -> float:
        """log(signal / noise), half of the log of the signal-to-noise ratio: the solvers' time."""
        signal, noise = self.at(t)
        return math.log(signal) - math.log(noise)

    def noised(
        self, clean: torch.Tensor, epsilon: torch.Tensor, t: torch.Tensor | int
    ) -> torch.Tensor:
        """x_t of equation (2); t is one level for each window (n,), or one for all."""
        signal, noise = self._beside(clean, t)
        return signal * clean + noise * epsilon

    def clean_of(
        self, x: torch.Tensor, epsilon: torch.Tensor, t: torch.Tensor | int
    ) -> torch.Tensor:
        """x_0 where x_t and its noise are known: equation (2) solved, as in equation (19).

        >>> levels, x = NoiseSchedule.linear(), torch.randn(4, 2, 8)
        >>> noised = levels.noised(x, epsilon := torch.randn(4, 2, 8), t=300)
        >>> bool(torch.allclose(levels.clean_of(noised, epsilon, t=300), x, atol=1e-5))
        True
        """
        signal, noise = self._beside(x, t)
        return (x - noise * epsilon) / signal

    def epsilon_of(
        self, x: torch.Tensor, clean: torch.Tensor, t: torch.Tensor | int
    ) -> torch.Tensor:
        """The noise in x_t where x_0 is known: for networks that predict the clean window."""
        signal, noise = self._beside(x, t)
        return (x - signal * clean) / noise

    def _beside(
        self, x: torch.Tensor, t: torch.Tensor | int
    ) -> tuple[torch.Tensor, torch.Tensor] | tuple[float, float]:
        """Signal and noise in a form that multiplies x."""
        if isinstance(t, int):
            return self.at(t)
        shape = (-1,) + (1,) * (x.ndim - 1)
        return (
            self.signal[t].to(x.dtype).view(shape),
            self.noise[t].to(x.dtype).view(shape),
        )


def drawn_noise(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Standard normal numbers of the shape, kind and device of `like`.

    They are drawn on the CPU (where the generator must be) and moved: the same on every device.

    >>> first, second = (torch.Generator().manual_seed(1) for _ in range(2))
    >>> bool((drawn_noise(torch.zeros(3), first) == drawn_noise(torch.ones(3), second)).all())
    True
    """
    return torch.randn(like.shape, generator=generator).to(like)
