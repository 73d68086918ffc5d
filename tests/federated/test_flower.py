"""Flower: the same result as in process, nothing in a message that should not be there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.supercore.task_identity import TaskIdentity

from sensorveil.errors import Refusal
from sensorveil.federated.client import ClientDataset, people_of
from sensorveil.federated.client_app import make_client_app, node_data
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.dataset import DataSource
from sensorveil.federated.server import FederatedServer, federation_checkpoint
from sensorveil.federated.simulation import LocalClients, federate, simulate
from sensorveil.federated.strategy import BlinderStrategy
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.run import save_run
from sensorveil.progress import listen


class LocalGrid:
    """A grid without a network: messages go to a ClientApp in this process, as bytes.

    Nodes 1000, 1001, ... are clients 0, 1, ...; `seen` holds every message that went by.
    """

    def __init__(self, app: Any, clients: int, spoil: Callable | None = None) -> None:
        self.app, self.nodes, self.spoil = app, [1000 + n for n in range(clients)], spoil
        self.seen: list[Message] = []
        self.waiting: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        return self.nodes

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        pushed = {}
        for message in messages:
            name = message.metadata.__dict__["_message_id"] = str(message.metadata.dst_node_id)
            pushed[name] = message
        self.waiting |= pushed
        return list(pushed)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return self.send_and_receive([self.waiting.pop(number) for number in message_ids])

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
def client_app(start, windows):
    people = people_of(windows)

    def load(context):
        client = int(context.node_config["partition-id"])
        return client, start, people[client]

    return make_client_app(load)


def over_flower(start, config, grid) -> FederatedServer:
    server = FederatedServer(start.weights(), config)
    BlinderStrategy(server, grid).train()
    return server


@pytest.mark.parametrize(
    "values", [{}, {"algorithm": "fedavg", "local_steps": 2, "weighted": True}]
)
def test_rounds_over_flower_are_those_in_process(start, windows, config, client_app, values):
    config = config.with_values({"epochs": 1, "balance": 20, **values})
    here = FederatedServer(start.weights(), config)
    LocalClients.of(start, windows, config).train(here)
    there = over_flower(start, config, LocalGrid(client_app, 4))
    torch.testing.assert_close(there.state.weights, here.state.weights, rtol=1e-4, atol=1e-6)
    assert (there.state.clients, there.state.rounds) == (here.state.clients, here.state.rounds)
    assert not torch.equal(here.state.weights, start.weights())


def test_no_message_holds_a_window_a_label_or_an_attribute(start, windows, config, client_app):
    """Every array and number of every message is looked at; so are the bytes it goes as."""
    grid = LocalGrid(client_app, 4)
    over_flower(start, config, grid)
    size = len(start.weights())
    samples = np.unique(windows.scaled(start.scaling_).signal)
    assert len(grid.seen) > 2 * 6
    for message in grid.seen:
        content = message.content
        assert set(content) <= {"weights", "update", "config", "counts"}
        for record in content.array_records.values():
            (array,) = record.values()
            numbers = array.numpy()
            assert numbers.shape == (size,)  # no window's shape, and no list of labels
            assert np.isin(numbers, samples).mean() < 0.01
        for record in content.metric_records.values():
            assert set(record) <= {"client", "windows"}
        for record in content.config_records.values():
            assert set(record) == {"round", *config.flat()}
        wire = message_to_proto(message).SerializeToString()
        if message.metadata.dst_node_id == 1:  # what leaves a client
            assert not any(word.encode() in wire.lower() for word in windows.attributes)
        for one in windows.signal[::10]:
            assert one[0, :4].astype(np.float32).tobytes() not in wire


def test_a_client_is_who_its_node_is(start, config, client_app):
    """A node cannot speak for another one, and two nodes cannot be one client."""
    server = FederatedServer(start.weights(), config)
    grid = LocalGrid(client_app, 3)
    strategy = BlinderStrategy(server, grid)
    assert strategy.clients() == [0, 1, 2]
    twin = LocalGrid(make_client_app(lambda context: (0, start, [])), 3)
    assert BlinderStrategy(server, twin).clients() == [0]
    grid.nodes = [1001, 1002]  # a node that has gone is nobody's to ask
    assert strategy.clients() == [1, 2]


@pytest.mark.parametrize("spoilt", ["dead", "error", "empty", "no array", "text"])
def test_broken_replies_do_not_count_and_are_named(start, config, client_app, spoilt):
    config = config.with_values({"client_fraction": 1.0, "epochs": 1})

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

    server = over_flower(start, config, LocalGrid(client_app, 4, spoil))
    named = {"client 0: sent nothing": 3} if spoilt != "dead" else {}
    assert server.summary()["refused"] == named
    assert [one.answered - one.refused for one in server.state.rounds] == [3] * 3


def test_below_the_quorum_the_round_is_made_again(start, config, client_app):
    """Flower counts that as a round of its own; here it is another attempt at the same one."""
    config = config.with_values({"epochs": 1, "quorum": 1.0, "attempts": 30})
    missing = iter([True, True])

    def spoil(message, reply):
        is_train = reply.metadata.message_type == "train"
        return None if is_train and next(missing, False) else reply

    server = over_flower(start, config, LocalGrid(client_app, 4, spoil))
    assert [one.asked for one in server.state.rounds] == [4, 2, 2]


@pytest.mark.slow
def test_rounds_on_ray_are_those_in_process(tmp_path, small):
    """Flower's simulation with real processes, and its progress."""
    source = DataSource("simulated", options=(("people", 6),))
    windows = source.windows()
    start = Blinder(**small).fit(windows, "activity", "gender")
    save_run(start, tmp_path / "start")
    values = {"epochs": 1, "rounds": 2, "client_fraction": 0.5, "balance": 0, "timeout": 300}
    config, heard = FederationConfig().with_values(values), []
    checkpoint = federation_checkpoint(tmp_path / "s", start, config, False)
    with listen(lambda what, done, total: heard.append((what, done, total))):
        there = simulate(tmp_path / "start", source, config, checkpoint=checkpoint)
    here = federate(start, windows, config)
    torch.testing.assert_close(there.weights(), here.weights(), rtol=1e-4, atol=1e-6)
    assert there.metrics_["federation"] == here.metrics_["federation"]
    assert [step for step in heard if step[0] == "rounds"] == [("rounds", n, 2) for n in range(3)]


