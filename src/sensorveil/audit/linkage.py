"""Linkage: can an obfuscated session be matched to another session of the same person?

Where test people never occur in training, nobody can be named. But who holds one session of a
stranger can still try to recognise the next one: a linker learns on the training people what
tells people apart, and compares sessions of the test people by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sensorveil.audit.control import PLANTED, plant_identity
from sensorveil.audit.results import MOST_ADVANTAGE, MOST_AUC, Linkage
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.measures.estimate import Estimate, bootstrap
from sensorveil.measures.features import RandomConvolutions, spectral_features
from sensorveil.measures.verification import (
    equal_error_rate_of_counts,
    rank1_hits,
    rank_counts,
)
from sensorveil.progress import track

RAW_SESSION, OBFUSCATED_SESSION = "raw session", "obfuscated session"


@dataclass(frozen=True)
class LinkageBudget:
    """How much a linker learns from, and how much of each test person it looks at.

    Windows of a session are taken at even distances; those in between overlap with them anyway.
    """

    train_windows: int = 6_000
    sessions_per_person: int = 40
    windows_per_session: int = 40
    kernels: int = 500
    components: int = 100

    @classmethod
    def quick(cls) -> LinkageBudget:
        """For two cores."""
        return cls(train_windows=2_000, windows_per_session=20, kernels=200, components=60)


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
    """Matches obfuscated sessions of test people to raw and to obfuscated ones.

    `rounds[i][n]` is fold n with the i-th seed. People of all folds are pooled, though each is only
    ever compared with those of the same fold, and seeds are averaged.

    A session is one recording. Half of each test person's sessions are the gallery, raw or
    obfuscated, and the others the probes, obfuscated; `raw_rank1` and `raw_equal_error_rate` are
    of raw probes and a raw gallery, and show whether the linker can recognise anybody at all.

    The kept attributes (`keep`) must not do the work: walking resembles walking. Where they are
    the same throughout every recording, a probe is compared with gallery sessions of its own
    kept class if its person and at least one other have one there, and with all sessions if not;
    and what is typical of a class in training is subtracted. That is the fair comparison, and
    the easier one for the linker. `rank1_chance` is that of drawing among the sessions compared.

    Two linkers try: one that learnt from raw windows, and one that adapted, by learning from
    what it is to compare (obfuscated windows; with a raw gallery, raw and obfuscated ones). The
    better of the two counts, so that with few probes chance is exceeded a little by mere luck; a
    link is `found` only where it stands out of that. Whether it would be is checked by a control:
    some sessions of the obfuscated windows are marked by a chord that tells the person.
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
_MEASURES = 8  # two galleries, two linkers, rank 1 and equal error rate: each must stand out more


@dataclass(frozen=True, eq=False)
class _Trial:
    """All matches in one fold with one seed, by (gallery, linker), and what guessing gives."""

    matches: Mapping[tuple[str, str], _Matches]
    sessions: _Sessions
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
        kept = _kept(one.split, keep)
        chosen, sessions = _draw_sessions(raw_test, kept(raw_test), budget, generator)
        share = float(np.sqrt(PLANTED / (1 - sessions.chance())))  # probe and gallery need a mark
        marked_test, marked = plant_identity(hidden_test.select(chosen), share, generator)
        tests = [raw_test.select(chosen), hidden_test.select(chosen), marked_test]
        some = [
            train.select(generator.permutation(len(train))[: budget.train_windows])
            for train in (one.split.train, one.hidden_train)
        ]
        trains = [*some, plant_identity(some[1], share, generator)[0]]
        raw, hidden, planted = _prepared(trains, tests, kept, sessions, budget, device)
        # The linker that learnt from raw windows must not even know kernels that fit obfuscated
        # ones.
        plain = raw.train.shape[1] - 2 * budget.kernels
        from_raw = _Linker([raw], slice(plain), budget.components, seed)
        from_hidden = _Linker([hidden], slice(None), budget.components, seed)
        from_both = _Linker([raw, hidden], slice(None), budget.components, seed)
        from_planted = _Linker([planted], slice(None), budget.components, seed)
        matches = {
            (RAW_SESSION, _RAW_LINKER): _Matches(from_raw, hidden, raw, sessions),
            (RAW_SESSION, _ADAPTED): _Matches(from_both, hidden, raw, sessions),
            (OBFUSCATED_SESSION, _RAW_LINKER): _Matches(from_raw, hidden, hidden, sessions),
            (OBFUSCATED_SESSION, _ADAPTED): _Matches(from_hidden, hidden, hidden, sessions),
            (OBFUSCATED_SESSION, _PLANTED): _Matches(from_planted, planted, planted, sessions),
            (_RAW_LINKER, _RAW_LINKER): _Matches(from_raw, raw, raw, sessions),
        }
        by_session = np.zeros(len(sessions.person), bool)
        by_session[sessions.of_window] = marked
        return cls(matches, sessions, sessions.chance(), sessions.gain(by_session))


