"""The whole audit of a run: attacks, sessions, utility, information, identity, and one verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.audit.attack import attack, attack_accuracy
from sensorveil.audit.attackers import CONVOLUTIONS, Budget
from sensorveil.audit.bayes_risk import predict_attributes, risk_of_predictions
from sensorveil.audit.bounds import with_bounds
from sensorveil.audit.criterion import judge_linkage
from sensorveil.audit.donors.audit import audit_donors
from sensorveil.audit.donors.lira import check_models
from sensorveil.audit.evaluation import check_folds, check_unseen, scorable
from sensorveil.audit.linkage import Round, linkage
from sensorveil.audit.linkers import LinkageBudget
from sensorveil.audit.measures import measure_all
from sensorveil.audit.reidentification import (
    CLOAK,
    OBSCURENET,
    cloak_reidentification,
    obscurenet_reidentification,
)
from sensorveil.audit.results import (
    HIDDEN,
    INCONCLUSIVE,
    MAX_ADVANTAGE,
    AttributeAudit,
    Audit,
    Example,
    Linkage,
    Reidentification,
    SplitAudit,
    TradeOff,
    Verdict,
    gaps,
)
from sensorveil.audit.runner import run_attacks
from sensorveil.audit.signals import signal_utility
from sensorveil.audit.store import Store, digest_of, windows_digest
from sensorveil.audit.threat_models import (
    AttackDataset,
    Fold,
    Output,
    check_shadows,
    obfuscate_fold,
    thinned,
    thinned_positions,
    train_shadow_obfuscator,
)
from sensorveil.audit.truth import pooled_codes
from sensorveil.audit.utility import information, kept_attribute
from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator, Strength
from sensorveil.methods.registry import method
from sensorveil.parallel import cores

PLAIN = ("none", "noise", "downsample", "resample")
"""The plain baselines in every trade-off plot."""

LINKAGE_DRAWS = 5
"""How often sessions are drawn and obfuscated anew to be linked."""

GIVEN = "given output"
"""What output is called that something else made."""

BAYES_WINDOWS = 3_000
"""The most training windows for the estimate of the best accuracy."""

TRADE_OFF_WINDOWS = 4_000
"""The most test windows for a point of the trade-off plot, since methods can be slow."""


@dataclass(frozen=True)
class AuditSettings:
    """How much work an audit is.

    Parameters
    ----------
    budget
        How much attackers learn from.
    seeds
        Everything is obfuscated, and attackers are trained, anew for each.
    quick
        Small estimators of information, applications and linkers, too.
    lazy
        Whether shadow obfuscators are trained for lazy attackers where none is given.
    donors
        Models that are trained for the audit about donors; 0 leaves membership out.
    reidentification_runs
        Runs of ObscureNet's protocol; with 0 re-identification is left out.
    plain
        The baselines to compare with.
    examples
        Windows to show before and after; they are somebody's data and stand in the result.
    workers
        Attackers that work, and draws that are obfuscated, at the same time; 0 means one for each core,
        or one on a GPU.
    """

    budget: Budget = field(default_factory=Budget)
    seeds: tuple[int, ...] = (0, 1, 2)
    quick: bool = False
    lazy: bool = True
    donors: int = 8
    reidentification_runs: int = 20
    plain: tuple[str, ...] = PLAIN
    examples: int = 3
    workers: int = 0

    def __post_init__(self) -> None:
        if not self.seeds:
            raise Refusal("an audit needs at least one seed")
        if self.donors:
            check_models(self.donors)

    def at_once(self, device: str) -> int:
        """How many attackers work, or windows are obfuscated, at the same time."""
        return self.workers or (cores() if device == "cpu" else 1)

    @classmethod
    def for_two_cores(cls) -> AuditSettings:
        """One seed, small attackers, no shadow models, fewer plain methods to compare with."""
        return cls(Budget.quick(), (0,), True, False, 0, 0, ("none", "noise"))


@dataclass(frozen=True, eq=False)
class Material:
    """The folds of one split and their output for each (fold, seed)."""

    folds: Sequence[Fold]
    outputs: Mapping[tuple[int, int], Output]
    not_asked: Mapping[str, str] = field(default_factory=dict)


def audit_run(
    obfuscator: Obfuscator,
    split: Split,
    settings: AuditSettings | None = None,
    strength: Strength | None = None,
    device: str = "cpu",
) -> Audit:
    """Audit one fitted method on one split; the parameters are those of `audit_runs`."""
    return audit_runs([([obfuscator], [split])], settings, strength, device)


def audit_runs(
    parts: Sequence[tuple[Sequence[Obfuscator], Sequence[Split]]],
    settings: AuditSettings | None = None,
    strength: Strength | None = None,
    device: str = "cpu",
    shadows: Sequence[Obfuscator] = (),
    folder: Path | None = None,
) -> Audit:
    """Audit one method on one or more splits.

    The split with unseen people comes first in the result.

    Parameters
    ----------
    parts
        For each split its obfuscators and their folds.
    settings
        How much work it is.
    strength
        The strengths to obfuscate with.
    device
        Where attackers work.
    shadows
        Obfuscators with another seed, for lazy attackers. Those that are missing are trained.
    folder
        Where intermediate results are kept, so that an interrupted audit goes on.
    """
    settings = settings or AuditSettings()
    check_shadows([obfuscator for obfuscators, _ in parts for obfuscator in obfuscators], shadows)
    done = []
    for obfuscators, splits in parts:
        windows = [windows_digest(part) for one in splits for part in (one.train, one.test)]
        learnt = [_learnt(one) for one in (*obfuscators, *shadows)]
        store = Store(folder, [settings, strength, learnt, windows] if folder else None)
        material = obfuscate_all(obfuscators, splits, settings, strength, shadows, store)
        done.append(audit_split(material, settings, strength, device, store))
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


def _learnt(obfuscator: Obfuscator) -> list[Any]:
    """What its output depends on."""
    arrays = {name: digest_of(array) for name, array in obfuscator._state().items()}
    policy, origin = obfuscator.policy_, obfuscator.origin_
    return [obfuscator.name, obfuscator.made_with(), policy, origin, arrays]


def obfuscate_all(
    obfuscators: Sequence[Obfuscator],
    splits: Sequence[Split],
    settings: AuditSettings,
    strength: Strength | None = None,
    shadows: Sequence[Obfuscator] = (),
    store: Store | None = None,
) -> Material:
    """The output of every fold with every seed; the parameters are those of `audit_runs`."""
    check_folds(list(obfuscators))
    for obfuscator, split in zip(obfuscators, splits, strict=True):
        check_unseen(obfuscator, split)
    lazy = settings.lazy or bool(shadows)
    folds = [
        Fold(
            obfuscator,
            split,
            train_shadow_obfuscator(obfuscator, split, shadows) if lazy else None,
        )
        for obfuscator, split in zip(obfuscators, splits, strict=True)
    ]
    outputs = {
        (number, seed): obfuscate_fold(
            fold,
            strength,
            seed,
            settings.budget,
            store,
            f"fold {number}, seed {seed}",
            settings.at_once(fold.obfuscator.device if fold.obfuscator else "cpu"),
        )
        for seed in settings.seeds
        for number, fold in enumerate(folds)
    }
    why = "no second model is trained in a quick audit; --shadow-run names one"
    return Material(folds, outputs, {} if lazy else {"lazy attackers": why})


def audit_split(
    material: Material,
    settings: AuditSettings,
    strength: Strength | None = None,
    device: str = "cpu",
    store: Store | None = None,
) -> SplitAudit:
    """The audit of one split; several folds of people are pooled."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    # Two threads that share busy cores wait for each other, and these matrices gain nothing.
    with threadpool_limits(1 if device == "cpu" else None, user_api="blas"):
        return _audit_split(material, settings, strength, device, store)


