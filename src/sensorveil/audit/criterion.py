"""The criterion: when an attribute is hidden, not hidden, or the result is inconclusive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sensorveil.audit.results import (
    ALPHA,
    DOUBT,
    HIDDEN,
    INCONCLUSIVE,
    LOOKS,
    MAX_ADVANTAGE,
    MAX_AUC,
    NOT_HIDDEN,
    RAW,
    Attack,
    Linkage,
    Membership,
    Nearness,
    SessionPoint,
    Verdict,
)

LEAST_RAW = 0.05
CRITERION = (
    "Hidden means: no attacker finds a leak, and the same attackers find at least half of a leak of"
    " 10 points that was planted in the same output. A leak is found where an attacker has more than 2"
    " points of advantage over the majority baseline (or an area under the ROC curve above 0.55), on"
    " single windows or on several at once, and the best of all attackers is as good in at most 0.5%"
    " of the cases in which classes are exchanged between people. Where people are new to everybody,"
    " identity is a matter of linking sessions: no linker may match sessions of one person better than"
    " when people are exchanged. The result is inconclusive where there may be a leak (up to 2% of"
    " exchanges, or the attacker that is best on half of the people is more than 2 points above the"
    " baseline on the others), where a planted leak is not found, where people are too few, or where"
    " nobody can predict the attribute from raw data either."
)

MAX_EXCESS = 0.02
"""How far output may be nearer to training windows than to fresh ones, and an AUC above 0.5."""
MAX_MEMBERS_FOUND = 0.02
"""The share of members that may be found at 1% false positives; luck finds 1%."""
DONOR_CRITERION = (
    "Hidden means: no output is a training window, an attacker cannot see whose windows were trained on"
    " (an area under the ROC curve above 0.52, or more than 2% of members found at 1% false positives),"
    " and output is not more than 2 points more often nearer to training windows than to fresh ones, beyond"
    " what exchanges of the two give in 0.5% of cases. Each"
    " counts as found where its whole interval lies above the limit. The result is inconclusive where"
    " a figure is above its limit and the interval is not, where membership was not asked, where copies"
    " that were planted in a fifth of the output are not found, or where the models differ too much to"
    " tell."
)


def judge(
    attacks: Sequence[Attack],
    control: Attack,
    planted: float,
    sessions: Sequence[SessionPoint],
    majority: float = 0.5,
    cross_fitted: float = 0.0,
) -> Verdict:
    """The verdict on one attribute; `cross_fitted` is the advantage of that name in the result."""
    own = [attack for attack in attacks if attack.threat_model != RAW]
    everything: list[Attack | SessionPoint] = [*own, *sessions]
    worst = max(own, key=lambda attack: attack.advantage.value)
    leak = _leak(own, sessions)
    if leak:
        return Verdict(NOT_HIDDEN, leak)
    doubt = (
        "there may be a leak, and people are too few to tell it from luck"
        if cross_fitted > MAX_ADVANTAGE or any(map(is_doubtful, everything))
        else too_weak(own, control, planted)
    )
    raw = max((a.advantage.value for a in attacks if a.threat_model == RAW), default=1.0)
    if not doubt and raw < min(LEAST_RAW, (1 - majority) / 2):
        doubt = (
            f"the attackers are only {_points(raw)} above chance on raw data, so there was"
            " nothing to hide, or they are too weak"
        )
    if doubt:
        return Verdict(INCONCLUSIVE, doubt)
    return Verdict(
        HIDDEN,
        f"the worst attacker ({worst.threat_model}, {worst.attacker}) is"
        f" {_points(worst.advantage.value)} above the majority baseline, no more than luck can give,"
        f" and the same attackers found {_points(control.advantage.value)} of a planted leak of"
        f" {_points(planted)}",
    )


def _leak(attacks: Sequence[Attack], sessions: Sequence[SessionPoint]) -> str | None:
    """The largest leak that was found, in one sentence."""
    found = [one for one in attacks if one.found]
    if found:
        worst = max(found, key=lambda attack: attack.advantage.value)
        who = f"the {worst.threat_model} attacker ({worst.attacker})"
        if worst.advantage.value > MAX_ADVANTAGE:
            return f"{who} is {_points(worst.advantage.value)} above the majority baseline"
        sharpest = max(found, key=lambda attack: attack.auc.value)
        return (
            f"the {sharpest.threat_model} attacker ({sharpest.attacker}) ranks windows with an area"
            f" under the ROC curve of {sharpest.auc.value:.2f}"
        )
    leaks = [point for point in sessions if point.significant]
    if not leaks:
        return None
    point = max(leaks, key=lambda one: one.advantage.value)
    return (
        f"with {point_windows(point)}, the {point.threat_model} attacker ({point.attacker}) is"
        f" {_points(point.advantage.value)} above the majority baseline"
    )


def point_windows(point: SessionPoint) -> str:
    """Which windows are attacked together, as "20 windows of one recording"."""
    if point.group == LOOKS:
        return f"{point.windows} obfuscation{'s' if point.windows != 1 else ''} of one window"
    if point.windows == 1:
        return f"1 window of one {point.group}"
    many = "all windows" if point.windows is None else f"{point.windows} windows"
    return f"{many} of one {point.group}"


def is_doubtful(one: Attack | SessionPoint) -> bool:
    """Whether a result may be a leak: above a limit, and not likely by luck."""
    beyond = one.advantage.value > MAX_ADVANTAGE
    if isinstance(one, Attack):
        beyond = beyond or one.auc.value > MAX_AUC
    return beyond and one.p_value <= DOUBT


def too_weak(attacks: Sequence[Attack], control: Attack, planted: float) -> str | None:
    """Why attackers that find nothing prove nothing; None if they prove something."""
    if any(np.isnan(attack.auc.value) for attack in attacks):
        return "one class is missing in the test windows, so none can be ranked"
    if control.advantage.value < planted / 2:
        return (
            f"the attackers found {_points(control.advantage.value)} of a planted leak of"
            f" {_points(planted)}: they are too weak to tell"
        )
    if control.p_value > ALPHA:
        return "people are too few: even a planted leak is no more than luck"
    return None


def judge_linkage(links: Sequence[Linkage]) -> Verdict:
    """The verdict on identity where people are new to everybody: can their sessions be linked?"""
    for link in links:
        if link.significant:
            return Verdict(
                NOT_HIDDEN,
                f"an obfuscated session is matched to the right {link.gallery} in"
                f" {link.rank1.value:.1%} of cases (chance is {link.rank1_chance:.1%}), with"
                f" an equal error rate of {link.equal_error_rate.value:.1%}",
            )
    raw = max(link.raw_rank1.value - link.rank1_chance for link in links)
    if raw < LEAST_RAW:
        return Verdict(
            INCONCLUSIVE, f"the linkers are only {_points(raw)} above chance on raw data"
        )
    for link in links:
        if link.control is None:
            continue
        had = link.control.value - link.rank1_chance
        if not link.control_significant or had < link.planted / 2:
            return Verdict(
                INCONCLUSIVE,
                f"the linkers found {_points(had)} of a planted leak of {_points(link.planted)} in"
                f" {link.sessions} sessions of {link.people} people: that is too few to tell",
            )
    worst = max(links, key=lambda link: link.rank1.value - link.rank1_chance)
    return Verdict(
        HIDDEN,
        f"the right one of the people compared is found in {worst.rank1.value:.1%} of cases"
        f" (chance is {worst.rank1_chance:.1%}, raw data {worst.raw_rank1.value:.1%})",
    )


def judge_donors(nearness: Nearness, membership: Membership | None) -> Verdict:
    """The verdict on the people whose windows a method was trained on.

    Examples
    --------
    >>> judge_donors(Nearness(outputs=200, copies=3), None).reason
    '3 of 200 windows of the output are training windows themselves'
    """
    leak = _donor_leak(nearness, membership)
    if leak:
        return Verdict(NOT_HIDDEN, leak)
    doubt = _donor_doubt(nearness, membership)
    if doubt or membership is None:
        return Verdict(INCONCLUSIVE, doubt or "membership was not asked")
    return Verdict(
        HIDDEN,
        f"no output is a training window, and an attacker finds {membership.tpr_at_1pct.value:.1%} of"
        " members at 1% false positives, no more than luck can give",
    )


def _donor_leak(nearness: Nearness, membership: Membership | None) -> str | None:
    """What was found about donors, in one sentence."""
    if nearness.copies:
        return (
            f"{nearness.copies} of {nearness.outputs} windows of the output are training windows"
            " themselves"
        )
    if membership and membership.tpr_at_1pct.low > MAX_MEMBERS_FOUND:
        return (
            f"an attacker finds {membership.tpr_at_1pct.value:.1%} of the windows that were trained on,"
            " at 1% false positives"
        )
    if membership and membership.auc.low > 0.5 + MAX_EXCESS:
        return (
            "an attacker ranks windows that were trained on above others with an area under the ROC"
            f" curve of {membership.auc.value:.2f}"
        )
    if _is_nearer(nearness):
        assert nearness.excess is not None
        return (
            f"the output is {_points(nearness.excess.value)} more often nearer to training windows"
            " than to fresh windows of the same people"
        )
    return None


def _is_nearer(nearness: Nearness) -> bool:
    """Whether output is nearer to training windows beyond luck, and nearer than raw windows are."""
    if nearness.nearer is None or nearness.excess is None or nearness.p_value > ALPHA:
        return False
    return nearness.nearer.low > 0.5 + MAX_EXCESS and nearness.excess.low > MAX_EXCESS


def _donor_doubt(nearness: Nearness, membership: Membership | None) -> str | None:
    """Why nothing follows from nothing found."""
    if membership is None:
        return "nothing was found, but whether membership can be seen was not asked"
    if nearness.control is None:
        return "nothing was found, but nearness to training windows could not be measured"
    if _may_leak(nearness, membership):
        return "training windows may be recognised, and this is too little to tell it from luck"
    if nearness.control.low <= MAX_EXCESS:
        return "people are too few: even planted copies of training windows are not found"
    if membership.auc.high > MAX_AUC or membership.tpr_at_1pct.high > 2.5 * MAX_MEMBERS_FOUND:
        return "the models differ too much to tell whether membership can be seen"
    return None


def _may_leak(nearness: Nearness, membership: Membership) -> bool:
    """Whether a figure is above its limit, if not its whole interval."""
    return (
        bool(nearness.excess and nearness.excess.value > MAX_EXCESS)
        or membership.auc.value > 0.5 + MAX_EXCESS
        or membership.tpr_at_1pct.value > MAX_MEMBERS_FOUND
    )


def _points(advantage: float) -> str:
    """An advantage in percentage points.

    >>> _points(0.0312)
    '3.1 points'
    """
    return f"{100 * advantage:.1f} points"
