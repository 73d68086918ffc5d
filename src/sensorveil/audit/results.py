"""What an audit finds: typed values, and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from sensorveil.audit.measures import Measured
from sensorveil.methods.base import ConditionProbe
from sensorveil.methods.seal_bound import Bound
from sensorveil.statistics import Estimate

FORMAT = 3
FILE = "audit.json"

RAW, IGNORANT, LAZY, SEMI, INSIDER, FULL, CONTROL = (
    "raw",
    "ignorant",
    "lazy",
    "semi-informed",
    "insider",
    "fully informed",
    "control",
)
THREAT_MODELS = {
    RAW: "Trained and tested on raw windows: what there is to hide, and what attackers can do.",
    IGNORANT: "Trained on raw windows, tested on obfuscated ones: the papers' fixed attacker.",
    LAZY: "Trained on the output of the same method with another seed.",
    SEMI: "Trained on labelled output of this very obfuscator.",
    INSIDER: "Trained on labelled output of windows that the obfuscator never saw: half of the"
    " test windows, to attack the other half.",
    FULL: "Semi-informed, and sees the method's own condition or code.",
    CONTROL: "Semi-informed, on output in which a leak of ten points was planted.",
}
"""The threat models, from the least to the most informed, with one sentence each."""

MAX_ADVANTAGE = 0.02
"""The advantage over the majority baseline that the criterion lets pass."""
MAX_AUC = 0.55
"""The area under the ROC curve that the criterion lets pass."""
ALPHA = 0.005
"""A leak is found if the best of all attackers is as good in at most this share of exchanges."""
DOUBT = 0.02
"""Up to this share the verdict is inconclusive: there may be a leak."""

RECORDING, PERSON, LOOKS = "recording", "person", "same window"
"""What several windows that are attacked together have in common."""

IDENTITY = "subject"
"""The attribute that names the person."""

HIDDEN, NOT_HIDDEN, INCONCLUSIVE = "hidden", "not hidden", "inconclusive"
WORST_FIRST = (NOT_HIDDEN, INCONCLUSIVE, HIDDEN)
"""Verdicts from the worst to the best."""


@dataclass(frozen=True)
class Verdict:
    """One of `WORST_FIRST`, and why in one sentence."""

    status: str
    reason: str


def worst_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """The first of the worst verdicts.

    >>> worst_verdict([Verdict(HIDDEN, "on one split"), Verdict(NOT_HIDDEN, "on another")]).status
    'not hidden'
    """
    return min(verdicts, key=lambda verdict: WORST_FIRST.index(verdict.status))


@dataclass(frozen=True)
class Attack:
    """One attacker under one threat model, on single windows.

    `advantage` is accuracy minus the majority class's share. `auc` compares windows of one kept
    class with each other, and decides; `overall_auc` compares all windows, so it includes what the
    kept class itself gives away. `tpr_at_1pct` is the true positive rate at 1% false positives, the
    mean over classes of one against the rest. `p_value` is how often the best of all attackers stands
    out as much when classes are exchanged between people (or recordings). `found` says whether the
    attacker is above a limit of the criterion, and the p-value below `ALPHA`.
    """

    threat_model: str
    attacker: str
    accuracy: Estimate
    advantage: Estimate
    balanced_accuracy: Estimate
    auc: Estimate
    overall_auc: Estimate | None = None
    tpr_at_1pct: Estimate | None = None
    p_value: float = 1.0
    found: bool = False


@dataclass(frozen=True)
class SessionPoint:
    """The worst attacker who sees several windows at once: of one recording, of one person, or
    several obfuscations of one and the same window.

    `group` is RECORDING, PERSON or LOOKS. `windows` is the number of windows (or looks), or None for
    all windows of the group. `p_value` is that of `Attack`. `significant` says whether the
    advantage is above `MAX_ADVANTAGE` and the p-value below `ALPHA`.
    """

    group: str
    windows: int | None
    sessions: int
    majority: float
    threat_model: str
    attacker: str
    accuracy: Estimate
    advantage: Estimate
    significant: bool
    p_value: float = 1.0


@dataclass(frozen=True)
class BayesRisk:
    """An estimate of the best possible accuracy on single windows that needs no attacker.

    It is a nearest-neighbour estimate of one minus the Bayes risk, on learnt features. It can
    fall short of the truth, so it never makes a verdict `hidden`.
    """

    accuracy: Estimate
    advantage: Estimate
    raw_accuracy: Estimate | None = None


@dataclass(frozen=True)
class AttributeAudit:
    """All results about one attribute.

    `by_person` is the worst attacker's accuracy on each person, for paired tests between methods.
    `cross_fitted` is the advantage of the attacker that is best on half of the people (or recordings),
    on the other half; the mean over many halves. So it is not the best of many by luck.
    `bound` is the counted bound on single windows, where the output is made from a code that could
    be counted.
    """

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
    bound: Bound | None = None
    bayes: BayesRisk | None = None
    cross_fitted: float = 0.0

    def largest_advantage(self) -> float:
        """The largest advantage on single windows, or on sessions where that is significant."""
        points = [point.advantage.value for point in self.sessions if point.significant]
        return max([self.worst.advantage.value, *points])


@dataclass(frozen=True)
class Application:
    """The accuracy of one application of a given design.

    `unchanged` is trained on raw and tested on obfuscated windows, `retrained` is trained and
    tested on obfuscated ones, `retrained_on_raw` is the retrained model tested on raw windows.
    """

    name: str
    raw: Estimate
    unchanged: Estimate
    retrained: Estimate
    retrained_on_raw: Estimate


@dataclass(frozen=True)
class TransitionsSeen:
    """The changes of a class over a recording that applications predict.

    Parameters
    ----------
    changes
        How many there are, the mean over recordings.
    noticed
        The share of true changes that are predicted.
    delay
        Median seconds between a true change and the predicted one, early or late; None if no change
        is predicted.
    """

    changes: float
    noticed: float
    delay: float | None


@dataclass(frozen=True)
class Transitions:
    """When unchanged applications notice that the class has changed, on raw and on obfuscated windows.

    `changes` is the true number of changes in recordings of more than one class, the mean over these.
    """

    changes: float
    raw: TransitionsSeen
    unchanged: TransitionsSeen


@dataclass(frozen=True)
class KeptAttribute:
    """How well applications work: with their model as it is, and with a retrained one.

    The estimates are means over `applications`, whose designs differ; the names are explained
    there. No application trains or chooses anything in a method. `transitions` is None where each
    recording has one class.
    """

    attribute: str
    classes: tuple[str, ...]
    majority: float
    raw: Estimate
    unchanged: Estimate
    retrained: Estimate
    retrained_on_raw: Estimate
    unchanged_f1: Estimate
    retrained_f1: Estimate
    f1_by_class: Mapping[str, float]
    recall_by_class: Mapping[str, float]
    applications: tuple[Application, ...] = ()
    transitions: Transitions | None = None

    @property
    def worst(self) -> Application | None:
        """The application whose unchanged model loses most on obfuscated windows."""
        return max(
            self.applications,
            key=lambda one: one.raw.value - one.unchanged.value,
            default=None,
        )


@dataclass(frozen=True)
class Nearness:
    """How near the output lies to the windows that the method learnt from.

    Each of `outputs` obfuscated windows is compared with `windows` training windows and as many
    fresh windows of the same people, but for its wearer. `nearer` is the share whose nearest window
    is a training window. `excess` is how far that share is above what windows that repeat nobody's give:
    one half where models are trained, otherwise the share of raw windows. `control` is the excess where
    a fifth of the output is replaced by training windows. All three are None where there are no fresh
    windows of the training people. `p_value` is how often `nearer` is as far from one half when
    training windows and fresh ones of a person are exchanged. `copies` counts output that is a training window
    itself.
    """

    outputs: int
    copies: int
    windows: int = 0
    nearer: Estimate | None = None
    excess: Estimate | None = None
    control: Estimate | None = None
    p_value: float = 1.0


@dataclass(frozen=True)
class Membership:
    """Membership inference: can be seen which windows a model was trained on?

    Each of `models` models is trained on half of the recordings and attacked once by means of the
    others. Figures are means over them, with intervals over the models. `score` says what the attack
    compares, and `windows` counts members and nonmembers of one model. By luck, the AUC is 0.5 and
    a true positive rate is the false positive rate; 0.1% needs 1,000 nonmembers.
    """

    score: str
    models: int
    windows: int
    auc: Estimate
    tpr_at_1pct: Estimate
    tpr_at_01pct: Estimate | None = None


@dataclass(frozen=True)
class DonorAudit:
    """What the output and the trained method reveal about the people they were trained on."""

    verdict: Verdict
    nearness: Nearness | None = None
    membership: Membership | None = None
    not_asked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SignalUtility:
    """What survives of the signal itself beyond labels; None where it means nothing.

    Correlations compare windows of one recording before and after; the mean is over recordings.
    What is said of people who walk needs accelerations and a kept class that is named so.

    Parameters
    ----------
    frequency_error, frequency_correlation
        Of the dominant frequency: the mean error in Hz, and the correlation.
    energy_error, energy_correlation
        Of the energy: the mean error of its logarithm, and the correlation.
    spectrum_distance
        From 0 (mean spectra are the same) to 1 (they have nothing in common).
    step_error
        Mean relative error of the steps counted in a window of people who walk.
    spectrum_correlation
        Of the logarithm of the power in up to 12 bands of frequency; the mean is over bands and
        channels, too.
    cadence_correlation, cadence_error
        Of the steps a minute of people who walk: the correlation, and the median error.
    cadence_reference
        The median error of a display that shows each person the median cadence of all others.
    recording_step_error
        Relative error of the steps counted in all walking of a recording: the median over recordings.
    intensity_error
        Mean distance of the shares of time in low, moderate and high intensity, over people; the
        terciles of the raw energy of acceleration divide these.
    """

    frequency_error: float | None = None
    frequency_correlation: float | None = None
    energy_error: float | None = None
    energy_correlation: float | None = None
    spectrum_distance: float | None = None
    step_error: float | None = None
    spectrum_correlation: float | None = None
    cadence_correlation: float | None = None
    cadence_error: float | None = None
    cadence_reference: float | None = None
    recording_step_error: float | None = None
    intensity_error: float | None = None


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
    """How well obfuscated sessions are matched to other sessions of the same person.

    `significant` says whether they are matched better than under nearly all exchanges of people.
    An obfuscated gallery has a control too: `planted` is what a leak that was planted in the same
    output adds to a perfect linker's rank 1, and `control` the rank 1 of a linker that saw it.
    """

    gallery: str
    people: int
    sessions: int
    rank1: Estimate
    rank1_chance: float
    equal_error_rate: Estimate
    raw_rank1: Estimate
    raw_equal_error_rate: Estimate
    significant: bool
    control: Estimate | None = None
    control_significant: bool = False
    planted: float = 0.0

    @property
    def advantage(self) -> float:
        """Rank 1 above chance."""
        return self.rank1.value - self.rank1_chance


@dataclass(frozen=True)
class Reidentification:
    """A model trained on leaked obfuscated windows with labels, by a paper's protocol.

    `protocol` is ObscureNet (a fifth of the windows leaks, several runs) or CLOAK (section V-J).
    """

    attribute: str
    protocol: str
    runs: int
    mean: float
    spread: float
    majority: float

    @property
    def advantage(self) -> float:
        """Accuracy above the majority baseline."""
        return self.mean - self.majority


@dataclass(frozen=True)
class TradeOff:
    """One point of the trade-off plot: the application's accuracy against the worst attacker's.

    `attribute` is the hidden attribute that was attacked.
    """

    name: str
    kept: float
    hidden: float
    attribute: str = ""


@dataclass(frozen=True)
class SweepPoint:
    """One strength of one run, with the application's and the attacker's accuracy."""

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
    """The audit of one split: with people unseen in training, or the papers' own.

    `identity` is the verdict about linkage, where the test people are unseen. `not_asked` says which
    questions could not be asked of this output, and why.
    """

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
    reidentification: tuple[Reidentification, ...] = ()
    condition_probes: tuple[ConditionProbe, ...] = ()
    trade_off: tuple[TradeOff, ...] = ()
    examples: tuple[Example, ...] = ()
    measures: tuple[Measured, ...] = ()
    donors: DonorAudit | None = None
    not_asked: Mapping[str, str] = field(default_factory=dict)

    def attribute(self, name: str) -> AttributeAudit:
        """The audit of one attribute."""
        return next(part for part in self.attributes if part.attribute == name)

    def verdicts(self, name: str) -> list[Verdict]:
        """This split's verdicts on an attribute: attackers, linkage and re-identification."""
        found = [part.verdict for part in self.attributes if part.attribute == name]
        found += [self.identity] if name == IDENTITY and self.identity else []
        if not found:
            found = [Verdict(INCONCLUSIVE, self.left_out.get(name, "it could not be attacked"))]
        return found + [
            Verdict(
                NOT_HIDDEN,
                f"re-identification by the protocol of {again.protocol} is right in"
                f" {again.mean:.1%}, {100 * again.advantage:.1f} points above the majority baseline",
            )
            for again in self.reidentification
            if again.attribute == name and again.advantage > MAX_ADVANTAGE
        ]

    def advantages(self, name: str) -> list[float]:
        """The largest advantages of any attacker on an attribute, in this split."""
        found = [part.largest_advantage() for part in self.attributes if part.attribute == name]
        if name == IDENTITY and self.linkage:
            links = [link.advantage for link in self.linkage if link.significant]
            found.append(max(links, default=0.0))
        return found + [r.advantage for r in self.reidentification if r.attribute == name]


