"""The verdicts in words: is an attribute hidden, and from whom. The terminal's summary says them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from sensorveil.audit.criterion import is_doubtful, point_windows, too_weak
from sensorveil.audit.results import (
    CONTROL,
    FULL,
    HIDDEN,
    IDENTITY,
    IGNORANT,
    INCONCLUSIVE,
    INSIDER,
    LAZY,
    MAX_ADVANTAGE,
    MAX_AUC,
    NOT_HIDDEN,
    RAW,
    SEMI,
    WORST_FIRST,
    Attack,
    AttributeAudit,
    DonorAudit,
    SessionPoint,
    SplitAudit,
)
from sensorveil.report.findings import (
    Finding,
    adds_up,
    all_attacks,
    look_points,
    output_attacks,
    session_points,
    stands_out,
)
from sensorveil.report.numbers import decimals, p_value, percent
from sensorveil.report.text import bare, capital, linkage_sentence, listed, spoken

WINDOWS, SESSIONS, LOOKS = "single windows", "several windows", "several looks"
MATCHES, OTHERS = "matched sessions", "other attacks"

_TRAINED = {
    IGNORANT: "trained on raw data",
    LAZY: "trained on output of the same method with another seed",
    SEMI: "retrained on this very output",
    INSIDER: "retrained on output of windows that the obfuscator never saw",
    FULL: "retrained on this very output and shown the method's own condition or code",
}
_BEGINS = {HIDDEN: "No leak found.", INCONCLUSIVE: "Not known.", NOT_HIDDEN: ""}
_ON = {
    NOT_HIDDEN: "a leak is found in",
    INCONCLUSIVE: "nothing is known about",
    HIDDEN: "no leak is found in",
}


@dataclass(frozen=True)
class Answer:
    """Whether an attribute is hidden from attackers who see so much: a status, and sentences."""

    status: str
    scope: str
    begin: str
    figures: str

    @property
    def said(self) -> str:
        """All sentences."""
        return f"{self.begin} {self.figures}".strip()


def headline(found: Sequence[Finding]) -> str:
    """The verdict about all hidden attributes, without the figures."""
    if not found:
        return "Nothing was to be hidden, so there is nothing to judge."
    if len(found) == 1:
        return _verdict(found[0])
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


def _verdict(finding: Finding) -> str:
    name = spoken(finding.attribute)
    if finding.status == INCONCLUSIVE:
        return f"Whether {name} is hidden is not known."
    return f"{capital(name)} is {finding.status}."


def why_inconclusive(finding: Finding) -> str | None:
    """The reason for which it is not known whether an attribute is hidden."""
    if finding.status != INCONCLUSIVE:
        return None
    return f"{capital(bare(finding.verdict.reason))}."


def attribute_sentences(finding: Finding) -> str:
    """From whom one attribute is hidden, and the figures that decided.

    >>> from sensorveil.audit.results import SignalUtility, Verdict
    >>> split = SplitAudit("subject", (0,), True, 9, 9, 2, (), {}, (), SignalUtility())
    >>> verdict = Verdict(INCONCLUSIVE, "one class only")
    >>> attribute_sentences(Finding("age", split, verdict, None, True))
    'One class only.'
    """
    answers = from_whom(finding)
    if finding.status == INCONCLUSIVE:
        figures = [one.figures for one in answers[:1] if one.scope != OTHERS]
        return " ".join([why_inconclusive(finding) or "", *figures])
    clauses = []
    for status in WORST_FIRST:
        scopes = [one.scope for one in answers if one.status == status]
        if scopes:
            clauses.append(f"{_ON[status]} {listed(scopes)}")
    worst = min(answers, key=lambda one: WORST_FIRST.index(one.status))
    return f"{capital('; '.join(clauses))}. {worst.figures}"


def from_whom(finding: Finding) -> list[Answer]:
    """What attackers find who see single windows, several, or one window several times.

    The criterion's own findings decide. Where the attackers' result is inconclusive, nothing is
    claimed about any of them.
    """
    answers: list[Answer] = []
    found = finding.found
    if found is not None:
        answers.append(_of_windows(found))
        for scope, points in ((SESSIONS, session_points(found)), (LOOKS, look_points(found))):
            point = stands_out(points)
            if point is not None:
                answers.append(_of_sessions(found, scope, points, point, answers[0].status))
    if finding.attribute == IDENTITY:
        answers += _of_matches(finding.split)
    # Re-identification and bounds decide too, and so does what could not be attacked.
    if finding.status not in {one.status for one in answers}:
        reason = f"{capital(bare(finding.verdict.reason))}."
        answers.append(Answer(finding.status, OTHERS, "", reason))
    return answers


def _of_windows(found: AttributeAudit) -> Answer:
    attacks = output_attacks(found)
    leaks = [attack for attack in attacks if attack.found]
    if leaks:
        return Answer(NOT_HIDDEN, WINDOWS, "", f"{_window_leak(leaks, found.majority)}.")
    status = _without_leak(found, attacks)
    said = _by_window(f"The worst attacker, {_who(found.worst)},", found.worst, found.majority)
    return Answer(status, WINDOWS, _BEGINS[status], f"{said}.")


def _window_leak(leaks: Sequence[Attack], majority: float) -> str:
    """The largest leak of single windows, by accuracy or, where that is small, by AUC."""
    worst = max(leaks, key=lambda attack: attack.advantage.value)
    if worst.advantage.value > MAX_ADVANTAGE:
        said = _by_window(f"An attacker {_who(worst)}", worst, majority)
        return f"{said} ({_p(worst.p_value)})"
    sharpest = max(leaks, key=lambda attack: attack.auc.value)
    return (
        f"An attacker {_who(sharpest)} ranks windows of one kept class better than by chance: AUC"
        f" {decimals(sharpest.auc.value, 3)}, allowed is {MAX_AUC} ({_p(sharpest.p_value)})"
    )


def _by_window(who: str, attack: Attack, majority: float) -> str:
    return (
        f"{who} is right in {percent(attack.accuracy.value)} of windows, the majority baseline in"
        f" {percent(majority)}"
    )


def _of_sessions(
    found: AttributeAudit,
    scope: str,
    points: Sequence[SessionPoint],
    point: SessionPoint,
    of_windows: str,
) -> Answer:
    if point.significant:
        return Answer(NOT_HIDDEN, scope, "", by_session(found, point))
    said, status = by_session(found, point), _without_leak(found, points)
    if of_windows == NOT_HIDDEN:  # one of the windows is enough
        return Answer(INCONCLUSIVE, scope, "No leak found beyond that of single windows.", said)
    return Answer(status, scope, _BEGINS[status], said)


def by_session(found: AttributeAudit, point: SessionPoint) -> str:
    """How often the worst attacker is right who adds up several windows, or learns from them."""
    how = "adds up" if adds_up(found, point) else "learns from"
    return (
        f"The worst attacker {how} {point_windows(point)} ({point.attacker}, {point.threat_model})."
        f" It is right in {percent(point.accuracy.value)} of {point.sessions:,} cases, the majority"
        f" baseline in {percent(point.majority)} ({_p(point.p_value)})."
    )


def _of_matches(split: SplitAudit) -> list[Answer]:
    """Linkage: the verdict on identity where people are new to everybody."""
    if split.identity is None:
        return []
    others = INCONCLUSIVE if split.identity.status == NOT_HIDDEN else split.identity.status
    answers = []
    for link in split.linkage:
        status = NOT_HIDDEN if link.significant else others
        answers.append(Answer(status, MATCHES, _BEGINS[status], linkage_sentence(link)))
    return answers


def _without_leak(found: AttributeAudit, own: Sequence[Attack | SessionPoint]) -> str:
    """The status for attackers that found no leak."""
    if found.verdict.status != NOT_HIDDEN:
        return found.verdict.status
    # Finding nothing proves something only where the same attackers find what was planted.
    proves = not too_weak(output_attacks(found), found.control, found.planted)
    return HIDDEN if proves and not any(map(is_doubtful, own)) else INCONCLUSIVE


def by_threat_model(found: AttributeAudit) -> list[tuple[str, str]]:
    """For each threat model, on single windows: a status, and what the attackers are."""
    begins = {HIDDEN: "hidden from", NOT_HIDDEN: "found out by", INCONCLUSIVE: "not known for"}
    attacks = [one for one in all_attacks(found) if one.threat_model not in (RAW, CONTROL)]
    said = []
    for model, group in groupby(attacks, lambda attack: attack.threat_model):
        own = list(group)
        leaks = [attack for attack in own if attack.found]
        status = NOT_HIDDEN if leaks else _without_leak(found, own)
        name = f" ({model})" if model in _TRAINED else ""
        sentence = f"{begins[status]} an attacker {_trained(model)}{name}"
        if leaks:
            sentence += f": {_p(min(attack.p_value for attack in leaks))}"
        said.append((status, sentence))
    return said


def donor_sentence(donors: DonorAudit) -> str:
    """The verdict about the people whose recordings a method learnt from."""
    they, reason = "donors, from whom the method learnt,", bare(donors.verdict.reason)
    if donors.verdict.status == INCONCLUSIVE:
        return f"It is not known whether {they} are hidden: {reason}."
    return f"{capital(they)} are {donors.verdict.status}: {reason}."


def _who(attack: Attack) -> str:
    model = attack.threat_model
    names = f"{attack.attacker}, {model}" if model in _TRAINED else attack.attacker
    return f"{_trained(model)} ({names})"


def _trained(threat_model: str) -> str:
    return _TRAINED.get(threat_model, f"of the threat model {threat_model}")


def _p(value: float) -> str:
    said = p_value(value)
    sign, figure = ("<", said.removeprefix("below ")) if "below" in said else ("=", said)
    return f"p\N{NO-BREAK SPACE}{sign}\N{NO-BREAK SPACE}{figure}"
