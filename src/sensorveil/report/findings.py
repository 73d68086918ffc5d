"""What the page says about each hidden attribute, and on which split it was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sensorveil.audit.results import (
    CONTROL,
    INCONCLUSIVE,
    RAW,
    WORST_FIRST,
    Attack,
    AttributeAudit,
    Audit,
    SplitAudit,
    Verdict,
)


@dataclass(frozen=True)
class Finding:
    """One hidden attribute, where it was decided, and what came out.

    `found` has the attackers on that split; it is None where nobody could be classified there
    (new people, whose sessions are linked instead) or where no split could attack at all.
    """

    attribute: str
    part: SplitAudit
    verdict: Verdict
    found: AttributeAudit | None
    is_main: bool
    elsewhere: str = ""

    @property
    def status(self) -> str:
        """hidden, not hidden or inconclusive."""
        return self.verdict.status


def findings(audit: Audit) -> list[Finding]:
    """One finding for each hidden attribute: the worst verdict of all splits decides.

    Identity cannot be classified among people who were never seen; there, sessions are linked.
    """
    return [_finding(audit, name) for name in audit.hide]


def overall(found: Sequence[Finding]) -> str:
    """The worst status: one attribute that is not hidden outweighs all that are."""
    statuses = {finding.status for finding in found}
    return next((status for status in WORST_FIRST if status in statuses), INCONCLUSIVE)


def _finding(audit: Audit, name: str) -> Finding:
    """The worst verdict; of equally bad ones the first that has attackers to show."""
    tried = [(part, verdict) for part in audit.splits for verdict in part.verdicts(name)]
    if not tried:
        why_not = audit.main.left_out.get(name, "it was not attacked")
        return Finding(name, audit.main, Verdict(INCONCLUSIVE, why_not), None, True)
    part, verdict = min(
        tried,
        key=lambda pair: (
            WORST_FIRST.index(pair[1].status),
            _attacked(pair[0], pair[1], name) is None,
        ),
    )
    is_main = part is audit.main
    elsewhere = ""
    if not is_main:
        here = [verdict for other, verdict in tried if other is audit.main]
        elsewhere = audit.main.left_out.get(name, "it was not attacked")
        if here:
            elsewhere = f"{here[0].status}, since {here[0].reason}"
    return Finding(name, part, verdict, _attacked(part, verdict, name), is_main, elsewhere)


def _attacked(part: SplitAudit, verdict: Verdict, name: str) -> AttributeAudit | None:
    """The attackers' result behind a verdict, where it is theirs."""
    return next(
        (a for a in part.attributes if a.attribute == name and a.verdict == verdict),
        None,
    )


def raw_level(found: AttributeAudit) -> Attack | None:
    """The best attacker on raw windows: what there was to hide."""
    raw = [attack for attack in found.attacks if attack.threat_model == RAW]
    return max(raw, key=lambda attack: attack.accuracy.value, default=None)


def sharpest(found: AttributeAudit) -> Attack:
    """The attacker with the highest AUC on the output, who need not be the most accurate one."""
    known = [attack for attack in real_attacks(found) if attack.auc.value == attack.auc.value]
    return max(known, key=lambda attack: attack.auc.value, default=found.worst)


def real_attacks(found: AttributeAudit) -> list[Attack]:
    """The attacks on the output as it is: neither on raw windows nor on a planted leak."""
    return [attack for attack in found.attacks if attack.threat_model not in (RAW, CONTROL)]
