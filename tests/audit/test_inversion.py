"""What the audit and its page say of ObscureNet's deterministic modifier: anyone can undo it."""

from __future__ import annotations

import pytest

from sensorveil.audit.attackers import CONVOLUTIONS, NETWORK, Budget
from sensorveil.audit.audit import AuditSettings, audit_runs
from sensorveil.audit.results import IGNORANT, NOT_HIDDEN, SEMI
from sensorveil.classifiers import ClassifierSettings
from sensorveil.data.catalog import load
from sensorveil.methods.obscurenet import ObscureNet
from sensorveil.report.page import render

BUDGET = Budget(
    windows=1500,
    network=ClassifierSettings(width=16, epochs=8, batch_size=64, learning_rate=5e-3),
    kernels=50,
    rounds=15,
    attackers=(NETWORK, CONVOLUTIONS),
)


@pytest.mark.slow
def test_a_deterministic_modifier_is_inverted_and_the_page_says_so() -> None:
    split = load("simulated", "recording", people=16, windows=24, gender=6.0, identity=0.3)
    obfuscator = ObscureNet(modifier="deterministic", epochs=150, discriminator_steps=2)
    obfuscator.fit(split.train, "activity", "gender")
    settings = AuditSettings(BUDGET, (0,), True, 0, ("none",))
    found = audit_runs([([obfuscator], [split])], settings)
    gender = found.main.attribute("gender")
    read = {(a.threat_model, a.attacker): a.accuracy.value for a in gender.attacks}
    assert read[IGNORANT, NETWORK] < 0.4  # the papers' own measure: far worse than guessing
    assert max(read[SEMI, family] for family in BUDGET.attackers) > 0.9
    assert found.verdict().status == NOT_HIDDEN
    text = render(found)
    assert "Gender is not hidden" in text
    assert "hidden from" in text.split("<nav")[0]  # who has raw data only
    assert f"{100 * gender.worst.accuracy.value:.1f}%" in text.split("<nav")[0]
