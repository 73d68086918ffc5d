"""Long trainings: they learn, they can be stopped and go on to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from sensorveil.errors import Refusal
from sensorveil.nets.averaging import AveragedWeights
from sensorveil.nets.courses import Checkpoint, TrainConfig, TrainingTarget, train

COURSE = TrainConfig(epochs=6, batch=16, rate=0.05)


class Stopped(Exception):
    """What a test stops a training with."""


def trained(
    checkpoint: Checkpoint | None = None, stop_in: int | None = None
) -> tuple[nn.Module, AveragedWeights, list[list[float]]]:
    """A network with dropout, its average, and a rival; it may be stopped in some epoch."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    rival, averaged = nn.Linear(1, 1), AveragedWeights(net, decay=0.9)
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    asked = [0]

    def loss(index: torch.Tensor) -> torch.Tensor:
        asked[0] += 1
        if stop_in is not None and asked[0] > 3 * stop_in + 1:  # three steps an epoch
            raise Stopped
        return (net(x[index]) - x[index].sum(1, keepdim=True)).square().mean()

    def rival_loss(index: torch.Tensor) -> torch.Tensor:
        return (rival(net(x[index]).detach()) + 1).square().mean()

    players = [
        TrainingTarget(net, loss, after=lambda: averaged.update(net)),
        TrainingTarget(rival, rival_loss),
    ]
    history = train("a course", players, 50, COURSE, 7, "cpu", checkpoint, averaged)
    return net, averaged, history


def test_losses_fall() -> None:
    _, _, (losses, rival) = trained()
    assert len(losses) == len(rival) == COURSE.epochs
    assert losses[-1] < 0.5 * losses[0]
    assert rival[-1] < rival[0]


@pytest.mark.parametrize("stop_in", [0, 1, 4])
def test_stopped_and_started_again_it_ends_the_same(stop_in: int, tmp_path: Path) -> None:
    net, averaged, history = trained()
    place = tmp_path / "unfinished"
    with pytest.raises(Stopped):
        trained(Checkpoint(place, seconds=0), stop_in)
    again, averaged_again, history_again = trained(Checkpoint(place, seconds=0))
    assert history_again == history
    for one, other in ((net, again), (averaged, averaged_again)):
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name


def test_it_goes_on_and_does_not_begin_again(tmp_path: Path) -> None:
    place = tmp_path / "unfinished"
    trained(Checkpoint(place, seconds=0))
    # All epochs are there: whoever asked for one more step would be stopped.
    trained(Checkpoint(place, seconds=0), stop_in=-1)


def test_too_soon_is_not_written(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "unfinished", seconds=1000)
    with pytest.raises(Stopped):
        trained(checkpoint, stop_in=4)
    assert not checkpoint.folder.exists()
    trained(checkpoint)
    assert sorted(one.name for one in checkpoint.folder.iterdir()) == [
        "a course.safetensors",
        "purpose.json",
    ]
    checkpoint.remove()
    assert not checkpoint.folder.exists()


def test_another_training_is_refused(tmp_path: Path) -> None:
    trained(Checkpoint(tmp_path / "unfinished", {"seed": 1}, seconds=0))
    with pytest.raises(Refusal, match="another training"):
        Checkpoint(tmp_path / "unfinished", {"seed": 2})


def test_nobody_elses_files_are_taken_away(tmp_path: Path) -> None:
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


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "unfinished", seconds=0)
    trained(checkpoint)
    (checkpoint.folder / "a course.safetensors").write_bytes(b"no tensors")
    with pytest.raises(Refusal, match="damaged"):
        trained(checkpoint)


def test_gradients_are_cut() -> None:
    net = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(net.weight)
    seen = []

    def loss(index: torch.Tensor) -> torch.Tensor:
        return 1e6 * net(torch.ones(len(index), 1)).mean()

    def after() -> None:
        assert net.weight.grad is not None
        seen.append(float(net.weight.grad.norm()))

    train("cut", [TrainingTarget(net, loss, after)], 4, TrainConfig(1, 2, 0.1, clip=0.5), seed=0)
    assert seen == pytest.approx([0.5, 0.5], rel=1e-4)
