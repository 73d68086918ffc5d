"""The sentences of the page, in plain English, and numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sensorveil.audit.results import (
    FULL,
    HIDDEN,
    IGNORANT,
    INCONCLUSIVE,
    INSIDER,
    LAZY,
    MAX_ADVANTAGE,
    MAX_AUC,
    NOT_HIDDEN,
    SEMI,
    WORST_FIRST,
    Attack,
    AttributeAudit,
    Audit,
    KeptAttribute,
    Linkage,
    SessionPoint,
)
from sensorveil.methods.seal_bound import ASSUMED, ASSUMED_OF_SESSIONS, SESSION
from sensorveil.report.findings import Finding, real_attacks, sharpest
from sensorveil.report.numbers import auc, counted, decimals, percent, points, with_interval

FEW_PEOPLE = 15
"""With fewer people than this, bootstrap intervals are too narrow (see Estimate)."""

STATUS_WORDS = {
    HIDDEN: "hidden",
    NOT_HIDDEN: "not hidden",
    INCONCLUSIVE: "inconclusive: we do not know",
}

_TRAINED = {
    IGNORANT: "trained on raw data",
    LAZY: "trained on output of another strength or seed",
    SEMI: "retrained on this very output",
    INSIDER: "retrained on output of windows that the obfuscator never saw",
    FULL: "retrained on this very output and shown the method's own condition",
}
_WHO = {
    IGNORANT: "who has only raw data to learn from",
    LAZY: "who has the same method with another strength or seed",
    SEMI: "who has this very obfuscator and labelled output of it",
    INSIDER: "who has labelled output of windows that the obfuscator never saw",
    FULL: "who also sees the method's own condition or code",
}

CRITERION = (
    "An attribute counts as hidden when three things hold together.",
    "The worst attacker is right in at most 2 points more windows than somebody who always guesses"
    " the most common class.",
    "No attacker has an AUC above 0.55, where 0.5 is blind and 1 is perfect; windows of one kept"
    " class are compared with each other.",
    "The same attackers do find a leak of 10 points that was planted in the same output: at least"
    " half of it.",
    "Where the planted leak is not found, or where the attackers cannot read the attribute from raw"
    " data either, they prove nothing and the result is inconclusive, which is not good news.",
    "A wide interval never turns into a pass: the rule looks at the measured value, and the"
    " interval stands beside the verdict.",
    "A leak that shows only when many windows of a recording or a person are added up means not"
    " hidden. So does a model that was trained on a leaked part of the output and is right in more"
    " than 2 points more windows than guessing.",
    "People who are new to everybody cannot be named, but their sessions may be matched with each"
    " other: who they are is hidden when nobody matches them better than when people are exchanged,"
    " while a planted leak is found.",
)
"""The rule: an opening, its three conditions, and remarks."""


def spoken(attribute: str) -> str:
    """An attribute's name inside a sentence.

    >>> spoken("watch_arm"), spoken("subject")
    ('watch arm', 'who the person is (subject)')
    """
    if attribute == "subject":
        return "who the person is (subject)"
    return attribute.replace("_", " ")


def capital(sentence: str) -> str:
    """The sentence with a capital first letter."""
    return sentence[:1].upper() + sentence[1:]


def headline(found: Sequence[Finding]) -> str:
    """The verdict about all hidden attributes in one sentence."""
    if not found:
        return "Nothing was to be hidden, so there is nothing to judge."
    if len(found) == 1:
        return attribute_sentence(found[0])
    clauses = {
        HIDDEN: "{} {} hidden",
        NOT_HIDDEN: "{} {} not hidden",
        INCONCLUSIVE: "whether {} {} hidden is not known",
    }
    spoken_by_status = [
        (status, [spoken(f.attribute) for f in found if f.status == status])
        for status in (NOT_HIDDEN, INCONCLUSIVE, HIDDEN)
    ]
    parts = [
        clauses[status].format(listed(names), "is" if len(names) == 1 else "are")
        for status, names in spoken_by_status
        if names
    ]
    return capital("; ".join(parts)) + "."


def attribute_sentence(finding: Finding) -> str:
    """What was found about one hidden attribute, in one sentence.

    >>> from sensorveil.audit.results import SplitAudit, SignalUtility, Verdict
    >>> part = SplitAudit("subject", (0,), True, 9, 9, 2, (), {}, (), SignalUtility())
    >>> attribute_sentence(Finding("age", part, Verdict(INCONCLUSIVE, "one class only"), None, True))
    'Whether age is hidden is not known: one class only.'
    """
    name, reason = spoken(finding.attribute), _bared(finding.verdict.reason)
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
    highest = sharpest(found).auc.value
    if highest > MAX_AUC:
        return (
            f"{_by_window(found)}, but the classes are told apart better than by chance"
            f" (AUC {decimals(highest, 3)}, allowed is {MAX_AUC})"
        )
    return _bared(found.verdict.reason)


def _by_window(found: AttributeAudit) -> str:
    trained = _TRAINED.get(found.worst.threat_model, found.worst.threat_model)
    common = "more" if len(found.classes) == 2 else "most"
    return (
        f"the strongest attacker, {trained}, is right in {percent(found.worst.accuracy.value)} of"
        f" windows; guessing the {common} common class is right in {percent(found.majority)}"
    )


def by_session(point: SessionPoint) -> str:
    """What an attacker gets who adds up windows."""
    group = {"person": "people"}.get(point.group, f"{point.group}s")
    many = "all windows" if point.windows is None else counted(point.windows, "window")
    return (
        f"an attacker who adds up {many} of one {point.group} is right about"
        f" {percent(point.accuracy.value)} of {group}; guessing is right about"
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
    """For each level of attacker that tried single windows: a status, and who that is.

    Where the verdict is inconclusive, nothing is claimed about anybody.
    """
    attacks = real_attacks(found)
    return [
        (_read_by(found, [a for a in attacks if a.threat_model == level]), f"somebody {who}")
        for level, who in _WHO.items()
        if any(attack.threat_model == level for attack in attacks)
    ]


def _read_by(found: AttributeAudit, attacks: Sequence[Attack]) -> str:
    if found.verdict.status != NOT_HIDDEN:
        return found.verdict.status
    better = any(
        attack.advantage.value > MAX_ADVANTAGE or attack.auc.value > MAX_AUC for attack in attacks
    )
    if better:
        return NOT_HIDDEN
    # Who found nothing proves something only where the same attackers find what was planted.
    sees = found.control.advantage.value >= found.planted / 2
    return HIDDEN if sees else INCONCLUSIVE


def interval_note(found: AttributeAudit) -> str:
    """The interval of the worst attacker, and what it means for the verdict."""
    worst = found.worst.advantage
    text = (
        f"The strongest attacker's advantage over guessing is {points(worst.value)} points;"
        f" the 95% interval over {counted(worst.people, 'person')} is"
        f" {points(worst.low)} to {points(worst.high)}."
    )
    if found.verdict.status == HIDDEN and worst.high > MAX_ADVANTAGE:
        text += " The interval reaches past the 2 points allowed: more people could change this."
    if worst.people < FEW_PEOPLE:
        text += " With so few people the true interval is wider."
    return text


def control_note(found: AttributeAudit) -> str:
    """Whether the attackers can see at all: the positive control."""
    planted, seen = points(found.planted).lstrip("+"), points(found.control.advantage.value)
    return (
        f"Control: in the same output with a planted leak of {planted} points, the same attackers"
        f" were {seen} points better than guessing."
    )


def kept_sentence(kept: KeptAttribute) -> str:
    """What an unchanged application still reads."""
    return (
        f"An unchanged application still reads {spoken(kept.attribute)} right in"
        f" {percent(kept.unchanged.value)} of windows; on raw data it was"
        f" {percent(kept.raw.value)}."
    )


def linkage_sentence(link: Linkage) -> str:
    """How often a session is matched to the right person."""
    return (
        "An obfuscated session is matched to the right one of the people compared"
        f" ({_bared(link.gallery)}, {counted(link.people, 'person')} in all) in"
        f" {percent(link.rank1.value)} of cases; guessing gives {percent(link.rank1_chance)},"
        f" raw data {percent(link.raw_rank1.value)}."
    )


def gap_sentence(attribute: str, gap: float) -> str:
    """The gap between the papers' split and unseen people."""
    if not math.isfinite(gap):
        return f"The gap for {spoken(attribute)} could not be measured."
    size = points(abs(gap)).lstrip("+")
    if size == "0.0":
        return f"For {spoken(attribute)} the two splits agree."
    way = "higher" if gap > 0 else "lower"
    return f"For {spoken(attribute)} the worst attacker is {size} points {way} on the second split."


