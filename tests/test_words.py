"""The words of the field: private ones that were replaced must not return (docs/glossary.md)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

REPLACED = {
    "veil": "obfuscator, or method",
    "veils": "obfuscators, or methods",
    "told": "condition, conditioned on",
    "led": "guided",
    "leading": "guided by, condition",
    "beside": "null condition; next to, with",
    "avoids": "negative_target",
    "tries": "num_candidates, attempts",
    "judge": "candidate scorer, or criterion",
    "judges": "candidate scorer, or criterion",
    "panel": "ensemble",
    "coin": "randomize_hidden_class",
    "reader": "classifier",
    "readers": "classifiers",
    "rung": "threat model",
    "climb": "run attacks",
    "ladder": "threat models",
    "guessing": "majority baseline",
    "void": "inconclusive",
    "evidence": "attack dataset",
    "lesson": "training set, labelled windows",
    "course": "training config",
    "player": "training target",
    "players": "training targets",
    "altered": "with_settings",
    "abreast": "stacked",
    "folded": "fused",
    "warmth": "warm-up factor",
    "surprise": "cross-entropy",
    "rivals": "runner-up ratio",
    "afforded": "feasible bins",
    "strangers": "people unseen by the classifier",
    "whoever": "anybody who",
    "knob": "strength",
    "knobs": "strengths",
    "in_half": "autocast",
}
"""What is not said any more, and what is said instead."""

EXCEPTIONS = ("csv.reader", "csv.DictReader", "matplotlib", "rich_help_panel")
"""Other people's names that hold such a word."""


def files() -> list[Path]:
    found = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("src/**/*.j2"),
        *ROOT.glob("tests/**/*.py"),
        *ROOT.glob("benchmarks/**/*.py"),
        *ROOT.glob("benchmarks/**/*.toml"),
    ]
    not_checked = {Path(__file__).name, "CHANGELOG.md", "glossary.md"}
    return [path for path in found if path.name not in not_checked]


def test_replaced_words_do_not_return() -> None:
    pattern = re.compile(
        rf"(?<![A-Za-z])(?:{'|'.join(sorted(REPLACED))})(?![A-Za-z])", flags=re.IGNORECASE
    )
    found = []
    for path in files():
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            for exception in EXCEPTIONS:
                line = line.replace(exception, "")
            for match in pattern.finditer(line):
                word = match.group(0).lower()
                place = f"{path.relative_to(ROOT)}:{number}"
                found.append(f"{place}: '{word}': say {REPLACED[word]}")
    assert not found, f"{len(found)} lines:\n" + "\n".join(found[:400])
