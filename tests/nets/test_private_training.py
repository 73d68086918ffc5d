"""DP-SGD: gradients one by one, clipping, the noise that the accountant assumes, and its sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from sensorveil.diffusion.features import FeatureNet, FeatureSettings
from sensorveil.errors import Refusal
from sensorveil.nets import private_training
from sensorveil.nets.csi import CsiTransformer, Repair, TransformerSettings
from sensorveil.nets.private_training import (
    PrivateCourse,
    PrivateSteps,
    Spent,
    epsilon,
    secret_generator,
    train_privately,
)

COURSE = PrivateCourse(steps=10, lot=4, rate=1e-3, noise=1.0, clip=1.0)


def stirred(net: nn.Module) -> nn.Module:
    """All weights drawn: those that begin at zero would hide the gradients of others."""
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.randn(weight.shape, generator=chance) * 0.3)
    return net


def generator_losses() -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
    net = stirred(CsiTransformer(3, (2, 3), TransformerSettings(8, 2, 2, patch=4)))
    chance = torch.Generator().manual_seed(1)
    x, target = torch.randn(2, 12, 6, 18, generator=chance)
    t = torch.randint(200, (12,), generator=chance)
    told = torch.rand(12, 5, generator=chance)
    return net, lambda i: (net(x[i], t[i], told[i]) - target[i]).square().mean((1, 2))


def repair_losses() -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
    net = stirred(Repair(6, 8))
    x, target = torch.randn(2, 12, 6, 18, generator=torch.Generator().manual_seed(1))
    return net, lambda i: (net(x[i]) - target[i]).square().mean((1, 2))


def reader_losses() -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
    settings = FeatureSettings(channels=(4, 8), dense=(16,), kernels=1)
    net = stirred(FeatureNet((6, 18), (2, 3), settings))
    x = torch.randn(12, 6, 18, generator=torch.Generator().manual_seed(1))
    return net, lambda i: torch.stack([one.square().sum(1) for one in net(x[i])[1]]).sum(0)


class Watch:
    """Keeps each unit's gradient, unclipped, and the noisy ones of each step."""

    def __init__(self) -> None:
        self.rows: list[torch.Tensor] = []
        self.seen: list[list[torch.Tensor]] = []

    def plant(self, parameters: list[nn.Parameter], chance: float) -> None:
        self.chance = chance
        self.rows = [one.grad_sample.clone() for one in parameters]

    def observe(self, parameters: list[nn.Parameter]) -> None:
        self.seen.append([one.grad.clone() for one in parameters])


@pytest.mark.parametrize("made", [generator_losses, repair_losses, reader_losses])
@pytest.mark.parametrize("each", [1, 3])
def test_gradients_agree_with_those_of_one_unit_at_a_time(made: Callable, each: int) -> None:
    net, losses = made()
    names = [name for name, _ in net.named_parameters()]
    owners = torch.arange(12) // each
    course = PrivateCourse(steps=1, lot=99, rate=0.0, noise=1.0, clip=1.0, each=each)
    watch = Watch()
    steps = PrivateSteps(net, losses, owners, course, secret_generator("cpu", 0), watch)
    windows = steps.draw()
    assert windows.shape == (12 // each, each)  # with so large a lot, everybody is drawn
    steps.take(windows)
    steps.close()
    for unit, own in enumerate(windows):
        wanted = torch.autograd.grad(losses(own).mean(), list(net.parameters()))
        for name, row, gradient in zip(names, watch.rows, wanted, strict=True):
            # A bias that all keys share changes no softmax, unless places turn it.
            silent = "cross_attention.key" in name and name.endswith("bias")
            assert silent or float(gradient.abs().max()) > 1e-4, f"{name}: nothing to compare"
            torch.testing.assert_close(row[unit], gradient, atol=1e-5, rtol=1e-5)


def test_only_what_may_change_is_changed() -> None:
    net, losses = generator_losses()
    net.requires_grad_(False)
    net.embedding.requires_grad_(True)
    before = {name: weight.clone() for name, weight in net.named_parameters()}
    train_privately(net, losses, torch.arange(12), COURSE, secret_generator("cpu", 0), what="")
    for name, weight in net.named_parameters():
        assert torch.equal(weight, before[name]) != name.startswith("embedding"), name


def noises(clip: float, noise: float, count: int) -> list[list[torch.Tensor]]:
    """The noisy gradients of a loss that is the same whatever the weights, at each step."""
    net, losses = generator_losses()
    watch = Watch()
    course = PrivateCourse(count, lot=6, rate=1e-3, noise=noise, clip=clip)
    train_privately(
        net,
        lambda index: 0 * losses(index),
        torch.arange(12),
        course,
        secret_generator("cpu", 3),
        what="",
        canaries=watch,
    )
    assert watch.chance == 6 / 12  # canaries are told how likely a unit is drawn
    return watch.seen


def test_the_noise_is_what_the_accountant_assumes() -> None:
    """C sigma / B in each real number (equation 5), for every parameter, anew at every step."""
    clip, noise, expected = 0.5, 3.0, 6
    seen = noises(clip, noise, count=40)
    unit = clip * noise / expected
    for which in range(len(seen[0])):
        drawn = torch.stack([step[which].flatten() for step in seen]) / unit
        wide = 5 / math.sqrt(drawn.numel())  # five standard errors of the mean
        assert abs(float(drawn.mean())) < wide
        assert abs(float(drawn.std()) - 1) < wide
        together = (drawn[1:] * drawn[:-1]).mean()
        assert abs(float(together)) < wide * 1.1
    flat = torch.stack([torch.cat([one.flatten() for one in step]) for step in seen]) / unit
    assert abs(float((flat[:, 1:] * flat[:, :-1]).mean())) < 5 / math.sqrt(flat.numel())
    share = float((flat.abs() < 1).double().mean())  # and it is normal
    assert share == pytest.approx(0.6827, abs=5 * math.sqrt(0.25 / flat.numel()))


def test_each_unit_is_clipped_to_one_length() -> None:
    net = nn.Linear(3, 1, bias=False)
    far = torch.tensor([[1e6, 0.0, 0.0], [0.0, 1e-2, 0.0]])
    watch = Watch()
    course = PrivateCourse(1, lot=2, rate=0.0, noise=1e-9, clip=0.25)
    train_privately(
        net,
        lambda index: net(far[index])[:, 0],
        torch.arange(2),
        course,
        secret_generator("cpu", 0),
        what="",
        canaries=watch,
    )
    ((found,),) = watch.seen
    wanted = torch.tensor([[0.25, 1e-2, 0.0]]) / 2
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-4)


