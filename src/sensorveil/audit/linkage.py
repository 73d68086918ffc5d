"""Linkage: can an obfuscated session be matched to another session of the same person?

Where test people never occur in training, nobody can be named. But an attacker who holds one
session of a stranger can still try to recognise the next one. A linker learns on the training
people how people differ, and compares sessions of the test people by that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sensorveil.audit.control import PLANTED, plant_identity
from sensorveil.audit.linkers import (
    LinkageBudget,
    Linker,
    Matches,
    Sessions,
    draw_sessions,
    kept_code,
    prepared,
)
from sensorveil.audit.results import MAX_ADVANTAGE, MAX_AUC, Linkage
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.progress import track
from sensorveil.statistics import Estimate, bootstrap, equal_error_rate_of_counts

RAW_SESSION, OBFUSCATED_SESSION = "raw session", "obfuscated session"


@dataclass(frozen=True, eq=False)
class Round:
    """One fold with what an obfuscator made of its test and training windows with one seed."""

    split: Split
    hidden_test: Windows
    hidden_train: Windows


def linkage(
    rounds: Sequence[Sequence[Round]],
    seeds: Sequence[int] = (0,),
    *,
    keep: Sequence[str] = (),
    budget: LinkageBudget | None = None,
    device: str = "cpu",
) -> tuple[Linkage, ...]:
    """Match obfuscated sessions of test people to raw and to obfuscated ones.

    `rounds[i][n]` is fold n with the i-th seed. People of all folds are pooled, though each is only
    ever compared with those of the same fold, and seeds are averaged.

    A session is one recording. Half of each test person's sessions are the gallery, raw or
    obfuscated, and the others the probes, obfuscated; `raw_rank1` and `raw_equal_error_rate` are
    of raw probes and a raw gallery, and show whether the linker can recognise anybody at all.

    A kept attribute (`keep`) must not link sessions: walking resembles walking. Where it is constant
    in every recording, a probe is compared with gallery sessions of its own kept class, if its
    person and at least one other have one there, and with all sessions if not. The mean of each
    kept class in training is subtracted. `rank1_chance` is that of drawing among the sessions that
    are compared.

    There are two linkers: one learnt from raw windows, and one that adapted, by learning from what
    it compares (obfuscated windows; with a raw gallery, raw and obfuscated ones). The better one
    counts. It exceeds chance by luck where probes are few, so a link is `significant` only where it
    exceeds exchanges of people. A control checks that it would be: some sessions of the obfuscated
    windows are marked by a chord of their person.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    budget = budget or LinkageBudget()
    # Two threads that share busy cores wait for each other, and matrices this small gain nothing.
    with threadpool_limits(1, user_api="blas"):
        work = [(n, seed, one) for n, seed in enumerate(seeds) for one in rounds[n]]
        tried = [
            _Trial.of(one, seed, keep, budget, device)
            for _, seed, one in track(work, "linkage: folds and seeds")
        ]
    folds = len(rounds[0])
    by_seed = [tried[first : first + folds] for first in range(0, len(tried), folds)]
    return tuple(_pooled(by_seed, gallery) for gallery in (RAW_SESSION, OBFUSCATED_SESSION))


_RAW_LINKER, _ADAPTED, _PLANTED = "raw", "adapted", "planted"
_SHUFFLES = 1599
_LEVEL = 0.05 / 8
"""Two galleries, two linkers, two measures are looked at, so each must stand out the more."""


@dataclass(frozen=True, eq=False)
class _Trial:
    """All matches in one fold with one seed, by (gallery, linker), and the rank 1 of chance."""

    matches: Mapping[tuple[str, str], Matches]
    sessions: Sessions
    chance: float
    planted: float

    @classmethod
    def of(
        cls, one: Round, seed: int, keep: Sequence[str], budget: LinkageBudget, device: str
    ) -> _Trial:
        """Trains the linkers, and lets them match."""
        raw_test, hidden_test = one.split.test, one.hidden_test
        if len(hidden_test) != len(raw_test):
            raise ValueError("the obfuscated test windows are not those of the split")
        generator = np.random.default_rng(seed)
        kept = kept_code(one.split, keep)
        chosen, sessions = draw_sessions(raw_test, kept(raw_test), budget, generator)
        share = float(np.sqrt(PLANTED / (1 - sessions.chance())))  # probe and gallery need a mark
        marked_test, marked = plant_identity(hidden_test.select(chosen), share, generator)
        tests = [raw_test.select(chosen), hidden_test.select(chosen), marked_test]
        some = [
            train.select(generator.permutation(len(train))[: budget.train_windows])
            for train in (one.split.train, one.hidden_train)
        ]
        trains = [*some, plant_identity(some[1], share, generator)[0]]
        raw, hidden, planted = prepared(trains, tests, kept, sessions, budget, device)
        # The linker that learnt from raw windows must not even know kernels that fit obfuscated
        # ones.
        plain = raw.train.shape[1] - 2 * budget.kernels
        from_raw = Linker([raw], slice(plain), budget.components, seed)
        from_hidden = Linker([hidden], slice(None), budget.components, seed)
        from_both = Linker([raw, hidden], slice(None), budget.components, seed)
        from_planted = Linker([planted], slice(None), budget.components, seed)
        matches = {
            (RAW_SESSION, _RAW_LINKER): Matches(from_raw, hidden, raw, sessions),
            (RAW_SESSION, _ADAPTED): Matches(from_both, hidden, raw, sessions),
            (OBFUSCATED_SESSION, _RAW_LINKER): Matches(from_raw, hidden, hidden, sessions),
            (OBFUSCATED_SESSION, _ADAPTED): Matches(from_hidden, hidden, hidden, sessions),
            (OBFUSCATED_SESSION, _PLANTED): Matches(from_planted, planted, planted, sessions),
            (_RAW_LINKER, _RAW_LINKER): Matches(from_raw, raw, raw, sessions),
        }
        by_session = np.zeros(len(sessions.person), bool)
        by_session[sessions.of_window] = marked
        return cls(matches, sessions, sessions.chance(), sessions.gain(by_session))


