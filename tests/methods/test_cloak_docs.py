"""What CLOAK's document shows runs, and what it says is what the files in results/ say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sensorveil.audit.results import CONTROL, HIDDEN, NOT_HIDDEN, RAW, VOID
from sensorveil.audit.stored import read_audit
from sensorveil.methods.cloak import Cloak


@pytest.mark.slow
def test_what_the_document_shows_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "cloak.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    exec(code, {})
    assert "gender" in capsys.readouterr().out


def test_what_the_document_says_of_the_audit_is_in_it() -> None:
    root = Path(__file__).parents[2]
    text = " ".join((root / "docs" / "cloak.md").read_text("utf-8").split())
    found = read_audit(root / "results" / "watch-cloak-recording-audit")
    side, subject = (
        next(one for one in found.main.attributes if one.attribute == name)
        for name in ("side", "subject")
    )
    (exercise,) = found.main.kept
    assert (found.quick, len(found.seeds)) == (True, 3)
    assert (side.verdict.status, subject.verdict.status) == (HIDDEN, NOT_HIDDEN)
    assert f"{100 * (side.worst.accuracy.value - side.majority):.1f} points better" in text
    reached = side.worst.accuracy
    interval = f"from {100 * reached.low:.1f} to {100 * reached.high:.1f}%"
    assert f"reads {reached.value:.1%}, with an interval over people {interval}" in text
    shown = (exercise.unchanged.value, exercise.raw.value)
    assert "the exercise in {:.1%} (raw: {:.1%})".format(*shown) in text
    assert f"trained on the output in {exercise.retrained.value:.1%} of the output" in text
    told = (100 * subject.worst.accuracy.value, 100 * subject.majority)
    assert "read it in {:.1f}% (guessing: {:.1f})".format(*told) in text


RESULTS = Path(__file__).parents[2] / "results"
AUDITS = [place for place in sorted(RESULTS.glob("*-cloak-*-audit")) if "watch" not in place.name]


@pytest.mark.parametrize("place", AUDITS, ids=lambda place: place.name)
def test_the_document_shows_the_audits(place: Path) -> None:
    found, text = read_audit(place), (RESULTS.parent / "docs" / "cloak.md").read_text("utf-8")
    (kept,) = found.main.kept
    shown = f"{kept.attribute} {100 * kept.raw.value:.1f}, {100 * kept.unchanged.value:.1f} "
    assert found.quick
    assert found.run["settings"] == Cloak("fast").about()
    for one in found.main.attributes:
        spoken = {"weight": "weight group", "subject": "who it is"}.get(
            one.attribute, one.attribute
        )
        spoken += " (not in the policy)" if one.role == "unlisted" else ""
        area = max(a.auc.value for a in one.attacks if a.level not in (RAW, CONTROL))
        assert (
            f"](../results/{place.name}/audit.html) | {shown}| {spoken} | {100 * one.majority:.1f}"
            f" | {100 * one.worst.accuracy.value:.1f} | {area:.2f} | {one.verdict.status} |"
        ) in text
        shown = ""


def test_the_document_says_that_too_few_images_were_linked() -> None:
    found = read_audit(RESULTS / "simulated-images-cloak-subject-audit").main.identity
    text = " ".join((RESULTS.parent / "docs" / "cloak.md").read_text("utf-8").split())
    assert found is not None
    assert found.status == VOID
    points = re.search(r"found ([\d.]+) points of a planted leak of ([\d.]+)", found.reason)
    people = re.search(r"in \d+ sessions of \d+ people", found.reason)
    assert points
    assert people
    assert f"Who it is on `simulated-images` is void: {people[0]}" in text
    assert f"found {points[1]} points of a planted leak of {points[2]}" in text
