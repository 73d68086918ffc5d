"""The two classifiers: their sizes, features of length 1, and who sees whose features."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sensorveil.diffusion.features import FeatureNet, FeatureSettings
from sensorveil.errors import Refusal
from sensorveil.train import seeded

SMALL = FeatureSettings(channels=(4, 6), hidden_sizes=(16, 12), features=8)
FLAT = FeatureSettings(channels=(4, 6), hidden_sizes=(16, 12), features=8, kernel_dims=1)


def windows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def size(shape: tuple[int, ...], classes: int, settings: FeatureSettings, context: int = 0) -> int:
    with torch.device("meta"):
        net = FeatureNet(shape, (classes,), settings, context)
    return sum(weight.numel() for weight in net.parameters())


def test_as_large_as_the_published_ones() -> None:
    """CLOAK's table VI: 34.19 M and 34.22 M on MotionSense, 130.41 and 130.53 MB of 2^20 bytes."""
    surrogate = size((2, 128), 4, FeatureSettings())
    auxiliary = size((2, 128), 2, FeatureSettings(), context=60)
    assert [round(count / 1e6, 2) for count in (surrogate, auxiliary)] == [34.19, 34.22]
    assert [round(count * 4 / 2**20, 2) for count in (surrogate, auxiliary)] == [130.41, 130.53]


@pytest.mark.parametrize(
    ("shape", "channels", "megabytes"),
    [((6, 128), (8, 16), 35), ((90, 80), (16, 32), 495)],
    ids=["MobiAct", "WiFi-HAR"],
)
def test_the_sizes_on_other_datasets(
    shape: tuple[int, ...], channels: tuple[int, ...], megabytes: int
) -> None:
    """PrivDiffuser's appendix B, of each classifier: around 35 and 495 MB."""
    count = size(shape, 4, FeatureSettings(channels=channels))
    assert count * 4 / 1e6 == pytest.approx(megabytes, rel=0.02)


@pytest.mark.parametrize("settings", [SMALL, FLAT], ids=["two", "one"])
@pytest.mark.parametrize("shape", [(2, 16), (1, 9), (5, 1)])
def test_features_have_length_one(settings: FeatureSettings, shape: tuple[int, ...]) -> None:
    with seeded(0):
        net = FeatureNet(shape, (4, 3), settings)
    features, scores = net(10 * windows(20, *shape))
    assert features.shape == (20, 8)
    assert [tuple(score.shape) for score in scores] == [(20, 4), (20, 3)]
    torch.testing.assert_close(features.norm(dim=1), torch.ones(20))
    assert (features >= 0).all()


def test_images() -> None:
    net = FeatureNet((3, 7, 5), (2,), SMALL)
    assert net(windows(4, 3, 7, 5))[0].shape == (4, 8)
    with pytest.raises(Refusal, match="kernels of 2 dimensions"):
        FeatureNet((3, 7, 5), (2,), FLAT)


def test_two_dimensional_kernels_by_hand() -> None:
    """Convolutions as sums over neighbours, then plain products."""
    with seeded(1):
        net = FeatureNet((2, 3), (4, 3), SMALL, context=8).double()
    signal, context = windows(1, 2, 3).double(), windows(1, 8, seed=2).double()
    image = signal
    for layer in (net.convolutions[0], net.convolutions[2]):
        padded = nn.functional.pad(image, (1, 1, 1, 1))
        inside = [
            [padded[:, up : up + 2, left : left + 2] for left in range(padded.shape[2] - 1)]
            for up in range(padded.shape[1] - 1)
        ]
        sums = [
            [(layer.weight * cell).sum((1, 2, 3)) + layer.bias for cell in row] for row in inside
        ]
        image = torch.stack([torch.stack(row) for row in sums]).permute(2, 0, 1).relu()
    assert image.shape == (6, 4, 5)
    h = torch.cat([image.flatten(), context[0]])
    for layer in (net.dense[0], net.dense[2], net.dense[4]):
        h = (layer.weight @ h + layer.bias).relu()
    wanted = h / h.square().sum().sqrt()
    features, scores = net(signal, context)
    torch.testing.assert_close(features[0], wanted)
    for (score,), head in zip(scores, net.heads, strict=True):
        torch.testing.assert_close(score, head.weight @ wanted + head.bias)


def test_gradients_reach_the_window_and_the_surrogates_features() -> None:
    """Equation (20) needs them: the auxiliary's gradient leads the diffusion."""
    with seeded(4):
        net = FeatureNet((2, 5), (2,), FLAT, context=8).double()
    given = [windows(2, *shape).double().requires_grad_() for shape in ((2, 5), (8,))]
    assert torch.autograd.gradcheck(lambda x, z_p: net(x, z_p)[1][0].log_softmax(1), given)
