"""Session attackers: they learn from many windows, and those of others take part in audits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.audit import session_attackers
from sensorveil.audit.attack import attack_sessions
from sensorveil.audit.attackers import CONVOLUTIONS, Budget
from sensorveil.audit.results import LOOKS, SEMI
from sensorveil.audit.runner import run_attacks
from sensorveil.audit.session_attackers import (
    SEQUENCE,
    SET,
    SessionAttacker,
    SessionBudget,
    list_session_attackers,
    register_session_attacker,
    session_attacker_class,
)
from sensorveil.audit.threat_models import AttackDataset, Fold, obfuscate_fold
from sensorveil.data.catalog import load
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.baselines import Noise

TINY = SessionBudget(
    kernels=16, components=12, filters=0, width=12, sets=192, epochs=8, batch_size=32,
    learning_rate=8e-3, members=1,
)  # fmt: skip


def levels(recordings: int, seed: int, each: int = 20) -> Windows:
    """The level of one channel is the activity of the recording, of the other one the gender."""
    rng = np.random.default_rng(seed)
    recording = np.repeat(np.arange(recordings), each)
    gender, activity = recording % 2, recording // 2 % 2
    signal = rng.normal(size=(len(recording), 2, 16))
    signal += 1.5 * np.stack([activity, gender], axis=1)[..., None]
    labels = {"activity": activity, "gender": gender, "subject": recording // 4 * 2 + gender}
    return replace(
        Windows.from_signal(signal, labels),
        recording=recording,
        start=np.tile(np.arange(each) * 16, recordings),
        recordings=tuple(str(one) for one in range(recordings)),
    )


def predicted(
    attacker: str, train: Windows, test: Windows, attributes: list[str], size: int = 5
) -> dict[str, np.ndarray]:
    budget = Budget(sessions=TINY)
    chunk = np.arange(len(test)) // size
    return attack_sessions(
        AttackDataset(train, {SEMI: test}),
        attacker,
        attributes,
        [train.recording],
        {"chunks": chunk},
        ["activity"],
        budget,
    )


@pytest.mark.parametrize("attacker", [SET, SEQUENCE])
def test_they_learn_from_groups_and_predict_chunks(attacker: str) -> None:
    train, test = levels(40, 0), levels(16, 1)
    found = predicted(attacker, train, test, ["gender"])
    ratio = found[f"gender|{SEMI}|chunks"]
    assert ratio.shape == (len(test), 2)
    by_chunk = ratio.reshape(-1, 5, 2)
    assert (by_chunk == by_chunk[:, :1]).all()  # windows of a chunk have the same values
    assert (by_chunk[:, 0].argmax(1) == test.codes("gender")[::5]).mean() > 0.9


@pytest.mark.parametrize("attacker", [SET, SEQUENCE])
def test_attributes_are_learnt_at_once_and_unknown_classes_are_left_out(attacker: str) -> None:
    train, test = levels(40, 2), levels(16, 3)
    shown = np.where(train.recording < 12, train.codes("gender"), UNKNOWN)
    train = replace(
        train,
        labels={**train.labels, "known of few": shown},
        classes={**train.classes, "known of few": ("0", "1")},
    )
    found = predicted(attacker, train, test, ["gender", "known of few"])
    for name in ("gender", "known of few"):
        right = found[f"{name}|{SEMI}|chunks"].argmax(1) == test.codes("gender")
        assert right.mean() > 0.8, name


def test_what_the_kept_class_tells_is_taken_away() -> None:
    """The second channel shows the activity; in nine of ten recordings that is the gender."""
    rng = np.random.default_rng(4)

    def composed(seed: int) -> Windows:
        one = levels(80, seed, each=10)
        gender = np.where(rng.random(80) < 0.9, np.arange(80) // 2 % 2, np.arange(80) // 2 % 2 ^ 1)
        level = 3.0 * one.codes("activity")[:, None, None]
        noise = np.random.default_rng(seed).normal(size=one.signal.shape)
        labels = {**one.labels, "gender": gender[one.recording]}
        return replace(one.replaced(level + noise), labels=labels)

    train, test = composed(5), composed(6)
    ratio = predicted(SET, train, test, ["gender"], size=10)[f"gender|{SEMI}|chunks"][::10]
    lean = ratio[:, 1] - ratio[:, 0]  # positive where gender 1 is likelier than activities say
    activity, gender = test.codes("activity")[::10], test.codes("gender")[::10]
    assert ((lean > 0) == gender).mean() < 0.75  # the activity alone would give 0.9
    assert abs(lean[activity == 1].mean() - lean[activity == 0].mean()) < 1.5  # of log-odds 4.4


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_attackers, "_ATTACKERS", dict(session_attackers._ATTACKERS))


@pytest.mark.usefixtures("registry")
def test_one_of_a_third_party_takes_part_in_an_audit() -> None:
    """It knows the level of a group: the mean over several windows, or several looks at one."""
    seen: list[int] = []

    @register_session_attacker("by oracle")
    class Oracle(SessionAttacker):
        def fit(self, train, groups, labels, num_classes, kept):
            seen.append(len(groups))
            self.num_classes_ = dict(num_classes)
            return self

        def predict_log_proba(self, windows, group):
            found = {}
            for name, count in self.num_classes_.items():
                votes = np.full((group.max() + 1, count), 0.01)
                used = group >= 0
                np.add.at(votes, (group[used], windows.codes(name)[used]), 1)
                found[name] = np.log(votes / votes.sum(1, keepdims=True))
            return found

    assert list_session_attackers()[-1] == "by oracle"
    assert "by oracle" in Budget().session_attackers
    split = load("simulated", "subject", people=48, windows=5, recordings=1)
    budget = Budget(
        windows=400,
        draws=1,
        kernels=8,
        attackers=(CONVOLUTIONS,),
        sessions=TINY,
        session_attackers=("by oracle",),
        looks=5,
        look_windows=40,
    )
    fold = Fold(Noise(snr=-20.0).fit(split.train, "activity", "gender"), split)
    output = {(0, 0): obfuscate_fold(fold, None, 0, budget)}
    (found,) = run_attacks([fold], output, ["gender"], [0], budget)
    assert set(seen) == {1, 2}  # one kind of group for looks; recordings and people elsewhere
    points = {(one.group, one.windows): one for one in found.sessions}
    for plan in (("recording", 5), ("recording", None), ("person", None), (LOOKS, 5)):
        assert points[plan].attacker == "by oracle", plan
        assert points[plan].accuracy.value == 1
    assert points["recording", None].significant
    assert found.verdict.status == "not hidden"


@pytest.mark.usefixtures("registry")
def test_names_are_taken_once_and_unknown_ones_are_refused() -> None:
    with pytest.raises(Refusal, match="a session attacker is named 'set network' already"):
        register_session_attacker(SET)(type("Other", (SessionAttacker,), {}))
    with pytest.raises(Refusal, match="session attacker 'sett' is unknown"):
        session_attacker_class("sett")
    with pytest.raises(Refusal, match="session attacker 'sett' is unknown"):
        Budget(session_attackers=("sett",))
