"""The inference network: four convolutions, three dense layers, any shape of window."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sensorveil.nets.cnn import CNN, MLP, abreast, as_real, folded


@pytest.fixture(autouse=True)
def _same_every_time() -> None:
    torch.manual_seed(0)


SHAPES = [(1, 2), (2, 15), (2, 128), (30, 64), (3, 400), (1, 4, 4), (1, 16, 16), (3, 64, 40)]


@pytest.mark.parametrize("shape", SHAPES)
def test_one_score_a_class(shape: tuple[int, ...]) -> None:
    net = CNN(shape, classes=5, width=4)
    scores = net(torch.randn(3, *shape))
    assert scores.shape == (3, 5)
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_papers_layers(shape: tuple[int, ...]) -> None:
    layers = list(CNN(shape, classes=5, width=6).modules())
    convolutions = [layer for layer in layers if isinstance(layer, (nn.Conv1d, nn.Conv2d))]
    dense = [layer for layer in layers if isinstance(layer, nn.Linear)]
    assert [layer.out_channels for layer in convolutions] == [6] * 4
    assert [layer.out_features for layer in dense] == [256, 64, 5]
    assert convolutions[0].in_channels == shape[0]


@pytest.mark.parametrize("shape", [(2, 32), (1, 16, 16)])
def test_every_weight_learns(shape: tuple[int, ...]) -> None:
    net = CNN(shape, classes=3, width=4)
    net(torch.randn(8, *shape)).square().sum().backward()
    for name, weight in net.named_parameters():
        assert weight.grad is not None, name
        if not name.startswith("features") or weight.ndim > 1:
            assert weight.grad.abs().max() > 0, name


def test_the_whole_window_is_seen() -> None:
    """Every sample reaches the scores: none lies outside all filters and pools."""
    net = CNN((1, 100), classes=2, width=16).eval()
    signal = torch.randn(1, 1, 100, requires_grad=True)
    net(signal).sum().backward()
    assert signal.grad is not None
    assert (signal.grad != 0).float().mean() > 0.9


def test_no_window_changes_another_when_evaluated() -> None:
    net = CNN((2, 32), classes=3, width=4).eval()
    signal = torch.randn(6, 2, 32)
    whole = net(signal)
    alone = torch.cat([net(window[None]) for window in signal])
    torch.testing.assert_close(whole, alone)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 3), channels=st.integers(1, 4), length=st.integers(1, 5))
def test_complex_as_three_real_channels(n: int, channels: int, length: int) -> None:
    signal = torch.randn(n, channels, length, dtype=torch.complex64)
    real = as_real(signal)
    assert real.shape == (n, 3 * channels, length)
    again = torch.complex(real[:, :channels], real[:, channels : 2 * channels])
    torch.testing.assert_close(again, signal)
    squared = real[:, :channels] ** 2 + real[:, channels : 2 * channels] ** 2
    torch.testing.assert_close(real[:, 2 * channels :] ** 2, squared)


def test_real_windows_pass() -> None:
    signal = torch.randn(2, 3, 4)
    assert as_real(signal) is signal


@pytest.mark.parametrize("shape", SHAPES)
def test_folded_networks_read_the_same(shape: tuple[int, ...]) -> None:
    net = CNN(shape, classes=5, width=4)
    for _ in range(3):  # norms must have seen something
        net(2 + 3 * torch.randn(16, *shape))
    kinds = {type(layer) for layer in folded(net).modules()}
    assert not kinds & {nn.BatchNorm1d, nn.BatchNorm2d, nn.Dropout}
    signal = torch.randn(4, *shape)
    torch.testing.assert_close(folded(net)(signal), net.eval()(signal), atol=1e-4, rtol=1e-4)
    assert any(isinstance(layer, nn.Dropout) for layer in net.modules())  # the net itself stays


@pytest.mark.parametrize("net", [CNN((2, 128), 4, 6), MLP((2, 128), 4)])
def test_folded_networks_learn_nothing_and_leave_all_else_as_it_is(net: nn.Module) -> None:
    reading, signal = folded(net), torch.randn(3, 2, 128)
    given = signal.clone()
    before = reading(signal)
    assert not before.requires_grad
    assert all(weights.requires_grad for weights in net.parameters())
    assert torch.equal(signal, given)
    with torch.no_grad():
        for weights in net.parameters():
            weights += 1
    assert torch.equal(reading(signal), before)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv1d(2, 2, 3, dilation=2),
        nn.Conv1d(2, 2, 3, padding=1, padding_mode="circular"),
        nn.MaxPool1d(2, padding=1),
        nn.MaxPool1d(2, dilation=2),
        nn.MaxPool1d(2, ceil_mode=True),
    ],
)
def test_layers_that_would_be_read_otherwise_are_not_folded(layer: nn.Module) -> None:
    with pytest.raises(AssertionError):
        folded(nn.Sequential(layer))


def test_dense_layers_of_the_authors_sizes() -> None:
    net = MLP((2, 128), classes=4)
    sizes = [tuple(layer.weight.shape) for layer in net.modules() if isinstance(layer, nn.Linear)]
    assert [out for out, _ in sizes] == [256, 512, 256, 256, 128, 16, 4]
    assert sizes[0][1] == 256
    signal = torch.randn(3, 2, 128)
    torch.testing.assert_close(folded(net)(signal), net.eval()(signal))


@pytest.mark.parametrize("shape", [(2, 128), (3, 20), (1, 24, 18)])
def test_networks_abreast_read_as_each_by_itself(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    nets = []
    for _ in range(3):
        net = CNN(shape, classes=5, width=8)
        net.train()(torch.randn(16, *shape))  # norms that do something
        nets.append(folded(net))
    windows = torch.randn(7, *shape)
    each = torch.stack([net(windows) for net in nets])
    torch.testing.assert_close(abreast(nets)(windows), each, atol=1e-5, rtol=1e-4)
    assert float((each[0] - each[1]).abs().max()) > 0.01