def _audit_split(
    material: Material,
    settings: AuditSettings,
    strength: Strength | None,
    device: str,
    store: Store | None,
) -> SplitAudit:
    folds, outputs = material.folds, material.outputs
    first, output, policy = folds[0], outputs[0, settings.seeds[0]], folds[0].policy
    left_out = {n: why for fold in folds for n, why in scorable(fold.split)[1].items()}
    not_asked = dict(material.not_asked)
    names = [name for name in first.split.train.attributes if name not in left_out]
    attacked = [name for name in names if name not in policy.keep]
    workers = settings.at_once(device)
    found = run_attacks(
        folds, outputs, attacked, settings.seeds, settings.budget, device, store, workers
    )
    attributes = with_bounds(folds, with_bayes_risk(folds, outputs, found, settings, device))
    disjoint = all(fold.unseen_people for fold in folds)
    links: tuple[Linkage, ...] = ()
    if disjoint:
        try:
            links = _linkage(folds, outputs, settings, strength, device)
        except Refusal as refusal:  # too few sessions: the page says so
            left_out["linkage"] = str(refusal)
    kept = tuple(
        kept_attribute(
            [fold.split for fold in folds],
            [[outputs[n, seed].train for n in range(len(folds))] for seed in settings.seeds],
            [[outputs[n, seed].test for n in range(len(folds))] for seed in settings.seeds],
            name,
            settings.seeds,
            device,
            settings.quick,
        )
        for name in policy.keep
    )
    order = {"hide": 0, "unlisted": 1}
    origin = first.split.test.origin
    obfuscator = first.obfuscator
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
        measures=measure_all(first.split.test, output.test),
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
        condition_probes=tuple(
            probe
            for probe in obfuscator.condition_probe(
                first.split.training_windows(obfuscator.origin_)
            )
            if probe.attribute not in policy.keep
        )
        if obfuscator
        else (),
        trade_off=_trade_off(first, output, settings, strength, device),
        examples=_examples(first.split.test, output.test, settings.examples),
        donors=audit_donors(first, output, settings.donors, strength, device, store),
        not_asked=not_asked,
    )


