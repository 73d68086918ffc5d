"""sensorveil csi canaries: an honest noise is not refuted, too little of it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sensorveil.nets import private_training

SIZE = "width=8,blocks=1,heads=2,reader_epochs=1,epochs=1,private_steps=16,noise=10,lot=1000"
ASKED = (
    "csi", "canaries", "--option", "people=4,recordings=1,windows=2", "--canaries", "1000",
    "--guesses", "200", "--out", "canaries.json",
)  # fmt: skip


@pytest.mark.parametrize("mode", ["mode=dp", "mode=hybrid-dp,public=1"])
def test_the_bound_stands_beside_the_claim(mode: str, done: Callable[..., Any]) -> None:
    said = done(*ASKED, "--set", f"{SIZE},{mode}").out
    content = json.loads(Path("canaries.json").read_text())
    assert content["guesses"] == 200
    assert content["bound"] < content["privacy"]["epsilon"]
    assert content["right"] > 115  # at this noise canaries can be seen, a little
    assert "epsilon is above" in said
    assert "REFUTED" not in said


def test_too_little_noise_is_refuted(
    done: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run still claims what it claimed; its gradients show that it is not so."""
    honest = private_training.private_optimizer

    def weak(*given: object) -> object:
        optimizer = honest(*given)
        optimizer.noise_multiplier /= 8
        return optimizer

    monkeypatch.setattr(private_training, "private_optimizer", weak)
    assert "REFUTED" in done(*ASKED, "--set", f"{SIZE},mode=dp").out


def test_modes_without_a_promise_are_refused(refused: Callable[..., str]) -> None:
    assert "mode hybrid promises nothing" in refused(*ASKED, "--set", "mode=hybrid")
