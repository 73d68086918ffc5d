"""The server's part: who is asked, whose answer counts, and what the weights become.

Pure functions; engines only carry messages. Nothing here sees a window or a label.
"""

from __future__ import annotations

import math
import statistics
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


def choose(clients: Sequence[int], plan: Plan, rng: np.random.Generator) -> tuple[int, ...]:
    """Line 4 of algorithm 1: the clients of an epoch, a fixed number of them.

    In a private federation each by chance on its own, since that is what the accountant counts.
    """
    known = sorted(clients)
    if plan.noise:
        drawn = rng.random(len(known)) < plan.share
        return tuple(client for client, taken in zip(known, drawn, strict=True) if taken)
    return tuple(sorted(rng.choice(known, plan.size(len(known)), replace=False).tolist()))


def sift(
    answers: Sequence[Answer], chosen: Sequence[int], size: int, plan: Plan
) -> tuple[list[Answer], dict[int, str]]:
    """The answers that count, in the clients' order, and why others were refused.

    What is outsized is judged by the round's median, unless the federation is private: there all
    lengths are cut, and one client must not decide about another.
    """
    ordered = sorted(answers, key=lambda one: one.client)
    refused = {one.client: why for one in ordered if (why := _fault(one, chosen, size))}
    lengths = _lengths([one for one in ordered if one.client not in refused])
    refused |= {client: "not finite" for client, long in lengths.items() if not math.isfinite(long)}
    judged = {client: long for client, long in lengths.items() if client not in refused}
    if len(judged) >= 3 and not plan.noise:
        limit = plan.outsized * statistics.median_low(judged.values())
        refused |= {client: "outsized" for client, long in judged.items() if long > limit}
    return [one for one in ordered if one.client not in refused], refused


def _lengths(answers: Sequence[Answer]) -> dict[int, float]:
    """The norm of each update, fetched at once: a GPU is waited for but once a round."""
    if not answers:
        return {}
    norms = torch.stack(
        [torch.linalg.vector_norm(one.update, dtype=torch.float64) for one in answers]
    )
    return dict(zip((one.client for one in answers), norms.tolist(), strict=True))


def _fault(answer: Answer, chosen: Sequence[int], size: int) -> str | None:
    if answer.client not in chosen:
        return "nobody asked for it"
    if not answer.update.numel():
        return "sent nothing"
    return "wrong size" if answer.update.shape != (size,) else None


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
    rate, number = plan.rate_at(state.number), state.number + 1
    if plan.sends == "gradients":
        vector, moments = adam_step(state.vector, mean, state.moments, number, rate)
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
