"""Every example in the documents runs, every link leads somewhere, pages stay short."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from sensorveil.audit import applications, attackers, measures
from sensorveil.cli.main import main
from sensorveil.data import catalog
from sensorveil.methods import registry
from sensorveil.methods.registry import list_methods

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), flags=re.M | re.S)


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


# The table that table.md loads is written by tests/data/test_table.py, which runs its example.
SELF_CONTAINED = [page for page in pages_with("python") if page.name != "table.md"]


@pytest.fixture
def _registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page registers is gone after it."""
    for module, name in (
        (applications, "_APPLICATIONS"),
        (attackers, "_ATTACKERS"),
        (measures, "_MEASURES"),
        (registry, "_REGISTERED"),
        (catalog, "_REGISTERED"),
    ):
        monkeypatch.setattr(module, name, dict(getattr(module, name)))


@pytest.mark.slow
@pytest.mark.usefixtures("_registries")
@pytest.mark.parametrize("page", SELF_CONTAINED, ids=name_of)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All examples of a page run one after the other, with the names of those before."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("sh"), ids=name_of)
def test_commands_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All commands of a page run one after the other, in one empty folder."""
    monkeypatch.chdir(tmp_path)
    for script in blocks(page, "sh"):
        for line in script.replace("\\\n", " ").splitlines():
            if not line.startswith("sensorveil "):
                continue
            monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
            with pytest.raises(SystemExit) as stopped:
                main()
            assert stopped.value.code == 0, f"{line}: {capsys.readouterr().err}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_readme_names_every_method_and_stays_short() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 120
    for name in list_methods():
        assert f"`{name}`" in text


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/methods/*.md")), ids=name_of)
def test_method_pages_fit_a_screen(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(text.splitlines()) <= 60
    for heading in ("## Use it", "## What it does not do"):
        assert heading in text
