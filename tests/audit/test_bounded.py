"""No attacker beats the bound, unless the output holds more than the code: then it is caught."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sensorveil.audit.attackers import CONVOLUTIONS, Budget
from sensorveil.audit.audit import AuditSettings, audit
from sensorveil.audit.bounded import _beats, with_bounds
from sensorveil.audit.folds import Fold, obfuscated, second
from sensorveil.audit.ladder import run_attacks
from sensorveil.audit.results import CONTROL, HIDDEN, NOT_HIDDEN, RAW, AttributeAudit, read_audit
from sensorveil.data.catalog import load
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.methods.seal_bound import bound_code
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.noise import Noise
from sensorveil.methods.seal import Seal

FAST = Budget(windows=1000, kernels=50, rounds=20, families=(CONVOLUTIONS,))


class Peeping(Seal):
    """Says that it makes windows from codes alone, and lets the raw one shine through."""

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        return 0.1 * super()._obfuscate(windows, strength, rng) + windows.signal


def people(split: str = "subject") -> Split:
    return load("simulated", split, people=80, windows=6, recordings=1, gender=8.0)


def climbed(obfuscator: Obfuscator, split: Split) -> tuple[Fold, AttributeAudit]:
    fold = Fold(obfuscator, split, second(obfuscator, split))
    output = {(0, 0): obfuscated(fold, None, 0, FAST)}
    (found,) = run_attacks([fold], output, ["gender"], [0], FAST, "cpu")
    return fold, found


def sealed(kind: type[Seal], split: Split, seed: int = 0) -> Seal:
    settings = {"width": 8, "epochs": 3, "rhythm": 3, "intensity": 1}
    return kind(seed=seed, **settings).fit(split.train, "activity", "gender")


@pytest.fixture(scope="module")
def honest() -> tuple[Fold, AttributeAudit]:
    split = people()
    return climbed(sealed(Seal, split), split)


def test_a_generator_that_peeks_is_caught() -> None:
    split = people()
    fold, found = climbed(sealed(Peeping, split), split)
    (judged,) = with_bounds([fold], [found])
    assert judged.bound is not None
    assert not judged.bound.vacuous
    assert judged.worst.accuracy.low > judged.bound.accuracy
    assert judged.verdict.status == NOT_HIDDEN
    assert "more of the window than its code" in judged.verdict.reason


def test_nobody_beats_the_bound_of_an_honest_one(honest: tuple[Fold, AttributeAudit]) -> None:
    fold, found = honest
    (judged,) = with_bounds([fold], [found])
    assert judged.bound is not None
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
    guessing = (
        replace(found.worst, threat_model="lazy", accuracy=high, advantage=high.above(0.99)),
    )
    (judged,) = with_bounds([fold], [replace(passed, attacks=guessing)])
    assert judged.verdict.status == HIDDEN


def test_folds_hold_all_together(honest: tuple[Fold, AttributeAudit]) -> None:
    fold, found = honest
    (one,) = with_bounds([fold], [found])
    (both,) = with_bounds([fold, fold], [found])
    assert one.bound is not None
    assert both.bound is not None
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
    randomised = Seal(width=4, epochs=1, epsilon=1.0).fit(fold.split.train, "activity", "gender")
    assert with_bounds([Fold(randomised, fold.split, randomised)], [found])[0].bound is None


@pytest.mark.slow
def test_the_audit_has_the_bound() -> None:
    split = load("simulated", "subject", people=16, windows=3, recordings=1)
    obfuscator, other = (sealed(Seal, split, seed=seed) for seed in (0, 1))
    settings = AuditSettings(FAST, (0,), True, 0, (), 0)
    found = audit([([obfuscator], [split])], settings, others=[other])
    (wanted,) = with_bounds([Fold(obfuscator, split, other)], [found.main.attribute("gender")])
    assert wanted.bound is not None
    assert found.main.attribute("gender").bound == wanted.bound


RESULTS = Path(__file__).parents[2] / "results"
DATA = {"geotec": "GeoTec", "audiomnist": "AudioMNIST", "watch": "watch"}
NAMES = {**DATA, "motionsense": "MotionSense"}
SPOKEN = {"weight": "weight group", "subject": "who it is", "device": "phone or watch"}
NOT_SHOWN = {"age", "height", "accent", "native"}


@pytest.mark.parametrize("place", sorted(RESULTS.glob("*-seal-*-audit")), ids=lambda p: p.name)
def test_seals_document_shows_its_audits_and_no_attacker_beats_the_bound(place: Path) -> None:
    audit, text = read_audit(place), (RESULTS.parent / "docs" / "seal.md").read_text("utf-8")
    part, name = audit.main, NAMES[place.name.split("-")[0]]
    raw, after = (100 * value.value for value in (part.kept[0].raw, part.kept[0].unchanged))
    kept = f"{part.kept[0].attribute} {raw:.1f}, {after:.1f}"
    assert f"| {name} | {kept} |" in text
    for found in part.attributes:
        others = [one for one in found.attacks if one.threat_model not in (RAW, CONTROL)]
        if part.unseen_people:
            assert found.bound is not None
            assert not any(_beats(one, found.bound) for one in others)
        if found.attribute in NOT_SHOWN and found.verdict.status != NOT_HIDDEN:
            continue
        spoken = SPOKEN.get(found.attribute, found.attribute)
        spoken += " (not in the policy)" if found.role == "unlisted" else ""
        best, area = found.worst.accuracy.value, max(one.auc.value for one in others)
        row = f"| {spoken} | {100 * found.majority:.1f} | {100 * best:.1f} | {area:.2f} |"
        assert re.search(
            rf"\| {name} \| ({re.escape(kept)})? ?{re.escape(row)} {found.verdict.status} \|",
            text,
        ), row


@pytest.mark.parametrize("data", DATA)
def test_seals_document_shows_what_fixed_models_read(data: str) -> None:
    places = [RESULTS / f"{data}-seal-subject-seed{seed}.json" for seed in range(5)]
    scores = [json.loads(place.read_text())["scores"] for place in places]
    text = " ".join((RESULTS.parent / "docs" / "seal.md").read_text("utf-8").split())
    shown = ", ".join(
        f"{each[0]['attribute']} {100 * np.mean([one['accuracy']['value'] for one in each]):.1f}"
        for each in zip(*scores, strict=True)
    )
    assert f"on {DATA[data]} {shown}" in text


def test_seals_document_shows_the_seeds_of_motionsense() -> None:
    text = (RESULTS.parent / "docs" / "seal.md").read_text("utf-8")
    for protocol, spoken in (("paper", "the papers' split"), ("subject", "people never seen")):
        places = [RESULTS / f"motionsense-seal-{protocol}-seed{seed}.json" for seed in range(5)]
        runs = [json.loads(place.read_text()) for place in places]
        assert [run["runs"][0]["seed"] for run in runs] == [0, 1, 2, 3, 4]
        activity = [run["scores"][0] for run in runs]
        raw, after = (
            np.mean([one[what]["value"] for one in activity])
            for what in ("raw_accuracy", "accuracy")
        )
        kept = [
            np.mean([fold[f"{what}_correlation"] for run in runs for fold in run["signal"]])
            for what in ("frequency", "energy")
        ]
        assert after > raw - 0.005
        assert kept[0] > 0.6
        assert kept[1] > 0.4
        shown = f"{100 * raw:.1f} | {100 * after:.1f} | {kept[0]:.2f} | {kept[1]:.2f}"
        assert f"| {spoken} | {shown} |" in text


def test_seals_document_shows_what_is_left_where_the_class_alone_is_kept() -> None:
    signals = [
        read_audit(RESULTS / f"motionsense-resample-{protocol}-audit").main.signal
        for protocol in ("paper", "subject")
    ]
    shown = [f"{one.frequency_correlation:.2f} and {one.energy_correlation:.2f}" for one in signals]
    text = " ".join((RESULTS.parent / "docs" / "seal.md").read_text("utf-8").split())
    assert "has {} with the papers' split, {} with people never seen".format(*shown) in text


def test_seals_document_says_why_raw_windows_are_read_in_two_ways() -> None:
    found = read_audit(RESULTS / "motionsense-seal-subject-audit")
    places = [RESULTS / f"motionsense-seal-subject-seed{seed}.json" for seed in range(5)]
    runs = [json.loads(place.read_text()) for place in places]
    raw = np.mean([run["scores"][0]["raw_accuracy"]["value"] for run in runs])
    audited, (larger, *others) = Budget.quick().network, [run["inference"] for run in runs]
    assert (found.quick, found.seeds) == (True, (0,))
    assert all(other == larger for other in others)
    text = " ".join((RESULTS.parent / "docs" / "seal.md").read_text("utf-8").split())
    assert f"in {raw:.1%} here and in {found.main.kept[0].raw.value:.1%} by the audit" in text
    assert (
        f"(a width of {audited.width} and {audited.epochs} epochs,"
        f" here {larger['width']} and {larger['epochs']})"
    ) in text


def test_seals_document_says_what_is_read_of_age_from_raw_windows() -> None:
    age = read_audit(RESULTS / "motionsense-seal-subject-audit").main.attribute("age")
    raw = max(one.accuracy.value for one in age.attacks if one.threat_model == RAW)
    assert raw < age.worst.accuracy.value
    text = " ".join((RESULTS.parent / "docs" / "seal.md").read_text("utf-8").split())
    assert f"of raw windows age is read in no more than {raw:.1%}" in text


def test_seals_document_says_what_adds_up_on_audiomnist() -> None:
    found = read_audit(RESULTS / "audiomnist-seal-paper-audit").main
    text = " ".join((RESULTS.parent / "docs" / "seal.md").read_text("utf-8").split())
    told = {
        one.windows: f"{100 * (one.accuracy.value - one.majority):.1f}"
        for one in found.attribute("subject").sessions
        if one.significant
    }
    assert f"by {told[20]} points (20 clips; all clips: {told[None]})" in text
    assert found.attribute("subject").verdict.status == NOT_HIDDEN
    assert {found.attribute(name).verdict.status for name in ("gender", "age")} == {HIDDEN}


def test_seals_document_says_who_is_linked_on_audiomnist_and_that_its_bound_is_loose() -> None:
    found = read_audit(RESULTS / "audiomnist-seal-subject-audit").main
    text = " ".join((RESULTS.parent / "docs" / "seal.md").read_text("utf-8").split())
    assert (found.folds, found.test_people) == ((0, 1, 2, 3, 4), 60)
    assert found.identity is not None
    assert found.identity.status == HIDDEN
    linked = re.search(
        r"in ([\d.]+)% of cases \(guessing gives ([\d.]+)%, raw data ([\d.]+)%\)",
        found.identity.reason,
    )
    assert linked
    assert "AudioMNIST in {}% (guessing: {}, raw data: {})".format(*linked.groups()) in text
    bounds = {one.attribute: one.bound for one in found.attributes}
    loose = [name for name, one in bounds.items() if one is not None and one.accuracy < 1]
    assert loose == ["age"]
    assert f"(age on AudioMNIST: {bounds['age'].accuracy:.1%})" in text


def test_seals_document_says_what_adds_up_and_who_is_linked_on_geotec() -> None:
    found = read_audit(RESULTS / "geotec-seal-subject-audit").main
    text = " ".join((RESULTS.parent / "docs" / "seal.md").read_text("utf-8").split())
    reason = found.attribute("device").verdict.reason
    told = re.search(r"up all windows of a recording, .* ([\d.]+) points better", reason)
    assert told
    assert f"adds up all windows of a recording is {told[1]} points better" in text
    assert found.identity is not None
    assert found.identity.status == NOT_HIDDEN
    linked = re.search(r"in ([\d.]+)% of cases \(guessing gives ([\d.]+)%\)", found.identity.reason)
    assert linked
    assert f"on GeoTec in {linked[1]}% (guessing: {linked[2]})" in text


@pytest.mark.data
def test_seals_document_says_how_far_luck_goes_where_a_fold_has_few_people(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENSORVEIL_DATA", str(real_data))
    splits = [load("motionsense", "subject", fold=fold) for fold in range(4)]
    text = " ".join((RESULTS.parent / "docs" / "seal.md").read_text("utf-8").split())
    shown = []
    for name in ("age", "height"):
        learnt, best, windows = 0, 0, 0
        for split in splits:
            true = split.test.codes(name)
            counts = np.bincount(true, minlength=3)
            learnt += counts[np.bincount(split.train.codes(name)).argmax()]
            best, windows = best + counts.max(), windows + len(true)
        shown += [100 * learnt / windows, 100 * best / windows]
    assert "is right in {:.1f}% if it is the one most frequent".format(*shown) in text
    assert "and in {1:.1f}% if it is the best one in hindsight".format(*shown) in text
    assert "for height it is {2:.1f}% and {3:.1f}%".format(*shown) in text


def test_seals_audits_have_as_many_seeds_of_attackers_as_its_document_says() -> None:
    places = sorted(RESULTS.glob("*-seal-*-audit"))
    several = [place.name for place in places if len(read_audit(place).seeds) != 1]
    assert several == ["motionsense-seal-paper-audit", "watch-seal-recording-audit"]
    assert read_audit(RESULTS / several[0]).run["seed"] == 0


def test_seals_document_says_what_one_seed_of_attackers_found_on_watch() -> None:
    one, three = (
        read_audit(RESULTS / f"watch-seal-recording-audit{end}") for end in ("-seed0", "")
    )
    assert (len(one.seeds), len(three.seeds)) == (1, 3)
    assert one.run["seed"] == three.run["seed"] == 0
    sides = [audit.main.attribute("side") for audit in (one, three)]
    assert [side.verdict.status for side in sides] == [NOT_HIDDEN, HIDDEN]
    assert sides[0].worst.threat_model == "insider"
    better = [100 * (side.worst.accuracy.value - side.majority) for side in sides]
    text = " ".join((RESULTS.parent / "docs" / "seal.md").read_text("utf-8").split())
    assert (
        f"an insider, was {better[0]:.1f} points better than guessing; with three seeds of"
        f" attackers it is {better[1]:.1f}."
    ) in text


def test_seals_document_says_how_often_motionsense_was_called_hidden() -> None:
    places = [RESULTS / f"motionsense-seal-paper-audit-seed{seed}" for seed in range(5)]
    audits = [read_audit(place) for place in places]
    assert {(one.quick, one.seeds) for one in audits} == {(True, (0,))}
    found = [
        (audit.run["seed"], one.attribute, one.verdict)
        for audit in audits
        for one in audit.main.attributes
        if one.verdict.status != HIDDEN
    ]
    ((seed, attribute, verdict),) = found
    assert (seed, attribute, verdict.status) == (0, "gender", NOT_HIDDEN)
    assert sum(len(audit.main.attributes) for audit in audits) == 25
    text = " ".join((RESULTS.parent / "docs" / "seal.md").read_text("utf-8").split())
    points = re.search(r"([\d.]+) points better", verdict.reason)
    assert points
    assert f"whole recording was {points[1]} points better than guessing" in text
