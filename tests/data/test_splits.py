"""Splits: nothing on both sides, everything somewhere, and evenly spread."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sensorveil.data.catalog import load
from sensorveil.data.corpus import Corpus, apply_protocol
from sensorveil.data.io import validated
from sensorveil.data.protocol import Protocol
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.data.splits import Split, split_windows
from sensorveil.data.windows import Origin, Windows
from sensorveil.errors import Refusal

CONTENT: dict[str, Any] = {
    "dataset": "mine",
    "version": 1,
    "sample_rate": 50,
    "default_split": "paper",
    "channels": ["x"],
    "window": {"length": 8, "stride": 4},
    "attributes": {
        "act": {"classes": ["walk", "run", "sit"]},
        "gender": {"classes": ["f", "m"]},
    },
    "splits": {
        "paper": {"by": "label", "label": "trial", "test_values": [3]},
        "recording": {"by": "recording", "test": 0.25, "within": ["act", "gender"]},
        "together": {"by": "recording", "test": 0.3, "together": "session"},
        "subject": {"by": "subject", "folds": 4, "within": ["gender"]},
    },
}


def protocol(**splits: Any) -> Protocol:
    content = copy.deepcopy(CONTENT)
    content["splits"] |= splits
    return validated(Protocol, content, "mine.toml")


@cache
def corpus(people: int = 12, trials: int = 4, seed: int = 0) -> Corpus:
    """People of two genders, each doing three things a few times, on two devices at once."""
    rng = np.random.default_rng(seed)
    items = []
    for person in range(people):
        for act in ("walk", "run", "sit"):
            for trial in range(trials):
                for device in ("phone", "watch"):
                    samples = int(rng.integers(8, 40))
                    labels = {
                        "act": act,
                        "gender": "fm"[person % 3 == 0],
                        "trial": trial,
                        "session": f"{person}{act}{trial}",
                    }
                    name = f"{person}-{act}-{trial}-{device}"
                    items.append(Recording(name, str(person), np.zeros((1, samples)), labels))
    return apply_protocol(protocol(), Recordings(tuple(items), ("x",), 50.0))


def divided(name: str, fold: int = 0, rules: Protocol | None = None, **shape: int) -> Split:
    rules, content = rules or protocol(), corpus(**shape)
    return split_windows(
        content.windows(rules.window.length, rules.window.stride), content, rules, name, fold
    )


def places(windows: Windows) -> set[tuple[int, int]]:
    """Where each window lies: no two windows share that."""
    return set(zip(windows.recording.tolist(), windows.start.tolist(), strict=True))


def units(windows: Windows, by: str) -> set[Any]:
    if by == "subject":
        return set(windows.subject.tolist())
    if by == "session":
        return {windows.recordings[r].rsplit("-", 1)[0] for r in windows.recording}
    return set(windows.recording.tolist())


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("paper", "recording"),
        ("recording", "recording"),
        ("together", "session"),
        ("subject", "subject"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_unit_on_two_sides(name: str, by: str, seed: int) -> None:
    split = divided(name, seed=seed)
    for one, other in ((split.train, split.test), (split.fitting, split.validation)):
        assert units(one, by)
        assert units(other, by)
        assert not units(one, by) & units(other, by)
    everything = corpus(seed=seed).windows(8, 4)
    assert places(split.train) | places(split.test) == places(everything)
    assert places(split.fitting) | places(split.validation) == places(split.train)
    assert len(split.train) + len(split.test) == len(everything)
    assert len(split.fitting) + len(split.validation) == len(split.train)


def part(split: Split, side: str, **labels: int) -> int:
    """Recordings on one side whose windows have these classes."""
    windows: Windows = getattr(split, side)
    good = np.ones(len(windows), bool)
    for name, code in labels.items():
        good &= windows.codes(name) == code
    return len(np.unique(windows.recording[good]))


@settings(max_examples=12, deadline=None)
@given(share=st.floats(0.1, 0.6), seed=st.integers(0, 99))
def test_a_random_part_is_even_within_each_class(share: float, seed: int) -> None:
    rules = protocol(recording={**CONTENT["splits"]["recording"], "test": share, "seed": seed})
    split = divided("recording", rules=rules)
    for act in range(3):
        for gender in range(2):
            for labels in ({"act": act, "gender": gender}, {"act": act}):
                test, train = (part(split, side, **labels) for side in ("test", "train"))
                whole = (test + train) * share
                assert np.floor(whole - 1e-9) <= test <= np.ceil(whole + 1e-9)


def test_single_windows_are_drawn_for_papers() -> None:
    split = divided("paper", rules=protocol(paper={"by": "window", "test": 0.2, "within": ["act"]}))
    assert not places(split.train) & places(split.test)
    assert units(split.train, "recording") & units(split.test, "recording")
    everything = corpus().windows(8, 4)
    for act in range(3):
        whole = (everything.codes("act") == act).sum() * 0.2
        assert abs((split.test.codes("act") == act).sum() - whole) < 1


@settings(max_examples=12, deadline=None)
@given(validation=st.floats(0.1, 0.5), people=st.integers(6, 14), fold=st.integers(0, 3))
def test_validation_is_a_part_of_training(validation: float, people: int, fold: int) -> None:
    rules = protocol(
        subject={"by": "subject", "folds": 4, "validation": validation},
        recording={"by": "recording", "test": 0.25, "validation": validation},
    )
    by_person = divided("subject", fold, rules=rules, people=people)
    left = len(units(by_person.train, "subject"))
    groups = min(max(2, round(1 / validation)), left)
    held = len(units(by_person.validation, "subject"))
    assert np.floor(left / groups) <= held <= np.ceil(left / groups)
    by_recording = divided("recording", rules=rules)
    left = len(units(by_recording.train, "recording"))
    assume(left)
    assert abs(len(units(by_recording.validation, "recording")) - left * validation) < 1


def test_origins_say_where_windows_come_from() -> None:
    rules = protocol()
    split = divided("subject", 2)
    for name in ("train", "test", "fitting", "validation"):
        assert getattr(split, name).origin == Origin("mine", "subject", 2, rules.digest, name)
    assert divided(None).test.origin.split == "paper"  # type: ignore[arg-type, union-attr]


@pytest.mark.parametrize(
    ("name", "fold", "rules", "expected"),
    [
        ("nonsense", 0, {}, "'nonsense' is unknown; known: paper, recording, subject, together"),
        ("recording", 1, {}, "split 'recording' has no folds; only splits by subject do"),
        ("subject", 4, {}, "fold 4 of split 'subject' does not exist; it has 0 to 3"),
        ("x", 0, {"by": "label", "label": "room", "test_values": [1]}, "needs the label 'room'"),
        ("x", 0, {"by": "label", "label": "trial", "test_values": [9]}, "'x' of mine leaves no w"),
        ("x", 0, {"by": "recording", "within": ["age"]}, "attribute 'age' is unknown"),
        ("x", 0, {"by": "recording", "test": 0.001, "seed": 1}, "no window for test"),
        ("x", 0, {"by": "subject", "folds": 13}, "12 people are too few to be dealt to 13 folds"),
    ],
)
def test_refusals(name: str, fold: int, rules: dict[str, Any], expected: str) -> None:
    with pytest.raises(Refusal, match=expected):
        divided(name, fold, protocol(x=rules) if rules else protocol())


def test_what_a_run_was_trained_on() -> None:
    split = load("simulated", "subject", people=8, recordings=1, windows=3)
    assert split.training_windows(split.fitting.origin) is split.fitting
    assert split.training_windows(split.train.origin) is split.train
    assert split.training_windows(None) is split.train
