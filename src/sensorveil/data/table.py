"""A user's own CSV or Parquet files, described by a short TOML beside them (see docs/howto/table.md)."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorveil.data.dataset import Dataset
from sensorveil.data.io import numbers, read_csv, read_parquet, require_columns
from sensorveil.data.protocol import Card, Protocol
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.data.table_toml import TableDescription, read_description, table_protocol
from sensorveil.errors import Refusal

if TYPE_CHECKING:
    import pandas as pd

_LONGEST_GAP = 1.0
"""Seconds that a straight line between two samples may bridge."""


class Table(Dataset):
    """The user's own recordings; their place is that of the TOML."""

    name = "table"

    def __init__(self) -> None:
        super().__init__()
        self._place: Path | None = None
        self._content: tuple[Recordings, Protocol] | None = None

    @property
    def card(self) -> Card:
        """A card that says how to describe a table."""
        return Card(
            title="Your own table",
            modality="any",
            people=0,
            sample_rate=0.0,
            channels="those that its TOML names",
            licence="yours",
            citation="none",
            url="docs/howto/table.md",
            obtain="write a short TOML beside your CSV or Parquet file, as docs/howto/table.md shows",
        )

    def locate(self, source: Path | None = None) -> Path:
        """The TOML; what was read before is forgotten."""
        if source is None:
            raise Refusal(f"table: no TOML is named; {self.card.obtain} and name that")
        if source.suffix != ".toml":
            raise Refusal(f"table: {source} is not a TOML file; {self.card.obtain} and name that")
        self._place, self._content = source, None
        return source

    def protocol(self) -> Protocol:
        """The protocol that the TOML and, for classes it does not list, the data make."""
        return self._loaded()[1]

    def read(self, source: Path) -> Recordings:
        """Reads the files that the TOML names."""
        if source != self._place:
            self.locate(source)
        return self._loaded()[0]

    def prepare(self, source: Path, target: Path) -> Path:
        """Refuses: a prepared form would look like that of another TOML."""
        raise Refusal(f"table: there is nothing to prepare; load {source} itself")

    def _loaded(self) -> tuple[Recordings, Protocol]:
        if self._content is None:
            self._content = _TableReader(self.locate(self._place)).read()
        return self._content


