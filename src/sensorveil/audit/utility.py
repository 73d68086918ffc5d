"""What survives: kept attributes, the signal itself, and information in bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sensorveil.audit.evaluation import _by_class
from sensorveil.audit.results import Information, KeptAttribute, SignalUtility
from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Scaling, Windows
from sensorveil.measures.estimate import Estimate, Statistic, bootstrap
from sensorveil.measures.inference import InferenceModel, InferenceSettings
from sensorveil.measures.information import (
    entropy,
    mutual_information_knn,
    mutual_information_mine,
    window_features,
)
from sensorveil.measures.scores import (
    accuracy,
    confusion_by_person,
    f1_by_class,
    macro_f1,
    majority,
    recall_by_class,
)
from sensorveil.measures.signals import (
    acceleration_channels,
    dominant_frequency,
    energy,
    power_spectrum,
    spectrum_distance,
    step_counts,
    within_correlation,
)
from sensorveil.progress import track

MINE = "MINE"
NEIGHBOURS = "principal components + nearest neighbours"

_RAW, _UNCHANGED, _RETRAINED, _BACK = range(4)
_BATCH = 1024
_FEWEST = 50  # windows below which information is not estimated
_SHORTEST = 8  # samples of a window below which it has no spectrum worth a word
_QUIET = 1e-6  # energy in standard units below which a window counts as still


def kept_attribute(
    splits: Sequence[Split],
    hidden_train: Sequence[Sequence[Windows]],
    hidden_test: Sequence[Sequence[Windows]],
    attribute: str,
    settings: InferenceSettings | None = None,
    seeds: Sequence[int] = (0,),
    device: str = "cpu",
    raw_models: Sequence[Sequence[InferenceModel]] | None = None,
) -> KeptAttribute:
    """How well an application reads an attribute, with its model as it is and trained anew.

    `splits` are the folds, whose people are pooled. `hidden_train[i][n]` and `hidden_test[i][n]`
    are the obfuscated windows of the i-th seed in fold n, and `raw_models[i][n]`, where given, is
    a model trained on the raw windows there, which need not be trained again.
    """
    tables = []
    work = [(i, n) for i in range(len(seeds)) for n in range(len(splits))]
    for i, n in track(work, "application's models"):
        if raw_models is None:
            model = InferenceModel(settings, seeds[i], device).fit(splits[n].train, attribute)
        else:
            model = raw_models[i][n]
        again = InferenceModel(settings, seeds[i], device).fit(hidden_train[i][n], attribute)
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
    unchanged: InferenceModel,
    retrained: InferenceModel,
) -> np.ndarray:
    """Confusion tables (people, raw / unchanged / retrained / back, classes, classes)."""
    readings = [
        unchanged.predict(raw),
        unchanged.predict(hidden),
        retrained.predict(hidden),
        retrained.predict(raw),
    ]
    true, classes = raw.codes(attribute), len(raw.classes[attribute])
    return np.stack(
        [confusion_by_person(true, read, raw.subject, classes) for read in readings], axis=1
    )


def _kept(attribute: str, classes: tuple[str, ...], tables: np.ndarray) -> KeptAttribute:
    """With intervals; figures by class are those of the unchanged model on obfuscated windows."""

    def estimate(which: int, statistic: Statistic) -> Estimate:
        # The same people are drawn for every figure, so that figures can be compared.
        return bootstrap(tables[:, :, which], statistic, np.random.default_rng(0))

    whole = tables[:, :, _UNCHANGED].sum((0, 1))
    return KeptAttribute(
        attribute=attribute,
        classes=classes,
        majority=float(majority(whole)),
        raw=estimate(_RAW, accuracy),
        unchanged=estimate(_UNCHANGED, accuracy),
        retrained=estimate(_RETRAINED, accuracy),
        back=estimate(_BACK, accuracy),
        unchanged_f1=estimate(_UNCHANGED, macro_f1),
        retrained_f1=estimate(_RETRAINED, macro_f1),
        f1_by_class=_by_class(classes, f1_by_class(whole)),
        recall_by_class=_by_class(classes, recall_by_class(whole)),
    )


def walking_windows(windows: Windows, attributes: Sequence[str]) -> np.ndarray | None:
    """Which windows are of a class with 'walk' in its name; None if there is no such class.

    >>> windows = Windows.from_signal(np.zeros((3, 1, 8)), {"activity": [0, 1, 1]})
    >>> windows = replace(windows, classes={"activity": ("Sitting", "Walking")})
    >>> walking_windows(windows, ["activity"])
    array([False,  True,  True])
    """
    found = np.zeros(len(windows), bool)
    for name in attributes:
        walks = [i for i, label in enumerate(windows.classes[name]) if "walk" in label.lower()]
        found |= np.isin(windows.codes(name), walks)
    return found if found.any() else None


def signal_utility(raw: Windows, hidden: Windows, keep: Sequence[str] = ()) -> SignalUtility:
    """What is left of rhythm, energy, spectrum and steps; of images, nothing is said.

    Complex channels count by their magnitude, and all are in standard units of the raw windows.
    Steps are compared where some channel is an acceleration, in windows of people who walk, by
    the class of an attribute in `keep`.
    """
    if len(raw.shape) > 2 or raw.length < _SHORTEST or len(raw) == 0:
        return SignalUtility()
    raw, hidden = _as_magnitude(raw), _as_magnitude(hidden)
    scaling = Scaling.of(raw)
    before, after = (_Described.of(windows.scaled(scaling)) for windows in (raw, hidden))
    quiet = [np.log(np.maximum(one.energy, _QUIET)) for one in (before, after)]
    return SignalUtility(
        frequency_error=float(np.abs(before.frequency - after.frequency).mean()),
        frequency_correlation=within_correlation(before.frequency, after.frequency, raw.recording),
        energy_error=float(np.abs(quiet[0] - quiet[1]).mean()),
        energy_correlation=within_correlation(before.energy, after.energy, raw.recording),
        spectrum_distance=spectrum_distance(before.spectrum, after.spectrum),
        step_error=_step_error(raw, hidden, walking_windows(raw, keep)),
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
    recordings; but other stretches of the same people's recordings remain, so a value says what
    these windows tell to one who has seen these people. Attributes of
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


def _as_magnitude(windows: Windows) -> Windows:
    return replace(windows, store=np.abs(windows.store)) if windows.is_complex else windows


@dataclass(frozen=True)
class _Described:
    """Frequency and energy of each window, and the mean spectrum of all."""

    frequency: np.ndarray
    energy: np.ndarray
    spectrum: np.ndarray

    @classmethod
    def of(cls, windows: Windows) -> _Described:
        frequencies, energies, spectra = [], [], []
        for batch in windows.batches(_BATCH):
            power = power_spectrum(batch)
            frequencies.append(dominant_frequency(power, windows.rate, windows.length))
            energies.append(energy(batch))
            spectra.append(power.sum(0, dtype=np.float64))
        return cls(np.concatenate(frequencies), np.concatenate(energies), np.sum(spectra, axis=0))


def _step_error(raw: Windows, hidden: Windows, walking: np.ndarray | None) -> float | None:
    """Mean of |steps after - steps before| / steps before, where there were any."""
    channels = acceleration_channels(raw.channels)
    if walking is None or not channels:
        return None
    before, after = (
        np.concatenate(
            [
                step_counts(batch[:, channels], raw.rate)
                for batch in windows.select(walking).scaled(None).batches(_BATCH)
            ]
        )
        for windows in (raw, hidden)
    )
    some = before > 0
    return float((np.abs(after - before)[some] / before[some]).mean()) if some.any() else None
