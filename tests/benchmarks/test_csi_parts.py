"""The CSI paper's recipes run on small files in the layout of Widar3.0."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import intel5300_writer as writer
import pytest

from benchmarks import recipe as recipes
from benchmarks.plan import Plan
from benchmarks.recipe import recipe
from benchmarks.run import measure
from sensorveil.audit.donors import study
from sensorveil.classifiers import ClassifierSettings
from sensorveil.cli.main import app
from sensorveil.data.catalog import load
from sensorveil.data.phases import with_phases
from sensorveil.errors import Refusal
from sensorveil.methods.csi import CsiGenerator

NAME = "csi-widar-gesture"
SETTINGS = (
    "network.width=8,blocks=1,heads=2,training.epochs=1,classifier_epochs=1,sampling_steps=2,"
    "privacy.steps=2,expected_batch_size=8,noise_multiplier=8"
)
SMALL = ("--preset", "fast", "--set", f"{SETTINGS},patch=32", "--quick", "--seeds", "1")
FEWER: dict[str, dict[str, Any]] = {
    "donors": {"lira": 0},
    "cross-domain": {"rows": ["plain"]},
    "in-domain-lambda": {"lambda": [0.5, 2.0]},
}
"""What is made smaller of the recipe, so that it ends in seconds."""

Reproduce = Callable[[str], dict[str, Any]]


@pytest.fixture
def reproduce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reproduce:
    """Runs a part of Widar's recipe by the command, and gives what it wrote."""
    whole = recipe(NAME)
    parts = {name: {**asked, **FEWER.get(name, {})} for name, asked in whole.parts.items()}
    monkeypatch.setattr(recipes, "recipe", lambda name: replace(whole, parts=parts))
    size = ClassifierSettings(4, 2, 16, 4e-3, network="resnet18")
    monkeypatch.setattr(ClassifierSettings, "resnet18", lambda quick: size)
    monkeypatch.setattr(ClassifierSettings, "quick", lambda: ClassifierSettings(4, 2, 64, 4e-3))
    monkeypatch.setenv("COLUMNS", "200")
    writer.widar_folder(tmp_path / "logs")

    def run(part: str) -> dict[str, Any]:
        places = ("--from", str(tmp_path / "logs"), "--out", str(tmp_path / "out"))
        wanted = ("--part", part) if part else ()
        app(["papers", "reproduce", NAME, *places, *SMALL, *wanted], standalone_mode=False)
        (written,) = (tmp_path / "out").glob("*.json")
        found: dict[str, Any] = json.loads(written.read_text())
        assert found["conditions"]["command"]
        return found

    return run


@pytest.mark.slow
def test_tables_one_and_two(
    reproduce: Reproduce, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are what the recipe begins with; all see aligned phases, and receivers stay together."""
    seen: list[Any] = []
    attack = study.shadow_attack

    def watched(train: Any, windows: Any, seed: int, groups: Any) -> Any:
        seen.append((windows, groups))
        return attack(train, windows, seed, groups)

    monkeypatch.setattr(study, "shadow_attack", watched)
    found = reproduce("")
    assert found["part"] == "donors"
    rows = {score["contender"]: score for score in found["scores"]}
    assert list(rows) == ["raw", "plain", "hybrid", "hybrid-dp", "dp", "csi-vae"]
    epsilons = {name: (row["privacy"] or {}).get("epsilon") for name, row in rows.items()}
    assert {name for name, epsilon in epsilons.items() if epsilon} == {"hybrid-dp", "dp"}
    assert found["paper_on_widar3"]["plain"]["auc"] == 0.93
    for windows, groups in seen:
        assert len(windows) == 7 * 8  # two of nine people are public
        assert sorted(set(groups.tolist())) == sorted(set(groups[::2].tolist()))
        again = with_phases(windows, "aligned").signal
        assert abs(again - windows.signal).max() < 1e-4
    assert "[0.93]" in capsys.readouterr().out


@pytest.mark.slow
def test_cross_domain_leaves_each_person_out(
    reproduce: Reproduce, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reproduce("cross-domain")
    (row,) = found["rows"]
    assert (row["label"], row["attribute"], row["real"]["people"]) == ("plain", "gesture", 9)
    assert found["paper_on_widar3"]["cross-domain activity"]["real"] == 0.652
    assert f"({100 * row['gain']['low']:.1f} to " in capsys.readouterr().out


@pytest.mark.slow
def test_lambdas_are_asked_of_gestures_and_of_people(
    reproduce: Reproduce, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float]] = []
    fit = CsiGenerator.fit

    def watched(obfuscator: CsiGenerator, *given: Any) -> Any:
        asked.append((obfuscator.settings.mode, obfuscator.settings.privacy.denoiser_weight))
        return fit(obfuscator, *given)

    monkeypatch.setattr(CsiGenerator, "fit", watched)
    rows = reproduce("in-domain-lambda")["rows"]
    assert asked == [("hybrid", 0.5), ("hybrid", 2.0)] * 2
    labels = ("hybrid, lambda 0.5", "hybrid, lambda 2")
    wanted = [(attribute, label) for attribute in ("gesture", "subject") for label in labels]
    assert [(row["attribute"], row["label"]) for row in rows] == wanted
    assert rows[0]["real"] == rows[1]["real"]  # one classifier of real windows for both


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--windows", "5"), "trains its own"),
        (("--run", "somewhere"), "trains its own"),
        (("--set", "mode=dp"), "set 'mode' themselves"),
        (("--set", "denoiser_weight=2"), "set 'privacy.denoiser_weight' themselves"),
        (("--part", "accuracy"), "part of csi-widar-gesture 'accuracy' is unknown"),
    ],
)
def test_what_the_recipe_says_itself_is_not_asked_again(
    more: tuple[str, ...], line: str, tmp_path: Path
) -> None:
    with pytest.raises(Refusal, match=line):
        app(["papers", "reproduce", NAME, "--out", str(tmp_path), *more], standalone_mode=False)


def test_a_split_alone_is_not_enough() -> None:
    plan = Plan(load("simulated-csi", people=4, recordings=1, windows=1))
    for part in ("donors", "in-domain"):
        with pytest.raises(Refusal, match="needs all windows"):
            measure(part, recipe(NAME), plan, lambda so_far: None)


@pytest.mark.parametrize("name", [NAME, "csi-csi5300-activity"])
def test_public_people_are_those_of_the_row(name: str) -> None:
    whole = recipe(name)
    (row,) = (row for row in whole.rows if "privacy.public" in row.settings)
    assert row.settings["privacy.public"] == "+".join(whole.parts["donors"]["public"])
