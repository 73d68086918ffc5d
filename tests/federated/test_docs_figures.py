"""What docs/federated.md says was measured is what the files in results/ say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sensorveil.audit.results import CONTROL, NOT_HIDDEN, RAW, read_audit

RESULTS = Path(__file__).parents[2] / "results"
OF, KINDS = ("activity", "gender"), ("read", "read_dense")


def said() -> str:
    return " ".join((RESULTS.parent / "docs" / "federated.md").read_text("utf-8").split())


def test_the_document_shows_what_fixed_models_read() -> None:
    found = json.loads((RESULTS / "blinder-motionsense-gender-results.json").read_text("utf-8"))
    by_name = {"raw": found["raw"]}
    for name in ("Blinder", "FedBlinder"):
        by_name[name] = [point for point in found["points"] if point["algorithm"] == name]
    for name, runs in by_name.items():
        assert len(runs) == 5
        cells = [
            " / ".join(
                f"{100 * np.mean([run[kind][of] for run in runs]):.1f}"
                for kind in ("read", "read_dense")
            )
            for of in OF
        ]
        paper = "{activity}, {gender} ".format(**found["paper"][name]) if name != "raw" else ""
        assert f"| {name} | {cells[0]} | {cells[1]} | {paper}|" in said()
    (total,) = {point["bytes"] for point in found["points"]}
    assert f"sends {total / 1e9:.1f} GB in all" in said()
    (plan,) = {(run["plan"]["epochs"], run["plan"]["rounds"]) for run in by_name["Blinder"]}
    assert "epochs={},rounds={},".format(*plan) in said()
    spreads = [
        np.std([100 * run["read"]["activity"] for run in by_name[name]], ddof=1)
        for name in ("FedBlinder", "Blinder")
    ]
    assert "by {:.1f} points against {:.1f}".format(*spreads) in said()


def test_the_document_says_what_was_seen_before_rounds_were_made_more() -> None:
    place = RESULTS / "blinder-motionsense-gender-results-608-rounds-one-seed.json"
    found = json.loads(place.read_text("utf-8"))["points"]
    assert {(one["seed"], one["rounds"]) for one in found} == {(0, 608)}
    shown = [
        f"{one['algorithm']} {100 * one['read']['activity']:.1f} / "
        f"{100 * one['read_dense']['activity']:.1f}"
        for one in found
    ]
    assert f"({', '.join(shown)}; [file](../results/{place.name})" in said()


def means(points: list[dict]) -> dict[str, float]:
    """What all seeds read, in %, by kind of model and attribute, as 'read activity'."""
    return {
        f"{kind} {of}": 100 * float(np.mean([one[kind][of] for one in points]))
        for kind in KINDS
        for of in points[0]["read"]
    }


def cell(points: list[dict], of: str) -> str:
    found = means(points)
    return f"{found[f'read {of}']:.1f} / {found[f'read_dense {of}']:.1f}"


def measured(name: str) -> list[dict]:
    return json.loads((RESULTS / f"blinder-{name}.json").read_text("utf-8"))["points"]


def whole_seeds(points: list[dict], rows: int) -> list[list[dict]]:
    """The points of each row, of those seeds that were finished."""
    by_seed = [[p for p in points if p["seed"] == seed] for seed in range(3)]
    found = [list(row) for row in zip(*(s for s in by_seed if len(s) == rows), strict=True)]
    assert len(found) == rows
    for row in found:
        assert len({json.dumps({**one["plan"], "seed": 0}, sort_keys=True) for one in row}) == 1
    return found


def test_the_document_shows_what_fewer_bytes_cost() -> None:
    found = whole_seeds(measured("motionsense-gender-communication"), rows=6)
    for row in found:
        one = row[0]
        assert len(row) == 2
        sent = f"{one['sends']} | {one['batch']} | {one['rounds']:,} | {one['bytes'] / 1e9:.1f}"
        assert f"| {sent} | {cell(row, 'activity')} | {cell(row, 'gender')} |" in said()
    first, last = means(found[0]), means(found[-1])
    apart = [abs(first[f"{kind} {of}"] - last[f"{kind} {of}"]) for of in OF for kind in KINDS]
    share = found[-1][0]["bytes"] / found[0][0]["bytes"]
    assert f"{share:.1%} of the bytes do" in said()
    assert (
        "activity differs by {:.1f} points (dense models: {:.1f}) and gender by {:.1f} ({:.1f})"
    ).format(*apart) in said()
    assert f"{means(found[3])['read activity']:.1f}% is left with 256 windows" in said()


def test_the_document_shows_people_who_took_no_part() -> None:
    for row in whole_seeds(measured("motionsense-gender-unseen"), rows=5):
        one = row[0]
        assert len(row) == 2
        assert (
            f"| {one['taking part']} | {one['people']} | {cell(row, 'activity')}"
            f" | {cell(row, 'gender')} |"
        ) in said()


def test_the_document_shows_figures_4_and_9() -> None:
    on, off = measured("motionsense-gender-shadows")
    assert (on["shadows"], off["shadows"]) == (True, False)
    losses = [one["discriminators"] for one in (on, off)]
    assert (
        f"the last of {len(losses[0])} epochs is {losses[0][-1]:.3f} with them and"
        f" {losses[1][-1]:.3f} without (after the first: {losses[0][0]:.3f} and {losses[1][0]:.3f})"
    ) in said()
    assert (
        f"activity {cell([on], 'activity')} with, {cell([off], 'activity')} without;"
        f" gender {cell([on], 'gender')} and {cell([off], 'gender')}"
    ) in said()
    (found,) = measured("motionsense-gender-information")
    first, *_, last = found["information"]
    bits = f"{first['activity']:.2f} bits about the activity after the first epoch and"
    assert f"{bits} {last['activity']:.2f} after the last" in said()
    most = max(epoch["gender"] for epoch in found["information"])
    ends = f"gender {first['gender']:.2f} and {last['gender']:.2f}"
    assert f"{ends}, with {most:.2f} at most between" in said()


def test_the_document_shows_rates_of_their_own() -> None:
    place = RESULTS / "blinder-motionsense-gender-tuning.json"
    tuning = json.loads(place.read_text("utf-8"))
    assert (tuning["data"]["part"], tuning["seeds"]) == ("validation", [0])
    rates = sorted({one["rate"] for one in tuning["points"]})
    assert [len(rates), len(tuning["points"])] == [4, 8]
    for one in tuning["points"]:
        named = f"| {one['algorithm']} | {one['rate']:g}"
        assert f"{named} | {cell([one], 'activity')} | {cell([one], 'gender')} |" in said()
    chosen = {name: tuning["chosen"][name]["rate"] for name in ("Blinder", "FedBlinder")}
    assert chosen["Blinder"] == rates[-1]
    assert (
        f"Blinder takes {chosen['Blinder']:g}, the largest that was tried,"
        f" and FedBlinder {chosen['FedBlinder']:g}."
    ) in said()
    for name, rate in chosen.items():
        own = [
            one for one in measured("motionsense-gender-results-tuned") if one["algorithm"] == name
        ]
        assert [one["plan"]["rate"] for one in own] == [rate] * 5
        cells = f"{cell(own, 'activity')} | {cell(own, 'gender')}"
        assert f"| {name} | {rate:g} | {cells} |" in said()
    before, after = (
        means(
            [one for one in measured(f"motionsense-gender-{of}") if one["algorithm"] == "Blinder"]
        )
        for of in ("results", "results-tuned")
    )
    gained = after["read activity"] - before["read activity"]
    assert f"Blinder gains {gained:.1f} points by its own rate" in said()


def test_the_document_shows_uneven_classes() -> None:
    found = measured("motionsense-gender-heterogeneity")
    assert len(found) == 10
    for own in found[::2]:
        (plain,) = [
            one for one in found if (one["algorithm"], one["ratio"]) == ("FedBlinder", own["ratio"])
        ]
        cells = [cell([one], of) for one in (own, plain) for of in OF]
        assert own["algorithm"] == "Blinder"
        assert f"| {own['ratio']:g} | {' | '.join(cells)} |" in said()


def test_the_document_says_what_adapting_does() -> None:
    found = measured("motionsense-gender-personal")
    adapted = [one for run in found for one in run["adapted"]]
    assert (len(found), len(adapted)) == (3, 30)
    before, after = ([one[when] for one in adapted] for when in ("before", "after"))
    shown = f"activity {cell(before, 'activity')} before and {cell(after, 'activity')} after"
    assert f"{shown}, gender {cell(before, 'gender')} and {cell(after, 'gender')}." in said()


def test_the_document_shows_two_hidden_attributes() -> None:
    own, plain = measured("geotec-both-results")
    place = RESULTS / "blinder-geotec-both-results.json"
    (raw,) = json.loads(place.read_text("utf-8"))["raw"]
    shown = [cell([raw], of) for of in ("activity", "gender", "weight")]
    assert "Raw: activity {}, gender {}, weight group {};".format(*shown) in said()
    assert (own["algorithm"], plain["algorithm"]) == ("Blinder", "FedBlinder")
    shown = [cell([own], of) for of in ("activity", "gender", "weight")]
    assert "Blinder: activity {}, gender {}, weight group {}.".format(*shown) in said()
    shown = [cell([plain], of) for of in ("activity", "gender", "weight")]
    assert "FedBlinder: {}, {}, {}.".format(*shown) in said()


def test_the_document_says_what_the_audit_found() -> None:
    audit = read_audit(RESULTS / "motionsense-blinder-paper-audit")
    (activity,) = audit.main.kept
    gender = audit.main.attribute("gender")
    assert (audit.quick, audit.seeds, gender.worst.threat_model) == (False, (0,), "fully informed")
    assert {one.verdict.status for one in audit.main.attributes} == {NOT_HIDDEN}
    apart = (RAW, CONTROL, "fully informed")
    alone = [one for one in gender.attacks if one.threat_model not in apart]
    most, area = max(one.accuracy.value for one in alone), max(one.auc.value for one in alone)
    guessing = f"(guessing: {100 * gender.majority:.1f}; area under the ROC curve {area:.2f})"
    assert f"gender in up to {most:.1%} {guessing}" in said()
    assert f"the output is made from, in {gender.worst.accuracy.value:.1%}" in said()
    raw = f"{activity.unchanged.value:.1%} by the unchanged application"
    assert f"{raw} (raw: {100 * activity.raw.value:.1f})" in said()
    assert f"in {activity.retrained.value:.1%} by one that is trained on the output" in said()
