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
from sensorveil.federated.privacy import affordable, epsilon, noisy_mean
from sensorveil.federated.server import Answer, Round, State, advanced, choose, combined, sift
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


class _Collecting:
    """The attempts of one round: what was sent, what came back, who was refused."""

    def __init__(self, carrier: Carrier, plan: Plan) -> None:
        self.carrier, self.plan = carrier, plan
        self.asked = self.answered = self.bytes_up = 0
        self.refused: dict[int, str] = {}

    def attempt(self, state: State) -> list[Answer]:
        """Asks the chosen clients once; the answers that count."""
        chosen = state.chosen
        answers = self.carrier.ask(state.vector, state.number, chosen) if chosen else []
        good, refused = sift(answers, chosen, len(state.vector), self.plan)
        self.asked += len(chosen)
        self.answered += len(answers)
        self.bytes_up += sum(answer.update.nbytes for answer in answers)
        self.refused |= refused
        return good

    def enough(self, good: Sequence[Answer], chosen: Sequence[int]) -> bool:
        """Whether a round may count; in a private one, nobody may have been drawn."""
        nobody = bool(self.plan.noise) and not chosen
        return nobody or len(good) >= self.plan.needed(len(chosen))

    def happened(self, state: State) -> Round:
        """The round for the log."""
        spent = epsilon(self.plan, state.number + 1) if self.plan.noise else 0.0
        down = self.asked * state.vector.nbytes
        return Round(self.asked, self.answered, len(self.refused), down, self.bytes_up, spent)


def _next(state: State, plan: Plan, carrier: Carrier) -> State:
    """One round: ask, sift, combine, step; others are asked where too few answered."""
    collecting = _Collecting(carrier, plan)
    for attempt in range(plan.attempts):
        if _needs_clients(state, plan, attempt):
            state = _with_clients(state, plan, carrier, attempt)
        good = collecting.attempt(state)
        if collecting.enough(good, state.chosen):
            mean = _mean(good, state.vector, plan, carrier)
            happened = collecting.happened(state)
            return advanced(state, mean, plan, happened, collecting.refused)
    raise Refusal(
        f"round {state.number + 1}: fewer than {plan.quorum:.0%} of the clients sent something that"
        f" counts, {plan.attempts} times in turn{_named(collecting.refused)}; what was reached is"
        " kept, go on with --resume"
    )


def _mean(
    good: Sequence[Answer], vector: torch.Tensor, plan: Plan, carrier: Carrier
) -> torch.Tensor:
    if not plan.noise:
        return combined(good, plan)
    updates = [answer.update for answer in good]
    expected = plan.share * len(carrier.clients())
    return noisy_mean(updates, plan, expected, _secret_noise(vector))


def _needs_clients(state: State, plan: Plan, attempt: int) -> bool:
    """At the start of an epoch, and for another attempt; a private group stays as it was drawn."""
    if attempt:
        return not plan.noise
    return state.number % plan.rounds == 0 or not (state.chosen or plan.noise)


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
