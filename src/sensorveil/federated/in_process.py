"""All clients in this process: for sweeps, for tests, and on a GPU without Flower."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from sensorveil.cuda_graphs import Inputs, capture
from sensorveil.data.windows import Windows
from sensorveil.federated.client import (
    ClientData,
    Draw,
    Trainee,
    client_updates,
    drawn,
    people_of,
    task_of,
)
from sensorveil.federated.keeping import Keeper, finished
from sensorveil.federated.plan import Plan
from sensorveil.federated.rounds import Watch, run_rounds
from sensorveil.federated.server import Answer, State
from sensorveil.methods.blinder import Blinder
from sensorveil.progress import track


class InProcess:
    """Carries nothing: computes what all chosen clients would send, in one vectorised pass.

    Everybody's data lies on the device, and each client draws as it would alone. On a GPU the pass
    is recorded once for each number of clients and replayed: its networks are so small that the
    calls would take far longer than the work.
    """

    def __init__(self, trainee: Trainee, data: Mapping[int, ClientData], plan: Plan) -> None:
        self.trainee, self.data, self.plan = trainee, data, plan
        self._everybody = ClientData.together(list(data.values()))
        ends = np.cumsum([len(own) for own in data.values()]).tolist()
        self._first = dict(zip(data, [0, *ends], strict=False))
        self._passes: dict[int, Callable[[Inputs], torch.Tensor]] = {}

    @classmethod
    def of(cls, obfuscator: Blinder, windows: Windows, plan: Plan) -> InProcess:
        """One client for each person in the windows."""
        people = track(list(people_of(windows).items()), "clients' data")
        data = {person: ClientData.of(obfuscator, own, plan, person) for person, own in people}
        return cls(Trainee.of(obfuscator), data, plan)

    def clients(self) -> Sequence[int]:
        """All people."""
        return list(self.data)

    def ask(self, vector: torch.Tensor, number: int, chosen: Sequence[int]) -> list[Answer]:
        """Everybody answers."""
        given = {
            "vector": vector.expand(len(chosen), -1),
            "rate": vector.new_full((len(chosen),), self.plan.rate_at(number)),
            **self._draws(number, chosen)._asdict(),
        }
        if len(chosen) not in self._passes:
            # It does not know the carrier, or both would outlive a federation until garbage is
            # collected, with the stream and the memory that a recording has on a GPU.
            work = partial(_updates, self.trainee, self._everybody, self.plan)
            self._passes[len(chosen)] = capture(work, given)
        updates = self._passes[len(chosen)](given)
        return [
            Answer(client, update, len(self.data[client]))
            for client, update in zip(chosen, updates, strict=True)
        ]

    def _draws(self, number: int, chosen: Sequence[int]) -> Draw:
        """What all of them draw, with the clients in front, on the device."""
        design, device = self.trainee.nets.design, self._everybody.windows.device
        draws = []
        for client in chosen:
            own = drawn(len(self.data[client]), design, self.plan, client, number)
            draws.append(own._replace(rows=own.rows + self._first[client]))
        return Draw(*(torch.stack(part).to(device) for part in zip(*draws, strict=True)))


def _updates(trainee: Trainee, everybody: ClientData, plan: Plan, given: Inputs) -> torch.Tensor:
    draw = Draw(*(given[name] for name in Draw._fields))
    tasks = task_of(everybody, draw, trainee.nets.design, plan)
    vector, rate = given["vector"][0], given["rate"][0]  # the same for all
    return client_updates(trainee, vector, tasks, plan, rate)


def federate(
    obfuscator: Blinder,
    windows: Windows,
    plan: Plan,
    keeper: Keeper | None = None,
    watch: Watch | None = None,
) -> Blinder:
    """Trains the networks of a prepared Blinder over the people in these windows.

    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> obfuscator = Blinder(reader_epochs=1).prepare(windows, keep="activity", hide="gender")
    >>> plan = Plan(epochs=1, rounds=2, share=0.5)
    >>> federate(obfuscator, windows, plan).metrics_["federation"]["rounds"]
    2
    """
    start = obfuscator.weights()
    state = keeper.state(start) if keeper else State.fresh(start)
    carrier = InProcess.of(obfuscator, windows, plan)
    state = run_rounds(state, plan, carrier, keeper.keep if keeper else None, watch)
    return finished(obfuscator, state, plan, len(carrier.clients()))