def with_bayes_risk(
    folds: Sequence[Fold],
    outputs: Mapping[tuple[int, int], Output],
    found: Sequence[AttributeAudit],
    settings: AuditSettings,
    device: str,
) -> tuple[AttributeAudit, ...]:
    """Each attribute with an estimate of the best accuracy that needs no attacker.

    It is taken of the first seed, and of some training windows. It can make a verdict of `hidden`
    inconclusive, and never the other way round.
    """
    names, seed = [part.attribute for part in found], settings.seeds[0]
    sides: list[dict[str, list[np.ndarray]]] = [{}, {}]
    for number, fold in enumerate(folds):
        output = outputs[number, seed]
        raw = (fold.split.train.select(np.unique(output.chosen)), fold.split.test)
        for side, (train, test) in zip(sides, (raw, (output.train, output.test)), strict=True):
            few = thinned(train, BAYES_WINDOWS, seed)
            predicted = predict_attributes(few, test, names, seed=seed, device=device)
            for name in names:
                codes = predicted.get(name, np.zeros(len(test), int))
                side.setdefault(name, []).append(codes)
    done = []
    for part in found:
        true = pooled_codes(folds, part.attribute)
        person = np.concatenate([fold.split.test.subject for fold in folds])
        before, after = (
            risk_of_predictions(
                true, np.concatenate(side[part.attribute])[None], person, len(part.classes)
            )
            for side in sides
        )
        bayes = replace(after, raw_accuracy=before.accuracy)
        verdict = part.verdict
        if verdict.status == HIDDEN and bayes.advantage.low > MAX_ADVANTAGE:
            verdict = Verdict(
                INCONCLUSIVE,
                "an estimate of the best accuracy is more than 2 points above the majority"
                " baseline, though no attacker finds a leak",
            )
        done.append(replace(part, bayes=bayes, verdict=verdict))
    return tuple(done)


