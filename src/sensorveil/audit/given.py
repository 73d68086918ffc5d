"""The audit of output that something else made: original and obfuscated windows, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.audit.audit import AuditSettings, Material, audit_split
from sensorveil.audit.results import Audit
from sensorveil.audit.store import Store, windows_digest
from sensorveil.audit.sweep import GIVEN
from sensorveil.audit.threat_models import Fold, Output
from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.policy import Policy

Given = Windows | np.ndarray

NOT_ASKED = {
    "lazy attackers": "there is no method of which another copy could be trained",
    "fully informed attackers": "there is no method whose condition could be seen",
    "several looks at the same window": "there is no method that could obfuscate a window again",
    "fresh draws of the output": "attackers learn from the one output that is there",
    "donors": "it is not known whose windows the method was trained on",
}
"""What cannot be asked of output alone, and why."""

_FOLDS = 4


def audit_windows(
    original: Given,
    obfuscated: Given,
    keep: str | Sequence[str],
    hide: str | Sequence[str],
    *,
    labels: Mapping[str, Any] | None = None,
    train_original: Given | None = None,
    train_obfuscated: Given | None = None,
    train_labels: Mapping[str, Any] | None = None,
    quick: bool = True,
    settings: AuditSettings | None = None,
    device: str = "cpu",
    folder: Path | None = None,
) -> Audit:
    """Audit obfuscated windows beside the original ones, whatever obfuscated them.

    Attackers learn from the training windows. Where none are given, the windows are divided:
    attackers learn from half of each person's recordings and attack the other half, or, where
    people have one recording each, from some people and attack the others; then the other way round.

    Parameters
    ----------
    original, obfuscated : Windows or array of shape (n, channels, length)
        Window i of one is window i of the other.
    keep, hide
        Attributes to keep and to hide.
    labels
        For arrays: the class of each window by attribute. `subject` is the person, and `recording`
        the recording (default: one for each person and kept class); windows are in order.
    train_original, train_obfuscated, train_labels
        Windows of the same kind that attackers learn from.
    quick
        One seed and small attackers, for two cores.
    settings
        How much work it is, in place of `quick`.
    device
        Where attackers work.
    folder
        Where intermediate results are kept, so that an interrupted audit goes on.

    Examples
    --------
    >>> from sensorveil.audit.attackers import CONVOLUTIONS, Budget
    >>> rng = np.random.default_rng(0)
    >>> person, activity = np.repeat(np.arange(8), 50), np.arange(400) % 2
    >>> raw = rng.normal(size=(400, 1, 32)) + activity[:, None, None] + (person % 2)[:, None, None]
    >>> labels = {"activity": activity, "gender": person % 2, "subject": person}
    >>> budget = Budget(kernels=20, attackers=(CONVOLUTIONS,), session_attackers=())
    >>> small = AuditSettings(budget, (0,), True, False, 0, 0, (), workers=1)
    >>> result = audit_windows(raw, raw, "activity", "gender", labels=labels, settings=small)
    >>> result.verdict().status
    'not hidden'
    """
    policy = Policy.of(keep, hide)
    raw = _windows(original, labels, policy)
    hidden = _like(raw, _windows(obfuscated, labels, policy))
    policy.check(raw)
    settings = settings or (AuditSettings.for_two_cores() if quick else AuditSettings())
    if (train_original is None) != (train_obfuscated is None):
        raise Refusal("give training windows both original and obfuscated, or neither")
    if train_original is not None and train_obfuscated is not None:
        train = _windows(train_original, train_labels, policy)
        if train.shape != raw.shape or set(train.attributes) != set(raw.attributes):
            raise Refusal("training windows differ from the others in shape or attributes")
        train, raw = _with_common_classes(train, raw)
        hidden = _like(raw, hidden)
        parts = [
            (train, _like(train, _windows(train_obfuscated, train_labels, policy)), raw, hidden)
        ]
    else:
        parts = [
            (raw.select(~test), hidden.select(~test), raw.select(test), hidden.select(test))
            for test in _tests(raw)
        ]
    folds = [
        Fold(None, Split(train, test, train, train), given_policy=policy)
        for train, _, test, _ in parts
    ]
    outputs = {
        (number, seed): Output(np.arange(len(learnt)), learnt, (attacked,))
        for number, (_, learnt, _, attacked) in enumerate(parts)
        for seed in settings.seeds
    }
    digests = [windows_digest(part) for four in parts for part in four] if folder else []
    split = audit_split(
        Material(folds, outputs, NOT_ASKED),
        settings,
        device=device,
        store=Store(folder, [settings, policy, digests]),
    )
    return Audit(
        method=GIVEN,
        summary="output that something else made",
        keep=policy.keep,
        hide=policy.hide,
        dataset=raw.origin.dataset if raw.origin else "windows of a program",
        protocol=raw.origin.protocol if raw.origin else "",
        strength={},
        seeds=settings.seeds,
        quick=settings.quick,
        splits=(split,),
        gaps={},
    )


def lined_up(original: Windows, obfuscated: Windows) -> Windows:
    """The obfuscated windows in the order of the original ones, by recording and start.

    Examples
    --------
    >>> one = Windows.from_signal(np.zeros((3, 1, 4)))
    >>> lined_up(one, one.select([2, 0, 1])).recording.tolist()
    [0, 1, 2]
    """
    places: dict[tuple[str, int], int] = {}
    for number, (recording, start) in enumerate(
        zip(obfuscated.recording, obfuscated.start, strict=True)
    ):
        places[obfuscated.recordings[recording], int(start)] = number
    if len(places) < len(obfuscated):
        raise Refusal("the obfuscated table has two windows of one recording and time")
    order = []
    for recording, start in zip(original.recording, original.start, strict=True):
        name = original.recordings[recording]
        if (name, int(start)) not in places:
            seconds = start / original.sample_rate
            raise Refusal(
                f"the original has a window of recording '{name}' at {seconds:g} s, the obfuscated"
                " table has none; both must have the same recordings, times and windows"
            )
        order.append(places[name, int(start)])
    if len(order) < len(obfuscated):
        raise Refusal(
            f"the obfuscated table has {len(obfuscated)} windows, the original {len(order)};"
            " both must have the same recordings, times and windows"
        )
    return obfuscated.select(np.array(order))


def _windows(given: Given, labels: Mapping[str, Any] | None, policy: Policy) -> Windows:
    """Windows, or an array with labels as windows."""
    if isinstance(given, Windows):
        return given
    if labels is None or "subject" not in labels:
        raise Refusal("arrays need labels: the kept and hidden attributes, and 'subject'")
    signal = np.asarray(given)
    if not np.isfinite(signal).all():
        raise Refusal("the windows hold NaN or infinite values; repair or leave them out")
    codes, classes = {}, {}
    for name, values in labels.items():
        if len(values) != len(signal):
            raise Refusal(f"'{name}' has {len(values)} labels for {len(signal)} windows")
        found, number = np.unique(np.asarray(values), return_inverse=True)
        codes[name], classes[name] = number, tuple(str(value) for value in found)
    recording = codes.pop("recording", None)
    names = classes.pop("recording", ())
    made = replace(Windows.from_signal(signal, codes), classes=classes)
    if recording is None:
        joint = made.joint_codes(["subject", *policy.keep])
        found, recording = np.unique(joint, return_inverse=True)
        names = tuple(str(one) for one in found)
    return replace(made, recording=recording, recordings=names, start=np.arange(len(signal)))


def _like(raw: Windows, hidden: Windows) -> Windows:
    """The obfuscated windows with the labels and places of the original ones."""
    if (len(hidden), hidden.shape) != (len(raw), raw.shape):
        raise Refusal(
            f"{len(raw)} original windows of shape {raw.shape} and {len(hidden)} obfuscated ones of"
            f" shape {hidden.shape} do not line up"
        )
    return raw.replaced(hidden.recorded.signal)


def _with_common_classes(train: Windows, raw: Windows) -> tuple[Windows, Windows]:
    """Both with the classes of either: training windows may be of other people."""
    classes, labels = dict(raw.classes), {}
    for name, known in train.classes.items():
        own = classes[name]
        classes[name] = (*own, *(one for one in known if one not in own))
        codes = [classes[name].index(one) for one in known]
        labels[name] = np.array([*codes, UNKNOWN])[train.labels[name]]  # UNKNOWN is -1: the last
    return replace(train, labels=labels, classes=classes), replace(raw, classes=classes)


def _tests(windows: Windows) -> list[np.ndarray]:
    """Which windows are attacked in each fold; attackers learn from the others."""
    rng = np.random.default_rng(0)
    people = np.unique(windows.subject)
    pairs = np.unique(np.stack([windows.subject, windows.recording]), axis=1)
    if len(pairs[0]) >= 2 * len(people):
        first = np.zeros(len(windows), bool)
        for person in people:
            own = rng.permutation(pairs[1][pairs[0] == person])
            first |= np.isin(windows.recording, own[: len(own) // 2])
        return [first, ~first]
    if len(people) < 2:
        raise Refusal("there is one person and one recording: nothing to learn from and attack")
    fold = rng.permutation(len(people)) % min(_FOLDS, len(people))
    of_window = fold[np.searchsorted(people, windows.subject)]
    return [of_window == number for number in np.unique(fold)]
