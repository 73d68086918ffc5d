"""The average of a network's weights over the last steps of its training.

Diffusion models are used with averaged weights: single steps are noisy, their average is not.
`torch.optim.swa_utils.AveragedModel` decides on the host, by its count, what each step does, so
that a recorded step would always do the same and never count; this one counts on the device.
"""

from __future__ import annotations

import copy

import torch
from torch import nn


class AveragedWeights(nn.Module):
    """A copy of a network, whose weights follow those of the network by and by.

    Each `update` keeps the share `decay` of the average and takes the rest from the network. At
    the start it keeps less, (1 + n) / (10 + n) after n updates, so that the first weights, which
    know nothing, are soon forgotten in short trainings too. Buffers (running statistics) are
    copied. All of it happens in place and on the device, and can be a part of a step that
    `nets/graphs.py` records; give that `nn.ModuleList([net, averaged])`, so that what its first
    steps change is undone in both. The state holds all that it takes to go on.

    >>> net = nn.Linear(1, 1, bias=False)
    >>> averaged = AveragedWeights(net, decay=0.5)
    >>> before = net.weight.item()
    >>> _ = nn.init.constant_(net.weight, before + 1)
    >>> averaged.update(net)
    >>> round(averaged.net.weight.item() - before, 4)  # a tenth was kept
    0.9
    """

    updates: torch.Tensor

    def __init__(self, net: nn.Module, decay: float = 0.999) -> None:
        super().__init__()
        self.decay = decay
        self.net = copy.deepcopy(net).eval().requires_grad_(False)
        device = next(net.parameters()).device
        self.register_buffer("updates", torch.zeros((), device=device))

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        """One step further towards the network's weights."""
        kept = ((1 + self.updates) / (10 + self.updates)).clamp(max=self.decay)
        average: list[torch.Tensor] = [*self.net.parameters()]
        weights: list[torch.Tensor] = [*net.parameters()]
        ahead = list(torch._foreach_sub(weights, average))
        torch._foreach_mul_(ahead, 1 - kept)
        torch._foreach_add_(average, ahead)
        for mine, its in zip(self.net.buffers(), net.buffers(), strict=True):
            mine.copy_(its)
        self.updates += 1

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        """What the averaged network answers."""
        answer: torch.Tensor = self.net(*given)
        return answer
