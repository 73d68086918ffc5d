"""Training a classifier on windows that lie on a device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from sensorveil.progress import track

Gather = Callable[[torch.Tensor], torch.Tensor]
"""Gives the windows at some positions as a tensor on the device."""


def train_classifier(
    net: nn.Module,
    gather: Gather,
    labels: torch.Tensor,
    *,
    epochs: int,
    batch: int,
    rate: float,
    seed: int,
    what: str = "training",
) -> list[float]:
    """Cross-entropy with AdamW and one cycle of the learning rate; returns the loss per epoch.

    `labels` lie on the device, and `gather` takes positions into them.
    """
    net.train()
    device = labels.device
    generator = torch.Generator().manual_seed(seed)
    count = len(labels)
    batch = min(batch, count)
    steps = max(1, count // batch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=epochs * steps)
    half = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    losses = []
    for _ in track(range(epochs), what):
        order = torch.randperm(count, generator=generator).to(device)
        total = torch.zeros((), device=device)
        # The rest that fills no batch is left to the next epoch: batch norm dislikes tiny batches.
        for index in order[: steps * batch].view(steps, batch):
            with half:
                loss = nn.functional.cross_entropy(net(gather(index)), labels[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        losses.append(float(total / steps))
    return losses


@torch.no_grad()
def log_probabilities(net: nn.Module, gather: Gather, count: int, batch: int) -> torch.Tensor:
    """Log-probabilities of all windows in order: (count, classes), on the CPU."""
    net.eval()
    device = next(net.parameters()).device
    parts = []
    for first in range(0, count, batch):
        index = torch.arange(first, min(first + batch, count), device=device)
        parts.append(net(gather(index)).float().log_softmax(1).cpu())
    return torch.cat(parts)
