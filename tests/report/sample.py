"""A made-up audit that looks like a real one: for tests of the page only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from sensorveil.audit.criterion import judge_donors
from sensorveil.audit.results import (
    CONTROL,
    FULL,
    HIDDEN,
    IGNORANT,
    INCONCLUSIVE,
    LAZY,
    LOOKS,
    MAX_ADVANTAGE,
    MAX_AUC,
    NOT_HIDDEN,
    PERSON,
    RAW,
    RECORDING,
    SEMI,
    THREAT_MODELS,
    Application,
    Attack,
    AttributeAudit,
    Audit,
    BayesRisk,
    ConditionProbe,
    DonorAudit,
    Example,
    Information,
    KeptAttribute,
    Linkage,
    Membership,
    Nearness,
    Reidentification,
    SessionPoint,
    SignalUtility,
    SplitAudit,
    TradeOff,
    Verdict,
)
from sensorveil.methods.seal_bound import Bound
from sensorveil.report import (
    Difference,
    SweepPoint,
    render,
    render_comparison,
    render_sweep,
)
from sensorveil.statistics import Estimate

FAMILIES = ("cnn", "random convolutions", "boosted trees")


def estimate(value: float, half: float = 0.03) -> Estimate:
    low, high = max(0.0, value - half), min(1.0, value + half)
    return Estimate(value, low, high, people=24, seeds=3, spread=0.004)


def attack(level: str, family: str, accuracy: float, majority: float, auc: float = 0.5) -> Attack:
    """An attack on 24 people, which finds a leak where it is above a limit of the criterion."""
    gain = accuracy - majority
    found = level != RAW and (gain > MAX_ADVANTAGE or auc > MAX_AUC)
    return Attack(
        level,
        family,
        accuracy=estimate(accuracy),
        advantage=Estimate(gain, gain - 0.02, gain + 0.02, people=24, seeds=3),
        balanced_accuracy=estimate(0.5 + gain / 2),
        auc=Estimate(auc, auc - 0.02, auc + 0.02, people=24, seeds=3),
        tpr_at_1pct=estimate(max(0.01, gain / 4), 0.005),
        p_value=0.0005 if found else 0.41,
        found=found,
    )


def curve(gains: Sequence[float], found: bool = False) -> tuple[SessionPoint, ...]:
    """Recordings and people, attacked by an attacker that adds up, and from 20 windows on by a set
    network."""
    return tuple(
        point(group, windows, gain, found and gain > 0.1)
        for group in (RECORDING, PERSON)
        for windows, gain in zip((1, 5, 20, 60, None), gains, strict=True)
    )


def looks(gains: Sequence[float], found: bool = False) -> tuple[SessionPoint, ...]:
    """One window, obfuscated 1, 5 and 20 times."""
    return tuple(
        point(LOOKS, windows, gain, found and gain > 0.1)
        for windows, gain in zip((1, 5, 20), gains, strict=True)
    )


def point(group: str, windows: int | None, gain: float, found: bool) -> SessionPoint:
    return SessionPoint(
        group=group,
        windows=windows,
        sessions={RECORDING: 96, PERSON: 24, LOOKS: 1000}[group],
        majority=0.583,
        threat_model=SEMI,
        attacker="set network" if (windows or 100) >= 20 else "boosted trees",
        accuracy=estimate(0.583 + gain, 0.08),
        advantage=Estimate(gain, gain - 0.08, gain + 0.08, people=24, seeds=3),
        significant=found,
        p_value=0.0015 if found else 0.62,
    )


def attribute(
    name: str = "gender",
    status: str = HIDDEN,
    worst: float = 0.576,
    majority: float = 0.57,
    auc: float = 0.51,
    role: str = "hidden",
    classes: tuple[str, ...] = ("female", "male"),
    sessions: tuple[SessionPoint, ...] | None = None,
    reason: str = "the worst attacker is 0.6 points over the majority, with AUC 0.510",
) -> AttributeAudit:
    """One attribute whose worst attacker is the semi-informed boosted trees."""
    raw = max(majority + 0.2, 0.95)
    levels = {
        RAW: (raw, raw - 0.03, raw - 0.09),
        IGNORANT: (majority - 0.06, majority - 0.02, majority - 0.01),
        LAZY: (majority - 0.01, majority - 0.02, majority),
        SEMI: (majority, worst - 0.005, worst),
        FULL: (majority, worst - 0.008, worst - 0.001),
    }
    aucs = {RAW: 0.98, IGNORANT: 0.5, LAZY: 0.505}
    attacks = tuple(
        attack(level, family, value, majority, aucs.get(level, auc))
        for level, values in levels.items()
        for family, value in zip(FAMILIES, values, strict=True)
    )
    seen = 0.001 if status == INCONCLUSIVE else 0.093
    control = attack(CONTROL, "boosted trees", majority + seen, majority, 0.5)
    nothing = (0.0, 0.01, 0.0, -0.01, 0.0)
    found = next(a for a in attacks if a.threat_model == SEMI and a.attacker == "boosted trees")
    return AttributeAudit(
        attribute=name,
        role=role,
        classes=classes,
        windows=13381,
        people=24,
        chance=1 / len(classes),
        majority=majority,
        attacks=attacks,
        worst=found,
        control=control,
        planted=0.10,
        sessions=(*curve(nothing), *looks(nothing[:3])) if sessions is None else sessions,
        verdict=Verdict(status, reason),
        bayes=BayesRisk(
            estimate(majority + 0.004),
            Estimate(0.004, -0.026, 0.034, people=24),
            raw_accuracy=estimate(raw - 0.02),
        ),
        cross_fitted=worst - majority - 0.004,
    )


def gender_found_out() -> AttributeAudit:
    return attribute(
        "gender",
        NOT_HIDDEN,
        worst=0.792,
        auc=0.87,
        sessions=(
            *curve((0.2, 0.25, 0.3, 0.35, 0.41), found=True),
            *looks((0.2, 0.26, 0.31), found=True),
        ),
        reason="the worst attacker is 22.2 points over the majority",
    )


def gender_inconclusive() -> AttributeAudit:
    return attribute(
        "gender",
        INCONCLUSIVE,
        worst=0.571,
        reason="the attackers did not find even the leak of 10 points that was planted",
    )


def kept(unchanged: float = 0.977) -> KeptAttribute:
    names = ("downstairs", "upstairs", "walking", "jogging")
    return KeptAttribute(
        attribute="activity",
        classes=names,
        majority=0.392,
        raw=estimate(0.981, 0.01),
        unchanged=estimate(unchanged, 0.01),
        retrained=estimate(0.979, 0.01),
        retrained_on_raw=estimate(0.968, 0.015),
        unchanged_f1=estimate(0.971, 0.01),
        retrained_f1=estimate(0.974, 0.01),
        f1_by_class=dict(zip(names, (0.951, 0.944, 0.985, 0.991), strict=True)),
        recall_by_class=dict(zip(names, (0.948, 0.951, 0.984, 0.993), strict=True)),
        applications=(
            Application(
                "residual network",
                raw=estimate(0.99, 0.01),
                unchanged=estimate(unchanged + 0.01, 0.01),
                retrained=estimate(0.984, 0.01),
                retrained_on_raw=estimate(0.975, 0.01),
            ),
            Application(
                "boosted trees",
                raw=estimate(0.972, 0.01),
                unchanged=estimate(unchanged - 0.01, 0.01),
                retrained=estimate(0.974, 0.01),
                retrained_on_raw=estimate(0.961, 0.02),
            ),
        ),
    )


def example(title: str = "walking, person 7") -> Example:
    def wave(shift: float, scale: float) -> tuple[float, ...]:
        return tuple(
            scale * math.sin(0.25 * i + shift) + 0.3 * math.sin(1.1 * i * scale) for i in range(128)
        )

    return Example(
        title=title,
        channels=("|rotationRate|", "|acceleration|"),
        sample_rate=50.0,
        before=(wave(0, 1), wave(1, 0.8)),
        after=(wave(2, 0.9), wave(4, 1.1)),
    )


def donors(status: str = HIDDEN) -> DonorAudit:
    """Output that is as near to fresh windows as to its donors', or (not hidden) copies these.

    It is inconclusive where membership was not asked.
    """
    near = Nearness(
        outputs=2000,
        copies=0,
        windows=1500,
        nearer=estimate(0.504, 0.01),
        excess=Estimate(0.004, -0.006, 0.014, people=24),
        control=Estimate(0.1, 0.08, 0.12, people=24),
        p_value=0.31,
    )
    member = Membership(
        "loss at fixed noise",
        8,
        4000,
        estimate(0.502, 0.01),
        estimate(0.012, 0.004),
        estimate(0.001),
    )
    if status == HIDDEN:
        return DonorAudit(judge_donors(near, member), near, member)
    if status == NOT_HIDDEN:
        near = Nearness(outputs=2000, copies=37)
    unasked = {"membership": "a quick audit trains no models"}
    return DonorAudit(judge_donors(near, None), near, not_asked=unasked)


def with_donors(whole: Audit, status: str = HIDDEN) -> Audit:
    """The audit with donors, and with questions that were not asked."""
    unasked = {"lazy attackers": "no second model is trained in a quick audit"}
    main = replace(whole.main, donors=donors(status), not_asked=unasked)
    return replace(whole, splits=(main, *whole.splits[1:]))


def part(
    *attributes: AttributeAudit,
    split: str = "subject",
    left_out: dict[str, str] | None = None,
    linkage: bool = True,
) -> SplitAudit:
    link = Linkage(
        gallery="raw",
        people=24,
        sessions=96,
        rank1=estimate(0.052),
        rank1_chance=0.042,
        equal_error_rate=estimate(0.489),
        raw_rank1=estimate(0.81),
        raw_equal_error_rate=estimate(0.09),
        significant=False,
    )
    return SplitAudit(
        split=split,
        folds=(0, 1, 2, 3),
        unseen_people=split == "subject",
        train_windows=40143,
        test_windows=13381,
        test_people=24,
        attributes=attributes,
        left_out=left_out or {},
        kept=(kept(),),
        signal=SignalUtility(
            frequency_error=0.41,
            frequency_correlation=0.03,
            energy_error=0.52,
            energy_correlation=0.04,
            spectrum_distance=0.06,
            step_error=0.18,
            spectrum_correlation=0.11,
            cadence_correlation=0.02,
            cadence_error=5.84,
            cadence_reference=3.87,
            recording_step_error=0.043,
            intensity_error=0.161,
        ),
        information=(
            Information("gender", "MINE", 0.83, 0.01, 0.986),
            Information("gender", "nearest neighbours", 0.61, 0.02, 0.986),
        ),
        linkage=(link, replace(link, gallery="obfuscated")) if linkage else (),
        reidentification=(
            Reidentification("gender", "ObscureNet", 20, 0.571, 0.008, 0.57),
            Reidentification("subject", "CLOAK", 5, 0.049, 0.004, 0.072),
        ),
        condition_probes=(
            ConditionProbe("gender", "z_U", 0.688, 0.523, 0.554, people=12, windows=4988),
            ConditionProbe("gender", "condition", 0.536, 0.523, 0.554, people=12, windows=4988),
        ),
        trade_off=(
            TradeOff("none", 0.981, 0.983),
            TradeOff("noise 0.5", 0.871, 0.901),
            TradeOff("noise 2", 0.62, 0.74),
            TradeOff("downsample 4", 0.93, 0.95),
        ),
        examples=(example(), example("jogging, person 3")),
    )


def audit(
    gender: AttributeAudit | None = None,
    *others: AttributeAudit,
    hide: tuple[str, ...] = ("gender",),
    method: str = "resample",
    left_out: dict[str, str] | None = None,
) -> Audit:
    """An audit with unseen people first and the papers' split beside it."""
    gender = gender or attribute()
    age = attribute(
        "age", NOT_HIDDEN, 0.47, 0.42, 0.61, "unlisted", ("up to 25", "25 to 30", "above 30")
    )
    identity = attribute(
        "subject",
        worst=0.073,
        majority=0.072,
        classes=tuple(f"{i:02d}" for i in range(24)),
        sessions=(),
    )
    return Audit(
        method=method,
        summary="replaces each window by a random training window of the predicted activity",
        keep=("activity",),
        hide=hide,
        dataset="motionsense",
        protocol="motionsense 3f1c9a2e",
        strength={"keep": 4.0},
        seeds=(0, 1, 2),
        quick=False,
        splits=(
            part(gender, *others, age, left_out=left_out),
            part(gender, identity, *others, split="paper"),
        ),
        gaps={"gender": 0.004},
        conditions={
            "command": "sensorveil audit runs/a --data motionsense --out audit",
            "sensorveil": "0.2.0",
            "python": "3.11.7",
            "torch": "2.13.0",
            "hardware": "a processor, 2 threads",
            "date": "2026-11-03",
        },
    )


