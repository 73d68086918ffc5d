"""Gradients through adaptation: finite differences, first-order limits, the vector, Adam."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import vmap

from sensorveil.nets.blinder import (
    Batch,
    BlinderDesign,
    BlinderNets,
    LossWeights,
    both_losses,
    coder_loss,
    encoded,
    surprise,
)
from sensorveil.nets.meta import (
    Adapting,
    Layout,
    Moments,
    Task,
    adam_step,
    adapted,
    meta_gradient,
    meta_loss,
    with_shadows,
)
from sensorveil.train import seeded

DESIGN = BlinderDesign(channels=2, length=8, kept=2, hidden=(2, 3), widths=(6, 6, 5, 5), latent=3)
CONVOLUTIONAL = BlinderDesign(
    channels=2, length=8, kept=2, hidden=(2,), widths=(6, 6, 5, 5), filters=(3, 4), latent=3
)
SCALE = LossWeights()
STRONG = Adapting(steps=2, rate=0.3, reader_steps=3)  # so that the second order is felt


def nets_of(design: BlinderDesign) -> BlinderNets:
    with seeded(3):
        return BlinderNets(design).double()


def batch_of(count: int, seed: int, design: BlinderDesign) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def classes(size: int) -> torch.Tensor:
        return torch.eye(size)[torch.randint(size, (count,), generator=generator)].double()

    return Batch(
        torch.randn(count, design.channels, design.length, generator=generator).double(),
        classes(design.kept),
        torch.cat([classes(size) for size in design.hidden], dim=1),
        torch.randn(count, design.latent, generator=generator).double(),
    )


def task_of(seed: int, design: BlinderDesign = DESIGN) -> Task:
    support, query = batch_of(2, seed, design), batch_of(5, seed + 100, design)
    generator = torch.Generator().manual_seed(seed + 200)
    noise = torch.randn(3, 2, design.latent, generator=generator).double()
    other = batch_of(2, seed + 300, design).hidden
    return Task(support, other, noise, query, torch.tensor(1.0))


@pytest.mark.parametrize("design", [DESIGN, CONVOLUTIONAL], ids=["dense", "convolutional"])
def test_second_order_gradients_agree_with_finite_differences(design):
    """Of the coder's loss through the coder's steps, and of the discriminators' through theirs.

    A player's gradient takes the other as fixed, so the differences replay its trajectory by hand
    while the other's is recorded and does not move.
    """
    nets = nets_of(design)
    layout, task = Layout(nets), task_of(1, design)
    vector = layout.vector(nets)
    got = meta_gradient(vector, task, nets, layout, STRONG, SCALE)
    coders, readers = recorded(nets, layout, vector, task)
    generator = torch.Generator().manual_seed(0)
    for first, size, replay in (
        (0, layout.coder_size, lambda v: replayed_coder(nets, layout, v, readers, task)),
        (
            layout.coder_size,
            layout.reader_size,
            lambda v: replayed_readers(nets, layout, v, coders, task),
        ),
    ):
        start = vector[first : first + size]
        for _ in range(4):
            way = torch.randn(size, generator=generator).double()
            way /= way.norm()
            step = 1e-5
            slope = (replay(start + step * way) - replay(start - step * way)) / (2 * step)
            torch.testing.assert_close(got[first : first + size] @ way, slope, rtol=2e-6, atol=1e-8)
    first_order = meta_first_order(nets, layout, vector, task)
    assert (got - first_order).norm() > 1e-2 * got.norm()  # the second order was really tested


def slope(value, at):
    return torch.autograd.grad(value, at)[0]


def reading(nets, readers, layout, z, hidden):
    return surprise(nets, layout.readers(readers), z, hidden)


def coder_value(nets, layout, coder, readers, batch):
    return coder_loss(nets, layout.coder(coder), layout.readers(readers), batch, SCALE)


def recorded(nets, layout, vector, task):
    """Both trajectories by plain first-order steps: the coder before, the readers after each."""
    coder, readers = (part.clone() for part in layout.players(vector))
    coders, reader_states = [coder], []
    for _ in range(STRONG.steps):
        z, hidden = (part.detach() for part in with_shadows(nets, layout.coder(coder), task))
        readers = reader_steps(nets, layout, readers, z, hidden)
        moving = coder.clone().requires_grad_()
        coder = coder - STRONG.rate * slope(
            coder_value(nets, layout, moving, readers, task.support), moving
        )
        reader_states.append(readers)
        coders.append(coder)
    return coders, reader_states


def reader_steps(nets, layout, readers, z, hidden):
    for _ in range(STRONG.reader_steps):
        moving = readers.clone().requires_grad_()
        readers = readers - STRONG.rate * slope(reading(nets, moving, layout, z, hidden), moving)
    return readers


def replayed_coder(nets, layout, coder, reader_states, task):
    for readers in reader_states:
        moving = coder.clone().requires_grad_()
        coder = coder - STRONG.rate * slope(
            coder_value(nets, layout, moving, readers, task.support), moving
        )
    return coder_value(nets, layout, coder, reader_states[-1], task.query).detach()


def replayed_readers(nets, layout, readers, coders, task):
    for coder in coders[:-1]:
        z, hidden = (part.detach() for part in with_shadows(nets, layout.coder(coder), task))
        readers = reader_steps(nets, layout, readers, z, hidden)
    mu, logvar = encoded(nets, layout.coder(coders[-1]), task.query.windows)
    z = mu + torch.exp(logvar / 2) * task.query.noise
    return reading(nets, readers, layout, z, task.query.hidden).detach()


def meta_first_order(nets, layout, vector, task):
    """The gradient on the query set at the adapted weights: what MAML of first order sends."""
    there = adapted(nets, *layout.by_player(vector), task, STRONG, SCALE)
    at = layout.joined(*there).detach().requires_grad_()
    named = layout.named(at)
    return slope(both_losses(nets, named, named, task.query, SCALE), at)


def test_without_a_step_it_is_the_plain_gradient():
    nets = nets_of(DESIGN)
    layout, task = Layout(nets), task_of(2)
    got = meta_gradient(layout.vector(nets), task, nets, layout, Adapting(steps=0), SCALE)
    own = dict(nets.named_parameters())
    both_losses(nets, own, own, task.query, SCALE).backward()
    wanted = torch.cat([weight.grad.flatten() for weight in nets.parameters()])
    torch.testing.assert_close(got, wanted)


def test_clients_at_once_are_clients_one_by_one():
    nets = nets_of(CONVOLUTIONAL)
    layout = Layout(nets)
    vector = layout.vector(nets)
    tasks = [task_of(seed, CONVOLUTIONAL) for seed in (4, 5, 6)]
    parts = [torch.stack(part) for part in zip(*(flat(task) for task in tasks), strict=True)]
    together = vmap(lambda *part: meta_gradient(vector, unflat(part), nets, layout, STRONG, SCALE))(
        *parts
    )
    for task, got in zip(tasks, together, strict=True):
        alone = meta_gradient(vector, task, nets, layout, STRONG, SCALE)
        torch.testing.assert_close(got, alone)


def flat(task):
    return (*task.support, task.other, task.noise, *task.query, task.warmth)


def unflat(parts):
    return Task(Batch(*parts[:4]), parts[4], parts[5], Batch(*parts[6:10]), parts[10])


def test_shadows_bring_the_other_class_and_only_change_the_discriminators():
    nets = nets_of(DESIGN)
    layout, task = Layout(nets), task_of(7)
    vector = layout.vector(nets)
    z, hidden = with_shadows(nets, layout.named(vector), task)
    assert z.shape == (4, DESIGN.latent)
    assert torch.equal(hidden, torch.cat([task.support.hidden, task.other]))
    mu, logvar = nets.encode(task.support.windows)
    torch.testing.assert_close(z[:2], (mu + torch.exp(logvar / 2) * task.noise[1]).detach())
    with_them, without = (
        adapted(nets, *layout.by_player(vector), task, Adapting(1, 0.1, 1, shadows), SCALE)[1]
        for shadows in (True, False)
    )
    assert all((with_them[name] != own).any() for name, own in without.items())


def test_adapting_brings_the_loss_on_the_support_down():
    nets = nets_of(DESIGN)
    layout, task = Layout(nets), task_of(8)
    players = layout.by_player(layout.vector(nets))
    same = task._replace(query=task.support)
    quiet = LossWeights(gamma=0.0)
    values = [
        float(meta_loss(*players, same, nets, Adapting(n, 0.01, 1, False), quiet))
        for n in (0, 5, 20)
    ]
    assert values[0] > values[1] > values[2]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=6, max_size=6), st.floats(1e-4, 0.5))
def test_adam_is_torchs(numbers, rate):
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    vector, moments = weight.detach().clone(), Moments.at_rest(weight.detach())
    theirs = torch.optim.Adam([weight], lr=rate)
    for step, gradient in enumerate(torch.tensor(numbers).double().view(3, 2), start=1):
        weight.grad = gradient.clone()
        theirs.step()
        vector, moments = adam_step(vector, gradient, moments, step, rate)
    torch.testing.assert_close(vector, weight.detach(), rtol=1e-9, atol=1e-12)
