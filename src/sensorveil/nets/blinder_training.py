"""Training Blinder's networks where all data lies in one place: loss (4) by Adam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from sensorveil.nets.blinder import Batch, BlinderNets, LossWeights, both_losses
from sensorveil.progress import track

Gather = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""Gives windows, kept and hidden classes (one-hot) at some positions."""


@dataclass(frozen=True)
class Training:
    """How long, in which batches, and at which rate of Adam."""

    epochs: int
    batch: int
    rate: float = 1e-3


def train_blinder(
    nets: BlinderNets,
    gather: Gather,
    count: int,
    training: Training,
    scale: LossWeights,
    generator: torch.Generator,
) -> list[float]:
    """Trains on batches of `count` windows; returns the sum of both losses, epoch by epoch.

    In every step the coder descends on equation (4) and the discriminators on equation (3), both
    from where they are: what a federation of one client does that takes no local step.
    """
    device = next(nets.parameters()).device
    optimizer = torch.optim.Adam(nets.parameters(), lr=training.rate, fused=True)
    batch = min(training.batch, count)
    steps = count // batch
    history = []
    for _ in track(range(training.epochs), "blinder"):
        order = torch.randperm(count, generator=generator)[: steps * batch].to(device)
        total = torch.zeros((), device=device)
        for index in order.view(steps, batch):
            noise = torch.randn(batch, nets.design.latent, generator=generator).to(device)
            weights = dict(nets.named_parameters())
            loss = both_losses(nets, weights, weights, Batch(*gather(index), noise), scale)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        history.append(float(total / steps))
    return history