def _pooled(by_seed: Sequence[Sequence[_Trial]], gallery: str) -> Linkage:
    """One gallery's figures over folds and seeds."""
    first = by_seed[0]
    linkers = {name: _Figures.of(by_seed, (gallery, name)) for name in (_RAW_LINKER, _ADAPTED)}
    best = max(linkers.values(), key=lambda one: (one.rank1.value, -one.error.value))
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
        found=any(one.stands_out(chance) for one in linkers.values()),
        control=control.rank1 if control else None,
        control_found=bool(control and control.stands_out(chance)),
        planted=planted or 0.0,
    )


@dataclass(frozen=True, eq=False)
class _Figures:
    """Rank 1 and equal error rate of one linker, with usual and with strict intervals."""

    rank1: Estimate
    error: Estimate
    strict_rank1: Estimate
    strict_error: Estimate

    @classmethod
    def of(cls, by_seed: Sequence[Sequence[_Trial]], key: tuple[str, str]) -> _Figures:
        """Pools people over folds and stacks seeds."""
        found = [[trial.matches[key] for trial in trials] for trials in by_seed]
        hits = np.stack([np.concatenate([m.hits for m in matches]) for matches in found])
        counts = np.stack([np.concatenate([m.counts for m in matches]) for matches in found])
        tail = 2 * 0.05 / _MEASURES  # one side only counts
        return cls(
            _estimate(hits, _hit_rate),
            _estimate(counts, equal_error_rate_of_counts),
            _estimate(hits, _hit_rate, tail),
            _estimate(counts, equal_error_rate_of_counts, tail),
        )

    def stands_out(self, chance: float) -> bool:
        """Whether it is better than guessing by more than is let pass, and beyond its interval."""
        hit, error = self.strict_rank1, self.strict_error
        by_hits = hit.value > chance + MOST_ADVANTAGE and hit.low > chance
        return by_hits or (error.value < 1 - MOST_AUC and error.high < 0.5)


@dataclass(frozen=True, eq=False)
class _Sessions:
    """The sessions of the test people, and which of them may be compared.

    `of_window` says for each window that was chosen which session it belongs to.
    """

    of_window: np.ndarray
    person: np.ndarray
    kept: np.ndarray
    in_gallery: np.ndarray

    def compared(self) -> np.ndarray:
        """(probes, gallery): whether the two are compared."""
        probe, gallery = ~self.in_gallery, self.in_gallery
        alike = self.kept[probe][:, None] == self.kept[gallery][None, :]
        own = self.person[probe][:, None] == self.person[gallery][None, :]
        possible = (alike & own).any(1) & (alike & ~own).any(1)
        return np.where(possible[:, None], alike, True)

    def own(self) -> np.ndarray:
        """(probes, gallery): whether both are of one person."""
        return self.person[~self.in_gallery][:, None] == self.person[self.in_gallery][None, :]

    def chance(self) -> float:
        """Rank 1 of drawing one of the sessions compared."""
        compared = self.compared()
        return float(((compared & self.own()).sum(1) / compared.sum(1)).mean())

    def gain(self, marked: np.ndarray) -> float:
        """What marks that give away some sessions add to rank 1, for one who reads all marks."""
        compared, own = self.compared(), self.own()
        by_chance = (compared & own).sum(1) / compared.sum(1)
        given_away = marked[~self.in_gallery] & (compared & own & marked[self.in_gallery]).any(1)
        return float((given_away * (1 - by_chance)).mean())


