"""A dataset as it is here: measured, beside what its card says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.data.catalog import dataset, load_whole
from sensorveil.data.splits import split_windows
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal


def describe(name: str, source: Path | str | None = None, **options: Any) -> dict[str, Any]:
    """People, hours, channels, class counts and split sizes, counted from the files.

    >>> about = describe("watch")
    >>> about["people"], about["attributes"]["side"]["windows"]
    (10, {'left': 1877, 'right': 1728})
    """
    windows, corpus, rules = load_whole(name, source, **options)
    return {
        "people": len(corpus.classes["subject"]),
        "recordings": len(corpus.recordings),
        "hours": round(corpus.hours, 3),
        "rate": corpus.sample_rate,
        "channels": list(corpus.channels),
        "windows": len(windows),
        "window": {"length": rules.length, "stride": rules.stride},
        "protocol": {"version": rules.version, "digest": rules.digest},
        "attributes": {n: _counts(windows, n) for n in windows.attributes if n != "subject"},
        "splits": {split: _sizes(windows, corpus, rules, split) for split in rules.splits},
    }


def available(name: str) -> bool:
    """Whether a dataset's files are where they are looked for.

    >>> available("watch")
    True
    """
    try:
        dataset(name).locate()
    except Refusal:
        return False
    return True


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


def _sizes(windows: Windows, corpus: Any, rules: Any, split: str) -> dict[str, Any]:
    try:
        parts = split_windows(windows, corpus, rules, split)
    except Refusal as refusal:
        return {"refused": str(refusal)}
    sizes = {part: len(getattr(parts, part)) for part in ("train", "validation", "test")}
    return {"by": rules.splits[split].by, **sizes}
