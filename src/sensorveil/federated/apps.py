"""The apps that a deployment runs: `server` on the SuperLink, `client` on every SuperNode.

The server is told by the run's configuration, a client by its own node's; `app_folder` writes what
`flwr run` needs. Docs: docs/federated.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.federated.flower import make_client_app, serve
from sensorveil.federated.keeping import Keeper, finished
from sensorveil.federated.plan import Plan
from sensorveil.federated.sources import Source, people_once, start_run, start_run_once
from sensorveil.files import part_of, written_folder
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.run import save_run
from sensorveil.version import __version__

from flwr.app import Context  # isort: skip (after flower.py, which turns telemetry off)
from flwr.serverapp import Grid, ServerApp  # isort: skip


def node_source(context: Context) -> tuple[int, Blinder, Windows]:
    """A node's number, start and windows, from its --node-config.

    `client` is its number, `run` the start run's folder on the node, `data` its own dataset or
    TOML. `person` names the one person where the data has several; `part` takes a part of it.
    """
    told: Mapping[str, Any] = context.node_config
    for name in ("client", "run", "data"):
        if name not in told:
            raise Refusal(f"this node's --node-config lacks '{name}'")
    source = Source(
        str(told["data"]),
        protocol=str(told["protocol"]) if "protocol" in told else None,
        place=str(told["from"]) if "from" in told else None,
        part=str(told.get("part", "all")),
    )
    everybody = people_once(source)
    return int(told["client"]), start_run_once(str(told["run"])), _one(everybody, told)


def _one(everybody: Mapping[int, Windows], told: Mapping[str, Any]) -> Windows:
    """The windows of the one person that the node belongs to."""
    if "person" not in told and len(everybody) == 1:
        return next(iter(everybody.values()))
    named = {windows.classes["subject"][code]: windows for code, windows in everybody.items()}
    wanted = str(told.get("person", ""))
    if wanted not in named:
        raise Refusal(
            f"a node holds one person's data, and this has {len(named)} people; say"
            f" person=... in --node-config, one of {', '.join(sorted(named))}"
        )
    return named[wanted]


client = make_client_app(node_source)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Goes through the rounds of the configured plan and writes the run."""
    told: Mapping[str, Any] = context.run_config
    plan = Plan(**part_of(told, "plan."))
    obfuscator, out = start_run(str(told["run"])), Path(str(told["out"]))
    if out.exists():
        raise Refusal(f"{out} exists already; choose another place or remove it")
    keeper = Keeper(f"{out}.unfinished", obfuscator, plan, resume=bool(told["resume"]))
    clients = int(told["clients"])
    state = serve(grid, obfuscator.weights(), plan, clients, keeper, patience=told["patience"])
    save_run(finished(obfuscator, state, plan, clients), out)
    keeper.remove()


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
serverapp = "sensorveil.federated.apps:server"
clientapp = "sensorveil.federated.apps:client"

[tool.flwr.app.config]
run = "{run}"
out = "{out}"
clients = {clients}
resume = false
patience = 300.0

[tool.flwr.app.config.plan]
{plan}
"""


def app_folder(
    path: Path | str, run: Path | str, out: Path | str, clients: int, plan: Plan
) -> Path:
    """Writes the folder that `flwr run` sends to the SuperLink: configuration, no data."""
    lines = [f"{name} = {_toml(value)}" for name, value in asdict(plan).items()]
    text = _PROJECT.format(
        version=__version__.partition("+")[0],
        run=Path(run).absolute().as_posix(),
        out=Path(out).absolute().as_posix(),
        clients=clients,
        plan="\n".join(lines),
    )
    tomllib.loads(text)
    with written_folder(path) as folder:
        (folder / "pyproject.toml").write_text(text, "utf-8")
    return Path(path)


def _toml(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
