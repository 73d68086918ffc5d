"""What a page says about each hidden attribute, and on which split it was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sensorveil.audit.results import (
    CONTROL,
    INCONCLUSIVE,
    RAW,
    THREAT_MODELS,
    WORST_FIRST,
    Attack,
    AttributeAudit,
    Audit,
    SplitAudit,
    Verdict,
)


@dataclass(frozen=True)
class Finding:
    """One hidden attribute, the split that decided, and the verdict.

    `found` has the attacks on that split; it is None where nobody could be classified there (new
    people, whose sessions are linked instead) or where no split could be attacked at all.
    `elsewhere` is what the main split says, where another one decided.
    """

    attribute: str
    split: SplitAudit
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
    """The worst verdict; of equally bad ones the first that has attacks to show."""
    tried = [(split, verdict) for split in audit.splits for verdict in split.verdicts(name)]
    split, verdict = min(
        tried,
        key=lambda pair: (
            WORST_FIRST.index(pair[1].status),
            _attacked(pair[0], pair[1], name) is None,
        ),
    )
    is_main, elsewhere = split is audit.main, ""
    if not is_main:
        here = audit.main.verdicts(name)[0]
        elsewhere = f"{here.status}, since {here.reason}"
    return Finding(name, split, verdict, _attacked(split, verdict, name), is_main, elsewhere)


def _attacked(split: SplitAudit, verdict: Verdict, name: str) -> AttributeAudit | None:
    """The attackers' result behind a verdict, where it is theirs."""
    return next(
        (a for a in split.attributes if a.attribute == name and a.verdict == verdict),
        None,
    )


def raw_attack(found: AttributeAudit) -> Attack | None:
    """The best attack on raw windows: what there was to hide."""
    raw = [attack for attack in found.attacks if attack.threat_model == RAW]
    return max(raw, key=lambda attack: attack.accuracy.value, default=None)


def output_attacks(found: AttributeAudit) -> list[Attack]:
    """The attacks on the output as it is: neither on raw windows nor on a planted leak."""
    return [attack for attack in found.attacks if attack.threat_model not in (RAW, CONTROL)]


def highest_auc(found: AttributeAudit) -> Attack:
    """The attack with the highest AUC on the output, which need not be the most accurate one."""
    known = [attack for attack in output_attacks(found) if attack.auc.value == attack.auc.value]
    return max(known, key=lambda attack: attack.auc.value, default=found.worst)


def all_attacks(found: AttributeAudit) -> list[Attack]:
    """The attacks and once the control, in the order of the threat models."""
    attacks = [attack for attack in found.attacks if attack != found.control]
    order = {name: place for place, name in enumerate(THREAT_MODELS)}
    return sorted([*attacks, found.control], key=lambda a: order.get(a.threat_model, len(order)))
