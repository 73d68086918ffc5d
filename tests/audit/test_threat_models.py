"""What attackers are given: which windows, whose output, and which parts leak."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sensorveil.audit.attackers import Budget
from sensorveil.audit.insiders import insider_halves
from sensorveil.audit.sweep import sweep
from sensorveil.audit.threat_models import (
    Fold,
    chosen_windows,
    condition_of,
    obfuscate_fold,
    obfuscate_some,
    thinned,
    thinned_positions,
    train_shadow_obfuscator,
)
from sensorveil.data.catalog import load
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.baselines import Noise, Resample
from sensorveil.methods.seal import Seal

KEEP = ("activity",)


@pytest.fixture(scope="module")
def split() -> Split:
    return load("simulated", people=12, windows=30, recordings=1)


@pytest.fixture(scope="module")
def sealed(split: Split) -> Seal:
    small = {"width": 4, "epochs": 1, "rhythm_bins": 3, "energy_bins": 3, "generator": "pool"}
    return Seal(**small).fit(split.train, "activity", "gender")


def given(obfuscator: Obfuscator, split: Split, count: int) -> np.ndarray:
    return obfuscate_fold(
        Fold(obfuscator, split, obfuscator), None, 5, Budget(windows=count, draws=1, looks=0)
    ).train.signal


def test_a_part_of_the_windows_is_obfuscated_among_all_of_them(split: Split, sealed: Seal) -> None:
    whole = sealed.obfuscate(split.train, seed=10).signal
    stretches = chosen_windows(split.train, 40, 5)
    np.testing.assert_array_equal(given(sealed, split, 40), whole[stretches])
    chosen = thinned_positions(len(split.train), 40, 5)
    part = obfuscate_some(sealed, split.train, chosen, None, 10)
    np.testing.assert_array_equal(part.signal, whole[chosen])
    # Codes of these windows alone, each with a past of gaps, are other ones.
    alone, among = sealed.encode(split.train.select(chosen)), sealed.encode(split.train)[chosen]
    assert (alone != among).any()
    condition = condition_of(sealed, split.train, chosen)
    assert condition is not None
    np.testing.assert_array_equal(condition.argmax(1), among)


def test_a_sweep_does_the_same(split: Split, sealed: Seal, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    whole = sealed.obfuscate

    def watched(windows: Windows, *given: Any, **named: Any) -> Windows:
        seen.append(len(windows))
        return whole(windows, *given, **named)

    monkeypatch.setattr(sealed, "obfuscate", watched)
    quick = replace(Budget.quick(), windows=40)
    sweep(sealed, split.train, split.test, {"epsilon": [2.0]}, quick)
    assert sorted(seen) == sorted([len(split.train), len(split.test)])


def test_others_are_given_the_part_alone(split: Split) -> None:
    obfuscator = Noise().fit(split.train, "activity", "gender")
    wanted = obfuscator.obfuscate(
        split.train.select(chosen_windows(split.train, 40, 5)), seed=10
    ).signal
    np.testing.assert_array_equal(given(obfuscator, split, 40), wanted)
    assert condition_of(obfuscator, split.train, np.arange(3)) is None


def test_a_second_obfuscator_is_not_trained_where_one_is_given() -> None:
    split = load("simulated", people=8, windows=4, recordings=1)
    obfuscator, given = (
        Resample(seed=seed, width=4, epochs=1).fit(split.train, "activity", "gender")
        for seed in (0, 7)
    )
    assert train_shadow_obfuscator(obfuscator, split, [obfuscator, given]) is given
    other_policy = Resample(seed=7, width=4, epochs=1).fit(split.train, "activity", "subject")
    trained = train_shadow_obfuscator(obfuscator, split, [obfuscator, other_policy])
    assert trained is not other_policy
    assert (trained.seed, trained.policy_) == (1, obfuscator.policy_)


def test_halves_of_the_test_never_share_a_person_or_a_sample():
    new = load("simulated", "subject", people=32, windows=24)
    halves = insider_halves(new, KEEP)
    assert len(halves) == 2
    for known, attacked in halves:
        assert not set(new.test.subject[known]) & set(new.test.subject[attacked])
    same = load("simulated", "recording", people=24, windows=60, recordings=4)
    halves = insider_halves(same, KEEP)
    covered = np.sort(np.concatenate([attacked for _, attacked in halves]))
    np.testing.assert_array_equal(covered, np.arange(len(same.test)))  # each is attacked once
    for known, attacked in halves:
        for recording in np.unique(same.test.recording):
            learnt, tried = (
                same.test.start[part[same.test.recording[part] == recording]]
                for part in (known, attacked)
            )
            apart = np.abs(learnt[:, None] - tried)
            assert apart.min(initial=same.test.length) >= same.test.length
    assert insider_halves(replace(same, test=thinned(same.test, 100, 0)), KEEP) == []


def in_clips(split: Split) -> Split:
    """The same where each test window is a recording of its own."""
    clips = len(split.test)
    test = replace(split.test, recording=np.arange(clips), start=np.zeros(clips, int))
    return replace(split, test=replace(test, recordings=tuple(f"clip {n}" for n in range(clips))))


def test_single_clips_are_dealt_to_two_halves():
    """A clip is a recording of its own: each half of them leaks once, to attack the other."""
    same = in_clips(load("simulated", "recording", people=20, windows=40))
    same = in_clips(replace(same, test=thinned(same.test, len(same.test) * 4 // 5, 0)))
    clips = len(same.test)
    (first, second), (third, fourth) = insider_halves(same, KEEP)
    np.testing.assert_array_equal(first, fourth)
    np.testing.assert_array_equal(second, third)
    np.testing.assert_array_equal(np.sort(np.concatenate([first, second])), np.arange(clips))
    cells = same.test.joint_codes(["subject", *KEEP])
    count = cells.max() + 1
    one, other = (np.bincount(cells[half], minlength=count) for half in (first, second))
    assert np.abs(one - other).max() <= 1
    assert (one > other).any()
    assert (one < other).any()


def test_training_windows_are_chosen_in_stretches_and_drawn_several_times() -> None:
    """Attackers of sequences need windows that follow each other."""
    whole = load("simulated", people=4, windows=200, recordings=1).train
    chosen = whole.select(chosen_windows(whole, 300, 0))
    assert len(chosen) == 300
    order = np.lexsort([chosen.start, chosen.recording])
    same = np.diff(chosen.recording[order]) == 0
    follows = np.diff(chosen.start[order]) == np.diff(whole.start[:2])
    assert (same & follows).mean() > 0.9


def test_every_draw_has_noise_and_recordings_of_its_own(split: Split) -> None:
    obfuscator = Noise(snr=0.0).fit(split.train, "activity", "gender")
    budget = Budget(windows=3 * len(split.train), draws=3, looks=5, look_windows=30)
    output = obfuscate_fold(Fold(obfuscator, split), None, 0, budget)
    draws = output.train.signal.reshape(3, len(split.train), -1)
    assert (draws[:-1] != draws[1:]).any(2).all()
    recordings = output.train.recording.reshape(3, -1)
    assert not set(recordings[0]) & set(recordings[1])
    np.testing.assert_array_equal(output.train.subject[: len(split.train)], split.train.subject)
    assert len(output.tests) == 3
    assert np.abs(output.tests[0].signal - output.tests[1].signal).mean() > 0
    assert output.looks is not None
    again = output.looks.test
    assert (len(again), len(np.unique(again.recording))) == (5 * 30, 30)
    window = split.test.signal[output.looks.positions]
    looked = again.signal.reshape(5, 30, *split.test.shape)
    # Five looks at one window: the mean is nearer to it than one look is.
    assert np.abs(looked.mean(0) - window).mean() < 0.6 * np.abs(looked[0] - window).mean()
