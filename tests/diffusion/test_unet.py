"""The U-Net: its size, equation (13) by hand, and what a window's output depends on."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sensorveil.diffusion.unet import ResidualBlock, SelfAttention, UNet, UNetSettings
from sensorveil.errors import Refusal
from sensorveil.train import seeded

TINY = UNetSettings(width=8, condition=5)


def awake(net: nn.Module, seed: int = 0) -> nn.Module:
    """No weight is zero: last layers that start at zero would hide what is wrong before them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return net.eval()


def example(*shape: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    t = torch.randint(1000, shape[:1], generator=generator)
    condition = nn.functional.normalize(torch.randn(shape[0], 5, generator=generator))
    return torch.randn(shape, generator=generator), t, condition


def parameters(net: nn.Module) -> int:
    return sum(weight.numel() for weight in net.parameters())


def sized(shape: tuple[int, ...], **changes: object) -> tuple[int, int]:
    """The parameters of the U-Net, and those of its condition's small network among them."""
    with torch.device("meta"):
        net = UNet(shape, replace(UNetSettings(), **changes))
    return parameters(net), parameters(net.condition[0])


@pytest.mark.parametrize("adaptive", [True, False])
def test_as_large_as_the_published_one(adaptive: bool) -> None:
    """CLOAK's table VI: 71.05 M and 271.05 MB of 2^20 bytes, without the small network."""
    total, small = sized((2, 128), adaptive=adaptive)
    assert small == 2 * (60 * 60 + 60)
    assert round((total - small) / 1e6, 2) == 71.05
    assert round((total - small) * 4 / 2**20, 2) == 271.05


@pytest.mark.parametrize(
    ("shape", "changes", "megabytes"),
    [((90, 80), {"strided": False}, 282), ((6, 128), {"width": 64}, 18)],
    ids=["WiFi-HAR", "MobiAct"],
)
def test_the_sizes_on_other_datasets(
    shape: tuple[int, ...], changes: dict[str, object], megabytes: int
) -> None:
    """PrivDiffuser's appendix B."""
    total, _ = sized(shape, **changes)
    assert round(total * 4 / 1e6) == megabytes


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 2),
    st.integers(1, 5),
    st.integers(1, 19),
    st.booleans(),
)
def test_any_channels_and_any_length(dims: int, channels: int, length: int, strided: bool) -> None:
    chosen = replace(TINY, width=4, kernel_dims=dims, strided=strided)
    net = awake(UNet((channels, length), chosen))
    x, t, condition = example(3, channels, length)
    noise = net(x, t, condition)
    assert noise.shape == x.shape
    assert noise.isfinite().all()


