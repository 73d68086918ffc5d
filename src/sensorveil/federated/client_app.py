"""The Flower ClientApp: what runs on every node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.federated.client import ClientDataset, client_update
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.dataset import DataSource, cached_person, cached_start
from sensorveil.federated.strategy import CONFIG, COUNTS, UPDATE, WEIGHTS
from sensorveil.methods.blinder import Blinder

Loader = Callable[[Context], tuple[int, Blinder, Windows]]
"""On a node: its client's number, the run that the federation starts from, and its own windows."""


def make_client_app(load: Loader) -> ClientApp:
    """A ClientApp whose nodes find their own data by `load`."""
    app = ClientApp()

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        client, _, _ = load(context)
        return Message(RecordDict({COUNTS: MetricRecord({"client": client})}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client, start, windows = load(context)
        values: dict[str, Any] = dict(message.content.config_records[CONFIG])
        number, config = int(values.pop("round")), FederationConfig().with_values(values)
        weights = message.content.array_records[WEIGHTS][WEIGHTS].numpy()
        vector = torch.from_numpy(weights.copy()).to(start.device)
        data = _client_dataset(start, windows, config, client)
        update = client_update(start.loss(), vector, data, config, client, number)
        arrays = ArrayRecord({UPDATE: Array(update.cpu().numpy())})
        content = RecordDict({UPDATE: arrays, COUNTS: MetricRecord({"windows": len(data)})})
        return Message(content, reply_to=message)

    return app


@lru_cache(maxsize=64)
def _client_dataset(
    start: Blinder, windows: Windows, config: FederationConfig, client: int
) -> ClientDataset:
    """Resampled once: a simulation's process asks for the same people again and again."""
    return ClientDataset.of(start, windows, config, client)


def node_data(context: Context) -> tuple[int, Blinder, Windows]:
    """A node's number, start and windows, from its --node-config.

    `client` is its number, `run` the start run's folder on the node, `data` its own dataset or
    TOML. `person` names the one person where the data has several; `subset` takes a part of it.
    """
    values: Mapping[str, Any] = context.node_config
    for name in ("client", "run", "data"):
        if name not in values:
            raise Refusal(f"this node's --node-config lacks '{name}'")
    source = DataSource(
        str(values["data"]),
        split=str(values["split"]) if "split" in values else None,
        place=str(values["from"]) if "from" in values else None,
        subset=str(values.get("subset", "all")),
    )
    person = str(values["person"]) if "person" in values else None
    return int(values["client"]), cached_start(str(values["run"])), cached_person(source, person)


app = make_client_app(node_data)
