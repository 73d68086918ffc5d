"""A federation on this machine, over Flower's Ray engine: each person is a node of its own."""

from __future__ import annotations

import logging
import os
from contextvars import copy_context
from functools import partial
from pathlib import Path

from sensorveil.data.windows import Windows
from sensorveil.federated.client import people_of
from sensorveil.federated.flower import make_client_app, serve
from sensorveil.federated.keeping import Keeper, finished
from sensorveil.federated.plan import Plan
from sensorveil.federated.rounds import Watch
from sensorveil.federated.server import State
from sensorveil.federated.sources import Source, people_once, start_run, start_run_once
from sensorveil.methods.blinder import Blinder

from flwr.app import Context  # isort: skip (after flower.py, which turns telemetry off)
from flwr.serverapp import Grid, ServerApp  # isort: skip
from flwr.simulation import run_simulation  # isort: skip


def simulate(
    run: Path | str,
    source: Source,
    plan: Plan,
    workers: int = 1,
    keeper: Keeper | None = None,
    watch: Watch | None = None,
) -> Blinder:
    """Trains the networks of a prepared run over the people of a dataset, as Flower would.

    `workers` processes serve all nodes in turn. The server runs in a thread of its own; whoever
    listens to progress here listens there too.
    """
    obfuscator, here, ended = start_run(run), copy_context(), list[State]()
    nodes = len(people_of(source.windows()))
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        ended.append(here.run(serve, grid, obfuscator.weights(), plan, nodes, keeper, watch))

    logging.getLogger("flwr").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns of itself
    run_simulation(
        server_app=app,
        client_app=make_client_app(partial(_node_of, str(run), source)),
        num_supernodes=nodes,
        backend_config={
            "init_args": {"num_cpus": workers, "include_dashboard": False, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    return finished(obfuscator, ended[0], plan, nodes)


def _node_of(run: str, source: Source, context: Context) -> tuple[int, Blinder, Windows]:
    """The person that a node of the simulation is: its partition's place among all people."""
    everybody = people_once(source)
    person = sorted(everybody)[int(context.node_config["partition-id"])]
    return person, start_run_once(run), everybody[person]
