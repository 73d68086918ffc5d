"""The server's part of algorithm 1: who is sampled, whose update counts, what the weights become.

`FederatedServer.sample` and `FederatedServer.aggregate` are a round. They see no window and no
label, and do not know who carries the messages: `strategy` connects them to Flower, `simulation` to
clients in the same process.
"""

from __future__ import annotations

import math
import secrets
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from sensorveil.errors import Refusal
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.meta_learning import AdamState, adam_step
from sensorveil.federated.privacy import affordable_rounds, epsilon, fresh_noise, noisy_mean
from sensorveil.methods.blinder import Blinder
from sensorveil.progress import track
from sensorveil.train import Checkpoint

REASONS = ("wrong size", "not finite", "outsized", "not sampled", "sent nothing")
"""Why an update can be refused."""

_STAGE = "federation"


@dataclass(frozen=True, eq=False)
class ClientUpdate:
    """What a client sends: its number, its update, and how many windows it learns from."""

    client: int
    update: torch.Tensor
    windows: int


class RoundLog(NamedTuple):
    """Numbers of clients, and bytes to and from them, of one round."""

    asked: int
    answered: int
    refused: int
    bytes_down: int
    bytes_up: int


@dataclass(eq=False)
class ServerState:
    """Everything that a federation has reached, and everything that it needs to go on.

    Parameters
    ----------
    weights, adam
        The weights, and the state of the server's Adam.
    clients
        The clients of the epoch under way.
    rounds
        One log a round.
    refusals
        Round, client and number in `REASONS` of every update that was refused.
    """

    weights: torch.Tensor
    adam: AdamState
    clients: tuple[int, ...] = ()
    rounds: list[RoundLog] = field(default_factory=list)
    refusals: list[tuple[int, int, int]] = field(default_factory=list)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The state as tensors for a safetensors file."""
        return {
            "weights": self.weights,
            "adam_mean": self.adam.mean,
            "adam_square": self.adam.square,
            "clients": torch.tensor(self.clients, dtype=torch.long),
            "rounds": torch.tensor(self.rounds, dtype=torch.long),
            "refusals": torch.tensor(self.refusals, dtype=torch.long),
        }

    @classmethod
    def of_tensors(
        cls, kept: Mapping[str, torch.Tensor], device: torch.device | str = "cpu"
    ) -> ServerState:
        """The state that `tensors` was taken from.

        Tensors of a file can lie at any address, and last bits of a matrix product depend on that;
        so they are copied to where torch would allocate them.
        """
        weights, mean, square = (
            kept[name].clone().to(device) for name in ("weights", "adam_mean", "adam_square")
        )
        return cls(
            weights,
            AdamState(mean, square),
            tuple(kept["clients"].tolist()),
            [RoundLog(*row) for row in kept["rounds"].tolist()],
            [(number, client, reason) for number, client, reason in kept["refusals"].tolist()],
        )


def federation_checkpoint(
    folder: Path | str, start: Blinder, config: FederationConfig, resume: bool
) -> Checkpoint:
    """Where a federation keeps its state; a folder that holds another federation is refused.

    Parameters
    ----------
    folder
        The folder.
    start
        The run that the federation starts from.
    config
        Its configuration.
    resume
        Whether to go on with a state that the folder holds; without it such a folder is refused.
    """
    purpose = {
        **start.made_with(),
        "keep": start.policy_.keep,
        "hide": start.policy_.hide,
        "origin": asdict(start.origin_) if start.origin_ else None,
        "config": config.flat(),
    }
    checkpoint = Checkpoint(folder, purpose)
    if checkpoint.load(_STAGE) and not resume:
        raise Refusal(f"{folder} holds this federation already; go on with --resume")
    return checkpoint


OnRound = Callable[[ServerState], None]
"""Is shown the state after every round."""


class FederatedServer:
    """`sample` clients, let them compute, `aggregate` their updates; until `is_done`.

    What a round draws follows from the seed and the round's number. So a federation that was
    stopped ends with the same weights as if it had not been; only the randomness of a private one
    comes from the operating system.

    Parameters
    ----------
    weights
        Weights before the first round.
    config
        The federation's configuration.
    checkpoint
        Where the state is written after every round, and resumed from.
    on_round
        Called with the state after every round.
    """

    def __init__(
        self,
        weights: torch.Tensor,
        config: FederationConfig,
        checkpoint: Checkpoint | None = None,
        on_round: OnRound | None = None,
    ) -> None:
        self.config, self.checkpoint, self.on_round = config, checkpoint, on_round
        kept = checkpoint.load(_STAGE) if checkpoint else {}
        self.state = ServerState(weights, AdamState.zeros(weights))
        if kept:
            self.state = ServerState.of_tensors(kept, weights.device)
        self._progress: Iterator[int] = track(range(config.total_rounds), "rounds")
        for _ in range(self.number + 1):
            next(self._progress, None)
        self._start_round()

    def _start_round(self) -> None:
        self._attempt = self._asked = self._answered = self._bytes_up = 0
        self._refused: dict[int, str] = {}

    @property
    def number(self) -> int:
        """How many rounds are done, which is the number of the next one."""
        return len(self.state.rounds)

    @property
    def rounds_left(self) -> int:
        """How many rounds are left, as far as a private federation can afford them."""
        return max(0, affordable_rounds(self.config) - self.number)

    @property
    def is_done(self) -> bool:
        """Whether no round is left."""
        return not self.rounds_left

    def sample(self, available: Sequence[int]) -> tuple[int, ...]:
        """The clients of this round: those of the epoch, sampled anew when one begins (line 4).

        They are also sampled anew where too few answered; a private epoch keeps its clients.
        """
        config, state = self.config, self.state
        begins = self._attempt == 0 and self.number % config.rounds == 0
        if begins or (self._attempt and not config.is_private):
            if not available:
                raise Refusal("no client can be reached")
            seed = [config.seed, self.number, self._attempt]
            rng = np.random.default_rng(secrets.randbits(128) if config.is_private else seed)
            state.clients = sample_clients(available, config, rng)
        self._available = len(available)
        self._asked += len(state.clients)
        return state.clients

    def aggregate(self, updates: Sequence[ClientUpdate]) -> bool:
        """Step along the mean of the updates that count (lines 9 and 10), and keep the state.

        Returns whether the round is done. With too few updates it is not: clients must be sampled
        again, or, after `attempts`, the federation is refused.
        """
        config, state = self.config, self.state
        good, refused = filter_updates(updates, state.clients, len(state.weights), config)
        self._answered += len(updates)
        self._bytes_up += sum(one.update.nbytes for one in updates)
        self._refused |= refused
        needed = max(1, math.ceil(config.robustness.quorum * len(state.clients)))
        nobody_sampled = config.is_private and not state.clients
        if len(good) < needed and not nobody_sampled:
            self._attempt += 1
            if self._attempt == config.robustness.attempts:
                raise self._too_few()
            return False
        if config.is_private:
            expected = config.client_fraction * self._available
            mean = noisy_mean(
                [one.update for one in good], config, expected, fresh_noise(state.weights)
            )
        else:
            mean = mean_update(good, config)
        if config.algorithm == "fedsgd":
            rate, step = config.learning_rate_at(self.number), self.number + 1
            state.weights, state.adam = adam_step(state.weights, mean, state.adam, step, rate)
        else:
            state.weights = state.weights + mean
        self._end_round()
        return True

    def _end_round(self) -> None:
        """Log the round, write the state, and begin the next one."""
        state, number = self.state, self.number + 1
        down, refused = self._asked * state.weights.nbytes, len(self._refused)
        state.refusals += [(number, who, REASONS.index(why)) for who, why in self._refused.items()]
        state.rounds.append(RoundLog(self._asked, self._answered, refused, down, self._bytes_up))
        self._start_round()
        if self.checkpoint:
            self.checkpoint.save(_STAGE, state.tensors(), is_last=True)
        if self.on_round:
            self.on_round(state)
        next(self._progress, None)

    def _too_few(self) -> Refusal:
        named = ", ".join(f"client {client}: {why}" for client, why in self._refused.items())
        return Refusal(
            f"round {self.number + 1}: fewer than {self.config.robustness.quorum:.0%} of the clients"
            f" sent something that counts, {self.config.robustness.attempts} times in turn"
            f"{f' ({named})' if named else ''}; what was reached is kept, go on with --resume"
        )

    def summary(self) -> dict[str, Any]:
        """Rounds, bytes, refusals by client, and the privacy, for a run's metrics."""
        config, rounds = self.config, self.state.rounds
        sizes = [one.bytes_down + one.bytes_up for one in rounds]
        refused = Counter(f"client {who}: {REASONS[why]}" for _, who, why in self.state.refusals)
        found: dict[str, Any] = {
            "kind": config.kind,
            "config": config.flat(),
            "rounds": len(rounds),
            "bytes": sum(sizes),
            "bytes_by_round": sizes,
            "refused": dict(refused),
        }
        if config.is_private:
            found["privacy"] = {
                "unit": "one client, all data of one person",
                "epsilon": [round(epsilon(config, n + 1), 4) for n in range(len(rounds))],
                "delta": config.privacy.delta,
            }
        return found

    def trained(self, start: Blinder, clients: int) -> Blinder:
        """The run that the federation of so many clients has reached."""
        run = start.with_weights(self.state.weights)
        run.metrics_["federation"] = {"clients": clients, **self.summary()}
        return run


