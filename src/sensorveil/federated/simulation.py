"""A federation on this machine: all clients in this process, or each a node of Flower's engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from sensorveil.cuda_graphs import Inputs, capture
from sensorveil.data.windows import Windows
from sensorveil.federated.client import ClientDataset, Draw, client_updates, draw, gather, people_of
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.dataset import DataSource, cached_people, cached_start, load_start
from sensorveil.federated.server import ClientUpdate, FederatedServer, OnRound
from sensorveil.methods.blinder import Blinder, BlinderLoss
from sensorveil.progress import track
from sensorveil.train import Checkpoint

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid


class LocalClients:
    """All clients in this process: what they would send is computed in one vectorised pass.

    Everybody's data lies on the device, and each client draws as it would alone. On a GPU the pass
    is recorded once for each number of clients and replayed.

    Parameters
    ----------
    loss
        Losses (3) and (4).
    data
        Each client's data, by its number.
    config
        The federation's configuration.
    """

    def __init__(
        self, loss: BlinderLoss, data: Mapping[int, ClientDataset], config: FederationConfig
    ) -> None:
        self.loss, self.data, self.config = loss, data, config
        self._all_data = ClientDataset.concatenate(list(data.values()))
        ends = np.cumsum([len(own) for own in data.values()]).tolist()
        self._first_row = dict(zip(data, [0, *ends], strict=False))
        self._passes: dict[int, Callable[[Inputs], torch.Tensor]] = {}

    @classmethod
    def of(cls, start: Blinder, windows: Windows, config: FederationConfig) -> LocalClients:
        """One client for each person in the windows."""
        people = track(list(people_of(windows).items()), "clients' data")
        data = {person: ClientDataset.of(start, own, config, person) for person, own in people}
        return cls(start.loss(), data, config)

    def updates(
        self, vector: torch.Tensor, number: int, clients: Sequence[int]
    ) -> list[ClientUpdate]:
        """What these clients send in round `number`, at these weights."""
        if not clients:
            return []
        inputs = {
            "vector": vector.expand(len(clients), -1),
            "learning_rate": vector.new_full((len(clients),), self.config.learning_rate_at(number)),
            **self._draw(number, clients)._asdict(),
        }
        if len(clients) not in self._passes:
            # A method of this object would keep it, and with it a GPU's graph, alive.
            compute = partial(_updates, self.loss, self._all_data, self.config)
            self._passes[len(clients)] = capture(compute, inputs)
        updates = self._passes[len(clients)](inputs)
        return [
            ClientUpdate(client, update, len(self.data[client]))
            for client, update in zip(clients, updates, strict=True)
        ]

    def _draw(self, number: int, clients: Sequence[int]) -> Draw:
        """What all of them draw, with the clients in front, on the device."""
        draws = []
        for client in clients:
            own = draw(len(self.data[client]), self.loss.network, self.config, client, number)
            draws.append(own._replace(rows=own.rows + self._first_row[client]))
        device = self._all_data.windows.device
        return Draw(*(torch.stack(part).to(device) for part in zip(*draws, strict=True)))

    def train(self, server: FederatedServer) -> None:
        """Rounds until the server is done."""
        while not server.is_done:
            sampled = server.sample(list(self.data))
            server.aggregate(self.updates(server.state.weights, server.number, sampled))


def _updates(
    loss: BlinderLoss, data: ClientDataset, config: FederationConfig, inputs: Inputs
) -> torch.Tensor:
    batches = gather(data, Draw(*(inputs[name] for name in Draw._fields)), loss.network, config)
    vector, learning_rate = inputs["vector"][0], inputs["learning_rate"][0]  # the same for all
    return client_updates(loss, vector, batches, config, learning_rate)


def federate(
    start: Blinder,
    windows: Windows,
    config: FederationConfig,
    checkpoint: Checkpoint | None = None,
    on_round: OnRound | None = None,
) -> Blinder:
    """Train Blinder over the people in these windows, all in this process.

    Parameters
    ----------
    start
        A fitted Blinder; with `training.epochs=0` its networks have their initial weights.
    windows
        Everybody's windows; each person is a client.
    config
        The federation's configuration.
    checkpoint
        Where the state is kept after every round, and resumed from.
    on_round
        Called with the server's state after every round.

    Returns
    -------
    Blinder
        The run with the weights that were reached.

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> start = Blinder(**{"training.epochs": 0, "classifier.epochs": 1})
    >>> start = start.fit(windows, keep="activity", hide="gender")
    >>> config = FederationConfig(epochs=1, rounds=2, client_fraction=0.5)
    >>> federate(start, windows, config).metrics_["federation"]["rounds"]
    2
    """
    server = FederatedServer(start.weights(), config, checkpoint, on_round)
    clients = LocalClients.of(start, windows, config)
    clients.train(server)
    return server.trained(start, len(clients.data))


def simulate(
    run: Path | str,
    source: DataSource,
    config: FederationConfig,
    workers: int = 1,
    checkpoint: Checkpoint | None = None,
    on_round: OnRound | None = None,
) -> Blinder:
    """Train Blinder over the people of a dataset by Flower's simulation.

    Parameters
    ----------
    run
        The folder of the run to start from.
    source
        The dataset; each person is a node.
    config
        The federation's configuration.
    workers
        Processes that serve all nodes in turn.
    checkpoint, on_round
        As in `federate`.
    """
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from sensorveil.federated.client_app import make_client_app
    from sensorveil.federated.strategy import BlinderStrategy

    start, nodes = load_start(run), len(people_of(source.windows()))
    here, servers = copy_context(), list[FederatedServer]()  # progress is listened to here
    app = ServerApp()

    def train(grid: Grid) -> None:
        server = FederatedServer(start.weights(), config, checkpoint, on_round)
        strategy = BlinderStrategy(server, grid)
        strategy.wait_for(nodes, seconds=300.0)
        strategy.train()
        servers.append(server)

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        here.run(train, grid)

    logging.getLogger("flwr").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns of itself
    run_simulation(
        server_app=app,
        client_app=make_client_app(partial(_node_data, str(run), source)),
        num_supernodes=nodes,
        backend_config={
            "init_args": {"num_cpus": workers, "include_dashboard": False, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    return servers[0].trained(start, nodes)


def _node_data(run: str, source: DataSource, context: Context) -> tuple[int, Blinder, Windows]:
    """The person of a node: its partition's place among all people."""
    people = cached_people(source)
    person = sorted(people)[int(context.node_config["partition-id"])]
    return person, cached_start(run), people[person]
