"""sensorveil csi generate writes windows of the class that was asked for, and what they promise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TINY = "width=8,blocks=1,heads=2,epochs=1,reader_epochs=1,steps=2,private_steps=3,lot=20,noise=8"
DATA = ("--data", "simulated-csi", "--option", "people=4,recordings=1,windows=2")
POLICY = ("--keep", "activity", "--hide", "subject")


@pytest.fixture(scope="module")
def fitted(
    command: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Small runs, plain and private, and one of a method that cannot generate."""
    place = tmp_path_factory.mktemp("generators")
    wanted = {
        "plain": ("csi", "--set", TINY),
        "dp": ("csi", "--set", f"{TINY},mode=dp"),
        "none": ("none",),
    }
    for name, arguments in wanted.items():
        outcome = command("fit", *arguments, *POLICY, *DATA, "--out", place / name)
        assert outcome.code == 0, outcome.err
    return {name: place / name for name in wanted}


def test_windows_of_a_class(fitted: dict[str, Path], done: Callable[..., Any]) -> None:
    asked = (
        "csi",
        "generate",
        fitted["plain"],
        "--class",
        "activity=waving",
        "--n",
        "3",
        "--seed",
        "1",
    )
    outcome = done(*asked, "--out", "made.npz")
    assert "3 windows of shape (30, 64)" in outcome.out
    assert "no epsilon" in outcome.out
    with np.load("made.npz", allow_pickle=False) as file:
        content = dict(file)
    assert content["signal"].shape == (3, 30, 64)
    assert content["signal"].dtype == np.complex64
    assert (
        np.array(content["classes_activity"])[content["label_activity"]].tolist() == ["waving"] * 3
    )
    assert content["subject"].tolist() == ["generated"] * 3
    done(*asked, "--out", "again.npz")
    with np.load("again.npz", allow_pickle=False) as file:
        assert (file["signal"] == content["signal"]).all()


def test_a_private_run_states_its_epsilon(
    fitted: dict[str, Path], done: Callable[..., Any]
) -> None:
    asked = ("csi", "generate", fitted["dp"], "--class", "activity=walking", "--n", "2")
    assert re.search(r"epsilon \d", done(*asked, "--out", "made.npz").out)
    told = json.loads(done(*asked, "--length", "80", "--json", "--out", "long.npz").out)
    assert told["shape"] == [30, 80]
    assert told["privacy"]["epsilon"] > 0


@pytest.mark.parametrize(
    ("run", "arguments", "line"),
    [
        ("plain", ("--class", "activity=flying"), "class of 'activity' 'flying' is unknown"),
        ("plain", ("--class", "room=office"), "a class of 'activity' must be named"),
        ("plain", ("--class", "walking"), "not of the form name=value"),
        ("plain", ("--class", "activity=walking", "--n", "0"), "at least one window"),
        ("none", ("--class", "activity=walking"), "none cannot generate"),
    ],
)
def test_refusals(
    run: str,
    arguments: tuple[str, ...],
    line: str,
    fitted: dict[str, Path],
    refused: Callable[..., str],
) -> None:
    assert line in refused("csi", "generate", fitted[run], *arguments, "--out", "made.npz")


def test_the_file_must_be_an_npz(fitted: dict[str, Path], refused: Callable[..., str]) -> None:
    said = refused(
        "csi", "generate", fitted["plain"], "--class", "activity=walking", "--out", "made.csv"
    )
    assert "must end in .npz" in said
