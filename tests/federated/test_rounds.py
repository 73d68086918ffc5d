"""Rounds: they go on to the bit after a stop, survive bad clients, and say what they cost."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from sample import part

from sensorveil.audit import audit
from sensorveil.data.splits import Split
from sensorveil.errors import Refusal
from sensorveil.federated.in_process import InProcess, federate
from sensorveil.federated.keeping import Keeper, as_tensors, restored, summary
from sensorveil.federated.privacy import epsilon
from sensorveil.federated.rounds import run_rounds
from sensorveil.federated.server import Answer, State
from sensorveil.methods.blinder import Blinder


@pytest.fixture(scope="module")
def carrier(obfuscator, windows, plan):
    return InProcess.of(obfuscator, windows, plan)


class Faulty(InProcess):
    """Clients 0 and 1 answer as `fault` makes them; None is no answer."""

    def __init__(self, carrier, plan, fault, rounds=range(99)):
        super().__init__(carrier.trainee, carrier.data, plan)
        self.fault, self.rounds = fault, rounds

    def ask(self, vector, number, chosen):
        answers = []
        for answer in super().ask(vector, number, chosen):
            if answer.client < 2 and number in self.rounds:
                spoilt = self.fault(answer.update)
                if spoilt is not None:
                    answers.append(Answer(answer.client, spoilt, answer.windows))
            else:
                answers.append(answer)
        return answers


def start(obfuscator) -> State:
    return State.fresh(obfuscator.weights())


def test_the_same_clients_serve_an_epoch(obfuscator, plan, carrier):
    chosen = []
    run_rounds(start(obfuscator), plan, carrier, watch=lambda state: chosen.append(state.chosen))
    assert len(chosen) == 6
    assert chosen[0] == chosen[1] == chosen[2]
    assert chosen[3] == chosen[4] == chosen[5]
    assert all(len(one) == 2 for one in chosen)


def test_nothing_of_a_federation_outlives_it(obfuscator, plan, carrier):
    """On a GPU each leaves a recording, of which there can be but 32: an experiment has more."""
    once = InProcess(carrier.trainee, carrier.data, plan)
    run_rounds(start(obfuscator), replace(plan, epochs=1, rounds=1), once)
    left = weakref.ref(once)
    gc.disable()
    try:
        del once
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("sends", [{}, {"sends": "changes", "local_steps": 2}])
@pytest.mark.parametrize("stop", [1, 3, 4])
def test_a_federation_that_was_stopped_ends_in_the_same_weights(
    obfuscator, plan, carrier, windows, tmp_path, stop, sends
):
    plan = replace(plan, **sends)
    whole = run_rounds(start(obfuscator), plan, InProcess(carrier.trainee, carrier.data, plan))

    class Stopped(Exception):
        pass

    def stopping(state):
        if state.number == stop:
            raise Stopped

    keeper = Keeper(tmp_path / "state", obfuscator, plan, resume=False)
    with pytest.raises(Stopped):
        federate(obfuscator, windows, plan, keeper, watch=stopping)
    again = Keeper(tmp_path / "state", obfuscator, plan, resume=True)
    assert again.state(obfuscator.weights()).number == stop
    result = federate(obfuscator, windows, plan, again)
    assert torch.equal(result.weights(), whole.vector)
    assert result.metrics_["federation"]["bytes"] == whole.bytes_sent


def test_a_state_is_not_taken_over_by_chance(obfuscator, plan, tmp_path):
    keeper = Keeper(tmp_path / "state", obfuscator, plan, resume=False)
    keeper.keep(start(obfuscator))
    with pytest.raises(Refusal, match="go on with --resume"):
        Keeper(tmp_path / "state", obfuscator, plan, resume=False)
    with pytest.raises(Refusal, match="holds another training"):
        Keeper(tmp_path / "state", obfuscator, replace(plan, rate=0.5), resume=True)
    keeper.remove()
    assert not (tmp_path / "state").exists()


def test_a_state_comes_back_whole(obfuscator, plan, carrier):
    state = run_rounds(start(obfuscator), replace(plan, epochs=1), carrier)
    state = replace(state, refusals=((1, 7, 2), (2, 8, 0)))
    again = restored(as_tensors(state))
    assert torch.equal(again.vector, state.vector)
    assert torch.equal(again.moments.second, state.moments.second)
    assert (again.chosen, again.log, again.refusals) == (state.chosen, state.log, state.refusals)


def test_bytes_are_the_weights_to_and_the_updates_from_each_client(obfuscator, plan, carrier):
    state = run_rounds(start(obfuscator), plan, carrier)
    one_way = 4 * carrier.trainee.layout.size
    assert [one.bytes_down for one in state.log] == [2 * one_way] * 6
    assert [one.bytes_up for one in state.log] == [2 * one_way] * 6
    found = summary(state, plan)
    assert found["bytes"] == sum(found["bytes_by_round"]) == 6 * 4 * one_way


def test_a_dead_client_does_not_stop_the_others(obfuscator, plan, carrier):
    plan = replace(plan, share=1.0)
    silent = Faulty(carrier, plan, lambda update: None)
    state = run_rounds(start(obfuscator), plan, silent)
    assert [one.answered for one in state.log] == [2] * 6
    assert state.refusals == ()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda update: update * float("nan"), "not finite"),
        (lambda update: update[:-1], "wrong size"),
    ],
)
def test_bad_updates_are_refused_named_and_change_nothing(obfuscator, plan, carrier, fault, reason):
    plan = replace(plan, share=1.0, epochs=1)
    bad = run_rounds(start(obfuscator), plan, Faulty(carrier, plan, fault))
    silent = run_rounds(start(obfuscator), plan, Faulty(carrier, plan, lambda update: None))
    assert torch.equal(bad.vector, silent.vector)
    assert summary(bad, plan)["refused"] == {f"client 0: {reason}": 3, f"client 1: {reason}": 3}


def test_below_the_quorum_others_are_asked(obfuscator, plan, carrier):
    patient = replace(plan, quorum=1.0, attempts=30)  # some pair has neither client 0 nor 1
    silent = Faulty(carrier, patient, lambda update: None, rounds=[1])
    state = run_rounds(start(obfuscator), patient, silent)
    assert state.number == 6
    assert state.log[1].asked > state.log[0].asked == 2


def test_without_a_quorum_it_ends_and_names_who_spoilt_it(obfuscator, plan, carrier):
    plan, kept = replace(plan, share=1.0, quorum=0.75), []
    spoilt = Faulty(carrier, plan, lambda update: update / 0, rounds=[1])
    words = r"round 2: fewer than 75%.*3 times in turn \(client 0: not finite.*go on with --resume"
    with pytest.raises(Refusal, match=words):
        run_rounds(start(obfuscator), plan, spoilt, kept.append)
    assert [state.number for state in kept] == [1]


def test_a_private_federation_stops_at_its_budget(obfuscator, plan, carrier):
    plan = replace(plan, share=0.5, noise=6.0, clip=0.5, epochs=4, budget=1.2)
    state = run_rounds(start(obfuscator), plan, carrier)
    assert 0 < state.number < plan.total
    assert [one.epsilon for one in state.log] == [epsilon(plan, n + 1) for n in range(state.number)]
    assert state.log[-1].epsilon <= 1.2 < epsilon(plan, state.number + 1)
    told = summary(state, plan)["privacy"]
    assert told["unit"].startswith("one client")
    other = run_rounds(start(obfuscator), plan, carrier)
    assert not torch.equal(other.vector, state.vector)  # its noise is nobody's to repeat


def test_training_brings_the_error_down(obfuscator, windows, plan):
    """The federation learns: the loss of its people's windows falls."""
    longer = replace(plan, epochs=10, rounds=6, share=0.75, rate=3e-3)
    trained = federate(obfuscator, windows, longer)
    before, after = (
        (
            (one.obfuscate(windows, seed=1).signal - windows.signal) ** 2 / windows.signal.var()
        ).mean()
        for one in (obfuscator, trained)
    )
    assert after < 0.8 * before


