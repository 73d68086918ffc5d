"""The whole audit of a run: ladder, sessions, utility, information, identity, and one verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sensorveil.audit.attackers import AttackDataset, Budget
from sensorveil.audit.bounded import with_bounds
from sensorveil.audit.criterion import judge_linkage
from sensorveil.audit.evaluation import check_folds, check_unseen, scorable
from sensorveil.audit.folds import (
    Fold,
    Output,
    check_others,
    obfuscated,
    second,
    thin_places,
    thinned,
)
from sensorveil.audit.ladder import run_attacks
from sensorveil.audit.linkage import Round, linkage
from sensorveil.audit.linkers import LinkageBudget
from sensorveil.audit.probed import probed
from sensorveil.audit.reidentification import (
    CLOAK,
    OBSCURENET,
    cloak_reidentification,
    obscurenet_reidentification,
)
from sensorveil.audit.results import (
    Audit,
    Example,
    Linkage,
    Reidentification,
    SplitAudit,
    TradeOff,
    gaps,
)
from sensorveil.audit.signals import signal_utility
from sensorveil.audit.sweep import read
from sensorveil.audit.utility import information, kept_attribute
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator, Strength
from sensorveil.methods.registry import method

PLAIN = ("none", "noise", "downsample", "resample")
"""The plain methods that stand in every trade-off plot."""


LINKAGE_DRAWS = 5
"""How often sessions are drawn and obfuscated anew to be linked."""

TRADE_OFF_WINDOWS = 4_000
"""At most so many test windows stand behind a point of the trade-off plot: methods can be slow."""


@dataclass(frozen=True)
class AuditSettings:
    """How much work an audit is."""

    budget: Budget = field(default_factory=Budget)
    seeds: tuple[int, ...] = (0, 1, 2)
    quick: bool = False
    reidentification_runs: int = 20
    plain: tuple[str, ...] = PLAIN
    examples: int = 3
    """Windows to show before and after; they are somebody's data, and go where the result goes."""

    @classmethod
    def for_two_cores(cls) -> AuditSettings:
        """One seed, small attackers, fewer plain methods to compare with."""
        return cls(Budget.quick(), (0,), True, 0, ("none", "noise"))


def audit(
    parts: Sequence[tuple[Sequence[Obfuscator], Sequence[Split]]],
    settings: AuditSettings | None = None,
    strength: Strength | None = None,
    device: str = "cpu",
    others: Sequence[Obfuscator] = (),
) -> Audit:
    """Audits one method on one or more splits, each given as its obfuscators and their folds.

    The split with unseen people comes first in the result, and the verdict is about it. A lazy
    attacker needs each obfuscator with another seed; those that `others` lack are trained.
    """
    settings = settings or AuditSettings()
    check_others([obfuscator for obfuscators, _ in parts for obfuscator in obfuscators], others)
    done = [
        audit_split(obfuscators, splits, settings, strength=strength, device=device, others=others)
        for obfuscators, splits in parts
    ]
    done.sort(key=lambda part: not part.unseen_people)
    obfuscator = parts[0][0][0]
    origin = obfuscator.origin_
    return Audit(
        method=obfuscator.name,
        summary=obfuscator.summary,
        keep=obfuscator.policy_.keep,
        hide=obfuscator.policy_.hide,
        dataset=origin.dataset if origin else "windows of a program",
        protocol=origin.protocol if origin else "",
        strength={name: float(np.mean(value)) for name, value in (strength or {}).items()},
        seeds=settings.seeds,
        quick=settings.quick,
        splits=tuple(done),
        gaps=gaps(done, obfuscator.policy_.hide),
        run=obfuscator.made_with(),
    )


def audit_split(
    obfuscators: Sequence[Obfuscator],
    splits: Sequence[Split],
    settings: AuditSettings,
    *,
    strength: Strength | None = None,
    device: str = "cpu",
    others: Sequence[Obfuscator] = (),
) -> SplitAudit:
    """The audit of one split; several folds of people are pooled."""
    check_folds(list(obfuscators))
    for obfuscator, split in zip(obfuscators, splits, strict=True):
        check_unseen(obfuscator, split)
    folds = [
        Fold(obfuscator, split, second(obfuscator, split, others))
        for obfuscator, split in zip(obfuscators, splits, strict=True)
    ]
    outputs = {
        (number, seed): obfuscated(fold, strength, seed, settings.budget)
        for seed in settings.seeds
        for number, fold in enumerate(folds)
    }
    first, output, policy = folds[0], outputs[0, settings.seeds[0]], obfuscators[0].policy_
    left_out = {n: why for fold in folds for n, why in scorable(fold.split)[1].items()}
    names = [name for name in first.split.train.attributes if name not in left_out]
    attacked = [name for name in names if name not in policy.keep]
    attributes = with_bounds(
        folds, run_attacks(folds, outputs, attacked, settings.seeds, settings.budget, device)
    )
    disjoint = not set(first.split.test.subject) & set(first.split.train.subject)
    links: tuple[Linkage, ...] = ()
    if disjoint:
        try:
            links = _linkage(folds, settings, strength, device)
        except Refusal as refusal:  # too few sessions: the page says so
            left_out["linkage"] = str(refusal)
    kept = tuple(
        kept_attribute(
            [fold.split for fold in folds],
            [[outputs[n, seed].train for n in range(len(folds))] for seed in settings.seeds],
            [[outputs[n, seed].test for n in range(len(folds))] for seed in settings.seeds],
            name,
            settings.budget.network,
            settings.seeds,
            device,
        )
        for name in policy.keep
    )
    order = {"hide": 0, "unlisted": 1}
    origin = first.split.test.origin
    return SplitAudit(
        split=origin.split if origin else "given",
        folds=tuple(f.split.test.origin.fold if f.split.test.origin else 0 for f in folds),
        unseen_people=disjoint,
        train_windows=len(first.split.train),
        test_windows=sum(len(fold.split.test) for fold in folds),
        test_people=len(np.unique(np.concatenate([f.split.test.subject for f in folds]))),
        attributes=tuple(sorted(attributes, key=lambda part: order[part.role])),
        left_out=left_out,
        kept=kept,
        signal=signal_utility(first.split.test, output.test, policy.keep),
        information=information(
            thinned(first.split.test, 4000, 0),
            thinned(output.test, 4000, 0),
            [name for name in names if name != "subject"],
            0,
            settings.quick,
            device,
        ),
        linkage=links,
        identity=judge_linkage(links) if links else None,
        reidentification=_reidentification(output, policy.hide, settings, device, left_out),
        condition_probes=probed(first.obfuscator),
        trade_off=_trade_off(first, output, settings, strength, device),
        examples=_examples(first.split.test, output.test, settings.examples),
    )


