"""The trade-off plot: a run, its variants and the plain methods, by one attacker."""

from __future__ import annotations

import numpy as np

from sensorveil.audit.attackers import Budget
from sensorveil.audit.audit import AuditSettings, _trade_off
from sensorveil.audit.folds import Fold, obfuscated
from sensorveil.data.splits import Split
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.guided_settings import AVOIDED
from sensorveil.methods.privdiffuser import PrivDiffuser


def test_every_way_to_avoid_stands_beside_the_run() -> None:
    """Leading away from the wearer's own class tells that class to whoever trains on the output."""
    train, test = example_windows(), example_windows(seed=5)
    split = Split(train=train, test=test, fitting=train, validation=test)
    settings = {"batch": 32, "epochs": 60, "width": 16, "regularise": 0.1, "reader_epochs": 40}
    obfuscator = PrivDiffuser(told="class", **settings).fit(train, "activity", "gender")
    fold, asked = (
        Fold(obfuscator, split, obfuscator),
        AuditSettings(Budget.quick(), (0,), plain=("none",)),
    )
    strong = {"gender": 3.0}
    output = obfuscated(fold, strong, 0, asked.budget)
    points = {one.name: one for one in _trade_off(fold, output, asked, strong, "cpu")}
    ways = {way: f"privdiffuser, avoids={way}" for way in AVOIDED if way != "random"}
    assert list(points) == ["privdiffuser", *ways.values(), "none"]
    assert points[ways["wearer"]].hidden > 0.8
    guess = np.bincount(test.codes("gender")).max() / len(test)
    assert points["privdiffuser"].hidden < guess + 0.2
    assert points["none"].kept > 0.9
    off = {"gender": 0.0}  # the strength is the variants' too: nobody is led away from anything
    output = obfuscated(fold, off, 0, asked.budget)
    points = {one.name: one for one in _trade_off(fold, output, asked, off, "cpu")}
    assert points[ways["wearer"]].hidden < guess + 0.2
