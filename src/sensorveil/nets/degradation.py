"""How a Wi-Fi signal is degraded, level by level: noise, and a blur of its spectrum.

Equations (11) to (13) of the CSI paper, which takes them from RF-Diffusion: x_t = gamma_t x_0 +
sigma_t epsilon, with one gamma and one sigma for each sample of the window. gamma_t is
sqrt(alpha_bar_t) times a Gaussian over time, which blurs the spectrum.

Equation (12) adds the noises of all levels by their amplitudes, as if they were one and the same
noise. They are independent, so that their variances add up; `variances` does that, `amplitudes`
does what the paper and its code do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch

from sensorveil.diffusion.samplers import even_timesteps
from sensorveil.diffusion.schedule import NoiseSchedule, drawn_noise
from sensorveil.errors import Refusal, refuse_unknown

SUMS = ("variances", "amplitudes")
"""How the noises of several levels add up."""

Restorer = Callable[[torch.Tensor, int], torch.Tensor]
"""(x (n, channels, length), t) to the clean window in x, all windows at one level."""


@dataclass(frozen=True, eq=False)
class Degradation:
    """Signal and noise at each level and place: two tensors (T, length), float64.

    >>> plain = Degradation.linear(length=64, count=200, first=5e-4, last=0.1)
    >>> [round(float(part[-1, 0]), 3) for part in (plain.signal, plain.noise)]
    [0.006, 1.0]
    """

    signal: torch.Tensor
    noise: torch.Tensor

    @classmethod
    def linear(
        cls,
        length: int,
        count: int,
        first: float,
        last: float,
        blur: float = 0.0,
        sums: str = "variances",
    ) -> Degradation:
        """1 - alpha_t of equation (12) on a line; `blur` is what each level adds to the blur.

        After t levels the Gaussian over time has the variance length / (t blur²), and mean 1.
        """
        if sums not in SUMS:
            raise refuse_unknown("sums", sums, SUMS)
        betas = torch.linspace(first, last, count, dtype=torch.float64)
        place = torch.arange(length, dtype=torch.float64) - length / 2
        passed = torch.arange(1, count + 1, dtype=torch.float64)[:, None]
        shape = torch.exp(-(place**2) * passed * blur**2 / (2 * length))
        gamma = (1 - betas).cumprod(0).sqrt()[:, None] * shape / shape.mean(1, keepdim=True)
        # sigma_t / gamma_t, equation (12): the sum over s of sqrt(1 - alpha_s) / gamma_s.
        parts = betas.sqrt()[:, None] / gamma
        ratio = parts.cumsum(0) if sums == "amplitudes" else parts.square().cumsum(0).sqrt()
        return cls(gamma, gamma * ratio)

    def __len__(self) -> int:
        return len(self.signal)

    def to(self, device: torch.device | str) -> Degradation:
        """The same with its tensors on that device."""
        return Degradation(self.signal.to(device), self.noise.to(device))

    @property
    def levels(self) -> NoiseSchedule:
        """The same as levels that are even over time, which the samplers need."""
        if not torch.equal(self.signal, self.signal[:, :1].expand_as(self.signal)):
            raise Refusal("a blur differs from place to place; only sampler 'rf-diffusion' can")
        return NoiseSchedule(self.signal[:, 0], self.noise[:, 0])

    def noised(
        self, clean: torch.Tensor, epsilon: torch.Tensor, t: torch.Tensor | int
    ) -> torch.Tensor:
        """x_t of equation (11); t is one level for each window (n,), or one for all."""
        signal, noise = (
            part[t].to(clean.dtype).unsqueeze(-2) for part in (self.signal, self.noise)
        )
        return signal * clean + noise * epsilon

    def start(self, epsilon: torch.Tensor) -> torch.Tensor:
        """Noise as strong as x_T is, for windows in standard units.

        Levels that end before all signal is gone leave some in x_T; this has none of it.
        """
        power = self.signal[-1].square() + self.noise[-1].square()
        return power.sqrt().to(epsilon.dtype) * epsilon


@torch.no_grad()
def rf_diffusion(
    restore: Restorer,
    x: torch.Tensor,
    degradation: Degradation,
    steps: int,
    generator: torch.Generator,
) -> torch.Tensor:
    """RF-Diffusion's sampler: restore, degrade to the next level by fresh noise, and again.

    The authors' published inference begins with a true window, degraded; that is no generation,
    and here x is noise.

    >>> degradation = Degradation.linear(8, 50, 1e-3, 0.2, blur=0.1)
    >>> chance = torch.Generator().manual_seed(0)
    >>> to_zero = lambda x, t: torch.zeros_like(x)
    >>> float(rf_diffusion(to_zero, torch.ones(2, 3, 8), degradation, 5, chance).abs().max())
    0.0
    """
    visited = even_levels_of(degradation, steps)
    for now, then in pairwise(visited):
        clean = restore(x, now)
        x = degradation.noised(clean, drawn_noise(clean, generator), then)
    return restore(x, visited[-1])


def even_levels_of(degradation: Degradation, steps: int) -> tuple[int, ...]:
    """Levels at even distances, from the highest to the lowest."""
    middle = degradation.signal.shape[1] // 2
    return even_timesteps(
        NoiseSchedule(degradation.signal[:, middle], degradation.noise[:, middle]), steps
    )
