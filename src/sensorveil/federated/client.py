"""The client's part: its own data, what it draws from it, and the update that leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.func import vmap

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.federated.balance import balanced, skewed
from sensorveil.federated.plan import Plan
from sensorveil.methods.blinder import Blinder
from sensorveil.nets.blinder import (
    Batch,
    BlinderDesign,
    BlinderNets,
    LossWeights,
    as_channels,
)
from sensorveil.nets.factorised import one_hot
from sensorveil.nets.meta import Layout, Moments, Task, adam_step, meta_gradient
from sensorveil.train import derived_seed

_CLIENTS_AT_ONCE = 16  # each needs some copies of all weights
_NOISE = 1_000_000  # above every turn of an epoch: orders and noise never share a seed


@dataclass(frozen=True, eq=False)
class Trainee:
    """What is trained: the networks as a shape, where their weights lie, and the loss."""

    nets: BlinderNets
    layout: Layout
    scale: LossWeights

    @classmethod
    def of(cls, obfuscator: Blinder) -> Trainee:
        """The networks of a prepared Blinder."""
        return cls(obfuscator.nets_, Layout(obfuscator.nets_), obfuscator.loss_weights())


@dataclass(frozen=True, eq=False)
class ClientData:
    """One person's windows (n, channels, length) in standard units, and their classes."""

    windows: torch.Tensor
    kept: torch.Tensor
    hidden: torch.Tensor

    def __len__(self) -> int:
        return len(self.windows)

    @classmethod
    def together(cls, several: Sequence[ClientData]) -> ClientData:
        """The data of several clients, one after the other."""
        parts = zip(*((one.windows, one.kept, one.hidden) for one in several), strict=True)
        return cls(*(torch.cat(part) for part in parts))

    @classmethod
    def of(cls, obfuscator: Blinder, windows: Windows, plan: Plan, client: int) -> ClientData:
        """What a client learns from: its windows of known classes, balanced by the plan."""
        positions, kept, hidden = obfuscator.labelled_windows(windows)
        own = windows.select(positions).scaled(obfuscator.scaling_)
        signal = as_channels(torch.from_numpy(own.signal)).numpy()
        data, seed = (signal, kept, hidden), derived_seed(plan.seed, client)
        if plan.skew and len(signal):
            data = skewed(data, plan.skew, plan.balance, plan.neighbours, seed)
        elif plan.balance and len(signal):
            data = balanced(data, plan.balance, plan.neighbours, seed)
        if len(data[0]) < plan.batch:
            raise Refusal(f"client {client} has {len(data[0])} windows; a batch takes {plan.batch}")
        return cls(*(torch.from_numpy(part).to(obfuscator.device) for part in data))


class Draw(NamedTuple):
    """What a client draws at random for one step, all of it on the CPU.

    `rows` (batch,) are the places of its windows, support first; `moves` (support, attributes) say
    how far each shadow sample's hidden class is from the window's own; `noise` is for the codes
    (4 * support + query, latent). `warmth` is the plan's for the round. For several clients or
    steps they have more axes in front.
    """

    rows: torch.Tensor
    moves: torch.Tensor
    noise: torch.Tensor
    warmth: torch.Tensor


def drawn(count: int, design: BlinderDesign, plan: Plan, client: int, number: int) -> Draw:
    """The draws of a client with `count` windows for a round, with its local steps in front.

    Over an epoch a client goes through its windows in an order of its own, batch by batch, and
    again in another order where there are more batches than that. All comes from the plan's seed,
    the client and the round's number: asked twice, it draws the same.
    """
    own = derived_seed(plan.seed, client)
    generator = torch.Generator().manual_seed(derived_seed(derived_seed(own, number), _NOISE))
    steps, support = plan.local_steps, plan.support
    moves = [
        torch.randint(1, size, (steps, support), generator=generator) for size in design.hidden
    ]
    numbers = (steps, 4 * support + plan.query, design.latent)
    rows = torch.stack([_rows(count, plan, own, number, step) for step in range(steps)])
    noise = torch.randn(numbers, generator=generator)
    return Draw(rows, torch.stack(moves, dim=-1), noise, torch.full((steps,), plan.warmth(number)))


