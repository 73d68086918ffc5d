"""Sentences of a page beside the verdicts, in plain English."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sensorveil.audit.results import (
    HIDDEN,
    MAX_ADVANTAGE,
    AttributeAudit,
    Audit,
    KeptAttribute,
    Linkage,
    worst_verdict,
)
from sensorveil.methods.seal_bound import NOT_COVERED
from sensorveil.report.findings import Finding, highest_auc, output_attacks
from sensorveil.report.numbers import (
    auc,
    counted,
    p_value,
    percent,
    points,
    with_interval,
)

FEW_PEOPLE = 15
"""With fewer people than this, bootstrap intervals are too narrow (see Estimate)."""


def spoken(attribute: str) -> str:
    """An attribute's name inside a sentence.

    >>> spoken("watch_arm"), spoken("subject")
    ('watch arm', 'identity (subject)')
    """
    return "identity (subject)" if attribute == "subject" else attribute.replace("_", " ")


def capital(sentence: str) -> str:
    """The sentence with a capital first letter."""
    return sentence[:1].upper() + sentence[1:]


def bare(reason: str) -> str:
    """A reason that goes on a sentence: without its own full stop."""
    return reason.strip().rstrip(".") or "no reason was given"


def listed(names: Sequence[str]) -> str:
    """Names as a list in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def strengths(strength: Mapping[str, float]) -> str:
    """A method's strengths as they are typed.

    >>> strengths({"guidance_scale": 4.0, "gender": 0.3})
    'guidance_scale=4, gender=0.3'
    """
    return ", ".join(f"{name}={value:g}" for name, value in strength.items()) or "the method's own"


def people_of(unseen: bool) -> str:
    """Who the people of a split are."""
    return "people never seen in training" if unseen else "the same people in training and test"


def interval_note(found: AttributeAudit) -> str:
    """The interval of the worst attacker, and what it means for the verdict."""
    worst = found.worst.advantage
    text = (
        "The worst attacker's advantage over the majority baseline is"
        f" {points(worst.value)} points; the 95% interval over {counted(worst.people, 'person')} is"
        f" {points(worst.low)} to {points(worst.high)}."
    )
    if found.verdict.status == HIDDEN and worst.high > MAX_ADVANTAGE:
        text += " The interval reaches past the 2 points allowed: more people could change this."
    if worst.people < FEW_PEOPLE:
        text += " With so few people the true interval is wider."
    return text


def control_note(found: AttributeAudit) -> str:
    """Whether the attackers can find a leak at all: the positive control."""
    planted, seen = points(found.planted).lstrip("+"), points(found.control.advantage.value)
    return (
        f"Control: in the same output with a planted leak of {planted} points, the same attackers"
        f" had an advantage of {seen} points (p-value {p_value(found.control.p_value)})."
    )


def kept_sentence(kept: KeptAttribute) -> str:
    """The accuracy of unchanged applications: their mean, and the one that loses most."""
    count = len(kept.applications)
    mean = f" (mean of {counted(count, 'design')})" if count else ""
    said = (
        f"Unchanged applications predict {spoken(kept.attribute)} right in"
        f" {percent(kept.unchanged.value)} of windows{mean}; on raw data they are right in"
        f" {percent(kept.raw.value)}."
    )
    if kept.worst is None or count < 2:
        return said
    worst = kept.worst
    return (
        f"{said} The worst, {worst.name}, goes from {percent(worst.raw.value)} to"
        f" {percent(worst.unchanged.value)}."
    )


def linkage_sentence(link: Linkage) -> str:
    """How often a session is matched to the right person."""
    return (
        "An obfuscated session is matched to the right one of the people compared"
        f" ({bare(link.gallery)}, {counted(link.people, 'person')} in all) in"
        f" {percent(link.rank1.value)} of cases; chance gives {percent(link.rank1_chance)},"
        f" raw data {percent(link.raw_rank1.value)}."
    )


def gap_sentence(audit: Audit, attribute: str) -> str:
    """The gap between two splits: the papers' own and people never seen."""
    gap, (first, second) = audit.gaps[attribute], [part.split for part in audit.splits[:2]]
    if not math.isfinite(gap):
        return f"The gap for {spoken(attribute)} could not be measured."
    size = points(abs(gap)).lstrip("+")
    if size == "0.0":
        return f"For {spoken(attribute)} the splits {first} and {second} agree."
    way = "higher" if gap > 0 else "lower"
    return (
        f"For {spoken(attribute)} the accuracy of the worst attacker is {size} points {way} on"
        f" split {second} than on {first}."
    )


def elsewhere(finding: Finding, audit: Audit) -> list[str]:
    """What the other splits say about an attribute, and which one decided."""
    said = []
    if not finding.is_main:
        said.append(
            f"Measured on the split {finding.split.split}, with"
            f" {people_of(finding.split.unseen_people)}; on the split {audit.main.split}:"
            f" {bare(finding.elsewhere)}."
        )
    for part in audit.splits:
        if part is finding.split:
            continue
        worst = worst_verdict(part.verdicts(finding.attribute))
        also = " too" if worst.status == finding.status else ""
        said.append(
            f"On the split {part.split}, with {people_of(part.unseen_people)}, the verdict is"
            f" {worst.status}{also}: {bare(worst.reason)}."
        )
    return said


def worst_note(found: AttributeAudit) -> str:
    """The worst attacker in figures, and the highest AUC over all kept classes together."""
    worst = found.worst
    said = (
        f"The worst attacker is {worst.attacker}, {worst.threat_model}: right in"
        f" {with_interval(worst.accuracy)} of windows, balanced accuracy"
        f" {with_interval(worst.balanced_accuracy)}, AUC {auc(worst.auc)}."
    )
    known = [a.overall_auc for a in output_attacks(found) if a.overall_auc is not None]
    known = [one for one in known if math.isfinite(one.value)]
    if not known:
        return said
    overall = max(known, key=lambda one: one.value)
    return (
        f"{said} The highest AUC among windows of one kept class is {auc(highest_auc(found).auc)},"
        " which decides; over all windows, with what the kept class itself tells, it is"
        f" {auc(overall)}."
    )


def bound_note(found: AttributeAudit) -> str | None:
    """The promise of a bound, as on the run's card, and what it does not cover."""
    if found.bound is None:
        return None
    made = f"The output is made from a code and noise. {found.bound.sentence()}"
    return made if found.bound.vacuous else f"{made} {NOT_COVERED}"


def probe_note(audit: Audit) -> str | None:
    """What the probes of a run's condition are, where there are any."""
    probe = next((one for part in audit.splits for one in part.condition_probes), None)
    if probe is None:
        return None
    return (
        "The output is made from a condition of each window, and noise; so no attacker learns more"
        " from the output than from the condition. Probes predicted every attribute from it, in"
        f" {counted(probe.windows, 'window')} of {counted(probe.people, 'person')} whom the probed"
        " encoders had not seen, at the strengths of the run's settings. What they predict beyond"
        " what the kept class gives away by itself is a leak. Where the class is predicted wrongly"
        " more often for some people than for others, the class alone is above the majority"
        " baseline, and leaks too."
    )
