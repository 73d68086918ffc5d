"""All attacks of an audit: planned as jobs, run on several cores, and put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from sensorveil.audit.attack import attack, attack_sessions
from sensorveil.audit.attackers import CNN, CONVOLUTIONS, TREES, Budget
from sensorveil.audit.control import PLANTED
from sensorveil.audit.results import CONTROL, SEMI, AttributeAudit
from sensorveil.audit.sessions import (
    Predictions,
    SessionPredictions,
    look_plans,
    session_plans,
    training_groups,
)
from sensorveil.audit.store import Arrays, Store
from sensorveil.audit.summary import summarize
from sensorveil.audit.threat_models import (
    AttackDataset,
    Fold,
    Output,
    attack_datasets,
    control_dataset,
)
from sensorveil.audit.truth import (
    kept_prior,
    largest_share,
    log_prior,
    looks_truth,
    pooled_codes,
    truth,
)
from sensorveil.data.windows import UNKNOWN
from sensorveil.parallel import cores, parallel

CONTROL_ATTACKERS = "attackers in turn"
"""The name under which the control is filed: the first attacker that finds the planted leak."""

_CONTROL_ORDER = (CONVOLUTIONS, CNN, TREES)

Scores = dict[tuple[str, str, str], list[dict[int, np.ndarray]]]
"""By attribute, threat model and attacker: for each seed, scores (2, n, classes) by fold."""
PlanScores = dict[tuple[str, str, str], list[dict[int, dict[str, np.ndarray]]]]
"""Likewise, log-ratios (n, classes) by plan."""


def run_attacks(
    folds: Sequence[Fold],
    outputs: Mapping[tuple[int, int], Output],
    attributes: Sequence[str],
    seeds: Sequence[int],
    budget: Budget,
    device: str = "cpu",
    store: Store | None = None,
    workers: int = 1,
) -> tuple[AttributeAudit, ...]:
    """Attack every attribute under every threat model; folds are pooled, seeds averaged.

    A threat model that cannot be built for every fold is left out: the windows of the others would
    have no prediction.

    Parameters
    ----------
    folds
        Obfuscators with their splits.
    outputs
        The output for each (fold, seed).
    attributes
        The attributes to attack.
    seeds
        Attackers are trained anew for each.
    budget
        How much attackers learn from.
    device
        Where they work.
    store
        Where predictions are kept, so that an interrupted audit goes on.
    workers
        Attackers that work at the same time.
    """
    store = store or Store()
    plan = _Plan(folds, outputs, tuple(attributes), tuple(seeds), budget, device)
    plan.add_all()
    jobs = [partial(store.arrays, job.key, job.make) for job in plan.jobs]
    for job, found in zip(plan.jobs, parallel(jobs, "attacks", workers), strict=True):
        job.file(found)
    summaries = [partial(plan.summary, name) for name in attributes]
    return tuple(parallel(summaries, "statistics", workers if device == "cpu" else cores()))


@dataclass(frozen=True, eq=False)
class _Job:
    """One attacker on one dataset: what it predicts, and where that belongs."""

    key: str
    make: Callable[[], Arrays]
    file: Callable[[Arrays], None]


@dataclass(eq=False)
class _Plan:
    """The jobs of an audit, and what they found."""

    folds: Sequence[Fold]
    outputs: Mapping[tuple[int, int], Output]
    attributes: tuple[str, ...]
    seeds: tuple[int, ...]
    budget: Budget
    device: str
    jobs: list[_Job] = field(default_factory=list)
    window: Scores = field(default_factory=dict)
    session: PlanScores = field(default_factory=dict)
    looks: Scores = field(default_factory=dict)
    look_session: PlanScores = field(default_factory=dict)

    def add_all(self) -> None:
        """The jobs of all folds and seeds, those that take longest first."""
        # The share of planted windows is that of all folds: a fold may have a single class.
        largest = {name: largest_share(pooled_codes(self.folds, name)) for name in self.attributes}
        for number, seed in [
            (fold, seed) for seed in self.seeds for fold in range(len(self.folds))
        ]:
            fold, output = self.folds[number], self.outputs[number, seed]
            at = (number, seed)
            for name in self.attributes:
                self._add_control(at, name, largest[name])
            datasets = attack_datasets(fold, output, self.budget, seed)
            for place, dataset in enumerate(datasets):
                for attacker in self.budget.session_attackers:
                    self._add_session(at, place, dataset, attacker)
                for attacker in self.budget.attackers:
                    self._add_window(at, place, dataset, attacker)
            if output.looks:
                self._add_looks(at, AttackDataset(output.looks.train, {SEMI: output.looks.test}))

    def _add_window(
        self, at: tuple[int, int], place: int, dataset: AttackDataset, attacker: str
    ) -> None:
        number, seed = at
        fold = self.folds[number]
        shape = (2, len(fold.split.test))

        def file(found: Arrays) -> None:
            for key, log_proba in found.items():
                name, model = key.rsplit("|", 1)
                by_fold = self._own(self.window, (name, model, attacker), seed)
                scores = by_fold.setdefault(number, np.zeros((*shape, log_proba.shape[1])))
                _file_scores(scores, fold, dataset, name, log_proba)

        self.jobs.append(
            _Job(
                f"fold {number}, seed {seed}, dataset {place}, {attacker}",
                partial(self._predicted, dataset, attacker, seed),
                file,
            )
        )

    def _add_session(
        self, at: tuple[int, int], place: int, dataset: AttackDataset, attacker: str
    ) -> None:
        test = self.folds[at[0]].split.test
        plans = {
            f"{group}, {size}": chunk
            for (group, size), chunk in session_plans(test.subject, test.recording, test.start)
        }
        key = f"fold {at[0]}, seed {at[1]}, dataset {place}, {attacker}"
        groups = training_groups(dataset.train)
        self._add_plans(self.session, at, key, dataset, attacker, groups, plans)

    def _add_looks(self, at: tuple[int, int], dataset: AttackDataset) -> None:
        number, seed = at
        (test,) = dataset.tests.values()
        keep = self.folds[number].policy.keep
        plans = {
            f"{group}, {size}": chunk
            for (group, size), chunk in look_plans(test.recording, test.start)
        }
        for attacker in self.budget.look_attackers():
            key = f"fold {number}, seed {seed}, looks, {attacker}"
            if attacker in self.budget.session_attackers:
                groups = [dataset.train.recording]
                self._add_plans(self.look_session, at, key, dataset, attacker, groups, plans)
                continue

            def file(found: Arrays, attacker: str = attacker) -> None:
                for full, scores in found.items():
                    name, model = full.rsplit("|", 1)
                    beyond = scores - kept_prior(dataset.train, test, name, keep)
                    by_fold = self._own(self.looks, (name, model, attacker), seed)
                    by_fold[number] = np.stack([scores, beyond])

            self.jobs.append(_Job(key, partial(self._predicted, dataset, attacker, seed), file))

    def _add_plans(
        self,
        into: PlanScores,
        at: tuple[int, int],
        key: str,
        dataset: AttackDataset,
        attacker: str,
        groups: Sequence[np.ndarray],
        plans: Mapping[str, np.ndarray],
    ) -> None:
        number, seed = at
        keep = self.folds[number].policy.keep

        def file(found: Arrays) -> None:
            positions = slice(None) if dataset.positions is None else dataset.positions
            for full, log_ratio in found.items():
                name, model, plan = full.rsplit("|", 2)
                by_plan = self._own(into, (name, model, attacker), seed).setdefault(number, {})
                empty = np.zeros((len(plans[plan]), log_ratio.shape[1]))
                by_plan.setdefault(plan, empty)[positions] += log_ratio

        make = partial(
            attack_sessions,
            dataset,
            attacker,
            self.attributes,
            groups,
            plans,
            keep,
            self.budget,
            seed,
            self.device,
        )
        self.jobs.append(_Job(key, make, file))

    def _add_control(self, at: tuple[int, int], name: str, largest: float) -> None:
        """Attackers in turn, until one finds half of the planted leak."""
        number, seed = at
        fold, output = self.folds[number], self.outputs[at]
        learnt = AttackDataset(output.train, {})

        def make() -> Arrays:
            dataset = control_dataset(output, name, largest, seed)
            codes = output.test.codes(name)
            known, own_share = codes != UNKNOWN, largest_share(codes)
            best, highest = np.zeros(0), -1.0
            asked = self.budget.attackers
            for attacker in [one for one in _CONTROL_ORDER if one in asked] or asked:
                found = self._predicted(dataset, attacker, seed)[f"{name}|{CONTROL}"]
                right = float((found.argmax(1) == codes)[known].mean())
                if right > highest:
                    best, highest = found, right
                if right - own_share >= min(PLANTED, 1 - own_share) / 2:
                    break
            return {"scores": best}

        def file(found: Arrays) -> None:
            scores = np.zeros((2, *found["scores"].shape))
            _file_scores(scores, fold, learnt, name, found["scores"])
            self._own(self.window, (name, CONTROL, CONTROL_ATTACKERS), seed)[number] = scores

        self.jobs.append(_Job(f"fold {number}, seed {seed}, control {name}", make, file))

    def _predicted(self, dataset: AttackDataset, attacker: str, seed: int) -> dict[str, np.ndarray]:
        found = attack(dataset, attacker, self.attributes, self.budget, seed, self.device)
        return {f"{name}|{model}": scores for (name, model), scores in found.items()}

    def _own(self, found: dict, key: tuple[str, str, str], seed: int) -> dict:  # type: ignore[type-arg]
        by_seed: list[dict] = found.setdefault(key, [{} for _ in self.seeds])  # type: ignore[type-arg]
        return by_seed[self.seeds.index(seed)]

    def summary(self, name: str) -> AttributeAudit:
        """The result of one attribute."""
        looks = [self.outputs[n, self.seeds[0]].looks for n in range(len(self.folds))]
        looked = [one for one in looks if one is not None]
        whole = truth(self.folds, name)
        return summarize(
            self.folds,
            name,
            whole,
            self._windows_of(self.window, name),
            self._sessions_of(self.session, name),
            looks_truth(whole, self.folds, looked, name) if len(looked) == len(looks) else None,
            self._windows_of(self.looks, name),
            self._sessions_of(self.look_session, name),
        )

    def _windows_of(self, found: Scores, name: str) -> list[Predictions]:
        return [
            Predictions(
                model,
                attacker,
                *np.stack(
                    [
                        np.concatenate([own[n] for n in range(len(self.folds))], axis=1)
                        for own in per_seed
                    ],
                    axis=1,
                ),
            )
            for (attribute, model, attacker), per_seed in found.items()
            if attribute == name and all(len(own) == len(self.folds) for own in per_seed)
        ]

    def _sessions_of(self, found: PlanScores, name: str) -> list[SessionPredictions]:
        made = []
        for (attribute, model, attacker), per_seed in found.items():
            if attribute != name or any(len(own) < len(self.folds) for own in per_seed):
                continue
            folds = [own[n] for own in per_seed for n in range(len(self.folds))]
            shape = next(iter(folds[0].values())).shape[1:]
            sizes = [len(next(iter(one.values()))) for one in folds]
            by_plan = {}
            for plan in dict.fromkeys(plan for one in folds for plan in one):
                # A fold without a recording so long has no chunk of this size.
                parts = [
                    one.get(plan, np.zeros((size, *shape)))
                    for one, size in zip(folds, sizes, strict=True)
                ]
                group, size = plan.split(", ")
                by_plan[group, None if size == "None" else int(size)] = np.stack(
                    [
                        np.concatenate(parts[first : first + len(self.folds)])
                        for first in range(0, len(parts), len(self.folds))
                    ]
                )
            made.append(SessionPredictions(model, attacker, by_plan))
        return made


def _file_scores(
    whole: np.ndarray,
    fold: Fold,
    dataset: AttackDataset,
    name: str,
    log_proba: np.ndarray,
) -> None:
    """Put log-probabilities, and what they say beyond the kept class, where they belong."""
    test, num_classes = fold.split.test, log_proba.shape[1]
    positions = np.arange(len(test)) if dataset.positions is None else dataset.positions
    # As if the attacker had learnt from the class shares of all training windows.
    prior = np.minimum(log_prior(fold.split.train.codes(name), num_classes), 0)
    own_prior = log_prior(dataset.train.codes(name), num_classes)
    whole[0, positions] = log_proba - own_prior + prior
    keep = fold.policy.keep
    whole[1, positions] = log_proba - kept_prior(dataset.train, test.select(positions), name, keep)