def _rows(count: int, plan: Plan, seed: int, number: int, step: int) -> torch.Tensor:
    """The windows of one batch; none is in it twice, so support and query have none in common."""
    epoch, place = divmod(number, plan.rounds)
    turn, batch = divmod(place * plan.local_steps + step, count // plan.batch)
    order = _order(count, derived_seed(derived_seed(seed, epoch), turn))
    return order[batch * plan.batch : (batch + 1) * plan.batch]


@lru_cache(maxsize=256)
def _order(count: int, seed: int) -> torch.Tensor:
    """All rows in a random order, which serves many rounds."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def task_of(data: ClientData, draw: Draw, design: BlinderDesign, plan: Plan) -> Task:
    """Support and query sets as drawn, gathered where the data lies; axes in front stay there."""
    device = data.windows.device
    rows, moves, noise, warmth = (part.to(device) for part in draw)
    support, query = rows.split([plan.support, plan.query], dim=-1)
    own, shadow, asked = noise.split([plan.support, 3 * plan.support, plan.query], dim=-2)
    moved = [
        (data.hidden[support][..., which] + moves[..., which]) % size
        for which, size in enumerate(design.hidden)
    ]
    return Task(
        _batch(data, support, own, design),
        one_hot(torch.stack(moved, dim=-1), design.hidden),
        shadow.unflatten(-2, (3, plan.support)),
        _batch(data, query, asked, design),
        warmth,
    )


def _batch(
    data: ClientData, rows: torch.Tensor, noise: torch.Tensor, design: BlinderDesign
) -> Batch:
    return Batch(
        data.windows[rows],
        one_hot(data.kept[rows].unsqueeze(-1), (design.kept,)),
        one_hot(data.hidden[rows], design.hidden),
        noise,
    )


def labelled_windows(
    data: ClientData, trainee: Trainee, plan: Plan, client: int, number: int
) -> Task:
    """The tasks of one client's round, with the local steps in front."""
    design = trainee.nets.design
    return task_of(data, drawn(len(data), design, plan, client, number), design, plan)


def draw_task(data: ClientData, trainee: Trainee, plan: Plan, client: int, number: int) -> Task:
    """The first task of one client's round."""
    return at(labelled_windows(data, trainee, plan, client, number), 0)


def at(task: Task, place: Any) -> Task:
    """The part of stacked tasks at a place of the first axes, or with another axis in front.

    >>> one = Batch(*torch.zeros(4, 5, 3, 2))
    >>> task = Task(one, torch.zeros(5, 3, 2), torch.zeros(5, 3, 3, 2), one, torch.ones(5))
    >>> at(task, 0).query.noise.shape, at(task, None).other.shape
    (torch.Size([3, 2]), torch.Size([1, 5, 3, 2]))
    """
    support, query = (Batch(*(part[place] for part in b)) for b in (task.support, task.query))
    return Task(support, task.other[place], task.noise[place], query, task.warmth[place])


def client_updates(
    trainee: Trainee, vector: torch.Tensor, tasks: Task, plan: Plan, rate: float | torch.Tensor
) -> torch.Tensor:
    """What clients send, (clients, weights), for tasks with axes (clients, local steps) in front.

    A gradient at the server's weights; or what Adam at that rate changed in them, step by step on
    the client. All clients go through one vectorised pass; a client on its own is a pass of one.
    """

    def gradient(vector: torch.Tensor, task: Task) -> torch.Tensor:
        return meta_gradient(
            vector, task, trainee.nets, trainee.layout, plan.adapting(), trainee.scale
        )

    if plan.sends == "gradients":
        first = at(tasks, (slice(None), 0))
        sent: torch.Tensor = vmap(gradient, (None, 0), chunk_size=_CLIENTS_AT_ONCE)(vector, first)
        return sent.detach()
    own = vector.expand(len(tasks.other), -1)
    moments = Moments.at_rest(own)
    for step in range(plan.local_steps):
        task = at(tasks, (slice(None), step))
        descent = vmap(gradient, chunk_size=_CLIENTS_AT_ONCE)(own, task).detach()
        own, moments = adam_step(own, descent, moments, step + 1, rate)
    return own - vector


def people_of(windows: Windows) -> dict[int, Windows]:
    """Each person's windows, by the person's code: one person is one client."""
    return {
        int(person): windows.select(np.flatnonzero(windows.subject == person))
        for person in np.unique(windows.subject)
    }
