"""What Blinder shares with ObscureNet: the scale of the loss, sampled codes and their divergence."""

from __future__ import annotations

from collections.abc import Sequence

import torch

ERROR_WEIGHT, SCALE = 256.0, 75.0
"""The scale of equation (4) in the authors' code, whatever the size of the window.

They minimise (512 MSE + 4 KL) / 150 - 0.2 CE and call that beta = 2 and alpha = 0.2; divided by
two above and below it is (256 MSE + beta KL) / 75 - alpha CE. MSE is the mean over all numbers of
a window, 256 on MotionSense: so there 256 MSE is its summed error.
"""


def sampled(mu: torch.Tensor, logvar: torch.Tensor | None, noise: torch.Tensor) -> torch.Tensor:
    """z = mu + sigma * noise, as in algorithm 1; mu itself where there is no variance.

    >>> sampled(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([0.5]))
    tensor([1.5000])
    """
    return mu if logvar is None else mu + torch.exp(0.5 * logvar) * noise


def divergence(mu: torch.Tensor, logvar: torch.Tensor | None) -> torch.Tensor:
    """KL(q(z|x) || N(0, I)) in nats, the mean over the windows of each network.

    >>> divergence(torch.full((1, 3, 2), 2.0), torch.zeros(1, 3, 2))  # half of 2^2, twice
    tensor([4.])
    """
    if logvar is None:
        return torch.zeros(len(mu), device=mu.device)
    return 0.5 * (mu.square() + logvar.exp() - 1 - logvar).sum(-1).mean(-1)


def one_hot(codes: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
    """Codes (..., attributes) as one-hot vectors side by side (..., sum of classes).

    >>> one_hot(torch.tensor([[1, 0]]), (2, 3))
    tensor([[0., 1., 1., 0., 0.]])
    """
    parts = [
        codes[..., which, None] == torch.arange(count, device=codes.device)
        for which, count in enumerate(classes)
    ]
    return torch.cat(parts, dim=-1).float()
