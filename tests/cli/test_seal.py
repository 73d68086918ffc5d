"""Seal through the commands: its search, its strengths, and whose windows it may give out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

POLICY = ("--keep", "activity", "--hide", "gender")
SMALL = (
    "--set",
    "epochs=1,width=4,rhythm_bins=3,training_steps=8,num_candidates=2,windows_per_code=2",
)
Command = Callable[..., Any]


def test_the_search_and_a_budget(done: Command, simulated: tuple[str, ...], tmp_path: Path) -> None:
    allowed = ("--max-advantage", "0.5")
    done("fit", "seal", *POLICY, *SMALL, *allowed, *simulated, "--out", "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["settings"]["code"]["max_advantage"] == 0.5
    tried = json.loads((tmp_path / "run" / "metrics.json").read_text())["search"]
    assert [one["bins"] for one in tried] == [[1, 1, 1]]  # windows are few
    private = ("--strength", "epsilon=1,budget=2")
    done("obfuscate", "run", *simulated, *private, "--out", "hidden.npz")
    assert (tmp_path / "hidden.npz").is_file()


def test_epsilon_is_promised_on_the_card(
    done: Command, simulated: tuple[str, ...], tmp_path: Path
) -> None:
    private = ("--set", "epsilon=1,interval_seconds=30")
    done("fit", "seal", *POLICY, *SMALL, *private, *simulated, "--out", "run")
    card = (tmp_path / "run" / "card.md").read_text()
    assert "each interval of 30 s spends 1, an hour of a recording 120" in card
    assert "own windows" not in card  # the default generator is the diffusion


def test_a_budget_without_epsilon_is_refused(
    done: Command, refused: Command, simulated: tuple[str, ...]
) -> None:
    done("fit", "seal", *POLICY, *SMALL, "--set", "generator=pool", *simulated, "--out", "run")
    alone = ("--strength", "budget=2")
    assert "epsilon" in refused("obfuscate", "run", *simulated, *alone, "--out", "hidden.npz")


@pytest.mark.parametrize("share", ["-3", "0", "1.5"])
def test_an_allowance_that_is_no_share_is_refused(
    refused: Command, simulated: tuple[str, ...], share: str
) -> None:
    said = refused("fit", "seal", *POLICY, "--max-advantage", share, *simulated, "--out", "r")
    assert "above 0 and up to 1" in said


def test_what_does_not_search_takes_no_allowance(
    refused: Command, simulated: tuple[str, ...]
) -> None:
    allowed = ("--max-advantage", "0.1")
    assert "max_advantage" in refused("fit", "noise", *POLICY, *allowed, *simulated, "--out", "r")


def test_people_of_a_table_must_have_agreed(
    done: Command, refused: Command, table: Path, tmp_path: Path
) -> None:
    fit = ("fit", "seal", "--data", table, *POLICY, *SMALL)
    pool = ("--set", "generator=pool")
    assert "agreed" in refused(*fit, *pool, "--out", "run")
    done(*fit, *pool, "--set", "donors=they signed", "--out", "run")
    card = (tmp_path / "run" / "card.md").read_text()
    assert "they signed" in card
    assert "own windows" in card
