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
from sensorveil.measures.estimate import Estimate
from sensorveil.methods.seal_bound import Bound
from sensorveil.report import numbers, words
from sensorveil.report.findings import Finding, findings, overall, real_attacks


def finding(found):
    return Finding(found.attribute, sample.part(found), found.verdict, found, is_main=True)


def test_hidden_says_from_whom_and_against_what():
    watch = sample.attribute("watch_arm", worst=0.589, majority=0.590)
    assert words.attribute_sentence(finding(watch)) == (
        "Watch arm is hidden: the strongest attacker, retrained on this very output, is right in"
        " 58.9% of windows; guessing the more common class is right in 59.0%."
    )


def test_not_hidden_gives_the_figure():
    sentence = words.attribute_sentence(finding(sample.gender_found_out()))
    assert sentence.startswith("Gender is not hidden: the strongest attacker")
    assert "79.2% of windows" in sentence
    assert "57.0%" in sentence


def test_a_leak_that_only_adds_up_is_told_as_such():
    curve = sample.curve((0.0, 0.01, 0.05, 0.2, 0.3), found=True)
    found = sample.attribute(status=NOT_HIDDEN, worst=0.571, sessions=curve)
    assert words.attribute_sentence(finding(found)) == (
        "Gender is not hidden: an attacker who adds up all windows of one recording is right about"
        " 88.3% of recordings; guessing is right about 58.3%."
    )


def test_a_leak_that_only_the_auc_shows_is_told_as_such():
    found = sample.attribute(status=NOT_HIDDEN, worst=0.571, auc=0.61)
    sentence = words.attribute_sentence(finding(found))
    assert "better than by chance (AUC 0.610, allowed is 0.55)" in sentence


def test_the_highest_auc_need_not_be_the_worst_attackers():
    found = sample.attribute(status=NOT_HIDDEN, worst=0.571, reason="another reason")
    other = replace(found.attacks[4], auc=Estimate(0.62, 0.6, 0.64, people=24))
    attacks = (*found.attacks[:4], other, *found.attacks[5:])
    assert "AUC 0.620" in words.attribute_sentence(finding(replace(found, attacks=attacks)))


def test_a_leak_of_another_kind_is_told_by_its_reason():
    found = sample.attribute(status=NOT_HIDDEN, worst=0.571, reason="linked by the moon.")
    assert words.attribute_sentence(finding(found)) == "Gender is not hidden: linked by the moon."


def test_void_claims_nothing():
    found = sample.gender_void()
    sentence = words.attribute_sentence(finding(found))
    assert sentence.startswith("Whether gender is hidden is not known: the attackers did not find")
    assert {status for status, _ in words.from_whom(found)} == {INCONCLUSIVE}
    assert "do not know" in words.STATUS_WORDS[INCONCLUSIVE]


def test_many_classes_have_a_most_common_one():
    found = sample.attribute("age", classes=("a", "b", "c"))
    assert "the most common class" in words.attribute_sentence(finding(found))


def test_headline_of_several_puts_the_bad_news_first():
    found = [
        finding(sample.attribute("height")),
        finding(sample.attribute("weight")),
        finding(sample.gender_found_out()),
        finding(replace(sample.gender_void(), attribute="age")),
    ]
    assert words.headline(found) == (
        "Gender is not hidden; whether age is hidden is not known; height and weight are hidden."
    )
    assert overall(found) == NOT_HIDDEN
    assert overall(found[:2]) == HIDDEN
    assert overall([found[0], found[3]]) == INCONCLUSIVE
    assert overall([]) == INCONCLUSIVE


def test_headline_without_anything_hidden():
    assert "nothing to judge" in words.headline([])


def test_identity_comes_from_the_split_that_could_attack_it():
    gender, identity = findings(sample.two_hidden())
    assert gender.is_main
    assert not identity.is_main
    assert identity.part.split == "paper"
    assert identity.elsewhere == "hidden, since sessions are matched by chance"


def test_a_split_that_could_not_be_attacked_is_void_however_good_another_is():
    whole = sample.two_hidden()
    unlinked = replace(whole, splits=(replace(whole.main, identity=None), *whole.splits[1:]))
    assert unlinked.verdict().status == INCONCLUSIVE
    assert "nobody is both" in unlinked.verdict().reason
    bare = replace(unlinked.main, linkage=(), reidentification=())
    blind = replace(unlinked, splits=(bare, *unlinked.splits[1:]))
    assert blind.worst_advantage() != blind.worst_advantage()  # not a number: nothing passes


def test_new_people_whose_sessions_are_linked_decide_about_identity():
    whole = sample.two_hidden()
    linked = Verdict(NOT_HIDDEN, "a session is matched in 60% of cases")
    leaky = replace(whole, splits=(replace(whole.main, identity=linked), *whole.splits[1:]))
    identity = findings(leaky)[1]
    assert (identity.is_main, identity.status) == (True, NOT_HIDDEN)
    assert words.attribute_sentence(identity).endswith("is not hidden: " + linked.reason + ".")
    assert leaky.verdict() == linked
    said = words.other_splits(leaky, identity)
    assert said[0].startswith("On the split paper")
    unlinked = Verdict(HIDDEN, "by chance")
    safe = replace(whole, splits=(replace(whole.main, identity=unlinked), *whole.splits[1:]))
    identity = findings(safe)[1]
    assert identity.found is not None  # the split that has attackers to show, if it is as good
    assert any("too: by chance" in line for line in words.other_splits(safe, identity))


