"""How the CSI generator is trained: which weights each way moves, and what its losses are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from sensorveil.nets.csi import CsiTransformer, Repair, TransformerSettings
from sensorveil.nets.degradation import Degradation
from sensorveil.nets.generator_training import (
    Material,
    train_all_privately,
    train_hybrid,
    train_parts_privately,
    train_plainly,
)
from sensorveil.nets.private_training import PrivateCourse, Spent, secret_generator
from sensorveil.train import AveragedWeights, TrainConfig, seeded

COURSE = PrivateCourse(steps=8, lot=8, rate=5e-3, noise=0.5, clip=1.0)
OWNERS = torch.arange(32)


def waves(count: int = 32) -> torch.Tensor:
    """Two classes of turning pairs: slow and fast."""
    speed = 0.3 + 0.5 * (torch.arange(count) % 2)[:, None]
    angle = speed * torch.arange(16.0) + torch.arange(count)[:, None]
    return torch.stack([angle.cos(), angle.sin()], dim=1) * 2**0.5


def material(x: torch.Tensor, dropped: float = 0.1) -> Material:
    told = torch.eye(2)[torch.arange(len(x)) % 2]
    return Material(lambda index: x[index], told, Degradation.linear(16, 50, 1e-3, 0.2), dropped)


def nets() -> tuple[CsiTransformer, Repair]:
    """Small networks whose gates are open already, so that every weight has a gradient."""
    with seeded(0):
        net = CsiTransformer(1, (2,), TransformerSettings(8, 1, 2, patch=4))
        for name, weight in net.named_parameters():
            if not weight.any():
                nn.init.normal_(weight, std=0.1)
                assert name.split(".")[0] in ("blocks", "leave", "kept")
        return net, Repair(2, 4)


def moved(net: nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, w in net.named_parameters() if not torch.equal(w, before[name])}


def copied(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in net.named_parameters()}


def private_names(net: CsiTransformer) -> set[str]:
    private = {id(weight) for module in net.private_modules() for weight in module.parameters()}
    return {name for name, weight in net.named_parameters() if id(weight) in private}


def test_losses_are_squared_errors_of_the_clean_window() -> None:
    x, given = waves(), []

    def network(noisy: torch.Tensor, t: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        given.append((noisy, t, told))
        return torch.ones_like(noisy)

    some = material(x, dropped=0.5)
    index = torch.arange(20)
    with seeded(1):
        found = some.losses(network, index)
    torch.testing.assert_close(found, (x[:20] - 1).square().mean((1, 2)))
    ((noisy, t, told),) = given
    noise = some.degradation.noise[t].float().unsqueeze(1)
    drawn = (noisy - some.degradation.signal[t].float().unsqueeze(1) * x[:20]) / noise
    assert abs(float(drawn.std()) - 1) < 0.1
    assert 3 < int((told.sum(1) == 0).sum()) < 17
    assert len(t.unique()) > 10


def test_both_losses_are_of_the_same_restored_windows() -> None:
    x = waves()
    net, repair = nets()
    with seeded(2):
        plain, repaired = material(x).both_losses(net, repair, torch.arange(9))
    torch.testing.assert_close(plain, repaired)  # what begins by changing nothing


def test_plain_training_learns_and_averages() -> None:
    x = waves()
    net, _ = nets()
    averaged = AveragedWeights(net, 0.9)
    losses = train_plainly(net, material(x), TrainConfig(30, 16, 1e-2), 0, averaged)
    assert losses[-1] < 0.7 * losses[0]
    with seeded(3), torch.no_grad():
        assert float(material(x).losses(averaged.network, OWNERS).mean()) < 0.7 * losses[0]


def test_private_training_moves_everything_and_says_what_it_spent() -> None:
    net, _ = nets()
    before, averaged = copied(net), AveragedWeights(net, 0.5)
    spent = train_all_privately(
        net, material(waves()), OWNERS, COURSE, secret_generator("cpu", 0), averaged
    )
    assert spent == Spent(0.5, 0.25, 8)
    assert moved(net, before) == set(before)
    assert moved(averaged.network, before) == set(before)


def test_private_parts_are_attention_embedding_and_repair() -> None:
    net, repair = nets()
    before, blank = copied(net), copied(repair)
    spent = train_parts_privately(
        net, repair, material(waves()), OWNERS, COURSE, secret_generator("cpu", 0), 1.0
    )
    assert spent == Spent(0.5, 0.25, 8)
    assert moved(net, before) == private_names(net)
    assert moved(repair, blank) == set(blank)
    assert all(weight.requires_grad for weight in net.parameters())


def test_hybrid_training_moves_everything_and_repairs() -> None:
    net, repair = nets()
    before, blank = copied(net), copied(repair)
    course = PrivateCourse(steps=40, lot=16, rate=5e-3, noise=0.5, clip=1.0)
    some = material(waves())
    with seeded(4):
        train_hybrid(net, repair, some, OWNERS, course, secret_generator("cpu", 0), 2.0)
    assert moved(net, before) == set(before)
    assert moved(repair, blank) == set(blank)
    with seeded(5), torch.no_grad():
        plain, repaired = some.both_losses(net, repair, OWNERS)
    assert float(repaired.mean()) < float(plain.mean())


@pytest.mark.parametrize("weight", [0.0, 5.0])
@pytest.mark.parametrize("train", [train_hybrid, train_parts_privately])
def test_lambda_weighs_the_repairing_loss(train: Callable[..., object], weight: float) -> None:
    """Without it, theta goes by the generator's own loss, whatever phi is."""

    def ends(factor: float) -> torch.Tensor:
        net, repair = nets()
        with torch.no_grad():
            repair.second.bias.fill_(factor)
        with seeded(6):
            train(
                net, repair, material(waves()), OWNERS, COURSE, secret_generator("cpu", 1), weight
            )
        return torch.cat([one.detach().flatten() for one in net.parameters()])

    assert torch.equal(ends(0.0), ends(1.0)) == (weight == 0)


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_a_private_step_takes_both_losses(weight: float) -> None:
    """One step with hardly any noise, and no clipping: the gradient of the sum of equation (18)."""
    net, repair = nets()
    some, seen = material(waves()), []

    class Watch:
        def plant(self, parameters: Sequence[nn.Parameter], chance: float) -> None:
            assert chance == 1

        def observe(self, parameters: Sequence[nn.Parameter]) -> None:
            seen.append(torch.cat([one.grad.flatten() for one in parameters]))

    course = PrivateCourse(steps=1, lot=32, rate=0.0, noise=1e-9, clip=1e6)
    with seeded(8):
        train_parts_privately(
            net, repair, some, OWNERS, course, secret_generator("cpu", 1), weight, Watch()
        )
    trained = [one for name, one in net.named_parameters() if name in private_names(net)]
    with seeded(8):
        diffusion, denoising = some.both_losses(net, repair, OWNERS)
    wanted = torch.autograd.grad(
        (diffusion + weight * denoising).mean(), [*trained, *repair.parameters()]
    )
    torch.testing.assert_close(
        seen[0], torch.cat([one.flatten() for one in wanted]), atol=3e-4, rtol=1e-3
    )


def test_overwhelming_noise_leaves_no_trace_of_the_windows() -> None:
    """But for the hybrid training as published: its other updates saw them without any."""
    loud = PrivateCourse(steps=8, lot=8, rate=5e-3, noise=1e7, clip=1.0)

    def ends(x: torch.Tensor, hybrid: bool) -> torch.Tensor:
        net, repair = nets()
        train = train_hybrid if hybrid else train_parts_privately
        with seeded(7):
            train(net, repair, material(x), OWNERS, loud, secret_generator("cpu", 2), 1.0)
        weights = [*net.parameters(), *repair.parameters()]
        return torch.cat([weight.detach().flatten() for weight in weights])

    x, other = waves(), 3 * waves().flip(2) + 1
    torch.testing.assert_close(ends(x, False), ends(other, False), atol=1e-4, rtol=0)
    assert float((ends(x, True) - ends(other, True)).abs().max()) > 1e-2
