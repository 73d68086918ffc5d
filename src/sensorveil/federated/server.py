"""The server's part: who is asked, whose answer counts, and what the weights become.

Pure functions; engines only carry messages. Nothing here sees a window or a label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from sensorveil.federated.plan import Plan
from sensorveil.nets.meta import Moments, adam_step

REASONS = ("wrong size", "not finite", "outsized", "nobody asked for it", "sent nothing")
"""Why an answer can be refused."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a client sends: its number, its update, and how many windows it learnt from."""

    client: int
    update: torch.Tensor
    windows: int


@dataclass(frozen=True)
class Round:
    """What happened in one round: numbers of clients, bytes to and from them, epsilon so far."""

    asked: int
    answered: int
    refused: int
    bytes_down: int
    bytes_up: int
    epsilon: float = 0.0


@dataclass(frozen=True, eq=False)
class State:
    """All that a federation has reached after some rounds, and all that it needs to go on."""

    vector: torch.Tensor
    moments: Moments
    chosen: tuple[int, ...] = ()
    """The clients of the epoch that is under way."""
    log: tuple[Round, ...] = ()
    refusals: tuple[tuple[int, int, int], ...] = field(default=())
    """Round, client and reason of every answer that was refused."""

    @classmethod
    def fresh(cls, vector: torch.Tensor) -> State:
        """Before the first round."""
        return cls(vector, Moments.at_rest(vector))

    @property
    def number(self) -> int:
        """How many rounds are done."""
        return len(self.log)

    @property
    def bytes_sent(self) -> int:
        """To and from clients, in all rounds."""
        return sum(one.bytes_down + one.bytes_up for one in self.log)


def choose(clients: Sequence[int], plan: Plan, generator: np.random.Generator) -> tuple[int, ...]:
    """Line 4 of algorithm 1: the clients of an epoch, a fixed number of them.

    In a private federation each by chance on its own, since that is what the accountant counts.
    """
    known = sorted(clients)
    if plan.noise:
        drawn = generator.random(len(known)) < plan.share
        return tuple(client for client, taken in zip(known, drawn, strict=True) if taken)
    return tuple(sorted(generator.choice(known, plan.size(len(known)), replace=False).tolist()))


def sift(
    answers: Sequence[Answer], chosen: Sequence[int], size: int, plan: Plan
) -> tuple[list[Answer], dict[int, str]]:
    """The answers that count, in the clients' order, and why others were refused.

    What is outsized is judged by the round's median, unless the federation is private: there all
    lengths are cut, and one client must not decide about another.
    """
    good: list[Answer] = []
    refused: dict[int, str] = {}
    for answer in sorted(answers, key=lambda one: one.client):
        reason = _fault(answer, chosen, size)
        if reason:
            refused[answer.client] = reason
        else:
            good.append(answer)
    if plan.noise or len(good) < 3:
        return good, refused
    lengths = torch.stack([answer.update.norm() for answer in good])
    limit = plan.outsized * lengths.median()
    for answer, length in zip(good, lengths, strict=True):
        if length > limit:
            refused[answer.client] = "outsized"
    return [answer for answer in good if answer.client not in refused], refused


def _fault(answer: Answer, chosen: Sequence[int], size: int) -> str | None:
    if answer.client not in chosen:
        return "nobody asked for it"
    if not answer.update.numel():
        return "sent nothing"
    if answer.update.shape != (size,):
        return "wrong size"
    return None if bool(answer.update.isfinite().all()) else "not finite"


def combined(answers: Sequence[Answer], plan: Plan) -> torch.Tensor:
    """The mean of the updates: plain as in lines 9 and 10, or weighted by numbers of windows."""
    updates = torch.stack([answer.update for answer in answers])
    if not plan.weighted:
        return updates.mean(0)
    shares = torch.tensor([float(answer.windows) for answer in answers], device=updates.device)
    return (updates * (shares / shares.sum())[:, None]).sum(0)


def advanced(
    state: State,
    mean: torch.Tensor,
    plan: Plan,
    happened: Round,
    refused: Mapping[int, str],
) -> State:
    """The state after a round: a step of Adam along gradients, or the mean of the changes."""
    number = state.number + 1
    if plan.sends == "gradients":
        vector, moments = adam_step(state.vector, mean, state.moments, number, plan.rate)
    else:
        vector, moments = state.vector + mean, state.moments
    named = [(number, client, REASONS.index(reason)) for client, reason in refused.items()]
    return replace(
        state,
        vector=vector,
        moments=moments,
        log=(*state.log, happened),
        refusals=(*state.refusals, *named),
    )
