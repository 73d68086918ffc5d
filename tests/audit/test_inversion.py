"""What attackers find in the output of ObscureNet's deterministic modifier: anyone can undo it."""

from __future__ import annotations

import pytest

from sensorveil.audit.attack import run_attacks
from sensorveil.audit.attackers import CONVOLUTIONS, NETWORK, Budget
from sensorveil.audit.results import IGNORANT, NOT_HIDDEN, SEMI
from sensorveil.audit.threat_models import Fold, obfuscate_fold
from sensorveil.classifiers import ClassifierSettings
from sensorveil.data.catalog import load
from sensorveil.methods.obscurenet import ObscureNet

SMALL = ClassifierSettings(width=16, epochs=8, batch_size=64, learning_rate=5e-3)
BUDGET = Budget(windows=1500, network=SMALL, kernels=50, attackers=(NETWORK, CONVOLUTIONS))


@pytest.mark.slow
def test_a_deterministic_modifier_is_inverted() -> None:
    split = load("simulated", "recording", people=16, windows=24, gender=6.0, identity=0.3)
    obfuscator = ObscureNet(modifier="deterministic", epochs=150, discriminator_steps=2)
    fold = Fold(obfuscator.fit(split.train, "activity", "gender"), split, obfuscator)
    output = {(0, 0): obfuscate_fold(fold, None, 0, BUDGET)}
    (gender,) = run_attacks([fold], output, ["gender"], [0], BUDGET)
    accuracies = {(a.threat_model, a.attacker): a.accuracy.value for a in gender.attacks}
    assert accuracies[IGNORANT, NETWORK] < 0.4  # the papers' measure: far below the majority
    assert max(accuracies[SEMI, attacker] for attacker in BUDGET.attackers) > 0.9
    assert gender.verdict.status == NOT_HIDDEN
