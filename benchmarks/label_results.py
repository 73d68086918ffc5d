"""Writes benchmarks/results/README.md: which commit each stored result is of.

    python -m benchmarks.label_results

A label that is there stands; results without one get that of the last commit that changed them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
RENAMED = ("6121bde",)
"""Commits that only gave figures other names."""

HEAD = """# Stored results

Every file names its command, seeds, data, split and hardware. This table names the commit that wrote it, and
`python -m benchmarks.label_results` adds what has no line yet. All are of commits before the redesign of November
2026, so that settings and options in them have older names. Audits were converted to format 2 since, by
`benchmarks/convert_results.py`; their figures are as they were. `python -m benchmarks.render` makes the pages in
`docs/results` of them.

| result | commit | date |
|---|---|---|
"""


def stored() -> list[str]:
    """The names of all results, files and folders."""
    return sorted(place.name for place in RESULTS.iterdir() if place.name != "README.md")


def labels() -> dict[str, tuple[str, str]]:
    """Commit and date of each result that the table names.

    >>> labels()["motionsense-none-paper.json"][1]
    '2026-11-15'
    """
    place = RESULTS / "README.md"
    text = place.read_text("utf-8") if place.exists() else ""
    lines = re.findall(r"^\| `(.+)` \| (\w+) \| ([\d-]+) \|$", text, re.MULTILINE)
    return {name: (commit, date) for name, commit, date in lines}


def last_change(name: str) -> tuple[str, str]:
    """Commit and date of the last change of a result, here or in its older place."""
    inside = f"{name}/audit.json" if (RESULTS / name).is_dir() else name
    paths = [f":(top)benchmarks/results/{inside}", f":(top)results/{inside}"]
    command = ["git", "log", "--date=short", "--format=%h %ad", "--", *paths]
    log = subprocess.run(command, cwd=RESULTS, check=True, capture_output=True, text=True).stdout
    found = [tuple(line.split()) for line in log.splitlines()]
    commit, date = next((one for one in found if one[0] not in RENAMED), ("uncommitted", "-"))
    return commit, date


if __name__ == "__main__":
    known = labels()
    rows = {name: known.get(name) or last_change(name) for name in stored()}
    lines = [f"| `{name}` | {commit} | {date} |\n" for name, (commit, date) in rows.items()]
    (RESULTS / "README.md").write_text(HEAD + "".join(lines), "utf-8")
