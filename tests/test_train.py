"""The training loop: it learns, stops early, resumes to the bit; averaged weights and the cycle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sensorveil.errors import Refusal
from sensorveil.train import (
    AveragedWeights,
    Checkpoint,
    TrainConfig,
    TrainingTarget,
    one_cycle,
    seeded,
    train,
    train_network,
)

CONFIG = TrainConfig(epochs=6, batch_size=16, learning_rate=0.05)


class Stopped(Exception):
    """What a test stops a training with."""


def trained(
    checkpoint: Checkpoint | None = None, stop_in: int | None = None
) -> tuple[nn.Module, AveragedWeights, list[list[float]]]:
    """A network with dropout, its average, and a adversary; it may be stopped in some epoch."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    adversary, averaged = nn.Linear(1, 1), AveragedWeights(net, decay=0.9)
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    asked = [0]

    def loss(index: torch.Tensor) -> torch.Tensor:
        asked[0] += 1
        if stop_in is not None and asked[0] > 3 * stop_in + 1:  # three steps an epoch
            raise Stopped
        return (net(x[index]) - x[index].sum(1, keepdim=True)).square().mean()

    def adversary_loss(index: torch.Tensor) -> torch.Tensor:
        return (adversary(net(x[index]).detach()) + 1).square().mean()

    targets = [
        TrainingTarget(net, loss, after_step=lambda: averaged.update(net)),
        TrainingTarget(adversary, adversary_loss),
    ]
    history = train("stage", targets, 50, CONFIG, 7, "cpu", checkpoint, extra_state=averaged)
    return net, averaged, history


@pytest.mark.parametrize("stop_in", [0, 1, 4])
def test_resumed_training_ends_with_the_same_weights(stop_in: int, tmp_path: Path) -> None:
    net, averaged, history = trained()
    place = tmp_path / "unfinished"
    with pytest.raises(Stopped):
        trained(Checkpoint(place, seconds=0), stop_in)
    again, averaged_again, history_again = trained(Checkpoint(place, seconds=0))
    assert history_again == history
    assert [losses[-1] < losses[0] for losses in history] == [True, True]
    # All epochs are there: an attempt to take one more step would stop it.
    trained(Checkpoint(place, seconds=0), stop_in=-1)
    for one, other in ((net, again), (averaged, averaged_again)):
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name


def test_checkpoint_waits_between_writes(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "unfinished", seconds=1000)
    with pytest.raises(Stopped):
        trained(checkpoint, stop_in=4)
    assert not checkpoint.folder.exists()
    trained(checkpoint)
    assert sorted(one.name for one in checkpoint.folder.iterdir()) == [
        "purpose.json",
        "stage.safetensors",
    ]
    checkpoint.remove()
    assert not checkpoint.folder.exists()


def test_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    trained(Checkpoint(tmp_path / "unfinished", {"seed": 1}, seconds=0))
    with pytest.raises(Refusal, match="another training"):
        Checkpoint(tmp_path / "unfinished", {"seed": 2})


def test_remove_leaves_other_files(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "unfinished", seconds=0)
    trained(checkpoint)
    (checkpoint.folder / "notes.txt").write_text("mine", "utf-8")
    checkpoint.remove()
    assert [one.name for one in checkpoint.folder.iterdir()] == ["notes.txt"]
    with pytest.raises(Refusal, match="another training"):
        Checkpoint(checkpoint.folder)
    (tmp_path / "a file").write_text("mine", "utf-8")
    with pytest.raises(Refusal, match="another training"):
        Checkpoint(tmp_path / "a file")


def test_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "unfinished", seconds=0)
    trained(checkpoint)
    (checkpoint.folder / "stage.safetensors").write_bytes(b"no tensors")
    with pytest.raises(Refusal, match="damaged"):
        trained(checkpoint)


def test_gradients_are_clipped() -> None:
    net = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(net.weight)
    seen = []

    def loss(index: torch.Tensor) -> torch.Tensor:
        return 1e6 * net(torch.ones(len(index), 1)).mean()

    def after() -> None:
        assert net.weight.grad is not None
        seen.append(float(net.weight.grad.norm()))

    train(
        "cut",
        [TrainingTarget(net, loss, after)],
        4,
        TrainConfig(1, 2, 0.1, max_grad_norm=0.5),
        seed=0,
    )
    assert seen == pytest.approx([0.5, 0.5], rel=1e-4)


def test_early_stopping_restores_the_best_weights() -> None:
    network = nn.Linear(1, 1, bias=False)
    validation = iter([3.0, 1.0, 2.0, 2.0, 0.0])
    seen: list[float] = []

    def validate() -> float:
        seen.append(network.weight.item())
        return next(validation)

    config = TrainConfig(10, 4, 0.1, patience=2)
    loss = lambda index: network(torch.ones(len(index), 1)).mean()  # noqa: E731
    losses = train_network("stage", network, loss, 8, config, seed=0, validate=validate)
    assert len(losses) == 4  # the fifth epoch would have been the best one
    assert network.weight.item() == seen[1]


