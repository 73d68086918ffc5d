"""A lower bound on epsilon from one training: does the noise hold what the accountant claims?

Steinke, Nasr and Jagielski, Privacy Auditing with One (1) Training Run (2023). Canaries are planted
among the gradients, each of them or not by the toss of a coin. Whoever sees the noisy gradients
guesses which; who guesses better than an epsilon allows has refuted it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from sensorveil.errors import Refusal
from sensorveil.nets.private_training import Canaries

CONFIDENCE = 0.95


@dataclass(frozen=True)
class OneRun:
    """What one training showed: epsilon is above `bound`, with 95% confidence."""

    bound: float
    right: int
    guesses: int
    canaries: int


class GradientCanaries:
    """Gradients of full length, each along one weight of its own, there or not by a coin.

    One that is there is drawn at each step as any unit is. Its score is the sum of all noisy
    gradients along its weight. Rows are as long as the network is large: for small ones.
    """

    def __init__(self, count: int, clip: float, rng: np.random.Generator):
        self.clip, self.generator = clip, rng
        self.inside = rng.random(count) < 0.5
        self.scores = np.zeros(count)
        self._weights: torch.Tensor | None = None

    def plant(self, parameters: Sequence[nn.Parameter], chance: float) -> None:
        """Adds a row for each canary that is drawn."""
        weights = self._own_weights(parameters)
        drawn = self.inside & (self.generator.random(len(self.inside)) < chance)
        own = weights[torch.from_numpy(drawn)]
        rows = torch.zeros(len(own), sum(one.numel() for one in parameters))
        rows[torch.arange(len(own)), own] = self.clip
        parts = rows.split([one.numel() for one in parameters], dim=1)
        for one, part in zip(parameters, parts, strict=True):
            planted = part.view(-1, *one.shape).to(one)
            one.grad_sample = torch.cat([one.grad_sample, planted])  # type: ignore[attr-defined]

    def observe(self, parameters: Sequence[nn.Parameter]) -> None:
        """Adds up what each canary's weight was told."""
        flat = torch.cat([one.grad.flatten() for one in parameters if one.grad is not None])
        self.scores += flat[self._own_weights(parameters)].double().cpu().numpy()

    def _own_weights(self, parameters: Sequence[nn.Parameter]) -> torch.Tensor:
        if self._weights is None:
            there, wanted = sum(one.numel() for one in parameters), len(self.inside)
            if there < wanted:
                raise Refusal(f"{wanted} canaries need a weight each; there are {there}")
            self._weights = torch.from_numpy(self.generator.permutation(there)[:wanted])
        return self._weights


def audit_one_run(
    train: Callable[[Canaries], object], canaries: GradientCanaries, guesses: int, delta: float
) -> OneRun:
    """Trains once with the canaries, and guesses on those of the highest and lowest scores.

    How many `guesses` are made must be settled before anything is seen: half of them say that a
    canary was in, half that it was out; on all others nothing is said.
    """
    count = len(canaries.inside)
    if not 2 <= guesses <= count:
        raise Refusal(f"guesses must be from 2 to {count}, the canaries; here is {guesses}")
    train(canaries)
    order = np.argsort(canaries.scores)
    out, inside = order[: guesses // 2], order[count - guesses // 2 :]
    right = int((~canaries.inside[out]).sum() + canaries.inside[inside].sum())
    made = len(out) + len(inside)
    return OneRun(epsilon_above(right, made, count, delta), right, made, count)


def epsilon_above(
    right: int, guesses: int, canaries: int, delta: float, confidence: float = CONFIDENCE
) -> float:
    """The largest epsilon that so many right guesses refute, theorem 5.2 of the paper.

    >>> round(epsilon_above(100, 100, 100, delta=0.0), 2)
    3.49
    >>> epsilon_above(50, 100, 100, delta=0.0)
    0.0
    """

    def refuted(epsilon: float) -> bool:
        return chance_of(right, guesses, canaries, epsilon, delta) < 1 - confidence

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def chance_of(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """At most the chance of so many right guesses, or more, where (epsilon, delta) holds."""
    share = 1 / (1 + math.exp(-epsilon))
    counts = binomial(guesses, share)
    tail = counts[right:].sum()
    # a of the paper: the most that i steps of luck, paid for by delta, can add to the tail.
    below = counts[:right][::-1].cumsum()
    gain = (below / np.arange(1, right + 1)).max(initial=0.0)
    return float(min(1.0, tail + 2 * canaries * delta * gain))


def binomial(count: int, share: float) -> np.ndarray:
    """The chance of 0 to `count` successes.

    >>> binomial(2, 0.5).round(9).tolist()
    [0.25, 0.5, 0.25]
    """
    number = torch.arange(count + 1, dtype=torch.float64)
    log = math.lgamma(count + 1) - torch.lgamma(number + 1) - torch.lgamma(count - number + 1)
    log = log + number * math.log(share) + (count - number) * math.log1p(-share)
    return log.exp().numpy()
