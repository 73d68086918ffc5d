"""Training: one cycle of the rate, whole batches, the same seed the same weights."""

from __future__ import annotations

import math
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sensorveil.nets.training import (
    AT_ONCE,
    Training,
    classifier_training,
    log_probabilities,
    one_cycle,
    side_by_side,
    train_classifier,
)
from sensorveil.progress import listen
from sensorveil.train import seeded


def trained(
    signal: torch.Tensor, labels: torch.Tensor, seed: int = 0, **rest: int | float
) -> tuple[nn.Module, list[float], list[list[int]]]:
    """A linear net, its losses, and the positions of every batch that it was shown."""
    shown: list[list[int]] = []

    def gather(index: torch.Tensor) -> torch.Tensor:
        shown.append(index.tolist())
        return signal[index]

    options = {"epochs": 5, "batch": 10, "rate": 0.05} | rest
    with seeded(seed):
        net = nn.Linear(signal.shape[1], int(labels.max()) + 1)
        losses = train_classifier(net, gather, labels, seed=seed, **options)  # type: ignore[arg-type]
    return net, losses, shown


def toy(count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(count) % 2
    signal = torch.randn(count, 3, generator=generator)
    signal[:, 0] += 6 * labels
    return signal, labels


def test_it_learns_what_can_be_learnt() -> None:
    signal, labels = toy()
    net, losses, _ = trained(signal, labels, epochs=40)
    assert losses[-1] < 0.15 < losses[0]
    read = log_probabilities(net, lambda index: signal[index], len(signal), 7).argmax(1)
    assert (read == labels).float().mean() > 0.98


def test_chance_is_all_there_is_without_a_signal() -> None:
    _, losses, _ = trained(torch.zeros(60, 3), torch.arange(60) % 4, epochs=30)
    assert losses[-1] == pytest.approx(math.log(4), abs=0.02)


@pytest.mark.parametrize("count", [7, 10, 25, 30])
def test_batches_are_whole_and_without_repeats(count: int) -> None:
    signal, labels = toy(count)
    _, losses, shown = trained(signal, labels, epochs=6)
    size = min(10, count)
    steps = count // size
    assert len(losses) == 6
    assert [len(batch) for batch in shown] == [size] * (6 * steps)
    for epoch in range(6):
        once = list(chain(*shown[epoch * steps : (epoch + 1) * steps]))
        assert len(set(once)) == len(once)
    if count > 10:  # over the epochs everything has its turn, and orders differ
        assert set(chain(*shown)) == set(range(count))
        assert shown[0] != shown[steps]


def test_the_seed_decides() -> None:
    signal, labels = toy()
    first, second, other = (trained(signal, labels, seed) for seed in (3, 3, 4))
    assert first[1:] == second[1:]
    torch.testing.assert_close(first[0].weight, second[0].weight, rtol=0, atol=0)
    assert first[2] != other[2]


def test_progress_is_told_once_an_epoch() -> None:
    heard = []
    with listen(lambda *told: heard.append(told)):
        trained(*toy(), epochs=3)
    assert heard == [("training", done, 3) for done in range(4)]


@settings(deadline=None)
@given(st.floats(0, 1))
def test_the_rate_stays_within_its_peak(part: float) -> None:
    assert 0 <= one_cycle(part) <= 1


def test_the_rate_rises_then_falls() -> None:
    rates = [one_cycle(part) for part in np.linspace(0, 1, 1001)]
    peak = int(np.argmax(rates))
    assert peak == 300
    assert (np.diff(rates[:peak]) > 0).all()
    assert (np.diff(rates[peak:]) < 0).all()
    assert max(abs(np.diff(rates))) < 0.006  # no jump where the two halves meet
    assert rates[-1] == pytest.approx(0)


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_log_probabilities_by_hand(batch: int) -> None:
    torch.manual_seed(0)
    signal = torch.randn(9, 3)
    net = nn.Sequential(nn.Dropout(0.9), nn.Linear(3, 4))
    got = log_probabilities(net, lambda index: signal[index], 9, batch).numpy()
    scores = signal.numpy() @ net[1].weight.detach().numpy().T + net[1].bias.detach().numpy()
    expected = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(got).sum(1), 1, rtol=1e-5)


def trainings(device: str, count: int) -> tuple[list[nn.Module], list[Training]]:
    """So many linear nets that learn to tell two clouds apart; the last one for longest."""
    signal, labels = (one.to(device) for one in toy())
    with seeded(0):
        nets: list[nn.Module] = [nn.Linear(3, 2).to(device) for _ in range(count)]
    how = {"batch": 10, "rate": 0.05}
    return nets, [
        classifier_training(net, signal.__getitem__, labels, epochs=20 + seed, seed=seed, **how)
        for seed, net in enumerate(nets)
    ]


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="this needs a GPU"),
        ),
    ],
)
def test_side_by_side_each_learns_as_if_alone(device: str) -> None:
    count = AT_ONCE + 1
    together, both = trainings(device, count)
    losses = side_by_side(both, device)
    alone, each = trainings(device, count)
    assert [len(one) for one in losses] == [20 + seed for seed in range(count)]
    for training, expected in zip(each, losses, strict=True):
        (found,) = side_by_side([training], device)
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one.weight, other.weight, rtol=1e-3, atol=1e-4)
    assert len({float(net.weight[0, 0].detach()) for net in together}) == count