def _linkage(
    folds: Sequence[Fold], settings: AuditSettings, strength: Strength | None, device: str
) -> tuple[Linkage, ...]:
    """Over several draws of sessions and noise of its own: people are few, and it costs little."""
    budget = LinkageBudget.quick() if settings.quick else LinkageBudget()
    few = replace(settings.budget, windows=budget.train_windows)
    seeds = tuple(range(LINKAGE_DRAWS))
    rounds = [
        [
            Round(fold.split, output.test, output.train)
            for fold in folds
            for output in [obfuscated(fold, strength, seed, few)]
        ]
        for seed in seeds
    ]
    keep = folds[0].obfuscator.policy_.keep
    return linkage(rounds, seeds, keep=keep, budget=budget, device=device)


def _reidentification(
    output: Output,
    hide: Sequence[str],
    settings: AuditSettings,
    device: str,
    left_out: dict[str, str],
) -> tuple[Reidentification, ...]:
    if not settings.reidentification_runs:
        return ()
    network, runs = settings.budget.network, settings.reidentification_runs
    found: list[Reidentification] = []
    for name in hide:
        ways: dict[str, Callable[[str], Reidentification]] = {
            OBSCURENET: lambda one: obscurenet_reidentification(
                output.test, one, runs, 0.2, network, device, 0
            ),
            CLOAK: lambda one: cloak_reidentification(
                output.train, output.test, one, 5, network, device, 0
            ),
        }
        for after, way in ways.items():
            try:
                found.append(way(name))
            except Refusal as refusal:  # people are disjoint, or one class only: the page says so
                left_out[f"re-identification of {name} as in {after}"] = str(refusal)
    return tuple(found)


def _trade_off(
    fold: Fold, output: Output, settings: AuditSettings, strength: Strength | None, device: str
) -> tuple[TradeOff, ...]:
    """This run, its variants and the plain methods, all by one cheap attacker and application.

    The kept accuracy is the unchanged application's, the hidden one a semi-informed attacker's;
    both are random convolutions, on one fold and seed, and on some of the test windows.
    """
    obfuscator, budget = fold.obfuscator, settings.budget
    policy = obfuscator.policy_
    hide = next((n for n in policy.hide if n in scorable(fold.split)[0]), None)
    if hide is None:
        return ()
    shown = thin_places(fold.split.test, TRADE_OFF_WINDOWS, 0)
    test, train = fold.split.test.select(shown), thinned(fold.split.train, budget.windows, 0)
    made = {obfuscator.name: (output.train, output.test.select(shown))}
    for name, other in obfuscator.variants().items():
        made[name] = (
            other.obfuscate(train, strength, seed=1),
            other.obfuscate(test, strength, seed=2),
        )
    for name in settings.plain:
        if name != obfuscator.name:
            plain = method(name)(device=device).fit(fold.split.train, policy.keep, policy.hide)
            made[name] = (plain.obfuscate(train, seed=1), plain.obfuscate(test, seed=2))
    tests = {name: hidden for name, (_, hidden) in made.items()}
    reader = AttackDataset(train, tests, budget, 0, device)
    kept = read(reader, train, test, policy.keep[0])
    points = []
    for name, (hidden_train, hidden_test) in made.items():
        attacker = AttackDataset(hidden_train, {name: hidden_test}, budget, 0, device)
        found = read(attacker, hidden_train, test, hide)
        points.append(TradeOff(name, kept[name], found[name], hide))
    return tuple(points)


def _examples(raw: Windows, hidden: Windows, count: int) -> tuple[Example, ...]:
    """A few windows before and after, with at most four channels."""
    if len(raw.shape) == 3 or not count:
        return ()
    chosen = np.linspace(0, len(raw) - 1, count).astype(int)
    before, after = (_drawn(windows.batch(chosen)) for windows in (raw, hidden))
    return tuple(
        Example(
            title=raw.recordings[raw.recording[place]],
            channels=raw.channels[:4],
            sample_rate=raw.sample_rate,
            before=_rows(before[number]),
            after=_rows(after[number]),
        )
        for number, place in enumerate(chosen)
    )


def _drawn(signal: np.ndarray) -> np.ndarray:
    return np.abs(signal) if np.iscomplexobj(signal) else signal


def _rows(window: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(float(value), 4) for value in row) for row in window[:4])