class _TableReader:
    """Reads the files of one TOML."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.about: TableDescription = read_description(place)
        self.people: dict[str, dict[str, str]] = self._read_people()

    def read(self) -> tuple[Recordings, Protocol]:
        """All recordings, and the protocol."""
        about = self.about
        items: dict[str, Recording] = {}
        found: dict[str, Path] = {}
        for path in self._files():
            for item in self._recordings(path):
                if item.name in items:
                    raise Refusal(
                        f"recording '{item.name}' is in {found[item.name]} and in {path}; keep a"
                        " recording in one file, or give the parts different names"
                    )
                items[item.name], found[item.name] = item, path
        ordered = [items[name] for name in sorted(items)]
        rate = self._sample_rate(ordered)
        values = {
            label: {str(text) for item in ordered for text in np.unique(item.labels[label])}
            for label in about.labels
        }
        people = len({item.subject for item in ordered})
        protocol = table_protocol(about, self.place, values, people)
        longest = max(item.signal.shape[-1] for item in ordered)
        if longest * protocol.sample_rate / rate < protocol.window.length:
            raise self._refusal(
                f"a window has {protocol.window.length} samples, but the longest recording has"
                f" {longest}; use a shorter window"
            )
        constant = self._constant_labels(ordered)
        finished = tuple(_finished(item, rate, constant) for item in ordered)
        return Recordings(finished, about.columns, rate), protocol

    def _refusal(self, message: str) -> Refusal:
        return Refusal(f"{self.place}: {message}")

    def _files(self) -> list[Path]:
        about, base = self.about, self.place.parent
        patterns = about.files or (about.file or "",)
        found: list[Path] = []
        for pattern in patterns:
            if (base / pattern).is_file():
                matches = [pattern]
            else:
                matches = sorted(glob.glob(pattern, root_dir=base, recursive=True))
            if not matches:
                raise self._refusal(f"there is no file '{pattern}' beside it")
            found += [base / match for match in matches if (base / match).is_file()]
        people = base / about.people.file if about.people else None
        files = [path for path in dict.fromkeys(found) if path != people]
        if not files:
            raise self._refusal(f"'{patterns[0]}' is no file with recordings")
        return files

    def _table(self, path: Path, wanted: Sequence[str], text: Iterable[str]) -> Any:
        """A file as a table; columns of names and classes stay text, as they are written."""
        import pandas as pd

        if path.suffix.lower() in (".parquet", ".pq"):
            return read_parquet(path, wanted)
        about = self.about
        table = read_csv(
            path,
            sep=about.separator or ("\t" if path.suffix.lower() == ".tsv" else ","),
            decimal=about.decimal,
            dtype={column: str for column in text if column not in about.numeric_labels},
            low_memory=False,
            index_col=None,  # rows that are too long are refused below, with advice
        )
        heading = str(table.columns[0])
        other = next((mark for mark in ";\t|," if mark in heading), None)
        if len(table.columns) == 1 and other and heading not in wanted:
            raise Refusal(
                f"{path} has the one column '{heading}'; if its cells are separated by"
                f" {other!r}, write separator = {other!r} in {self.place.name}"
            )
        if not isinstance(table.index, pd.RangeIndex):
            raise Refusal(
                f"{path} has rows with more cells than its first row has names; name them all"
            )
        require_columns(table, wanted, str(path))
        return table

    def _read_people(self) -> dict[str, dict[str, str]]:
        """The labels of each person from the table of people, where there is one."""
        about = self.about
        if about.people is None:
            return {}
        path, key = self.place.parent / about.people.file, about.people.key or about.subject
        table = self._table(path, [key], [key, *about.labels])
        labels = [label for label in about.labels if label in table.columns and label != key]
        self._check_numbers(table, labels, path)
        names, cells = _text(table[key]), {label: _text(table[label]) for label in labels}
        people: dict[str, dict[str, str]] = {}
        for row, name in enumerate(names):
            if name in people:
                raise Refusal(f"{path}, row {row + 1}: person '{name}' appears twice")
            people[name] = {label: str(values[row]) for label, values in cells.items()}
        return people

    def _check_numbers(self, table: pd.DataFrame, labels: Sequence[str], path: Path) -> None:
        binned = [label for label in labels if label in self.about.numeric_labels]
        if binned:
            numbers(table, binned, str(path))

    def _recordings(self, path: Path) -> Iterator[Recording]:
        """The recordings of one file, with a time and an array of each label."""
        about, people = self.about, self.people
        of_people = next(iter(people.values()), {})
        own = [label for label in about.labels if label not in of_people]
        keys = [name for name in (about.subject, about.recording) if name]
        times = [about.time] if about.time else []
        table = self._table(path, [*keys, *times, *about.columns], [*keys, *own])
        missing = [label for label in own if label not in table.columns]
        if missing and of_people:
            raise Refusal(f"neither {path} nor the table of people has the column {missing[0]}")
        require_columns(table, own, str(path))
        both = [label for label in of_people if label in table.columns]
        if both:
            raise Refusal(
                f"{path} and the table of people both have the column {both[0]}; drop one"
            )
        self._check_numbers(table, own, path)
        signal = numbers(table, about.columns, str(path), full=True)
        time = _seconds(table[about.time], path) if about.time else None
        labels = {label: _text(table[label]) for label in own}
        for subject, name, rows in self._groups(table, keys, path):
            if people and subject not in people:
                raise Refusal(f"the table of people has no row for person '{subject}' of {path}")
            _check_order(rows, None if time is None else time[rows], name, path)
            cells = {label: values[rows] for label, values in labels.items()}
            cells |= {n: np.array([value]) for n, value in people.get(subject, {}).items()}
            seconds = None if time is None else time[rows] - time[rows[0]]
            yield Recording(name, subject, signal[:, rows], cells, seconds)

    def _groups(
        self, table: pd.DataFrame, keys: Sequence[str], path: Path
    ) -> Iterator[tuple[str, str, np.ndarray]]:
        """Person, name and rows of each recording.

        The name holds the person, since many tables count the recordings of each person from 1.
        Without a column for it, the rows of one person in one file are one recording.
        """
        import pandas as pd

        texts = pd.DataFrame({key: _text(table[key]) for key in keys})
        for key in keys:
            empty = (texts[key] == "").to_numpy()
            if empty.any():
                raise Refusal(f"{path}, row {int(np.argmax(empty)) + 1}: {key} is empty")
        file = Path(os.path.relpath(path, self.place.parent)).with_suffix("").as_posix()
        for values, rows in texts.groupby(list(keys), sort=False).indices.items():
            parts = [str(value) for value in (values if isinstance(values, tuple) else (values,))]
            if len(keys) == 1 and self.about.files:
                parts.append(file)
            yield parts[0], "/".join(parts), np.asarray(rows)

    def _sample_rate(self, items: Sequence[Recording]) -> float:
        """The sample rate that the TOML states; the times must agree with it."""
        stated = self.about.sample_rate
        steps = [np.diff(item.time) for item in items if item.time is not None]
        step = float(np.median(np.concatenate(steps))) if any(map(len, steps)) else 0.0
        if stated is None:
            hint = f"; by the times, write sample_rate = {1 / step:.4g}" if step else ""
            raise self._refusal(f"the entry 'sample_rate' (samples per second) is missing{hint}")
        if self.about.time and not 0.5 < step * stated < 2:
            raise self._refusal(
                f"the times step by {step:.4g} s, but sample_rate = {stated:g} means"
                f" {1 / stated:.4g} s; correct the sample rate, or write times in seconds"
            )
        return stated

    def _constant_labels(self, items: Sequence[Recording]) -> set[str]:
        """The labels that hold for whole recordings, all of them."""
        constant = {
            label
            for label in self.about.labels
            if all((item.labels[label] == item.labels[label][0]).all() for item in items)
        }
        changing = [label for label in self.about.split_labels if label not in constant]
        if changing:
            raise self._refusal(
                f"splits need one {changing[0]} for each recording, but it changes within one"
            )
        return constant


def _text(column: pd.Series) -> np.ndarray:
    """Cells as text: 1 and 1.0 are the same, and an empty cell is the empty text."""
    plain = column.astype(object).where(column.notna(), "").astype(str).str.strip()
    return plain.str.replace(r"^(-?\d+)\.0+$", r"\1", regex=True).to_numpy(dtype=str)


def _seconds(column: pd.Series, path: Path) -> np.ndarray:
    """Seconds since the first row, from seconds or from dates and times in ISO form."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce")
    if pd.api.types.is_datetime64_any_dtype(column) or values.isna().all():
        dates = pd.to_datetime(column, errors="coerce", utc=True, format="ISO8601")
        values = (dates - dates.min()).dt.total_seconds()
    wrong = ~np.isfinite(values.to_numpy(dtype=np.float64))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise Refusal(
            f"{path}, row {row + 1}, {column.name}: '{column.iloc[row]}' is no time; write seconds,"
            " or dates like 2024-05-01T12:00:00.020"
        )
    return values.to_numpy(dtype=np.float64)


