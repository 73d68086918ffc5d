"""Clients: what they draw, how classes are balanced, and that one client is central training."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.federated.client import (
    ClientDataset,
    balance,
    client_update,
    draw,
    gather,
    known_classes,
    people_of,
    select,
    unbalance,
)
from sensorveil.federated.meta_learning import meta_gradient
from sensorveil.federated.server import FederatedServer
from sensorveil.federated.simulation import LocalClients
from sensorveil.methods.blinder import Blinder, BlinderNetwork


@pytest.fixture(scope="module")
def client(start, windows, config):
    return ClientDataset.of(start, people_of(windows)[2], config, 2)


def batch_of(start, data, config, client=2, number=0):
    network = start.network_
    return select(
        gather(data, draw(len(data), network, config, client, number), network, config), 0
    )


def test_each_client_is_one_person(windows):
    people = people_of(windows)
    assert sorted(people) == [0, 1, 2, 3]
    assert all(set(own.subject) == {person} for person, own in people.items())
    assert sum(len(own) for own in people.values()) == len(windows)


def test_data_is_in_the_units_of_the_run(start, windows, client):
    own = people_of(windows)[2].standardized(start.scaling_).signal
    np.testing.assert_array_equal(client.windows.numpy(), own)
    assert set(client.hidden[:, 0].tolist()) == {1}


def test_an_epoch_goes_through_all_windows_once(start, client, config):
    for epoch in (0, 1):  # 24 windows, batches of 8, 3 rounds an epoch
        batches = [batch_of(start, client, config, number=3 * epoch + n) for n in range(3)]
        seen = torch.cat([torch.cat([b.support.windows, b.query.windows]) for b in batches])
        assert len(torch.unique(seen, dim=0)) == 24
    orders = [batch_of(start, client, config, number=number).query.windows for number in (0, 3)]
    assert not torch.equal(*orders)


def test_support_and_query_sets_have_no_window_in_common(start, client, config):
    odd = config.with_values({"support_size": 3, "rounds": 9})  # 10 of 24 windows
    for number in range(9):
        batch = batch_of(start, client, odd, number=number)
        both = torch.cat([batch.support.windows, batch.query.windows])
        assert len(torch.unique(both, dim=0)) == 10


def test_shadow_samples_have_another_class(start, client, config):
    batch = batch_of(start, client, config.with_values({"support_size": 5, "query_size": 3}))
    assert (batch.support.hidden * batch.shadow_hidden).sum() == 0
    assert (batch.shadow_hidden.sum(1) == 1).all()


def test_draws_follow_from_seed_client_and_round(start, client, config):
    def noise(config=config, client_number=2, number=1):
        return batch_of(start, client, config, client_number, number).query.noise

    assert torch.equal(noise(), noise())
    other_seed = config.with_values({"seed": 4})
    for other in (noise(other_seed), noise(client_number=1), noise(number=2)):
        assert not torch.equal(noise(), other)


def test_loss_weights_grow_over_the_first_rounds(start, client, config):
    growing = config.with_values({"warm_up": 0.5})  # of 6 rounds
    shares = [float(batch_of(start, client, growing, number=n).query.warm_up) for n in range(6)]
    assert shares == pytest.approx([0, 1 / 3, 2 / 3, 1, 1, 1])


@pytest.mark.parametrize("values", [{}, {"algorithm": "fedavg", "local_steps": 3}])
def test_updates_at_once_are_updates_one_by_one(start, windows, config, values):
    config, vector, loss = config.with_values(values), start.weights(), start.loss()
    clients = LocalClients.of(start, windows, config)
    together = clients.updates(vector, 0, [3, 0, 2])
    assert [one.client for one in together] == [3, 0, 2]
    for one in together:
        alone = client_update(loss, vector, clients.data[one.client], config, one.client, 0)
        torch.testing.assert_close(one.update, alone, rtol=1e-3, atol=1e-5)


def test_a_gradient_is_the_meta_gradient_of_its_batch(start, client, config):
    loss, vector = start.loss(), start.weights()
    got = client_update(loss, vector, client, config, 2, 0)
    batch = batch_of(start, client, config)
    wanted = meta_gradient(loss, vector, batch, **config.adaptation.model_dump())
    torch.testing.assert_close(got, wanted)


def test_one_client_without_adaptation_is_central_training_step_by_step(start, windows, config):
    """Against plain autograd and torch's Adam on losses (3) and (4), over all rounds."""
    values = {"steps": 0, "client_fraction": 1.0, "support_size": 0, "query_size": 8}
    alone = config.with_values({**values, "rounds": 4})
    clients = LocalClients.of(start, people_of(windows)[1], alone)
    reached: list[torch.Tensor] = []
    server = FederatedServer(start.weights(), alone, on_round=lambda s: reached.append(s.weights))
    clients.train(server)
    network = BlinderNetwork(2, 32, 2, (2,), start.settings.network)
    network.load_state_dict(start.network_.state_dict())
    coder = [*network.encoder.parameters(), *network.decoder.parameters()]
    players = [coder, list(network.discriminators.parameters())]
    adams = [torch.optim.Adam(own, lr=alone.learning_rate) for own in players]
    assert len(reached) == 8
    for number, got in enumerate(reached):
        batch = batch_of(start, clients.data[1], alone, 1, number).query
        mean, log_variance = network.encode(batch.windows)
        z = mean + torch.exp(log_variance / 2) * batch.noise
        error = (network.decode(z, batch.hidden, batch.kept) - batch.windows).square().mean()
        kl = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        truth = batch.hidden.argmax(1)
        adversary = torch.nn.functional.cross_entropy(network.discriminators[0](z), truth)
        against = (0.9 * 256 * error + 2 * kl) / 75 - 0.2 * adversary
        slopes = [
            torch.autograd.grad(loss, own, retain_graph=True)
            for loss, own in ((against, players[0]), (adversary, players[1]))
        ]
        for adam, own, slope in zip(adams, players, slopes, strict=True):
            for weight, one_slope in zip(own, slope, strict=True):
                weight.grad = one_slope
            adam.step()
        wanted = torch.cat([weight.detach().flatten() for weight in network.parameters()])
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-6)


