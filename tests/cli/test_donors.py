"""sensorveil csi donors and augment run the paper's experiments, at a small size."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import intel5300_writer as writer
import numpy as np
import pytest

from sensorveil.audit import membership
from sensorveil.cli import augment, donors, members
from sensorveil.data.phases import with_phases
from sensorveil.data.windows import Windows
from sensorveil.methods.csi import CsiGenerator

TINY = "width=8,blocks=1,heads=2,epochs=1,reader_epochs=1,steps=2,private_steps=2,lot=8,noise=8"
DATA = ("--data", "simulated-csi", "--option", "people=4,recordings=2,windows=2")
SMALL = (*DATA, "--set", TINY, "--quick", "--seeds", "1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classifiers smaller still than those of --quick."""
    from sensorveil.measures.residual import ResidualSettings

    for command in (augment, donors, members):
        monkeypatch.setattr(command, "classifier", lambda quick: ResidualSettings(4, 2, 16, 4e-3))


def test_donors_prints_and_writes_every_row(done: Callable[..., Any]) -> None:
    asked = ("--row", "raw,plain,hybrid-dp,csi-vae", "--public", "1", "--lambda", "0.5")
    files = ("--out", "donors.json", "--features", "features.safetensors")
    outcome = done("csi", "donors", *SMALL, *asked, *files)
    content = json.loads(Path("donors.json").read_text())
    rows = ["raw", "plain", "hybrid-dp", "csi-vae", "hybrid, lambda 0.5"]
    assert [score["contender"] for score in content["scores"]] == rows
    for row in rows:
        assert row in outcome.out
    assert "[0.99]" in outcome.out  # the paper's, and that it is of other data
    assert "Widar3.0: other data" in outcome.out
    promised = {score["contender"]: score["privacy"] for score in content["scores"]}
    assert promised["hybrid-dp"]["epsilon"] > 0
    assert promised["hybrid, lambda 0.5"]["epsilon"] is None
    assert content["conditions"]["command"].startswith("sensorveil csi donors")
    before = Path("features.safetensors").read_bytes()
    done("csi", "donors", *SMALL, "--row", "raw", *files)
    assert Path("features.safetensors").read_bytes() == before


def test_parts_of_a_study_become_one_table(
    done: Callable[..., Any], refused: Callable[..., str]
) -> None:
    """Seeds and LiRA by themselves, as several processes would make them."""
    asked = (*SMALL[:-2], "--row", "raw", "--phases", "aligned")
    for seed in ("0", "1"):
        done("csi", "donors", *asked, "--seeds", "1", "--first-seed", seed, "--out", f"{seed}.json")
    done("csi", "donors", *asked, "--seeds", "0", "--lira", "4", "--out", "lira.json")
    parts = ("--join", "0.json", "--join", "1.json", "--join", "lira.json")
    outcome = done("csi", "donors", *parts, "--out", "all.json")
    content = json.loads(Path("all.json").read_text())
    assert [score["seed"] for score in content["scores"]] == [0, 1]
    assert len(content["lira"]) == 4
    assert [part["command"].split()[-1] for part in content["parts"]] == [
        "0.json",
        "1.json",
        "lira.json",
    ]
    assert content["study"]["phases"] == "aligned"
    assert "by LiRA" in outcome.out
    assert "±" in outcome.out
    done("csi", "donors", *SMALL, "--row", "raw", "--out", "other.json")
    assert "another study" in refused(
        "csi", "donors", "--join", "0.json", "--join", "other.json", "--out", "bad.json"
    )
    Path("empty.json").write_text("{}")
    for place, line in (("empty.json", "no result"), ("missing.json", "cannot be read")):
        assert line in refused("csi", "donors", "--join", place, "--out", "bad.json")


def test_aligned_phases_are_what_everybody_sees() -> None:
    """Turned anew in every packet, all windows are the same to methods, classifiers, attackers."""
    chance = np.random.default_rng(1)
    signal = chance.normal(size=(5, 3, 16)) + 1j * chance.normal(size=(5, 3, 16))
    windows = Windows.from_signal(signal.astype(np.complex64), {"activity": np.arange(5) % 2})
    windows = replace(windows, channels=("rx1.sc1", "rx1.sc2", "rx2.sc1"))
    turn = np.exp(2j * np.pi * chance.random(windows.store.shape[-1])).astype(np.complex64)
    turned = replace(windows, store=windows.store * turn)
    first, second = (with_phases(one, "aligned").signal for one in (windows, turned))
    np.testing.assert_allclose(first, second, atol=1e-4)
    np.testing.assert_allclose(np.abs(first), np.abs(windows.signal), rtol=1e-4)
    assert with_phases(turned, "kept") is turned


def test_restored_windows_are_given_out_without_a_promise(done: Callable[..., Any]) -> None:
    asked = ("--row", "dp", "--restored", "--out", "donors.json")
    done("csi", "donors", *SMALL, *asked)
    (score,) = json.loads(Path("donors.json").read_text())["scores"]
    assert score["privacy"]["epsilon"] is None


