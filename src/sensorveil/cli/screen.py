"""What the commands print: tables and bars for people, or JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sensorveil.progress import listen

errors = Console(stderr=True, highlight=False, soft_wrap=True)


class Screen:
    """Prints for a person, for a program (`as_json`), or nothing but errors (`quiet`)."""

    def __init__(self, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet = quiet
        self.as_json = as_json
        self._console = Console(highlight=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """One line for a person."""
        if not (self.quiet or self.as_json):
            self._console.print(line, markup=False)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table for a person; the first column is text, the others stand at the right."""
        if self.quiet or self.as_json:
            return
        if title:  # a title of the table's own would be broken to its width
            self.say(title)
        table = Table()
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console(highlight=False).print(table)

    def result(self, content: Any) -> None:
        """The result for a program; a person has seen it as a table."""
        if self.as_json:
            print(json.dumps(content, ensure_ascii=False))

    @contextmanager
    def bars(self) -> Iterator[None]:
        """Shows the progress of everything inside, on the error stream."""
        # Without a terminal rich draws no bar, but it ends with an empty line.
        if self.quiet or self.as_json or not errors.is_terminal:
            yield
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=errors, transient=True) as progress:
            tasks: dict[str, Any] = {}

            def show(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = progress.add_task(what, total=total)
                if done == 0:
                    progress.reset(tasks[what], total=total)
                progress.update(tasks[what], completed=done, total=total)

            with listen(show):
                yield
