"""Algorithm 1 as a Flower strategy, and the ServerApp that runs it.

A client is asked two things: who it is (its number, how many windows it has), and for an update at
given weights. Its number, that count and one array are all that ever leaves it.
"""

from __future__ import annotations

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
from flwr.serverapp.strategy import Strategy

from sensorveil.errors import Refusal
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.dataset import load_start
from sensorveil.federated.server import ClientUpdate, FederatedServer, FederationCheckpoint
from sensorveil.files import part_of, written_folder
from sensorveil.methods.run import save_run
from sensorveil.version import __version__

WEIGHTS, UPDATE, CONFIG, COUNTS = "weights", "update", "config", "counts"
"""The records of a message; there are no others."""


class BlinderStrategy(Strategy):
    """Translates between Flower's messages and a `FederatedServer`.

    Parameters
    ----------
    server
        Samples clients and aggregates updates.
    grid
        Reaches the nodes.
    """

    def __init__(self, server: FederatedServer, grid: Grid) -> None:
        self.server, self.grid = server, grid
        self._client_of: dict[int, int] = {}

    def clients(self) -> Sequence[int]:
        """The clients whose nodes are connected; new nodes are asked who they are."""
        connected = set(self.grid.get_node_ids())
        new = sorted(connected - set(self._client_of))
        messages = [
            Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in new
        ]
        timeout = self.server.config.robustness.timeout
        for reply in self.grid.send_and_receive(messages, timeout=timeout) if messages else ():
            client = None if reply.has_error() else _count(reply, "client")
            if client is not None and client not in self._present(connected):
                self._client_of[reply.metadata.src_node_id] = client
        return sorted(self._present(connected))

    def _present(self, connected: set[int]) -> set[int]:
        return {client for node, client in self._client_of.items() if node in connected}

    def wait_for(self, clients: int, seconds: float) -> None:
        """Return once so many clients are connected; refuse after so many seconds."""
        end = time.monotonic() + seconds
        while len(found := self.clients()) < clients:
            if time.monotonic() > end:
                raise Refusal(f"{len(found)} of {clients} clients connected in {seconds:g} s")
            time.sleep(0.5)

    def train(self) -> None:
        """Flower's rounds until the server is done; those with too few updates are made up for."""
        while not self.server.is_done:
            self.start(
                self.grid,
                _record(WEIGHTS, self.server.state.weights),
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
        return _record(WEIGHTS, self.server.state.weights), None

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
            if arrays is not None and UPDATE in arrays and count is not None:
                update = _numbers(arrays[UPDATE])
        tensor = torch.from_numpy(update).to(self.server.state.weights.device)
        return ClientUpdate(client, tensor, count or 0)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Clients are not asked to evaluate."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Nothing to aggregate."""
        return None

    def summary(self) -> None:
        """Flower's log needs no summary: the run holds the configuration."""


def _record(name: str, vector: torch.Tensor) -> ArrayRecord:
    return ArrayRecord({name: Array(vector.cpu().numpy())})


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
    checkpoint = FederationCheckpoint(f"{out}.unfinished", start, config, bool(values["resume"]))
    server = FederatedServer(start.weights(), config, checkpoint)
    strategy = BlinderStrategy(server, grid)
    strategy.wait_for(int(values["clients"]), float(values["patience"]))
    strategy.train()
    save_run(server.trained(start, int(values["clients"])), out)
    checkpoint.remove()


_PROJECT = """\
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
run = "{run}"
out = "{out}"
clients = {clients}
resume = false
patience = 300.0

[tool.flwr.app.config.federation]
{values}
"""


def write_app(
    path: Path | str, run: Path | str, out: Path | str, clients: int, config: FederationConfig
) -> Path:
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
    text = _PROJECT.format(
        version=__version__.partition("+")[0],
        run=Path(run).absolute().as_posix(),
        out=Path(out).absolute().as_posix(),
        clients=clients,
        values="\n".join(f"{name} = {_toml(value)}" for name, value in config.flat().items()),
    )
    tomllib.loads(text)
    with written_folder(path) as folder:
        (folder / "pyproject.toml").write_text(text, "utf-8")
    return Path(path)


def _toml(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
