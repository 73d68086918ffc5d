"""Guidance: towards a condition, and away from what a classifier finds.

Equation (20) of PrivDiffuser and (12) of CLOAK are both of these, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from sensorveil.diffusion.schedule import Denoiser, NoiseSchedule

Gradient = Literal["clean", "full"]
"""What the gradient of negative guidance is taken with respect to."""


def classifier_free(
    denoiser: Denoiser,
    x: torch.Tensor,
    t: int,
    condition: torch.Tensor,
    scale: torch.Tensor | float,
) -> torch.Tensor:
    """Classifier-free guidance: (1 + w) epsilon(x_t, t, c) - w epsilon(x_t, t).

    Equation (12) of PrivDiffuser and (7) of CLOAK (Ho and Salimans, 2022). Both halves go through
    the network in one batch.

    Parameters
    ----------
    denoiser
        Predicts the noise; the zero vector is the absent condition.
    x
        Noisy windows (n, *shape), all at timestep `t`.
    condition
        What samples are guided towards, (n, d).
    scale
        w, so that 0 is the conditional prediction alone; other libraries, and the authors' code,
        call 1 + w the guidance scale. One number for all windows, or one for each (n,).

    Returns
    -------
    torch.Tensor
        The noise in x, guided.

    Examples
    --------
    >>> condition_itself = lambda x, t, condition: condition
    >>> x, condition = torch.zeros(2, 3), torch.ones(2, 3)
    >>> classifier_free(condition_itself, x, 10, condition, torch.tensor([0.0, 4.0]))
    tensor([[1., 1., 1.],
            [5., 5., 5.]])
    """
    if not isinstance(scale, torch.Tensor) and scale == 0:
        return denoiser(x, _timesteps(t, condition), condition)
    both = torch.cat([condition, torch.zeros_like(condition)])
    conditional, unconditional = denoiser(torch.cat([x, x]), _timesteps(t, both), both).chunk(2)
    # In this form a window of scale 0 has the conditional prediction to the last bit.
    return conditional + _per_window(scale, x) * (conditional - unconditional)


def negative_guidance(
    x: torch.Tensor,
    clean: torch.Tensor,
    t: int,
    schedule: NoiseSchedule,
    log_likelihood: Callable[[torch.Tensor], torch.Tensor],
    gradient: Gradient = "clean",
) -> torch.Tensor:
    """Negated classifier guidance: epsilon + sqrt(1 - alpha_bar_t) grad log p(y | x_0).

    Equations (20) and (23) of PrivDiffuser, (12) of CLOAK.

    Parameters
    ----------
    x, clean
        Noisy windows at timestep `t`, and the clean windows predicted from them (equation (19) of
        PrivDiffuser, (11) of CLOAK). With gradient "full", x requires a gradient and `clean` was
        computed from it.
    log_likelihood
        Clean windows to sum_k w_k log p(y_k | x_0), with the classes y_k to avoid: (n,).
    gradient
        "clean", as in the authors' code, is the gradient with respect to `clean`, where the
        classifier was asked. "full", as the equations are written, is the one with respect to x,
        through the denoiser. It costs a backward pass through that, and is larger where there is
        much noise: by 1 / signal_t, up to 157 on the linear schedule, times what the denoiser makes
        of it. So a scale does not mean the same to both.

    Returns
    -------
    torch.Tensor
        The clean windows that the guided noise points to.

    Examples
    --------
    >>> schedule, x = NoiseSchedule.linear(), torch.zeros(1, 2)
    >>> moved = negative_guidance(x, x, 500, schedule, lambda clean: 0.5 * clean.sum(1))
    >>> signal, noise = schedule.at(500)
    >>> bool(torch.allclose(moved, -torch.tensor(0.5 * noise**2 / signal)))
    True
    """
    with torch.enable_grad():
        point = clean.detach().requires_grad_() if gradient == "clean" else x
        asked = point if gradient == "clean" else clean
        # Each window's likelihood depends on that window alone: the gradient of the sum is theirs.
        (towards,) = torch.autograd.grad(log_likelihood(asked).sum(), point)
    x, clean = x.detach(), clean.detach()
    noise = schedule.to_noise(x, clean, t) + schedule.at(t)[1] * towards
    return schedule.to_clean(x, noise, t)


def _timesteps(t: int, condition: torch.Tensor) -> torch.Tensor:
    return torch.full((len(condition),), t, dtype=torch.long, device=condition.device)


def _per_window(scale: torch.Tensor | float, x: torch.Tensor) -> torch.Tensor | float:
    """One number for each window, shaped to multiply x."""
    if isinstance(scale, torch.Tensor) and scale.ndim:
        return scale.to(x.dtype).view((-1,) + (1,) * (x.ndim - 1))
    return scale
