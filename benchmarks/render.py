"""Writes docs/results out of the stored results: an index, and a page for each method.

    sensorveil papers render

No figure on these pages is typed by hand.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from benchmarks.recipe import names, recipe
from benchmarks.tables import Table, tables_of

RESULTS = Path(__file__).parent / "results"
PAGES = Path(__file__).parents[1] / "docs" / "results"
TITLES = {
    "audit-of": "The audit itself",
    "blinder": "Blinder",
    "privdiffuser": "PrivDiffuser",
    "cloak": "CLOAK",
    "obscurenet": "ObscureNet",
    "seal": "Seal",
    "csi": "CSI generation",
    "baselines": "Baselines",
}
"""Pages and their titles; a result is on the first page whose name is in its own."""

NOT_STORED = "not stored"
WRITTEN_BY = "`sensorveil papers render` writes this page out of the files that it links to."
OLD = """Results with a † were written before commit a358de3: their settings and options have the names of that
time. Preset `fast` of CLOAK and PrivDiffuser then generated windows of the predicted class alone, and Seal
emitted donors' windows."""


@dataclass(frozen=True)
class Result:
    """A file of results, or that of an audit's folder."""

    place: Path

    @cached_property
    def content(self) -> dict[str, Any]:
        """What it holds."""
        content: dict[str, Any] = json.loads(self.place.read_text("utf-8"))
        return content

    @property
    def name(self) -> str:
        """Its name in the folder of results."""
        return self.place.relative_to(RESULTS).parts[0].removesuffix(".json")

    @property
    def section(self) -> str:
        """The name without its seed: results that differ in nothing else share a section."""
        return re.sub(r"-seed\d+$", "", self.name)

    @property
    def page(self) -> str:
        """The page that it is on."""
        return next((page for page in TITLES if page in self.name), "baselines")

    @property
    def link(self) -> str:
        """A link to the file, or to the page of an audit."""
        html = self.place.with_suffix(".html")
        target = (html if html.exists() else self.place).relative_to(RESULTS)
        return f"[{self.name}](../../benchmarks/results/{target.as_posix()})"

    def facts(self) -> dict[str, str]:
        """Data, seeds, hardware, commit and so on."""
        content, origin = self.content, self._origin()
        conditions = content["conditions"]
        run = content.get("run") or (content.get("runs") or [{}])[0]
        old = old_commits().get(self.place.relative_to(RESULTS).parts[0])
        facts = {
            "data": origin.get("dataset", origin.get("data")),
            "split": origin.get("split"),
            "preset": content.get("preset") or run.get("preset") or origin.get("preset"),
            "seeds": self._seeds(),
            "hardware": conditions["hardware"],
            "date": conditions["date"],
            "commit": conditions.get("commit") or (old and f"{old} †"),
        }
        return {name: value or NOT_STORED for name, value in facts.items()}

    def _origin(self) -> dict[str, Any]:
        content = self.content
        if "splits" in content:
            split = ", ".join(one["split"] for one in content["splits"])
            return {"dataset": content["dataset"], "split": split}
        origin = next(content[key] for key in ("data", "asked", "study") if content.get(key))
        origin = origin[0] if isinstance(origin, list) else origin
        return {"dataset": origin} if isinstance(origin, str) else origin

    def _seeds(self) -> str:
        content = self.content
        if "real" in content:
            return f"{content['real']['seeds']} in all"
        scores = content.get("scores", ()) if "study" in content else ()
        seeds = content.get("seeds") or {one["seed"] for one in scores}
        return ", ".join(str(seed) for seed in sorted(seeds))

    def commands(self) -> list[str]:
        """The commands that wrote it, those of its parts first."""
        content = self.content
        earlier = [*content.get("parts", ()), *content.get("earlier", ())]
        return [one["command"] for one in (*earlier, content["conditions"])]


@cache
def old_commits() -> dict[str, str]:
    """The commits of results that do not hold them.

    >>> old_commits()["motionsense-none-paper.json"]
    '20a2589'
    """
    with (RESULTS / "commits.csv").open(encoding="utf-8") as file:
        return {row["result"]: row["commit"] for row in csv.DictReader(file)}


def stored_results() -> list[Result]:
    """All results, by name."""
    places = [*RESULTS.glob("*.json"), *RESULTS.glob("*/audit.json")]
    return sorted((Result(place) for place in places), key=lambda one: one.name)


def render() -> dict[str, str]:
    """The text of all pages, by the name of their file."""
    sections: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for one in stored_results():
        sections[one.page][one.section].append(one)
    pages = {f"{page}.md": _page(page, sections[page]) for page in TITLES}
    return {"index.md": _index(sections), **pages}


def write(folder: Path) -> list[Path]:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = render()
    for name, text in pages.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in pages]


def _index(sections: dict[str, dict[str, list[Result]]]) -> str:
    rows = []
    for page, title in TITLES.items():
        for name, results in sections[page].items():
            facts = results[0].facts()
            seeds = ", ".join(dict.fromkeys(one.facts()["seeds"] for one in results))
            cells = ("data", "split", "preset", "hardware", "commit")
            link = f"[{name}]({page}.md#{_anchor(name)})"
            rows.append((title, link, seeds, *(facts[cell] for cell in cells)))
    columns = ("page", "result", "seeds", "data", "split", "preset", "hardware", "commit")
    missing = [name for name in names() if not any(name in r.name for r in stored_results())]
    recipes = "\n".join(f"- `{name}`: {recipe(name).title}" for name in missing)
    return f"""# Results

{WRITTEN_BY} [How to measure them](../papers.md) has the commands.
{OLD}

{_markdown(Table("", columns, tuple(rows)))}
## Recipes without a stored result

{recipes}
"""


def _page(page: str, sections: dict[str, list[Result]]) -> str:
    text = f"""# Results: {TITLES[page]}

{WRITTEN_BY} Brackets are 95% intervals over people and seeds.
{OLD}
"""
    found = "".join(_section(name, results) for name, results in sections.items())
    return text + (found or "\nNothing is stored yet.\n")


def _section(name: str, results: Sequence[Result]) -> str:
    facts = [{"file": one.link, **one.facts()} for one in results]
    columns = tuple(facts[0])
    about = Table("", columns, tuple(tuple(each.values()) for each in facts))
    commands = "\n".join(command for one in results for command in one.commands())
    tables = "".join(f"**{one.title}**\n\n{_markdown(one)}\n" for one in _joined(results))
    return (
        f"\n## {name}\n\n{_markdown(about)}\n```text\n{commands}\n```\n\n{tables}".rstrip() + "\n"
    )


def _joined(results: Sequence[Result]) -> Iterator[Table]:
    """The tables of results that differ in their seed alone, each under its seed."""
    if len(results) == 1:
        yield from tables_of(results[0].content)
        return
    joined: dict[tuple[str, tuple[str, ...]], list[tuple[str, ...]]] = defaultdict(list)
    for one in results:
        label = one.name.removeprefix(one.section).removeprefix("-") or "all"
        for table in tables_of(one.content):
            joined[table.title, ("seed", *table.columns)] += [(label, *row) for row in table.rows]
    for (title, columns), rows in joined.items():
        yield Table(title, columns, tuple(rows))


def _markdown(table: Table) -> str:
    lines = [table.columns, ("---",) * len(table.columns), *table.rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in lines)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