def steps_of(owners: list[int], course: PrivateCourse) -> PrivateSteps:
    net = nn.Linear(1, 1)
    secret = secret_generator("cpu", 5)
    losses = lambda index: net(index[:, None].float())[:, 0]  # noqa: E731
    return PrivateSteps(net, losses, torch.tensor(owners), course, secret)


def test_every_unit_is_drawn_by_itself_with_the_same_chance() -> None:
    steps = steps_of(list(range(20)), COURSE)
    assert steps.chance == 0.2
    drawn = torch.zeros(800, 20)
    for row in drawn:
        row[steps.draw().flatten()] = 1
    assert float(drawn.mean()) == pytest.approx(0.2, abs=5 * math.sqrt(0.16 / drawn.numel()))
    assert (drawn.mean(0) - 0.2).abs().max() < 5 * math.sqrt(0.16 / 800)
    # The number drawn varies as that of independent draws does, unlike that of a shuffled batch.
    assert float(drawn.sum(1).var()) == pytest.approx(20 * 0.16, rel=0.25)


def test_a_person_gives_own_windows_alone() -> None:
    owners = [7, 3, 7, 7, 3, 9]
    steps = steps_of(owners, PrivateCourse(1, lot=2, rate=0.1, noise=1.0, clip=1.0, each=4))
    assert steps.chance == pytest.approx(2 / 3)
    seen: dict[int, set[int]] = {3: set(), 7: set(), 9: set()}
    for _ in range(100):
        for unit in steps.draw():
            (owner,) = {owners[window] for window in unit.tolist()}
            seen[owner] |= set(unit.tolist())
    assert seen == {3: {1, 4}, 7: {0, 2, 3}, 9: {5}}


def test_nobody_drawn_is_noise_alone() -> None:
    net, losses = repair_losses()
    watch = Watch()
    steps = PrivateSteps(net, losses, torch.arange(12), COURSE, secret_generator("cpu", 0), watch)
    steps.take(torch.zeros(0, 1, dtype=torch.long))
    assert all(len(rows) == 0 for rows in watch.rows)
    assert steps.spent == Spent(1.0, 4 / 12, 1)
    assert min(float(weight.grad.abs().max()) for weight in net.parameters()) > 0
    steps.close()


def test_afterwards_the_network_is_an_ordinary_one() -> None:
    net, losses = repair_losses()
    train_privately(net, losses, torch.arange(12), COURSE, secret_generator("cpu", 0), what="")
    losses(torch.arange(3)).sum().backward()
    for weight in net.parameters():
        assert weight.grad is not None
        assert not hasattr(weight, "grad_sample")


def test_the_secret_decides() -> None:
    def end(seed: int | None) -> torch.Tensor:
        net, losses = repair_losses()
        generator = secret_generator("cpu", seed)
        train_privately(net, losses, torch.arange(12), COURSE, generator, what="")
        return torch.cat([weight.detach().flatten() for weight in net.parameters()])

    assert torch.equal(end(1), end(1))
    assert not torch.equal(end(1), end(2))
    assert not torch.equal(end(None), end(None))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The exact delta of a Gaussian mechanism of sensitivity mu (Balle and Wang 2018)."""

    def below(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    return below(mu / 2 - epsilon / mu) - math.exp(epsilon) * below(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("noise", "steps"), [(10.0, 16), (4.0, 16), (2.0, 1)])
def test_without_subsampling_epsilon_is_that_of_one_gaussian(noise: float, steps: int) -> None:
    found = epsilon([Spent(noise, 1.0, steps)], delta=1e-5)
    mu = math.sqrt(steps) / noise
    assert gaussian_delta(found, mu) <= 1e-5  # never too small
    assert gaussian_delta(found - 0.03, mu) > 1e-5  # and hardly too large


def test_trainings_add_up_and_chance_helps() -> None:
    one, two = Spent(2.0, 0.05, 10), Spent(2.0, 0.05, 30)
    together = epsilon([one, two], 1e-5)
    assert together == pytest.approx(epsilon([Spent(2.0, 0.05, 40)], 1e-5), abs=0.03)
    assert epsilon([one], 1e-5) < together < epsilon([Spent(2.0, 1.0, 40)], 1e-5)
    assert epsilon([Spent(1.0, 0.05, 0)], 1e-5) == 0


def test_without_opacus_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_training, "find_spec", lambda name: None)
    with pytest.raises(Refusal, match=r"sensorveil\[dp\]"):
        epsilon([], 1e-5)
    with pytest.raises(Refusal, match=r"sensorveil\[dp\]"):
        steps_of([0, 1], COURSE)
