"""Linkage on people about whom everything is known: found where identity is, chance where not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from sensorveil.audit.criterion import judge_linkage
from sensorveil.audit.linkage import (
    OBFUSCATED_SESSION,
    RAW_SESSION,
    Round,
    linkage,
)
from sensorveil.audit.linkers import LinkageBudget, Linker, Sessions, Side, draw_sessions
from sensorveil.audit.results import HIDDEN, INCONCLUSIVE, NOT_HIDDEN, Linkage
from sensorveil.data.catalog import load
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal

SMALL = LinkageBudget(train_windows=800, kernels=100, components=40)


@cache
def people(count: int = 24, windows: int = 4, **options: Any) -> Split:
    """A quarter of the people is the test; each has two recordings of each of four activities."""
    return load("simulated", "subject", people=count, windows=windows, **options)


def linked(split: Split, test: Windows, train: Windows, **rest: Any) -> dict[str, Linkage]:
    seed = rest.pop("seed", 0)
    rounds = [[Round(split, test, train)]]
    found = linkage(rounds, (seed,), keep=("activity",), budget=SMALL, **rest)
    return {result.gallery: result for result in found}


def test_strong_identity_is_linked_where_nothing_is_hidden() -> None:
    split = people(identity=3.0)
    found = linked(split, split.test, split.train)
    assert set(found) == {RAW_SESSION, OBFUSCATED_SESSION}
    for result in found.values():
        assert (result.people, result.sessions) == (6, 48)
        assert result.rank1_chance == pytest.approx(1 / 6)  # one gallery session of each, by class
        assert result.raw_rank1.value > 0.8
        assert result.raw_equal_error_rate.value < 0.15
        assert result.rank1.value >= result.raw_rank1.value
        assert result.rank1.people == 6
        assert result.significant
    assert judge_linkage(list(found.values())).status == NOT_HIDDEN


def by_class(split: Split, windows: Windows, seed: int, personal: bool = False) -> Windows:
    """A random training window of the true activity: nothing of the person is left.

    With `personal`, most windows are of an activity that depends on the person.
    """
    rng = np.random.default_rng(seed)
    activity = windows.codes("activity")
    wrong = personal & (rng.random(len(windows)) < 0.7)
    asked = np.where(wrong, windows.subject % 4, activity)
    drawn = np.empty(len(windows), int)
    for code in range(4):
        donors = np.flatnonzero(split.train.codes("activity") == code)
        drawn[asked == code] = rng.choice(donors, int((asked == code).sum()))
    return windows.replaced(split.train.batch(drawn))


def test_label_only_resampling_leaves_chance() -> None:
    split = people(48, identity=3.0)
    test, train = by_class(split, split.test, 1), by_class(split, split.train, 2)
    for result in linked(split, test, train).values():
        assert result.raw_rank1.value > 0.8
        # 48 probes at 1 / 12, the better of two linkers: three standard deviations.
        assert result.rank1.value < 1 / 12 + 3 * 0.04
        assert result.rank1.low <= result.rank1_chance
        assert 0.4 < result.equal_error_rate.value < 0.6
        assert not result.significant


def test_errors_that_are_personal_give_the_person_away() -> None:
    """Resampling by a predicted class is not resampling by the class: errors are personal."""
    split = people(64, identity=3.0)
    test, train = (by_class(split, w, n, True) for n, w in enumerate((split.test, split.train)))
    assert linked(split, test, train)[OBFUSCATED_SESSION].significant


def test_folds_and_seeds_are_pooled_and_a_planted_leak_is_found() -> None:
    """Nothing is left of the person, but planted marks are found: hidden, not inconclusive."""
    rounds: list[list[Round]] = [[], []]
    for fold in (0, 1):
        split = load("simulated", "subject", fold, people=64, windows=4, identity=3.0)
        for seed in (0, 1):
            test = by_class(split, split.test, 2 * seed)
            train = by_class(split, split.train, 2 * seed + 1)
            rounds[seed].append(Round(split, test, train))
    found = linkage(rounds, (30, 31), keep=("activity",), budget=SMALL)
    raw, hidden = found
    assert (raw.people, raw.sessions) == (32, 256)
    assert raw.rank1_chance == pytest.approx(1 / 16)
    assert raw.control is None
    assert hidden.control is not None
    assert 0.05 < hidden.planted < 0.2
    assert hidden.control_significant
    assert hidden.planted / 2 < hidden.control.value - hidden.rank1_chance < 2 * hidden.planted
    assert judge_linkage(found).status == HIDDEN
    blind = replace(hidden, control_significant=False)
    assert judge_linkage([raw, blind]).status == INCONCLUSIVE
    unlinked = [replace(link, raw_rank1=link.rank1) for link in found]
    assert judge_linkage(unlinked).status == INCONCLUSIVE


def test_what_marks_add_to_rank_one() -> None:
    """Four people, one probe and one gallery session each: two pairs of marks, one half of one."""
    sessions = Sessions(
        of_window=np.arange(8),
        person=np.arange(8) // 2,
        kept=np.zeros(8, int),
        in_gallery=np.arange(8) % 2 == 0,
    )
    marked = np.array([True, True, True, True, True, False, False, False])
    assert sessions.gain(marked) == pytest.approx(2 / 4 * (1 - 1 / 4))


def test_without_identity_raw_sessions_are_linked_by_chance() -> None:
    split = people(48, identity=0.0, gender=0.0, weight=0.0)
    for result in linked(split, split.test, split.train).values():
        assert result.raw_rank1.value < 1 / 12 + 3 * 0.04
        assert 0.4 < result.raw_equal_error_rate.value < 0.6


def turned(windows: Windows) -> Windows:
    """Upside down and far off: useless to a linker of raw windows, and all is still there."""
    return windows.replaced(30 - 5 * windows.signal[:, ::-1])


def test_the_adaptive_linker_undoes_a_fixed_change() -> None:
    split = people(identity=3.0)
    found = linked(split, turned(split.test), turned(split.train))
    blind = linked(split, turned(split.test), split.train)  # it adapts to the wrong windows
    assert found[RAW_SESSION].rank1.value > 0.8
    assert blind[RAW_SESSION].rank1.value < 0.5
    assert found[OBFUSCATED_SESSION].rank1.value > 0.9
    every = (*found.values(), *blind.values())
    raw = {(result.raw_rank1, result.raw_equal_error_rate) for result in every}
    assert len(raw) == 1, "what is done to windows must not touch the figures of raw ones"


def test_the_raw_linker_counts_where_adapting_taught_nothing() -> None:
    split = people(identity=3.0)
    shuffled = np.random.default_rng(0).permutation(split.train.subject)
    train = replace(split.train, labels={**split.train.labels, "subject": shuffled})
    found = linked(split, split.test, train)[OBFUSCATED_SESSION]
    assert found.rank1 == found.raw_rank1


def test_the_mean_of_a_kept_class_does_not_count() -> None:
    """Sessions that are the training windows of one class each have nothing special left."""
    generator = np.random.default_rng(0)
    kept = np.arange(90) % 3
    features = generator.normal(size=(90, 8)) + 5 * kept[:, None]
    side = Side(features, np.arange(90) % 5, kept, features)
    linker = Linker([side], slice(None), components=6, seed=0)
    no_matter = np.zeros(3, int)
    by_class = Sessions(kept, no_matter, np.arange(3), no_matter.astype(bool))
    np.testing.assert_array_equal(linker.embedded(side, by_class), 0)
    unseen = Sessions(kept, no_matter, np.arange(3) + 7, no_matter.astype(bool))
    assert np.linalg.norm(linker.embedded(side, unseen)[0]) == pytest.approx(1)


def test_constant_output_is_exactly_chance() -> None:
    split = people(identity=3.0)
    test, train = (w.replaced(np.ones((len(w), *w.shape))) for w in (split.test, split.train))
    for result in linked(split, test, train).values():
        assert result.rank1.value == pytest.approx(result.rank1_chance)
        assert result.equal_error_rate.value == pytest.approx(0.5)


def test_two_people_are_enough_and_the_same_seed_gives_the_same_result() -> None:
    split = people(8, 2, identity=1.0)
    first, second, other = (linked(split, split.test, split.train, seed=s) for s in (3, 3, 4))
    assert (first[RAW_SESSION].people, first[RAW_SESSION].rank1_chance) == (2, 0.5)
    assert first == second
    assert first != other


def test_a_gallery_of_the_own_kept_class() -> None:
    split = people(identity=3.0)
    kept = split.test.codes("activity")
    _, sessions = draw_sessions(split.test, kept, SMALL, np.random.default_rng(0))
    compared = sessions.compared()
    probe, gallery = ~sessions.in_gallery, sessions.in_gallery
    alike = sessions.kept[probe][:, None] == sessions.kept[gallery]
    np.testing.assert_array_equal(compared, alike)
    assert (compared & sessions.own()).sum(1).tolist() == [1] * 24


def test_sessions_are_compared_with_all_where_the_class_has_no_other() -> None:
    sessions = Sessions(
        of_window=np.arange(6),
        person=np.array([0, 0, 1, 1, 0, 1]),
        kept=np.array([5, 5, 5, 6, 6, 6]),
        in_gallery=np.array([True, False, True, False, True, False]),
    )
    # Gallery: person 0 has 5 and 6, person 1 has 5. Probes: person 0 has 5, person 1 twice 6.
    assert sessions.compared().tolist() == [[True, True, False], [True] * 3, [True] * 3]
    assert sessions.chance() == pytest.approx((1 / 2 + 1 / 3 + 1 / 3) / 3)


def test_a_kept_attribute_that_changes_within_recordings_restricts_nothing() -> None:
    split = people(12, 2, identity=2.0)
    mixed = split.test.labels["activity"].copy()
    mixed[0] = (mixed[0] + 1) % 4
    test = replace(split.test, labels={**split.test.labels, "activity": mixed})
    found = linked(replace(split, test=test), test, split.train)
    assert found[RAW_SESSION].rank1_chance == pytest.approx(1 / 3)  # 4 of 12 sessions are one's own


def test_at_most_so_many_sessions_and_windows() -> None:
    split = people(identity=3.0)
    few = replace(SMALL, sessions_per_person=4, windows_per_session=3)
    kept = split.test.codes("activity")
    chosen, sessions = draw_sessions(split.test, kept, few, np.random.default_rng(0))
    assert np.bincount(sessions.of_window).tolist() == [3] * 24
    np.testing.assert_array_equal(split.test.subject[chosen], sessions.person[sessions.of_window])
    assert len(np.unique(split.test.recording[chosen])) == 24


def test_refusals() -> None:
    split = people(8, 2, identity=3.0)
    one = split.test.select(split.test.subject == split.test.subject[0])
    with pytest.raises(Refusal, match="two test people"):
        linked(replace(split, test=one), one, split.train)
    firsts = np.unique(split.test.subject, return_index=True)[1]
    single = split.test.select(np.isin(split.test.recording, split.test.recording[firsts]))
    with pytest.raises(Refusal, match="two recordings each"):
        linked(replace(split, test=single), single, split.train)
    with pytest.raises(Refusal, match="not in training"):
        linked(replace(split, train=split.test), split.test, split.test)
    alone = split.train.select(split.train.subject == split.train.subject[0])
    with pytest.raises(Refusal, match="two training people"):
        linked(split, split.test, alone)
