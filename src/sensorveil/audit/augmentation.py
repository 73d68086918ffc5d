"""Whether generated windows help a classifier: figures 2 to 5 of the CSI paper.

A classifier is trained on real windows, and another on as many generated ones beside them (1:1).
The first sees every real window twice, so that both are trained equally long. In-domain the test
holds people who were trained on; cross-domain, people who were not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from sensorveil.audit.donors import Make
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.measures.estimate import Estimate, bootstrap
from sensorveil.methods.generator import to_learn_from
from sensorveil.progress import track
from sensorveil.train import derived_seed

_INTERVAL = 51  # what a seed is for

PAPER: Mapping[str, Mapping[str, float]] = {
    "in-domain subject": {"real": 0.905, "plain": 0.914, "hybrid": 0.921},
    "in-domain activity": {"real": 0.866, "plain": 0.905, "hybrid": 0.931},
    "cross-domain activity": {"real": 0.652, "plain": 0.701, "hybrid": 0.731},
}
"""Section VI-A, on Widar3.0: other data than any here. What it calls gesture is activity here.

The hybrid's are the plain ones and what the text says it adds to them.
"""


class Reader(Protocol):
    """What is trained: it must say the most likely class of each window."""

    def predict(self, windows: Windows) -> np.ndarray:
        """One class for each."""
        ...


@dataclass(frozen=True, eq=False)
class Augmentation:
    """Accuracy on the same test people without generated windows, with them, and the difference.

    `table` (seeds, people, 3) counts right answers without, right answers with, and windows.
    Intervals are over people and seeds.
    """

    attribute: str
    table: np.ndarray

    @property
    def real(self) -> Estimate:
        """Without generated windows."""
        return self._share(lambda table: table[..., 0])

    @property
    def mixed(self) -> Estimate:
        """With as many generated windows as real ones."""
        return self._share(lambda table: table[..., 1])

    @property
    def gain(self) -> Estimate:
        """What the generated ones add."""
        return self._share(lambda table: table[..., 1] - table[..., 0])

    def _share(self, right: Callable[[np.ndarray], np.ndarray]) -> Estimate:
        chance = np.random.default_rng(derived_seed(0, _INTERVAL))
        return bootstrap(self.table, lambda table: right(table) / table[..., 2], chance)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "attribute": self.attribute,
            "real": self.real.as_dict(),
            "mixed": self.mixed.as_dict(),
            "gain": self.gain.as_dict(),
            "paper_on_widar3": {name: dict(row) for name, row in PAPER.items()},
            "table": self.table.tolist(),
        }

    @classmethod
    def joined(cls, parts: Sequence[Mapping[str, Any]]) -> Augmentation:
        """What `as_dict` gave for other seeds of the same, as one."""
        tables = [np.array(part["table"]) for part in parts]
        if len({(part["attribute"], *np.shape(part["table"])[1:]) for part in parts}) > 1:
            raise Refusal("the parts are of other people, or read another attribute")
        return cls(parts[0]["attribute"], np.concatenate(tables))


def augmentation(
    makes: Mapping[str, Make],
    splits: Sequence[Split],
    keep: str,
    hide: str,
    *,
    train: Callable[[Windows, int], Reader],
    seeds: Sequence[int] = (0, 1, 2),
    after: Callable[[dict[str, Augmentation]], None] | None = None,
) -> dict[str, Augmentation]:
    """Trains with and without windows of each generator, on every split (fold), for every seed.

    `keep` is the attribute that is read, and what the generators are told. All are compared with
    the same classifier of real windows. `after` is given what is known so far, after each seed.
    """
    tables: dict[str, list[np.ndarray]] = {name: [] for name in makes}
    found: dict[str, Augmentation] = {}
    for seed in track(seeds, "seeds"):
        folds = [_fold(makes, split, keep, hide, train, seed) for split in track(splits, "folds")]
        for name, own in tables.items():
            own.append(np.concatenate([fold[name] for fold in folds]))
        found = {name: Augmentation(keep, np.stack(own)) for name, own in tables.items()}
        if after:
            after(found)
    return found


def _fold(
    makes: Mapping[str, Make],
    split: Split,
    keep: str,
    hide: str,
    train: Callable[[Windows, int], Reader],
    seed: int,
) -> dict[str, np.ndarray]:
    """For each generator the counts of `Augmentation.table` of a split's test people."""

    def right(other: Windows) -> np.ndarray:
        reader = train(joined(split.train, other, keep), seed)
        return reader.predict(split.test) == split.test.codes(keep)

    real, found = right(split.train), {}
    for name, make in track(list(makes.items()), "generators"):
        obfuscator = make(seed).fit(split.train, keep, hide)
        mixed = right(to_learn_from(obfuscator, split.train, seed))
        found[name] = _by_person(np.stack([real, mixed], axis=1), split.test.subject)
    return found


def joined(windows: Windows, made: Windows, attribute: str) -> Windows:
    """Real windows and generated ones as one set, with one attribute.

    >>> some = Windows.from_signal(np.zeros((2, 1, 8)), {"activity": [0, 1]})
    >>> len(joined(some, some, "activity"))
    4
    """
    parts = (windows, made)
    whole = Windows.from_signal(
        np.concatenate([part.signal for part in parts]),
        {attribute: np.concatenate([part.codes(attribute) for part in parts])},
        windows.sample_rate,
    )
    classes = {**whole.classes, attribute: windows.classes[attribute]}
    return replace(whole, classes=classes, channels=windows.channels)


def _by_person(right: np.ndarray, person: np.ndarray) -> np.ndarray:
    """Right answers (n, 2) and windows, counted for each person: (people, 3)."""
    people, index = np.unique(person, return_inverse=True)
    table = np.zeros((len(people), 3), int)
    np.add.at(table, index, np.column_stack([right, np.ones(len(right), int)]))
    return table
