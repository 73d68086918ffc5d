"""The verdicts in words: is it hidden, and from whom. The criterion's own findings decide."""

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
from sensorveil.cli.audits import print_audit
from sensorveil.cli.screen import Screen
from sensorveil.report import text, verdicts
from sensorveil.report.findings import Finding, findings, overall
from sensorveil.report.verdicts import LOOKS, MATCHES, OTHERS, SESSIONS, WINDOWS, from_whom
from sensorveil.statistics import Estimate


def finding(found, **more):
    split = sample.part(found, **more)
    return Finding(found.attribute, split, found.verdict, found, is_main=True)


def answers(found):
    """By scope: the status and the sentences, with plain blanks."""
    return {
        one.scope: (one.status, one.said.replace("\N{NO-BREAK SPACE}", " "))
        for one in from_whom(finding(found))
    }


def leaky(worst=0.571, sessions=None, reason="a leak", **more):
    return sample.attribute(
        status=NOT_HIDDEN, worst=worst, sessions=sessions, reason=reason, **more
    )


def test_headline_of_several_puts_the_bad_news_first():
    found = [
        finding(sample.attribute("height")),
        finding(sample.attribute("weight")),
        finding(sample.gender_found_out()),
        finding(replace(sample.gender_inconclusive(), attribute="age")),
    ]
    assert verdicts.headline(found) == (
        "Gender is not hidden; whether age is hidden is not known; height and weight are hidden."
    )
    assert [overall(some) for some in (found, found[:2], [found[0], found[3]], [])] == [
        NOT_HIDDEN,
        HIDDEN,
        INCONCLUSIVE,
        INCONCLUSIVE,
    ]
    assert "nothing to judge" in verdicts.headline([])


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
    assert verdicts.attribute_sentences(identity).endswith("A session is matched in 60% of cases.")
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


def test_what_re_identification_finds_stands_beside_what_attackers_do_not_find():
    whole = sample.audit()
    again = Reidentification("gender", "ObscureNet", 20, 0.70, 0.01, 0.57)
    (found,) = findings(replace(whole, splits=(replace(whole.main, reidentification=(again,)),)))
    said = {one.scope: one.status for one in from_whom(found)}
    assert said == {WINDOWS: HIDDEN, SESSIONS: HIDDEN, LOOKS: HIDDEN, OTHERS: NOT_HIDDEN}
    assert "protocol of ObscureNet is right in 70.0%" in verdicts.attribute_sentences(found)


def test_hidden_names_the_worst_attacker_of_each_scope_and_claims_no_leak():
    assert answers(sample.attribute()) == {
        WINDOWS: (
            HIDDEN,
            "No leak found. The worst attacker, retrained on this very output (boosted trees,"
            " semi-informed), is right in 57.6% of windows, the majority baseline in 57.0%.",
        ),
        SESSIONS: (
            HIDDEN,
            "No leak found. The worst attacker adds up 5 windows of one recording (boosted trees,"
            " semi-informed). It is right in 59.3% of 96 cases, the majority baseline in 58.3%"
            " (p = 0.620).",
        ),
        LOOKS: (
            HIDDEN,
            "No leak found. The worst attacker adds up 5 obfuscations of one window (boosted trees,"
            " semi-informed). It is right in 59.3% of 1,000 cases, the majority baseline in 58.3%"
            " (p = 0.620).",
        ),
    }


def test_not_hidden_names_threat_model_attacker_windows_and_p_value_of_each_leak():
    said = answers(sample.gender_found_out())
    assert said[WINDOWS] == (
        NOT_HIDDEN,
        "An attacker retrained on this very output (boosted trees, semi-informed) is right in 79.2%"
        " of windows, the majority baseline in 57.0% (p < 0.001).",
    )
    assert said[SESSIONS] == (
        NOT_HIDDEN,
        "The worst attacker learns from all windows of one recording (set network, semi-informed)."
        " It is right in 99.3% of 96 cases, the majority baseline in 58.3% (p = 0.002).",
    )
    assert "learns from 20 obfuscations of one window" in said[LOOKS][1]


def test_inconclusive_claims_nothing_about_anybody():
    for status, said in answers(sample.gender_inconclusive()).values():
        assert status == INCONCLUSIVE
        assert said.startswith("Not known.")
    found = finding(sample.gender_inconclusive())
    assert verdicts.headline([found]) == "Whether gender is hidden is not known."
    assert "did not find even the leak of 10 points" in verdicts.why_inconclusive(found)


def test_scopes_that_were_not_attacked_are_not_mentioned():
    assert set(answers(sample.attribute(sessions=()))) == {WINDOWS}
    nothing = sample.curve((0.0,) * 5)
    assert set(answers(sample.attribute(sessions=nothing))) == {WINDOWS, SESSIONS}


def test_a_leak_in_several_windows_alone_is_none_in_single_ones():
    said = answers(leaky(sessions=sample.curve((0.0, 0.01, 0.05, 0.2, 0.3), found=True)))
    assert said[WINDOWS][0] == HIDDEN
    assert said[SESSIONS][0] == NOT_HIDDEN
    assert "learns from all windows of one recording" in said[SESSIONS][1]


