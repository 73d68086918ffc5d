"""What every dataset has: a card, a protocol, and a way to read its files."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from sensorveil.data.corpus import Corpus, apply_protocol
from sensorveil.data.protocol import Card, Protocol, packaged_card, packaged_protocol
from sensorveil.data.recordings import Recordings
from sensorveil.errors import Refusal, refuse_unknown

PREPARED = "prepared.safetensors"
"""The name of the prepared form inside a dataset's folder."""


class Dataset(ABC):
    """One dataset: a subclass has a name and `read`; `protocols/NAME.toml` says the rest.

    A dataset outside of this package brings that TOML as the text `toml`.

    Its files are looked for where the user says (`source`), else in the folder `name` under
    `SENSORVEIL_DATA` (or the user's data folder): first the prepared form, then the authors'.

    Parameters
    ----------
    **options
        Of those in `defaults`, for data that a program makes.
    """

    name: ClassVar[str]
    folder: ClassVar[str | None] = None
    """The dataset whose folder is taken where this one has none of its own."""

    toml: ClassVar[str] = ""
    """Card and protocol of a dataset that is not part of this package."""

    defaults: ClassVar[Mapping[str, Any]] = {}
    """Every option, with its default."""

    def __init__(self, **options: Any) -> None:
        for name in options:
            if not self.defaults:
                raise Refusal(f"{self.name} takes no options; {', '.join(options)} given")
            if name not in self.defaults:
                raise refuse_unknown(f"option of {self.name}", name, list(self.defaults))
        self.options = {**self.defaults, **options}

    def __repr__(self) -> str:
        card = self.card
        return f"<{card.title}: {card.people} people, {card.channels} at {card.sample_rate:g} Hz>"

    @abstractmethod
    def read(self, source: Path) -> Recordings:
        """Reads all recordings from a folder or file in the authors' or the compact layout."""

    @property
    def card(self) -> Card:
        """What its authors publish about it."""
        return packaged_card(self.name, self.toml)

    def protocol(self) -> Protocol:
        """How its recordings become windows."""
        return packaged_protocol(self.name, self.toml)

    def corpus(self, source: Path | None = None) -> Corpus:
        """Its recordings by its protocol, from the prepared form where there is one."""
        source = self.locate(source)
        protocol = self.protocol()
        prepared = source if source.is_file() else source / PREPARED
        if prepared.suffix == ".safetensors" and prepared.is_file():
            corpus = Corpus.read(prepared, protocol.digest)
            if corpus is not None:
                return corpus
            if source.is_file():
                raise Refusal(
                    f"{source} was prepared by another protocol than {self.name}"
                    f" version {protocol.version}; prepare it again"
                )
        return apply_protocol(protocol, self.read(source))

    def locate(self, source: Path | None = None) -> Path:
        """The folder or file to read, or the refusal that says what to download."""
        own = data_home() / self.name
        shared = self.folder is not None and not own.exists()
        place = source or (data_home() / str(self.folder) if shared else own)
        if not place.exists():
            raise Refusal(
                f"{self.name}: nothing at {place}. To get it, {self.card.obtain}; put it into"
                f" {own} or name its place with --from"
            )
        if place.is_dir() and not any(place.iterdir()):
            raise Refusal(
                f"{self.name}: the folder {place} is empty. To get it, {self.card.obtain}"
            )
        return place

    def require_folder(self, source: Path) -> None:
        """Refuses a file where the authors' layout is a folder."""
        if not source.is_dir():
            raise Refusal(f"{self.name}: {source} is not a folder; {self.card.obtain}")

    def prepare(self, source: Path, target: Path) -> Path:
        """Reads the authors' files once and writes the prepared form, which loads fast."""
        raw = self.read(self.locate(source))
        protocol = self.protocol()
        apply_protocol(protocol, raw).save(target, protocol.digest)
        return target


def data_home() -> Path:
    """The folder with one folder a dataset: SENSORVEIL_DATA, else the user's data folder."""
    named = os.environ.get("SENSORVEIL_DATA")
    return Path(named).expanduser() if named else Path.home() / ".local" / "share" / "sensorveil"
