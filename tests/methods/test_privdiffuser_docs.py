"""What PrivDiffuser's document and the README say of it is what the files in results/ say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sensorveil.audit.results import HIDDEN, NOT_HIDDEN, RAW, read_audit
from sensorveil.methods.privdiffuser import PrivDiffuser

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
FULLY = "fully informed"

OWN = {"raw": "raw data", "PrivDiffuser, the preset's own settings": "**`fast`**"}
PRIVDIFFUSER = {
    "": {
        **OWN,
        "Diffusion": "`fast`, settings of Diffusion",
        "Diffusion with Negation": "`fast`, settings of Diffusion with Negation",
        "PrivDiffuser": "`fast`, settings of PrivDiffuser",
        "PrivDiffuser, told the class alone": (
            "`fast`, settings of PrivDiffuser, told the class alone"
        ),
    },
    "-preset-paper": {
        "Diffusion": "`paper`, Diffusion",
        "Diffusion with Negation": "`paper`, Diffusion with Negation",
        "PrivDiffuser": "`paper`, PrivDiffuser",
    },
}
OTHER_DATA = {**OWN, "PrivDiffuser": "settings of PrivDiffuser"}


def result(name: str) -> dict:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        *((f"privdiffuser-motionsense-gender-accuracy{end}", p) for end, p in PRIVDIFFUSER.items()),
        ("privdiffuser-geotec-gender-accuracy", OTHER_DATA),
        ("privdiffuser-csi5300-user-accuracy", OTHER_DATA),
    ],
)
def test_tables_of_privdiffuser_are_those_of_the_results(name, labels):
    found, text = result(name), (ROOT / "docs" / "privdiffuser.md").read_text("utf-8")
    rows = {"raw": found["raw"]} | {row["label"]: row for row in found["rows"]}
    for label, shown in labels.items():
        read = [
            [rows[label][kind][of]["accuracy"]["value"] for kind in ("read", "read_dense")]
            for of in ("activity", "subject" if "csi5300" in name else "gender")
        ]
        cells = [" / ".join(f"{100 * value:.1f}" for value in pair) for pair in read]
        assert f"| {shown} | {cells[0]} | {cells[1]} |" in text


def percent(row: dict, attribute: str, kind: str = "read") -> str:
    return f"{100 * row[kind][attribute]['accuracy']['value']:.1f}"


def test_readme_says_what_is_read_of_privdiffuser():
    text = " ".join(README.split())
    own = result("privdiffuser-motionsense-gender-accuracy")["rows"][-1]
    assert (
        f"activity {percent(own, 'activity')}, gender {percent(own, 'gender')} (the paper:" in text
    )
    said = re.search(
        r"`fast` would give gender to whoever trains on its output \(`avoid` ([\d.]+), two seeds\):"
        r" in ([\d.]+)% of windows where features are told and in ([\d.]+)% where the class alone",
        text,
    )
    assert said
    avoid, *shown = map(float, said.groups())
    rows = result("privdiffuser-motionsense-gender-avoided")["rows"]
    for told, accuracy in zip(("features", "class"), shown, strict=True):
        chosen = {"told": told, "avoids": "wearer", "avoid": avoid}
        (found,) = (row["retrained"]["gender"] for row in rows if row["settings"] == chosen)
        assert found["accuracy"]["seeds"] == 2
        assert accuracy == pytest.approx(100 * found["accuracy"]["value"], abs=0.05)
    assert (PrivDiffuser("fast").settings.tries, avoid) == (
        4,
        2 * PrivDiffuser("paper").settings.avoid,
    )
    paper = read_audit(ROOT / "results" / "motionsense-privdiffuser-preset-paper-audit")
    assert paper.run["settings"]["avoid"] == PrivDiffuser("paper").settings.avoid
    gender = paper.main.attribute("gender")
    taught = ("lazy", "semi-informed", "insider")
    best = max(one.accuracy.value for one in gender.attacks if one.threat_model in taught)
    assert (
        f"trains on its output reads gender in {best:.1%} at most (guessing: {gender.majority:.1%})"
    ) in text
    document = " ".join((ROOT / "docs" / "privdiffuser.md").read_text("utf-8").split())
    assert f"whoever trains on that output reads gender in {best:.1%} at most" in document


def test_samplers_of_privdiffuser_are_those_of_the_results():
    text = (ROOT / "docs" / "privdiffuser.md").read_text("utf-8")
    slow, _, solver, unipc = rows = result("privdiffuser-motionsense-gender-samplers")["rows"]
    for row in rows:
        chosen, read = row["settings"], percent(row, "activity")
        assert (
            f"| `{chosen['sampler']}` | {chosen['steps']} | {1000 * row['seconds_a_window']:.3f}"
            f" | {read} | {percent(row, 'gender', 'retrained')} |"
        ) in text
    ratios = [slow["seconds_a_window"] / fast["seconds_a_window"] for fast in (solver, unipc)]
    assert min(ratios) > 5
    assert (
        "are {:.1f} times as fast as 50 of DDIM, six of UniPC {:.1f} times".format(*ratios) in text
    )


def test_what_privdiffuser_avoids_and_trades_is_what_the_results_say():
    text = (ROOT / "docs" / "privdiffuser.md").read_text("utf-8")
    read = {}
    for row in result("privdiffuser-motionsense-gender-avoided")["rows"]:
        chosen, fixed = row["settings"], percent(row, "gender")
        assert (
            f"| `{chosen['told']}` | `{chosen['avoids']}` | {percent(row, 'activity')} | {fixed}"
            f" | {percent(row, 'gender', 'retrained')} |"
        ) in text
        if chosen["told"] == "class":
            read[chosen["avoids"]] = fixed
    said = f"they read gender in {read['random']}% of test windows, and in {read['none']}%"
    assert said in " ".join(text.split())
    for end in ("", "-preset-paper"):
        points = result(f"privdiffuser-motionsense-gender-tradeoff{end}")["points"]
        assert len(points) == 36
        for keep in (1, 3, 5, 7, 9):
            cells = [
                f"{percent(p, 'activity')}, {percent(p, 'gender')}"
                for p in points
                if p["keep"] == keep
            ]
            assert len(cells) == 4
            assert f"| {keep} | {' | '.join(cells)} |" in text


def test_what_is_said_of_the_trade_off_of_preset_paper_is_in_its_table():
    text = " ".join((ROOT / "docs" / "privdiffuser.md").read_text("utf-8").split())
    found = result("privdiffuser-motionsense-gender-tradeoff-preset-paper")
    assert (found["seeds"], found["windows"]) == ([0], 1000)
    points = [point for point in found["points"] if point["keep"] in (1, 3, 5, 7, 9)]
    activity = [(p["keep"], p["read"]["activity"]["accuracy"]["value"]) for p in points]
    enough = [value for keep, value in activity if keep >= 3]
    assert max(enough) - min(enough) < 0.0051, "within half a point, of a thousand windows"
    assert min(enough) - max(value for keep, value in activity if keep < 3) > 0.015
    read = [(p["avoid"], p["read"]["gender"]["accuracy"]) for p in points]
    begin, end = ([a["value"] for avoid, a in read if avoid == weight] for weight in (0.0, 0.3))
    assert (
        f"in {100 * min(begin):.1f} to {max(begin):.1%} at a w2 of 0,"
        f" and in {100 * min(end):.1f} to {max(end):.1%} at 0.3"
    ) in text
    reach = [50 * (a["high"] - a["low"]) for _, a in read]
    assert f"reach {min(reach):.0f} to {max(reach):.0f} points to either side" in text


def test_what_privdiffuser_was_chosen_by_is_what_the_results_say():
    text = (ROOT / "docs" / "privdiffuser.md").read_text("utf-8")
    found = result("privdiffuser-motionsense-gender-chosen")
    assert found["data"]["split"] == "paper"
    gender = found["rows"][0]["hidden"]["gender"]
    assert f"Always guessing is right there in {gender['majority']:.1%}" in text
    assert f"in hindsight, is right in {gender['by kept class']:.1%}" in text
    alone, reasons = {}, {}
    for row in found["rows"]:
        chosen, hidden = row["settings"], row["hidden"]["gender"]
        assert hidden["verdict"] == NOT_HIDDEN
        asked = [one for one in hidden["attacks"] if one["threat_model"] != RAW]
        informed = [one for one in asked if one["threat_model"] == FULLY]
        others = [one for one in asked if one["threat_model"] != FULLY]
        assert (len(others), len(informed)) == (12, 3)
        best = [
            tuple(max(one[what] for one in group) for what in ("accuracy", "auc"))
            for group in (others, informed)
        ]
        cells = " | ".join(f"{100 * accuracy:.1f} ({area:.2f})" for accuracy, area in best)
        assert (
            f"| `{chosen['told']}` | `{chosen['avoids']}`"
            f" | {100 * row['kept']['unchanged']:.1f} | {cells} |"
        ) in text
        alone[chosen["told"], chosen["avoids"]] = best[0]
        reasons[chosen["told"], chosen["avoids"]] = hidden["reason"]
    assert all("insider" in reasons["class", avoided] for avoided in ("none", "random"))
    none, chance = (alone["class", avoided] for avoided in ("none", "random"))
    assert chance[0] <= none[0]
    points = [100 * (accuracy - gender["majority"]) for accuracy, _ in (none, chance)]
    assert "insiders are {:.1f} (`none`) and {:.1f} (`random`) points above".format(
        *points
    ) in " ".join(text.split())
    said = " ".join(str(PrivDiffuser.__doc__).split())
    for avoided in ("wearer", "predicted", "none", "random"):
        assert f"{alone['class', avoided][1]:.2f} with `{avoided}`" in said


def test_what_more_attributes_cost_privdiffuser_is_what_the_results_say():
    text = " ".join((ROOT / "docs" / "privdiffuser.md").read_text("utf-8").split())
    grown = result("privdiffuser-motionsense-gender-growth")
    assert (
        f"took {grown['one more']:.1f} s, training {grown['training']:.0f} s"
        f" ({100 * grown['ratio']:.1f}%"
    ) in text
    assert grown["ratio"] < 0.1
    cost = result("privdiffuser-motionsense-gender-cost")
    assert len(cost["rows"]) == 5
    for row in cost["rows"]:
        kept, hidden = len(row["keep"]), len(row["hide"])
        paper = cost["paper"]["milliseconds"][f"{kept}-{hidden}"]
        assert f"| {kept} | {hidden} | {1000 * row['seconds_a_window']:.3f} | {paper:.2f} |" in text
    one, two = result("privdiffuser-motionsense-gender-cost-preset-paper")["rows"][:2]
    times = [1000 * row["seconds_a_window"] for row in (one, two)]
    assert "{:.1f} ms a window with one hidden attribute, {:.1f} with two".format(*times) in text


@pytest.mark.parametrize(
    ("name", "policy"),
    [("several-hidden", "three hidden"), ("two-kept", "activity and weight kept")],
)
def test_several_attributes_of_privdiffuser_are_those_of_the_results(name, policy):
    text = (ROOT / "docs" / "privdiffuser.md").read_text("utf-8")
    file = f"privdiffuser-motionsense-{name}-accuracy"
    found = result(file)

    def cells(row: dict) -> str:
        named = [a for a in ("activity", "gender", "weight", "subject") if a in row["read"]]
        return " | ".join(f"{percent(row, a)} / {percent(row, a, 'read_dense')}" for a in named)

    assert f"| | raw data | {cells(found['raw'])} |" in text
    runs = {
        "PrivDiffuser, the preset's own settings": "`fast`",
        "PrivDiffuser": "settings of PrivDiffuser",
    }
    assert {row["label"] for row in found["rows"]} == set(runs)
    for row in found["rows"]:
        begin = f"| [{policy}](../results/{file}.json) | {runs[row['label']]}"
        assert f"{begin} | {cells(row)} |" in text


def test_bits_of_privdiffuser_are_those_of_the_results():
    text = (ROOT / "docs" / "privdiffuser.md").read_text("utf-8")
    found = result("privdiffuser-motionsense-gender-information")
    rows = {f"{point['avoid']:.1f}": point["bits"] for point in found["points"]}
    assert {len(bits["gender"]) for bits in rows.values()} == {1}  # one seed
    rows = {w2: {name: bits[name][0] for name in bits} for w2, bits in rows.items()}
    attributes = ("activity", "gender", "weight")
    table = "".join(
        f"| {label} | {' | '.join(f'{bits[name]:.2f}' for name in attributes)} |\n"
        for label, bits in {"raw data": found["raw"], **rows}.items()
    )
    assert f"|---|---|---|---|\n{table}\n" in text
    gender = {float(w2): bits["gender"] for w2, bits in rows.items()}
    assert min(gender, key=gender.__getitem__) == 0.5
    assert min(bits for w2, bits in gender.items() if w2 >= 1.5) > gender[0.0]


def test_heads_that_name_more_seeds_than_were_used_are_named():
    """Where a file is measured anew, its head names what was used, and the sentence must go."""
    text = " ".join((ROOT / "docs" / "privdiffuser.md").read_text("utf-8").split())
    assert ("`samplers` two of five, `growth` one of five, `information` one of two") in text
    named = {
        part: len(result(f"privdiffuser-motionsense-gender-{part}")["seeds"])
        for part in ("samplers", "tradeoff", "growth", "information", "avoided")
    }
    assert named == {"samplers": 5, "tradeoff": 5, "growth": 5, "information": 2, "avoided": 2}
    for part, rows, used in (
        ("samplers", "rows", 2),
        ("tradeoff", "points", 5),
        ("avoided", "rows", 2),
    ):
        found = result(f"privdiffuser-motionsense-gender-{part}")[rows]
        assert {row["read"]["gender"]["accuracy"]["seeds"] for row in found} == {used}


def test_the_audit_of_privdiffuser_says_what_its_document_says():
    audit = read_audit(ROOT / "results" / "motionsense-privdiffuser-paper-audit")
    text = " ".join((ROOT / "docs" / "privdiffuser.md").read_text("utf-8").split())
    assert (audit.quick, len(audit.seeds), audit.main.split) == (False, 1, "paper")
    assert {one.attribute: one.verdict.status for one in audit.main.attributes} == dict.fromkeys(
        ("gender", "age", "height", "subject", "weight"), HIDDEN
    )
    (activity,) = audit.main.kept
    shown = (activity.unchanged.value, activity.raw.value)
    assert "read in {:.1%} of windows (raw: {:.1%})".format(*shown) in text
    signal = audit.main.signal
    for kept in (signal.frequency_correlation, signal.energy_correlation):
        assert f"correlate by {kept:.2f} with" in text


def test_the_audit_of_preset_paper_says_what_its_document_says():
    audit = read_audit(ROOT / "results" / "motionsense-privdiffuser-preset-paper-audit")
    text = " ".join((ROOT / "docs" / "privdiffuser.md").read_text("utf-8").split())
    assert (audit.quick, len(audit.seeds), audit.main.split) == (False, 1, "paper")
    assert audit.run["preset"] == "paper"
    assert f"one seed, {audit.run['settings']['epochs']} epochs, [page]" in text
    assert {one.attribute: one.verdict.status for one in audit.main.attributes} == dict.fromkeys(
        ("gender", "age", "height", "subject", "weight"), NOT_HIDDEN
    )
    (activity,) = audit.main.kept
    shown = (activity.unchanged.value, activity.raw.value)
    assert "activity is read in {:.1%} of windows (raw: {:.1%})".format(*shown) in text
    gender = next(one for one in audit.main.attributes if one.attribute == "gender")
    told, blind = [], []
    for one in gender.attacks:
        if one.threat_model != RAW:
            (told if one.threat_model == FULLY else blind).append(one)
    best, area = max(a.accuracy.value for a in blind), max(a.auc.value for a in blind)
    assert f"reads gender in {best:.1%} at most (guessing: {gender.majority:.1%})" in text
    assert f"with an area under the ROC curve of {area:.2f}:" in text
    best, area = max(a.accuracy.value for a in told), max(a.auc.value for a in told)
    assert f"to see these reads gender in {best:.1%} ({area:.2f})" in text
    assert {point.threat_model for point in gender.sessions} == {FULLY}
    whole = {p.group: 100 * p.advantage.value for p in gender.sessions if p.windows is None}
    assert (
        f"is {whole['recording']:.1f} points above guessing over a recording and"
        f" {whole['person']:.1f} over all windows of a person"
    ) in text