def test_an_attacker_of_single_windows_adds_up_and_a_session_attacker_learns():
    points = sample.curve((0.0, 0.2, 0.0, 0.0, 0.0), found=True)
    assert "attacker adds up 5 windows" in answers(leaky(sessions=points))[SESSIONS][1]
    own = tuple(replace(one, attacker="my network") for one in points)
    assert "learns from 5 windows" in answers(leaky(sessions=own))[SESSIONS][1]


def test_sessions_are_not_called_safe_where_one_window_is_enough():
    found = replace(sample.gender_found_out(), sessions=sample.curve((0.0,) * 5))
    status, said = answers(found)[SESSIONS]
    assert status == INCONCLUSIVE
    assert said.startswith("No leak found beyond that of single windows.")


def test_large_advantages_by_luck_are_no_leak():
    """The criterion's finding decides, not the limit alone."""
    found = sample.attribute(worst=0.63)
    lucky = tuple(replace(one, found=False, p_value=0.3) for one in found.attacks)
    few = replace(sample.point("person", None, 0.4, found=False), sessions=4)
    found = replace(found, attacks=lucky, worst=replace(found.worst, found=False), sessions=(few,))
    assert {status for status, _ in answers(found).values()} == {HIDDEN}
    assert {status for status, _ in verdicts.by_threat_model(found)} == {HIDDEN}


def test_doubt_and_a_control_that_finds_nothing_claim_nothing_beside_a_leak():
    points = sample.curve((0.0, 0.2, 0.0, 0.0, 0.0), found=True)
    assert answers(leaky(sessions=points))[WINDOWS][0] == HIDDEN
    found = leaky(sessions=points)
    weak = replace(found, control=replace(found.control, p_value=0.2))
    assert answers(weak)[WINDOWS][0] == INCONCLUSIVE
    doubtful = (
        *found.attacks[:-1],
        replace(leaky(worst=0.63).attacks[-1], found=False, p_value=0.01),
    )
    assert answers(replace(found, attacks=doubtful))[WINDOWS][0] == INCONCLUSIVE


def test_a_leak_that_only_one_attacks_auc_shows_is_said():
    found = leaky(sessions=())
    other = replace(
        found.attacks[4], auc=Estimate(0.62, 0.6, 0.64, people=24), found=True, p_value=0.003
    )
    attacks = (*found.attacks[:4], other, *found.attacks[5:])
    status, said = answers(replace(found, attacks=attacks))[WINDOWS]
    assert status == NOT_HIDDEN
    assert "better than by chance: AUC 0.620, allowed is 0.55 (p = 0.003)" in said


def test_a_leak_of_another_kind_is_said_in_the_criterions_words():
    found = finding(leaky(sessions=(), reason="the code was counted."))
    assert from_whom(found)[-1].said == "The code was counted."
    assert verdicts.attribute_sentences(found).endswith("windows. The code was counted.")


def test_linked_sessions_are_an_answer_about_identity():
    whole = sample.two_hidden()
    link = replace(whole.main.linkage[0], significant=True)
    linked = Verdict(NOT_HIDDEN, "a session is matched")
    main = replace(whole.main, identity=linked, linkage=(link, *whole.main.linkage[1:]))
    identity = findings(replace(whole, splits=(main, *whole.splits[1:])))[1]
    said = [(one.scope, one.status) for one in from_whom(identity)]
    assert said == [(MATCHES, NOT_HIDDEN), (MATCHES, INCONCLUSIVE)]


def test_each_threat_model_has_a_status_and_ones_own_is_named():
    models = (IGNORANT, LAZY, SEMI, FULL)
    said = dict(zip(models, verdicts.by_threat_model(sample.gender_found_out()), strict=True))
    assert [said[model][0] for model in models] == [HIDDEN, HIDDEN, NOT_HIDDEN, NOT_HIDDEN]
    assert {one for one, _ in verdicts.by_threat_model(sample.gender_inconclusive())} == {
        INCONCLUSIVE
    }
    found = sample.attribute()
    own = replace(found.attacks[-1], threat_model="neighbour")
    *_, last = verdicts.by_threat_model(replace(found, attacks=(*found.attacks, own)))
    assert last == (HIDDEN, "hidden from an attacker of the threat model neighbour")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (HIDDEN, "Donors, from whom the method learnt, are hidden: no output is a"),
        (NOT_HIDDEN, "Donors, from whom the method learnt, are not hidden: 37 of 2000"),
        (INCONCLUSIVE, "It is not known whether donors, from whom the method learnt, are"),
    ],
)
def test_the_verdict_about_donors_in_one_sentence(status, said):
    assert verdicts.donor_sentence(sample.donors(status)).startswith(said)


def test_the_terminal_says_the_same_sentences(capsys):
    whole = sample.with_donors(sample.audit(sample.gender_found_out()), INCONCLUSIVE)
    print_audit(Screen(), whole)
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("Gender is not hidden. Gender, single windows: An attacker retrained")
    assert "Gender, several windows: The worst attacker learns from all windows of one" in said
    assert "Gender, several looks: The worst attacker learns from 20 obfuscations" in said
    assert "It is not known whether donors, from whom the method learnt, are hidden" in said
    assert "several windows" in said
    print_audit(Screen(), sample.audit(sample.gender_inconclusive()))
    said = " ".join(capsys.readouterr().out.split())
    assert "Gender: The attackers did not find even the leak of 10 points" in said
    assert "onors" not in said
