"""Output that something else made: a leak in it is found, and what does not line up is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sensorveil.audit.attackers import CONVOLUTIONS, Budget
from sensorveil.audit.audit import AuditSettings
from sensorveil.audit.given import NOT_ASKED, audit_windows, lined_up
from sensorveil.audit.results import FULL, INSIDER, LAZY, NOT_HIDDEN, SEMI
from sensorveil.audit.sweep import GIVEN
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal

BUDGET = Budget(kernels=20, attackers=(CONVOLUTIONS,), session_attackers=(), looks=0)
POLICY: dict[str, Any] = {"keep": "activity", "hide": "gender"}


def made(people: int = 16, windows: int = 20) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The levels of two channels are the activity and the gender."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(people), windows)
    activity, gender = np.arange(len(person)) % 2, person % 2
    signal = 0.5 * rng.normal(size=(len(person), 2, 16))
    signal += np.stack([activity, gender], axis=1)[..., None]
    return signal, {"activity": activity, "gender": gender, "subject": person}


def as_windows(signal: np.ndarray, labels: dict[str, np.ndarray]) -> Windows:
    """The same, each person with one recording of each activity."""
    recording = 2 * labels["subject"] + labels["activity"]
    return replace(
        Windows.from_signal(signal, labels),
        recording=recording,
        start=np.arange(len(signal)) * 16,
        recordings=tuple(f"recording {one}" for one in range(recording.max() + 1)),
    )


def test_a_leak_in_given_output_is_found(small_audit: Callable[..., AuditSettings]) -> None:
    """The activity is as it was; the gender is turned round and faint."""
    signal, labels = made()
    hidden = signal.copy()
    hidden[:, 1] = 3 - 0.3 * signal[:, 1]
    found = audit_windows(signal, hidden, **POLICY, labels=labels, settings=small_audit(BUDGET))
    assert (found.method, found.keep, found.hide) == (GIVEN, ("activity",), ("gender",))
    gender = found.main.attribute("gender")
    assert gender.verdict.status == NOT_HIDDEN
    assert gender.worst.threat_model == SEMI
    assert gender.worst.accuracy.value > 0.9
    assert gender.windows == len(signal)  # every window is attacked once
    assert found.main.not_asked == NOT_ASKED
    assert not {LAZY, FULL} & {one.threat_model for one in gender.attacks}
    kept = found.main.kept[0]
    assert min(kept.raw.value, kept.retrained.value) > 0.9


def test_noise_alone_leaks_nothing_and_windows_give_what_arrays_give(
    small_audit: Callable[..., AuditSettings],
) -> None:
    signal, labels = made()
    noise = np.random.default_rng(1).normal(size=signal.shape)
    settings = small_audit(BUDGET)
    arrays = audit_windows(signal, noise, **POLICY, labels=labels, settings=settings)
    gender = arrays.main.attribute("gender")
    assert gender.verdict.status != NOT_HIDDEN, gender.verdict
    assert gender.worst.p_value > 0.005
    raw = as_windows(signal, labels)
    windows = audit_windows(raw, raw.replaced(noise), **POLICY, settings=settings)
    assert windows.main.attribute("gender") == gender


def test_training_windows_that_are_given_are_what_attackers_learn_from(
    small_audit: Callable[..., AuditSettings],
) -> None:
    """Gender is turned round in the training windows alone, so attackers are always wrong."""
    signal, labels = made(people=12)
    other = signal.copy()
    other[:, 1] = 1 - other[:, 1]
    names = np.array(["female", "male"])[labels["gender"]]
    found = audit_windows(
        signal,
        signal,
        **POLICY,
        labels={**labels, "gender": names},
        train_original=other,
        train_obfuscated=other,
        train_labels={**labels, "gender": names, "subject": labels["subject"] + 100},
        settings=small_audit(BUDGET),
    ).main
    assert found.unseen_people
    assert (found.train_windows, found.test_people) == (len(other), 12)
    by_model = {one.threat_model: one for one in found.attribute("gender").attacks}
    assert by_model[SEMI].accuracy.value < 0.1
    assert INSIDER not in by_model  # half of so few windows is too little to learn from


def test_tables_are_brought_into_line() -> None:
    original = as_windows(*made(people=4))
    order = np.random.default_rng(2).permutation(len(original))
    again = lined_up(original, original.select(order))
    np.testing.assert_array_equal(again.signal, original.signal)
    with pytest.raises(Refusal, match="window of recording 'recording 0' at 0 s, the obfuscated"):
        lined_up(original, original.select(slice(1, None)))
    with pytest.raises(Refusal, match="the obfuscated table has 80 windows, the original 79"):
        lined_up(original.select(slice(0, 79)), original)


SIGNAL, LABELS = made(people=4, windows=4)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"obfuscated": SIGNAL[:-1]}, "do not line up|labels for 15 windows"),
        ({"obfuscated": SIGNAL[:, :1]}, "do not line up"),
        ({"obfuscated": np.where(SIGNAL > 0, SIGNAL, np.nan)}, "NaN or infinite"),
        ({"labels": None}, "arrays need labels"),
        ({"labels": {"gender": LABELS["gender"]}}, "arrays need labels"),
        ({"labels": {**LABELS, "gender": [0, 1]}}, "'gender' has 2 labels for 16 windows"),
        ({"train_original": SIGNAL}, "both original and obfuscated, or neither"),
        (
            {
                "train_original": SIGNAL[:, :1],
                "train_obfuscated": SIGNAL[:, :1],
                "train_labels": LABELS,
            },
            "differ from the others in shape or attributes",
        ),
        ({"hide": "age"}, "age"),
        ({"hide": "activity"}, "kept and hidden at once"),
        ({"labels": {**LABELS, "gender": np.zeros(16, int)}}, "gender"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_line(given: dict[str, Any], line: str) -> None:
    whole = {"original": SIGNAL, "obfuscated": SIGNAL, "labels": LABELS, **POLICY, **given}
    with pytest.raises(Refusal, match=line) as refused:
        audit_windows(**whole)
    assert "\n" not in str(refused.value)


def test_one_person_with_one_recording_is_refused() -> None:
    windows = Windows.from_signal(
        SIGNAL, {"activity": LABELS["activity"], "gender": LABELS["activity"] * 1}
    )
    one = replace(
        windows,
        recording=np.zeros(16, int),
        start=np.arange(16) * 16,
        recordings=("one",),
    )
    with pytest.raises(Refusal, match="one person and one recording"):
        audit_windows(one, one, **POLICY)
