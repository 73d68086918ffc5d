"""The search: what it measures, and which code it takes."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.data.catalog import load
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.seal_code import Movement, offered
from sensorveil.methods.seal_search import Candidate, chosen, tried


def candidate(rhythm: int, tells: float, kept: float) -> Candidate:
    return Candidate(rhythm, 1, {"gender": tells, "weight": 0.0}, kept, kept)


def test_the_best_that_is_allowed():
    found = [candidate(1, 0.0, 0.0), candidate(3, 0.02, 0.5), candidate(5, 0.04, 0.9)]
    assert chosen(found, 0.03).rhythm == 3
    assert chosen(found, 0.05).rhythm == 5
    assert chosen(found, 0.01).rhythm == 1


def test_of_codes_that_keep_alike_the_smaller():
    assert chosen([candidate(1, 0.0, 0.5), candidate(3, 0.0, 0.5)], 0.03).rhythm == 1


def test_none_is_allowed():
    with pytest.raises(Refusal, match=r"3 x 1 levels, tells 4\.0 about 'gender'"):
        chosen([candidate(3, 0.04, 0.5), candidate(5, 0.05, 0.9)], 0.03)


def test_who_speaks_is_looked_for_in_other_clips():
    """Single clips of 10 people whose loudness is their own: absolute levels tell them apart."""
    generator = np.random.default_rng(0)
    person = np.repeat(np.arange(10), 30)
    time = np.arange(64)
    loud = np.exp(0.5 * (person % 5) + 0.1 * generator.normal(size=300))
    signal = loud[:, None] * np.sin(time * (0.5 + 0.5 * (person[:, None] // 5)))
    clips = Windows.from_signal(signal[:, None], {"subject": person})
    moves = {past: Movement.of(clips, np.zeros(300, int), past, 300) for past in ("person", "none")}
    found = {
        past: tried(clips, move, move, offered(clips, move), 1, ["subject"], (3, 3), generator)
        for past, move in moves.items()
    }
    tells = {past: codes[-1].advantages["subject"] for past, codes in found.items()}
    assert tells["none"] > 0.3
    assert abs(tells["person"]) < 0.1


def test_more_levels_keep_more_and_absolute_ones_tell_more():
    windows = load("simulated", people=40, windows=10, gender=3.0, recordings=3).train
    read = windows.codes("activity")
    moves = {past: Movement.of(windows, read, past, 300) for past in ("recording", "none")}
    hide, common = ["gender", "subject"], offered(windows, moves["none"])
    relative, absolute = (
        {
            (one.rhythm, one.intensity): one
            for one in tried(windows, move, move, common, 4, hide, (5, 3), np.random.default_rng(0))
        }
        for move in moves.values()
    )
    assert list(relative) == [(1, 1), (1, 3), (3, 1), (5, 1), (3, 3), (5, 3)]
    assert abs(relative[1, 1].rhythm_kept) < 0.1
    assert 0.3 < relative[3, 1].rhythm_kept < relative[5, 1].rhythm_kept
    assert abs(relative[5, 1].intensity_kept) < 0.2 < relative[1, 3].intensity_kept
    for which in ("gender", "subject"):
        assert absolute[5, 3].advantages[which] > relative[5, 3].advantages[which] + 0.05
    assert relative[5, 3].advantages["gender"] < 0.03


def test_what_people_are_taken_for_tells_too():
    """Women who sit are taken for standing: the class alone tells, and so does every code."""
    windows = load("simulated", people=40, windows=10, recordings=2).train
    true, woman = windows.codes("activity"), windows.codes("gender") == 0
    read = np.where(woman & (true == 0), 1, true)
    known, seen = (Movement.of(windows, one, "recording", 300) for one in (true, read))
    made, common = np.random.default_rng(0), offered(windows, known)
    told = tried(windows, known, seen, common, 4, ["gender"], (3, 1), made)
    assert all(one.advantages["gender"] > 0.05 for one in told)
    plain = tried(windows, known, known, common, 4, ["gender"], (3, 1), made)
    assert all(one.advantages["gender"] < 0.05 for one in plain)
