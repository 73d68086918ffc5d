"""Flower: the same result as in process, and nothing in a message that should not be there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.supercore.task_identity import TaskIdentity

from sensorveil.federated.client import people_of
from sensorveil.federated.flower import FlowerCarrier, make_client_app
from sensorveil.federated.in_process import InProcess
from sensorveil.federated.keeping import summary
from sensorveil.federated.rounds import run_rounds
from sensorveil.federated.server import State


class LocalGrid:
    """A grid without a network: messages go to a ClientApp in this process, as bytes.

    Nodes 1000, 1001, ... are clients 0, 1, ...; `seen` holds every message that went by.
    """

    def __init__(self, app: Any, clients: int, spoil: Callable | None = None) -> None:
        self.app, self.nodes, self.spoil = app, [1000 + n for n in range(clients)], spoil
        self.seen: list[Message] = []

    def get_node_ids(self) -> list[int]:
        return self.nodes

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            self.seen.append(message)
            context = Context(1, node, {"partition-id": node - 1000}, RecordDict(), {})
            arrived = message_from_proto(message_to_proto(message))
            reply = self.app(arrived, context)
            if self.spoil:
                reply = self.spoil(arrived, reply)
            if reply is not None:
                self.seen.append(reply)
                replies.append(reply)
        return replies


@pytest.fixture(autouse=True)
def _a_run_of_flower(monkeypatch):
    """What Flower sets where a ServerApp runs."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture(scope="module")
def client_app(obfuscator, windows):
    people = people_of(windows)

    def load(context):
        client = int(context.node_config["partition-id"])
        return client, obfuscator, people[client]

    return make_client_app(load)


@pytest.mark.parametrize("sends", [{}, {"sends": "changes", "local_steps": 2, "weighted": True}])
def test_three_rounds_over_flower_are_three_in_process(
    obfuscator, windows, plan, client_app, sends
):
    plan = replace(plan, epochs=1, balance=20, **sends)
    start = State.fresh(obfuscator.weights())
    here = run_rounds(start, plan, InProcess.of(obfuscator, windows, plan))
    there = run_rounds(start, plan, FlowerCarrier(LocalGrid(client_app, 4), plan))
    torch.testing.assert_close(there.vector, here.vector, rtol=1e-4, atol=1e-6)
    assert (there.chosen, there.log) == (here.chosen, here.log)
    assert not torch.equal(here.vector, start.vector)


def test_no_message_holds_a_window_a_label_or_an_attribute(obfuscator, windows, plan, client_app):
    """Every array and number of every message is looked at; so are the bytes it goes as."""
    grid = LocalGrid(client_app, 4)
    run_rounds(State.fresh(obfuscator.weights()), plan, FlowerCarrier(grid, plan))
    size = len(obfuscator.weights())
    samples = np.unique(windows.scaled(obfuscator.scaling_).signal)
    assert len(grid.seen) > 2 * 6
    for message in grid.seen:
        content = message.content
        assert set(content) <= {"weights", "update", "order", "counts"}
        for record in content.array_records.values():
            (array,) = record.values()
            numbers = array.numpy()
            assert numbers.shape == (size,)  # no window's shape, and no list of labels
            assert np.isin(numbers, samples).mean() < 0.01
        for record in content.metric_records.values():
            assert set(record) <= {"client", "windows"}
        for record in content.config_records.values():
            assert set(record) == {"number", *vars(plan)}
        wire = message_to_proto(message).SerializeToString()
        if message.metadata.dst_node_id == 1:  # what leaves a client
            assert not any(word.encode() in wire.lower() for word in windows.attributes)
        for one in windows.signal[::10]:
            assert one[0, :4].astype(np.float32).tobytes() not in wire


def test_a_client_is_who_its_node_is(obfuscator, plan, client_app):
    """A node cannot speak for another one, and two nodes cannot be one client."""
    grid = LocalGrid(client_app, 3)
    carrier = FlowerCarrier(grid, plan)
    assert carrier.clients() == [0, 1, 2]
    twin = LocalGrid(make_client_app(lambda context: (0, obfuscator, [])), 3)
    assert FlowerCarrier(twin, plan).clients() == [0]
    grid.nodes = [1001, 1002]  # a node that has gone is nobody's to ask
    assert carrier.clients() == [1, 2]


@pytest.mark.parametrize("spoilt", ["dead", "error", "empty", "no array", "text"])
def test_broken_replies_do_not_count_and_are_named(obfuscator, plan, client_app, spoilt):
    plan = replace(plan, share=1.0, epochs=1)

    def spoil(message, reply):
        if reply.metadata.src_node_id != 1000 or reply.metadata.message_type != "train":
            return reply
        if spoilt == "dead":
            return None
        if spoilt == "error":
            return Message(Error(1), reply_to=message)
        kept = {} if spoilt == "empty" else {"counts": reply.content["counts"]}
        if spoilt == "text":
            kept["update"] = ArrayRecord({"update": Array(np.array(["a", "b"]))})
        return Message(RecordDict(kept), reply_to=message)

    state = run_rounds(
        State.fresh(obfuscator.weights()),
        plan,
        FlowerCarrier(LocalGrid(client_app, 4, spoil), plan),
    )
    named = {"client 0: sent nothing": 3} if spoilt != "dead" else {}
    assert summary(state, plan)["refused"] == named
    assert [one.answered - one.refused for one in state.log] == [3] * 3
