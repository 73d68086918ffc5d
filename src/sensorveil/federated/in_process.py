"""All clients in this process: for sweeps, for tests, and on a GPU without Flower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from sensorveil.data.windows import Windows
from sensorveil.federated.client import ClientData, Trainee, client_updates, lesson, people_of
from sensorveil.federated.keeping import Keeper, finished
from sensorveil.federated.plan import Plan
from sensorveil.federated.rounds import Watch, run_rounds
from sensorveil.federated.server import Answer, State
from sensorveil.methods.blinder import Blinder
from sensorveil.progress import track


class InProcess:
    """Carries nothing: computes what all chosen clients would send, in one vectorised pass."""

    def __init__(self, trainee: Trainee, data: Mapping[int, ClientData], plan: Plan) -> None:
        self.trainee, self.data, self.plan = trainee, data, plan

    @classmethod
    def of(cls, veil: Blinder, windows: Windows, plan: Plan) -> InProcess:
        """One client for each person in the windows."""
        people = track(list(people_of(windows).items()), "clients' data")
        data = {person: ClientData.of(veil, own, plan, person) for person, own in people}
        return cls(Trainee.of(veil), data, plan)

    def clients(self) -> Sequence[int]:
        """All people."""
        return list(self.data)

    def ask(self, vector: torch.Tensor, number: int, chosen: Sequence[int]) -> list[Answer]:
        """Everybody answers."""
        lessons = [
            lesson(self.data[client], self.trainee, self.plan, client, number) for client in chosen
        ]
        updates = client_updates(self.trainee, vector, lessons, self.plan)
        return [
            Answer(client, update, len(self.data[client]))
            for client, update in zip(chosen, updates, strict=True)
        ]


def federate(
    veil: Blinder,
    windows: Windows,
    plan: Plan,
    keeper: Keeper | None = None,
    watch: Watch | None = None,
) -> Blinder:
    """Trains the networks of a prepared Blinder over the people in these windows.

    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> veil = Blinder(reader_epochs=1).prepare(windows, keep="activity", hide="gender")
    >>> plan = Plan(epochs=1, rounds=2, share=0.5)
    >>> federate(veil, windows, plan).metrics_["federation"]["rounds"]
    2
    """
    start = veil.weights()
    state = keeper.state(start) if keeper else State.fresh(start)
    carrier = InProcess.of(veil, windows, plan)
    state = run_rounds(state, plan, carrier, keeper.keep if keeper else None, watch)
    return finished(veil, state, plan)