def other_splits(audit: Audit, finding: Finding) -> list[str]:
    """What each other split says about an attribute."""
    said = []
    for part in audit.splits:
        verdicts = part.verdicts(finding.attribute)
        if part is finding.part or not verdicts:
            continue
        worst = min(verdicts, key=lambda verdict: WORST_FIRST.index(verdict.status))
        also = " too" if worst.status == finding.status else ""
        said.append(
            f"On the split {part.split}, with {people_of(part.unseen_people)}, the verdict is"
            f" {STATUS_WORDS[worst.status]}{also}: {_bared(worst.reason)}."
        )
    return said


def worst_note(found: AttributeAudit) -> str:
    """The worst attacker in figures."""
    worst = found.worst
    return (
        f"The worst attacker is {worst.attacker}, {worst.threat_model}: right in"
        f" {with_interval(worst.accuracy)} of windows, balanced accuracy"
        f" {with_interval(worst.balanced_accuracy)}, AUC {auc(worst.auc)}.{_overall_auc(found)}"
    )


def bound_note(found: AttributeAudit) -> str | None:
    """The most that anybody can read from the code, what it assumes, and what sessions add."""
    bound = found.bound
    if bound is None:
        return None
    if bound.vacuous:
        return (
            f"The output is made from one of {bound.codes} codes, but"
            f" {counted(bound.people, 'person')} are too few to say what these tell at most."
        )
    session = bound.of_session(SESSION)
    return (
        f"The output is made from one of {bound.codes} codes and noise. With"
        f" {bound.confidence:.0%} confidence nobody reads more than {percent(bound.accuracy)} of"
        f" single windows, or {decimals(bound.information, 3)} of {decimals(bound.entropy, 3)} bits"
        f" (counted on {counted(bound.people, 'person')}). This assumes that {ASSUMED}. Of"
        f" {SESSION} windows together, nobody reads more than {percent(session.accuracy)}; this"
        f" assumes {ASSUMED_OF_SESSIONS}."
    )


def _overall_auc(found: AttributeAudit) -> str:
    """The highest AUC over all kept classes together, which does not decide."""
    known = [a.overall_auc for a in real_attacks(found) if a.overall_auc is not None]
    highest = max(
        (one for one in known if one.value == one.value), key=lambda one: one.value, default=None
    )
    if highest is None:
        return ""
    return (
        f" The highest AUC among windows of one kept class is {auc(sharpest(found).auc)}, which"
        f" decides; over all windows, with what the kept class itself tells, it is {auc(highest)}."
    )


def people_of(unseen: bool) -> str:
    """Who the people of a split are."""
    return "people never seen in training" if unseen else "the same people in training and test"


def listed(names: Sequence[str]) -> str:
    """Names as a list in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def strengths(strength: Mapping[str, float]) -> str:
    """A method's knobs as they are typed.

    >>> strengths({"keep": 4.0, "gender": 0.3})
    'keep=4, gender=0.3'
    """
    return ", ".join(f"{name}={value:g}" for name, value in strength.items()) or "the method's own"


def _bared(reason: str) -> str:
    """A reason that goes on a sentence: without its own full stop."""
    return reason.strip().rstrip(".") or "no reason was given"
