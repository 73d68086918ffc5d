"""The server: sampling, refusals, steps, quorum, resume, privacy; over clients in this process."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise

import numpy as np
import pytest
import torch

from sensorveil.errors import Refusal
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.privacy import epsilon
from sensorveil.federated.server import (
    ClientUpdate,
    FederatedServer,
    ServerState,
    federation_checkpoint,
    filter_updates,
    mean_update,
    sample_clients,
)
from sensorveil.federated.simulation import LocalClients, federate
from sensorveil.methods.blinder import Blinder


def updates(*given, windows=None) -> list[ClientUpdate]:
    counts = windows or [1] * len(given)
    return [
        ClientUpdate(client, torch.tensor(update), count)
        for client, (update, count) in enumerate(zip(given, counts, strict=True))
    ]


def private(config, **values):
    return config.with_values({"noise_multiplier": 1.0, **values})


def test_two_of_five_are_sampled_and_all_equally_often():
    config, counts = FederationConfig(), np.zeros(10)
    for epoch in range(500):
        sampled = sample_clients(range(10), config, np.random.default_rng([1, epoch]))
        assert len(set(sampled)) == 4
        counts[list(sampled)] += 1
    assert abs(counts / 500 - 0.4).max() < 0.08


def test_a_private_federation_samples_each_client_on_its_own():
    config = private(FederationConfig())
    sizes = [
        len(sample_clients(range(10), config, np.random.default_rng(epoch)))
        for epoch in range(1000)
    ]
    assert np.mean(sizes) == pytest.approx(4, abs=0.2)
    assert np.var(sizes) == pytest.approx(10 * 0.4 * 0.6, rel=0.2)  # that of a binomial


def test_what_cannot_count_is_refused_by_name():
    nan, inf = float("nan"), float("inf")
    given = updates([1.0, 0.0], [nan, 0.0], [1.0], [0.0, 1.0], [900.0, 0.0], [inf, 1.0])
    given.append(ClientUpdate(6, torch.tensor([1.0, 1.0]), windows=0))
    given.append(ClientUpdate(17, torch.tensor([1.0, 1.0]), windows=1))
    good, refused = filter_updates(given, range(7), 2, FederationConfig())
    assert [one.client for one in good] == [0, 3]
    assert refused == {
        1: "not finite",
        2: "wrong size",
        4: "outsized",
        5: "not finite",
        6: "sent nothing",
        17: "not sampled",
    }


def test_a_private_server_refuses_nobody_for_length():
    given = updates([1.0, 0.0], [0.0, 1.0], [900.0, 0.0])
    good, refused = filter_updates(given, range(3), 2, private(FederationConfig()))
    assert (len(good), refused) == (3, {})


def test_means_are_plain_or_weighted():
    given = updates([1.0, 0.0], [4.0, 3.0], windows=[10, 20])
    assert mean_update(given, FederationConfig()).tolist() == [2.5, 1.5]
    assert mean_update(given, FederationConfig(weighted=True)).tolist() == [3.0, 2.0]


def one_round(config, *given) -> ServerState:
    server = FederatedServer(torch.tensor([1.0, 1.0]), config)
    server.sample(range(len(given)))
    assert server.aggregate(updates(*given))
    return server.state


def test_gradients_go_through_adam_and_changes_are_added():
    config = FederationConfig(client_fraction=1.0, learning_rate=0.1)
    state = one_round(config, [0.5, -0.25], [0.5, -0.25])
    torch.testing.assert_close(state.weights, torch.tensor([0.9, 1.1]))  # Adam's first step
    fedavg = config.with_values({"algorithm": "fedavg", "local_steps": 2})
    assert one_round(fedavg, [0.5, -0.25], [0.5, 0.25]).weights.tolist() == [1.5, 1.0]


def test_the_learning_rate_rises_and_falls_over_all_rounds():
    config = FederationConfig(learning_rate=0.1, schedule="one_cycle", epochs=2, rounds=5)
    server, reached = FederatedServer(torch.zeros(1), config), [torch.zeros(1)]
    while not server.is_done:
        server.sample([0])
        server.aggregate(updates([1.0]))
        reached.append(server.state.weights)
    moved = [float(a - b) for a, b in pairwise(reached)]
    assert moved[0] == pytest.approx(0.004, rel=1e-3)  # Adam moves by the rate along a slope
    assert max(moved) == pytest.approx(0.1, rel=1e-3) == pytest.approx(moved[3], rel=1e-3)
    assert moved[3:] == sorted(moved[3:], reverse=True)


# Rounds.


@pytest.fixture(scope="module")
def clients(start, windows, config):
    return LocalClients.of(start, windows, config)


def run(start, config, clients, fault=None, rounds=range(99), on_round=None) -> FederatedServer:
    """A federation in which clients 0 and 1 answer as `fault` makes them; None is no answer."""
    server = FederatedServer(start.weights(), config, on_round=on_round)
    there = LocalClients(clients.loss, clients.data, config)
    while not server.is_done:
        sampled = server.sample(list(clients.data))
        sent = there.updates(server.state.weights, server.number, sampled)
        if fault and server.number in rounds:
            sent = [
                ClientUpdate(one.client, spoilt, one.windows)
                for one in sent
                if (spoilt := fault(one.update) if one.client < 2 else one.update) is not None
            ]
        server.aggregate(sent)
    return server


def test_the_same_clients_serve_an_epoch(start, config, clients):
    sampled = []
    run(start, config, clients, on_round=lambda state: sampled.append(state.clients))
    assert len(sampled) == 6
    assert sampled[0] == sampled[1] == sampled[2] != sampled[3] == sampled[4] == sampled[5]
    assert all(len(one) == 2 for one in sampled)


def test_nothing_of_a_federation_outlives_it(start, config, clients):
    """On a GPU each leaves a recording, of which there can be but 32: an experiment has more."""
    once = LocalClients(clients.loss, clients.data, config)
    once.train(FederatedServer(start.weights(), FederationConfig(epochs=1, rounds=1)))
    left = weakref.ref(once)
    gc.disable()
    try:
        del once
        assert left() is None
    finally:
        gc.enable()


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("values", [{}, {"algorithm": "fedavg", "local_steps": 2}])
@pytest.mark.parametrize("stop", [1, 3])
def test_a_federation_that_was_stopped_ends_in_the_same_weights(
    start, config, clients, windows, tmp_path, stop, values
):
    config = config.with_values(values)
    whole = run(start, config, clients)

    def stopping(state):
        if len(state.rounds) == stop:
            raise StoppedError

    checkpoint = federation_checkpoint(tmp_path / "state", start, config, resume=False)
    with pytest.raises(StoppedError):
        federate(start, windows, config, checkpoint, on_round=stopping)
    again = federation_checkpoint(tmp_path / "state", start, config, resume=True)
    assert len(again.load("federation")["rounds"]) == stop
    result = federate(start, windows, config, again)
    assert torch.equal(result.weights(), whole.state.weights)
    assert result.metrics_["federation"]["bytes"] == whole.summary()["bytes"]


def test_a_state_is_not_taken_over_by_chance(start, config, tmp_path):
    place = tmp_path / "state"
    checkpoint = federation_checkpoint(place, start, config, resume=False)
    server = FederatedServer(start.weights(), config, checkpoint)
    server.sample([0])
    assert server.aggregate([ClientUpdate(0, torch.ones_like(start.weights()), 1)])
    with pytest.raises(Refusal, match="go on with --resume"):
        federation_checkpoint(place, start, config, resume=False)
    with pytest.raises(Refusal, match="holds another training"):
        federation_checkpoint(place, start, config.with_values({"learning_rate": 0.5}), resume=True)
    checkpoint.remove()
    assert not place.exists()


def test_a_state_comes_back_whole(start, config, clients):
    state = run(start, config, clients).state
    state.refusals = [(1, 7, 2), (2, 8, 0)]
    again = ServerState.of_tensors(state.tensors())
    assert torch.equal(again.weights, state.weights)
    assert torch.equal(again.adam.square, state.adam.square)
    assert (again.clients, again.rounds, again.refusals) == (
        state.clients, state.rounds, state.refusals
    )  # fmt: skip


def test_bytes_are_the_weights_to_and_the_updates_from_each_client(start, config, clients):
    server = run(start, config, clients)
    one_way = 4 * len(start.weights())
    assert [one.bytes_down for one in server.state.rounds] == [2 * one_way] * 6
    assert [one.bytes_up for one in server.state.rounds] == [2 * one_way] * 6
    found = server.summary()
    assert found["bytes"] == sum(found["bytes_by_round"]) == 6 * 4 * one_way


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda update: update * float("nan"), "not finite"),
        (lambda update: update[:-1], "wrong size"),
    ],
)
def test_bad_updates_are_refused_named_and_change_nothing(start, config, clients, fault, reason):
    config = config.with_values({"client_fraction": 1.0, "epochs": 1})
    bad, silent = (run(start, config, clients, one) for one in (fault, lambda update: None))
    assert torch.equal(bad.state.weights, silent.state.weights)
    assert bad.summary()["refused"] == {f"client 0: {reason}": 3, f"client 1: {reason}": 3}


def test_without_a_quorum_it_ends_and_names_who_spoilt_it(start, config, clients):
    config = config.with_values({"client_fraction": 1.0, "quorum": 0.75})
    words = r"round 2: fewer than 75%.*3 times in turn \(client 0: not finite.*go on with --resume"
    with pytest.raises(Refusal, match=words):
        run(start, config, clients, lambda update: update / 0, rounds=[1])


def test_a_private_federation_stops_at_its_budget(start, config, clients):
    values = {"noise_multiplier": 6.0, "clip_norm": 0.5, "epochs": 4, "max_epsilon": 1.2}
    config = config.with_values(values)
    server = run(start, config, clients)
    assert 0 < server.number < config.total_rounds
    spent = server.summary()["privacy"]
    assert spent["epsilon"] == [round(epsilon(config, n + 1), 4) for n in range(server.number)]
    assert spent["epsilon"][-1] <= 1.2 < epsilon(config, server.number + 1)
    assert spent["unit"].startswith("one client")
    again = run(start, config, clients)
    assert not torch.equal(again.state.weights, server.state.weights)  # nobody can repeat its noise


def test_several_attributes_are_hidden_at_once(windows, config, small):
    """A discriminator for each; people have one class of each, and shadows another of both."""
    start = Blinder(**small).fit(windows, "activity", ["gender", "weight"])
    trained = federate(start, windows, config.with_values({"epochs": 1}))
    before, after = start.network_.state_dict(), trained.network_.state_dict()
    for number in (0, 1):
        name = f"discriminators.{number}.0.weight"
        assert not torch.equal(before[name], after[name])
    assert trained.obfuscate(windows, seed=1).shape == windows.shape