def _check_order(rows: np.ndarray, time: np.ndarray | None, name: str, path: Path) -> None:
    """Refuses rows whose order in the recording cannot be known."""
    if time is None:
        breaks = np.flatnonzero(np.diff(rows) != 1)
        if len(breaks):
            last, again = int(rows[breaks[0]]) + 1, int(rows[breaks[0] + 1]) + 1
            raise Refusal(
                f"{path}: recording '{name}' ends at row {last} and goes on at row {again}; keep"
                " its rows together, or name a time column"
            )
    elif np.any(np.diff(time) < 0):
        row = int(rows[int(np.argmax(np.diff(time) < 0)) + 1]) + 1
        raise Refusal(
            f"{path}, row {row}: the time of recording '{name}' runs backwards; sort its rows, or"
            " give the parts different names"
        )


def _finished(item: Recording, rate: float, constant: set[str]) -> Recording:
    """The recording with one value for each constant label, and times only where uneven."""
    count = item.signal.shape[-1]
    labels = {
        name: str(cells[0]) if name in constant else cells for name, cells in item.labels.items()
    }
    if item.time is None:
        return replace(item, labels=labels)
    if count > 1 and item.time[-1] == 0:
        raise Refusal(f"recording '{item.name}' has one time for all its samples; mend the times")
    gap = float(np.max(np.diff(item.time), initial=0.0))
    if gap > max(_LONGEST_GAP, 10 / rate):
        after = int(np.argmax(np.diff(item.time))) + 1
        raise Refusal(
            f"recording '{item.name}' pauses for {gap:.4g} s after its sample {after}; give the"
            " parts different names"
        )
    # A tenth of a step is what clocks that count milliseconds are off; that is left as it is.
    uneven = np.any(np.abs(item.time - np.arange(count) / rate) > 0.1 / rate)
    return replace(item, labels=labels, time=item.time if uneven else None)