def sample_clients(
    available: Sequence[int], config: FederationConfig, rng: np.random.Generator
) -> tuple[int, ...]:
    """A fixed number of clients; in a private federation each on its own, as its accountant counts.

    >>> sample_clients(range(5), FederationConfig(client_fraction=1.0), np.random.default_rng(0))
    (0, 1, 2, 3, 4)
    """
    known = np.sort(np.asarray(available))
    if config.is_private:
        drawn = known[rng.random(len(known)) < config.client_fraction]
    else:
        size = max(1, math.floor(config.client_fraction * len(known)))
        drawn = np.sort(rng.choice(known, size, replace=False))
    return tuple(drawn.tolist())


def filter_updates(
    updates: Sequence[ClientUpdate], sampled: Sequence[int], size: int, config: FederationConfig
) -> tuple[list[ClientUpdate], dict[int, str]]:
    """The updates that count, in the clients' order, and why others are refused.

    An update is outsized relative to the round's median. A private federation does not judge that:
    it clips all norms, and one client must not decide about another.
    """
    ordered = sorted(updates, key=lambda one: one.client)
    refused = {one.client: why for one in ordered if (why := _fault(one, sampled, size))}
    norms = _norms([one for one in ordered if one.client not in refused])
    refused |= {client: "not finite" for client, norm in norms.items() if not math.isfinite(norm)}
    finite = {client: norm for client, norm in norms.items() if client not in refused}
    if len(finite) >= 3 and not config.is_private:
        limit = config.robustness.max_relative_norm * statistics.median_low(finite.values())
        refused |= {client: "outsized" for client, norm in finite.items() if norm > limit}
    return [one for one in ordered if one.client not in refused], refused


def _fault(update: ClientUpdate, sampled: Sequence[int], size: int) -> str | None:
    if update.client not in sampled:
        return "not sampled"
    if not update.update.numel() or update.windows < 1:
        return "sent nothing"
    return "wrong size" if update.update.shape != (size,) else None


def _norms(updates: Sequence[ClientUpdate]) -> dict[int, float]:
    """The norm of each update, fetched at once: a GPU is waited for but once a round."""
    if not updates:
        return {}
    norms = [torch.linalg.vector_norm(one.update, dtype=torch.float64) for one in updates]
    return dict(zip((one.client for one in updates), torch.stack(norms).tolist(), strict=True))


def mean_update(updates: Sequence[ClientUpdate], config: FederationConfig) -> torch.Tensor:
    """The mean of the updates: plain as in lines 9 and 10, or weighted by numbers of windows."""
    stacked = torch.stack([one.update for one in updates])
    if not config.weighted:
        return stacked.mean(0)
    shares = torch.tensor([float(one.windows) for one in updates], device=stacked.device)
    return (stacked * (shares / shares.sum())[:, None]).sum(0)
