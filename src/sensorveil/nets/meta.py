"""Learning to adapt: gradients through steps of training (MAML), for Blinder's two players.

Algorithm 1 of Blinder (Yang and Ardakanian 2022), the client's part. What a client sends is one
vector of all networks' weights, the encoder's and decoder's first, the discriminators' after them;
inside, weights go by their names, so that no gradient has to be put together on the way. All
functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.func import grad

from sensorveil.nets.blinder import (
    Batch,
    BlinderNets,
    LossWeights,
    Weights,
    both_losses,
    coder_loss,
    decoded,
    encoded,
    surprise,
)
from sensorveil.nets.factorised import sampled


class Task(NamedTuple):
    """What a client takes one meta-gradient from: a support set, and a query set apart from it.

    `other` (n, classes) are the hidden classes of the support's shadow samples, and `noise` the
    three draws they need: for the codes they are made from, and for the codes of the support and
    of the shadows that the discriminators see. `warmth` is how much of beta and gamma counts.
    """

    support: Batch
    other: torch.Tensor
    noise: torch.Tensor
    query: Batch
    warmth: torch.Tensor


@dataclass(frozen=True)
class Adapting:
    """The first step of algorithm 1: how a copy of the networks adapts to the support set.

    `steps` local steps by plain gradient descent at `rate`; in each the discriminators take
    `reader_steps` first, with the codes of shadow samples among the others if `shadows`.
    """

    steps: int = 1
    rate: float = 1e-4
    reader_steps: int = 5
    shadows: bool = True


class Layout:
    """Where each weight lies in the vector of all.

    >>> from sensorveil.nets.blinder import BlinderDesign
    >>> nets = BlinderNets(BlinderDesign(channels=1, length=8, kept=2, hidden=(2,), widths=(4,)))
    >>> layout = Layout(nets)
    >>> vector = layout.vector(nets)
    >>> len(vector) == layout.size, sorted(layout.named(vector)) == sorted(nets.state_dict())
    (True, True)
    """

    def __init__(self, nets: BlinderNets) -> None:
        shapes = {name: weight.shape for name, weight in nets.named_parameters()}
        reading = {name: s for name, s in shapes.items() if name.startswith("discriminators.")}
        self._coder = {name: shape for name, shape in shapes.items() if name not in reading}
        self._readers = reading
        self.coder_size, self.reader_size = _numbers(self._coder), _numbers(self._readers)
        self.size = self.coder_size + self.reader_size

    def vector(self, nets: BlinderNets) -> torch.Tensor:
        """All weights as one vector, a copy."""
        return self.joined(nets.state_dict(), {})

    def players(self, vector: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The coder's part and the discriminators' part of the vector."""
        coder, readers = vector.split([self.coder_size, self.reader_size])
        return coder, readers

    def coder(self, part: torch.Tensor) -> Weights:
        """The coder's weights by name, as views of its part."""
        return _views(part, self._coder)

    def readers(self, part: torch.Tensor) -> Weights:
        """The discriminators' weights by name, as views of their part."""
        return _views(part, self._readers)

    def named(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """All weights by name."""
        coder, readers = self.by_player(vector)
        return {**coder, **readers}

    def by_player(self, vector: torch.Tensor) -> tuple[Weights, Weights]:
        """The coder's and the discriminators' weights by name, as views of the vector."""
        coder, readers = self.players(vector)
        return self.coder(coder), self.readers(readers)

    def joined(self, coder: Weights, readers: Weights) -> torch.Tensor:
        """One vector of both players' weights."""
        both = {**coder, **readers}
        return torch.cat([both[name].flatten() for name in (*self._coder, *self._readers)])


def _numbers(shapes: Mapping[str, torch.Size]) -> int:
    return sum(shape.numel() for shape in shapes.values())


def _views(part: torch.Tensor, shapes: Mapping[str, torch.Size]) -> dict[str, torch.Tensor]:
    pieces = part.split([shape.numel() for shape in shapes.values()])
    return {
        name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }


def with_shadows(
    nets: BlinderNets, coder: Weights, task: Task
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and hidden classes of the support set and of its shadow samples, section 6.2.

    A shadow sample is decoded from a support window's code as of another hidden class, and encoded
    again: it gives the discriminators a class that this person's data does not have.
    """
    support = task.support
    first, own, shadow = task.noise
    z = sampled(*encoded(nets, coder, support.windows), first)
    made = decoded(nets, coder, z, support._replace(hidden=task.other))
    both = encoded(nets, coder, torch.cat([support.windows, made]))
    return sampled(*both, torch.cat([own, shadow])), torch.cat([support.hidden, task.other])


def _codes(
    nets: BlinderNets, coder: Weights, task: Task, shadows: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the discriminators learn from in a local step."""
    if shadows:
        return with_shadows(nets, coder, task)
    codes = encoded(nets, coder, task.support.windows)
    return sampled(*codes, task.noise[1]), task.support.hidden


def adapted(
    nets: BlinderNets,
    coder: Weights,
    readers: Weights,
    task: Task,
    how: Adapting,
    scale: LossWeights,
) -> tuple[Weights, Weights]:
    """Both players after the local steps on the support set: lines 14 to 20 of algorithm 1.

    Each sees the other as fixed, now and when the result is differentiated. As in section 5.1 the
    discriminators go first, and the coder steps against them as they are then.
    """

    def reading(readers: Weights, z: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return surprise(nets, readers, z, hidden)

    def against(coder: Weights, readers: Weights) -> torch.Tensor:
        return coder_loss(nets, coder, readers, task.support, scale.warmed(task.warmth))

    for _ in range(how.steps):
        z, hidden = _codes(nets, _fixed(coder), task, how.shadows)
        for _ in range(how.reader_steps):
            readers = _stepped(readers, grad(reading)(readers, z, hidden), how.rate)
        coder = _stepped(coder, grad(against)(coder, _fixed(readers)), how.rate)
    return coder, readers


def _fixed(weights: Weights) -> Weights:
    return {name: weight.detach() for name, weight in weights.items()}


def _stepped(weights: Weights, slopes: Weights, rate: float) -> Weights:
    return {name: torch.add(own, slopes[name], alpha=-rate) for name, own in weights.items()}


def meta_loss(
    coder: Weights,
    readers: Weights,
    task: Task,
    nets: BlinderNets,
    how: Adapting,
    scale: LossWeights,
) -> torch.Tensor:
    """Equations (4) and (3) on the query set, after adapting to the support set: line 21."""
    players = adapted(nets, coder, readers, task, how, scale)
    return both_losses(nets, *players, task.query, scale.warmed(task.warmth))


def meta_gradient(
    vector: torch.Tensor,
    task: Task,
    nets: BlinderNets,
    layout: Layout,
    how: Adapting,
    scale: LossWeights,
) -> torch.Tensor:
    """Lines 22 and 23: the gradient with respect to the weights before adapting, of second order.

    Without a local step it is the plain gradient of equations (4) and (3), as in central training.
    """
    slopes = grad(meta_loss, argnums=(0, 1))(*layout.by_player(vector), task, nets, how, scale)
    return layout.joined(*slopes)


class Moments(NamedTuple):
    """What Adam remembers: the means of gradients and of their squares."""

    first: torch.Tensor
    second: torch.Tensor

    @classmethod
    def at_rest(cls, vector: torch.Tensor) -> Moments:
        """Before the first step."""
        return cls(torch.zeros_like(vector), torch.zeros_like(vector))


def adam_step(
    vector: torch.Tensor,
    gradient: torch.Tensor,
    moments: Moments,
    step: int,
    rate: float | torch.Tensor,
) -> tuple[torch.Tensor, Moments]:
    """Adam (Kingma and Ba 2015) with its usual constants; `step` counts from 1.

    >>> vector, gradient = torch.tensor([1.0]), torch.tensor([0.5])
    >>> adam_step(vector, gradient, Moments.at_rest(vector), 1, rate=0.1)[0]
    tensor([0.9000])
    """
    keep, keep_square = 0.9, 0.999
    first = keep * moments.first + (1 - keep) * gradient
    second = keep_square * moments.second + (1 - keep_square) * gradient.square()
    spread = (second / (1 - keep_square**step)).sqrt() + 1e-8
    return vector - rate / (1 - keep**step) * first / spread, Moments(first, second)
