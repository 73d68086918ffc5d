"""Where a client finds its own data and the run that a federation starts from.

The processes of a simulation are told where, and read for themselves: no data is handed to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sensorveil.data.catalog import load, load_whole
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.federated.client import people_of
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.run import load_run

SUBSETS = ("train", "fitting", "test", "validation", "all")


@dataclass(frozen=True)
class DataSource:
    """Which windows of a dataset are meant.

    Parameters
    ----------
    data
        The dataset's name, or the TOML file of a table.
    split, fold
        The protocol's split, None for its own, and the fold of people that is the test.
    place
        The folder of the dataset's files, None for its own.
    options
        Options of simulated data, as (name, value).
    subset
        train, fitting, test, validation or all.
    """

    data: str
    split: str | None = None
    fold: int = 0
    place: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    subset: str = "train"

    def windows(self) -> Windows:
        """All windows of the subset."""
        place = Path(self.place) if self.place else None
        if self.subset not in SUBSETS:
            raise refuse_unknown("subset", self.subset, SUBSETS)
        if self.subset == "all":
            return load_whole(self.data, place, **dict(self.options))[0]
        split = load(self.data, self.split, self.fold, place, **dict(self.options))
        found: Windows = getattr(split, self.subset)
        return found

    def person(self, name: str) -> Windows:
        """The windows of one person, by the name in the dataset."""
        windows = self.windows()
        known = windows.classes["subject"]
        if name not in known:
            raise refuse_unknown("person", name, known)
        return windows.select(windows.subject == known.index(name))


def load_start(path: Path | str, device: str = "cpu") -> Blinder:
    """The run that a federation starts from."""
    run = load_run(path, device)
    if not isinstance(run, Blinder):
        raise Refusal(f"{path} is a run of {run.name}; a federation trains blinder")
    return run


# A client's process serves one federation, and reads what does not change only once.
cached_start = lru_cache(maxsize=4)(load_start)


@lru_cache(maxsize=4)
def cached_people(source: DataSource) -> dict[int, Windows]:
    """Each person's windows by code."""
    return people_of(source.windows())
