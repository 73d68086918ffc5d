"""What the page says about each hidden attribute, and on which split it was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sensorveil.audit.results import (
    CONTROL,
    HIDDEN,
    NOT_HIDDEN,
    RAW,
    VOID,
    Attack,
    AttributeAudit,
    Audit,
    SplitAudit,
)

WORST_FIRST = (NOT_HIDDEN, VOID, HIDDEN)


@dataclass(frozen=True)
class Finding:
    """One hidden attribute, where it could be attacked, and what came out.

    `found` is None where no split could attack it: its status is then void, and `why_not` says why.
    """

    attribute: str
    part: SplitAudit
    found: AttributeAudit | None
    is_main: bool
    why_not: str = ""

    @property
    def status(self) -> str:
        """hidden, not hidden or void."""
        return self.found.verdict.status if self.found else VOID


def findings(audit: Audit) -> list[Finding]:
    """One finding for each hidden attribute, from the first split that could attack it.

    Identity cannot be classified among people who were never seen, so it comes from another split.
    """
    return [_finding(audit, name) for name in audit.hide]


def overall(found: Sequence[Finding]) -> str:
    """The worst status: one attribute that is not hidden outweighs all that are."""
    statuses = {finding.status for finding in found}
    return next((status for status in WORST_FIRST if status in statuses), VOID)


def _finding(audit: Audit, name: str) -> Finding:
    """The split that gives the attribute away, else the first that could attack it."""
    why_not = audit.main.left_out.get(name, "it was not attacked")
    tried = [(part, a) for part in audit.parts for a in part.attributes if a.attribute == name]
    if not tried:
        return Finding(name, audit.main, None, True, why_not)
    leaks = [pair for pair in tried if pair[1].verdict.status == NOT_HIDDEN]
    part, found = (leaks or tried)[0]
    if part is audit.main:
        return Finding(name, part, found, True)
    if tried[0][0] is audit.main:
        why_not = f"there it is {tried[0][1].verdict.status}, but not here"
    return Finding(name, part, found, False, why_not)


def raw_level(found: AttributeAudit) -> Attack | None:
    """The best attacker on raw windows: what there was to hide."""
    raw = [attack for attack in found.attacks if attack.level == RAW]
    return max(raw, key=lambda attack: attack.accuracy.value, default=None)


def sharpest(found: AttributeAudit) -> Attack:
    """The attacker with the highest AUC on the output, who need not be the most accurate one."""
    known = [attack for attack in real_attacks(found) if attack.auc.value == attack.auc.value]
    return max(known, key=lambda attack: attack.auc.value, default=found.worst)


def real_attacks(found: AttributeAudit) -> list[Attack]:
    """The attacks on the output as it is: neither on raw windows nor on a planted leak."""
    return [attack for attack in found.attacks if attack.level not in (RAW, CONTROL)]
