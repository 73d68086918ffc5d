"""Adding up windows: by Bayes' rule, with each fold's own prior."""

from __future__ import annotations

import numpy as np

from sensorveil.audit.results import SEMI
from sensorveil.audit.sessions import Predictions, Truth, session_points


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


def test_groups_whose_class_changes_are_left_out():
    truth, predictions = leaky((0.5, 0.5))
    mixed = Truth(**{**vars(truth), "person": truth.person // 2})
    assert {point.group for point in session_points(mixed, [predictions])} == {"recording"}


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
