"""The plan of a federation: what server and clients do, known to all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.nets.meta import Adapting
from sensorveil.nets.training import one_cycle, warmth

SENT = ("gradients", "changes")
"""What a client sends: one gradient (FedSGD), or what its own steps changed (FedAvg)."""


@dataclass(frozen=True)
class Plan:
    """Algorithm 1 of Blinder, with the values of its section 7 and, where it has none, its code's.

    An epoch has `rounds` rounds with the same clients, a `share` of all: 150 rounds of 16 windows
    go once through the 2,400 that a person of MotionSense has after balancing. Each client adapts
    to `support` windows in `inner_steps` steps and takes the gradient on `query` others.

    `balance` is the number of windows that each kept class has after SMOTE and under-sampling,
    where the largest has at least twice the smallest's; 0 leaves all as it is. `skew` above 0, for
    experiments, makes classes uneven by that ratio instead, R_D in the paper. With "changes" a
    client takes `local_steps` steps on its own before it sends. The server takes the plain mean of
    line 9, or `weighted` one by the clients' numbers of windows. With `cycle` the rate rises and
    falls once over all rounds; all weights of the loss but alpha grow over the first `warm_up`.

    The networks follow the people of an epoch. On validation windows of MotionSense (preset fast,
    one seed) dense models read the activity of 89.5% after 4 epochs of 150 rounds, and of 93.0%
    after 38 of 16: in short epochs everybody's turn comes sooner.

    A round counts once a `quorum` of its clients answered within `deadline` seconds; another
    `attempts` is made if not. An update `outsized` times as long as the round's median is refused.

    With `noise` above 0 the federation is private for each client: updates are cut at length
    `clip`, and noise of deviation noise * clip is added to their sum. It ends before the epsilon
    at `delta` would pass `budget`.
    """

    epochs: int = 30
    rounds: int = 150
    share: float = 0.4
    support: int = 1
    query: int = 15
    inner_steps: int = 1
    inner_rate: float = 1e-4
    reader_steps: int = 5
    shadows: bool = True
    balance: int = 600
    neighbours: int = 5
    skew: float = 0.0
    sends: str = "gradients"
    local_steps: int = 1
    rate: float = 1e-3
    cycle: bool = False
    warm_up: float = 0.0
    weighted: bool = False
    quorum: float = 0.5
    deadline: float = 60.0
    attempts: int = 3
    outsized: float = 10.0
    clip: float = 1.0
    noise: float = 0.0
    delta: float = 1e-5
    budget: float = 8.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            self.require(not isinstance(value, float) or math.isfinite(value), name, "finite")
        self.check()

    def require(self, holds: bool, name: str, limit: str) -> None:
        """Refuse the setting `name` unless its limit holds."""
        if not holds:
            raise Refusal(f"setting '{name}' is {getattr(self, name)}; it must be {limit}")

    def check(self) -> None:
        """Refuses numbers without sense, and what does not go together."""
        may_be_zero = ("support", "inner_steps", "balance", "skew", "warm_up", "noise", "seed")
        for name, value in vars(self).items():
            if name in may_be_zero:
                self.require(value >= 0, name, "0 or more")
            elif isinstance(value, int | float) and not isinstance(value, bool):
                self.require(value > 0, name, "above 0")
        for name in ("share", "quorum", "delta", "warm_up"):
            self.require(getattr(self, name) <= 1, name, "at most 1")
        if self.skew:
            self.require(self.skew >= 1, "skew", "0, or 1 and more")
            self.require(self.balance > 0, "balance", "above 0 where there is a skew")
        if self.inner_steps:
            self.require(self.support > 0, "support", "above 0 where there are inner steps")
        if self.sends not in SENT:
            raise refuse_unknown("what is sent", self.sends, SENT)
        if self.sends == "gradients":
            self.require(self.local_steps == 1, "local_steps", "1 where gradients are sent")
        if self.noise and self.weighted:
            raise Refusal("a private federation takes a plain mean: set weighted=false or noise=0")

    @property
    def batch(self) -> int:
        """Windows that one gradient takes."""
        return self.support + self.query

    @property
    def kind(self) -> str:
        """Whose algorithm it is: in Blinder clients adapt, in FedBlinder they do not."""
        return "Blinder" if self.inner_steps else "FedBlinder"

    @property
    def total(self) -> int:
        """Rounds in all."""
        return self.epochs * self.rounds

    def rate_at(self, number: int) -> float:
        """The rate of a round, by how many were before it."""
        return self.rate * one_cycle(number / self.total) if self.cycle else self.rate

    def warmth(self, number: int) -> float:
        """How much of beta and gamma counts in a round.

        >>> [Plan(epochs=1, rounds=10, warm_up=0.4).warmth(number) for number in (0, 2, 4, 9)]
        [0.0, 0.5, 1.0, 1.0]
        """
        return warmth(number / self.total, self.warm_up)

    def adapting(self) -> Adapting:
        """How clients adapt to their support set."""
        return Adapting(self.inner_steps, self.inner_rate, self.reader_steps, self.shadows)

    def size(self, clients: int) -> int:
        """How many clients an epoch has, of so many.

        >>> Plan().size(24), Plan().size(1)
        (9, 1)
        """
        return max(1, math.floor(self.share * clients))

    def needed(self, chosen: int) -> int:
        """How many of the chosen clients must answer for a round to count.

        >>> Plan(quorum=0.5).needed(9), Plan(quorum=0.5).needed(1)
        (5, 1)
        """
        return max(1, math.ceil(self.quorum * chosen))

    def fedblinder(self, **own: Any) -> Plan:
        """The paper's baseline with as many rounds: FedAvg of five local steps, nothing balanced.

        The paper says five rounds on the local data and no more; here a round is a batch. It can
        have values of its `own`, such as the rate of the local steps.

        >>> Plan(rate=0.003).fedblinder(rate=0.001).rate
        0.001
        """
        plain: dict[str, Any] = {
            "support": 0,
            "query": self.batch,
            "inner_steps": 0,
            "shadows": False,
            "balance": 0,
            "sends": "changes",
            "local_steps": 5,
            "weighted": True,
        }
        if own.get("inner_steps"):
            raise Refusal("FedBlinder does not adapt; leave inner_steps out of the baseline's plan")
        made = replace(self, **{**plain, **own})
        if made.total != self.total:
            raise Refusal(
                f"FedBlinder would have {made.total} rounds and Blinder {self.total}; they are"
                " compared with as many, so leave epochs and rounds out of the baseline's plan"
            )
        return made
