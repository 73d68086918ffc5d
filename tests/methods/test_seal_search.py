"""The search: the attacker who counts, what is kept, and which numbers of bins are chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.data.catalog import load
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.seal_code import Movement, donor_mask
from sensorveil.methods.seal_search import (
    Candidate,
    choose_candidate,
    counted_advantage,
    half_folds,
    people_folds,
    try_bins,
)


def test_counting_finds_nothing_in_codes_that_tell_nothing() -> None:
    """Within-sample counting would find much in 200 codes of 40 people."""
    person = np.repeat(np.arange(40), 10)
    codes = np.random.default_rng(0).integers(200, size=400)
    folds = people_folds(person)
    assert abs(counted_advantage(codes, person % 2, person, folds)) < 0.1
    # A code that names the person tells nothing about people who were not counted.
    assert counted_advantage(person, person % 2, person, folds) == pytest.approx(0, abs=0.01)


def test_counting_finds_identity_in_another_half_of_the_recording() -> None:
    person = np.repeat(np.arange(10), 10)
    halves = half_folds(person, np.tile(np.arange(10), 10))
    assert np.bincount(halves).tolist() == [50, 50]
    assert counted_advantage(person, person, person, halves) == pytest.approx(0.9)
    nothing = np.random.default_rng(0).integers(3, size=100)
    assert abs(counted_advantage(nothing, person, person, halves)) < 0.1


def test_counting_finds_a_known_leak_in_full() -> None:
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(400), 20)
    codes = np.where(rng.random(len(person)) < 0.3, person % 2, 2)
    # Three in ten windows show the class, half of the others are guessed right.
    found = counted_advantage(codes, person % 2, person, people_folds(person))
    assert found == pytest.approx(0.15, abs=0.02)


def test_counting_leaves_unknown_classes_out_and_counts_each_person_alike() -> None:
    person = np.repeat(np.arange(20), np.where(np.arange(20) % 2, 30, 10))
    folds = people_folds(person)
    assert counted_advantage(person % 2, person % 2, person, folds) == pytest.approx(0.5)
    labels = np.where(np.arange(len(person)) % 2, person % 2, UNKNOWN)
    assert counted_advantage(person % 2, labels, person, folds) == pytest.approx(0.5)


def candidate(rhythm: int, advantage: float, *kept: float) -> Candidate:
    return Candidate((rhythm, 1), {"gender": advantage, "weight": 0.0}, kept)


def test_the_best_allowed_candidate_is_chosen_and_the_smaller_of_equals() -> None:
    found = [candidate(1, 0.0, 0, 0), candidate(3, 0.02, 0.5, 0.1), candidate(5, 0.04, 0.9, 0.2)]
    assert [choose_candidate(found, one).bins[0] for one in (0.01, 0.03, 0.05)] == [1, 3, 5]
    # All features count alike.
    other = [candidate(1, 0.0, 0.0, 0.6), candidate(3, 0.0, 0.5, 0.0)]
    assert choose_candidate(other, 0.03).bins[0] == 1
    equal = [candidate(1, 0.0, 0.5, 0.5), candidate(3, 0.0, 0.4, 0.6)]
    assert choose_candidate(equal, 0.03).bins[0] == 1
    with pytest.raises(Refusal, match=r"3 x 1 bins, has 4\.0 for 'gender'"):
        choose_candidate([candidate(3, 0.04, 0.5), candidate(5, 0.05, 0.9)], 0.03)


def test_where_there_are_no_bins_the_class_alone_is_judged() -> None:
    """Images of two classes: to one attribute the class says nothing, to the other all."""
    person = np.repeat(np.arange(20), 10)
    activity, gender = np.arange(200) % 2, person % 2
    images = Windows.from_signal(np.zeros((200, 1, 8, 8)), {"subject": person, "gender": gender})
    for classes, leaks in ((activity, False), (gender, True)):
        move = Movement.of(images, classes, "recording", 100)
        (only,) = try_bins(
            images,
            move,
            move,
            donor_mask(images, move),
            2,
            ["gender"],
            (),
            np.random.default_rng(0),
        )
        assert (only.bins, only.kept) == ((), ())
        assert only.advantages["gender"] == pytest.approx(0.5 if leaks else 0.0, abs=0.1)
        if leaks:
            with pytest.raises(Refusal, match=r"no bins, has \d+\.\d for 'gender'"):
                choose_candidate([only], 0.2)
        else:
            assert choose_candidate([only], 0.2) is only


def test_identity_is_searched_for_in_other_clips() -> None:
    """Single clips of 10 people whose loudness is their own: absolute bins tell them apart."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(10), 30)
    loud = np.exp(0.5 * (person % 5) + 0.1 * rng.normal(size=300))
    signal = loud[:, None] * np.sin(np.arange(64) * (0.5 + 0.5 * (person[:, None] // 5)))
    clips = Windows.from_signal(signal[:, None], {"subject": person})
    advantages = {}
    for reference in ("person", "none"):
        move = Movement.of(clips, np.zeros(300, int), reference, 300)
        donors = donor_mask(clips, move)
        found = try_bins(clips, move, move, donors, 1, ["subject"], (3, 3, 1), rng)
        advantages[reference] = found[-1].advantages["subject"]
    assert advantages["none"] > 0.3
    assert abs(advantages["person"]) < 0.1


def test_more_bins_keep_more_and_absolute_ones_tell_more() -> None:
    windows = load("simulated", people=40, windows=10, gender=3.0, recordings=3).train
    classes, hide = windows.codes("activity"), ["gender", "subject"]
    moves = {name: Movement.of(windows, classes, name, 300) for name in ("recording", "none")}
    donors = donor_mask(windows, moves["none"])
    relative, absolute = (
        {
            one.bins: one
            for one in try_bins(
                windows, move, move, donors, 4, hide, (5, 3, 2), np.random.default_rng(0)
            )
        }
        for move in moves.values()
    )
    # Odd numbers of bins alone: a first window lies in the middle.
    assert list(relative) == [(1, 1, 1), (1, 3, 1), (3, 1, 1), (5, 1, 1), (3, 3, 1), (5, 3, 1)]
    rhythm, energy = ({bins: one.kept[which] for bins, one in relative.items()} for which in (0, 1))
    assert abs(rhythm[1, 1, 1]) < 0.1
    assert 0.3 < rhythm[3, 1, 1] < rhythm[5, 1, 1]
    assert abs(energy[5, 1, 1]) < 0.2 < energy[1, 3, 1]
    for which in hide:
        told = relative[5, 3, 1].advantages[which]
        assert absolute[5, 3, 1].advantages[which] > told + 0.05
    assert relative[5, 3, 1].advantages["gender"] < 0.03


def test_what_is_kept_of_sharpness_grows_with_its_bins() -> None:
    """Waves of one loudness and rhythm, each with its own noise."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(12), 40)
    noise = np.exp(rng.normal(size=(480, 1, 1))) * rng.normal(size=(480, 1, 64))
    wave = 10 * np.sin(np.arange(64) * 0.8)
    windows = Windows.from_signal(wave + 0.1 * noise, {"subject": person, "gender": person % 2})
    windows = replace(windows, recording=person, start=np.tile(np.arange(40), 12) * 64)
    move = Movement.of(windows, np.zeros(480, int), "recording", 100)
    found = try_bins(
        windows, move, move, np.ones(480, bool), 1, ["gender"], (1, 1, 5), np.random.default_rng(0)
    )
    kept = [one.kept[2] for one in found]
    assert abs(kept[0]) < 0.15
    assert 0.3 < kept[1] < kept[2]


def test_the_errors_of_the_classifier_tell_too() -> None:
    """Women who sit are taken for standing: the class alone tells, and so does every code."""
    windows = load("simulated", people=40, windows=10, recordings=2).train
    true, woman = windows.codes("activity"), windows.codes("gender") == 0
    predicted = np.where(woman & (true == 0), 1, true)
    known, unseen = (Movement.of(windows, one, "recording", 300) for one in (true, predicted))
    donors = donor_mask(windows, known)
    for move, leaks in ((unseen, True), (known, False)):
        rng = np.random.default_rng(0)
        found = try_bins(windows, known, move, donors, 4, ["gender"], (3, 1, 1), rng)
        assert all((one.advantages["gender"] > 0.05) == leaks for one in found)
