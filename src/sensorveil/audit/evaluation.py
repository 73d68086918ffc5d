"""The papers' two measures: what classifiers trained on raw data predict from obfuscated data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sensorveil.audit.results import SignalUtility
from sensorveil.audit.signals import signal_utility
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator, Strength
from sensorveil.methods.policy import Policy
from sensorveil.progress import track
from sensorveil.statistics import (
    Estimate,
    accuracy,
    bootstrap,
    confusion_by_person,
    f1_by_class,
    macro_f1,
    majority,
    privacy_loss,
    recall_by_class,
)

FORMAT = 1


@dataclass(frozen=True)
class Score:
    """What inference models predict of one attribute, on raw and on obfuscated windows.

    `majority` is the accuracy of always predicting the most frequent class, `chance` is one over
    the number of classes. `f1_by_class` and `recall_by_class` are of the obfuscated windows.
    """

    attribute: str
    role: str
    classes: tuple[str, ...]
    windows: int
    chance: float
    majority: float
    raw_accuracy: Estimate
    accuracy: Estimate
    raw_f1: Estimate
    f1: Estimate
    raw_privacy_loss: Estimate
    privacy_loss: Estimate
    f1_by_class: Mapping[str, float]
    recall_by_class: Mapping[str, float]


@dataclass(frozen=True)
class Evaluation:
    """Scores of one method under one policy; several folds of people are pooled.

    `signal` is what is left of the signal itself: for each fold, of the first seed.
    """

    method: str
    policy: Policy
    scores: tuple[Score, ...]
    left_out: Mapping[str, str]
    seeds: tuple[int, ...]
    folds: tuple[int, ...]
    strength: Mapping[str, float]
    signal: tuple[SignalUtility, ...] = ()

    def score(self, attribute: str) -> Score:
        """The score of one attribute."""
        for score in self.scores:
            if score.attribute == attribute:
                return score
        reason = self.left_out.get(attribute, "the dataset does not have it")
        raise Refusal(f"attribute '{attribute}' was not scored: {reason}")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"format": FORMAT, "kind": "evaluation", **asdict(self)}


def evaluate(
    obfuscators: Obfuscator | Sequence[Obfuscator],
    splits: Split | Sequence[Split],
    *,
    seeds: Sequence[int] = (0,),
    attributes: Sequence[str] = (),
    settings: ClassifierSettings | None = None,
    strength: Strength | None = None,
    device: str = "cpu",
) -> Evaluation:
    """Trains inference models on raw training windows and scores the obfuscated test windows.

    One obfuscator and its split, or one per fold of people: then each person is scored by the
    fold that never saw them, and all are pooled. For every seed the models are trained and the
    windows are obfuscated anew. All attributes are scored unless some are named.
    """
    if not seeds:
        raise Refusal("no seed was given; at least one is needed")
    pairs = list(zip(_listed(obfuscators), _listed(splits), strict=True))
    first, split = pairs[0]
    check_folds([obfuscator for obfuscator, _ in pairs])
    for obfuscator, part in pairs:
        check_unseen(obfuscator, part)
    scored, left_out = scorable(split, attributes)
    tables: dict[str, list[np.ndarray]] = {name: [] for name in scored}
    work = [(seed, attribute) for seed in seeds for attribute in scored]
    hidden = {
        (seed, fold): obfuscator.obfuscate(part.test, strength, seed=seed)
        for seed in seeds
        for fold, (obfuscator, part) in enumerate(pairs)
    }
    for seed, attribute in track(work, "inference models"):
        parts = [
            _confusion(part, hidden[seed, fold], attribute, settings, seed, device)
            for fold, (_, part) in enumerate(pairs)
        ]
        tables[attribute].append(np.concatenate(parts))
    scores = [
        _score(name, first.policy_, split.test.classes[name], np.stack(per_seed))
        for name, per_seed in tables.items()
    ]
    order = {"keep": 0, "hide": 1, "unlisted": 2}
    return Evaluation(
        method=first.name,
        policy=first.policy_,
        scores=tuple(sorted(scores, key=lambda score: order[score.role])),
        left_out=left_out,
        seeds=tuple(seeds),
        folds=tuple(part.test.origin.fold if part.test.origin else 0 for _, part in pairs),
        strength={name: float(np.mean(value)) for name, value in (strength or {}).items()},
        signal=tuple(
            signal_utility(part.test, hidden[seeds[0], fold], first.policy_.keep)
            for fold, (_, part) in enumerate(pairs)
        ),
    )


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def check_folds(obfuscators: list[Obfuscator]) -> None:
    """Refuses to pool runs that are not folds of one method, settings and policy."""
    alike = {
        (obfuscator.name, obfuscator.preset, obfuscator.settings, obfuscator.policy_)
        for obfuscator in obfuscators
    }
    if len(alike) > 1:
        raise Refusal("runs of different methods, settings or policies cannot be pooled")
    places = {
        replace(obfuscator.origin_, subset="") if obfuscator.origin_ else None
        for obfuscator in obfuscators
    }
    if len(obfuscators) > 1 and len(places) < len(obfuscators):
        raise Refusal("two of the runs were trained on the same fold; give one run per fold")


def check_unseen(obfuscator: Obfuscator, split: Split) -> None:
    """Refuses test windows that the run may have been trained on."""
    trained, test = obfuscator.origin_, split.test.origin
    if trained is None or test is None or trained.dataset != test.dataset:
        return
    if replace(trained, subset="") != replace(test, subset=""):
        raise Refusal(
            f"a run trained on split {trained.split}, fold {trained.fold} (protocol"
            f" {trained.protocol}) cannot be scored on split {test.split}, fold {test.fold}"
            f" (protocol {test.protocol}): it may have seen the test windows"
        )


def scorable(split: Split, wanted: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """The attributes that can be scored (all by default), and why the others cannot."""
    scored, left_out = [], {}
    for name in wanted or split.train.attributes:
        train, test = (np.unique(_known(part, name)) for part in (split.train, split.test))
        if len(train) < 2:
            left_out[name] = "it has one class only in the training windows"
        elif not np.isin(test, train).any():
            left_out[name] = "no class of the test windows occurs in training (people are disjoint)"
        else:
            scored.append(name)
    return scored, left_out


def _known(windows: Windows, name: str) -> np.ndarray:
    codes = windows.codes(name)
    return codes[codes != UNKNOWN]


def _confusion(
    split: Split,
    hidden: Windows,
    attribute: str,
    settings: ClassifierSettings | None,
    seed: int,
    device: str,
) -> np.ndarray:
    """Confusion tables (people, raw or obfuscated, classes, classes) of one model."""
    model = Classifier(settings, seed, device).fit(split.train, attribute)
    true, person = split.test.codes(attribute), split.test.subject
    classes = len(split.test.classes[attribute])
    return np.stack(
        [
            confusion_by_person(true, model.predict(windows), person, classes)
            for windows in (split.test, hidden)
        ],
        axis=1,
    )


def _score(name: str, policy: Policy, classes: tuple[str, ...], tables: np.ndarray) -> Score:
    """Scores with intervals from tables (seeds, people, raw or obfuscated, true, predicted)."""

    def estimate(which: int, statistic: Any) -> Estimate:
        return bootstrap(tables[:, :, which], statistic)

    whole = tables[:, :, 1].sum((0, 1))
    return Score(
        attribute=name,
        role=policy.role(name),
        classes=classes,
        windows=int(whole.sum() / len(tables)),
        chance=1 / len(classes),
        majority=float(majority(whole)),
        raw_accuracy=estimate(0, accuracy),
        accuracy=estimate(1, accuracy),
        raw_f1=estimate(0, macro_f1),
        f1=estimate(1, macro_f1),
        raw_privacy_loss=estimate(0, privacy_loss),
        privacy_loss=estimate(1, privacy_loss),
        f1_by_class=_by_class(classes, f1_by_class(whole)),
        recall_by_class=_by_class(classes, recall_by_class(whole)),
    )


def _by_class(classes: tuple[str, ...], values: np.ndarray) -> dict[str, float]:
    """Values of the classes that occur."""
    return {
        label: float(value)
        for label, value in zip(classes, values, strict=True)
        if np.isfinite(value)
    }
