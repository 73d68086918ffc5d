"""What docs/csi.md shows is run, at a small size; what needs a GPU is at least understood."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sensorveil.data.simulated import SimulatedCsi
from sensorveil.methods import csi_settings
from sensorveil.methods.csi import CsiGenerator

TEXT = (Path(__file__).parents[2] / "docs" / "csi.md").read_text("utf-8")
TINY = {
    **csi_settings.FAST,
    "width": 8,
    "blocks": 1,
    "heads": 2,
    "epochs": 1,
    "reader_epochs": 1,
    "steps": 2,
    "private_steps": 2,
    "noise": 8.0,
}


RESULTS = Path(__file__).parents[2] / "results"
FIGURES = {"auc": 2, "success": 2, "ssim": 2, "fid": 0}
"""What docs/csi.md states of each row by the shadow attack, and to how many digits."""

LIRA = {
    f"lira_{of}_{figure}": digits
    for of in ("classifier", "generator")
    for figure, digits in (("auc", 2), ("at_1", 3), ("at_01", 3))
}
"""What it states by LiRA."""


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def donors(study: dict[str, Any]) -> list[str]:
    """The rows of a study's table: mean and deviation over seeds, the paper's in brackets."""
    rows = []
    for name, means in study["means"].items():
        if "auc" not in means:
            continue
        own = [score for score in study["scores"] if score["contender"] == name]
        promised = [(score["privacy"] or {}).get("epsilon") or 0.0 for score in own]
        paper = study["paper_on_widar3"].get(name, {})
        cells = [_cell(means[of], digits, paper.get(of)) for of, digits in FIGURES.items()]
        epsilon = f"{max(promised):.1f}" if any(promised) else "none"
        rows.append(f"| {name} | {len(own)} | {' | '.join(cells)} | {epsilon} |")
    return rows


def by_lira(study: dict[str, Any]) -> list[str]:
    """The same by LiRA, over targets."""
    return [
        f"| {name} | {' | '.join(_cell(means.get(of), digits) for of, digits in LIRA.items())} |"
        for name, means in study["means"].items()
        if any(of in means for of in LIRA)
    ]


def _cell(found: list[float] | None, digits: int, paper: float | None = None) -> str:
    if found is None:
        return "-"
    mean, spread = found
    beside = "" if paper is None else f" [{paper:.2f}]"
    return f"{mean:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}") + beside


def share(estimate: dict[str, float]) -> str:
    """An accuracy or a gain, with its interval."""
    value, low, high = (100 * estimate[end] for end in ("value", "low", "high"))
    return f"{value:.1f}% ({low:.1f} to {high:.1f})"


def gains_by_lambda(protocol: str, lambdas: Sequence[float]) -> list[str]:
    """Figures 4 and 5 of the Intel 5300: each generator's accuracies and gain."""
    places = {f"hybrid, lambda {one}": f"-lambda-{one}" for one in lambdas}
    if protocol == "in-domain":
        places["plain"] = ""
    rows = []
    for name, place in places.items():
        found = result(f"csi5300-{protocol}{place}")
        cells = [share(found[part]) for part in ("real", "mixed", "gain")]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def hybrid_above_plain(study: dict[str, Any]) -> str:
    """How much higher the attack's AUC is, the mean over seeds that have both."""
    (step,) = (s for s in study["orders"]["auc"] if (s["above"], s["below"]) == ("plain", "hybrid"))
    return f"{-step['difference']:.3f}"


def by_seed(gain: dict[str, Any]) -> str:
    """The gain of each of three seeds over all windows, in points."""
    counts = [[sum(column) for column in zip(*seed, strict=True)] for seed in gain["table"]]
    points = [f"{100 * (mixed - real) / windows:.1f}" for real, mixed, windows in counts]
    return f"{points[0]}, {points[1]} and {points[2]}"


def plain_beside_raw(study: dict[str, Any]) -> str:
    plain, raw = (study["means"][name]["auc"][0] for name in ("plain", "raw"))
    return f"{plain:.2f}, that of raw windows {raw:.2f}"


def fids(study: dict[str, Any]) -> str:
    plain, raw = (study["means"][name]["fid"][0] for name in ("plain", "raw"))
    return f"{plain:.0f} against {raw:.0f}"


@pytest.mark.parametrize(
    ("protocol", "lambdas"), [("in-domain", (0.1, 1, 10)), ("cross-domain", (0.1, 1, 10))]
)
def test_lambdas_are_those_of_the_results(protocol: str, lambdas: tuple[float, ...]) -> None:
    for row in gains_by_lambda(protocol, lambdas):
        assert row in TEXT


def test_figures_in_sentences_are_those_of_the_results() -> None:
    flat, higher = " ".join(TEXT.split()), list[bool]()
    for name in ("csi-simulated-donors", "csi5300-donors"):
        study = result(name)
        assert f"by {hybrid_above_plain(study)}" in flat
        aucs: dict[int, dict[str, float]] = {}
        for score in study["scores"]:
            aucs.setdefault(score["seed"], {})[score["contender"]] = score["attack"]["auc"]
        both = [own for own in aucs.values() if {"plain", "hybrid"} <= own.keys()]
        higher += [own["hybrid"] > own["plain"] for own in both]
        assert study["orders_held"]["ssim"]
        assert not study["orders_held"]["auc"]
    assert f"higher with {sum(higher)} of {len(higher)} seeds" in flat
    assert by_seed(result("csi5300-cross-domain")) in flat
    assert fids(result("csi5300-donors")) in flat
    assert plain_beside_raw(result("csi-simulated-long-donors")) in flat


@pytest.mark.parametrize(
    "name",
    [
        "csi-simulated-donors",
        "csi5300-donors",
        "csi-restored",
        "csi-simulated-lambda",
        "csi5300-sound-donors",
    ],
)
def test_tables_are_those_of_the_results(name: str) -> None:
    for row in donors(result(name)):
        assert row in TEXT


def test_lira_is_that_of_the_results() -> None:
    rows = by_lira(result("csi-simulated-donors"))
    assert len(rows) == 5
    for row in rows:
        assert row in TEXT


@pytest.mark.parametrize(
    "name", ["csi-simulated-cross-domain", "csi5300-cross-domain", "csi5300-in-domain-user"]
)
def test_gains_are_those_of_the_results(name: str) -> None:
    found = result(name)
    assert found["gain"]["seeds"] == 3
    for part in ("real", "mixed", "gain"):
        assert share(found[part]) in TEXT


def lines(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", TEXT, flags=re.M | re.S)
    return [line for block in found for line in block.splitlines()]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten people of eight windows each, and a network that learns nothing of them."""
    fewer = {**SimulatedCsi.defaults, "people": 10, "recordings": 1, "windows": 1}
    monkeypatch.setattr(SimulatedCsi, "defaults", fewer)
    monkeypatch.setattr(CsiGenerator, "presets", {**CsiGenerator.presets, "fast": TINY})


def test_commands_run(small: None, done: Callable[..., Any]) -> None:
    shown = lines("sh")
    assert len(shown) >= 5
    for line in shown:
        done(*shlex.split(line)[1:])
    assert Path("walking.npz").is_file()


def test_code_runs(small: None) -> None:
    exec("\n".join(lines("python")), {})


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU they would run for long")
def test_commands_for_a_gpu_are_understood(refused: Callable[..., str]) -> None:
    shown = lines("text")
    assert len(shown) >= 3
    for line in shown:
        assert "'cuda' is not there" in refused(*shlex.split(line)[1:])


def test_every_mode_is_explained() -> None:
    for mode in csi_settings.MODES:
        assert f"| `{mode}` |" in TEXT
