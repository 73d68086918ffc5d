"""sensorveil audit --original --obfuscated: two tables, whatever obfuscated one of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

TOML = """
file = "{name}.csv"
subject = "person"
recording = "session"
sample_rate = 20
channels = ["ax", "ay"]
attributes = ["activity", "gender"]

[window]
length = 16
stride = 16
"""


@pytest.fixture
def tables(tmp_path: Path) -> pd.DataFrame:
    """raw.csv and same.csv: ten people walk and rest in two recordings each; gender is a level."""
    rng = np.random.default_rng(0)
    rows = []
    for person in range(10):
        for number, activity in enumerate(("walk", "rest", "walk", "rest")):
            level = [person % 2, activity == "walk"] + 0.2 * rng.normal(size=(320, 2))
            rows.append(
                pd.DataFrame(level, columns=["ax", "ay"]).assign(
                    person=f"p{person}",
                    session=number,
                    activity=activity,
                    gender="fm"[person % 2],
                )
            )
    table = pd.concat(rows)
    for name in ("raw", "same"):
        write(table, name)
    return table


def write(table: pd.DataFrame, name: str) -> None:
    table.to_csv(f"{name}.csv", index=False)
    Path(f"{name}.toml").write_text(TOML.format(name=name), "utf-8")


ASKED = ("audit", "--original", "raw.toml", "--keep", "activity", "--hide", "gender", "--quick")


@pytest.mark.slow
def test_output_that_is_raw_data_is_not_hidden(tables, done):
    shown = done(*ASKED, "--obfuscated", "same.toml", "--out", "found").out
    assert "Gender is not hidden" in shown
    found = json.loads(Path("found/audit.json").read_text("utf-8"))
    (split,) = found["splits"]
    assert set(split["not_asked"]) >= {"lazy attackers", "fully informed attackers", "donors"}
    assert not Path("found.unfinished").exists()


def test_tables_that_do_not_line_up_are_refused(tables, refused):
    write(tables[tables["person"] != "p3"], "fewer")
    assert "recording" in refused(*ASKED, "--obfuscated", "fewer.toml", "--out", "found")
    write(tables.assign(ax=np.inf), "infinite")
    refused(*ASKED, "--obfuscated", "infinite.toml", "--out", "found")


def test_a_run_and_tables_together_are_refused(tables, refused):
    both = (*ASKED, "--obfuscated", "same.toml", "--out", "found")
    assert "both --original and --obfuscated" in refused(*both, "raw.csv")
    assert "both --original and --obfuscated" in refused(*ASKED, "--out", "found")
