"""Central training: Adam on both players, one step a batch, as by hand."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from sensorveil.nets.blinder import BlinderDesign, BlinderNets, LossWeights
from sensorveil.nets.blinder_training import Training, train_blinder
from sensorveil.nets.training import one_cycle, set_rate
from sensorveil.train import seeded

DESIGN = BlinderDesign(channels=1, length=8, kept=2, hidden=(2,), widths=(8, 8, 6, 6), latent=3)


def some_data():
    generator = torch.Generator().manual_seed(1)
    classes = torch.randint(2, (2, 20), generator=generator)
    kept, hidden = (torch.eye(2)[codes] for codes in classes)
    return torch.randn(20, 1, 8, generator=generator), kept, hidden


def fresh() -> BlinderNets:
    with seeded(2):
        return BlinderNets(DESIGN)


@pytest.mark.parametrize(("cycle", "warm_up"), [(False, 0.0), (True, 0.5)])
def test_it_is_adam_on_losses_3_and_4(cycle, warm_up):
    data = some_data()
    training = Training(epochs=2, batch=6, rate=1e-2, cycle=cycle, warm_up=warm_up)
    trained = fresh()
    losses = train_blinder(
        trained,
        lambda index: tuple(part[index] for part in data),
        20,
        training,
        LossWeights(),
        torch.Generator().manual_seed(5),
    )
    assert len(losses) == 2
    nets, generator = fresh(), torch.Generator().manual_seed(5)
    coder = [*nets.encoder.parameters(), *nets.decoder.parameters()]
    readers = list(nets.discriminators.parameters())
    adams = [torch.optim.Adam(own, lr=1e-2) for own in (coder, readers)]
    rates = [1e-2 * one_cycle(step / 6) for step in range(6)] if cycle else [1e-2] * 6
    warmths = [0, 1 / 3, 2 / 3, 1, 1, 1] if warm_up else [1] * 6
    for _ in range(2):
        order = torch.randperm(20, generator=generator)[:18]
        drawn = torch.randn(3, 6, 3, generator=generator)
        for index, noise in zip(order.view(3, 6), drawn, strict=True):
            windows, kept, hidden = (part[index] for part in data)
            mu, logvar = nets.encode(windows)
            z = mu + torch.exp(logvar / 2) * noise
            error = (nets.decode(z, hidden, kept) - windows).square().mean()
            kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
            read = cross_entropy(nets.discriminators[0](z), hidden)
            warm = warmths.pop(0)
            loss = (0.9 * 256 * error + 2 * warm * kl) / 75 - 0.2 * warm * read
            slopes = torch.autograd.grad(loss, coder, retain_graph=True)
            reading = torch.autograd.grad(read, readers)
            for weight, slope in zip([*coder, *readers], [*slopes, *reading], strict=True):
                weight.grad = slope
            rate = rates.pop(0)
            for adam in adams:
                set_rate(adam, rate)
                adam.step()
    for got, wanted in zip(trained.parameters(), nets.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)


def test_a_batch_is_never_larger_than_the_data():
    data = some_data()
    losses = train_blinder(
        fresh(),
        lambda index: tuple(part[index] for part in data),
        20,
        Training(epochs=30, batch=500, rate=1e-2),
        LossWeights(gamma=0.0),
        torch.Generator().manual_seed(5),
    )
    assert losses[-1] < losses[0]
