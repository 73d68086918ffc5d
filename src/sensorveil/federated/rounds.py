"""The rounds of a federation, whoever carries the messages."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from sensorveil.errors import Refusal
from sensorveil.federated.plan import Plan
from sensorveil.federated.privacy import affordable, epsilon
from sensorveil.federated.server import (
    Answer,
    Round,
    State,
    advanced,
    choose,
    combined,
    sift,
)
from sensorveil.progress import track

Watch = Callable[[State], None]
"""Is shown the state after every round."""


class Carrier(Protocol):
    """Whatever can reach the clients: this process, or Flower."""

    def clients(self) -> Sequence[int]:
        """The numbers of all clients that can be asked now."""

    def ask(self, vector: torch.Tensor, number: int, chosen: Sequence[int]) -> list[Answer]:
        """The answers that came before the deadline, to round `number` at these weights."""


def run_rounds(
    state: State,
    plan: Plan,
    carrier: Carrier,
    keep: Callable[[State], None] | None = None,
    watch: Watch | None = None,
) -> State:
    """Goes on from a state until all rounds of the plan are done, or its budget is spent.

    `keep` puts the state where it lasts, before the next round begins. What a round draws follows
    from its number, so a federation that was stopped ends as if it had not been; only the chance
    of a private one comes from the operating system.
    """
    for number in track(range(plan.total), "rounds"):
        if number < state.number:
            continue
        if not affordable(plan, number + 1):
            break
        state = _next(state, plan, carrier)
        if keep:
            keep(state)
        if watch:
            watch(state)
    return state


def _next(state: State, plan: Plan, carrier: Carrier) -> State:
    """One round: ask, sift, combine, step; asked again where too few answered."""
    number, asked, size = state.number, 0, len(state.vector)
    answered, up = 0, 0
    refusals: dict[int, str] = {}
    if number % plan.rounds == 0 or not state.chosen:
        state = _with_clients(state, plan, carrier, attempt=0)
    for attempt in range(1, plan.attempts + 1):
        answers = carrier.ask(state.vector, number, state.chosen) if state.chosen else []
        good, refused = sift(answers, state.chosen, size, plan)
        asked, answered = asked + len(state.chosen), answered + len(answers)
        up += sum(answer.update.nbytes for answer in answers)
        refusals |= refused
        if len(good) >= plan.needed(len(state.chosen)) or (plan.noise and not state.chosen):
            break
        if not plan.noise:  # a private group stays as it was drawn
            state = _with_clients(state, plan, carrier, attempt)
    else:
        raise Refusal(
            f"round {number + 1}: fewer than {plan.quorum:.0%} of the clients sent something"
            f" that counts, {plan.attempts} times in turn{_named(refusals)}; what was reached"
            " is kept, go on with --resume"
        )
    noise = _secret_noise(state.vector) if plan.noise else None
    mean = combined(good, plan, len(carrier.clients()), noise)
    spent = epsilon(plan, number + 1) if plan.noise else 0.0
    down = asked * state.vector.nbytes
    happened = Round(asked, answered, len(refusals), down, up, spent)
    return advanced(state, mean, plan, happened, refusals)


def _secret_noise(like: torch.Tensor) -> torch.Tensor:
    """Standard normal noise that no seed of the plan can repeat: who could, would take it out."""
    generator = torch.Generator().manual_seed(secrets.randbits(63))
    return torch.randn(like.shape, generator=generator).to(like.device)


def _with_clients(state: State, plan: Plan, carrier: Carrier, attempt: int) -> State:
    """The state with clients drawn for the epoch, anew for another attempt."""
    clients = carrier.clients()
    if not clients:
        raise Refusal("no client can be reached")
    seed = secrets.randbits(128) if plan.noise else [plan.seed, state.number, attempt]
    return replace(state, chosen=choose(clients, plan, np.random.default_rng(seed)))


def _named(refusals: Mapping[int, str]) -> str:
    named = ", ".join(f"client {client}: {reason}" for client, reason in refusals.items())
    return f" ({named})" if named else ""
