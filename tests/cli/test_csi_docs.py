"""What docs/csi.md shows is run, at a small size; what needs a GPU is at least understood."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
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
FIGURES = {"auc": 2, "ssim": 2, "fid": 0, "lira_classifier_auc": 2, "lira_generator_auc": 2}
"""What docs/csi.md states of a study of donors, and to how many digits."""


def stated(study: dict[str, Any]) -> list[str]:
    """The rows of a study's table in the document."""
    promised: dict[str, list[float]] = {}
    for score in study["scores"]:
        epsilon = (score["privacy"] or {}).get("epsilon")
        promised.setdefault(score["contender"], []).extend([epsilon] if epsilon else [])
    rows = []
    for name, means in study["means"].items():
        epsilon = max(promised.get(name, []), default=None)
        cells = [_cell(means.get(figure), digits) for figure, digits in FIGURES.items()]
        rows.append(f"| {name} | {' | '.join(cells)} | {f'{epsilon:.1f}' if epsilon else 'none'} |")
    return rows


def _cell(found: list[float] | None, digits: int) -> str:
    if found is None:
        return "-"
    mean, spread = found
    return f"{mean:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


@pytest.mark.parametrize("name", ["csi-simulated-donors", "csi5300-donors", "csi-restored"])
def test_tables_are_those_of_the_results(name: str) -> None:
    for row in stated(json.loads((RESULTS / f"{name}.json").read_text())):
        assert row in TEXT


def test_the_gain_is_that_of_the_results() -> None:
    found = json.loads((RESULTS / "csi-simulated-cross-domain.json").read_text())
    for part in ("real", "mixed", "gain"):
        value, low, high = (100 * found[part][end] for end in ("value", "low", "high"))
        assert f"{value:.1f}% ({low:.1f} to {high:.1f})" in TEXT


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
