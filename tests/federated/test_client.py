"""Clients: what they draw, and that a federation of one is central training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sensorveil.errors import Refusal
from sensorveil.federated.client import (
    ClientData,
    Trainee,
    at,
    client_updates,
    draw_task,
    labelled_windows,
    people_of,
)
from sensorveil.federated.in_process import InProcess
from sensorveil.federated.plan import Plan
from sensorveil.federated.rounds import run_rounds
from sensorveil.federated.server import State
from sensorveil.nets.blinder import BlinderNets
from sensorveil.nets.meta import meta_gradient


@pytest.fixture(scope="module")
def client(obfuscator, windows, plan):
    return ClientData.of(obfuscator, people_of(windows)[2], plan, 2)


def test_each_client_is_one_person(windows):
    people = people_of(windows)
    assert sorted(people) == [0, 1, 2, 3]
    for person, own in people.items():
        assert set(own.subject) == {person}
    assert sum(len(own) for own in people.values()) == len(windows)


def test_data_is_in_the_runs_units(obfuscator, windows, client):
    own = people_of(windows)[2].scaled(obfuscator.scaling_).signal
    np.testing.assert_array_equal(client.windows.numpy(), own)
    assert set(client.hidden[:, 0].tolist()) == {1}


def test_an_epoch_goes_through_all_windows_once(obfuscator, client, plan):
    trainee = Trainee.of(obfuscator)  # 24 windows, batches of 8, 3 rounds an epoch
    for epoch in (0, 1):
        tasks = [draw_task(client, trainee, plan, 2, 3 * epoch + r) for r in range(3)]
        seen = torch.cat([torch.cat([t.support.windows, t.query.windows]) for t in tasks])
        assert len(torch.unique(seen, dim=0)) == 24
    orders = [draw_task(client, trainee, plan, 2, number).query.windows for number in (0, 3)]
    assert not torch.equal(*orders)


def test_no_batch_holds_a_window_twice(obfuscator, client, plan):
    trainee, odd = Trainee.of(obfuscator), replace(plan, support=3, query=7, rounds=9)  # 24 windows
    for number in range(9):
        task = draw_task(client, trainee, odd, 2, number)
        both = torch.cat([task.support.windows, task.query.windows])
        assert len(torch.unique(both, dim=0)) == 10


def test_shadows_are_of_another_class(obfuscator, client, plan):
    task = draw_task(client, Trainee.of(obfuscator), replace(plan, support=5, query=3), 2, 0)
    assert (task.support.hidden * task.other).sum() == 0
    assert (task.other.sum(1) == 1).all()


def test_draws_follow_from_seed_client_and_round(obfuscator, client, plan):
    trainee = Trainee.of(obfuscator)

    def noise(plan: Plan = plan, who: int = 2, number: int = 1) -> torch.Tensor:
        return draw_task(client, trainee, plan, who, number).query.noise

    assert torch.equal(noise(), noise())
    for other in (noise(replace(plan, seed=4)), noise(who=1), noise(number=2)):
        assert not torch.equal(noise(), other)


def test_beta_and_gamma_grow_over_the_first_rounds(obfuscator, client, plan):
    trainee, growing = Trainee.of(obfuscator), replace(plan, warm_up=0.5)  # 6 rounds
    warmths = [float(draw_task(client, trainee, growing, 2, n).warmth) for n in range(6)]
    assert warmths == pytest.approx([0, 1 / 3, 2 / 3, 1, 1, 1])
    quiet = replace(trainee, scale=replace(trainee.scale, beta=0.0, gamma=0.0))
    vector = obfuscator.weights()
    cold = client_updates(
        trainee, vector, at(labelled_windows(client, trainee, growing, 2, 0), None), plan, 1
    )
    none = client_updates(
        quiet, vector, at(labelled_windows(client, quiet, plan, 2, 0), None), plan, 1
    )
    torch.testing.assert_close(cold, none)


def test_updates_at_once_are_updates_one_by_one(obfuscator, windows, plan):
    trainee, vector = Trainee.of(obfuscator), obfuscator.weights()
    data = {p: ClientData.of(obfuscator, own, plan, p) for p, own in people_of(windows).items()}
    for how in (plan, replace(plan, sends="changes", local_steps=3)):
        together = InProcess(trainee, data, how).ask(vector, 0, [3, 0, 2])
        assert [answer.client for answer in together] == [3, 0, 2]
        for answer in together:
            tasks = at(labelled_windows(data[answer.client], trainee, how, answer.client, 0), None)
            alone = client_updates(trainee, vector, tasks, how, how.rate)[0]
            torch.testing.assert_close(answer.update, alone, rtol=1e-3, atol=1e-5)


def test_a_gradient_is_the_meta_gradient_of_its_task(obfuscator, client, plan):
    trainee, vector = Trainee.of(obfuscator), obfuscator.weights()
    tasks = labelled_windows(client, trainee, plan, 2, 0)
    got = client_updates(trainee, vector, at(tasks, None), plan, plan.rate)[0]
    wanted = meta_gradient(
        vector, at(tasks, 0), trainee.nets, trainee.layout, plan.adapting(), trainee.scale
    )
    torch.testing.assert_close(got, wanted)


def test_one_client_without_a_local_step_is_central_training_step_by_step(
    obfuscator, windows, plan
):
    """Against plain autograd and torch's Adam on loss (4), over all rounds."""
    alone = replace(plan, inner_steps=0, share=1.0, support=0, query=8, rounds=4, epochs=3)
    one = windows.select(np.flatnonzero(windows.subject == 1))
    carrier = InProcess.of(obfuscator, one, alone)
    reached: list[torch.Tensor] = []
    run_rounds(
        State.fresh(obfuscator.weights()), alone, carrier, watch=lambda s: reached.append(s.vector)
    )
    nets = BlinderNets(obfuscator.nets_.design)
    nets.load_state_dict(obfuscator.nets_.state_dict())
    coder = [*nets.encoder.parameters(), *nets.decoder.parameters()]
    players = [coder, list(nets.discriminators.parameters())]
    adams = [torch.optim.Adam(own, lr=alone.rate) for own in players]
    assert len(reached) == 12
    for number, got in enumerate(reached):
        batch = draw_task(carrier.data[1], carrier.trainee, alone, 1, number).query
        mu, logvar = nets.encode(batch.windows)
        z = mu + torch.exp(logvar / 2) * batch.noise
        made = nets.decode(z, batch.hidden, batch.kept)
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        error = (made - batch.windows).square().mean()
        truth = batch.hidden.argmax(1)
        read = torch.nn.functional.cross_entropy(nets.discriminators[0](z), truth)
        against = (0.9 * 256 * error + 2 * kl) / 75 - 0.2 * read
        slopes = [
            torch.autograd.grad(loss, own, retain_graph=True)
            for loss, own in ((against, players[0]), (read, players[1]))
        ]
        for adam, own, slope in zip(adams, players, slopes, strict=True):
            for weight, one_slope in zip(own, slope, strict=True):
                weight.grad = one_slope
            adam.step()
        wanted = torch.cat([weight.detach().flatten() for weight in nets.parameters()])
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-6)


def test_too_few_windows_for_a_batch_are_refused(obfuscator, windows, plan):
    with pytest.raises(Refusal, match="client 7 has 3 windows; a batch takes 8"):
        ClientData.of(obfuscator, windows.select([0, 1, 2]), plan, 7)