def test_what_re_identification_finds_is_not_hidden():
    whole = sample.audit()
    again = Reidentification("gender", "ObscureNet", 20, 0.70, 0.01, 0.57)
    leaky = replace(whole, splits=(replace(whole.main, reidentification=(again,)),))
    assert leaky.verdict().status == NOT_HIDDEN
    assert (
        "re-identification by the protocol of ObscureNet is right in 70.0%"
        in leaky.verdict().reason
    )
    assert leaky.worst_advantage() == pytest.approx(0.13)
    weak = replace(again, mean=0.58)
    safe = replace(whole, splits=(replace(whole.main, reidentification=(weak,)),))
    assert safe.verdict().status == HIDDEN


def test_what_no_split_attacked_is_void():
    audit = sample.audit(hide=("gender", "weight"), left_out={"weight": "one class only"})
    weight = findings(audit)[1]
    assert weight.status == INCONCLUSIVE
    assert words.attribute_sentence(weight).endswith("is not known: one class only.")
    assert overall(findings(audit)) == INCONCLUSIVE


def test_from_whom_tells_the_levels_apart():
    levels = (IGNORANT, LAZY, SEMI, FULL)
    said = dict(zip(levels, words.from_whom(sample.gender_found_out()), strict=True))
    assert [said[level][0] for level in (IGNORANT, LAZY)] == [HIDDEN, HIDDEN]
    assert [said[level][0] for level in (SEMI, FULL)] == [NOT_HIDDEN, NOT_HIDDEN]


def test_a_wide_interval_stands_beside_the_verdict():
    found = sample.attribute()  # 0.6 points over, with 2 points on either side
    note = words.interval_note(found)
    assert "−1.4 to +2.6" in note
    assert "past the 2 points" in note
    narrow = Estimate(0.006, 0.001, 0.011, people=24)
    found = replace(found, worst=replace(found.worst, advantage=narrow))
    assert "past the 2 points" not in words.interval_note(found)


def test_few_people_are_said():
    found = sample.attribute()
    few = replace(found.worst, advantage=Estimate(0.0, -0.01, 0.01, people=6))
    assert "6 people" in words.interval_note(replace(found, worst=few))
    assert "so few people" in words.interval_note(replace(found, worst=few))


def test_control_names_the_planted_size():
    note = words.control_note(sample.attribute())
    assert "planted leak of 10.0 points" in note
    assert "+9.3 points" in note


@pytest.mark.parametrize(
    ("gap", "said"),
    [(0.062, "6.2 points higher"), (-0.0312, "3.1 points lower"), (0.0001, "agree")],
)
def test_gap(gap, said):
    assert said in words.gap_sentence("gender", gap)


def test_gap_that_is_not_known():
    assert "could not be measured" in words.gap_sentence("gender", float("nan"))


def test_numbers_that_are_not_known_are_dashes():
    unknown = Estimate(float("nan"), float("nan"), float("nan"), people=0)
    for text in (numbers.with_interval, numbers.points_with_interval, numbers.auc):
        assert text(unknown) == "–"


def test_the_rule_has_its_three_figures():
    whole = " ".join(words.CRITERION)
    for figure in ("2 points", "0.55", "10 points"):
        assert figure in whole


def test_both_curves_are_told_where_both_are_known():
    found = sample.attribute("gender", worst=0.589, majority=0.590)
    assert "over all windows" not in words.worst_note(found), "older audits have one AUC only"
    known = tuple(
        replace(attack, overall_auc=Estimate(0.6 + 0.01 * n, 0.5, 0.7, people=24))
        for n, attack in enumerate(found.attacks)
    )
    told = words.worst_note(replace(found, attacks=known))
    assert "which decides; over all windows" in told
    assert (
        f"{max(a.overall_auc.value for a in real_attacks(replace(found, attacks=known))):.3f}"
        in told
    )


def test_the_bound_says_what_it_assumes_and_when_it_says_nothing():
    found = sample.attribute()
    assert words.bound_note(found) is None
    bound = Bound("gender", 500, 84, 0.57, 0.58, 0.6, 0.07, 0.986)
    note = words.bound_note(replace(found, bound=bound))
    assert "one of 84 codes and noise" in note
    assert "more than 60.0% of single windows, or 0.069 of 0.986 bits" in note
    assert "counted on 500 people" in note
    # Ten windows: 57% and, of the other 43%, 1 - 0.93^10.
    assert "Of 10 windows together, nobody reads more than 79.2%" in note
    assert note.count("assumes") == 2
    nothing = words.bound_note(replace(found, bound=replace(bound, people=6, accuracy=1.0)))
    assert "6 people are too few" in nothing
