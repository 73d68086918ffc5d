"""The sentences of a page, in plain English; the terminal's summary says them too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from sensorveil.audit.results import (
    CONTROL,
    FULL,
    HIDDEN,
    IGNORANT,
    INCONCLUSIVE,
    INSIDER,
    LAZY,
    MAX_ADVANTAGE,
    MAX_AUC,
    NOT_HIDDEN,
    RAW,
    SEMI,
    Attack,
    AttributeAudit,
    Audit,
    KeptAttribute,
    Linkage,
    SessionPoint,
    worst_verdict,
)
from sensorveil.methods.seal_bound import ASSUMED, ASSUMED_OF_SESSIONS, SESSION
from sensorveil.report.findings import Finding, all_attacks, highest_auc, output_attacks
from sensorveil.report.numbers import auc, counted, decimals, percent, points, with_interval

FEW_PEOPLE = 15
"""With fewer people than this, bootstrap intervals are too narrow (see Estimate)."""

_TRAINED = {
    IGNORANT: "trained on raw data",
    LAZY: "trained on output of the same method with another seed",
    SEMI: "retrained on this very output",
    INSIDER: "retrained on output of windows that the obfuscator never saw",
    FULL: "retrained on this very output and shown the method's own condition or code",
}


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


def headline(found: Sequence[Finding]) -> str:
    """The verdict about all hidden attributes in one sentence."""
    if not found:
        return "Nothing was to be hidden, so there is nothing to judge."
    if len(found) == 1:
        return attribute_sentence(found[0])
    clauses = {
        NOT_HIDDEN: "{} {} not hidden",
        INCONCLUSIVE: "whether {} {} hidden is not known",
        HIDDEN: "{} {} hidden",
    }
    parts = []
    for status, clause in clauses.items():
        names = [spoken(one.attribute) for one in found if one.status == status]
        if names:
            parts.append(clause.format(listed(names), "is" if len(names) == 1 else "are"))
    return capital("; ".join(parts)) + "."


def attribute_sentence(finding: Finding) -> str:
    """The verdict about one hidden attribute, in one sentence.

    >>> from sensorveil.audit.results import SignalUtility, SplitAudit, Verdict
    >>> split = SplitAudit("subject", (0,), True, 9, 9, 2, (), {}, (), SignalUtility())
    >>> verdict = Verdict(INCONCLUSIVE, "one class only")
    >>> attribute_sentence(Finding("age", split, verdict, None, True))
    'Whether age is hidden is not known: one class only.'
    """
    name, reason = spoken(finding.attribute), bare(finding.verdict.reason)
    if finding.status == INCONCLUSIVE:
        return f"Whether {name} is hidden is not known: {reason}."
    is_hidden = "is hidden" if finding.status == HIDDEN else "is not hidden"
    if finding.found is not None:
        reason = (_by_window if finding.status == HIDDEN else _leak)(finding.found)
    return f"{capital(name)} {is_hidden}: {reason}."


def _leak(found: AttributeAudit) -> str:
    """The plainest of the reasons for which an attribute is not hidden."""
    if found.worst.advantage.value > MAX_ADVANTAGE:
        return _by_window(found)
    session = worst_session(found.sessions)
    if session is not None:
        return by_session(session)
    highest = highest_auc(found).auc.value
    if highest > MAX_AUC:
        return (
            f"{_by_window(found)}, but the classes are ranked better than by chance"
            f" (AUC {decimals(highest, 3)}, allowed is {MAX_AUC})"
        )
    return bare(found.verdict.reason)


def _by_window(found: AttributeAudit) -> str:
    return (
        f"the strongest attacker, {_trained(found.worst)}, is right in {percent(found.worst.accuracy.value)} of"
        f" windows; the majority baseline is right in {percent(found.majority)}"
    )


def _trained(attack: Attack) -> str:
    return _TRAINED.get(attack.threat_model, f"of the threat model {attack.threat_model}")


def by_session(point: SessionPoint) -> str:
    """How often an attacker is right who adds up windows."""
    group = {"person": "people"}.get(point.group, f"{point.group}s")
    many = "all windows" if point.windows is None else counted(point.windows, "window")
    return (
        f"an attacker who adds up {many} of one {point.group} is right about"
        f" {percent(point.accuracy.value)} of {group}; the majority baseline is right about"
        f" {percent(point.majority)}"
    )


def worst_session(sessions: Sequence[SessionPoint]) -> SessionPoint | None:
    """The largest leak that the session curve found, if it found any."""
    return max(
        (point for point in sessions if point.significant),
        key=lambda point: point.advantage.value,
        default=None,
    )


def from_whom(found: AttributeAudit) -> list[tuple[str, str]]:
    """For each threat model that attacked single windows: a status, and a sentence's end.

    Where the verdict is inconclusive, nothing is claimed about anybody.
    """
    begins = {HIDDEN: "hidden from", NOT_HIDDEN: "found out by", INCONCLUSIVE: "not known for"}
    attacks = [one for one in all_attacks(found) if one.threat_model not in (RAW, CONTROL)]
    said = []
    for _, group in groupby(attacks, lambda attack: attack.threat_model):
        own = list(group)
        status = _status_for(found, own)
        said.append((status, f"{begins[status]} an attacker {_trained(own[0])}"))
    session = worst_session(found.sessions)
    if session is not None and found.verdict.status == NOT_HIDDEN:
        said.append((NOT_HIDDEN, f"found out when windows add up: {by_session(session)}"))
    return said


def _status_for(found: AttributeAudit, attacks: Sequence[Attack]) -> str:
    if found.verdict.status != NOT_HIDDEN:
        return found.verdict.status
    if any(a.advantage.value > MAX_ADVANTAGE or a.auc.value > MAX_AUC for a in attacks):
        return NOT_HIDDEN
    # Finding nothing proves something only where the same attackers find what was planted.
    return HIDDEN if found.control.advantage.value >= found.planted / 2 else INCONCLUSIVE


def interval_note(found: AttributeAudit) -> str:
    """The interval of the worst attacker, and what it means for the verdict."""
    worst = found.worst.advantage
    text = (
        "The strongest attacker's advantage over the majority baseline is"
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
        f" had an advantage of {seen} points."
    )


def kept_sentence(kept: KeptAttribute) -> str:
    """The accuracy of unchanged applications: their mean, and the one that loses most."""
    which, worst = "", kept.worst
    if worst is not None:
        count = counted(len(kept.applications), "design")
        which = (
            f" (mean of {count}; the worst, {worst.name}, {percent(worst.unchanged.value)} instead"
            f" of {percent(worst.raw.value)})"
        )
    return (
        f"Applications trained on raw data predict {spoken(kept.attribute)} right in"
        f" {percent(kept.unchanged.value)} of windows{which}; on raw data they are right in"
        f" {percent(kept.raw.value)}."
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
    """The most that any attacker can learn from the code, and what that assumes."""
    bound = found.bound
    if bound is None:
        return None
    if bound.vacuous:
        return (
            f"The output is made from one of {bound.codes} codes, but"
            f" {counted(bound.people, 'person')} are too few for a bound on what these tell."
        )
    session = bound.of_session(SESSION)
    return (
        f"The output is made from one of {bound.codes} codes and noise. With"
        f" {bound.confidence:.0%} confidence no attacker is right in more than"
        f" {percent(bound.accuracy)} of single windows, or learns more than"
        f" {decimals(bound.information, 3)} of {decimals(bound.entropy, 3)} bits (counted on"
        f" {counted(bound.people, 'person')}). This assumes that {ASSUMED}. Of {SESSION} windows"
        f" together, no attacker is right in more than {percent(session.accuracy)}; this assumes"
        f" {ASSUMED_OF_SESSIONS}."
    )


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