def _kept(split: Split, keep: Sequence[str]) -> Callable[[Windows], np.ndarray]:
    """A function that gives windows one code for their kept classes taken together."""

    def steady(name: str) -> bool:
        pairs = np.stack([split.test.recording, split.test.codes(name)], axis=1)
        return len(np.unique(pairs, axis=0)) == len(np.unique(split.test.recording))

    names = [name for name in keep if steady(name)]

    def code(windows: Windows) -> np.ndarray:
        joint = np.zeros(len(windows), int)
        for name in names:
            # One more for windows whose class is not known.
            joint = joint * (len(windows.classes[name]) + 1) + windows.codes(name) + 1
        return joint

    return code


def _draw_sessions(
    test: Windows, kept: np.ndarray, budget: LinkageBudget, generator: np.random.Generator
) -> tuple[np.ndarray, _Sessions]:
    """The windows looked at, and their sessions, dealt to gallery and probes in turn.

    A person's sessions of one kept class follow each other, so two of them never end up on one
    side while the other has none. Who has a single session is in the gallery, as a bystander.
    """
    recordings, first = np.unique(test.recording, return_index=True)
    person, of_class = test.subject[first], kept[first]
    taken, in_gallery = [], []
    for one in np.unique(person):
        own = generator.permutation(np.flatnonzero(person == one))[: budget.sessions_per_person]
        classes = generator.permutation(np.unique(of_class[own]))
        turn = np.argsort(classes)[np.searchsorted(np.sort(classes), of_class[own])]
        own = own[np.argsort(turn, kind="stable")]
        taken.append(own)
        in_gallery.append(np.arange(len(own)) % 2 == 0)
    if sum(len(own) > 1 for own in taken) < 2:
        raise Refusal("linkage needs at least two test people with two recordings each")
    order = np.concatenate(taken)
    windows, of_window = [], []
    for number, recording in enumerate(recordings[order]):
        there = np.flatnonzero(test.recording == recording)
        few = min(len(there), budget.windows_per_session)
        windows.append(there[np.linspace(0, len(there) - 1, few).round().astype(int)])
        of_window.append(np.full(few, number))
    return np.concatenate(windows), _Sessions(
        np.concatenate(of_window), person[order], of_class[order], np.concatenate(in_gallery)
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """Features of one kind of window (raw or obfuscated): of training people and of sessions."""

    train: np.ndarray
    train_person: np.ndarray
    train_kept: np.ndarray
    test: np.ndarray


def _prepared(
    trains: Sequence[Windows],
    tests: Sequence[Windows],
    kept: Callable[[Windows], np.ndarray],
    sessions: _Sessions,
    budget: LinkageBudget,
    device: str,
) -> list[_Side]:
    """Features of raw, obfuscated and marked windows.

    The columns are those of kernels that fit raw windows, spectra, and those of kernels that fit
    obfuscated ones.
    """
    for train in trains:
        if len(np.unique(train.subject)) < 2:
            raise Refusal("linkage needs at least two training people to learn from")
        if np.isin(train.subject, sessions.person).any():
            raise Refusal("linkage is for people who are not in training; classify them instead")
    kernels = [
        RandomConvolutions(budget.kernels, seed, device).fit(train)
        for seed, train in enumerate(trains[:2])
    ]

    def features(windows: Windows) -> np.ndarray:
        of_raw, of_hidden = (model.transform(windows) for model in kernels)
        return np.hstack([of_raw, spectral_features(windows, device), of_hidden])

    return [
        _Side(features(train), train.subject, kept(train), features(test))
        for train, test in zip(trains, tests, strict=True)
    ]


class _Linker:
    """Directions in which windows of different people differ most, and those of one least.

    It looks at some `columns` of the features.
    """

    def __init__(self, parts: Sequence[_Side], columns: slice, components: int, seed: int) -> None:
        from sklearn.decomposition import PCA
        from sklearn.preprocessing import StandardScaler

        self.columns = columns
        features = np.concatenate([part.train for part in parts])
        _, person = np.unique(
            np.concatenate([part.train_person for part in parts]), return_inverse=True
        )
        self.scaler = StandardScaler().fit(self._seen(features))
        scaled = self.scaler.transform(self._seen(features))
        most = min(components, *scaled.shape)
        # The exact way costs the cube of the features.
        solver = "covariance_eigh" if scaled.shape[1] <= 1500 else "randomized"
        with np.errstate(invalid="ignore"):  # it divides by all variance, which may be none
            self.pca = PCA(most, svd_solver=solver, random_state=seed).fit(scaled)
        # Components without variance are rounding; divided by their deviation they would count.
        variance = self.pca.explained_variance_
        self.whitening = np.where(variance > 1e-6, 1 / np.sqrt(np.maximum(variance, 1e-6)), 0)
        white = self._white(features)
        # In white features the variance within people is what that between people leaves of one,
        # so the discriminant directions are those of the variance between people.
        means = np.stack([white[person == one].mean(0) for one in range(person.max() + 1)])
        share = np.bincount(person) / len(person)
        between = (means * share[:, None]).T @ means
        values, vectors = np.linalg.eigh(between)
        values = np.clip(values, 0, 0.999)
        # Each direction counts as much as it separates; most of them are mere chance.
        strength = np.sqrt(values / (1 - values))
        last = slice(-min(len(means) - 1, most), None)
        self.directions = (vectors * strength)[:, last]

    def embedded(self, side: _Side, sessions: _Sessions) -> np.ndarray:
        """One direction of unit length for each session: what is special about it in its class."""
        windows = self._white(side.test) @ self.directions
        count = np.bincount(sessions.of_window)
        total = np.zeros((len(count), windows.shape[1]))
        np.add.at(total, sessions.of_window, windows)
        special = total / count[:, None] - self._typical(side, sessions.kept)
        size = np.linalg.norm(special, axis=1, keepdims=True)
        return np.where(size > 1e-6, special / np.maximum(size, 1e-6), 0)

    def _typical(self, side: _Side, kept: np.ndarray) -> np.ndarray:
        """The mean of training windows of the same kept class, or of all where there are none."""
        train = self._white(side.train) @ self.directions
        means = np.tile(train.mean(0), (len(kept), 1))
        for code in np.intersect1d(kept, side.train_kept):
            means[kept == code] = train[side.train_kept == code].mean(0)
        return means

    def _white(self, features: np.ndarray) -> np.ndarray:
        return self.pca.transform(self.scaler.transform(self._seen(features))) * self.whitening

    def _seen(self, features: np.ndarray) -> np.ndarray:
        return features[:, self.columns].astype(np.float64)


class _Matches:
    """Each probed person's first hits (people, 2) and ranked scores (people, 2, bins)."""

    def __init__(self, linker: _Linker, probes: _Side, gallery: _Side, sessions: _Sessions) -> None:
        chosen = sessions.in_gallery
        probe = linker.embedded(probes, sessions)[~chosen]
        similarity = probe @ linker.embedded(gallery, sessions)[chosen].T
        compared, own = sessions.compared(), sessions.own()
        person = sessions.person[~chosen]
        hits = rank1_hits(np.where(compared, similarity, -np.inf), person, sessions.person[chosen])
        people, index = np.unique(person, return_inverse=True)
        self.hits = np.zeros((len(people), 2))
        np.add.at(self.hits, index, np.stack([hits, np.ones(len(hits))], axis=1))
        row, _ = np.nonzero(compared)
        self.counts = rank_counts(similarity[compared], own[compared], person[row])


def _hit_rate(table: np.ndarray) -> np.ndarray:
    rate: np.ndarray = table[..., 0] / table[..., 1]
    return rate


def _estimate(
    tables: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], tail: float = 0.05
) -> Estimate:
    # The same people are drawn for every figure, so that figures can be compared.
    return bootstrap(tables, statistic, np.random.default_rng(0), tail=tail)
