"""What CLOAK's document shows runs, and what it says is what the files in results/ say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cloak_tables import (
    ACCURACIES,
    AUDITS,
    RESULTS,
    accuracies,
    audits,
    avoided,
    percent,
    result,
    trade_off,
    validated,
)

from sensorveil.audit.results import HIDDEN, INCONCLUSIVE, NOT_HIDDEN, read_audit
from sensorveil.methods.cloak import Cloak
from sensorveil.methods.cloak_settings import CloakSettings
from sensorveil.methods.guided_settings import PANEL
from sensorveil.nets.cnn import CNN
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
    assert (side.verdict.status, subject.verdict.status) == (HIDDEN, NOT_HIDDEN)
    assert with_later_ones(found.run["settings"]) == Cloak("fast").about()
    assert side.worst.threat_model == "insider"
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
    (words,) = re.findall(r"`sensorveil papers reproduce ([^`]+)`", said())
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
    for row in found["rows"]:
        own = {**Cloak("fast").about(), **row["settings"]}
        assert with_later_ones(row["all_settings"]) == own
    without = found["rows"][-1]["read"]["activity"]["accuracy"]["value"]
    lost = without - found["rows"][0]["read"]["activity"]["accuracy"]["value"]
    assert f"it costs {100 * lost:.1f} points of activity here" in said()
    women = found["rows"][0]["read_as"]["gender"]["read_dense"]["female"]
    assert f"by convolutional models, and {women:.1%} by dense ones" in said()


def with_later_ones(settings: dict) -> dict:
    """Settings that a file has not heard of were as they are by default when it was written."""
    return {**CloakSettings().as_dict(), **settings}


@pytest.mark.parametrize("table", [audits, accuracies, validated, trade_off, avoided])
def test_the_document_has_the_tables_of_the_files(table: Callable[[], Iterator[str]]) -> None:
    rows = [row for row in table() if row.startswith("|")]
    assert len(rows) > 4
    for row in rows:
        assert row in said()


@pytest.mark.parametrize("name", AUDITS)
def test_audits_are_of_the_preset_of_today_and_hide_all_that_can_be_told(name: str) -> None:
    found = read_audit(RESULTS / f"{name}-audit")
    assert found.quick == (name == "audiomnist-cloak-paper")
    assert with_later_ones(found.run["settings"]) == Cloak("fast").about()
    for one in found.main.attributes:
        assert one.verdict.status == (INCONCLUSIVE if one.attribute == "native" else HIDDEN)
    assert "Everything in this table is hidden but one, which is void" in said()


def test_the_document_says_that_too_few_images_were_linked() -> None:
    found = read_audit(RESULTS / "simulated-images-cloak-subject-audit").main.identity
    text = " ".join((RESULTS.parent / "docs" / "cloak.md").read_text("utf-8").split())
    assert found is not None
    assert found.status == INCONCLUSIVE
    points = re.search(r"found ([\d.]+) points of a planted leak of ([\d.]+)", found.reason)
    people = re.search(r"in \d+ sessions of \d+ people", found.reason)
    assert points
    assert people
    assert f"Who it is on `simulated-images` is void: {people[0]}" in text
    assert f"found {points[1]} points of a planted leak of {points[2]}" in text


def said() -> str:
    return " ".join((RESULTS.parent / "docs" / "cloak.md").read_text("utf-8").split())


@pytest.mark.parametrize("name", ACCURACIES)
def test_five_runs_of_the_preset_of_today_were_read(name: str) -> None:
    found = result(f"{name}-accuracy")
    assert len(found["seeds"]) == 5
    assert with_later_ones(found["rows"][-1]["settings"]) == Cloak("fast").about()


def test_the_document_says_how_far_motionsense_is_from_the_paper() -> None:
    found = result("motionsense-gender-accuracy")
    raw, own = found["raw"]["read"], found["rows"][-1]["read"]
    lost = raw["activity"]["accuracy"]["value"] - own["activity"]["accuracy"]["value"]
    gender = abs(0.5 - own["gender"]["accuracy"]["value"])
    assert f"which is {100 * lost:.1f} points less than of raw windows" in said()
    (kept,) = read_audit(RESULTS / "motionsense-cloak-paper-audit").main.kept
    apart = 100 * (kept.raw.value - kept.unchanged.value)
    assert (
        f"its activity is {abs(apart):.1f} points from raw, where the five runs below are"
        f" {100 * lost:.1f} below it in the mean"
    ) in said()
    with_settings = found["rows"][0]["settings"]
    guidance = {"keep": 4.5, "avoid": 0.008, "avoids": "wearer", "bottleneck": 0.0, "tries": 1}
    assert {name: with_settings[name] for name in guidance} == guidance
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


def test_the_document_says_how_far_preset_paper_is_from_hiding_gender() -> None:
    found = read_audit(RESULTS / "motionsense-cloak-preset-paper-audit")
    half = {"epochs": 40, "coder_epochs": 40, "reader_epochs": 40, "compiled": True}
    assert with_later_ones(found.run["settings"]) == {**Cloak("paper").about(), **half}
    gender, (activity,) = found.main.attribute("gender"), found.main.kept
    assert (found.quick, len(found.seeds), gender.verdict.status) == (False, 1, NOT_HIDDEN)
    worst = (100 * gender.worst.accuracy.value, 100 * gender.majority)
    assert "the best attacker reads {:.1f}% (guessing: {:.1f})".format(*worst) in said()
    sessions = {
        (one.threat_model, one.windows, one.group): (one.accuracy.value, one.majority)
        for one in gender.sessions
        if one.significant
    }
    whole = sessions["fully informed", None, "recording"]
    assert f"of a recording reads {whole[0]:.1%} (guessing: {100 * whole[1]:.1f})" in said()
    person, guess = sessions["fully informed", None, "person"]
    assert f"over all of a person {person:.1%}" in said()
    assert f"miss by {100 * (person - guess):.1f} points" in said()
    insider = sessions["insider", 60, "recording"]
    shown = "an insider with 60 windows {:.1%} (guessing: {:.1f})"
    assert shown.format(insider[0], 100 * insider[1]) in said()
    for name, windows, words in (("age", 60, "60 windows"), ("subject", None, "all windows")):
        points = [
            100 * (one.accuracy.value - one.majority)
            for one in found.main.attribute(name).sessions
            if one.significant and one.group == "person" and one.windows == windows
        ]
        assert re.search(rf"{words} of a person: {max(points):.1f}", said())
    read = (activity.unchanged.value, activity.raw.value, activity.retrained.value)
    shown = "reads {:.1%} of the activity (raw: {:.1f}), and {:.1%} once it is trained"
    assert shown.format(read[0], 100 * read[1], read[2]) in said()


def test_the_document_says_how_mass_does() -> None:
    plain, tuned = (
        json.loads((RESULTS / f"cloak-motionsense-gender-{part}-mass.json").read_text("utf-8"))
        for part in ("accuracy", "tuned")
    )
    (row,), (after,) = plain["rows"], tuned["rows"]
    assert (row["method"], plain["seeds"], tuned["epochs"]) == ("mass", [0], 100)
    assert (
        f"read the activity in {percent(row, 'activity')}% (dense:"
        f" {percent(row, 'activity', 'read_dense')}; CLOAK's paper: 15.83)"
        f" and gender in {percent(row, 'gender')}%"
    ) in said()
    assert f"for 100 epochs more reads {percent(after, 'activity', 'tuned')}%" in said()


def test_the_document_says_what_z_u_learns_of_speakers() -> None:
    found = result("audiomnist-gender-over_training")
    (epochs,) = found["seeds_bits"]
    last = epochs[-1]
    assert f"trained for {len(epochs)} epochs" in said()
    assert (
        f"z_U has {last['digit']:.2f} bits about the digit after the last,"
        f" {last['gender']:.2f} about gender and {last['subject']:.2f} about who it is"
    ) in said()


def test_a_larger_weight_takes_gender_down_in_figure_4() -> None:
    points = result("motionsense-gender-tradeoff")["points"]
    assert len(points) == 36
    for kind in ("read", "read_dense"):
        for keep in range(1, 10):
            first, *_, last = [p[kind]["gender"]["accuracy"] for p in points if p["keep"] == keep]
            assert last["value"] < first["value"]
    read = [p["read_dense"]["activity"]["accuracy"]["value"] for p in points]
    assert f"in {100 * min(read):.1f} to {max(read):.1%} of these windows" in said()


def test_what_depends_on_the_wearers_class_is_read_backwards() -> None:
    found = result("motionsense-gender-avoided")
    assert len(found["seeds"]) == 2
    for row in found["rows"]:
        backwards = row["retrained"]["gender"]["accuracy"]["value"] > 0.8
        assert backwards == (row["settings"]["avoids"] in ("wearer", "predicted"))


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
    member = sum(weight.numel() for weight in CNN((2, 128), 4, PANEL.width).parameters())
    megabytes = Cloak("fast").settings.panel * member * 4 / 2**20
    assert f"{megabytes:.2f} of these are the four models of its panel" in said()
