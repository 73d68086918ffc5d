"""The Bayes risk, estimated by nearest neighbours on learnt features.

In the manner of F-BLEAU (Cherubin, Chatzikokolakis and Palamidessi, 2019): the error of a k-nearest
neighbour rule converges to the Bayes risk from above where k grows more slowly than the number of
windows, so the best of several such rules estimates it. In many dimensions neighbours are far
away. So the rules work on a few learnt coordinates: the scores of cross-fitted linear models on
spectra, random convolutions and samples, and on products and cosines of their main components.

Everything is learnt and chosen on training windows. So the accuracy on test windows is what an
attacker reaches, apart from chance, and the best possible accuracy is no lower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.linalg import eigh, solve

from sensorveil.audit.features import RandomConvolutions, spectral_features
from sensorveil.audit.results import (
    HIDDEN,
    INCONCLUSIVE,
    MAX_ADVANTAGE,
    AttributeAudit,
    BayesRisk,
    Verdict,
)
from sensorveil.audit.threat_models import Fold, Output, thinned
from sensorveil.audit.truth import pooled_codes
from sensorveil.data.windows import UNKNOWN, Windows, to_real
from sensorveil.errors import Refusal
from sensorveil.statistics import accuracy, bootstrap, confusion_by_person, majority

WINDOWS = 3_000
"""The most training windows in an audit."""
KERNELS = 150
"""Random convolutions."""
SAMPLES = 2_000
"""Samples of a window of which principal components are taken."""
COMPONENTS = 64
"""Principal components of the samples of a window, and those of which squares are taken."""
LEADING = 16
"""Principal components of which products and cosines are taken."""
COSINES = 200
"""Random cosines."""
FOLDS = 5
"""Folds of the training windows, by person or recording."""
PENALTIES = (0.03, 0.3)
"""Ridge penalties per training window."""
POWERS = (1 / 2, 2 / 3, 3 / 4)
"""Neighbours that are asked, as powers of the number of training windows; and its logarithm."""


class WindowFeatures:
    """Blocks of features of windows, which serve all attributes.

    Parameters
    ----------
    train
        Windows that scaling, components and kernels come from.
    seed, device
        Of the kernels, and where they work.

    Examples
    --------
    >>> windows = Windows.from_signal(np.random.default_rng(0).normal(size=(90, 2, 64)))
    >>> [block.shape for block in WindowFeatures(windows).of(windows)]
    [(90, 64), (90, 77), (90, 300)]
    """

    def __init__(self, train: Windows, *, seed: int = 0, device: str = "cpu") -> None:
        self.device = device
        kernels = RandomConvolutions(KERNELS, seed, device)
        self.kernels_ = kernels.fit(train)
        self.components_ = _Components(_samples(train), COMPONENTS, seed)

    def of(self, windows: Windows) -> list[np.ndarray]:
        """Main components of the samples, spectral features, random convolutions."""
        return [
            self.components_.of(_samples(windows)),
            spectral_features(windows, self.device),
            self.kernels_.transform(windows),
        ]


def best_predictions(
    train: np.ndarray | Sequence[np.ndarray],
    codes: np.ndarray,
    test: np.ndarray | Sequence[np.ndarray],
    *,
    groups: np.ndarray | None = None,
    seed: int = 0,
) -> np.ndarray:
    """The class of each test window by the nearest-neighbour rule that does best in training.

    Parameters
    ----------
    train, test
        Features (n, d), or several blocks of them.
    codes
        The classes of the training windows; UNKNOWN ones are left out.
    groups
        What training windows have in common that test windows do not share with them: the person,
        or the recording. Default: nothing.
    seed
        Of folds and cosines.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> true = np.arange(2000) % 2
    >>> features = rng.normal(size=(2000, 2)) * np.where(true, 3, 1)[:, None]  # equal means
    >>> found = best_predictions(features[:1000], true[:1000], features[1000:])
    >>> bool(abs(np.mean(found == true[1000:]) - 0.838) < 0.03)  # the best possible is 0.838
    True
    """
    known = codes != UNKNOWN
    pairs = [
        (own[known], asked)
        for own, asked in zip(_listed(train), _listed(test), strict=True)
        if (own[known] != own[known][:1]).any()  # constant features say nothing
    ]
    classes, code, counts = np.unique(codes[known], return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise Refusal("the Bayes risk needs training windows of two classes or more")
    fold = _folds(np.arange(known.sum()) if groups is None else groups[known], seed)
    spaces = [_learnt(pairs, code, fold, seed)] if pairs else []
    if len(pairs) == 1 and pairs[0][0].shape[1] <= LEADING:  # near enough as they are
        spaces.append(_standardised(*pairs[0]))
    scored = [_best_size(own, code, fold) for own, _ in spaces]
    if max(scored, default=(0, 0))[0] <= counts.max():
        return np.full(len(_listed(test)[0]), classes[counts.argmax()])
    (_, size), (own, asked) = max(zip(scored, spaces, strict=True), key=lambda rule: rule[0])
    return np.asarray(classes[_votes(own, code, asked, [size])[0].argmax(-1)])


def predict_attributes(
    train: Windows,
    test: Windows,
    attributes: Sequence[str],
    *,
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, np.ndarray]:
    """The predicted codes of the test windows, by attribute; features are computed once.

    Attributes with fewer than two classes in training are left out.

    Parameters
    ----------
    train, test
        Labelled windows to learn from, and windows to predict.
    attributes
        The attributes to predict.
    seed, device
        As in `WindowFeatures`.

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> found = predict_attributes(windows, windows, ["gender"])
    >>> found["gender"].shape == (len(windows),)
    True
    """
    features = WindowFeatures(train, seed=seed, device=device)
    learnt, asked = features.of(train), features.of(test)
    groups = _groups(train, test)
    return {
        name: best_predictions(learnt, train.codes(name), asked, groups=groups, seed=seed)
        for name in attributes
        if len(np.unique(train.codes(name)[train.codes(name) != UNKNOWN])) > 1
    }


def risk_of_predictions(
    true: np.ndarray, predicted: np.ndarray, person: np.ndarray, classes: int
) -> BayesRisk:
    """Accuracy and advantage with intervals over people.

    Parameters
    ----------
    true, person
        The class and the person of each test window.
    predicted
        What was predicted, (seeds, n).
    classes
        The number of classes.

    Examples
    --------
    >>> true = np.array([0, 0, 1, 1])
    >>> risk = risk_of_predictions(true, np.array([[0, 0, 1, 0]]), np.arange(4), 2)
    >>> risk.accuracy.value, risk.advantage.value
    (0.75, 0.25)
    """
    tables = np.stack([confusion_by_person(true, one, person, classes) for one in predicted])
    right = bootstrap(tables, accuracy)
    return BayesRisk(right, right.above(float(majority(tables.sum((0, 1))))))


def bayes_risk(
    train: Windows,
    test: Windows,
    attribute: str,
    *,
    seed: int = 0,
    device: str = "cpu",
) -> BayesRisk:
    """The estimate for one attribute; for several, `predict_attributes` is faster.

    Parameters
    ----------
    train, test
        Labelled windows to learn from, and windows to predict.
    attribute
        The attribute.
    seed, device
        As in `WindowFeatures`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def windows(count):
    ...     codes = np.arange(count) % 2
    ...     signal = rng.normal(size=(count, 1, 64)) + 4 * codes[:, None, None]
    ...     return Windows.from_signal(signal, {"gender": codes})
    >>> bayes_risk(windows(200), windows(100), "gender").accuracy.value
    1.0
    """
    found = predict_attributes(train, test, [attribute], seed=seed, device=device)
    if not found:
        raise Refusal(f"attribute '{attribute}' has one class only in the training windows")
    true, classes = test.codes(attribute), len(test.classes[attribute])
    return risk_of_predictions(true, found[attribute][None], test.subject, classes)


def with_bayes_risk(
    folds: Sequence[Fold],
    outputs: Mapping[tuple[int, int], Output],
    found: Sequence[AttributeAudit],
    seed: int = 0,
    device: str = "cpu",
) -> tuple[AttributeAudit, ...]:
    """Each attribute with an estimate of the best accuracy that needs no attacker.

    It is taken of one seed, and of some training windows. It can make a verdict of `hidden`
    inconclusive, and never the other way round.

    Parameters
    ----------
    folds, outputs
        What is audited, and the output for each (fold, seed).
    found
        What attackers found.
    seed, device
        Which output is taken, and where it is worked on.
    """
    names = [part.attribute for part in found]
    sides: list[dict[str, list[np.ndarray]]] = [{}, {}]
    for number, fold in enumerate(folds):
        output = outputs[number, seed]
        raw = (fold.split.train.select(np.unique(output.chosen)), fold.split.test)
        for side, (train, test) in zip(sides, (raw, (output.train, output.test)), strict=True):
            few = thinned(train, WINDOWS, seed)
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


class _Components:
    """Principal components of standardised numbers, each of deviation 1."""

    def __init__(self, values: np.ndarray, count: int, seed: int) -> None:
        from sklearn.utils.extmath import randomized_svd

        self.scaling = _mean_and_deviation(values)
        scaled = self._scaled(values)
        self.count = min(count, *values.shape)
        self.axes = randomized_svd(scaled, self.count, random_state=seed)[2].T
        deviation = (scaled @ self.axes).std(0)
        self.deviation = np.where(deviation > 1e-4, deviation, np.inf)  # the rest is rounding

    def of(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(self._scaled(values) @ self.axes / self.deviation)

    def _scaled(self, values: np.ndarray) -> np.ndarray:
        mean, deviation = self.scaling
        return (values - mean) / deviation


def _mean_and_deviation(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each column; infinity for a constant one, which then counts as 0."""
    mean, deviation = values.mean(0), values.std(0)
    constant = deviation <= 1e-6 * np.abs(mean)
    return mean, np.where(constant, np.inf, deviation)