def test_repeats_and_hooks_run_in_order() -> None:
    events: list[str] = []

    def target(name: str, repeats: int) -> TrainingTarget:
        network = nn.Linear(1, 1)

        def loss(index: torch.Tensor) -> torch.Tensor:
            events.append(name)
            return network(torch.ones(len(index), 1)).mean()

        return TrainingTarget(network, loss, repeats=repeats)

    shares: list[float] = []
    train(
        "stage",
        [target("a", 2), target("b", 1)],
        4,
        TrainConfig(2, 2, 0.1),
        seed=0,
        on_epoch=lambda epoch: events.append(str(epoch)),
        on_step=shares.append,
    )
    assert "".join(events) == "0aabaab1aabaab"
    assert shares == [0.0, 0.25, 0.5, 0.75]


def test_an_adversary_gets_no_gradient_from_the_other_loss() -> None:
    coder, adversary = nn.Linear(1, 1), nn.Linear(1, 1)
    before = adversary.weight.item()

    def loss(index: torch.Tensor) -> torch.Tensor:
        return adversary(coder(torch.ones(len(index), 1))).mean()

    train("stage", [TrainingTarget(coder, loss)], 4, TrainConfig(1, 2, 0.1), seed=0)
    assert adversary.weight.item() == before
    assert adversary.weight.grad is None


@pytest.mark.parametrize("count", [7, 10, 25])
def test_batches_are_whole_and_shuffled(count: int) -> None:
    network, shown = nn.Linear(1, 1), []

    def loss(index: torch.Tensor) -> torch.Tensor:
        shown.append(index.tolist())
        return network(torch.ones(len(index), 1)).mean()

    train_network("stage", network, loss, count, TrainConfig(6, 10, 0.1), seed=0)
    size = min(10, count)
    steps = count // size
    assert [len(batch) for batch in shown] == [size] * (6 * steps)
    for epoch in range(6):
        once = [place for batch in shown[epoch * steps : (epoch + 1) * steps] for place in batch]
        assert len(set(once)) == len(once)
    assert shown[0] != shown[steps]


def test_one_cycle_rises_then_falls() -> None:
    rates = np.array([one_cycle(share) for share in np.linspace(0, 1, 1001)])
    assert rates.argmax() == 300
    assert (np.diff(rates[:300]) > 0).all()
    assert (np.diff(rates[300:]) < 0).all()
    assert rates[-1] == pytest.approx(0)


def test_seeded_draws_do_not_touch_others() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with pytest.raises(ZeroDivisionError), seeded(1):
        torch.rand(int(1 / 0))
    assert (torch.rand(2) == expected).all()


def build() -> nn.Module:
    with seeded(0):
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def walk(net: nn.Module, generator: torch.Generator) -> None:
    """Moves all weights at random, and the buffers by reading some numbers."""
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator))
        net.train()(torch.randn(8, 3, generator=generator))


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_averaged_weights_have_the_closed_form(decay: float) -> None:
    """Each update's weights count with its share, times what all later updates keep."""
    net, generator = build(), torch.Generator().manual_seed(1)
    averaged = AveragedWeights(net, decay)
    met = [net[0].weight.detach().double().numpy().copy()]
    for _ in range(40):
        walk(net, generator)
        averaged.update(net)
        met.append(net[0].weight.detach().double().numpy().copy())
    kept = [min(decay, (1 + n) / (10 + n)) for n in range(40)]
    shares = [np.prod(kept)] + [(1 - kept[n]) * np.prod(kept[n + 1 :]) for n in range(40)]
    assert sum(shares) == pytest.approx(1)
    wanted = sum(share * weight for share, weight in zip(shares, met, strict=True))
    np.testing.assert_allclose(averaged.network[0].weight.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_buffers_are_copied_and_the_network_is_left_alone() -> None:
    net, generator = build(), torch.Generator().manual_seed(3)
    averaged = AveragedWeights(net)
    walk(net, generator)
    places = [value.data_ptr() for value in averaged.state_dict().values()]
    before = {name: value.clone() for name, value in net.state_dict().items()}
    averaged.update(net)
    # A recorded step knows weights by where they lie.
    assert places == [value.data_ptr() for value in averaged.state_dict().values()]
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(averaged.network[1].running_mean, net[1].running_mean)
    assert int(averaged.network[1].num_batches_tracked) == 1
    assert not torch.equal(averaged.network[0].weight, net[0].weight)
    assert not any(weight.requires_grad for weight in averaged.parameters())
    assert all(weight.requires_grad for weight in net.parameters())
