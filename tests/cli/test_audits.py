"""sensorveil audit, compare and sweep, through the real command."""

from __future__ import annotations

import json

import pytest

from sensorveil.cli.comparisons import parse_grid
from sensorveil.errors import Refusal

DATA = [
    "--data",
    "simulated",
    *["--option", "people=16", "--option", "windows=3", "--option", "recordings=1"],
]


@pytest.fixture
def tiny(monkeypatch):
    """Attackers so small that an audit takes seconds; what they find is tested elsewhere."""
    from sensorveil.audit.attackers import Budget
    from sensorveil.classifiers import ClassifierSettings

    network = ClassifierSettings(width=4, epochs=1, batch=32, rate=1e-3)
    small = Budget(windows=120, network=network, kernels=16, rounds=2)
    monkeypatch.setattr(Budget, "quick", classmethod(lambda cls: small))


@pytest.fixture
def runs(done, tiny):
    for name, more in (("noise", ["--set", "snr=5"]), ("none", [])):
        done("fit", name, *DATA, "--keep", "activity", "--hide", "gender", *more, "--out", name)


def test_audit_writes_a_page_and_json(done, runs, tmp_path):
    shown = done("audit", "noise", *DATA[2:], "--quick", "--out", "found").out
    assert "gender (hide)" in shown
    told = json.loads((tmp_path / "found" / "audit.json").read_text("utf-8"))
    assert told["method"] == "noise"
    assert told["conditions"]["command"].startswith("sensorveil audit noise")
    (part,) = told["splits"]
    assert part["unseen_people"]
    assert part["left_out"]["subject"]
    assert {entry["attribute"] for entry in part["attributes"]} == {"gender", "weight"}
    page = (tmp_path / "found" / "audit.html").read_text("utf-8")
    assert "gender" in page.lower()
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_second_split_stands_beside(done, runs, tmp_path):
    shown = done(
        "audit", "none", *DATA[2:], "--quick", "--second-split", "recording", "--out", "both"
    ).out
    told = json.loads((tmp_path / "both" / "audit.json").read_text("utf-8"))
    assert [part["split"] for part in told["splits"]] == ["subject", "recording"]
    assert set(told["gaps"]) == {"gender"}
    assert "split recording" in shown


def test_another_run_serves_lazy_attackers(done, refused, runs, tmp_path):
    policy = ["--keep", "activity", "--hide", "gender"]
    done("fit", "noise", *DATA, *policy, "--set", "snr=5", "--seed", "1", "--out", "again")
    done("audit", "noise", *DATA[2:], "--quick", "--shadow-run", "again", "--out", "found")
    asked = ("audit", "noise", *DATA[2:], "--quick", "--out", "no", "--shadow-run")
    assert "another seed" in refused(*asked, "noise")
    assert "must have the method" in refused(*asked, "none")
    assert not (tmp_path / "no").exists()


def test_max_advantage_is_an_exit_code(command, runs):
    found = command("audit", "none", *DATA[2:], "--quick", "--max-advantage", "0", "--out", "a")
    assert found.code == 1
    assert (
        command("audit", "none", *DATA[2:], "--quick", "--max-advantage", "1", "--out", "b").code
        == 0
    )


def test_compare(done, refused, runs, tmp_path):
    for name in ("noise", "none"):
        done("audit", name, *DATA[2:], "--quick", "--out", f"audit-{name}")
    shown = done("compare", "audit-noise", "audit-none", "--out", "page").out
    assert "noise" in (tmp_path / "page" / "compare.html").read_text("utf-8")
    assert "page/compare.html" in shown
    assert "two or more" in refused("compare", "audit-noise", "--out", "other")
    content = json.loads((tmp_path / "audit-none" / "audit.json").read_text("utf-8"))
    content["protocol"] = "another"
    (tmp_path / "audit-none" / "audit.json").write_text(json.dumps(content), "utf-8")
    assert "protocols" in refused("compare", "audit-noise", "audit-none", "--out", "other")


def test_sweep(done, refused, runs, tmp_path):
    options = ("sweep", "noise", *DATA[2:], "--subset", "test")
    shown = done(*options, "--grid", "snr=-10:20:15", "--out", "curve").out
    told = json.loads((tmp_path / "curve" / "sweep.json").read_text("utf-8"))
    assert [point["strength"]["snr"] for point in told["points"]] == [-10, 5, 20]
    assert 0 <= told["area"] <= 1
    assert "area under the curve" in shown
    assert (tmp_path / "curve" / "sweep.html").is_file()
    assert "'loud' is unknown" in refused(*options, "--grid", "loud=1", "--out", "other")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1,2", "does not start with name"),
        ("a=1,a=2", "twice"),
        ("a=1:2", "start:stop:step"),
        ("a=1:2:0", "start:stop:step"),
        ("a=x", "no number"),
        ("a=0:1:0.0001", "at most"),
        ("a=0:9:0.1,b=0:9:0.1", "strengths"),
        ("", "strengths"),
    ],
)
def test_bad_grids(text, line):
    with pytest.raises(Refusal, match=line):
        parse_grid(text)


def test_bad_audits(refused, runs, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    for words, line in (
        (["audit", "none", "--out", "full"], "which is no part of this audit"),
        (["audit", "none", "--seeds", "-1", "--out", "x"], "--seeds"),
        (["audit", "none", "--max-advantage", "-3", "--out", "x"], "share between 0 and 1"),
        (["compare", "none", "noise", "--out", "x"], "audit.json is missing"),
        (
            ["sweep", "noise", "--grid", "snr=1", "--subset", "train", "--out", "x"],
            "subset 'train'",
        ),
    ):
        assert line in refused(*words)


def test_people_never_seen_cannot_be_swept(done, refused, tiny):
    done("fit", "noise", *DATA, "--keep", "activity", "--hide", "subject", "--out", "who")
    words = ("sweep", "who", *DATA[2:], "--grid", "snr=1", "--out", "x")
    assert "'subject' cannot be swept" in refused(*words)