def two_hidden() -> Audit:
    """Gender on unseen people, identity on the papers' split and by linkage: the usual pair."""
    whole = audit(
        hide=("gender", "subject"),
        left_out={"subject": "nobody is both in training and in test, see linkage"},
    )
    linked = Verdict(HIDDEN, "sessions are matched by chance")
    return replace(whole, splits=(replace(whole.main, identity=linked), *whole.splits[1:]))


EVIL = "\"><script>alert(1)</script>'&"
OWN_WORDS = {HIDDEN, NOT_HIDDEN, INCONCLUSIVE, RECORDING, PERSON, LOOKS, *THREAT_MODELS}


def changed(content: Any, change: Callable[[Any], Any]) -> Any:
    """The same audit with every text and number in it changed."""
    if isinstance(content, dict):
        return {changed(name, change): changed(value, change) for name, value in content.items()}
    if isinstance(content, tuple):
        return tuple(changed(one, change) for one in content)
    if is_dataclass(content) and not isinstance(content, type):
        every = {f.name: changed(getattr(content, f.name), change) for f in fields(content)}
        return replace(content, **every)
    return change(content)


def hostile() -> Audit:
    """Every text that a user may choose is an attempt to get code into the page."""
    whole = with_donors(audit(bounded(), left_out={"weight": "one class only"}))
    return changed(whole, lambda x: EVIL if isinstance(x, str) and x not in OWN_WORDS else x)


