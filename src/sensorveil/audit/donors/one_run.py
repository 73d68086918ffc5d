"""A lower bound on epsilon from one training run: is the noise what the accountant claims?

Canaries are inserted among the gradients, each with probability 1/2. An attacker who sees the noisy
gradients guesses which. More right guesses than an epsilon allows refute it.

Steinke, Nasr and Jagielski, Privacy Auditing with One (1) Training Run (2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import binom
from torch import nn

from sensorveil.errors import Refusal
from sensorveil.methods.csi.dp_sgd import Canaries

CONFIDENCE = 0.95


@dataclass(frozen=True)
class OneRunAudit:
    """With 95% confidence, epsilon is above `bound`."""

    bound: float
    right: int
    guesses: int
    canaries: int


class GradientCanaries:
    """Gradients of full norm, each along a weight of its own.

    An inserted one is sampled at each step like any unit. Its score is the sum of all noisy
    gradients along its weight. Rows are as long as the network is large: for small networks.

    Parameters
    ----------
    count
        Number of canaries; about half of them are inserted.
    max_grad_norm
        The norm of each, at which nothing is clipped.
    rng
        Draws which are inserted, their weights, and when they are sampled.
    """

    def __init__(self, count: int, max_grad_norm: float, rng: np.random.Generator) -> None:
        self.max_grad_norm, self.rng = max_grad_norm, rng
        self.inserted = rng.random(count) < 0.5
        self.scores = np.zeros(count)
        self._weights: torch.Tensor | None = None

    def insert(self, parameters: Sequence[nn.Parameter], sampling_probability: float) -> None:
        """Append a row for each inserted canary that is sampled."""
        weights = self._own_weights(parameters)
        sampled = self.inserted & (self.rng.random(len(self.inserted)) < sampling_probability)
        own, sizes = weights[torch.from_numpy(sampled)], [one.numel() for one in parameters]
        rows = torch.zeros(len(own), sum(sizes))
        rows[torch.arange(len(own)), own] = self.max_grad_norm
        parts = rows.split(sizes, dim=1)
        for one, part in zip(parameters, parts, strict=True):
            gradients = part.view(-1, *one.shape).to(one)
            one.grad_sample = torch.cat([one.grad_sample, gradients])  # type: ignore[attr-defined]

    def observe(self, parameters: Sequence[nn.Parameter]) -> None:
        """Add the noisy gradient along each canary's weight to its score."""
        flat = torch.cat([one.grad.flatten() for one in parameters if one.grad is not None])
        self.scores += flat[self._own_weights(parameters)].double().cpu().numpy()

    def _own_weights(self, parameters: Sequence[nn.Parameter]) -> torch.Tensor:
        if self._weights is None:
            total, count = sum(one.numel() for one in parameters), len(self.inserted)
            if total < count:
                raise Refusal(f"{count} canaries need a weight each; there are {total}")
            self._weights = torch.from_numpy(self.rng.permutation(total)[:count])
        return self._weights


def audit_one_run(
    train: Callable[[Canaries], object], canaries: GradientCanaries, guesses: int, delta: float
) -> OneRunAudit:
    """Train once with canaries, and guess those with the highest and the lowest scores.

    Parameters
    ----------
    train
        Trains with the canaries inserted.
    canaries
        Not used before.
    guesses
        How many guesses are made, which must be chosen before anything is seen: for half of them
        that the canary was inserted, for the others that it was not.
    delta
        The delta of the claim.
    """
    count = len(canaries.inserted)
    if not 2 <= guesses <= count:
        raise Refusal(f"guesses must be from 2 to {count}, the canaries; here is {guesses}")
    train(canaries)
    order = np.argsort(canaries.scores)
    lowest, highest = order[: guesses // 2], order[count - guesses // 2 :]
    right = int((~canaries.inserted[lowest]).sum() + canaries.inserted[highest].sum())
    made = len(lowest) + len(highest)
    return OneRunAudit(epsilon_lower_bound(right, made, count, delta), right, made, count)


def epsilon_lower_bound(
    right: int, guesses: int, canaries: int, delta: float, confidence: float = CONFIDENCE
) -> float:
    """The largest epsilon that so many right guesses refute; theorem 5.2 of the paper.

    >>> round(epsilon_lower_bound(100, 100, 100, delta=0.0), 2)
    3.49
    >>> epsilon_lower_bound(50, 100, 100, delta=0.0)
    0.0
    """

    def excess(epsilon: float) -> float:
        return p_value(right, guesses, canaries, epsilon, delta) - (1 - confidence)

    if excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-10))


def p_value(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of so many right guesses under (epsilon, delta)-DP."""
    probabilities = binom.pmf(np.arange(guesses + 1), guesses, 1 / (1 + math.exp(-epsilon)))
    tail = probabilities[right:].sum()
    # alpha of the paper: the most that i guesses, paid for by delta, can add to the tail.
    below = probabilities[:right][::-1].cumsum()
    alpha = (below / np.arange(1, right + 1)).max(initial=0.0)
    return float(min(1.0, tail + 2 * canaries * delta * alpha))
