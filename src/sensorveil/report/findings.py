"""What a page says about each hidden attribute, and on which split it was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sensorveil.audit.results import (
    CONTROL,
    INCONCLUSIVE,
    LOOKS,
    RAW,
    THREAT_MODELS,
    WORST_FIRST,
    Attack,
    AttributeAudit,
    Audit,
    Information,
    SessionPoint,
    SplitAudit,
    Verdict,
)


@dataclass(frozen=True)
class Finding:
    """One hidden attribute, the split that decided, and the verdict.

    `found` has the attacks on that split, whose own verdict may be a better one; it is None where
    nobody could be classified there (new people, whose sessions are linked instead) or where no
    split could be attacked at all. `elsewhere` is what the main split says, where another decided.
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
            all(part.verdict != pair[1] for part in _attacked(pair[0], name)),
        ),
    )
    is_main, elsewhere = split is audit.main, ""
    if not is_main:
        here = audit.main.verdicts(name)[0]
        elsewhere = f"{here.status}, since {here.reason}"
    found = next(iter(_attacked(split, name)), None)
    return Finding(name, split, verdict, found, is_main, elsewhere)


def _attacked(split: SplitAudit, name: str) -> list[AttributeAudit]:
    return [part for part in split.attributes if part.attribute == name]


def raw_attacks(found: AttributeAudit) -> list[Attack]:
    """The attacks on raw windows."""
    return [attack for attack in found.attacks if attack.threat_model == RAW]


def raw_attack(found: AttributeAudit) -> Attack | None:
    """The best attack on raw windows: what there was to hide."""
    return max(raw_attacks(found), key=lambda attack: attack.accuracy.value, default=None)


def output_attacks(found: AttributeAudit) -> list[Attack]:
    """The attacks on the output as it is: neither on raw windows nor on a planted leak."""
    return [attack for attack in found.attacks if attack.threat_model not in (RAW, CONTROL)]


def highest_auc(found: AttributeAudit) -> Attack:
    """The attack with the highest AUC on the output, which need not be the most accurate one."""
    known = [attack for attack in output_attacks(found) if attack.auc.value == attack.auc.value]
    return max(known, key=lambda attack: attack.auc.value, default=found.worst)


def highest_tpr(attacks: Sequence[Attack]) -> Attack | None:
    """The attack with the highest true positive rate at 1% false positives, where it is known."""
    known = [one for one in attacks if one.tpr_at_1pct and one.tpr_at_1pct.value >= 0]
    return max(known, key=lambda one: one.tpr_at_1pct.value if one.tpr_at_1pct else 0, default=None)


def adds_up(found: AttributeAudit, point: SessionPoint) -> bool:
    """Whether the attacker adds up what it predicts of single windows; session attackers do not.

    Session attackers learn from many windows, and attack no single ones.
    """
    return point.attacker in {attack.attacker for attack in found.attacks}


def session_points(found: AttributeAudit) -> list[SessionPoint]:
    """The attacks on several windows of a recording or person."""
    return [point for point in found.sessions if point.group != LOOKS]


def look_points(found: AttributeAudit) -> list[SessionPoint]:
    """The attacks on several obfuscations of one window."""
    return [point for point in found.sessions if point.group == LOOKS]


def stands_out(points: Sequence[SessionPoint]) -> SessionPoint | None:
    """The largest leak that was found; where there is none, what is least likely by luck.

    The largest advantage would not do: few sessions have large ones by luck.
    """
    return max(
        points,
        key=lambda one: (
            one.significant,
            0 if one.significant else -one.p_value,
            one.advantage.value,
        ),
        default=None,
    )


def most_informed(split: SplitAudit, attribute: str) -> Information | None:
    """The estimate of information about an attribute that is highest on the output."""
    known = [one for one in split.information if one.attribute == attribute]
    return max(known, key=lambda one: one.obfuscated, default=None)


def all_attacks(found: AttributeAudit) -> list[Attack]:
    """The attacks and once the control, in the order of the threat models."""
    attacks = [attack for attack in found.attacks if attack != found.control]
    order = {name: place for place, name in enumerate(THREAT_MODELS)}
    return sorted([*attacks, found.control], key=lambda a: order.get(a.threat_model, len(order)))