def _linkage(
    folds: Sequence[Fold],
    outputs: Mapping[tuple[int, int], Output],
    settings: AuditSettings,
    strength: Strength | None,
    device: str,
) -> tuple[Linkage, ...]:
    """Over several draws of sessions and noise of its own: people are few, and it costs little."""
    budget = LinkageBudget.quick() if settings.quick else LinkageBudget()
    few = replace(settings.budget, windows=budget.train_windows, draws=1, looks=0)
    given = any(fold.obfuscator is None for fold in folds)
    seeds = settings.seeds if given else tuple(range(LINKAGE_DRAWS))
    rounds = [
        [
            Round(fold.split, output.test, output.train)
            for number, fold in enumerate(folds)
            for output in [
                outputs[number, seed]
                if given
                else obfuscate_fold(replace(fold, shadow=None), strength, seed, few)
            ]
        ]
        for seed in seeds
    ]
    return linkage(rounds, seeds, keep=folds[0].policy.keep, budget=budget, device=device)


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
    protocols: dict[str, Callable[[str], Reidentification]] = {
        OBSCURENET: partial(
            obscurenet_reidentification, output.test, runs=runs, settings=network, device=device
        ),
        CLOAK: partial(
            cloak_reidentification, output.train, output.test, settings=network, device=device
        ),
    }
    found = []
    for name in hide:
        for protocol, reidentify in protocols.items():
            try:
                found.append(reidentify(name))
            except Refusal as refusal:  # people are disjoint, or one class only: the page says so
                left_out[f"re-identification of {name} as in {protocol}"] = str(refusal)
    return tuple(found)


def _trade_off(
    fold: Fold, output: Output, settings: AuditSettings, strength: Strength | None, device: str
) -> tuple[TradeOff, ...]:
    """This run, its variants and the plain baselines, by one cheap attacker and application.

    The kept accuracy is the unchanged application's, the hidden one a semi-informed attacker's.
    Both are random convolutions, on one fold and seed, and on some of the test windows.
    """
    obfuscator, budget, policy = fold.obfuscator, settings.budget, fold.policy
    hide = next((n for n in policy.hide if n in scorable(fold.split)[0]), None)
    if hide is None:
        return ()
    shown = thinned_positions(len(fold.split.test), TRADE_OFF_WINDOWS, 0)
    test, train = fold.split.test.select(shown), thinned(fold.split.train, budget.windows, 0)
    own = obfuscator.name if obfuscator else GIVEN
    outputs = {own: (thinned(output.train, budget.windows, 0), output.test.select(shown))}
    for name, other in obfuscator.variants().items() if obfuscator else ():
        outputs[name] = (
            other.obfuscate(train, strength, seed=1),
            other.obfuscate(test, strength, seed=2),
        )
    for name in settings.plain:
        if name != own:
            plain = method(name)(device=device).fit(fold.split.train, policy.keep, policy.hide)
            outputs[name] = (plain.obfuscate(train, seed=1), plain.obfuscate(test, seed=2))
    keep = policy.keep[0]
    tests = {name: hidden_test for name, (_, hidden_test) in outputs.items()}
    application = attack(AttackDataset(train, tests), CONVOLUTIONS, [keep], budget, device=device)
    true = test.codes(keep)
    return tuple(
        TradeOff(
            name,
            kept=float((application[keep, name].argmax(1) == true)[true != UNKNOWN].mean()),
            hidden=attack_accuracy(
                hidden_train, hidden_test, hide, CONVOLUTIONS, budget, device=device
            ),
            attribute=hide,
        )
        for name, (hidden_train, hidden_test) in outputs.items()
    )


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