def _samples(windows: Windows) -> np.ndarray:
    """The samples of each window, evenly thinned to about `SAMPLES` where there are more."""
    parts = [to_real(part).reshape(len(part), -1) for part in windows.recorded.batches(500)]
    step = -(-parts[0].shape[1] // SAMPLES)
    return np.concatenate([part[:, ::step] for part in parts])


def _listed(blocks: np.ndarray | Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    return [blocks] if isinstance(blocks, np.ndarray) else blocks


def _groups(train: Windows, test: Windows) -> np.ndarray:
    """The person where the test has other people, the recording where it has other recordings.

    Elsewhere pieces of recordings: windows that overlap are nearly the same.
    """
    for name in ("subject", "recording"):
        own = getattr(train, name)
        if not np.isin(own, getattr(test, name)).any():
            return np.asarray(own)
    piece = train.start // (5 * train.length)
    return np.asarray(train.recording * (piece.max() + 1) + piece)


def _folds(groups: np.ndarray, seed: int) -> np.ndarray:
    """The fold of each window; groups stay whole."""
    names, index = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        names = index = np.arange(len(groups))
    return np.asarray(np.random.default_rng(seed).permutation(len(names))[index] % FOLDS)


def _learnt(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], code: np.ndarray, fold: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The discriminants of the scores by all designs of all blocks."""
    designs = [design for pair in pairs for design in _designs(*pair, seed)]
    member = np.eye(code.max() + 1)[code]
    scores = [_cross_fitted(*design, member, fold) for design in designs]
    own, asked = (np.hstack(part) for part in zip(*scores, strict=True))
    return _discriminants(*_standardised(own, asked), code)


def _discriminants(
    train: np.ndarray, test: np.ndarray, code: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One coordinate fewer than classes, each of deviation 1 within classes."""
    from sklearn.covariance import ledoit_wolf

    means = np.stack([train[code == one].mean(0) for one in range(code.max() + 1)])
    within = ledoit_wolf(train - means[code])[0] + 1e-6 * np.eye(train.shape[1])
    directions = eigh(np.cov(means[code].T), within)[1][:, -code.max() :]
    return train @ directions, test @ directions


def _designs(train: np.ndarray, test: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The features, then squares, products and random cosines of their main components."""
    components = _Components(train, COMPONENTS, seed)
    rng = np.random.default_rng(seed)
    leading = min(LEADING, components.count)
    first, second = np.triu_indices(leading, 1)
    # Frequencies differ widely, since nobody knows how fast the share of a class changes.
    turns = rng.normal(size=(leading, COSINES)) / np.sqrt(leading)
    turns *= np.exp(rng.uniform(-1, 2, COSINES))
    shift = rng.uniform(0, 2 * np.pi, COSINES)
    squares, cosines = [], []
    for part in (components.of(train), components.of(test)):
        few = part[:, :leading]
        squares.append(np.hstack([part**2, few[:, first] * few[:, second]]))
        cosines.append(np.cos(few @ turns + shift))
    return [_standardised(*pair) for pair in ((train, test), squares, cosines)]


def _standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """In units of the training windows; a value far out counts as 8 deviations."""
    mean, deviation = _mean_and_deviation(train)
    first, second = ((part - mean) / deviation for part in (train, test))
    return np.clip(first, -8, 8), np.clip(second, -8, 8)


def _cross_fitted(
    train: np.ndarray, test: np.ndarray, member: np.ndarray, fold: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ridge regression on the classes: scores by the other folds, and by the mean of all."""
    inner, outer = train.T @ train, train.T @ (member - member.mean(0))
    own, asked = [], []
    for penalty in PENALTIES:
        scores, mean = np.empty(member.shape), np.zeros(outer.shape)
        for held in np.unique(fold):
            out = fold == held
            kept = inner - train[out].T @ train[out] + penalty * len(train) * np.eye(len(inner))
            target = outer - train[out].T @ (member[out] - member.mean(0))
            weights = solve(kept, target, assume_a="pos")
            scores[out] = train[out] @ weights
            mean += weights / len(np.unique(fold))
        own.append(scores)
        asked.append(test @ mean)
    return np.hstack(own), np.hstack(asked)


def _best_size(space: np.ndarray, code: np.ndarray, fold: np.ndarray) -> tuple[int, int]:
    """By cross-validation: the most right answers, and the number of neighbours that gives them."""
    sizes = _neighbours(len(space) - np.bincount(fold).max())
    right = np.zeros(len(sizes), int)
    for held in np.unique(fold):
        out = fold == held
        votes = _votes(space[~out], code[~out], space[out], sizes)
        right += (votes.argmax(-1) == code[out]).sum(1)
    return int(right.max()), sizes[int(right.argmax())]


def _neighbours(count: int) -> list[int]:
    """Numbers of neighbours for so many windows to learn from; odd ones have fewer ties."""
    sizes = [np.log(count), *(count**power for power in POWERS)]
    return sorted({min(int(size) // 2 * 2 + 1, count) for size in sizes})


def _votes(
    train: np.ndarray, code: np.ndarray, test: np.ndarray, sizes: Sequence[int]
) -> np.ndarray:
    """How many of the nearest neighbours are of each class, (sizes, n, classes)."""
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=max(sizes)).fit(train)
    classes = code.max() + 1
    place = code[near.kneighbors(test, return_distance=False)]
    place += np.arange(len(test))[:, None] * classes
    counts = [
        np.bincount(part.ravel(), minlength=len(test) * classes)
        for part in np.split(place, sizes[:-1], axis=1)
    ]
    return np.cumsum(counts, axis=0).reshape(len(sizes), len(test), classes)
