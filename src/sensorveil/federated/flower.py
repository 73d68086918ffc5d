"""A federation over Flower: what its ServerApp and ClientApp say to each other.

The mathematics is in `client.py` and `server.py`; here are messages alone. A client is asked two
things: who it is (its number, how many windows it has), and for an update at given weights. Nothing
but that number, that count and that one array ever leaves it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache

import numpy as np
import torch

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.federated.client import ClientData, Trainee, at, client_updates, labelled_windows
from sensorveil.federated.keeping import Keeper
from sensorveil.federated.plan import Plan
from sensorveil.federated.rounds import Watch, run_rounds
from sensorveil.federated.server import Answer, State
from sensorveil.methods.blinder import Blinder

# Nobody is told that this runs; Flower looks when it is imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

WEIGHTS, UPDATE, ORDER, COUNTS = "weights", "update", "order", "counts"
"""The records of a message; there are no others."""

Loader = Callable[[Context], tuple[int, Blinder, Windows]]
"""On a client: its number, the run that the federation starts from, and its own windows."""


# The client.


def make_client_app(load: Loader) -> ClientApp:
    """What runs on every node; `load` finds the node's own data."""
    app = ClientApp()

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        client, _, windows = load(context)
        counts = MetricRecord({"client": client, "windows": len(windows)})
        return Message(RecordDict({COUNTS: counts}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client, obfuscator, windows = load(context)
        update, count = answer_to(message, client, obfuscator, windows)
        content = RecordDict(
            {
                UPDATE: ArrayRecord({UPDATE: Array(update)}),
                COUNTS: MetricRecord({"windows": count}),
            }
        )
        return Message(content, reply_to=message)

    return app


def answer_to(
    message: Message, client: int, obfuscator: Blinder, windows: Windows
) -> tuple[np.ndarray, int]:
    """A client's update at the weights in the message, and how many windows it learns from."""
    order = dict(message.content.config_records[ORDER])
    number = int(order.pop("number"))  # type: ignore[arg-type]
    plan = Plan(**order)  # type: ignore[arg-type]
    vector = message.content.array_records[WEIGHTS][WEIGHTS].numpy()
    data, trainee = _client_data(obfuscator, windows, plan, client), Trainee.of(obfuscator)
    alone = at(labelled_windows(data, trainee, plan, client, number), None)
    weights = torch.from_numpy(vector.copy()).to(obfuscator.device)
    update = client_updates(trainee, weights, alone, plan, plan.rate_at(number))[0]
    return update.cpu().numpy(), len(data)


@lru_cache(maxsize=64)
def _client_data(obfuscator: Blinder, windows: Windows, plan: Plan, client: int) -> ClientData:
    """Balanced once: a simulation's process asks for the same people again and again."""
    return ClientData.of(obfuscator, windows, plan, client)


# The server.


class FlowerCarrier:
    """Carries rounds over Flower's grid; remembers which node is which client."""

    def __init__(self, grid: Grid, plan: Plan) -> None:
        self.grid, self.plan = grid, plan
        self._client_of: dict[int, int] = {}

    def clients(self) -> Sequence[int]:
        """The clients whose nodes are connected; new nodes are asked who they are."""
        there = set(self.grid.get_node_ids())
        new = sorted(there - set(self._client_of))
        messages = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in new]
        for reply in self._replies(messages):
            client = None if reply.has_error() else _whole_number(reply, "client")
            if client is not None and client not in self._present(there):
                self._client_of[reply.metadata.src_node_id] = client
        return sorted(self._present(there))

    def wait_for(self, clients: int, seconds: float) -> None:
        """Returns once so many clients are connected, or refuses after so many seconds."""
        end = time.monotonic() + seconds
        while len(found := self.clients()) < clients:
            if time.monotonic() > end:
                raise Refusal(f"{len(found)} of {clients} clients connected in {seconds:g} s")
            time.sleep(0.5)

    def ask(self, vector: torch.Tensor, number: int, chosen: Sequence[int]) -> list[Answer]:
        """What the chosen clients answered before the deadline."""
        node_of = {client: node for node, client in self._client_of.items()}
        content = RecordDict(
            {
                WEIGHTS: ArrayRecord({WEIGHTS: Array(vector.cpu().numpy())}),
                ORDER: ConfigRecord({"number": number, **asdict(self.plan)}),
            }
        )
        messages = [
            Message(
                content, dst_node_id=node_of[client], message_type="train", group_id=str(number)
            )
            for client in chosen
            if client in node_of
        ]
        answers = [self._answer(reply, vector.device) for reply in self._replies(messages)]
        return [answer for answer in answers if answer is not None]

    def _answer(self, reply: Message, device: torch.device) -> Answer | None:
        """A reply as an answer; who sent it is known from its node, not from what it says.

        A client that failed, or whose reply holds no array of numbers, has sent nothing.
        """
        client = self._client_of.get(reply.metadata.src_node_id)
        if client is None:
            return None
        update, count = np.zeros(0, np.float32), None
        if not reply.has_error():
            arrays, count = reply.content.array_records.get(UPDATE), _whole_number(reply, "windows")
            if arrays is not None and UPDATE in arrays and count is not None:
                update = _numbers(arrays[UPDATE])
        return Answer(client, torch.from_numpy(update).to(device), count or 0)

    def _replies(self, messages: Sequence[Message]) -> Iterable[Message]:
        if not messages:
            return []
        return self.grid.send_and_receive(messages, timeout=self.plan.deadline)

    def _present(self, there: set[int]) -> set[int]:
        return {client for node, client in self._client_of.items() if node in there}


def _numbers(array: Array) -> np.ndarray:
    """An array as it was sent, or an empty one if it is none of numbers."""
    try:
        return np.array(array.numpy(), np.float32)
    except (TypeError, ValueError):
        return np.zeros(0, np.float32)


def _whole_number(reply: Message, name: str) -> int | None:
    counts = reply.content.metric_records.get(COUNTS)
    value = counts.get(name) if counts is not None else None
    return value if isinstance(value, int) and value >= 0 else None


def serve(
    grid: Grid,
    start: torch.Tensor,
    plan: Plan,
    clients: int,
    keeper: Keeper | None = None,
    watch: Watch | None = None,
    patience: float = 300.0,
) -> State:
    """What a ServerApp does: waits for that many clients, then goes through the rounds."""
    carrier = FlowerCarrier(grid, plan)
    carrier.wait_for(clients, patience)
    state = keeper.state(start) if keeper else State.fresh(start)
    return run_rounds(state, plan, carrier, keeper.keep if keeper else None, watch)
