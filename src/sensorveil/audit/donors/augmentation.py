"""Whether generated windows improve a classifier: figures 2 to 5 of the CSI paper.

One classifier is trained on real windows, another on real and generated ones, 1:1. The first sees
every real window twice, so that both are trained equally long. In-domain, test people were trained
on; cross-domain, they were not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.csi import released_for_training
from sensorveil.progress import track
from sensorveil.statistics import Estimate, bootstrap
from sensorveil.train import derived_seed

_INTERVAL_SEED = 51

PAPER: Mapping[str, Mapping[str, float]] = {
    "in-domain subject": {"real": 0.905, "plain": 0.914, "hybrid": 0.921},
    "in-domain activity": {"real": 0.866, "plain": 0.905, "hybrid": 0.931},
    "cross-domain activity": {"real": 0.652, "plain": 0.701, "hybrid": 0.731},
}
"""Section VI-A, on Widar3.0: other data than any here. The paper's gesture is activity here.

The text states what the hybrid adds to plain.
"""


class Predictor(Protocol):
    """A trained classifier."""

    def predict(self, windows: Windows) -> np.ndarray:
        """The most likely class of each window, (n,)."""


@dataclass(frozen=True, eq=False)
class Augmentation:
    """Accuracy on the same test people without and with generated windows.

    Parameters
    ----------
    attribute
        The attribute that is predicted.
    table
        Right predictions without, right predictions with, and windows: (seeds, people, 3). Intervals
        are over people and seeds.
    """

    attribute: str
    table: np.ndarray

    @property
    def real(self) -> Estimate:
        """Accuracy without generated windows."""
        return self._estimate(lambda table: table[..., 0])

    @property
    def mixed(self) -> Estimate:
        """Accuracy with as many generated windows as real ones."""
        return self._estimate(lambda table: table[..., 1])

    @property
    def gain(self) -> Estimate:
        """What the generated windows add."""
        return self._estimate(lambda table: table[..., 1] - table[..., 0])

    def _estimate(self, right: Callable[[np.ndarray], np.ndarray]) -> Estimate:
        rng = np.random.default_rng(derived_seed(0, _INTERVAL_SEED))
        return bootstrap(self.table, lambda table: right(table) / table[..., 2], rng)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "attribute": self.attribute,
            "real": self.real.as_dict(),
            "mixed": self.mixed.as_dict(),
            "gain": self.gain.as_dict(),
            "paper_on_widar3": {name: dict(row) for name, row in PAPER.items()},
            "table": self.table.tolist(),
        }

    @classmethod
    def join(cls, parts: Sequence[Mapping[str, Any]]) -> Augmentation:
        """Join what `as_dict` gave for different seeds."""
        tables = [np.array(part["table"]) for part in parts]
        if len({(part["attribute"], *np.shape(part["table"])[1:]) for part in parts}) > 1:
            raise Refusal("the parts are of other people, or of another attribute")
        return cls(parts[0]["attribute"], np.concatenate(tables))


def measure_augmentation(
    generators: Mapping[str, Callable[[int], Obfuscator]],
    splits: Sequence[Split],
    keep: str,
    hide: str,
    train: Callable[[Windows, int], Predictor],
    seeds: Sequence[int] = (0, 1, 2),
    on_result: Callable[[dict[str, Augmentation]], None] | None = None,
) -> dict[str, Augmentation]:
    """Train classifiers with and without generated windows, on every split and for every seed.

    Parameters
    ----------
    generators
        Makes an untrained generator (or any method) for a seed, by name.
    splits
        The folds; each brings its own test people.
    keep, hide
        The policy of the generators; `keep` is what the classifiers predict.
    train
        Trains a classifier on windows, with a seed.
    seeds
        Of generators and classifiers.
    on_result
        Called with the results so far after each seed.
    """
    tables: dict[str, list[np.ndarray]] = {name: [] for name in generators}
    found: dict[str, Augmentation] = {}
    for seed in track(seeds, "seeds"):
        rows: dict[str, list[np.ndarray]] = {name: [] for name in generators}
        for split in track(splits, "folds"):

            def is_right(other: Windows, split: Split = split, seed: int = seed) -> np.ndarray:
                classifier = train(concatenate(split.train, other, keep), seed)
                return classifier.predict(split.test) == split.test.codes(keep)

            real = is_right(split.train)
            for name, make in track(list(generators.items()), "generators"):
                generator = make(seed).fit(split.train, keep, hide)
                mixed = is_right(released_for_training(generator, split.train, seed))
                rows[name].append(_count(np.stack([real, mixed], axis=1), split.test.subject))
        for name, own in rows.items():
            tables[name].append(np.concatenate(own))
        found = {name: Augmentation(keep, np.stack(own)) for name, own in tables.items()}
        if on_result:
            on_result(found)
    return found


def concatenate(windows: Windows, others: Windows, attribute: str) -> Windows:
    """Two sets of windows as one, with one attribute.

    >>> some = Windows.from_signal(np.zeros((2, 1, 8)), {"activity": [0, 1]})
    >>> len(concatenate(some, some, "activity"))
    4
    """
    parts = (windows, others)
    whole = Windows.from_signal(
        np.concatenate([part.signal for part in parts]),
        {attribute: np.concatenate([part.codes(attribute) for part in parts])},
        windows.sample_rate,
    )
    classes = {**whole.classes, attribute: windows.classes[attribute]}
    return replace(whole, classes=classes, channels=windows.channels)


def _count(right: np.ndarray, person: np.ndarray) -> np.ndarray:
    """Right predictions (n, 2) and windows of each person, (people, 3)."""
    people, index = np.unique(person, return_inverse=True)
    table = np.zeros((len(people), 3), int)
    np.add.at(table, index, np.column_stack([right, np.ones(len(right), int)]))
    return table
