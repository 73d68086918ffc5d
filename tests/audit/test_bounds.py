"""No attacker beats the bound, unless the output holds more than the code: then it is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sensorveil.audit.attackers import CONVOLUTIONS, Budget
from sensorveil.audit.audit import AuditSettings, audit_runs
from sensorveil.audit.bounds import with_bounds
from sensorveil.audit.results import HIDDEN, NOT_HIDDEN, AttributeAudit
from sensorveil.audit.runner import run_attacks
from sensorveil.audit.threat_models import Fold, obfuscate_fold, train_shadow_obfuscator
from sensorveil.data.catalog import load
from sensorveil.data.splits import Split
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.baselines import Noise
from sensorveil.methods.seal import Seal
from sensorveil.methods.seal_bound import bound_code

FAST = Budget(
    windows=1000,
    draws=1,
    kernels=50,
    attackers=(CONVOLUTIONS,),
    session_attackers=(),
    looks=0,
)


class Peeping(Seal):
    """Says that it makes windows from codes alone, and lets the raw one shine through."""

    def _obfuscate(self, windows, strength, rng):
        return 0.1 * super()._obfuscate(windows, strength, rng) + windows.signal


def people(split: str = "subject") -> Split:
    return load("simulated", split, people=80, windows=6, recordings=1, gender=8.0)


def attacked(obfuscator: Obfuscator, split: Split) -> tuple[Fold, AttributeAudit]:
    fold = Fold(obfuscator, split, train_shadow_obfuscator(obfuscator, split))
    output = {(0, 0): obfuscate_fold(fold, None, 0, FAST)}
    (found,) = run_attacks([fold], output, ["gender"], [0], FAST, "cpu")
    return fold, found


def sealed(kind: type[Seal], split: Split, seed: int = 0, **generator: Any) -> Seal:
    code = {"width": 8, "epochs": 3, "rhythm_bins": 3, "energy_bins": 1, "sharpness_bins": 1}
    return kind(seed=seed, **code, **(generator or {"generator": "pool"})).fit(
        split.train, "activity", "gender"
    )


@pytest.fixture(scope="module")
def honest() -> tuple[Fold, AttributeAudit]:
    split = people()
    return attacked(sealed(Seal, split), split)


def test_a_generator_that_peeks_is_caught() -> None:
    split = people()
    fold, found = attacked(sealed(Peeping, split), split)
    (judged,) = with_bounds([fold], [found])
    assert not judged.bound.vacuous
    assert judged.worst.accuracy.low > judged.bound.accuracy
    assert judged.verdict.status == NOT_HIDDEN
    assert "more of the window than its code" in judged.verdict.reason


def test_nobody_beats_the_bound_of_an_honest_one(honest: tuple[Fold, AttributeAudit]) -> None:
    fold, found = honest
    (judged,) = with_bounds([fold], [found])
    assert found.worst.accuracy.low <= judged.bound.accuracy
    assert judged.verdict == found.verdict
    codes = fold.obfuscator.encode(fold.split.test)  # type: ignore[attr-defined]
    wanted = bound_code(codes, fold.split.test.codes("gender"), fold.split.test.subject, "gender")
    assert judged.bound.accuracy == pytest.approx(wanted.accuracy)


def test_a_verdict_follows_from_what_is_beaten(honest: tuple[Fold, AttributeAudit]) -> None:
    """An attack above the bound counts, one on raw data or on the control does not."""
    fold, found = honest
    high = replace(found.worst.accuracy, value=0.99, low=0.98, high=1.0)
    passed = replace(found, verdict=replace(found.verdict, status=HIDDEN))
    more = high.above(0.5)
    for level, status in (("raw", HIDDEN), ("control", HIDDEN), ("lazy", NOT_HIDDEN)):
        attacks = (replace(found.worst, threat_model=level, accuracy=high, advantage=more),)
        (judged,) = with_bounds([fold], [replace(passed, attacks=attacks)])
        assert judged.verdict.status == status
    # Nearly all windows are of one class: to name it is no attack, and says nothing of the bound.
    constant = replace(found.worst, threat_model="lazy", accuracy=high, advantage=high.above(0.99))
    (judged,) = with_bounds([fold], [replace(passed, attacks=(constant,))])
    assert judged.verdict.status == HIDDEN


def test_folds_hold_all_together(honest: tuple[Fold, AttributeAudit]) -> None:
    fold, found = honest
    (one,) = with_bounds([fold], [found])
    (both,) = with_bounds([fold, fold], [found])
    assert both.bound.people == 2 * one.bound.people
    assert both.bound.accuracy > one.bound.accuracy
    assert both.bound.confidence == pytest.approx(0.95)


def test_no_bound_without_a_code_or_with_people_who_were_trained_on(
    honest: tuple[Fold, AttributeAudit],
) -> None:
    fold, found = honest
    plain = Noise().fit(fold.split.train, "activity", "gender")
    assert with_bounds([Fold(plain, fold.split, plain)], [found])[0].bound is None
    seen = replace(fold.split, test=fold.split.train)
    assert with_bounds([Fold(fold.obfuscator, seen, fold.obfuscator)], [found])[0].bound is None
    private = {"width": 4, "epochs": 1, "epsilon": 1.0, "generator": "pool"}
    randomised = Seal(**private).fit(fold.split.train, "activity", "gender")
    assert with_bounds([Fold(randomised, fold.split, randomised)], [found])[0].bound is None


@pytest.mark.slow
def test_nobody_beats_the_bound_where_windows_are_generated() -> None:
    split = people()
    small = {"training_steps": 200, "num_candidates": 2, "sampling_steps": 4, "latent_size": 8}
    few = {"autoencoder_widths": (8,), "denoiser_width": 32, "denoiser_blocks": 1}
    made = sealed(Seal, split, generator="diffusion", windows_per_code=5, **small, **few)
    fold, found = attacked(made, split)
    (judged,) = with_bounds([fold], [found])
    assert judged.bound is not None
    assert not judged.bound.vacuous
    assert found.worst.accuracy.low <= judged.bound.accuracy
    assert judged.verdict == found.verdict


@pytest.mark.slow
def test_the_audit_has_the_bound(small_audit: Callable[..., AuditSettings]) -> None:
    split = load("simulated", "subject", people=16, windows=3, recordings=1)
    obfuscator, other = (sealed(Seal, split, seed=seed) for seed in (0, 1))
    found = audit_runs([([obfuscator], [split])], small_audit(FAST), shadows=[other])
    (wanted,) = with_bounds([Fold(obfuscator, split, other)], [found.main.attribute("gender")])
    assert wanted.bound is not None
    assert found.main.attribute("gender").bound == wanted.bound