def test_too_few_windows_for_a_batch_are_refused(start, windows, config):
    with pytest.raises(Refusal, match="client 7 has 3 windows; a batch takes 8"):
        ClientDataset.of(start, windows.select([0, 1, 2]), config, 7)


def test_classes_are_counted_as_in_training_and_found_by_name(windows, small):
    """A person's own table may list but the classes that are in it."""
    blinder = Blinder(**small).fit(windows, ["activity", "weight"], "gender")
    one = windows.select(np.flatnonzero(windows.subject == 3))  # a person of one gender
    positions, kept, hidden = known_classes(blinder, one)
    assert len(positions) == len(one)
    assert set(hidden[:, 0]) == {1}
    codes = np.stack([one.labels["activity"], one.labels["weight"]], axis=1)
    np.testing.assert_array_equal(blinder.kept_classes_[kept], codes)
    strange = Windows.from_signal(one.signal, {**one.labels, "activity": [7] * len(one)}, 50.0)
    assert len(known_classes(blinder, strange)[0]) == 0
    short = replace(
        one,
        labels={**one.labels, "gender": np.zeros(len(one), int)},
        classes={**one.classes, "gender": ("1",)},
    )
    np.testing.assert_array_equal(known_classes(blinder, short)[2], hidden)
    unsure = replace(short, labels={**short.labels, "gender": np.full(len(one), -1)})
    assert len(known_classes(blinder, unsure)[0]) == 0


# Balancing.


def sample(counts, seed=0):
    """Windows of class c lie on a line of their own: (x, 10 c)."""
    kept = np.repeat(np.arange(len(counts)), counts)
    x = np.random.default_rng(seed).random(len(kept))
    line = np.stack([x, 10.0 * kept], axis=1)
    return line[:, None].astype(np.float32), kept, np.zeros((len(kept), 1), int)


def test_every_class_has_as_many_and_new_windows_lie_between_old_ones():
    signal, kept, hidden = sample([100, 30, 7])
    new, classes, secret = balance((signal, kept, hidden), target=40, seed=1)
    assert np.bincount(classes).tolist() == [40, 40, 40]
    assert (secret.shape, new.dtype) == ((120, 1), np.float32)
    np.testing.assert_allclose(new[:, 0, 1], 10.0 * classes)  # never between two classes
    for one in (1, 2):
        own, made = signal[kept == one, 0, 0], new[classes == one, 0, 0]
        assert own.min() <= made.min() <= made.max() <= own.max()
        assert len(np.unique(made)) == 40  # no copies
    old = {float(x) for x in signal[kept == 0, 0, 0]}
    assert {float(x) for x in new[classes == 0, 0, 0]} <= old  # the large class loses some


def test_what_is_balanced_already_stays():
    given = sample([19, 10])
    for before, after in zip(given, balance(given, 40, 1), strict=True):
        assert after is before


def test_hidden_classes_are_not_mixed():
    signal, kept, _ = sample([60, 20])
    hidden = (np.arange(80) % 2)[:, None]
    signal[:, 0, 1] += hidden[:, 0]
    new, classes, secret = balance((signal, kept, hidden), 40, 1)
    assert np.bincount(classes * 2 + secret[:, 0]).tolist() == [20] * 4
    np.testing.assert_allclose(new[:, 0, 1], 10.0 * classes + secret[:, 0])


def test_a_single_window_has_no_neighbours_and_the_seed_decides():
    _, classes, _ = balance(sample([20, 1]), 10, 1)
    assert np.bincount(classes).tolist() == [10, 1]
    first, again, other = (balance(sample([50, 9]), 30, seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_without_the_package_it_says_which_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "imblearn.over_sampling", None)
    with pytest.raises(Refusal, match=r"sensorveil\[federated\]"):
        balance(sample([20, 5]), 10, 1)


def test_uneven_classes_have_the_ratio_and_differ_between_people():
    shares = set()
    for seed in range(12):
        _, classes, _ = unbalance(sample([30, 30, 30, 30]), 9.0, 90, seed)
        counts = np.bincount(classes, minlength=4)
        assert sorted(counts) == [10, 10, 90, 90]
        shares.add(tuple(counts == 90))
    assert len(shares) > 2
