"""The study of donors: who releases windows gives them away, who releases noise does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sensorveil.audit.donors import Contender, DonorData, DonorStudy, donor_study
from sensorveil.audit.donors.likeness import Likeness
from sensorveil.audit.donors.membership import MembershipAttack
from sensorveil.audit.donors.study import DonorScore, LiraScore
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.baselines import NoObfuscation
from sensorveil.methods.csi import CsiGenerator

SMALL = ClassifierSettings(6, 16, 16, 4e-3, network="resnet18")
TINY: dict[str, Any] = {
    "width": 8,
    "blocks": 1,
    "heads": 2,
    "epochs": 1,
    "classifier_epochs": 1,
    "sampling_steps": 2,
    "privacy.steps": 2,
    "expected_batch_size": 10,
    "noise_multiplier": 8.0,
}
GENTLE: dict[str, Any] = {"levels": 2, "first_beta": 1e-4, "last_beta": 1e-4}
"""A degradation that leaves nearly all of a window."""
SEEN: list[int] = []
"""Scores that were known after each step of the study."""


def windows(count: int = 240) -> Windows:
    """Ten people, windows in which the class can hardly be seen: it has to be learnt by heart."""
    chance = np.random.default_rng(0)
    codes = np.arange(count) // 10 % 2
    signal = chance.normal(size=(count, 2, 32)) + 0.1 * codes[:, None, None]
    return Windows.from_signal(
        signal, {"activity": codes, "subject": np.arange(count) % 10}, sample_rate=20.0
    )


def mean(study: DonorStudy, contender: str, figure: str) -> float:
    found = study.mean(contender, figure)
    assert found is not None
    return found[0]


def classify(some: Windows, seed: int) -> Classifier:
    return Classifier(SMALL, seed).fit(some, "activity")


def likeness(some: Windows) -> Likeness:
    return Likeness("activity", ClassifierSettings(width=4, epochs=1, batch_size=32)).fit(some)


@pytest.fixture(scope="module")
def study() -> DonorStudy:
    some = windows()
    contenders = [
        Contender("raw", None),
        Contender("unchanged", lambda seed: NoObfuscation(seed=seed)),
        Contender("plain", lambda seed: CsiGenerator(seed=seed, **TINY)),
        Contender(
            "hybrid-dp",
            lambda seed: CsiGenerator(seed=seed, mode="hybrid-dp", public="0+1", **TINY),
            uses_public=True,
        ),
        Contender(
            "restored", lambda seed: CsiGenerator(seed=seed, **TINY, **GENTLE), restores=True
        ),
    ]
    return donor_study(
        contenders,
        DonorData(some, "activity", "subject", classify, ["0", "1"]),
        likeness(some),
        seeds=(0,),
        on_result=lambda study: SEEN.append(len(study.scores)),
    )


def test_releasing_windows_gives_donors_away_and_noise_does_not(study: DonorStudy):
    raw, unchanged, plain = (mean(study, n, "auc") for n in ("raw", "unchanged", "plain"))
    assert raw > 0.75
    assert unchanged == pytest.approx(raw, abs=0.02)  # up to rounding, the same release
    assert plain < raw - 0.1  # a generator that has learnt next to nothing
    assert mean(study, "plain", "fid") > mean(study, "raw", "fid")
    assert SEEN == [1, 2, 3, 4, 5]
    for score in study.scores:  # all are attacked for the same private windows
        assert score.attack.members == score.attack.nonmembers == 48  # a quarter of eight people's
    assert study.contenders() == ("raw", "unchanged", "plain", "hybrid-dp", "restored")


def test_promises_stand_beside_the_figures(study: DonorStudy):
    promised = {score.contender: score.privacy or {} for score in study.scores}
    assert promised["raw"] == promised["unchanged"] == {}
    assert promised["plain"]["epsilon"] is None
    assert promised["hybrid-dp"]["epsilon"] > 0
    assert promised["restored"]["epsilon"] is None
    assert "made from a true one" in promised["restored"]["why"]


def test_a_restored_window_is_compared_with_its_original():
    """Where the generator gives back what it was given, it is as if raw windows were released."""
    some = windows(80)

    class Mirror(CsiGenerator):
        def restore(self, windows: Windows, seed: int = 0) -> Windows:
            return windows

    study = donor_study(
        [
            Contender("raw", None),
            Contender("mirror", lambda seed: Mirror(seed=seed, **TINY), restores=True),
        ],
        DonorData(some, "activity", "subject", classify),
        likeness(some),
        seeds=(0,),
    )
    assert mean(study, "mirror", "ssim") == pytest.approx(1.0)
    assert mean(study, "raw", "ssim") < 0.9  # beside another window of the class
    assert mean(study, "mirror", "auc") == mean(study, "raw", "auc")


def test_what_cannot_restore_is_refused():
    some = windows(80)
    contender = Contender("none", lambda seed: NoObfuscation(seed=seed), restores=True)
    with pytest.raises(Refusal, match="none restores no"):
        DonorData(some, "activity", "subject", classify).train_target(contender, some, 0)


def test_lira_asks_classifier_and_generator():
    """Raw windows have no generator; where one is, the same models are asked for both."""
    some = windows(160)
    study = donor_study(
        [
            Contender("raw", None),
            Contender("plain", lambda seed: CsiGenerator(seed=seed, **TINY)),
        ],
        DonorData(some, "activity", "subject", classify, ["0"]),
        likeness(some),
        seeds=(),
        lira_models=4,
    )
    attacked = [(score.contender, score.of) for score in study.lira]
    wanted = [("raw", "classifier"), ("plain", "classifier"), ("plain", "generator")]
    assert attacked == [one for one in wanted for _ in range(4)]
    attack = study.lira[0].attack
    assert attack.members + attack.nonmembers == 144  # of nine people
    assert mean(study, "raw", "lira_classifier_auc") > 0.7
    assert mean(study, "plain", "lira_classifier_auc") < 0.65
    assert study.mean("raw", "lira_generator_auc") is None
    assert study.mean("raw", "auc") is None


def test_public_windows_are_learnt_from_only_where_allowed():
    some, learnt = windows(), []

    class Recorder(NoObfuscation):
        def _fit(self, windows, rng):
            learnt.append(windows)

    data = DonorData(some, "activity", "subject", classify, public_people=["0", "1"])
    members = data.private()[0].select(slice(0, 30))
    for allowed in (False, True):
        contender = Contender("any", lambda seed: Recorder(seed=seed), uses_public=allowed)
        data.train_target(contender, members, 0)
        assert len(learnt[-1]) == 30 + allowed * data.is_public().sum()
        assert set(members.offset) <= set(learnt[-1].offset)


def scored(**figures: list[float]) -> DonorStudy:
    """A study of attack AUCs, and SSIMs that fall by 0.1 from row to row."""
    scores = [
        DonorScore(
            name,
            seed,
            MembershipAttack("shadow", value, 0.5, 0.0, None, 9, 9),
            0.9 - 0.1 * row,
            1.0,
        )
        for row, (name, values) in enumerate(figures.items())
        for seed, value in enumerate(values)
    ]
    return DonorStudy("activity", "subject", tuple(scores))


def test_orders_and_means():
    held = scored(raw=[0.9, 1.0], plain=[0.9, 0.8], hybrid=[0.7, 0.7], dp=[0.5, 0.5])
    assert held.orders() == {"auc": True, "ssim": True, "fid": False}  # all FIDs are 1
    assert held.mean("raw", "auc") == pytest.approx((0.95, np.std([0.9, 1.0], ddof=1)))
    broken = scored(raw=[0.9], plain=[0.95], dp=[0.5])
    assert broken.orders()["auc"] is False
    assert broken.orders()["ssim"] is True
    assert broken.mean("dp", "auc") == (0.5, None)
    assert scored(raw=[0.9]).orders() == {}  # one row has no order
    written = held.as_dict()
    assert written["paper_on_widar3"]["dp"]["ssim"] == 0.38
    assert written["scores"][0]["attack"]["auc"] == 0.9
    assert written["means"]["plain"]["auc"] == pytest.approx((0.85, np.std([0.9, 0.8], ddof=1)))


def test_steps_say_how_sure_an_order_is():
    """Differences are taken within seeds: what a seed does to all rows is no doubt about them."""
    steps = scored(raw=[0.6, 0.9, 0.75], plain=[0.5, 0.8, 0.65], dp=[0.55, 0.75, 0.5]).steps("auc")
    assert [(step.above, step.below) for step in steps] == [("raw", "plain"), ("plain", "dp")]
    assert steps[0].difference == pytest.approx(0.1)
    assert steps[0].error == pytest.approx(0, abs=1e-12)
    assert steps[1].error == pytest.approx(np.std([-0.05, 0.05, 0.15], ddof=1) / np.sqrt(3))
    (one,) = scored(raw=[0.6, 0.9], plain=[0.5]).steps("auc")  # of the seed that both have
    assert one.difference == pytest.approx(0.1)
    assert one.error is None


def test_parts_are_joined_in_the_order_of_seeds_and_never_in_two_ways():
    whole = scored(raw=[0.6, 0.9], plain=[0.5, 0.8])
    parts = [
        DonorStudy("activity", "subject", tuple(s for s in whole.scores if s.seed == seed))
        for seed in (1, 0)
    ]
    attack = MembershipAttack("LiRA", 0.7, 0.5, 0.1, None, 9, 9)
    parts[0] += [LiraScore("raw", "classifier", 0, attack)]
    again = DonorStudy.join([DonorStudy.from_dict(part.as_dict()) for part in parts])
    assert again.values("raw", "auc") == {0: 0.6, 1: 0.9}
    assert again.mean("raw", "lira_classifier_auc") == (0.7, None)
    alike = DonorStudy.join([*parts, whole, parts[0]])
    assert (len(alike.scores), len(alike.lira)) == (4, 1)
    other = LiraScore("raw", "classifier", 0, replace(attack, auc=0.6))
    for odd in (scored(raw=[0.7]), DonorStudy("activity", "subject", lira=(other,))):
        with pytest.raises(Refusal, match="twice"):
            DonorStudy.join([*parts, odd])


@pytest.mark.parametrize(
    ("people", "line"), [(["nobody"], "'nobody' is unknown"), ("0123456789", "all people")]
)
def test_public_people_that_cannot_be_are_refused(people, line):
    with pytest.raises(Refusal, match=line):
        DonorData(windows(80), "activity", "subject", classify, people)
