"""Where a client finds its own data and the run that a federation starts from.

The processes of a simulation get a `DataSource` and read the files themselves.
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
        if self.subset not in SUBSETS:
            raise refuse_unknown("subset", self.subset, SUBSETS)
        if self.subset == "all":
            return load_whole(self.data, self.place, **dict(self.options))[0]
        split = load(self.data, self.split, self.fold, self.place, **dict(self.options))
        found: Windows = getattr(split, self.subset)
        return found

    def person(self, name: str | None) -> Windows:
        """The windows of one person by name; without a name, of the only one there is."""
        windows = self.windows()
        names = windows.classes["subject"]
        people = {names[code]: own for code, own in people_of(windows).items()}
        if name is None and len(people) == 1:
            return next(iter(people.values()))
        if name is None:
            raise Refusal(
                f"a client has one person's data, and this has {len(people)} people; say"
                f" person=..., one of {', '.join(sorted(people))}"
            )
        if name not in people:
            raise refuse_unknown("person", name, sorted(people))
        return people[name]


def load_start(path: Path | str, device: str = "cpu") -> Blinder:
    """The run that a federation starts from."""
    run = load_run(path, device)
    if not isinstance(run, Blinder):
        raise Refusal(f"{path} is a run of {run.name}; a federation trains blinder")
    return run


# A client's process serves one federation, and reads what does not change only once.
cached_start = lru_cache(maxsize=4)(load_start)
cached_person = lru_cache(maxsize=4)(DataSource.person)


@lru_cache(maxsize=4)
def cached_people(source: DataSource) -> dict[int, Windows]:
    """Each person's windows by code."""
    return people_of(source.windows())