@pytest.mark.parametrize(("length", "patch"), [(16, 4), (18, 2), (15, 1)])
def test_patches_are_a_network_on_neighbours_as_channels(length: int, patch: int) -> None:
    """A fold of 4, as far as it divides the length: sample j of place i is channel j there."""
    chosen = replace(TINY, kernel_dims=1)
    net = awake(UNet((2, length), replace(chosen, patch_size=4)))
    plain = UNet((2 * patch, length // patch), chosen).eval()
    plain.load_state_dict(net.state_dict())
    x, t, condition = example(3, 2, length)
    apart = torch.empty(3, 2 * patch, length // patch)
    for channel, place, sample in product(range(2), range(length // patch), range(patch)):
        apart[:, channel * patch + sample, place] = x[:, channel, place * patch + sample]
    noise, expected = net(x, t, condition), plain(apart, t, condition)
    for channel, place, sample in product(range(2), range(length // patch), range(patch)):
        torch.testing.assert_close(
            noise[:, channel, place * patch + sample],
            expected[:, channel * patch + sample, place],
        )


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(Refusal, match="kernels of 2 dimensions"):
        UNet((3, 7, 10), replace(TINY, kernel_dims=1))
    with pytest.raises(Refusal, match="dimensions"):
        replace(TINY, kernel_dims=3)
    with pytest.raises(Refusal, match="patch_size is 1"):
        replace(TINY, kernel_dims=2, patch_size=4)
    with pytest.raises(Refusal, match="patch_size is 1"):
        replace(TINY, kernel_dims=1, patch_size=0)


def grouped_norm(h: torch.Tensor, norm: nn.GroupNorm) -> torch.Tensor:
    """Group normalisation, group by group and window by window."""
    out = torch.empty_like(h)
    size = h.shape[1] // norm.num_groups
    for window in range(len(h)):
        for first in range(0, h.shape[1], size):
            part = h[window, first : first + size]
            spread = ((part - part.mean()).square().mean() + norm.eps).sqrt()
            out[window, first : first + size] = (part - part.mean()) / spread
    places = (1, -1) + (1,) * (h.ndim - 2)
    return out * norm.weight.view(places) + norm.bias.view(places)


def silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("dims", [1, 2])
def test_equation_13_by_hand(adaptive: bool, dims: int) -> None:
    chosen = replace(TINY, adaptive=adaptive, kernel_dims=dims)
    block = awake(ResidualBlock(8, 16, chosen)).double()
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(3, 8, *[6] * dims, generator=generator, dtype=torch.double)
    time, condition = torch.randn(2, 3, 32, generator=generator, dtype=torch.double)
    h = block.first[2](silu(grouped_norm(x, block.first[0])))
    y_t = silu(time) @ block.of_time.weight.T + block.of_time.bias
    y_zp = silu(condition) @ block.of_condition.weight.T + block.of_condition.bias
    assert block.norm.num_groups == 8
    told = torch.empty_like(h)
    for window in range(3):
        one = h[window : window + 1]
        places = (1, -1) + (1,) * dims
        scale, shift = y_t[window].view(places), y_zp[window].view(places)
        if adaptive:
            told[window] = (scale * grouped_norm(one, block.norm) + shift)[0]
        else:
            told[window] = grouped_norm(one + scale + shift, block.norm)[0]
    wanted = block.skip(x) + block.second[2](silu(told))
    torch.testing.assert_close(block(x, time, condition), wanted)


def test_a_block_starts_as_its_skip_and_an_untold_scale_is_one() -> None:
    block = ResidualBlock(8, 8, TINY)
    x = torch.randn(2, 8, 4, 4, generator=torch.Generator().manual_seed(3))
    assert torch.equal(block(x, torch.randn(2, 32), torch.randn(2, 32)), x)
    assert torch.equal(block.of_time.bias, torch.ones(8))


def test_attention_by_hand() -> None:
    attention = awake(SelfAttention(8)).double()
    x = torch.randn(2, 8, 3, 4, dtype=torch.double, generator=torch.Generator().manual_seed(4))
    for window in range(2):
        places = grouped_norm(x[window : window + 1], attention.norm)[0].flatten(1).T
        layer = attention.query_key_value
        q, k, v = (places @ layer.weight.T + layer.bias).chunk(3, dim=1)
        found = torch.softmax(q @ k.T / 8**0.5, dim=1) @ v
        added = found @ attention.output.weight.T + attention.output.bias
        torch.testing.assert_close(attention(x)[window], x[window] + added.T.view(8, 3, 4))


def test_no_noise_is_predicted_before_training() -> None:
    with seeded(0):
        net = UNet((2, 16), TINY)
    assert torch.equal(net(*example(3, 2, 16)), torch.zeros(3, 2, 16))


@pytest.mark.parametrize("adaptive", [True, False])
def test_time_and_condition_matter(adaptive: bool) -> None:
    net = awake(UNet((2, 16), replace(TINY, adaptive=adaptive)))
    x, t, condition = example(3, 2, 16)
    plain = net(x, t, condition)
    for other in (
        net(x, t + 50, condition),
        net(x, t, condition.roll(1, 0)),
        net(x, t, torch.zeros_like(condition)),
        net(x + 0.1, t, condition),
    ):
        assert ((plain - other).flatten(1).abs().amax(1) > 1e-3).all()


@pytest.mark.parametrize("dims", [1, 2])
def test_a_window_does_not_depend_on_the_others(dims: int) -> None:
    net = awake(UNet((2, 12), replace(TINY, kernel_dims=dims)))
    x, t, condition = example(5, 2, 12)
    together = net(x, t, condition)
    for which in range(5):
        one = slice(which, which + 1)
        alone = net(x[one], t[one], condition[one])
        torch.testing.assert_close(together[one], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dims", [1, 2])
def test_gradients(dims: int) -> None:
    chosen = UNetSettings(width=4, condition=3, blocks=1, kernel_dims=dims)
    net = awake(UNet((2, 5), chosen)).double()
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(2, 2, 5, generator=generator, dtype=torch.double, requires_grad=True)
    condition = torch.randn(2, 3, generator=generator, dtype=torch.double, requires_grad=True)
    t = torch.tensor([3, 500])
    assert torch.autograd.gradcheck(lambda x, c: net(x, t, c), (x, condition), fast_mode=True)


def test_all_weights_learn() -> None:
    net = awake(UNet((2, 16), TINY))
    net(*example(4, 2, 16)).square().mean().backward()
    largest = {name: float(weight.grad.abs().max()) for name, weight in net.named_parameters()}
    assert min(largest.values()) > 1e-7, largest


@pytest.mark.filterwarnings("ignore:TF32")
def test_low_precision_is_close() -> None:
    net = awake(UNet((2, 16), TINY))
    x, t, condition = example(4, 2, 16)
    # Some virtual machines say that they have instructions for bfloat16, and do not.
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
        exact = net(x, t, condition)
        with torch.autocast("cpu", torch.bfloat16):
            rough = net(x, t, condition).float()
    assert float((exact - rough).square().mean() / exact.square().mean()) < 1e-3


def test_the_whole_network_is_one_graph() -> None:
    """No branch depends on data, and nothing goes back to the host: else export would fail."""
    net = awake(UNet((2, 15), replace(TINY, blocks=1)))
    given = example(3, 2, 15)
    exported = torch.export.export(net, given, strict=False).module()
    other = example(3, 2, 15, seed=9)
    torch.testing.assert_close(exported(*other), net(*other))
