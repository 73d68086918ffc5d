"""What the documents show is run, and what they state is in the results."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from sensorveil.audit.results import HIDDEN, read_audit
from sensorveil.cli.main import main
from sensorveil.methods.registry import list_methods

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
FULLY = "fully informed"


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


@pytest.mark.slow
def test_readme_python_runs():
    (code,) = blocks(README, "python")
    names: dict = {}
    exec(code, names)
    assert len(names["hidden"]) == len(names["windows"].test)


@pytest.mark.slow
def test_readme_commands_run(tmp_path, monkeypatch, capsys):
    (script,) = blocks(README, "sh")
    monkeypatch.chdir(tmp_path)
    for line in script.splitlines():
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as exit_code:
            main()
        assert exit_code.value.code == 0, f"{line}: {capsys.readouterr().err}"
    assert (tmp_path / "hidden.npz").is_file()
    assert json.loads((tmp_path / "scores.json").read_text())["method"] == "resample"


def test_readme_names_every_method():
    for name in list_methods():
        assert f"| `{name}` |" in README


def test_readme_figures_are_those_of_the_results():
    """The table in the README is made from the files in results/."""
    rows = ["| data | split | activity (keep) | gender (hide) | always guessing gender |"]
    rows.append("|---|---|---|---|---|")
    for name, split in (("none", "paper"), ("resample", "paper"), ("none", "subject")):
        place = ROOT / "results" / f"motionsense-{name}-{split}.json"
        scores = {score["attribute"]: score for score in json.loads(place.read_text())["scores"]}
        activity, gender = (scores[a]["accuracy"]["value"] for a in ("activity", "gender"))
        rows.append(
            f"| `{name}` | {split} | {100 * activity:.1f} | {100 * gender:.1f} |"
            f" {100 * scores['gender']['majority']:.1f} |"
        )
    assert "\n".join(rows) in README, "\n".join(rows)


@pytest.mark.parametrize("split", ["paper", "subject"])
def test_what_the_readme_says_of_the_audits_is_in_them(split):
    found = read_audit(ROOT / "results" / f"motionsense-resample-{split}-audit")
    assert "gender and identity are hidden" in " ".join(README.split())
    assert (found.hide, found.main.split) == (("gender", "subject"), split)
    assert found.verdict().status == HIDDEN
    assert found.quick == (split == "subject")
    (activity,) = found.main.kept
    assert activity.unchanged.value >= activity.raw.value - 0.01
    assert found.main.test_people == 24


def test_readme_reproduces_obscurenet_as_the_results_do():
    place = ROOT / "results" / "obscurenet-motionsense-gender-accuracy.json"
    found = json.loads(place.read_text())
    assert len(found["seeds"]) == 5

    def figures(row: dict, name: str) -> str:
        read = [row[kind][name]["accuracy"]["value"] for kind in ("read", "read_dense")]
        return f"{' / '.join(f'{100 * value:.1f}' for value in read)} | {row['paper'][name]:.2f}"

    shown = re.findall(r"^\| [^|]* \| (\d[^|]* / [^|]* \| .*) \|$", README, flags=re.M)
    rows = [found["raw"], *found["rows"]]
    assert shown == [f"{figures(row, 'activity')} | {figures(row, 'gender')}" for row in rows]


@pytest.mark.parametrize(
    ("modifier", "level"),
    [
        ("deterministic", "semi-informed"),
        ("randomized", "semi-informed"),
        ("randomized", "insider"),
        ("randomized", "fully informed"),
    ],
)
def test_readme_says_what_attackers_of_obscurenet_reach(modifier, level):
    audit = read_audit(ROOT / "results" / f"motionsense-obscurenet-{modifier}-paper-audit")
    gender = next(one for one in audit.splits[0].attributes if one.attribute == "gender")
    best = max(one.accuracy.value for one in gender.attacks if one.threat_model == level)
    assert f"{100 * best:.1f}%" in README.replace("\n", " ")


def test_links_lead_somewhere():
    for document in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text("utf-8")):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document.name}: {target}"
