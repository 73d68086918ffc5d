"""Training Blinder's networks where all data lies in one place: loss (4) by Adam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from sensorveil.cuda_graphs import Step, capture_step
from sensorveil.nets.blinder import Batch, BlinderNets, LossWeights, both_losses
from sensorveil.nets.training import one_cycle, set_rate, warmth
from sensorveil.progress import track

Gather = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""Gives windows, kept and hidden classes (one-hot) at some positions."""


@dataclass(frozen=True)
class Training:
    """How long, in which batches, and at which rate of Adam.

    With `cycle` the rate rises and falls once; beta and gamma grow to their full weight over the
    first `warm_up` of all steps.
    """

    epochs: int
    batch: int
    rate: float = 1e-3
    cycle: bool = False
    warm_up: float = 0.0


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
    on_gpu = device.type == "cuda"
    batch = min(training.batch, count)
    steps = count // batch
    rate = torch.tensor(training.rate, device=device) if on_gpu else training.rate
    optimizer = torch.optim.Adam(nets.parameters(), lr=rate, fused=True, capturable=on_gpu)
    # A recorded step reads the same memory each time: epochs are copied into these.
    order = torch.zeros(steps, batch, dtype=torch.long, device=device)
    noise = torch.zeros(steps, batch, nets.design.latent, device=device)
    warm, total = torch.ones((), device=device), torch.zeros((), device=device)

    def step(number: torch.Tensor) -> None:
        index, drawn = (part.index_select(0, number)[0] for part in (order, noise))
        weights, seen = dict(nets.named_parameters()), Batch(*gather(index), drawn)
        loss = both_losses(nets, weights, weights, seen, scale.warmed(warm))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total.add_(loss.detach())

    take: Step = step
    numbers = torch.arange(steps, device=device).view(-1, 1)
    if on_gpu:
        take = capture_step(step, numbers[0], nets, optimizer)
    history = []
    for epoch in track(range(training.epochs), "blinder"):
        shuffled = torch.randperm(count, generator=generator)[: steps * batch]
        order.copy_(shuffled.view(steps, batch))
        noise.copy_(torch.randn(noise.shape, generator=generator))
        total.zero_()
        for place, number in enumerate(numbers):
            done = (epoch * steps + place) / (training.epochs * steps)
            warm.fill_(warmth(done, training.warm_up))
            if training.cycle:
                set_rate(optimizer, training.rate * one_cycle(done))
            take(number)
        history.append(float(total / steps))
    return history