@dataclass(frozen=True)
class Audit:
    """A whole audit: one run's method and policy, on one or more splits.

    `gaps` has, for each hidden attribute, the worst accuracy on the second split minus that on the
    first. `run` is what the run was trained with: preset, settings, seed, configuration of a federation.
    """

    method: str
    summary: str
    keep: tuple[str, ...]
    hide: tuple[str, ...]
    dataset: str
    protocol: str
    strength: Mapping[str, float]
    seeds: tuple[int, ...]
    quick: bool
    splits: tuple[SplitAudit, ...]
    gaps: Mapping[str, float]
    conditions: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def main(self) -> SplitAudit:
        """The split that comes first: unseen people where there are any."""
        return self.splits[0]

    def verdict(self) -> Verdict:
        """The worst verdict on any hidden attribute, on any split."""
        found = [
            verdict
            for name in self.hide
            for split in self.splits
            for verdict in split.verdicts(name)
        ]
        return worst_verdict(found or [Verdict(INCONCLUSIVE, "nothing is to be hidden")])

    def worst_advantage(self) -> float:
        """The largest advantage of any attacker on any hidden attribute, on any split.

        NaN where a hidden attribute could not be attacked on a split: then nothing is known.
        """
        found = [
            max(split.advantages(name), default=np.nan)
            for name in self.hide
            for split in self.splits
        ]
        return float("nan") if any(np.isnan(found)) else max(found)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def gaps(splits: Sequence[SplitAudit], hide: Sequence[str]) -> dict[str, float]:
    """The worst accuracy on the second split minus that on the first, by hidden attribute."""
    if len(splits) < 2:
        return {}
    first, second = (
        {part.attribute: part.worst.accuracy.value for part in split.attributes}
        for split in splits[:2]
    )
    return {name: second[name] - first[name] for name in hide if name in first and name in second}
