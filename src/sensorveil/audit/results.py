"""What an audit finds: typed, versioned, and the same in JSON as in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from sensorveil.measures.bounds import Bound
from sensorveil.measures.estimate import Estimate

FORMAT = 1

RAW, IGNORANT, LAZY, SEMI, INSIDER, FULL, CONTROL = (
    "raw",
    "ignorant",
    "lazy",
    "semi-informed",
    "insider",
    "fully informed",
    "control",
)
LEVELS = {
    RAW: "trained and tested on raw windows: what there is to hide, and whether attackers can read",
    IGNORANT: "trained on raw windows, tested on obfuscated ones: the papers' fixed attacker",
    LAZY: "trained on the output of the same method with another strength or seed",
    SEMI: "trained on the output of this very obfuscator, with true labels",
    INSIDER: "the same, but on output of windows that the obfuscator never saw: half of the test"
    " windows, to attack the other half",
    FULL: "semi-informed, and sees the method's own condition or code too",
    CONTROL: "semi-informed, on output in which a leak of ten points was planted",
}
"""The rungs of the ladder, from the least to the most informed."""

MOST_ADVANTAGE = 0.02
"""The advantage over guessing that the criterion lets pass."""
MOST_AUC = 0.55
"""The area under the ROC curve that the criterion lets pass."""

IDENTITY = "subject"
"""The attribute that names the person."""

HIDDEN, NOT_HIDDEN, VOID = "hidden", "not hidden", "void"


@dataclass(frozen=True)
class Attack:
    """One family of attacker on one rung of the ladder, reading single windows.

    `advantage` is accuracy minus the majority class's share. `auc` compares windows of one kept
    class, and decides; `overall_auc` compares all of them, with what the kept class itself tells.
    """

    level: str
    family: str
    accuracy: Estimate
    advantage: Estimate
    balanced_accuracy: Estimate
    auc: Estimate
    overall_auc: Estimate | None = None


@dataclass(frozen=True)
class SessionPoint:
    """The worst attacker when it may add up k windows of one recording, or of one person.

    `windows` is k, or None for all windows of the group.
    """

    group: str
    windows: int | None
    sessions: int
    majority: float
    level: str
    family: str
    accuracy: Estimate
    advantage: Estimate
    found: bool
    """Whether the advantage is above zero beyond its interval, corrected for the points tried."""


@dataclass(frozen=True)
class Verdict:
    """hidden, not hidden or void, and why in one sentence."""

    status: str
    reason: str


@dataclass(frozen=True)
class AttributeAudit:
    """All that was found about one attribute."""

    attribute: str
    role: str
    classes: tuple[str, ...]
    windows: int
    people: int
    chance: float
    majority: float
    attacks: tuple[Attack, ...]
    worst: Attack
    control: Attack
    planted: float
    sessions: tuple[SessionPoint, ...]
    verdict: Verdict
    by_person: Mapping[str, float] = field(default_factory=dict)
    """The worst attacker's accuracy on each person, for paired tests between methods."""
    bound: Bound | None = None
    """What nobody can beat, where the output is made from a code that could be counted."""


@dataclass(frozen=True)
class KeptAttribute:
    """What the application still reads: its unchanged model, a retrained one, and the way back.

    `unchanged` is trained on raw and tested on obfuscated windows, `retrained` is trained and
    tested on obfuscated ones, `back` is trained on obfuscated and tested on raw windows.
    """

    attribute: str
    classes: tuple[str, ...]
    majority: float
    raw: Estimate
    unchanged: Estimate
    retrained: Estimate
    back: Estimate
    unchanged_f1: Estimate
    retrained_f1: Estimate
    f1_by_class: Mapping[str, float]
    recall_by_class: Mapping[str, float]


@dataclass(frozen=True)
class SignalUtility:
    """What survives of the signal itself beyond labels; None where it means nothing."""

    frequency_error: float | None = None
    """Mean absolute difference of the dominant frequency, in Hz."""
    frequency_correlation: float | None = None
    """Correlation of the dominant frequency with the raw one within recordings."""
    energy_error: float | None = None
    """Mean absolute difference of the logarithm of the energy."""
    energy_correlation: float | None = None
    """Correlation of the energy with the raw one within recordings."""
    spectrum_distance: float | None = None
    """Distance between the mean power spectra, 0 (same) to 1 (nothing in common)."""
    step_error: float | None = None
    """Mean relative error of the step count on walking windows."""


@dataclass(frozen=True)
class Information:
    """Mutual information with one attribute in bits, on raw and on obfuscated windows."""

    attribute: str
    estimator: str
    raw: float
    obfuscated: float
    entropy: float


@dataclass(frozen=True)
class Linkage:
    """Can an obfuscated session be matched to another session of the same person?

    Of an obfuscated gallery there is a control too: `planted` is what a leak that was planted in
    the same output adds to a perfect linker's first hits, and `control` what the linker then has.
    """

    gallery: str
    people: int
    sessions: int
    rank1: Estimate
    rank1_chance: float
    equal_error_rate: Estimate
    raw_rank1: Estimate
    raw_equal_error_rate: Estimate
    found: bool
    """Whether sessions are matched better than nearly always when people are exchanged."""
    control: Estimate | None = None
    control_found: bool = False
    planted: float = 0.0