def unknown() -> Audit:
    """Nothing that was measured is known."""
    main = replace(part(attribute()), examples=(), donors=donors())
    found = replace(audit(), splits=(main,), strength={})
    return changed(found, lambda x: math.nan if isinstance(x, float) else x)


def bounded() -> AttributeAudit:
    return replace(attribute(), bound=Bound("gender", 500, 84, 0.57, 0.58, 0.6))


def comparison() -> str:
    audits = [
        two_hidden(),
        audit(gender_found_out(), method="code"),
        audit(gender_inconclusive(), method="a" * 60),  # wide on a phone
    ]
    return render_comparison(
        audits, [Difference("resample", "code", "gender", -0.216, -0.25, -0.18, 0.0004)]
    )


def sweep() -> str:
    grid = [SweepPoint({"snr": k}, 0.9 + 0.01 * k, 0.6 + 0.05 * k) for k in (1, 4, 7)]
    return render_sweep("code on motionsense", grid, 0.8132, TradeOff("ideal", 0.98, 0.57))


PAGES: dict[str, Callable[[], str]] = {
    "hidden": lambda: render(audit(bounded())),
    "not hidden": lambda: render(audit(gender_found_out())),
    "donors": lambda: render(with_donors(audit(gender_found_out()))),
    "copies": lambda: render(with_donors(audit(), NOT_HIDDEN)),
    "inconclusive": lambda: render(audit(gender_inconclusive())),
    "two": lambda: render(two_hidden()),
    "hostile": lambda: render(hostile()),
    "comparison": comparison,
    "sweep": sweep,
    "quick": lambda: render(replace(audit(), quick=True)),
}
