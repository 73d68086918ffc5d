"""Adding up windows: by Bayes' rule, with each fold's own prior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sensorveil.audit.attackers import CONVOLUTIONS
from sensorveil.audit.exchange import exchange_p_values
from sensorveil.audit.insiders import insider_halves
from sensorveil.audit.results import INSIDER, SEMI, SessionPoint
from sensorveil.audit.sessions import (
    Plan,
    Predictions,
    SessionPredictions,
    SessionStudy,
    look_plans,
    training_groups,
)
from sensorveil.audit.threat_models import stacked
from sensorveil.audit.truth import Truth, kept_prior, log_prior
from sensorveil.data.catalog import load
from sensorveil.data.windows import Windows

KEEP = ("activity",)


def session_points(
    truth: Truth, predictions: list[Predictions], learnt: tuple[SessionPredictions, ...] = ()
) -> tuple[SessionPoint, ...]:
    """All points, tested together as in an audit."""
    units = truth.units()
    study = SessionStudy.of(truth, units, predictions, learnt)
    tables = np.stack([one.table for one in study.candidates])
    return study.points(exchange_p_values(units, tables))


def leaky(priors: tuple[float, float], people: int = 40, windows: int = 60, shift: float = 0.4):
    """Exact posteriors of a faint leak, under another prior for each half of the people."""
    generator = np.random.default_rng(1)
    person = np.repeat(np.arange(people), windows)
    gender = person % 2
    level = shift * (gender - 0.5) + generator.normal(size=len(person))
    fold = person // 2 % 2
    ones = np.array(priors)[fold]
    odds = shift * level + np.log(ones / (1 - ones))
    scores = -np.logaddexp(0, np.stack([odds, -odds], axis=1))
    own = np.log(np.stack([1 - ones, ones], axis=1))
    truth = Truth(gender, person, person, np.arange(len(person)) % windows, 2, own, fold, 0 * fold)
    return truth, Predictions(SEMI, "exact", scores[None], (scores - own)[None])


def test_sessions_take_out_the_prior_of_their_own_fold():
    truth, predictions = leaky((0.8, 0.2))
    points = {p.windows: p for p in session_points(truth, [predictions]) if p.group == "recording"}
    assert points[60].accuracy.value > 0.8
    assert points[60].significant


def test_accuracy_grows_as_the_closed_form_says():
    from scipy.stats import norm

    truth, predictions = leaky((0.5, 0.5), people=300)
    for point in session_points(truth, [predictions]):
        if point.group == "recording" and point.windows:
            expected = norm.cdf(0.4 * np.sqrt(point.windows) / 2)
            error = np.sqrt(expected * (1 - expected) / point.sessions)
            assert abs(point.accuracy.value - expected) < 4 * error + 1e-9


def test_chunks_whose_class_changes_are_left_out():
    """A "person" of two recordings of 50 windows, one of each class: five chunks of 20, one mixed."""
    truth, predictions = leaky((0.5, 0.5), windows=50)
    mixed = replace(truth, person=truth.person // 2)
    sessions = {(p.group, p.windows): p.sessions for p in session_points(mixed, [predictions])}
    assert sessions["person", 20] == 20 * 4
    assert sessions["person", 5] == 20 * 20
    assert ("recording", None) in sessions
    assert ("person", 60) not in sessions
    assert ("person", None) not in sessions


def test_no_leak_is_found_where_there_is_none():
    truth, predictions = leaky((0.5, 0.5), shift=0.0)
    assert not any(point.significant for point in session_points(truth, [predictions]))


def test_a_leaning_to_one_class_does_not_hide_a_leak():
    """An offset in every window, however small, is multiplied by their number."""
    truth, predictions = leaky((0.5, 0.5))
    lean = np.array([0.2, 0.0])
    leaning = Predictions(SEMI, "leaning", predictions.scores + lean, predictions.beyond + lean)
    points = {p.windows: p for p in session_points(truth, [leaning]) if p.group == "recording"}
    assert points[60].significant
    assert points[60].accuracy.value > 0.8


def test_luck_with_a_few_people_is_not_found():
    """Four people, fifteen attackers that say a random thing of each person."""
    found = 0
    for draw in range(8):
        generator = np.random.default_rng(draw)
        person = np.repeat(np.arange(4), 20)
        truth = Truth(
            person % 2, person, person, np.arange(80) % 20, 2, np.full((80, 2), np.log(0.5)),
            np.zeros(80, int), np.zeros(80, int),
        )  # fmt: skip
        predictions = []
        for number in range(15):
            log_ratio = np.where(generator.integers(2, size=4)[person], 0.2, -0.2)
            beyond = np.stack([log_ratio, -log_ratio], axis=1)[None]
            predictions.append(Predictions(SEMI, str(number), beyond - np.log(2), beyond))
        found += any(point.significant for point in session_points(truth, predictions))
    assert found == 0


def test_groups_of_one_class_that_are_short():
    truth, predictions = leaky((0.5, 0.5), people=4, windows=60)
    mixed = np.where(truth.person == 0, np.arange(len(truth.person)) % 2, truth.codes)
    keep = (truth.person == 0) | (truth.start < 10)
    cut = Truth(**{k: v[keep] if isinstance(v, np.ndarray) else v for k, v in vars(truth).items()})
    cut = Truth(**{**vars(cut), "codes": mixed[keep]})
    shorter = Predictions(SEMI, "exact", predictions.scores[:, keep], predictions.beyond[:, keep])
    points = session_points(cut, [shorter])
    assert {point.windows for point in points} == {1, 5, None}


def test_an_insider_who_ignores_the_clips_finds_nobody():
    """The classes that leaked do not show who is left, however many clips are added up."""
    subject, activity, _ = np.indices((40, 8, 4)).reshape(3, -1)
    test = Windows.from_signal(
        np.zeros((len(subject), 1, 8)), {"subject": subject, "activity": activity}
    )
    same = replace(load("simulated", "recording", people=8, windows=4), train=test, test=test)
    classes = len(test.classes["subject"])
    beyond = np.zeros((1, len(test), classes))
    for known, attacked in insider_halves(same, KEEP):
        learnt, tried = test.select(known), test.select(attacked)
        predicted = log_prior(learnt.codes("subject"), classes)  # the same of every clip
        beyond[0, attacked] = predicted - kept_prior(learnt, tried, "subject", KEEP)
    truth = Truth(
        codes=test.subject,
        person=test.subject,
        recording=test.recording,
        start=test.start,
        classes=classes,
        log_prior=np.tile(log_prior(same.train.subject, classes), (len(test), 1)),
        fold=np.zeros(len(test), int),
        kept=test.joint_codes(KEEP),
        unseen_people=False,
    )
    points = session_points(truth, [Predictions(INSIDER, CONVOLUTIONS, beyond, beyond)])
    assert points
    assert not any(point.significant for point in points)


def learnt_by_sessions(truth: Truth, strength: float) -> SessionPredictions:
    """A session attacker who sees the spread of windows: exact for chunks of 20, else nothing."""
    nothing = np.zeros((1, len(truth.codes), 2))
    right = strength * (2 * truth.codes - 1)[None, :, None] * np.array([-0.5, 0.5])
    plans: list[Plan] = [("recording", 5), ("recording", 20), ("person", 20)]
    by_plan = {plan: nothing if plan[1] == 5 else right for plan in plans}
    return SessionPredictions(SEMI, "by spread", by_plan)


def test_what_session_attackers_learnt_stands_beside_sums_of_windows():
    truth, nothing = leaky((0.5, 0.5), shift=0.0)
    found = {
        (point.group, point.windows): point
        for point in session_points(truth, [nothing], (learnt_by_sessions(truth, 2.0),))
    }
    assert found["recording", 20].attacker == found["person", 20].attacker == "by spread"
    assert found["recording", 20].accuracy.value == 1
    assert found["recording", 20].significant
    assert not found["recording", 5].significant
    assert not found["recording", 60].significant


def test_several_obfuscations_of_one_window_add_up():
    """As many independent looks at one window as there are people: the closed form again."""
    from scipy.stats import norm

    looks, people, shift = 20, 200, 0.8
    truth, predictions = leaky((0.5, 0.5), people=people, windows=looks, shift=shift)
    same = replace(truth, same_window=truth.person)
    points = {point.windows: point for point in session_points(same, [predictions])}
    assert set(points) == {1, 5, 20}
    assert {point.group for point in points.values()} == {"same window"}
    for number, point in points.items():
        expected = norm.cdf(shift * np.sqrt(number) / 2)
        assert abs(point.accuracy.value - expected) < 4 * np.sqrt(0.25 / people)
        assert point.sessions == people
    assert points[20].significant
    few = dict(look_plans(np.arange(6) // 3, np.arange(6) % 3))
    assert list(few) == [("same window", 1)]  # three draws are too few for five looks


def test_draws_of_a_recording_are_groups_of_their_own():
    train = load("simulated", people=4, windows=3, recordings=1).train
    recording, person = training_groups(stacked([train, train]))
    for group, one in ((recording, train.recording), (person, train.subject)):
        first, second = group[: len(train)], group[len(train) :]
        assert not set(first) & set(second)
        np.testing.assert_array_equal(first == first[0], one == one[0])
        np.testing.assert_array_equal(second == second[0], one == one[0])
