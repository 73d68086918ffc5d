"""The whole audit of a run: attacks, sessions, utility, information, identity, and one verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.audit.attackers import Budget
from sensorveil.audit.bayes_risk import with_bayes_risk
from sensorveil.audit.bounds import with_bounds
from sensorveil.audit.criterion import judge_linkage
from sensorveil.audit.donors.audit import audit_donors
from sensorveil.audit.donors.lira import check_models
from sensorveil.audit.evaluation import check_folds, check_unseen, scorable
from sensorveil.audit.linkage import Round, linkage
from sensorveil.audit.linkers import LinkageBudget
from sensorveil.audit.measures import measure_all
from sensorveil.audit.reidentification import reidentify
from sensorveil.audit.results import Audit, KeptAttribute, Linkage, SplitAudit, gaps
from sensorveil.audit.runner import run_attacks
from sensorveil.audit.signals import examples, signal_utility
from sensorveil.audit.store import Store, digest_of, windows_digest
from sensorveil.audit.sweep import trade_off
from sensorveil.audit.threat_models import (
    Fold,
    Output,
    check_shadows,
    obfuscate_fold,
    thinned,
    train_shadow_obfuscator,
)
from sensorveil.audit.utility import information, kept_attribute
from sensorveil.data.splits import Split
from sensorveil.errors import Refusal
from sensorveil.methods.base import ConditionProbe, Obfuscator, Strength
from sensorveil.parallel import cores, parallel

PLAIN = ("none", "noise", "downsample", "resample")
"""The plain baselines in every trade-off plot."""

LINKAGE_DRAWS = 5
"""How often sessions are drawn and obfuscated anew to be linked."""


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
    names = [name for name in first.split.train.attributes if name not in left_out]
    attacked = [name for name in names if name not in policy.keep]
    workers = settings.at_once(device)
    found = run_attacks(
        folds, outputs, attacked, settings.seeds, settings.budget, device, store, workers
    )
    jobs: dict[str, Callable[[], Any]] = {
        "bayes": partial(with_bayes_risk, folds, outputs, found, settings.seeds[0], device),
        "links": partial(_linkage, folds, outputs, settings, strength, device),
        "information": partial(
            information,
            thinned(first.split.test, 4000, 0),
            thinned(output.test, 4000, 0),
            [name for name in names if name != "subject"],
            0,
            settings.quick,
            device,
        ),
        "trade_off": partial(
            trade_off, first, output, settings.budget, settings.plain, strength, device
        ),
        "again": partial(
            reidentify,
            output,
            policy.hide,
            settings.reidentification_runs,
            settings.budget.network,
            device,
        ),
        "probes": partial(_probes, first),
        **{
            f"kept {name}": partial(_kept, folds, outputs, name, settings, device)
            for name in policy.keep
        },
    }
    made = dict(zip(jobs, parallel(list(jobs.values()), "measures", workers), strict=True))
    (links, unlinked), (again, not_again) = made["links"], made["again"]
    left_out |= unlinked | not_again
    order = {"hide": 0, "unlisted": 1}
    origin = first.split.test.origin
    return SplitAudit(
        split=origin.split if origin else "given",
        folds=tuple(f.split.test.origin.fold if f.split.test.origin else 0 for f in folds),
        unseen_people=all(fold.unseen_people for fold in folds),
        train_windows=len(first.split.train),
        test_windows=sum(len(fold.split.test) for fold in folds),
        test_people=len(np.unique(np.concatenate([f.split.test.subject for f in folds]))),
        attributes=tuple(
            sorted(with_bounds(folds, made["bayes"]), key=lambda part: order[part.role])
        ),
        left_out=left_out,
        kept=tuple(made[f"kept {name}"] for name in policy.keep),
        signal=signal_utility(first.split.test, output.test, policy.keep),
        measures=measure_all(first.split.test, output.test),
        information=made["information"],
        linkage=links,
        identity=judge_linkage(links) if links else None,
        reidentification=again,
        condition_probes=made["probes"],
        trade_off=made["trade_off"],
        examples=examples(first.split.test, output.test, settings.examples),
        donors=audit_donors(first, output, settings.donors, strength, device, store),
        not_asked=dict(material.not_asked),
    )


def _kept(
    folds: Sequence[Fold],
    outputs: Mapping[tuple[int, int], Output],
    name: str,
    settings: AuditSettings,
    device: str,
) -> KeptAttribute:
    """How well applications predict one kept attribute."""
    each = [[outputs[n, seed] for n in range(len(folds))] for seed in settings.seeds]
    return kept_attribute(
        [fold.split for fold in folds],
        [[output.train for output in own] for own in each],
        [[output.test for output in own] for own in each],
        name,
        settings.seeds,
        device,
        settings.quick,
    )


def _probes(fold: Fold) -> tuple[ConditionProbe, ...]:
    """What probes find in the method's condition about attributes that are not kept."""
    obfuscator = fold.obfuscator
    if obfuscator is None:
        return ()
    found = obfuscator.condition_probe(fold.split.training_windows(obfuscator.origin_))
    return tuple(probe for probe in found if probe.attribute not in fold.policy.keep)


def _linkage(
    folds: Sequence[Fold],
    outputs: Mapping[tuple[int, int], Output],
    settings: AuditSettings,
    strength: Strength | None,
    device: str,
) -> tuple[tuple[Linkage, ...], dict[str, str]]:
    """Where people are unseen: over several draws, since people are few; and why it is left out."""
    if not all(fold.unseen_people for fold in folds):
        return (), {}
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
    try:
        keep = folds[0].policy.keep
        return linkage(rounds, seeds, keep=keep, budget=budget, device=device), {}
    except Refusal as refusal:  # too few sessions: the page says so
        return (), {"linkage": str(refusal)}
