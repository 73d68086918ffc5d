"""The state of a federation on disk, after every round, and what a run says about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from sensorveil.errors import Refusal
from sensorveil.federated.plan import Plan
from sensorveil.federated.server import REASONS, Round, State
from sensorveil.methods.blinder import Blinder
from sensorveil.nets.meta import Moments
from sensorveil.train import Checkpoint

_STAGE = "federation"
_COLUMNS = attrgetter(*(entry.name for entry in fields(Round)))  # astuple takes ten times as long


class Keeper:
    """Keeps the state of one federation in a folder.

    A folder that holds another federation is refused, and one that holds this one already is, too,
    unless it is to `resume`.
    """

    def __init__(self, folder: Path | str, obfuscator: Blinder, plan: Plan, resume: bool) -> None:
        self._kept = Checkpoint(folder, _purpose(obfuscator, plan))
        if self._kept.load(_STAGE) and not resume:
            raise Refusal(f"{folder} holds this federation already; go on with --resume")

    def state(self, fresh: torch.Tensor) -> State:
        """What was kept, or the start from fresh weights."""
        kept = self._kept.load(_STAGE)
        return restored(kept, fresh.device) if kept else State.fresh(fresh)

    def keep(self, state: State) -> None:
        """Writes the state in one step: what was there before lasts until that is done."""
        self._kept.save(_STAGE, as_tensors(state), is_last=True)

    def remove(self) -> None:
        """Takes away what was kept, once the federation is done."""
        self._kept.remove()


def _purpose(obfuscator: Blinder, plan: Plan) -> dict[str, Any]:
    """What is being trained, in plain values: the run it starts from, and the plan."""
    return {
        "method": obfuscator.name,
        "settings": obfuscator.about(),
        "seed": obfuscator.seed,
        "keep": obfuscator.policy_.keep,
        "hide": obfuscator.policy_.hide,
        "origin": asdict(obfuscator.origin_) if obfuscator.origin_ else None,
        "plan": asdict(plan),
    }


def as_tensors(state: State) -> dict[str, torch.Tensor]:
    """The state as arrays for a safetensors file."""
    log = [_COLUMNS(one) for one in state.log]
    return {
        "vector": state.vector,
        "first": state.moments.first,
        "second": state.moments.second,
        "chosen": torch.tensor(state.chosen, dtype=torch.long),
        "log": torch.tensor(log, dtype=torch.float64).reshape(-1, len(fields(Round))),
        "refusals": torch.tensor(state.refusals, dtype=torch.long).reshape(-1, 3),
    }


def restored(kept: Mapping[str, torch.Tensor], device: torch.device | str = "cpu") -> State:
    """The state that `as_tensors` was taken from."""
    vector, first, second = (kept[name].to(device) for name in ("vector", "first", "second"))
    return State(
        vector,
        Moments(first, second),
        tuple(kept["chosen"].tolist()),
        tuple(_round(row) for row in kept["log"].tolist()),
        tuple((a, b, c) for a, b, c in kept["refusals"].tolist()),
    )


def _round(row: list[float]) -> Round:
    asked, answered, refused, down, up = (int(number) for number in row[:-1])
    return Round(asked, answered, refused, down, up, epsilon=row[-1])


def summary(state: State, plan: Plan) -> dict[str, Any]:
    """What a run's metrics say: rounds, bytes, refusals by client, and what privacy it has."""
    refused = Counter(f"client {who}: {REASONS[why]}" for _, who, why in state.refusals)
    found: dict[str, Any] = {
        "kind": plan.kind,
        "plan": asdict(plan),
        "rounds": state.number,
        "bytes": state.bytes_sent,
        "bytes_by_round": [one.bytes_down + one.bytes_up for one in state.log],
        "refused": dict(refused),
    }
    if plan.noise:
        found["privacy"] = {
            "unit": "one client, all data of one person",
            "epsilon": [round(one.epsilon, 4) for one in state.log],
            "delta": plan.delta,
        }
    return found


def finished(obfuscator: Blinder, state: State, plan: Plan, clients: int) -> Blinder:
    """The run that a federation of so many clients ends in."""
    trained = obfuscator.with_weights(state.vector)
    trained.metrics_["federation"] = {"clients": clients, **summary(state, plan)}
    return trained
