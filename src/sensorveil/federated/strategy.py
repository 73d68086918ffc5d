"""Algorithm 1 as a Flower strategy, and the ServerApp that runs it.

A client is asked two things: its number, and an update at given weights. That number, one array
and the number of windows that it was learnt from are all that ever leaves it.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from sensorveil.errors import Refusal
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.dataset import load_start
from sensorveil.federated.server import ClientUpdate, FederatedServer, federation_checkpoint
from sensorveil.files import part_of, written_folder
from sensorveil.methods.run import save_run
from sensorveil.version import __version__

WEIGHTS, UPDATE, CONFIG, COUNTS = "weights", "update", "config", "counts"
"""The records of a message; there are no others."""


class BlinderStrategy(FedAvg):
    """Flower's FedAvg with the sampling and the aggregation of a `FederatedServer`.

    Flower's own draw nodes without a seed and average whatever comes back. Here a federation that
    was stopped must draw the same clients again, and updates are checked.

    Parameters
    ----------
    server
        Samples clients and aggregates updates.
    grid
        Reaches the nodes.
    """

    def __init__(self, server: FederatedServer, grid: Grid) -> None:
        super().__init__(
            fraction_train=server.config.client_fraction,
            fraction_evaluate=0.0,
            weighted_by_key="windows",
            arrayrecord_key=WEIGHTS,
            configrecord_key=CONFIG,
        )
        self.server, self.grid = server, grid
        self._client_of: dict[int, int] = {}
        self._asked: dict[str, int] = {}

    def train(self) -> None:
        """Flower's rounds until the server is done; those with too few updates are made up for."""
        while not self.server.is_done:
            self.start(
                self.grid,
                ArrayRecord({WEIGHTS: _array(self.server.state.weights)}),
                num_rounds=self.server.rounds_left,
                timeout=self.server.config.robustness.timeout,
            )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Lines 4 to 6: the weights and the configuration, to each sampled client."""
        sampled = self.server.sample(self.clients())
        node_of = {client: node for node, client in self._client_of.items()}
        order = ConfigRecord({"round": self.server.number, **self.server.config.flat()})
        content = RecordDict({WEIGHTS: arrays, CONFIG: order})
        return [
            Message(content, dst_node_id=node_of[client], message_type=MessageType.TRAIN)
            for client in sampled
            if client in node_of
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Lines 7 to 10; no arrays where too few updates came."""
        updates = [update for reply in replies if (update := self._update(reply))]
        if not self.server.aggregate(updates):
            return None, None
        return ArrayRecord({WEIGHTS: _array(self.server.state.weights)}), None

    def clients(self) -> Sequence[int]:
        """The clients whose nodes are connected; new nodes are asked, and nobody waits for them."""
        connected = set(self.grid.get_node_ids())
        self._client_of = {node: c for node, c in self._client_of.items() if node in connected}
        for node in sorted(connected - set(self._client_of) - set(self._asked.values())):
            query = Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY)
            self._asked |= {sent: node for sent in self.grid.push_messages([query]) if sent}
        for reply in self.grid.pull_messages(list(self._asked)) if self._asked else ():
            node = self._asked.pop(reply.metadata.reply_to_message_id)  # if it failed, asked again
            client = None if reply.has_error() else _count(reply, "client")
            if client is not None and client not in self._client_of.values():
                self._client_of[node] = client
        return sorted(self._client_of.values())

    def wait_for(self, clients: int, seconds: float) -> None:
        """Return once so many clients are connected; refuse after so many seconds."""
        end = time.monotonic() + seconds
        while len(found := self.clients()) < clients:
            if time.monotonic() > end:
                raise Refusal(f"{len(found)} of {clients} clients connected in {seconds:g} s")
            time.sleep(0.5)

    def _update(self, reply: Message) -> ClientUpdate | None:
        """A reply as an update; who sent it is known from its node, not from what it says.

        A client that failed, or whose reply holds no array of numbers, has sent nothing.
        """
        client = self._client_of.get(reply.metadata.src_node_id)
        if client is None:
            return None
        update, count = np.zeros(0, np.float32), None
        if not reply.has_error():
            arrays, count = reply.content.array_records.get(UPDATE), _count(reply, "windows")
            if arrays is not None and UPDATE in arrays:
                update = _numbers(arrays[UPDATE])
        tensor = torch.from_numpy(update).to(self.server.state.weights.device)
        return ClientUpdate(client, tensor, count or 0)


def _array(vector: torch.Tensor) -> Array:
    return Array(vector.cpu().numpy())


def _numbers(array: Array) -> np.ndarray:
    """An array as it was sent, or an empty one if it is none of numbers."""
    try:
        return np.array(array.numpy(), np.float32)
    except (TypeError, ValueError):
        return np.zeros(0, np.float32)


def _count(reply: Message, name: str) -> int | None:
    counts = reply.content.metric_records.get(COUNTS)
    value = counts.get(name) if counts is not None else None
    return value if isinstance(value, int) and value >= 0 else None


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train by the run's configuration (see `write_app`) and write the run."""
    values: Mapping[str, Any] = context.run_config
    config = FederationConfig().with_values(part_of(values, "federation."))
    start, out = load_start(str(values["run"])), Path(str(values["out"]))
    if out.exists():
        raise Refusal(f"{out} exists already; choose another place or remove it")
    checkpoint = federation_checkpoint(f"{out}.unfinished", start, config, bool(values["resume"]))
    server = FederatedServer(start.weights(), config, checkpoint)
    strategy = BlinderStrategy(server, grid)
    strategy.wait_for(int(values["clients"]), float(values["patience"]))
    strategy.train()
    save_run(server.trained(start, int(values["clients"])), out)
    checkpoint.remove()


_APP = """\
# A Flower app: the code is in the package sensorveil, which every node has installed.
[project]
name = "sensorveil-federation"
version = "{version}"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "sensorveil"

[tool.flwr.app.components]
serverapp = "sensorveil.federated.strategy:app"
clientapp = "sensorveil.federated.client_app:app"

[tool.flwr.app.config]
run = {run}
out = {out}
clients = {clients}
resume = false
patience = 300.0

[tool.flwr.app.config.federation]
{values}
"""


def write_app(
    path: Path | str, run: Path | str, out: Path | str, clients: int, config: FederationConfig
) -> None:
    """Write the folder that `flwr run` sends to the SuperLink: configuration, no data.

    Parameters
    ----------
    path
        The folder to write.
    run, out
        On the server: the run to start from, and the run to write.
    clients
        How many clients to wait for.
    config
        The federation's configuration.
    """
    text = _APP.format(  # numbers, truth values and strings are the same in JSON and in TOML
        version=__version__.partition("+")[0],
        run=json.dumps(Path(run).absolute().as_posix()),
        out=json.dumps(Path(out).absolute().as_posix()),
        clients=clients,
        values="\n".join(f"{name} = {json.dumps(value)}" for name, value in config.flat().items()),
    )
    tomllib.loads(text)
    with written_folder(path) as folder:
        (folder / "pyproject.toml").write_text(text, "utf-8")
