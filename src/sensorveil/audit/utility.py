"""What survives: kept attributes, and information in bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sensorveil.audit.evaluation import _by_class
from sensorveil.audit.results import Information, KeptAttribute
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Windows
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

_RAW, _UNCHANGED, _RETRAINED, _BACK = range(4)
_FEWEST = 50  # windows below which information is not estimated


def kept_attribute(
    splits: Sequence[Split],
    hidden_train: Sequence[Sequence[Windows]],
    hidden_test: Sequence[Sequence[Windows]],
    attribute: str,
    settings: ClassifierSettings | None = None,
    seeds: Sequence[int] = (0,),
    device: str = "cpu",
    raw_models: Sequence[Sequence[Classifier]] | None = None,
) -> KeptAttribute:
    """How well an application predicts an attribute, with its model unchanged and retrained.

    `splits` are the folds, whose people are pooled. `hidden_train[i][n]` and `hidden_test[i][n]`
    are the obfuscated windows of the i-th seed in fold n, and `raw_models[i][n]`, where given, is
    a model trained on the raw windows there, which need not be trained again.
    """
    tables = []
    work = [(i, n) for i in range(len(seeds)) for n in range(len(splits))]
    for i, n in track(work, "application's models"):
        if raw_models is None:
            model = Classifier(settings, seeds[i], device).fit(splits[n].train, attribute)
        else:
            model = raw_models[i][n]
        again = Classifier(settings, seeds[i], device).fit(hidden_train[i][n], attribute)
        tables.append(_tables(splits[n].test, hidden_test[i][n], attribute, model, again))
    per_seed = [
        np.concatenate(tables[first : first + len(splits)])
        for first in range(0, len(tables), len(splits))
    ]
    return _kept(attribute, splits[0].test.classes[attribute], np.stack(per_seed))


def _tables(
    raw: Windows,
    hidden: Windows,
    attribute: str,
    unchanged: Classifier,
    retrained: Classifier,
) -> np.ndarray:
    """Confusion tables (people, raw / unchanged / retrained / back, classes, classes)."""
    predictions = [
        unchanged.predict(raw),
        unchanged.predict(hidden),
        retrained.predict(hidden),
        retrained.predict(raw),
    ]
    true, classes = raw.codes(attribute), len(raw.classes[attribute])
    return np.stack(
        [confusion_by_person(true, one, raw.subject, classes) for one in predictions], axis=1
    )


def _kept(attribute: str, classes: tuple[str, ...], tables: np.ndarray) -> KeptAttribute:
    """With intervals; figures by class are those of the unchanged model on obfuscated windows."""

    def estimate(which: int, statistic: Statistic) -> Estimate:
        return bootstrap(tables[:, :, which], statistic)

    whole = tables[:, :, _UNCHANGED].sum((0, 1))
    return KeptAttribute(
        attribute=attribute,
        classes=classes,
        majority=float(majority(whole)),
        raw=estimate(_RAW, accuracy),
        unchanged=estimate(_UNCHANGED, accuracy),
        retrained=estimate(_RETRAINED, accuracy),
        retrained_on_raw=estimate(_BACK, accuracy),
        unchanged_f1=estimate(_UNCHANGED, macro_f1),
        retrained_f1=estimate(_RETRAINED, macro_f1),
        f1_by_class=_by_class(classes, f1_by_class(whole)),
        recall_by_class=_by_class(classes, recall_by_class(whole)),
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
