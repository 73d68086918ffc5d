"""The Flower ClientApp: what runs on every node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.federated.client import ClientDataset, client_update
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.dataset import DataSource, cached_people, cached_start
from sensorveil.federated.strategy import CONFIG, COUNTS, UPDATE, WEIGHTS
from sensorveil.methods.blinder import Blinder

Loader = Callable[[Context], tuple[int, Blinder, Windows]]
"""On a node: its client's number, the run that the federation starts from, and its own windows."""


def make_client_app(load: Loader) -> ClientApp:
    """A ClientApp whose nodes find their own data by `load`."""
    app = ClientApp()

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        client, _, windows = load(context)
        counts = MetricRecord({"client": client, "windows": len(windows)})
        return Message(RecordDict({COUNTS: counts}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client, start, windows = load(context)
        update, count = answer(message, client, start, windows)
        arrays = ArrayRecord({UPDATE: Array(update)})
        content = RecordDict({UPDATE: arrays, COUNTS: MetricRecord({"windows": count})})
        return Message(content, reply_to=message)

    return app


def answer(
    message: Message, client: int, start: Blinder, windows: Windows
) -> tuple[np.ndarray, int]:
    """A client's update at the weights of a message, and how many windows it learns from."""
    values: dict[str, Any] = dict(message.content.config_records[CONFIG])
    number, config = int(values.pop("round")), FederationConfig().with_values(values)
    weights = message.content.array_records[WEIGHTS][WEIGHTS].numpy()
    vector = torch.from_numpy(weights.copy()).to(start.device)
    data = _client_dataset(start, windows, config, client)
    update = client_update(start.loss(), vector, data, config, client, number)
    return update.cpu().numpy(), len(data)


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
    windows = _one_person(cached_people(source), values)
    return int(values["client"]), cached_start(str(values["run"])), windows


def _one_person(people: Mapping[int, Windows], values: Mapping[str, Any]) -> Windows:
    if "person" not in values and len(people) == 1:
        return next(iter(people.values()))
    named = {windows.classes["subject"][code]: windows for code, windows in people.items()}
    wanted = str(values.get("person", ""))
    if wanted not in named:
        raise Refusal(
            f"a node holds one person's data, and this has {len(named)} people; say"
            f" person=... in --node-config, one of {', '.join(sorted(named))}"
        )
    return named[wanted]


app = make_client_app(node_data)
