"""What CLOAK's document shows runs, and what it says is what the files in results/ say."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from sensorveil.audit.results import CONTROL, NOT_HIDDEN, RAW, VOID
from sensorveil.audit.stored import read_audit
from sensorveil.methods.cloak import Cloak
from sensorveil.methods.cloak_settings import CloakSettings
from sensorveil.methods.guided_settings import PANEL
from sensorveil.nets.cnn import InferenceNet
from sensorveil.recipes.recipe import recipe
from sensorveil.recipes.reproduce import check


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
    assert (side.verdict.status, subject.verdict.status) == (NOT_HIDDEN, NOT_HIDDEN)
    assert with_later_ones(found.run["settings"]) == Cloak("fast").about()
    assert side.worst.level == "insider"
    assert f"{100 * (side.worst.accuracy.value - side.majority):.1f} points better" in text
    reached = side.worst.accuracy
    interval = f"from {100 * reached.low:.1f} to {100 * reached.high:.1f}%"
    assert f"reads {reached.value:.1%}, with an interval over people {interval}" in text
    shown = (exercise.unchanged.value, exercise.raw.value)
    assert "the exercise in {:.1%} (raw: {:.1%})".format(*shown) in text
    assert f"trained on the output in {exercise.retrained.value:.1%} of the output" in text
    told = (100 * subject.worst.accuracy.value, 100 * subject.majority)
    assert "read it in {:.1f}% (guessing: {:.1f})".format(*told) in text


def test_the_document_says_what_models_of_raw_windows_read_on_watch() -> None:
    found = json.loads((RESULTS / "watch-cloak-recording.json").read_text("utf-8"))
    exercise, side = (
        next(one for one in found["scores"] if one["attribute"] == name)
        for name in ("exercise", "side")
    )
    assert (found["method"], exercise["windows"]) == ("cloak", 1079)
    assert (
        f"read the side in {side['accuracy']['value']:.1%} of the windows"
        f" (raw: {side['raw_accuracy']['value']:.1%}, always guessing: {side['majority']:.1%})"
        f" and the exercise in {exercise['accuracy']['value']:.1%}"
        f" (raw: {exercise['raw_accuracy']['value']:.1%};"
    ) in said()


def test_the_command_that_compares_settings_is_one() -> None:
    (words,) = re.findall(r"`sensorveil reproduce ([^`]+)`", said())
    assert (
        words == "cloak-motionsense-gender --part validated --preset fast --seeds 3 --out results"
    )
    name, _, part, _, preset, *_ = words.split()
    check(recipe(name), [part], preset, {})


def test_the_document_shows_what_the_coin_does() -> None:
    found = result("motionsense-gender-validated")
    assert (len(found["seeds"]), found["windows"]) == (3, 5000)
    asked = recipe("cloak-motionsense-gender").parts["validated"]["each"]
    assert [row["settings"] for row in found["rows"]] == asked
    for row in (found["raw"], *found["rows"]):
        given = row.get("settings")
        named = "raw windows" if given is None else _named(given)
        read = f"{percent(row, 'activity')} | {percent(row, 'gender')}"
        dense = ", ".join(percent(row, of, "read_dense") for of in ("activity", "gender"))
        women = [
            f" {100 * row['read_as']['gender'][kind]['female']:.1f} " if given is not None else " "
            for kind in ("read", "read_dense")
        ]
        assert f"| {named} | {read} | {dense} |{'|'.join(women)}|" in said()
        if given is not None:
            own = {**Cloak("fast").about(), **given}
            assert with_later_ones(row["all_settings"]) == own
    without = found["rows"][-1]["read"]["activity"]["accuracy"]["value"]
    lost = without - found["rows"][0]["read"]["activity"]["accuracy"]["value"]
    assert f"it costs {100 * lost:.1f} points of activity here" in said()
    women = found["rows"][0]["read_as"]["gender"]["read_dense"]["female"]
    assert f"by convolutional models, and {women:.1%} by dense ones" in said()


def _named(settings: dict) -> str:
    shown = ",".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
    return f"`{shown or 'fast'}`"


RESULTS = Path(__file__).parents[2] / "results"
AUDITS = [place for place in sorted(RESULTS.glob("*-cloak-*-audit")) if "watch" not in place.name]


NOT_HIDDEN_AT = {
    ("csi5300-magnitude-cloak-recording-audit", "subject"): "5 windows of a person is 5.4 points",
    ("audiomnist-cloak-paper-audit", "age"): "give age away by 15.3 points",
    ("audiomnist-cloak-paper-audit", "accent"): "accent by 6.7",
    ("audiomnist-cloak-paper-audit", "subject"): "who it is by 51.7 (5 clips by 2.3, 20 by 7.5)",
}
"""What the document says of those that are not hidden."""


def with_later_ones(settings: dict) -> dict:
    """Settings that a file has not heard of were as they are by default when it was written."""
    return {**asdict(CloakSettings()), **settings}


@pytest.mark.parametrize("place", AUDITS, ids=lambda place: place.name)
def test_the_document_shows_the_audits(place: Path) -> None:
    found, text = read_audit(place), (RESULTS.parent / "docs" / "cloak.md").read_text("utf-8")
    (kept,) = found.main.kept
    shown = f"{kept.attribute} {100 * kept.raw.value:.1f}, {100 * kept.unchanged.value:.1f} "
    assert not found.quick
    assert with_later_ones(found.run["settings"]) == Cloak("fast").about()
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
        for session in one.sessions:
            if session.found:
                beyond = 100 * (session.accuracy.value - session.majority)
                assert f"{beyond:.1f}" in NOT_HIDDEN_AT[place.name, one.attribute]
    for (name, attribute), points in NOT_HIDDEN_AT.items():
        assert name != place.name or found.main.attribute(attribute).verdict.status == NOT_HIDDEN
        assert points in " ".join(text.split())


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


TABLES = {
    "motionsense-gender": ("MotionSense", "activity", "gender"),
    "audiomnist-gender": ("AudioMNIST", "digit", "gender"),
    "geotec-gender": ("GeoTec", "activity", "gender"),
    "csi5300-user": ("CSI of the Intel 5300", "activity", "subject"),
    "images-tone": ("`simulated-images`", "shape", "tone"),
}


def result(name: str) -> dict:
    return json.loads((RESULTS / f"cloak-{name}.json").read_text("utf-8"))


def said() -> str:
    return " ".join((RESULTS.parent / "docs" / "cloak.md").read_text("utf-8").split())


def percent(row: dict, attribute: str, kind: str = "read") -> str:
    return f"{100 * row[kind][attribute]['accuracy']['value']:.1f}"


@pytest.mark.parametrize("name", TABLES)
def test_the_document_shows_what_fixed_models_read(name: str) -> None:
    found, (data, kept, hidden) = result(f"{name}-accuracy"), TABLES[name]
    assert len(found["seeds"]) == 5
    raw, own = found["raw"], found["rows"][-1]
    assert with_later_ones(own["settings"]) == Cloak("fast").about()
    cells = [
        f"{percent(row, of)} / {percent(row, of, 'read_dense')}"
        for of in (kept, hidden)
        for row in (raw, own)
    ]
    spoken = {"subject": "user"}.get(hidden, hidden)
    assert (
        f"| [{data}](../results/cloak-{name}-accuracy.json) | {kept} | {cells[0]} | {cells[1]}"
        f" | {spoken} | {cells[2]} | {cells[3]} |"
    ) in said()


def test_the_document_says_how_far_motionsense_is_from_the_paper() -> None:
    found = result("motionsense-gender-accuracy")
    raw, own = found["raw"]["read"], found["rows"][-1]["read"]
    lost = raw["activity"]["accuracy"]["value"] - own["activity"]["accuracy"]["value"]
    gender = abs(0.5 - own["gender"]["accuracy"]["value"])
    assert f"which is {100 * lost:.1f} points less than of raw windows" in said()
    (kept,) = read_audit(RESULTS / "motionsense-cloak-paper-audit").main.kept
    apart = 100 * (kept.raw.value - kept.unchanged.value)
    assert (
        f"its activity is {apart:.1f} points below raw, where the five runs below are"
        f" {100 * lost:.1f} in the mean"
    ) in said()
    cells = [
        f"{percent(row, of)} / {percent(row, of, 'read_dense')}"
        for of in ("activity", "gender")
        for row in (found["raw"], found["rows"][0])
    ]
    shown = f"activity | {cells[0]} | {cells[1]} | gender | {cells[2]} | {cells[3]} |"
    assert f"| the same, with the paper's guidance | {shown}" in said()
    altered = found["rows"][0]["settings"]
    guidance = {"keep": 4.5, "avoid": 0.008, "avoids": "wearer", "bottleneck": 0.0, "tries": 1}
    assert {name: altered[name] for name in guidance} == guidance
    assert f"a deviation of {100 * own['activity']['accuracy']['spread']:.1f} points" in said()
    assert f"Gender is {100 * gender:.1f} points from 50%" in said()
    heard = result("audiomnist-gender-accuracy")["rows"][-1]["read"]["gender"]["accuracy"]["value"]
    assert f"On AudioMNIST it is {100 * (heard - 0.5):.1f}" in said()
    without, own = (row["read"] for row in result("motionsense-gender-avoided")["rows"][-2:])
    apart = [
        100 * (without[of]["accuracy"]["value"] - own[of]["accuracy"]["value"])
        for of in ("activity", "gender")
    ]
    assert "activity is {:.1f} points better and gender {:.1f} worse".format(*apart) in said()
    (again,) = found["rows"][-1]["reidentification"]
    assert (again["attribute"], again["runs"]) == ("gender", 20)
    assert f"reads the rest in {again['mean']:.1%} (the paper: 54.00)" in said()


def test_the_document_says_how_preset_paper_does() -> None:
    found = result("motionsense-gender-accuracy-preset-paper")
    (seed,), raw, (_, own) = found["seeds"], found["raw"], found["rows"]
    assert (seed, own["settings"]) == (0, {**own["settings"], **Cloak("paper").about()})
    cells = {
        (of, which): f"{percent(row, of)} / {percent(row, of, 'read_dense')}"
        for of in ("activity", "gender")
        for which, row in (("raw", raw), ("own", own))
    }
    shown = f"activity {cells['activity', 'own']} (raw: {cells['activity', 'raw']})"
    assert f"{shown} and gender {cells['gender', 'own']}" in said()
    lost = [row["read"]["activity"]["accuracy"]["value"] for row in (raw, own)]
    assert f"so that {100 * (lost[0] - lost[1]):.1f} points of activity are lost" in said()
    (again,) = own["reidentification"]
    assert f"learns gender from a fifth of the output reads {again['mean']:.1%}" in said()
    points = result("motionsense-gender-tradeoff-preset-paper")["points"]
    most = max(point["read"]["activity"]["accuracy"]["value"] for point in points)
    assert f"Of all {len(points)} points of figure 4" in said()
    assert f"none has more than {most:.1%} of activity" in said()


def test_the_document_says_what_z_u_learns_of_speakers() -> None:
    found = result("audiomnist-gender-over_training")
    (epochs,) = found["seeds_bits"]
    last = epochs[-1]
    assert f"trained for {len(epochs)} epochs" in said()
    assert (
        f"z_U has {last['digit']:.2f} bits about the digit after the last,"
        f" {last['gender']:.2f} about gender and {last['subject']:.2f} about who it is"
    ) in said()


def test_the_document_shows_figure_4() -> None:
    points = result("motionsense-gender-tradeoff")["points"]
    assert len(points) == 36
    for keep in (1, 3, 5, 7, 9):
        cells = [
            f"{percent(p, 'activity')}, {percent(p, 'gender')}" for p in points if p["keep"] == keep
        ]
        assert f"| {keep} | {' | '.join(cells)} |" in said()
    for kind in ("read", "read_dense"):
        for keep in range(1, 10):
            first, *_, last = [p[kind]["gender"]["accuracy"] for p in points if p["keep"] == keep]
            assert last["value"] < first["value"]
    read = [p["read_dense"]["activity"]["accuracy"]["value"] for p in points]
    assert f"in {100 * min(read):.1f} to {max(read):.1%} of these windows" in said()


def test_the_document_shows_what_is_read_backwards() -> None:
    found = result("motionsense-gender-avoided")
    assert len(found["seeds"]) == 2
    for row in found["rows"]:
        given = row["settings"]
        away = given["avoids"] != "none"
        weight = f"{given['avoid']} " if away else ""
        read = [percent(row, name) for name in ("activity", "gender")]
        cells = " | ".join([*read, percent(row, "gender", "retrained")])
        coin = "yes" if row["all_settings"]["coin"] else "no"
        shown = f"| {given['avoids']} | {weight}| {given['bottleneck']:g} | {coin} | {cells} |"
        assert shown in said()
        backwards = row["retrained"]["gender"]["accuracy"]["value"] > 0.8
        assert backwards == (given["avoids"] in ("wearer", "predicted"))


def test_the_document_says_what_one_more_attribute_costs_and_what_z_u_learns() -> None:
    grown = result("motionsense-gender-growth")
    assert f"takes {grown['ratio']:.1%} of the training time" in said()
    (epochs,) = result("motionsense-gender-over_training")["seeds_bits"]
    activity = [f"{epoch['activity']:.2f}" for epoch in epochs]
    assert f"z_U has {' and '.join(activity)} bits about the activity" in said()
    others = max(epoch[name] for epoch in epochs for name in epoch if name != "activity")
    assert f"{others:.2f} or less about gender" in said()


def test_the_document_shows_sizes_and_times() -> None:
    paper, fast = result("motionsense-gender-overhead")["rows"]
    assert (paper["preset"], fast["preset"]) == ("paper", "fast")
    for which, words in {
        "generator": "in the U-Net",
        "encoder.activity": "in the encoder",
        "auxiliary.gender": "in an auxiliary model",
        "autoencoder": "in both halves",
    }.items():
        count = paper["networks"][which]["parameters"] / 1e6
        assert re.search(rf"{count:.2f} (million parameters )?{words}", said())
    assert f"`fast` has {fast['networks']['total']['megabytes']:.2f} MB" in said()
    assert f"{1000 * paper['seconds_a_window']:.1f} ms with `paper`" in said()
    assert f"{1000 * fast['seconds_a_window']:.3f} ms with `fast`" in said()
    assert f"{1 / fast['seconds_a_window']:,.0f} windows a second" in said()
    alone = [1000 * row["seconds_alone"] for row in (paper, fast)]
    assert "A window that comes alone takes {:.0f} and {:.0f} ms".format(*alone) in said()
    member = sum(weight.numel() for weight in InferenceNet((2, 128), 4, PANEL.width).parameters())
    megabytes = Cloak("fast").settings.panel * member * 4 / 2**20
    assert f"{megabytes:.2f} of these are the four models of its panel" in said()
