"""The autoencoder's shapes, the two losses against plain formulas, and stopping in time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sensorveil.nets.aae import (
    AnonymizingAutoencoder,
    not_the_one_loss,
    train_until_patience,
    uniform_loss,
)
from sensorveil.progress import listen
from sensorveil.train import seeded


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 7), st.integers(1, 70))
def test_any_channels_and_any_length(channels: int, length: int) -> None:
    net = AnonymizingAutoencoder(channels, width=4).eval()
    signal = torch.randn(3, channels, length)
    assert net.encode(signal).shape == (3, channels, -(-length // 4))
    assert net(signal).shape == signal.shape


def test_an_odd_length_is_drawn_out_and_cut() -> None:
    with seeded(0):
        net = AnonymizingAutoencoder(2, width=6).eval()
        signal = torch.randn(4, 2, 30)
    longer = torch.cat([signal, signal[..., -1:], signal[..., -1:]], dim=-1)
    torch.testing.assert_close(net(signal), net(longer)[..., :30])


def test_all_weights_learn() -> None:
    """A weight without a gradient would be dead, or cancelled by a batch norm."""
    with seeded(0):
        net = AnonymizingAutoencoder(2, width=6)
        net(torch.randn(8, 2, 32)).square().mean().backward()
    largest = {name: float(weight.grad.abs().max()) for name, weight in net.named_parameters()}
    assert min(largest.values()) > 1e-5, largest


def chances(scores: torch.Tensor) -> np.ndarray:
    raised = np.exp(scores.double().numpy())
    return raised / raised.sum(1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 3, 24])
def test_uniform_loss_by_hand(classes: int) -> None:
    scores = torch.randn(9, classes, generator=torch.Generator().manual_seed(1))
    wanted = -(np.log(chances(scores)) / classes).sum(1).mean()
    assert float(uniform_loss(scores)) == pytest.approx(wanted, rel=1e-5)


def test_for_two_classes_it_is_the_binary_loss_against_a_half() -> None:
    scores = torch.randn(9, 2, generator=torch.Generator().manual_seed(2))
    sigmoid = torch.sigmoid(scores[:, 1] - scores[:, 0])
    wanted = nn.functional.binary_cross_entropy(sigmoid, torch.full((9,), 0.5))
    torch.testing.assert_close(uniform_loss(scores), wanted)


@pytest.mark.parametrize("classes", [2, 3, 24])
def test_not_the_one_by_hand(classes: int) -> None:
    generator = torch.Generator().manual_seed(3)
    scores = 2 * torch.randn(9, classes, generator=generator)
    labels = torch.randint(classes, (9,), generator=generator)
    labels[4] = -1
    total = 0.0
    for row, label in zip(chances(scores), labels.tolist(), strict=True):
        total -= np.log(1 - row.max())
        total -= 0.0 if label < 0 else np.log(1 - row[label])
    assert float(not_the_one_loss(scores, labels)) == pytest.approx(total / 9, rel=1e-5)


def test_not_the_one_of_two_is_best_at_a_half() -> None:
    odds = torch.linspace(-4, 4, 81)
    losses = [
        float(not_the_one_loss(torch.tensor([[odd, 0.0]]), torch.tensor([0]))) for odd in odds
    ]
    assert float(odds[int(np.argmin(losses))]) == pytest.approx(0.0, abs=1e-6)


def test_a_very_sure_reader_has_a_gradient() -> None:
    scores = torch.tensor([[300.0, -300.0, 0.0]], requires_grad=True)
    loss = not_the_one_loss(scores, torch.tensor([0]))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(600, rel=1e-4)
    np.testing.assert_allclose(scores.grad, [[2.0, 0.0, -2.0]], atol=1e-5)


class Point(nn.Module):
    """One number, which the fitting positions pull to 3 and the held ones to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(()))
        self.shown: list[list[int]] = []

    def objective(self, index: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.shown.append(index.tolist())
        return ((self.place - torch.where(index < 10, 3.0, 1.0)) ** 2).mean()


def trained(patience: int, epochs: int = 60, seed: int = 0) -> tuple[Point, list[float]]:
    point = Point()
    losses = train_until_patience(
        point,
        point.objective,
        torch.arange(10),
        torch.arange(10, 14),
        epochs=epochs,
        patience=patience,
        batch=4,
        rate=0.1,
        seed=seed,
    )
    return point, losses


@pytest.mark.parametrize("patience", [1, 5])
def test_it_stops_and_goes_back_to_the_best(patience: int) -> None:
    point, losses = trained(patience)
    best = int(np.argmin(losses))
    assert len(losses) == best + 1 + patience < 60
    assert (float(point.place.detach()) - 1) ** 2 == pytest.approx(losses[best])
    assert not point.training


def test_without_a_better_stop_it_goes_on_to_the_end() -> None:
    point, losses = trained(patience=100)
    assert len(losses) == 60
    assert losses[-1] == pytest.approx(4, abs=0.3)  # at 3 by then, the held ones are 2 away
    assert (float(point.place.detach()) - 1) ** 2 == pytest.approx(min(losses))


def test_only_the_fitting_positions_are_learnt_from() -> None:
    point, losses = trained(patience=1)
    assert {len(batch) for batch in point.shown} == {4}
    assert len(point.shown) == 2 * len(losses)
    assert max(max(batch) for batch in point.shown) < 10


def test_the_seed_decides_the_order() -> None:
    first, second, other = (trained(3, seed=seed)[0].shown for seed in (1, 1, 2))
    assert first == second != other


def test_the_end_is_told_even_after_an_early_stop() -> None:
    heard: list[tuple[str, int, int]] = []
    with listen(lambda *told: heard.append(told)):
        trained(patience=1)
    assert heard[-1] == ("training", 60, 60)
