"""Linkers: how people differ, learnt on some of them, and the matching of others' sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sensorveil.audit.features import RandomConvolutions, spectral_features
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.statistics import rank1_hits, rank_counts


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
class Sessions:
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
        """What marks on some sessions add to rank 1, for a linker that finds all of them."""
        compared, own = self.compared(), self.own()
        by_chance = (compared & own).sum(1) / compared.sum(1)
        given_away = marked[~self.in_gallery] & (compared & own & marked[self.in_gallery]).any(1)
        return float((given_away * (1 - by_chance)).mean())


def kept_code(split: Split, keep: Sequence[str]) -> Callable[[Windows], np.ndarray]:
    """A function that gives windows one code for their kept classes taken together."""

    def steady(name: str) -> bool:
        pairs = np.stack([split.test.recording, split.test.codes(name)], axis=1)
        return len(np.unique(pairs, axis=0)) == len(np.unique(split.test.recording))

    names = [name for name in keep if steady(name)]

    return lambda windows: windows.joint_codes(names)


def draw_sessions(
    test: Windows, kept: np.ndarray, budget: LinkageBudget, rng: np.random.Generator
) -> tuple[np.ndarray, Sessions]:
    """The windows looked at, and their sessions, dealt to gallery and probes in turn.

    A person's sessions of one kept class follow each other, so two of them never end up on one
    side while the other has none. Who has a single session is in the gallery, as a bystander.
    """
    recordings, first = np.unique(test.recording, return_index=True)
    person, of_class = test.subject[first], kept[first]
    taken, in_gallery = [], []
    for one in np.unique(person):
        own = rng.permutation(np.flatnonzero(person == one))[: budget.sessions_per_person]
        classes = rng.permutation(np.unique(of_class[own]))
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
    return np.concatenate(windows), Sessions(
        np.concatenate(of_window), person[order], of_class[order], np.concatenate(in_gallery)
    )


@dataclass(frozen=True, eq=False)
class Side:
    """Features of one kind of window (raw or obfuscated): of training people and of sessions."""

    train: np.ndarray
    train_person: np.ndarray
    train_kept: np.ndarray
    test: np.ndarray


def prepared(
    trains: Sequence[Windows],
    tests: Sequence[Windows],
    kept: Callable[[Windows], np.ndarray],
    sessions: Sessions,
    budget: LinkageBudget,
    device: str,
) -> list[Side]:
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
        Side(features(train), train.subject, kept(train), features(test))
        for train, test in zip(trains, tests, strict=True)
    ]


class Linker:
    """Directions in which windows of different people differ most, and those of one least.

    It looks at some `columns` of the features.
    """

    def __init__(self, parts: Sequence[Side], columns: slice, components: int, seed: int) -> None:
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

    def embedded(self, side: Side, sessions: Sessions) -> np.ndarray:
        """One direction of unit length for each session: what is special about it in its class."""
        windows = self._white(side.test) @ self.directions
        count = np.bincount(sessions.of_window)
        total = np.zeros((len(count), windows.shape[1]))
        np.add.at(total, sessions.of_window, windows)
        special = total / count[:, None] - self._typical(side, sessions.kept)
        size = np.linalg.norm(special, axis=1, keepdims=True)
        return np.where(size > 1e-6, special / np.maximum(size, 1e-6), 0)

    def _typical(self, side: Side, kept: np.ndarray) -> np.ndarray:
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


class Matches:
    """Who is matched with whom in one fold.

    `hits` (people, 2) are each probed person's first hits and probes, `counts` (people, 2, bins)
    the ranks of scores.
    """

    def __init__(self, linker: Linker, probes: Side, gallery: Side, sessions: Sessions) -> None:
        chosen = sessions.in_gallery
        probe = linker.embedded(probes, sessions)[~chosen]
        similarity = probe @ linker.embedded(gallery, sessions)[chosen].T
        compared, own = sessions.compared(), sessions.own()
        self.person, self.gallery_person = sessions.person[~chosen], sessions.person[chosen]
        allowed = np.where(compared, similarity, -np.inf)
        hits = rank1_hits(allowed, self.person, self.gallery_person)
        people, index = np.unique(self.person, return_inverse=True)
        self.hits = np.zeros((len(people), 2))
        np.add.at(self.hits, index, np.stack([hits, np.ones(len(hits))], axis=1))
        row, _ = np.nonzero(compared)
        self.counts = rank_counts(similarity[compared], own[compared], self.person[row])
        self.compared = compared
        best = allowed == allowed.max(1, keepdims=True)
        self.first = best / best.sum(1, keepdims=True)
        self.place = _places(allowed, compared)

    def measured(self, exchanged: Mapping[int, int]) -> np.ndarray:
        """First hits above chance, and the mean place of own sessions from 0 to 1 (0.5 is blind).

        `exchanged` says for each person whose sessions count as their own.
        """
        wanted = np.array([exchanged[one] for one in self.person.tolist()])
        own = (wanted[:, None] == self.gallery_person) & self.compared
        there = own.any(1)
        if not there.any():
            return np.array([0.0, 0.5])
        own, count = own[there], own[there].sum(1)
        hit = (self.first[there] * own).sum(1) - count / self.compared[there].sum(1)
        return np.array([hit.mean(), ((self.place[there] * own).sum(1) / count).mean()])


def _places(similarity: np.ndarray, compared: np.ndarray) -> np.ndarray:
    """Each session's place among those that a probe is compared with: 0 lowest, 1 highest."""
    places = np.full(similarity.shape, 0.5)
    for row, (values, allowed) in enumerate(zip(similarity, compared, strict=True)):
        ordered = np.sort(values[allowed])
        if len(ordered) > 1:
            below = np.searchsorted(ordered, values[allowed], side="left")
            up_to = np.searchsorted(ordered, values[allowed], side="right")
            places[row, allowed] = (below + up_to - 1) / 2 / (len(ordered) - 1)
    return places