def test_augment(done: Callable[..., Any]) -> None:
    told = done("csi", "augment", "csi", *SMALL, "--split", "subject", "--folds", "2", "--json",
                "--out", "gain.json").out  # fmt: skip
    content = json.loads(told)
    assert content == json.loads(Path("gain.json").read_text())
    assert content["asked"]["split"] == "subject"
    assert content["real"]["people"] == 2  # one of four people in each of two folds
    assert 0 <= content["mixed"]["value"] <= 1
    done("csi", "augment", "csi", *SMALL, "--split", "subject", "--folds", "2", "--first-seed", "1",
         "--out", "more.json")  # fmt: skip
    done("csi", "augment", "csi", "--join", "gain.json", "--join", "more.json", "--out", "all.json")
    both = json.loads(Path("all.json").read_text())
    assert both["gain"]["seeds"] == 2
    assert both["table"][0] == content["table"][0]


def test_augment_with_some_of_the_training_windows(
    done: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test stays whole: all windows of the one person in the first fold."""
    learnt: list[int] = []
    fit = CsiGenerator.fit

    def watched(obfuscator: CsiGenerator, windows: Windows, *told: Any) -> Any:
        learnt.append(len(windows))
        return fit(obfuscator, windows, *told)

    monkeypatch.setattr(CsiGenerator, "fit", watched)
    asked = ("--split", "subject", "--windows", "20")
    done("csi", "augment", "csi", *SMALL, *asked, "--out", "gain.json")
    content = json.loads(Path("gain.json").read_text())
    assert learnt == [20]
    assert content["asked"]["windows"] == 20
    assert np.array(content["table"])[0, :, 2].tolist() == [32]


@pytest.mark.parametrize(("method", "of"), [("csi", "generator"), ("resample", "classifier")])
def test_members_of_any_method(method: str, of: str, done: Callable[..., Any]) -> None:
    setting = TINY if method == "csi" else "epochs=1,width=4"
    asked = ("--set", setting, "--of", of, "--shadows", "2", "--quick", "--out", "members.json")
    outcome = done("csi", "members", method, *DATA, *asked)
    content = json.loads(Path("members.json").read_text())
    assert content["members"] == content["others"] == 64  # of 128 windows
    assert 0 <= content["auc"] <= 1
    assert content["at_01"] is None
    assert "too few others" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("csi", "donors", "--row", "cooked", "--out", "a.json"), "row 'cooked' is unknown"),
        (("csi", "donors", "--row", "hybrid-dp", "--out", "a.json"), "needs --public"),
        (("csi", "donors", "--out", "a.csv"), "must end in .json"),
        (("csi", "donors", "--row", "raw", "--seeds", "0", "--out", "a.json"), "at least one"),
        (
            ("csi", "donors", "--lambda", "much", "--row", "raw", "--out", "a.json"),
            "'much' is no number",
        ),
        (
            ("csi", "members", "csi", "--of", "luck", "--out", "a.json"),
            "attack of 'luck' is unknown",
        ),
        (("csi", "members", "none", "--of", "generator", "--out", "a.json"), "is no generator"),
        (("csi", "members", "csi", "--shadows", "1", *DATA, "--out", "a.json"), "shadow models"),
        (
            ("csi", "donors", "--phases", "odd", *DATA, "--row", "raw", "--out", "a.json"),
            "phases 'odd'",
        ),
        (
            (
                "csi",
                "donors",
                "--lira",
                "3",
                "--seeds",
                "0",
                *DATA,
                "--row",
                "raw",
                "--quick",
                "--out",
                "a.json",
            ),
            "no pairs",
        ),
        (("csi", "donors", "--lira", "5", "--row", "plain", "--out", "a.json"), "no pairs"),
        (
            ("csi", "donors", "--first-seed", "-1", "--row", "raw", "--out", "a.json"),
            "--first-seed is -1",
        ),
        (("csi", "augment", "csi", "--first-seed", "-1", "--out", "a.json"), "--first-seed is -1"),
        (("csi", "augment", "csi", "--windows", "0", "--out", "a.json"), "--windows is 0"),
        (("csi", "augment", "nothing", "--out", "a.json"), "method 'nothing' is unknown"),
        (
            ("csi", "augment", "csi", "--set", "mode=odd", "--out", "a.json"),
            "mode 'odd' is unknown",
        ),
    ],
)
def test_refusals(arguments: tuple[str, ...], line: str, refused: Callable[..., str]) -> None:
    assert line in refused(*arguments)


def test_widar_in_the_authors_folders(
    done: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper's own dataset, on small logs; what several receivers heard is never torn apart."""
    writer.widar_folder(tmp_path / "logs")
    seen: list[np.ndarray] = []
    deal = membership.dealt

    def watched(groups: np.ndarray, *rest: int) -> np.ndarray:
        seen.append(groups)
        return deal(groups, *rest)

    monkeypatch.setattr(membership, "dealt", watched)
    files = ("--data", "widar", "--from", "logs", "--keep", "gesture", "--out", "donors.json")
    small = ("--set", f"{TINY},patch=32", "--quick", "--seeds", "1")
    done("csi", "donors", *files, "--row", "raw,plain", *small)
    rows = json.loads(Path("donors.json").read_text())["scores"]
    assert [row["contender"] for row in rows] == ["raw", "plain"]
    for groups in seen:
        assert np.unique(groups, return_counts=True)[1].tolist() == [2] * 36
    gain = ("--data", "widar", "--from", "logs", "--keep", "gesture", "--split", "subject")
    done("csi", "augment", "csi", *gain, *small, "--out", "gain.json")
    told = json.loads(Path("gain.json").read_text())
    assert told["asked"]["split"] == "subject"
    assert told["real"]["people"] == 1  # of nine, in the first fold