# A node's own data.


@pytest.fixture
def start_run(start, tmp_path):
    return str(save_run(start, tmp_path / "start"))


def context(**values):
    return Context(1, 7, values, RecordDict(), {})


def table(folder, people):
    """A table of those people, all of one gender, in the format of the run."""
    lines = ["person,0,1,activity,gender"]
    for person in people:
        for sample in range(32 * 6):
            activity = sample // 32 % 2
            lines.append(f"{person},{50 + sample % 7},{0.1 + 0.01 * (sample % 5)},{activity},1")
    (folder / "own.csv").write_text("\n".join(lines))
    (folder / "own.toml").write_text(
        'file = "own.csv"\nsubject = "person"\nsample_rate = 50\nchannels = ["0", "1"]\n'
        "[window]\nlength = 32\nstride = 32\n[attributes.activity]\n"
        '[attributes.gender]\nclasses = ["1", "0"]\n'  # in another order than the run's
    )
    return str(folder / "own.toml")


def test_a_device_with_one_persons_table_is_a_client(start_run, tmp_path):
    data = table(tmp_path, ["ann"])
    client, run, windows = node_data(context(client=4, run=start_run, data=data))
    assert client == 4
    config = FederationConfig(support_size=1, query_size=2, balance=0)
    own = ClientDataset.of(run, windows, config, client)
    assert len(own) == 6
    assert set(own.hidden[:, 0].tolist()) == {1}
    assert np.bincount(own.kept).tolist() == [3, 3]


def test_one_of_several_people_must_be_named(start_run, tmp_path):
    data = table(tmp_path, ["ann", "bob"])
    with pytest.raises(Refusal, match=r"2 people; say person=.*, one of ann, bob"):
        node_data(context(client=0, run=start_run, data=data))
    _, _, windows = node_data(context(client=0, run=start_run, data=data, person="bob"))
    assert {windows.classes["subject"][code] for code in windows.subject} == {"bob"}


@pytest.mark.parametrize("missing", ["client", "run", "data"])
def test_what_a_node_must_be_given(start_run, missing):
    values = {"client": 0, "run": start_run, "data": "simulated"}
    del values[missing]
    with pytest.raises(Refusal, match=f"--node-config lacks '{missing}'"):
        node_data(context(**values))
