"""Prints the tables of docs/cloak.md out of results/: python scripts/cloak_tables.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sensorveil.audit.results import CONTROL, RAW, read_audit

RESULTS = Path(__file__).parents[1] / "results"
AUDITS = {
    "motionsense-cloak-paper": "MotionSense",
    "audiomnist-cloak-paper": "AudioMNIST",
    "geotec-cloak-recording": "GeoTec",
    "csi5300-magnitude-cloak-recording": "CSI of the Intel 5300",
    "simulated-images-cloak-subject": "`simulated-images`",
}
ACCURACIES = {
    "motionsense-gender": ("MotionSense", "activity", "gender"),
    "audiomnist-gender": ("AudioMNIST", "digit", "gender"),
    "geotec-gender": ("GeoTec", "activity", "gender"),
    "csi5300-user": ("CSI of the Intel 5300", "activity", "subject"),
    "images-tone": ("`simulated-images`", "shape", "tone"),
}
SPOKEN = {"weight": "weight group", "subject": "who it is"}


def audits() -> Iterator[str]:
    """A row for each attribute of each audit, and below them what sessions gave away."""
    for name, data in AUDITS.items():
        place = f"{name}-audit"
        found = read_audit(RESULTS / place).main
        (kept,) = found.kept
        shown = f"{kept.attribute} {100 * kept.raw.value:.1f}, {100 * kept.unchanged.value:.1f} "
        for one in found.attributes:
            spoken = SPOKEN.get(one.attribute, one.attribute)
            spoken += " (not in the policy)" if one.role == "unlisted" else ""
            area = max(a.auc.value for a in one.attacks if a.threat_model not in (RAW, CONTROL))
            yield (
                f"| [{data}](../results/{place}/audit.html) | {shown}| {spoken} |"
                f" {100 * one.majority:.1f} | {100 * one.worst.accuracy.value:.1f} | {area:.2f} |"
                f" {one.verdict.status} |"
            )
            shown = ""
            for session in one.sessions:
                if session.significant:
                    beyond = 100 * (session.accuracy.value - session.majority)
                    yield f"    beyond guessing, {session.windows} windows: {beyond:.1f} points"


def accuracies() -> Iterator[str]:
    """What models of raw windows read, five seeds."""
    for name, (data, kept, hidden) in ACCURACIES.items():
        found = result(f"{name}-accuracy")
        label = f"[{data}](../results/cloak-{name}-accuracy.json)"
        yield _accuracy(label, found, found["rows"][-1], kept, hidden)
        if name == "motionsense-gender":
            label = "the same, with the paper's guidance"
            yield _accuracy(label, found, found["rows"][0], kept, hidden)


def _accuracy(label: str, found: dict[str, Any], row: dict[str, Any], kept: str, hid: str) -> str:
    cells = [
        f"{percent(one, of)} / {percent(one, of, 'read_dense')}"
        for of in (kept, hid)
        for one in (found["raw"], row)
    ]
    spoken = {"subject": "user"}.get(hid, hid)
    return f"| {label} | {kept} | {cells[0]} | {cells[1]} | {spoken} | {cells[2]} | {cells[3]} |"


def validated() -> Iterator[str]:
    """Settings compared on validation windows."""
    found = result("motionsense-gender-validated")
    for row in (found["raw"], *found["rows"]):
        given = row.get("settings")
        named = "raw windows"
        if given is not None:
            shown = ",".join(f"{name}={json.dumps(value)}" for name, value in given.items())
            named = f"`{shown or 'fast'}`"
        women = [
            f" {100 * row['read_as']['gender'][kind]['female']:.1f} " if given is not None else " "
            for kind in ("read", "read_dense")
        ]
        dense = ", ".join(percent(row, of, "read_dense") for of in ("activity", "gender"))
        yield (
            f"| {named} | {percent(row, 'activity')} | {percent(row, 'gender')} | {dense} |"
            f"{'|'.join(women)}|"
        )


def trade_off() -> Iterator[str]:
    """Every second line of figure 4."""
    points = result("motionsense-gender-tradeoff")["points"]
    for keep in (1, 3, 5, 7, 9):
        cells = [
            f"{percent(p, 'activity')}, {percent(p, 'gender')}" for p in points if p["keep"] == keep
        ]
        yield f"| {keep} | {' | '.join(cells)} |"


def avoided() -> Iterator[str]:
    """What is read backwards."""
    for row in result("motionsense-gender-avoided")["rows"]:
        given = row["settings"]
        weight = f"{given['avoid']} " if given["avoids"] != "none" else ""
        read = [percent(row, name) for name in ("activity", "gender")]
        cells = " | ".join([*read, percent(row, "gender", "retrained")])
        coin = "yes" if row["all_settings"]["coin"] else "no"
        yield f"| {given['avoids']} | {weight}| {given['bottleneck']:g} | {coin} | {cells} |"


def result(name: str) -> dict[str, Any]:
    """A file of a recipe of CLOAK."""
    found: dict[str, Any] = json.loads((RESULTS / f"cloak-{name}.json").read_text("utf-8"))
    return found


def percent(row: dict[str, Any], attribute: str, kind: str = "read") -> str:
    """An accuracy, in percent."""
    return f"{100 * row[kind][attribute]['accuracy']['value']:.1f}"


if __name__ == "__main__":
    for table in (audits, accuracies, validated, trade_off, avoided):
        print(f"\n{table.__doc__}\n")
        print(*table(), sep="\n")