@dataclass(frozen=True)
class Reidentification:
    """A model trained on leaked obfuscated windows with labels, as in a paper.

    `after` is ObscureNet (a fifth of the windows leaks, several runs) or CLOAK (section V-J).
    """

    attribute: str
    after: str
    runs: int
    mean: float
    spread: float
    majority: float

    @property
    def advantage(self) -> float:
        """How much better than guessing."""
        return self.mean - self.majority


@dataclass(frozen=True)
class Told:
    """What a probe read, while the run was trained, from what its output is made from.

    `source` is what the kept attributes' encoders make of a window (z_U), or what the generator is
    told of that. `class_alone` is what the kept class by itself gives away; more is a leak. The
    `windows` are of `people` whom the probed encoders were not trained on.
    """

    attribute: str
    source: str
    accuracy: float
    class_alone: float
    majority: float
    people: int
    windows: int


@dataclass(frozen=True)
class TradeOff:
    """One point of the trade-off plot: the application's accuracy against the worst attacker's."""

    name: str
    kept: float
    hidden: float
    attribute: str = ""
    """The hidden attribute that the attacker was after."""


@dataclass(frozen=True)
class SweepPoint:
    """One strength of one run, and what the application and the attacker then read."""

    strength: Mapping[str, float]
    kept: float
    hidden: float


@dataclass(frozen=True)
class Example:
    """A window before and after, for people to look at: (channels, samples) each."""

    title: str
    channels: tuple[str, ...]
    sample_rate: float
    before: tuple[tuple[float, ...], ...]
    after: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class SplitAudit:
    """The audit of one split: people never seen, or the papers' own."""

    split: str
    folds: tuple[int, ...]
    unseen_people: bool
    train_windows: int
    test_windows: int
    test_people: int
    attributes: tuple[AttributeAudit, ...]
    left_out: Mapping[str, str]
    kept: tuple[KeptAttribute, ...]
    signal: SignalUtility
    information: tuple[Information, ...] = ()
    linkage: tuple[Linkage, ...] = ()
    identity: Verdict | None = None
    """The verdict about who people are where they are new: can their sessions be linked?"""
    reidentification: tuple[Reidentification, ...] = ()
    told: tuple[Told, ...] = ()
    trade_off: tuple[TradeOff, ...] = ()
    examples: tuple[Example, ...] = ()

    def attribute(self, name: str) -> AttributeAudit:
        """The audit of one attribute."""
        return next(part for part in self.attributes if part.attribute == name)

    def verdicts(self, name: str) -> list[Verdict]:
        """What this split says about an attribute, by attackers, linkage and re-identification."""
        found = [part.verdict for part in self.attributes if part.attribute == name]
        found += [self.identity] if name == IDENTITY and self.identity else []
        if not found:  # nobody could try, so nobody knows
            found = [Verdict(VOID, self.left_out.get(name, "it could not be attacked"))]
        return found + [
            Verdict(
                NOT_HIDDEN,
                f"re-identification as in {again.after} is right in {again.mean:.1%},"
                f" {100 * again.advantage:.1f} points more than guessing",
            )
            for again in self.reidentification
            if again.attribute == name and again.advantage > MOST_ADVANTAGE
        ]

    def advantages(self, name: str) -> list[float]:
        """The largest advantages of any attacker on an attribute, in this split."""
        found = [_most(part) for part in self.attributes if part.attribute == name]
        if name == IDENTITY and self.linkage:
            links = [link.rank1.value - link.rank1_chance for link in self.linkage if link.found]
            found.append(max(links, default=0.0))
        return found + [r.advantage for r in self.reidentification if r.attribute == name]


def _most(found: AttributeAudit) -> float:
    """The largest advantage by single windows, or over sessions where one was found."""
    sessions = [point.advantage.value for point in found.sessions if point.found]
    return max([found.worst.advantage.value, *sessions])


@dataclass(frozen=True)
class Audit:
    """A whole audit: one run's method and policy, on one or more splits, the first being main."""

    method: str
    summary: str
    keep: tuple[str, ...]
    hide: tuple[str, ...]
    dataset: str
    protocol: str
    strength: Mapping[str, float]
    seeds: tuple[int, ...]
    quick: bool
    parts: tuple[SplitAudit, ...]
    gaps: Mapping[str, float]
    """For each hidden attribute, the worst accuracy of the second split minus the first's."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    """What the run was trained with: preset, settings, seed, and the plan of a federation."""
    format: int = FORMAT

    @property
    def main(self) -> SplitAudit:
        """The split that the verdict is about: unseen people where there are any."""
        return self.parts[0]

    def verdict(self) -> Verdict:
        """The verdict about all hidden attributes together: the worst of theirs."""
        found = [self._verdict(name) for name in self.hide]
        for status in (NOT_HIDDEN, VOID, HIDDEN):
            for verdict in found:
                if verdict.status == status:
                    return verdict
        return Verdict(VOID, "nothing is to be hidden")

    def worst_advantage(self) -> float:
        """The largest advantage of any attacker on any hidden attribute, on any split.

        NaN where a hidden attribute could not be attacked on a split: then nothing is known.
        """
        found = [
            max((most for most in part.advantages(name)), default=np.nan)
            for name in self.hide
            for part in self.parts
        ]
        return float("nan") if any(value != value for value in found) else max(found)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def _verdict(self, name: str) -> Verdict:
        verdicts = [verdict for part in self.parts for verdict in part.verdicts(name)]
        order = (NOT_HIDDEN, VOID, HIDDEN)
        return min(verdicts, key=lambda verdict: order.index(verdict.status))
