"""The words that docs/glossary.md replaced stay out of code, messages, pages and documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REPLACED = (
    "abreast|afforded|climb|coin|evidence|guessing|knob|ladder|lesson|misread|panel|rivals|rung"
    "|strangers|surprise|told|too kind|tries|veil|void|warmth|who it is|whoever"
)
ALLOWED = ("rich_help_panel", "evidence lower bound")
"""A name of another project, and a term of the field."""

# A letter on either side makes another word; an underscore or a digit does not.
FOUND = re.compile(rf"(?<![a-z])({REPLACED})s?(?![a-z])", re.IGNORECASE)
PLACES = ("src/**/*.py", "src/**/*.j2", "src/**/*.css", "docs/**/*.md", "benchmarks/*.py", "*.md")
LEFT_OUT = ("docs/glossary.md", "docs/results/", "CHANGELOG.md", "benchmarks/convert_results.py")
FILES = sorted(
    name
    for place in PLACES
    for name in (str(path.relative_to(ROOT)) for path in ROOT.glob(place))
    if not name.startswith(LEFT_OUT)
)


def replaced_words(text: str) -> list[str]:
    """Line numbers and words, as `12: told`."""
    for name in ALLOWED:
        text = text.replace(name, "")
    return [
        f"{number}: {found[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for found in FOUND.finditer(line)
    ]


@pytest.mark.parametrize("name", FILES)
def test_replaced_words_stay_out(name: str) -> None:
    found = replaced_words((ROOT / name).read_text("utf-8"))
    assert not found, f"{name} has words that docs/glossary.md replaced: {', '.join(found)}"


def test_words_inside_names_are_found_and_other_words_are_not() -> None:
    text = "import sensorveil\nself._told(veils)\navoid; a stepladder; coincide\nTries again"
    assert replaced_words(text) == ["2: told", "2: veils", "4: Tries"]


def test_the_glossary_says_what_replaced_each_word() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    replaced = " ".join(line.rpartition(" | ")[2] for line in glossary.splitlines())
    for word in REPLACED.split("|"):
        assert word in replaced, f"docs/glossary.md does not replace '{word}'"
