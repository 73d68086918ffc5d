"""The trade-off plot: a run, its variants and the plain methods, by one attacker."""

from __future__ import annotations

import numpy as np

from sensorveil.audit.attackers import Budget
from sensorveil.audit.audit import AuditSettings, _trade_off
from sensorveil.audit.threat_models import Fold, obfuscate_fold
from sensorveil.data.splits import Split
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.privdiffuser import PrivDiffuser


def test_other_negative_targets_stand_beside_the_run() -> None:
    """Guidance away from the wearer's own class shows it to an attacker who trains on the output."""
    train, test = example_windows(), example_windows(seed=5)
    split = Split(train=train, test=test, fitting=train, validation=test)
    settings = {"batch_size": 32, "epochs": 40, "unet_width": 16, "surrogate_epochs": 20}
    obfuscator = PrivDiffuser(mutual_information_weight=0.1, **settings)
    obfuscator.fit(train, "activity", "gender")
    fold, asked = (
        Fold(obfuscator, split, obfuscator),
        AuditSettings(Budget.quick(), (0,), plain=("none",)),
    )
    strong = {"gender": 3.0}
    output = obfuscate_fold(fold, strong, 0, asked.budget)
    points = {one.name: one for one in _trade_off(fold, output, asked, strong, "cpu")}
    ways = {target: f"privdiffuser, negative_target={target}" for target in ("wearer", "predicted")}
    assert list(points) == ["privdiffuser", *ways.values(), "none"]
    assert points[ways["wearer"]].hidden > 0.8
    guess = np.bincount(test.codes("gender")).max() / len(test)
    assert points["privdiffuser"].hidden < guess + 0.2
    assert points["none"].kept > 0.9
    off = {"gender": 0.0}  # the strength is the variants' too: nobody is led away from anything
    output = obfuscate_fold(fold, off, 0, asked.budget)
    points = {one.name: one for one in _trade_off(fold, output, asked, off, "cpu")}
    assert points[ways["wearer"]].hidden < guess + 0.2
