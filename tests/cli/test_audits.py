"""sensorveil audit, compare and sweep, through the real command."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sensorveil.audit import applications, audit
from sensorveil.audit.applications import TREES, application_class
from sensorveil.audit.attackers import CONVOLUTIONS, Budget
from sensorveil.audit.session_attackers import SET, SessionBudget
from sensorveil.cli.comparisons import parse_grid
from sensorveil.errors import Refusal

OPTION = ("--option", "people=16,windows=3,recordings=1,gender=10")
DATA = ("--data", "simulated", "--split", "recording", *OPTION)  # no sessions to link: quicker
POLICY = ("--keep", "activity", "--hide", "gender")
QUICK = (*OPTION, "--quick", "--out")


@pytest.fixture(scope="module", autouse=True)
def tiny():
    """Attackers so small that an audit takes seconds; what they find is tested elsewhere."""
    small = Budget(
        windows=120,
        draws=1,
        kernels=16,
        attackers=(CONVOLUTIONS,),
        sessions=replace(SessionBudget.quick(), kernels=8, components=8, sets=64, epochs=1),
        session_attackers=(SET,),
        looks=5,
        look_windows=20,
    )
    designs = {TREES: application_class(TREES)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Budget, "quick", classmethod(lambda cls: small))
        patch.setattr(applications, "_APPLICATIONS", designs)
        patch.setattr(audit, "LINKAGE_DRAWS", 1)
        yield


@pytest.fixture(scope="module")
def noise(command, tmp_path_factory):
    """A run of noise."""
    place = tmp_path_factory.mktemp("runs") / "noise"
    assert command("fit", "noise", *DATA, *POLICY, "--set", "snr=5", "--out", place).code == 0
    return place


@pytest.fixture(scope="module")
def none(command, tmp_path_factory):
    """A run that changes nothing."""
    place = tmp_path_factory.mktemp("runs") / "none"
    assert command("fit", "none", *DATA, *POLICY, "--out", place).code == 0
    return place


@pytest.fixture(scope="module")
def audits(command, noise, none, tmp_path_factory):
    """The folders of audits of both runs, each with its outcome."""
    place = tmp_path_factory.mktemp("audits")
    return [
        (place / run.name, command("audit", run, "--max-advantage", "1", *QUICK, place / run.name))
        for run in (noise, none)
    ]


def test_audit_writes_a_page_and_json(audits):
    place, outcome = audits[0]
    assert outcome.code == 0
    assert "gender (hide)" in outcome.out
    found = json.loads((place / "audit.json").read_text("utf-8"))
    assert found["method"] == "noise"
    assert found["conditions"]["command"].startswith("sensorveil audit noise")
    (split,) = found["splits"]
    assert not split["unseen_people"]
    assert {entry["attribute"] for entry in split["attributes"]} == {"gender", "weight", "subject"}
    assert "Gender is" in (place / "audit.html").read_text("utf-8")


@pytest.mark.slow
def test_a_second_split_with_people_never_seen(done, noise, tmp_path):
    shown = done("audit", noise, "--second-split", "subject", *QUICK, "both").out
    found = json.loads((tmp_path / "both" / "audit.json").read_text("utf-8"))
    assert [split["split"] for split in found["splits"]] == ["subject", "recording"]
    assert [split["unseen_people"] for split in found["splits"]] == [True, False]
    assert found["splits"][0]["left_out"]["subject"]
    assert set(found["gaps"]) == {"gender"}
    assert "split recording" in shown


def test_a_shadow_run_and_too_large_an_advantage(command, done, refused, noise, none):
    done("fit", "noise", *DATA, *POLICY, "--set", "snr=5", "--seed", "1", "--out", "again")
    asked = ("audit", noise, "--max-advantage", "0", *QUICK, "found", "--shadow-run")
    assert command(*asked, "again").code == 1
    assert "another seed" in refused("audit", noise, "--shadow-run", noise, *QUICK, "no")
    assert "must have the method" in refused("audit", noise, "--shadow-run", none, *QUICK, "no")


def test_compare(done, refused, audits, tmp_path):
    folders = [place for place, _ in audits]
    shown = done("compare", *folders, "--out", "page").out
    assert "noise" in (tmp_path / "page" / "compare.html").read_text("utf-8")
    assert "page/compare.html" in shown
    assert "two or more" in refused("compare", folders[0], "--out", "other")
    content = json.loads((folders[1] / "audit.json").read_text("utf-8"))
    (tmp_path / "changed").mkdir()
    changed = json.dumps({**content, "protocol": "another"})
    (tmp_path / "changed" / "audit.json").write_text(changed, "utf-8")
    assert "protocols" in refused("compare", folders[0], "changed", "--out", "other")


def test_sweep(done, refused, noise, tmp_path):
    options = ("sweep", noise, *OPTION, "--subset", "test")
    shown = done(*options, "--grid", "snr=-10:20:15", "--out", "curve").out
    found = json.loads((tmp_path / "curve" / "sweep.json").read_text("utf-8"))
    assert [point["strength"]["snr"] for point in found["points"]] == [-10, 5, 20]
    assert 0 <= found["area"] <= 1
    assert "area under the curve" in shown
    assert (tmp_path / "curve" / "sweep.html").is_file()
    assert "'loud' is unknown" in refused(*options, "--grid", "loud=1", "--out", "other")


def test_people_never_seen_cannot_be_swept(done, refused):
    policy = ("--split", "subject", "--keep", "activity", "--hide", "subject")
    done("fit", "noise", "--data", "simulated", *OPTION, *policy, "--out", "people")
    words = ("sweep", "people", *OPTION, "--grid", "snr=1", "--out", "x")
    assert "'subject' cannot be swept" in refused(*words)


def test_grids():
    assert parse_grid("snr=1:2:0.5,gender=0,0.1") == {"snr": [1, 1.5, 2], "gender": [0, 0.1]}


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


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("audit {none} --out full", "which is no part of this audit"),
        ("audit {none} --seeds -1 --out x", "--seeds"),
        ("audit {none} --max-advantage -3 --out x", "share between 0 and 1"),
        ("audit {none} --examples 21 --out x", "--examples"),
        ("compare {none} {noise} --out x", "audit.json is missing"),
        ("sweep {noise} --grid snr=1 --subset train --out x", "subset 'train'"),
    ],
)
def test_bad_audits(words, line, refused, noise, none, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    assert line in refused(*words.format(none=none, noise=noise).split())
