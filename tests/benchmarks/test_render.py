"""The pages of results: complete, up to date, and with the figures of the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.render import NOT_STORED, PAGES, RESULTS, Result, render, stored_results
from benchmarks.tables import tables_of
from sensorveil.cli.main import app


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return render()


def test_docs_show_what_is_stored(pages: dict[str, str]) -> None:
    """`sensorveil papers render` mends a failure."""
    assert {place.name: place.read_text("utf-8") for place in PAGES.glob("*.md")} == pages


def test_every_result_is_linked_and_has_a_table(pages: dict[str, str]) -> None:
    for one in stored_results():
        assert f"[{one.name}](" in pages[f"{one.page}.md"]
        assert f"[{one.section}]({one.page}.md#" in pages["index.md"]
        assert tables_of(one.content), one.name


def test_figures_are_those_of_the_files(pages: dict[str, str]) -> None:
    """The old format too: an accuracy of a recipe, a verdict of an audit, a federation's mean."""
    found = json.loads((RESULTS / "obscurenet-motionsense-gender-accuracy.json").read_text())
    (row,) = (one for one in found["rows"] if one["label"] == "ObscureNet, deterministic")
    ours, dense = (row[kind]["gender"]["accuracy"] for kind in ("read", "read_dense"))
    shown = [
        f"{100 * one['value']:.1f} ({100 * one['low']:.1f} to {100 * one['high']:.1f})"
        for one in (ours, dense)
    ]
    line = f"| ObscureNet, deterministic | gender | 17.06 | {' | '.join(shown)} |"
    assert line in pages["obscurenet.md"]

    found = json.loads((RESULTS / "motionsense-blinder-paper-audit" / "audit.json").read_text())
    (gender,) = (one for one in found["splits"][0]["attributes"] if one["attribute"] == "gender")
    (line,) = (one for one in pages["blinder.md"].splitlines() if one.startswith("| gender | hide"))
    assert f"{100 * gender['worst']['accuracy']['value']:.1f} (" in line
    assert line.endswith(f"| {gender['verdict']['status']} |")

    found = json.loads((RESULTS / "blinder-motionsense-gender-results-tuned.json").read_text())
    each = [p["read"]["activity"] for p in found["points"] if p["algorithm"] == "FedBlinder"]
    assert f"{100 * sum(each) / len(each):.1f} ({100 * min(each):.1f} to" in pages["blinder.md"]


def test_what_a_file_does_not_hold_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A commit in the file counts before the list of old ones."""
    monkeypatch.setattr("benchmarks.render.RESULTS", tmp_path)
    monkeypatch.setattr("benchmarks.render.old_commits", dict)
    content: dict[str, Any] = {"data": "watch", "conditions": {"hardware": "h", "date": "d"}}
    place = tmp_path / "new.json"
    place.write_text(json.dumps(content))
    facts = Result(place).facts()
    assert facts["commit"] == facts["seeds"] == NOT_STORED
    content["conditions"]["commit"] = "abc"
    place.write_text(json.dumps(content))
    assert Result(place).facts()["commit"] == "abc"


def test_the_command_writes_all_pages(pages: dict[str, str], tmp_path: Path) -> None:
    app(["papers", "render", "--out", str(tmp_path / "pages")], standalone_mode=False)
    assert {place.name for place in (tmp_path / "pages").iterdir()} == set(pages)