def test_several_attributes_are_hidden_at_once(windows, plan):
    """A discriminator for each; people have one class of each, and shadows another of both."""
    small = {"widths": "24-24-16-16", "latent": 6, "reader_epochs": 1, "reader_width": 4}
    obfuscator = Blinder(**small).prepare(windows, "activity", ["gender", "weight"])
    trained = federate(obfuscator, windows, replace(plan, epochs=1))
    assert len(trained.nets_.discriminators) == 2
    before, after = obfuscator.nets_.state_dict(), trained.nets_.state_dict()
    for which in (0, 1):
        name = f"discriminators.{which}.0.weight"
        assert not torch.equal(before[name], after[name])
    assert trained.obfuscate(windows, seed=1).shape == windows.shape


def test_an_audit_says_by_what_plan_a_run_was_federated(obfuscator, windows, plan, monkeypatch):
    """What attackers find is not asked here."""
    monkeypatch.setattr(audit, "audit_split", lambda *given, **named: part())
    plain = replace(plan, epochs=1, rounds=2).fedblinder(rate=0.002)
    run = federate(obfuscator, windows, plain)
    split = Split(windows, windows, windows, windows)
    told = audit.audit([([run], [split])]).run["federation"]
    assert (told["kind"], told["clients"], told["rounds"]) == ("FedBlinder", 4, 2)
    assert (told["plan"]["rate"], told["plan"]["local_steps"]) == (0.002, 5)
    assert "federation" not in audit.audit([([obfuscator], [split])]).run
