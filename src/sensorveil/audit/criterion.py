"""The criterion: when an attribute is hidden, not hidden, or the result is inconclusive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sensorveil.audit.results import (
    HIDDEN,
    INCONCLUSIVE,
    MAX_ADVANTAGE,
    MAX_AUC,
    NOT_HIDDEN,
    RAW,
    Attack,
    Linkage,
    SessionPoint,
    Verdict,
)

LEAST_RAW = 0.05
CRITERION = (
    "Hidden means: the worst of all attackers has at most 2 points of advantage over the majority"
    " baseline, and an area under the ROC curve of at most 0.55. No attacker who adds up windows of"
    " a recording or person is better than when classes are exchanged between people. The same"
    " attackers find at least half of a leak of 10 points that was planted in the same output. A"
    " classifier trained on a leaked part of the output counts as an attacker too. Where people are"
    " new to everybody, identity is a matter of linking sessions: no linker may match sessions of"
    " one person better than when people are exchanged. The result is inconclusive where a planted"
    " leak is not found, or where nobody can predict the attribute from raw data either."
)


def judge(
    attacks: Sequence[Attack],
    control: Attack,
    planted: float,
    sessions: Sequence[SessionPoint],
    majority: float = 0.5,
) -> Verdict:
    """The verdict on one attribute. A wide interval never turns into a pass: points decide."""
    tried = [attack for attack in attacks if attack.threat_model != RAW]
    worst = max(tried, key=lambda attack: attack.advantage.value)
    sharpest = max(tried, key=lambda attack: attack.auc.value)
    raw = max(a.advantage.value for a in attacks if a.threat_model == RAW)
    if worst.advantage.value > MAX_ADVANTAGE:
        return Verdict(
            NOT_HIDDEN,
            f"the {worst.threat_model} attacker ({worst.attacker}) is {_points(worst.advantage.value)}"
            " above the majority baseline",
        )
    if sharpest.auc.value > MAX_AUC:
        return Verdict(
            NOT_HIDDEN,
            f"the {sharpest.threat_model} attacker ({sharpest.attacker}) ranks windows with an area under"
            f" the ROC curve of {sharpest.auc.value:.2f}",
        )
    for point in sessions:
        if point.significant:
            many = "all" if point.windows is None else f"{point.windows}"
            return Verdict(
                NOT_HIDDEN,
                f"adding up {many} windows of a {point.group}, the {point.threat_model} attacker"
                f" ({point.attacker}) is {_points(point.advantage.value)} above the majority baseline",
            )
    if any(np.isnan(attack.auc.value) for attack in tried):
        return Verdict(
            INCONCLUSIVE, "one class is missing in the test windows, so none can be ranked"
        )
    if control.advantage.value < planted / 2:
        return Verdict(
            INCONCLUSIVE,
            f"the attackers found {_points(control.advantage.value)} of a planted leak of"
            f" {_points(planted)}: they are too weak to tell",
        )
    if raw < min(LEAST_RAW, (1 - majority) / 2):
        return Verdict(
            INCONCLUSIVE,
            f"the attackers are only {_points(raw)} above chance on raw data, so there was"
            " nothing to hide, or they are too weak",
        )
    return Verdict(
        HIDDEN,
        f"the worst attacker ({worst.threat_model}, {worst.attacker}) is {_points(worst.advantage.value)}"
        f" above the majority baseline, and the same attackers found {_points(control.advantage.value)} of"
        f" a planted leak of {_points(planted)}",
    )


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


def _points(advantage: float) -> str:
    """An advantage in percentage points.

    >>> _points(0.0312)
    '3.1 points'
    """
    return f"{100 * advantage:.1f} points"
