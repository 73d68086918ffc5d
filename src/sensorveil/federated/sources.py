"""Where a client finds its own data and the run that a federation starts from.

Processes of an engine are told where, and read for themselves: data is never handed to them.
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

PARTS = ("train", "fitting", "test", "validation", "all")


@dataclass(frozen=True)
class Source:
    """A dataset by name or TOML file, where it lies, and which part of it is meant."""

    data: str
    protocol: str | None = None
    fold: int = 0
    place: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    part: str = "train"

    def windows(self) -> Windows:
        """All windows of that part."""
        place = Path(self.place) if self.place else None
        if self.part not in PARTS:
            raise Refusal(f"part '{self.part}' is unknown; known: {', '.join(sorted(PARTS))}")
        if self.part == "all":
            return load_whole(self.data, place, **dict(self.options))[0]
        split = load(self.data, self.protocol, self.fold, place, **dict(self.options))
        found: Windows = getattr(split, self.part)
        return found

    def person(self, name: str) -> Windows:
        """The windows of one person, by the name in the dataset."""
        windows = self.windows()
        known = windows.classes["subject"]
        if name not in known:
            raise refuse_unknown("person", name, known)
        return windows.select(windows.subject == known.index(name))


def start_run(path: Path | str, device: str = "cpu") -> Blinder:
    """The run that a federation starts from."""
    obfuscator = load_run(path, device)
    if not isinstance(obfuscator, Blinder):
        raise Refusal(f"{path} is a run of {obfuscator.name}; a federation trains blinder")
    return obfuscator


# A client's process serves one federation, and reads what does not change only once.
start_run_once = lru_cache(maxsize=4)(start_run)


@lru_cache(maxsize=4)
def people_once(source: Source) -> dict[int, Windows]:
    """Each person's windows by code."""
    return people_of(source.windows())
