"""The noise schedule of a diffusion model.

x_t = signal_t x_0 + noise_t epsilon, with signal_t = sqrt(alpha_bar_t) and noise_t = sqrt(1 -
alpha_bar_t): equation (2) of PrivDiffuser and of CLOAK. Timesteps count from 0 (the least noise) to
T - 1; the papers count from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from sensorveil.errors import Refusal

Denoiser = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(x (n, *shape), t (n,), condition (n, d)) -> the noise in x. A zero condition is none."""

CLEAN = -1
"""The timestep after the last one: no noise is left."""


@dataclass(frozen=True, eq=False)
class NoiseSchedule:
    """Signal and noise at each of T timesteps.

    The schedule need not preserve the variance (signal² + noise² = 1), as that of RF-Diffusion does
    not; it must only have less signal for the noise at every next timestep.

    Parameters
    ----------
    signal, noise
        Factors of the clean window and of the noise: tensors (T,) in double precision.

    Examples
    --------
    >>> schedule = NoiseSchedule.linear()
    >>> len(schedule), schedule.at(CLEAN)
    (1000, (1.0, 0.0))
    >>> signal, noise = schedule.at(999)
    >>> round(signal, 4), round(noise, 4)
    (0.0064, 1.0)
    """

    signal: torch.Tensor
    noise: torch.Tensor
    _numbers: tuple[tuple[float, float], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # As Python numbers, a sampler reads them without waiting for the GPU.
        numbers = tuple(zip(self.signal.tolist(), self.noise.tolist(), strict=True))
        object.__setattr__(self, "_numbers", numbers)
        if not numbers or min(map(min, numbers)) <= 0:
            raise Refusal("a noise schedule needs some signal and some noise at every timestep")
        ratios = [self.log_snr(t) for t in range(len(numbers))]
        if any(after >= before for before, after in pairwise(ratios)):
            raise Refusal("a noise schedule needs more noise for the signal at every next timestep")

    @classmethod
    def linear(
        cls, timesteps: int = 1000, first: float = 1e-4, last: float = 0.02
    ) -> NoiseSchedule:
        """Variances beta_t of equation (1) on a line (Ho and others, 2020); both papers' choice."""
        if not (timesteps >= 1 and 0 < first <= last < 1):
            raise Refusal(
                f"a linear schedule needs timesteps >= 1 and 0 < first <= last < 1; here are"
                f" timesteps {timesteps}, first {first}, last {last}"
            )
        return cls.of_betas(torch.linspace(first, last, timesteps, dtype=torch.float64))

    @classmethod
    def of_betas(cls, betas: torch.Tensor) -> NoiseSchedule:
        """From the variance that is added from each timestep to the next, equation (1)."""
        log_alpha_bar = torch.log1p(-betas.double()).cumsum(0)
        return cls((log_alpha_bar / 2).exp(), (-torch.expm1(log_alpha_bar)).sqrt())

    def __len__(self) -> int:
        return len(self._numbers)

    def to(self, device: torch.device | str) -> NoiseSchedule:
        """The same schedule with its tensors on a device."""
        return NoiseSchedule(self.signal.to(device), self.noise.to(device))

    def at(self, t: int) -> tuple[float, float]:
        """Signal and noise at timestep t, or at `CLEAN`."""
        if t == CLEAN:
            return 1.0, 0.0
        if not 0 <= t < len(self):
            raise IndexError(f"timestep {t} of {len(self)}")
        return self._numbers[t]

    def log_snr(self, t: int) -> float:
        """lambda_t = log(signal / noise): the time of DPM-Solver."""
        signal, noise = self.at(t)
        return math.log(signal) - math.log(noise)

    def add_noise(
        self, clean: torch.Tensor, noise: torch.Tensor, t: torch.Tensor | int
    ) -> torch.Tensor:
        """x_t of equation (2); t is one timestep for each window (n,), or one for all."""
        signal, sigma = self._factors(clean, t)
        return signal * clean + sigma * noise

    def to_clean(self, x: torch.Tensor, noise: torch.Tensor, t: torch.Tensor | int) -> torch.Tensor:
        """x_0 from x_t and its noise: equation (2) solved for x_0.

        >>> schedule, x = NoiseSchedule.linear(), torch.randn(4, 2, 8)
        >>> noisy = schedule.add_noise(x, noise := torch.randn(4, 2, 8), t=300)
        >>> bool(torch.allclose(schedule.to_clean(noisy, noise, t=300), x, atol=1e-5))
        True
        """
        signal, sigma = self._factors(x, t)
        return (x - sigma * noise) / signal

    def to_noise(self, x: torch.Tensor, clean: torch.Tensor, t: torch.Tensor | int) -> torch.Tensor:
        """The noise in x_t, from x_t and x_0: equation (2) solved for epsilon."""
        signal, sigma = self._factors(x, t)
        return (x - signal * clean) / sigma

    def _factors(
        self, x: torch.Tensor, t: torch.Tensor | int
    ) -> tuple[torch.Tensor, torch.Tensor] | tuple[float, float]:
        """Signal and noise, shaped to multiply x."""
        if isinstance(t, int):
            return self.at(t)
        shape = (-1,) + (1,) * (x.ndim - 1)
        return self.signal[t].to(x.dtype).view(shape), self.noise[t].to(x.dtype).view(shape)


def drawn_noise(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Standard normal numbers of the shape, dtype and device of `like`.

    They are drawn on the CPU, so that they are the same on every device.

    >>> first, second = (torch.Generator().manual_seed(1) for _ in range(2))
    >>> bool((drawn_noise(torch.zeros(3), first) == drawn_noise(torch.ones(3), second)).all())
    True
    """
    return torch.randn(like.shape, generator=generator).to(like)
