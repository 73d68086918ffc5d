"""Statistics against slow loops, closed forms and scikit-learn."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.metrics import roc_auc_score

from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal
from sensorveil.statistics import (
    accuracy,
    auc,
    auc_over_people,
    bootstrap,
    confusion_by_person,
    equal_error_rate_of_counts,
    f1_by_class,
    macro_f1,
    majority,
    paired_difference,
    privacy_loss,
    rank1_hits,
    rank_counts,
    recall_by_class,
    tpr_at_fpr,
)


def share(table: np.ndarray) -> np.ndarray:
    return table[..., 0] / table[..., 1]


def windows_of_a_person(table: np.ndarray) -> np.ndarray:
    """Unlike a share, it notices when tables are added where they should be averaged."""
    return table.sum((-2, -1))


def slow_bootstrap(tables: np.ndarray, statistic, generator, draws: int) -> list[float]:
    """People drawn one by one and added up one by one."""
    seeds, people = tables.shape[:2]
    person = generator.multinomial(people, np.full(people, 1 / people), size=draws)
    seed = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws)
    values = []
    for draw in range(draws):
        total = np.zeros(tables.shape[2:])
        for s in range(seeds):
            for p in range(people):
                total += tables[s, p] * person[draw, p] * seed[draw, s] / seeds
        values.append(float(statistic(total[None])[0]))
    return values


@settings(max_examples=20, deadline=None)
@given(
    seeds=st.integers(1, 3), people=st.integers(1, 6), classes=st.integers(2, 3), at=st.integers(0)
)
def test_draws_against_a_slow_loop(seeds: int, people: int, classes: int, at: int) -> None:
    tables = np.random.default_rng(at).integers(1, 20, (seeds, people, classes, classes))
    for statistic in (accuracy, macro_f1, windows_of_a_person):
        got = bootstrap(tables, statistic, np.random.default_rng(7), draws=40)
        values = slow_bootstrap(tables, statistic, np.random.default_rng(7), draws=40)
        low, high = np.quantile(values, [0.025, 0.975])
        assert got.low == pytest.approx(low)
        assert got.high == pytest.approx(high)
        whole = tables.sum(1).mean(0)
        assert got.value == pytest.approx(float(statistic(whole[None])[0]))
        assert (got.people, got.seeds) == (people, seeds)
        assert got.low - 1e-9 <= got.high


def test_the_spread_is_over_seeds() -> None:
    tables = np.array([[[8, 10], [6, 10]], [[9, 10], [9, 10]], [[5, 10], [5, 10]]])
    estimate = bootstrap(tables, share)
    assert estimate.value == pytest.approx(0.7)
    assert estimate.spread == pytest.approx(np.std([0.7, 0.9, 0.5], ddof=1))
    assert bootstrap(tables[:1], share).spread is None


@pytest.mark.parametrize(("people", "seeds"), [(24, 1), (40, 3)])
def test_the_interval_covers_the_truth(people: int, seeds: int) -> None:
    """For people who differ, and windows of one person that are alike."""
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        skill = generator.beta(8, 2, size=people)  # the truth is 0.8
        right = generator.binomial(200, skill, size=(seeds, people))
        tables = np.stack([right, np.full_like(right, 200)], axis=-1)
        estimate = bootstrap(tables, share, generator, draws=300)
        hits += estimate.low <= 0.8 <= estimate.high
    assert 0.90 <= hits / 200 <= 0.99


def test_a_person_without_answers_does_no_harm() -> None:
    tables = np.array([[[0, 0], [3, 4]]])
    with np.errstate(invalid="ignore"):
        estimate = bootstrap(tables, share)
    assert (estimate.value, estimate.low, estimate.high) == (0.75, 0.75, 0.75)


def test_nobody_is_refused() -> None:
    with pytest.raises(Refusal, match="no person"):
        bootstrap(np.zeros((1, 0, 2)), share)


pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@settings(max_examples=50, deadline=None)
@given(pairs)
def test_against_scikit_learn(answers: list[tuple[int, int]]) -> None:
    true, read = np.array(answers).T
    table = metrics.confusion_matrix(true, read, labels=range(4))
    tables = np.stack([table + 1, table])  # any leading axes
    occurs = np.unique(true)
    right = metrics.accuracy_score(true, read)
    assert accuracy(tables)[1] == pytest.approx(right)
    assert privacy_loss(tables)[1] == pytest.approx(abs(right - 1 / 4))
    expected = metrics.f1_score(true, read, labels=occurs, average="macro", zero_division=0)
    assert macro_f1(tables)[1] == pytest.approx(expected)
    each = metrics.f1_score(true, read, labels=range(4), average=None, zero_division=np.nan)
    np.testing.assert_allclose(f1_by_class(tables)[1], each)
    recall = metrics.recall_score(true, read, labels=range(4), average=None, zero_division=np.nan)
    np.testing.assert_allclose(recall_by_class(tables)[1], recall)
    assert majority(tables)[1] == pytest.approx(np.bincount(true).max() / len(true))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-1, 2), st.integers(0, 2), st.sampled_from([3, 7, 40])),
        min_size=1,
        max_size=30,
    )
)
def test_tables_of_people_by_counting(answers: list[tuple[int, int, int]]) -> None:
    true, read, person = np.array(answers).T
    people = sorted({who for what, _, who in answers if what != UNKNOWN})
    table = confusion_by_person(true, read, person, 3)
    assert table.shape == (len(people), 3, 3)
    for place, who in enumerate(people):
        for a in range(3):
            for b in range(3):
                assert table[place, a, b] == answers.count((a, b, who))


def test_auc_agrees_with_scikit_learn():
    generator = np.random.default_rng(0)
    for _ in range(20):
        scores = generator.integers(0, 8, 60) / 8  # many ties
        truth = generator.random(60) < 0.4
        weights = generator.integers(0, 4, (3, 60)).astype(float)
        expected = [roc_auc_score(truth, scores, sample_weight=w) for w in weights]
        assert auc(scores, truth, weights) == pytest.approx(expected)


def test_mean_over_classes_and_people():
    generator = np.random.default_rng(1)
    true = generator.integers(0, 3, 300)
    scores = generator.normal(size=(1, 300, 3))
    scores[0, np.arange(300), true] += 1
    found = auc_over_people(scores, true, np.arange(300) % 20)
    each = [roc_auc_score(true == c, scores[0][:, c]) for c in range(3)]
    assert found.value == pytest.approx(np.mean(each))
    assert found.low < found.value < found.high
    assert found.people == 20


def test_only_windows_of_one_stratum_are_compared():
    """Two folds whose attackers lean to different sides: together blurred, apart they see."""
    generator = np.random.default_rng(3)
    true = generator.integers(0, 2, 2000)
    fold = np.arange(2000) % 2
    evidence = true + generator.normal(size=2000)
    leaning = evidence + 3 * fold
    scores = np.stack([-leaning, leaning], axis=1)[None]
    person = np.arange(2000) % 50
    apart = auc_over_people(scores, true, person, fold)
    counts = [((true == 0) & (fold == f)).sum() * ((true == 1) & (fold == f)).sum() for f in (0, 1)]
    each = [roc_auc_score(true[fold == f], evidence[fold == f]) for f in (0, 1)]
    assert apart.value == pytest.approx(np.average(each, weights=counts))
    assert apart.low < apart.value < apart.high
    assert auc_over_people(scores, true, person).value < apart.value - 0.05


@pytest.mark.parametrize("distance", [0.0, 1.0, 2.0, 4.0])
def test_true_positives_of_two_gaussians(distance: float) -> None:
    """The mean is over both directions; 30 intervals of 95% cover the closed form."""
    true, person = np.repeat([0, 1], 5000), np.arange(10_000) % 50
    generator, normal = np.random.default_rng(0), NormalDist()
    wanted = normal.cdf(distance - normal.inv_cdf(0.99))
    found = []
    for _ in range(30):
        score = generator.normal(size=10_000) + distance * true
        found.append(tpr_at_fpr(np.stack([-score, score], axis=1)[None], true, person))
    assert np.mean([one.value for one in found]) == pytest.approx(wanted, abs=0.006)
    assert np.mean([one.low <= wanted <= one.high for one in found]) > 0.83


def slow_tpr(score: np.ndarray, positive: np.ndarray, fpr: float) -> float:
    """Every value as the threshold."""
    allowed = [t for t in np.unique(score) if (score[~positive] >= t).mean() <= fpr]
    return float((score[positive] >= min(allowed, default=np.inf)).mean())


@pytest.mark.parametrize("levels", [20, 400, 10_000])
def test_true_positives_against_every_threshold(levels: int) -> None:
    """With many ties and with none; at two seeds; windows without a class play no part."""
    generator = np.random.default_rng(levels)
    true = generator.integers(UNKNOWN, 3, 1500)
    scores = generator.integers(levels, size=(2, 1500, 3))
    scores[:, np.arange(1500), true] += levels // 3
    each = [
        slow_tpr(table[true >= 0, c], true[true >= 0] == c, 0.05)
        for table in scores
        for c in range(3)
    ]
    found = tpr_at_fpr(scores, true, np.arange(1500) % 30, fpr=0.05)
    assert found.value == pytest.approx(np.mean(each))
    assert found.low < found.value < found.high


def test_equal_scores_catch_nobody() -> None:
    true = np.arange(400) % 2
    assert tpr_at_fpr(np.zeros((1, 400, 2)), true, np.arange(400) % 20).high == 0


def test_each_stratum_has_its_threshold() -> None:
    generator = np.random.default_rng(5)
    true, fold = generator.integers(0, 2, 4000), np.arange(4000) // 2000
    score = 3 * true + generator.normal(size=4000)
    scores = np.stack([-score, score], axis=1)[None]
    leaning = scores + 5 * fold[None, :, None] * np.array([-1, 1])
    person = np.arange(4000) % 50
    apart = tpr_at_fpr(leaning, true, person, fold).value
    assert apart == pytest.approx(tpr_at_fpr(scores, true, person, fold).value)
    each = [
        slow_tpr(sign * score[fold == f], true[fold == f] == c, 0.01)
        for c, sign in ((0, -1), (1, 1))
        for f in (0, 1)
    ]
    assert apart == pytest.approx(np.mean(each), abs=0.01)  # the folds are nearly as large
    assert tpr_at_fpr(leaning, true, person).value < apart - 0.2


def test_paired_differences():
    generator = np.random.default_rng(2)
    base = {str(p): float(v) for p, v in enumerate(generator.random(30))}
    same = {p: v + float(generator.normal() * 0.05) for p, v in base.items()}
    better = {p: v + 0.1 + float(generator.normal() * 0.05) for p, v in base.items()}
    assert paired_difference(base, same).p_value > 0.01
    found = paired_difference(better, base)
    assert found.low < 0.1 < found.high
    assert found.p_value < 0.001


def equal_error_rate(genuine: np.ndarray, impostor: np.ndarray) -> float:
    """The exact rate: one bin for each value that occurs."""
    places = np.unique(np.concatenate([genuine, impostor]))
    counts = [(one[:, None] == places).sum(0) for one in (genuine, impostor)]
    return float(equal_error_rate_of_counts(np.array(counts)))


@pytest.mark.parametrize("apart", [0.0, 0.5, 1.0, 2.0, 4.0])
def test_two_gaussians(apart: float) -> None:
    """Scores of deviation 1 with means `apart`: the threshold lies in the middle."""
    quantiles = np.array([NormalDist().inv_cdf((i + 0.5) / 4000) for i in range(4000)])
    found = equal_error_rate(quantiles + apart, quantiles)
    assert found == pytest.approx(NormalDist().cdf(-apart / 2), abs=5e-4)


def slow_bounds(genuine: list[float], impostor: list[float]) -> tuple[float, float]:
    """Trying every threshold: the rate lies where the larger error is least, or just below."""
    errors = []
    for threshold in sorted({*genuine, *impostor, max(genuine + impostor) + 1}):
        missed = sum(s < threshold for s in genuine) / len(genuine)
        false = sum(s >= threshold for s in impostor) / len(impostor)
        errors.append((missed, false))
    return max(min(pair) for pair in errors), min(max(pair) for pair in errors)


scores = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=12)


@given(scores, scores)
@settings(max_examples=200, deadline=None)
def test_every_threshold_tried(genuine: list[float], impostor: list[float]) -> None:
    low, high = slow_bounds(genuine, impostor)
    found = equal_error_rate(np.array(genuine), np.array(impostor))
    assert low - 1e-9 <= found <= high + 1e-9


def test_ends() -> None:
    low, high = np.array([0.0, 0.1]), np.array([0.8, 0.9])
    assert equal_error_rate(high, low) == 0
    assert equal_error_rate(low, high) == 1
    assert equal_error_rate(np.ones(5), np.ones(3)) == 0.5
    with pytest.raises(Refusal, match="pairs of one person"):
        equal_error_rate(np.array([]), low)


def test_counts_of_people_add_up_to_the_rate_of_all() -> None:
    generator = np.random.default_rng(0)
    genuine = generator.random(3000) < 0.2
    values = generator.normal(size=3000) + genuine
    person = generator.integers(5, size=3000)
    exact = equal_error_rate(values[genuine], values[~genuine])
    counts = rank_counts(values, genuine, person)
    assert counts.sum() == 3000
    assert counts.shape[0] == 5
    assert float(equal_error_rate_of_counts(counts.sum(0))) == pytest.approx(exact, abs=3e-3)
    np.testing.assert_array_equal(counts, rank_counts(np.exp(3 * values), genuine, person))
    one = person == 1
    alone = equal_error_rate(values[genuine & one], values[~genuine & one])
    both = equal_error_rate_of_counts(counts[:2])  # any leading axes
    assert float(both[1]) == pytest.approx(alone, abs=1e-2)


def test_rank_one_against_loops() -> None:
    generator = np.random.default_rng(1)
    similarity = generator.random((30, 12))
    probe, gallery = generator.integers(4, size=30), generator.integers(4, size=12)
    hits = 0
    for row, person in zip(similarity.tolist(), probe, strict=True):
        hits += gallery[row.index(max(row))] == person
    assert rank1_hits(similarity, probe, gallery).mean() == pytest.approx(hits / 30)


def test_ties_and_sessions_that_may_not_be_compared() -> None:
    gallery = np.array([0, 0, 1])
    assert rank1_hits(np.zeros((1, 3)), np.array([0]), gallery).mean() == pytest.approx(2 / 3)
    barred = np.array([[-np.inf, -np.inf, 0.1], [0.2, -np.inf, 0.1]])
    assert rank1_hits(barred, np.array([0, 0]), gallery).tolist() == [0, 1]
    with pytest.raises(Refusal, match="do not fit"):
        rank1_hits(np.zeros((2, 2)), np.array([0, 1]), gallery)
