"""The study of donors: who releases windows gives them away, who releases noise does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sensorveil.audit.donors import Contender, DonorScore, DonorStudy, Release, donor_study
from sensorveil.audit.membership import Attack, dealt
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.measures.inference import InferenceSettings
from sensorveil.measures.likeness import Likeness
from sensorveil.measures.residual import ResidualModel, ResidualSettings
from sensorveil.methods.csi import CsiGenerator
from sensorveil.methods.none import NoObfuscation

SMALL = ResidualSettings(width=6, epochs=16, batch=16, rate=4e-3)
TINY: dict[str, Any] = {
    "width": 8,
    "blocks": 1,
    "heads": 2,
    "epochs": 1,
    "reader_epochs": 1,
    "steps": 2,
    "private_steps": 2,
    "lot": 10,
    "noise": 8.0,
}


def windows(count: int = 240) -> Windows:
    """Ten people, windows in which the class can hardly be seen: it has to be learnt by heart."""
    chance = np.random.default_rng(0)
    codes = np.arange(count) // 10 % 2
    signal = chance.normal(size=(count, 2, 32)) + 0.1 * codes[:, None, None]
    return Windows.from_signal(
        signal, {"activity": codes, "subject": np.arange(count) % 10}, rate=20.0
    )


def classify(some: Windows, seed: int) -> ResidualModel:
    return ResidualModel(SMALL, seed).fit(some, "activity")


@pytest.fixture(scope="module")
def study() -> DonorStudy:
    some = windows()
    likeness = Likeness("activity", InferenceSettings(width=4, epochs=2, batch=32)).fit(some)
    contenders = [
        Contender("raw", None),
        Contender("unchanged", lambda seed: NoObfuscation(seed=seed)),
        Contender("plain", lambda seed: CsiGenerator(seed=seed, **TINY)),
        Contender(
            "hybrid-dp",
            lambda seed: CsiGenerator(seed=seed, mode="hybrid-dp", public="0+1", **TINY),
            learns_from_public=True,
        ),
    ]
    return donor_study(
        contenders,
        some,
        ["0", "1"],
        "activity",
        "subject",
        classify=classify,
        likeness=likeness,
        seeds=1,
    )


def test_releasing_windows_gives_donors_away_and_noise_does_not(study: DonorStudy) -> None:
    raw, unchanged, plain = (study.mean(n, "auc")[0] for n in ("raw", "unchanged", "plain"))
    assert raw > 0.75
    assert unchanged == pytest.approx(raw, abs=0.02)  # up to rounding, the same release
    assert plain < raw - 0.1  # a generator that has learnt next to nothing
    assert study.mean("plain", "fid")[0] > study.mean("raw", "fid")[0]


def test_all_are_attacked_for_the_same_private_windows(study: DonorStudy) -> None:
    for score in study.scores:
        assert score.attack.members == score.attack.others == 48  # a quarter of eight people's
    assert study.contenders() == ("raw", "unchanged", "plain", "hybrid-dp")
    assert len(study.scores) == 4


def test_promises_stand_beside_the_figures(study: DonorStudy) -> None:
    told = {score.contender: score.privacy for score in study.scores}
    assert told["raw"] is None
    assert told["plain"] is not None
    assert told["plain"]["epsilon"] is None
    assert told["hybrid-dp"] is not None
    assert told["hybrid-dp"]["epsilon"] > 0


def test_who_may_learn_from_the_public(monkeypatch: pytest.MonkeyPatch) -> None:
    some = windows()
    public = np.isin(some.subject, [0, 1])
    members = some.select(~public).select(slice(0, 30))
    for allowed in (False, True):
        contender = Contender("any", None, learns_from_public=allowed)
        release = Release(contender, some, public, "activity", "subject", classify)
        learnt = release._learnt(members)
        assert len(learnt) == 30 + allowed * public.sum()
        assert set(members.offset) <= set(learnt.offset)
        assert bool(np.isin(learnt.subject, [0, 1]).any()) == allowed


def scored(**figures: list[float]) -> DonorStudy:
    """A study of attack AUCs, and SSIMs that fall by 0.1 from row to row."""
    scores = [
        DonorScore(name, seed, Attack("shadow", value, 0.5, 0.0, None, 9, 9), 0.9 - 0.1 * row, 1.0)
        for row, (name, values) in enumerate(figures.items())
        for seed, value in enumerate(values)
    ]
    return DonorStudy("activity", "subject", tuple(scores))


def test_orders_and_means() -> None:
    held = scored(raw=[0.9, 1.0], plain=[0.9, 0.8], hybrid=[0.7, 0.7], dp=[0.5, 0.5])
    assert held.orders() == {"auc": True, "ssim": True}
    assert held.mean("raw", "auc") == pytest.approx((0.95, np.std([0.9, 1.0], ddof=1)))
    broken = scored(raw=[0.9], plain=[0.95], dp=[0.5])
    assert broken.orders() == {"auc": False, "ssim": True}
    assert broken.mean("dp", "auc") == (0.5, None)
    told = held.as_dict()
    assert told["paper_on_widar3"]["dp"]["ssim"] == 0.38
    assert told["scores"][0]["attack"]["auc"] == 0.9


def test_refusals() -> None:
    some = windows(80)
    likeness = Likeness("activity")
    for people, line in ((["nobody"], "'nobody' is unknown"), (list("0123456789"), "all people")):
        with pytest.raises(Refusal, match=line):
            donor_study(
                [Contender("raw", None)],
                some,
                people,
                "activity",
                "subject",
                classify=classify,
                likeness=likeness,
            )
    assert len(np.unique(dealt(some.recording, 4, 0))) == 4
