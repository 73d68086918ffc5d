"""The page says what was read from the run's own condition."""

from __future__ import annotations

import re
from dataclasses import replace

import sample

from sensorveil.report import render


def section(html: str) -> str:
    found = re.search(r'<section id="condition">.*?</section>', html, flags=re.S)
    return found.group() if found else ""


def cells(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", html.split("<tbody>")[1], flags=re.S)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.S) for row in rows]


def test_both_sources_stand_beside_what_the_class_gives_away() -> None:
    drawn = section(render(sample.audit()))
    assert "4,988 windows of 12 people" in drawn
    first, second = cells(drawn)[:2]
    assert first[1:3] == ["Gender", "the encoder&#x27;s features"]
    assert first[3:] == ["55.4%", "68.8%", "52.3%", "+16.5"]
    assert second[2:] == ["the generator&#x27;s condition", "55.4%", "53.6%", "52.3%", "+1.3"]


def test_a_run_without_probes_has_no_such_section() -> None:
    audit = sample.audit()
    bare = replace(audit, splits=tuple(replace(part, condition_probes=()) for part in audit.splits))
    assert not section(render(bare))
