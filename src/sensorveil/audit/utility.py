"""What survives: kept attributes, and information in bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sensorveil.audit.applications import (
    ApplicationModel,
    application_class,
    list_applications,
)
from sensorveil.audit.evaluation import _by_class
from sensorveil.audit.results import Application, Information, KeptAttribute
from sensorveil.audit.threat_models import thinned
from sensorveil.audit.transitions import Followed, follow, transitions
from sensorveil.classifiers import labelled_windows
from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.information import (
    entropy,
    mutual_information_knn,
    mutual_information_mine,
    window_features,
)
from sensorveil.progress import track
from sensorveil.statistics import (
    Estimate,
    Statistic,
    accuracy,
    bootstrap,
    confusion_by_person,
    f1_by_class,
    macro_f1,
    majority,
    recall_by_class,
)

MINE = "MINE"
NEIGHBOURS = "principal components + nearest neighbours"

WINDOWS, QUICK_WINDOWS = 60_000, 3_000
"""The most training windows of an application."""

_RAW, _UNCHANGED, _RETRAINED = (
    0,
    1,
    2,
)  # of the four ways: raw, unchanged, retrained, retrained on raw
_FEWEST = 50  # windows below which information is not estimated


def kept_attribute(
    splits: Sequence[Split],
    hidden_train: Sequence[Sequence[Windows]],
    hidden_test: Sequence[Sequence[Windows]],
    attribute: str,
    seeds: Sequence[int] = (0,),
    device: str = "cpu",
    quick: bool = False,
    applications: Sequence[str] | None = None,
) -> KeptAttribute:
    """How well applications predict an attribute, with their models unchanged and retrained.

    The people of all folds are pooled. Intervals are over people and seeds; the applications are
    always the same.

    Parameters
    ----------
    splits
        The folds, with raw windows.
    hidden_train, hidden_test
        `hidden_train[i][n]` and `hidden_test[i][n]` are the obfuscated windows of the i-th seed in
        fold n. Training windows may occur several times, in any order.
    attribute
        The attribute to predict.
    seeds
        Applications are trained anew for each.
    device
        Where they work.
    quick
        Small models, and at most 3,000 training windows instead of 60,000.
    applications
        Names of the applications; default: all that are registered.
    """
    names = list_applications() if applications is None else tuple(applications)
    if not names:
        raise Refusal(f"no application is named; known: {', '.join(list_applications())}")
    tables = []
    followed: tuple[list[Followed], list[Followed]] = ([], [])
    work = [(i, n) for i in range(len(seeds)) for n in range(len(splits))]
    for i, n in track(work, "applications: folds and seeds"):
        test, each = splits[n].test, []
        for name in track(names, "applications"):
            models = [
                _fitted(name, windows, attribute, quick, seeds[i], device)
                for windows in (splits[n].train, hidden_train[i][n])
            ]
            predictions = _predictions(models, test, hidden_test[i][n])
            each.append(_tables(predictions, test, attribute))
            for one, way in zip(followed, (_RAW, _UNCHANGED), strict=True):
                one.append(follow(test, attribute, predictions[way]))
        tables.append(np.stack(each, axis=1))
    per_seed = [
        np.concatenate(tables[first : first + len(splits)])
        for first in range(0, len(tables), len(splits))
    ]
    kept = _kept(attribute, splits[0].test.classes[attribute], names, np.stack(per_seed))
    return replace(kept, transitions=transitions(*followed))


def _fitted(
    name: str, windows: Windows, attribute: str, quick: bool, seed: int, device: str
) -> ApplicationModel:
    """An application that learnt from windows whose class is known, at most so many of them."""
    known, _, num_classes = labelled_windows(windows, attribute)
    some = thinned(known, QUICK_WINDOWS if quick else WINDOWS, seed)
    model = application_class(name)(quick, seed, device)
    return model.fit(some, some.codes(attribute), num_classes)


def _predictions(
    models: Sequence[ApplicationModel], raw: Windows, hidden: Windows
) -> list[np.ndarray]:
    """Classes that are predicted in the four ways: raw, unchanged, retrained, retrained on raw."""
    unchanged, retrained = models
    return [
        unchanged.predict(raw),
        unchanged.predict(hidden),
        retrained.predict(hidden),
        retrained.predict(raw),
    ]


def _tables(predictions: Sequence[np.ndarray], windows: Windows, attribute: str) -> np.ndarray:
    """Confusion tables (people, four ways, classes, classes)."""
    true, classes = windows.codes(attribute), len(windows.classes[attribute])
    return np.stack(
        [confusion_by_person(true, one, windows.subject, classes) for one in predictions], axis=1
    )


def _kept(
    attribute: str, classes: tuple[str, ...], names: Sequence[str], tables: np.ndarray
) -> KeptAttribute:
    """Estimates from tables (seeds, people, applications, four ways, classes, classes).

    Figures by class are those of the unchanged models on obfuscated windows.
    """

    def means(statistic: Statistic) -> list[Estimate]:
        """Of each way, the mean over applications."""
        return [
            bootstrap(tables[:, :, :, way], lambda drawn: statistic(drawn).mean(-1))
            for way in range(4)
        ]

    raw, unchanged, retrained, back = means(accuracy)
    f1 = means(macro_f1)
    whole = tables[:, :, :, _UNCHANGED].sum((0, 1, 2))
    return KeptAttribute(
        attribute=attribute,
        classes=classes,
        majority=float(majority(whole)),
        raw=raw,
        unchanged=unchanged,
        retrained=retrained,
        retrained_on_raw=back,
        unchanged_f1=f1[_UNCHANGED],
        retrained_f1=f1[_RETRAINED],
        f1_by_class=_by_class(classes, f1_by_class(whole)),
        recall_by_class=_by_class(classes, recall_by_class(whole)),
        applications=tuple(
            Application(name, *(bootstrap(tables[:, :, which, way], accuracy) for way in range(4)))
            for which, name in enumerate(names)
        ),
    )


def information(
    raw: Windows,
    hidden: Windows,
    attributes: Sequence[str],
    seed: int = 0,
    quick: bool = False,
    device: str = "cpu",
) -> tuple[Information, ...]:
    """Mutual information of single windows with each attribute, by both estimators, in bits.

    At most 8,000 windows (2,500 in quick mode), drawn at random, the same ones on both sides.
    Windows that overlap are not compared as neighbours, and MINE holds out whole stretches of
    recordings; but other stretches of the same people's recordings remain, so a value holds for
    an attacker who has seen these people. Attributes of
    one class, or known of fewer than 50 windows, are left out.
    """
    count = min(len(raw), 2500 if quick else 8000)
    chosen = np.sort(np.random.default_rng(seed).choice(len(raw), count, replace=False))
    sides = [windows.select(chosen) for windows in (raw, hidden)]
    features = [window_features(side.signal, 16 if quick else 32) for side in sides]
    place, stretch = _places(sides[0])
    found = []
    for name in track(list(attributes), "information"):
        codes = sides[0].codes(name)
        known = codes[codes != UNKNOWN]
        if len(known) < _FEWEST or len(np.unique(known)) < 2:
            continue
        mine = [
            mutual_information_mine(rows, codes, seed, groups=stretch, quick=quick, device=device)
            for rows in features
        ]
        near = [
            mutual_information_knn(rows, codes, places=place, reach=raw.length) for rows in features
        ]
        for estimator, (before, after) in ((MINE, mine), (NEIGHBOURS, near)):
            found.append(Information(name, estimator, before, after, entropy(codes)))
    return tuple(found)


def _places(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Where each window begins, recordings far apart; and its stretch, of four window lengths."""
    apart = int(windows.start.max(initial=0)) + 8 * windows.length
    apart -= apart % (4 * windows.length)
    place = windows.recording.astype(np.int64) * apart + windows.start
    return place, place // (4 * windows.length)
