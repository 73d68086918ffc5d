"""The client's part: its own data, what it draws from it, and the update that leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.func import vmap

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.federated.balance import balanced, skewed
from sensorveil.federated.plan import Plan
from sensorveil.methods.blinder import Blinder
from sensorveil.nets.blinder import Batch, BlinderNets, LossWeights, as_channels
from sensorveil.nets.factorised import one_hot
from sensorveil.nets.meta import Layout, Moments, Task, adam_step, meta_gradient
from sensorveil.nets.seeding import derived

_CLIENTS_AT_ONCE = 16  # each needs some copies of all weights
_NOISE = 1_000_000  # above every turn of an epoch: orders and noise never share a seed


@dataclass(frozen=True, eq=False)
class Trainee:
    """What is trained: the networks as a shape, where their weights lie, and the loss."""

    nets: BlinderNets
    layout: Layout
    scale: LossWeights

    @classmethod
    def of(cls, veil: Blinder) -> Trainee:
        """The networks of a prepared Blinder."""
        return cls(veil.nets_, Layout(veil.nets_), veil.loss_weights())


@dataclass(frozen=True, eq=False)
class ClientData:
    """One person's windows (n, channels, length) in standard units, and their classes."""

    windows: torch.Tensor
    kept: torch.Tensor
    hidden: torch.Tensor

    def __len__(self) -> int:
        return len(self.windows)

    @classmethod
    def of(cls, veil: Blinder, windows: Windows, plan: Plan, client: int) -> ClientData:
        """What a client learns from: its windows of known classes, balanced by the plan."""
        positions, kept, hidden = veil.lesson(windows)
        own = windows.select(positions).scaled(veil.scaling_)
        signal = as_channels(torch.from_numpy(own.signal)).numpy()
        data, seed = (signal, kept, hidden), derived(plan.seed, client)
        if plan.skew and len(signal):
            data = skewed(data, plan.skew, plan.balance, plan.neighbours, seed)
        elif plan.balance and len(signal):
            data = balanced(data, plan.balance, plan.neighbours, seed)
        if len(data[0]) < plan.batch:
            raise Refusal(f"client {client} has {len(data[0])} windows; a batch takes {plan.batch}")
        return cls(*(torch.from_numpy(part).to(veil.device) for part in data))


def draw_task(
    data: ClientData, trainee: Trainee, plan: Plan, client: int, number: int, step: int = 0
) -> Task:
    """Support and query set of one step of a round, with all that is random in them.

    Over an epoch a client goes through its windows in an order of its own, batch by batch, and
    again in another order where there are more batches than that. All comes from the plan's seed,
    the client and the round's number: asked twice, it draws the same.
    """
    own = derived(plan.seed, client)
    support, query = _rows(len(data), plan, own, number, step).split([plan.support, plan.query])
    generator = torch.Generator().manual_seed(derived(derived(own, number), _NOISE + step))
    design = trainee.nets.design

    def noise(*shape: int) -> torch.Tensor:
        drawn = torch.randn(*shape, design.latent, generator=generator)
        return drawn.to(data.windows.device)

    def batch(rows: torch.Tensor) -> Batch:
        rows = rows.to(data.windows.device)
        return Batch(
            data.windows[rows],
            one_hot(data.kept[rows, None], (design.kept,)),
            one_hot(data.hidden[rows], design.hidden),
            noise(len(rows)),
        )

    hidden = data.hidden[support.to(data.hidden.device)]
    other = one_hot(_other_classes(hidden, design.hidden, generator), design.hidden)
    return Task(batch(support), other, noise(3, len(support)), batch(query))


def _rows(count: int, plan: Plan, seed: int, number: int, step: int) -> torch.Tensor:
    """The windows of one batch; none is in it twice, so support and query have none in common."""
    epoch, place = divmod(number, plan.rounds)
    turn, at = divmod(place * plan.local_steps + step, count // plan.batch)
    generator = torch.Generator().manual_seed(derived(derived(seed, epoch), turn))
    order = torch.randperm(count, generator=generator)
    return order[at * plan.batch : (at + 1) * plan.batch]


def _other_classes(
    hidden: torch.Tensor, sizes: Sequence[int], generator: torch.Generator
) -> torch.Tensor:
    """For each hidden attribute a class that is not the window's own, uniformly."""
    steps = [torch.randint(1, size, (len(hidden),), generator=generator) for size in sizes]
    moved = hidden + torch.stack(steps, dim=1).to(hidden.device)
    return moved % torch.tensor(sizes, device=hidden.device)


def stacked(tasks: Sequence[Task]) -> Task:
    """The tasks of several clients as one, with the clients in front."""

    def batch(parts: Sequence[Batch]) -> Batch:
        return Batch(*(torch.stack(part) for part in zip(*parts, strict=True)))

    return Task(
        batch([task.support for task in tasks]),
        torch.stack([task.other for task in tasks]),
        torch.stack([task.noise for task in tasks]),
        batch([task.query for task in tasks]),
    )


def client_updates(
    trainee: Trainee, vector: torch.Tensor, lessons: Sequence[Sequence[Task]], plan: Plan
) -> torch.Tensor:
    """What clients send, (clients, weights), for lessons of one task for each step.

    A gradient at the server's weights; or what Adam changed in them, step by step on the client.
    All clients go through one vectorised pass; a client on its own is a pass of one.
    """

    def gradient(vector: torch.Tensor, task: Task) -> torch.Tensor:
        return meta_gradient(
            vector, task, trainee.nets, trainee.layout, plan.adapting(), trainee.scale
        )

    if plan.sends == "gradients":
        first = stacked([tasks[0] for tasks in lessons])
        sent: torch.Tensor = vmap(gradient, (None, 0), chunk_size=_CLIENTS_AT_ONCE)(vector, first)
        return sent.detach()
    own = vector.expand(len(lessons), -1)
    moments = Moments.at_rest(own)
    for step, tasks in enumerate(zip(*lessons, strict=True), start=1):
        descent = vmap(gradient, chunk_size=_CLIENTS_AT_ONCE)(own, stacked(tasks)).detach()
        own, moments = adam_step(own, descent, moments, step, plan.rate)
    return own - vector


def lesson(data: ClientData, trainee: Trainee, plan: Plan, client: int, number: int) -> list[Task]:
    """The tasks of a round, one for each local step."""
    return [
        draw_task(data, trainee, plan, client, number, step) for step in range(plan.local_steps)
    ]


def people_of(windows: Windows) -> dict[int, Windows]:
    """Each person's windows, by the person's code: one person is one client."""
    return {
        int(person): windows.select(np.flatnonzero(windows.subject == person))
        for person in np.unique(windows.subject)
    }
