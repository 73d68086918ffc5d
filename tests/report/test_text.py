"""The sentences: the verdict, from whom, intervals and controls."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sample

from sensorveil.audit.results import (
    FULL,
    HIDDEN,
    IGNORANT,
    INCONCLUSIVE,
    LAZY,
    NOT_HIDDEN,
    SEMI,
    Reidentification,
    Verdict,
)
from sensorveil.methods.seal_bound import Bound
from sensorveil.report import text
from sensorveil.report.findings import Finding, findings, overall
from sensorveil.statistics import Estimate


def finding(found):
    return Finding(found.attribute, sample.part(found), found.verdict, found, is_main=True)


def sentence(found):
    return text.attribute_sentence(finding(found))


LEAKS_IN_SESSIONS = sample.curve((0.0, 0.01, 0.05, 0.2, 0.3), found=True)
SENTENCES = {
    "not hidden": (
        sample.gender_found_out(),
        "Gender is not hidden: the strongest attacker, retrained on this very output, is right in"
        " 79.2% of windows; the majority baseline is right in 57.0%.",
    ),
    "leak that adds up": (
        sample.attribute(status=NOT_HIDDEN, worst=0.571, sessions=LEAKS_IN_SESSIONS),
        "Gender is not hidden: an attacker who adds up all windows of one recording is right about"
        " 88.3% of recordings; the majority baseline is right about 58.3%.",
    ),
    "leak of another kind": (
        sample.attribute(status=NOT_HIDDEN, worst=0.571, reason="linked by the moon."),
        "Gender is not hidden: linked by the moon.",
    ),
}


@pytest.mark.parametrize(("found", "said"), SENTENCES.values(), ids=SENTENCES)
def test_the_verdict_in_one_sentence(found, said):
    assert sentence(found) == said


def test_a_leak_that_only_one_attacks_auc_shows_is_said():
    found = sample.attribute(status=NOT_HIDDEN, worst=0.571, reason="another reason")
    other = replace(found.attacks[4], auc=Estimate(0.62, 0.6, 0.64, people=24))
    attacks = (*found.attacks[:4], other, *found.attacks[5:])
    said = sentence(replace(found, attacks=attacks))
    assert "ranked better than by chance (AUC 0.620, allowed is 0.55)" in said


def test_headline_of_several_puts_the_bad_news_first():
    found = [
        finding(sample.attribute("height")),
        finding(sample.attribute("weight")),
        finding(sample.gender_found_out()),
        finding(replace(sample.gender_inconclusive(), attribute="age")),
    ]
    assert text.headline(found) == (
        "Gender is not hidden; whether age is hidden is not known; height and weight are hidden."
    )
    assert [overall(some) for some in (found, found[:2], [found[0], found[3]], [])] == [
        NOT_HIDDEN,
        HIDDEN,
        INCONCLUSIVE,
        INCONCLUSIVE,
    ]
    assert "nothing to judge" in text.headline([])


def test_a_split_that_could_not_be_attacked_is_inconclusive_however_good_another_is():
    whole = sample.two_hidden()
    bare = replace(whole.main, identity=None, linkage=(), reidentification=())
    blind = replace(whole, splits=(bare, *whole.splits[1:]))
    assert blind.verdict().status == INCONCLUSIVE
    assert "nobody is both" in blind.verdict().reason
    assert blind.worst_advantage() != blind.worst_advantage()  # not a number: nothing passes


def test_new_people_whose_sessions_are_linked_decide_about_identity():
    whole = sample.two_hidden()
    linked = Verdict(NOT_HIDDEN, "a session is matched in 60% of cases")
    leaky = replace(whole, splits=(replace(whole.main, identity=linked), *whole.splits[1:]))
    identity = findings(leaky)[1]
    assert (identity.is_main, identity.status) == (True, NOT_HIDDEN)
    assert text.attribute_sentence(identity).endswith("is not hidden: " + linked.reason + ".")
    assert leaky.verdict() == linked
    assert text.elsewhere(identity, leaky)[0].startswith("On the split paper")


def test_what_re_identification_finds_is_not_hidden():
    whole = sample.audit()
    again = Reidentification("gender", "ObscureNet", 20, 0.70, 0.01, 0.57)
    leaky = replace(whole, splits=(replace(whole.main, reidentification=(again,)),))
    assert "protocol of ObscureNet is right in 70.0%" in findings(leaky)[0].verdict.reason
    assert leaky.worst_advantage() == pytest.approx(0.13)
    weak = replace(again, mean=0.58)
    safe = replace(whole, splits=(replace(whole.main, reidentification=(weak,)),))
    assert safe.verdict().status == HIDDEN


def test_from_whom_tells_the_threat_models_apart():
    models = (IGNORANT, LAZY, SEMI, FULL)
    said = dict(zip(models, text.from_whom(sample.gender_found_out()), strict=False))
    assert [said[model][0] for model in models] == [HIDDEN, HIDDEN, NOT_HIDDEN, NOT_HIDDEN]
    assert {status for status, _ in text.from_whom(sample.gender_inconclusive())} == {INCONCLUSIVE}


def test_a_threat_model_of_ones_own_is_named():
    found = sample.attribute()
    own = replace(found.attacks[-1], threat_model="neighbour")
    *_, (status, said) = text.from_whom(replace(found, attacks=(*found.attacks, own)))
    assert (status, said) == (HIDDEN, "hidden from an attacker of the threat model neighbour")


def test_few_people_stand_beside_the_verdict():
    found = sample.attribute()
    few = replace(found.worst, advantage=Estimate(0.006, 0.001, 0.011, people=6))
    note = text.interval_note(replace(found, worst=few))
    assert "past the 2 points" not in note
    assert "over 6 people" in note
    assert "so few people" in note


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (0.062, "6.2 points higher on split paper than on subject"),
        (-0.0312, "3.1 points lower"),
        (0.0001, "subject and paper agree"),
        (float("nan"), "could not be measured"),
    ],
)
def test_gap_between_the_splits(gap, said):
    assert said in text.gap_sentence(replace(sample.audit(), gaps={"gender": gap}), "gender")


def test_both_aucs_are_said_where_both_are_known():
    found = sample.attribute()
    assert "over all windows" not in text.worst_note(found)
    overall_auc = Estimate(0.64, 0.5, 0.7, people=24)
    known = tuple(replace(attack, overall_auc=overall_auc) for attack in found.attacks)
    said = text.worst_note(replace(found, attacks=known))
    assert "over all windows, with what the kept class itself tells, it is 0.640" in said


def test_the_bound_says_what_it_assumes_and_when_it_says_nothing():
    found = sample.attribute()
    assert text.bound_note(found) is None
    bound = Bound("gender", 500, 84, 0.57, 0.58, 0.6, 0.07, 0.986)
    assert text.bound_note(replace(found, bound=bound)).count("assumes") == 2
    nothing = text.bound_note(replace(found, bound=replace(bound, people=6, accuracy=1.0)))
    assert "6 people are too few" in nothing


def test_applications_in_one_sentence_with_the_one_that_loses_most() -> None:
    kept = sample.kept()
    assert text.kept_sentence(kept) == (
        "Applications trained on raw data predict activity right in 97.7% of windows (mean of 2"
        " designs; the worst, boosted trees, 96.7% instead of 97.2%); on raw data they are right in"
        " 98.1%."
    )
    assert "mean of" not in text.kept_sentence(replace(kept, applications=()))