def _pooled(by_seed: Sequence[Sequence[_Trial]], gallery: str) -> Linkage:
    """One gallery's figures over folds and seeds."""
    first = by_seed[0]
    linkers = {name: _Figures.of(by_seed, (gallery, name)) for name in (_RAW_LINKER, _ADAPTED)}
    best = max(
        linkers.values(), key=lambda one: (one.stands_out, one.rank1.value, -one.error.value)
    )
    before = _Figures.of(by_seed, (_RAW_LINKER, _RAW_LINKER))
    trials = [trial for trials in by_seed for trial in trials]
    probes = [int((~trial.sessions.in_gallery).sum()) for trial in trials]
    chance = float(np.average([trial.chance for trial in trials], weights=probes))
    control = planted = None
    if gallery == OBFUSCATED_SESSION:
        control = _Figures.of(by_seed, (gallery, _PLANTED))
        planted = float(np.average([trial.planted for trial in trials], weights=probes))
    return Linkage(
        gallery=gallery,
        people=sum(len(np.unique(trial.sessions.person)) for trial in first),
        sessions=sum(len(trial.sessions.person) for trial in first),
        rank1=best.rank1,
        rank1_chance=chance,
        equal_error_rate=best.error,
        raw_rank1=before.rank1,
        raw_equal_error_rate=before.error,
        significant=any(one.stands_out for one in linkers.values()),
        control=control.rank1 if control else None,
        control_significant=bool(control and control.stands_out),
        planted=planted or 0.0,
    )


@dataclass(frozen=True, eq=False)
class _Figures:
    """Rank 1 and equal error rate of one linker, and whether they are more than chance."""

    rank1: Estimate
    error: Estimate
    stands_out: bool

    @classmethod
    def of(cls, by_seed: Sequence[Sequence[_Trial]], key: tuple[str, str]) -> _Figures:
        """Pools people over folds and stacks seeds."""
        found = [[trial.matches[key] for trial in trials] for trials in by_seed]
        hits = np.stack([np.concatenate([m.hits for m in matches]) for matches in found])
        counts = np.stack([np.concatenate([m.counts for m in matches]) for matches in found])
        return cls(
            _estimate(hits, _hit_rate),
            _estimate(counts, equal_error_rate_of_counts),
            _stands_out(found),
        )


def _stands_out(found: Sequence[Sequence[Matches]]) -> bool:
    """Whether probes match their own person's sessions better than another person's.

    `found` has the matches of each seed and fold. People are exchanged within their fold, in all
    seeds alike, and the measures must be above those of nearly all exchanges. Sessions that occur
    in several pairs and seeds do no harm then, as they would in a bootstrap over a few people.
    """
    generator = np.random.default_rng(0)
    people = [np.unique(matches.person) for matches in found[0]]

    def measured(exchanged: Sequence[np.ndarray]) -> np.ndarray:
        parts = [
            matches.measured(dict(zip(own.tolist(), other.tolist(), strict=True)))
            for seed in found
            for matches, own, other in zip(seed, people, exchanged, strict=True)
        ]
        return np.mean(parts, axis=0)

    true = measured(people)
    shuffled = np.array(
        [measured([generator.permutation(own) for own in people]) for _ in range(_SHUFFLES)]
    )
    chance = (1 + (shuffled >= true).sum(0)) / (1 + _SHUFFLES)
    enough = true > np.array([MAX_ADVANTAGE, MAX_AUC])
    return bool((enough & (chance < _LEVEL)).any())


def _hit_rate(table: np.ndarray) -> np.ndarray:
    rate: np.ndarray = table[..., 0] / table[..., 1]
    return rate


def _estimate(tables: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]) -> Estimate:
    # The same people are drawn for every figure, so that figures can be compared.
    return bootstrap(tables, statistic)
