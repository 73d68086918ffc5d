"""Training a classifier on windows that lie on a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence

import torch
from torch import nn

from sensorveil.cuda_graphs import Step, capture_step
from sensorveil.progress import track

Gather = Callable[[torch.Tensor], torch.Tensor]
"""Gives the windows at some positions as a tensor on the device."""

Training = Generator[None, None, list[float]]
"""A training that stops after every step, and at its end gives the loss per epoch."""

AT_ONCE = 8
"""Trainings that go on at once on a GPU."""


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
    return _ended(
        classifier_training(
            net, gather, labels, epochs=epochs, batch=batch, rate=rate, seed=seed, what=what
        )
    )


def side_by_side(trainings: Sequence[Training], device: str) -> list[list[float]]:
    """What the trainings give; on a GPU several go on at once, on a processor one after the other.

    A step of a small network leaves most of a GPU idle. So each of them has a stream of its own,
    and they take their steps in turn. They draw from one source there (dropout), so that what each
    of them draws depends on who is faster.
    """
    if len(trainings) == 1 or torch.device(device).type != "cuda":
        return [_ended(training) for training in trainings]
    found: list[list[float]] = []
    for first in range(0, len(trainings), AT_ONCE):
        found += _in_turn(trainings[first : first + AT_ONCE])
    return found


def _in_turn(trainings: Sequence[Training]) -> list[list[float]]:
    before = torch.cuda.current_stream()
    streams = [torch.cuda.Stream() for _ in trainings]
    for stream in streams:
        stream.wait_stream(before)
    found: dict[int, list[float]] = {}
    try:
        while len(found) < len(trainings):
            for number, (training, stream) in enumerate(zip(trainings, streams, strict=True)):
                if number in found:
                    continue
                with torch.cuda.stream(stream):
                    try:
                        next(training)
                    except StopIteration as end:
                        found[number] = end.value
    finally:  # whoever goes on, goes on with what all of them have done
        for stream in streams:
            before.wait_stream(stream)
    return [found[number] for number in range(len(trainings))]


def _ended(training: Training) -> list[float]:
    """What a training gives that nobody else waits for."""
    while True:
        try:
            next(training)
        except StopIteration as end:
            losses: list[float] = end.value
            return losses


def classifier_training(
    net: nn.Module,
    gather: Gather,
    labels: torch.Tensor,
    *,
    epochs: int,
    batch: int,
    rate: float,
    seed: int,
    what: str = "training",
) -> Training:
    """As `train_classifier`, but others can have their turn after every step."""
    net.train()
    device = labels.device
    generator = torch.Generator().manual_seed(seed)
    count = len(labels)
    batch = min(batch, count)
    steps = max(1, count // batch)
    on_gpu = device.type == "cuda"
    speed = torch.tensor(rate, device=device) if on_gpu else rate
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=speed, weight_decay=1e-2, capturable=on_gpu, fused=True
    )
    total = torch.zeros((), device=device)

    def step(index: torch.Tensor) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu, cache_enabled=False):
            loss = nn.functional.cross_entropy(net(gather(index)), labels[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total.add_(loss.detach())

    take: Step = step
    if on_gpu:
        take = capture_step(step, torch.arange(batch, device=device), net, optimizer)
    losses, done = [], 0
    for _ in track(range(epochs), what):
        order = torch.randperm(count, generator=generator).to(device)
        total.zero_()
        # The rest that fills no batch is left to the next epoch: batch norm dislikes tiny batches.
        for index in order[: steps * batch].view(steps, batch):
            set_rate(optimizer, rate * one_cycle(done / (epochs * steps)))
            take(index)
            done += 1
            yield
        losses.append(float(total / steps))
    return losses


def one_cycle(part: float) -> float:
    """The learning rate over training as a share of its peak: up for 30%, then down to nothing.

    >>> [round(one_cycle(part), 3) for part in (0.0, 0.15, 0.3, 0.65, 1.0)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    if part < 0.3:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * part / 0.3)) / 2
    return (1 + math.cos(math.pi * (part - 0.3) / 0.7)) / 2


def warmth(part: float, over: float) -> float:
    """How much of a penalty counts when so much of the training is done: all of it after `over`.

    >>> [warmth(part, over=0.4) for part in (0.0, 0.2, 0.4, 1.0)], warmth(0.0, over=0.0)
    ([0.0, 0.5, 1.0, 1.0], 1.0)
    """
    return min(1.0, part / over) if over else 1.0


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step, where it is a tensor too."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def log_probabilities_of(net: nn.Module, signal: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (n, classes) of windows that lie on the network's device, on the CPU.

    A folded network has nothing to learn; with another one the result holds what made it.
    """
    if net.training:  # asking is cheaper than telling every layer, and a stream asks often
        net.eval()
    return net(signal).float().log_softmax(1).cpu()


@torch.no_grad()
def log_probabilities(net: nn.Module, gather: Gather, count: int, batch: int) -> torch.Tensor:
    """Log-probabilities of all windows in order: (count, classes), on the CPU."""
    device = next(net.parameters()).device
    parts = []
    for first in range(0, count, batch):
        index = torch.arange(first, min(first + batch, count), device=device)
        parts.append(log_probabilities_of(net, gather(index)))
    return torch.cat(parts)
