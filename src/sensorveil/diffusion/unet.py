"""The U-Net of both papers: predicts the noise in a window, given the timestep and a condition.

PrivDiffuser takes the layout of OpenAI's guided-diffusion: residual blocks and attention on two
levels, of which the second is half as long, and the same on the way back up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import interpolate, scaled_dot_product_attention, silu

from sensorveil.errors import Refusal

_DROPOUT = 0.1
_GROUPS = 32


@dataclass(frozen=True)
class UNetSettings:
    """The shape of a U-Net; the defaults are PrivDiffuser's on MotionSense.

    They give the 71.05 million parameters of CLOAK's table VI, and 7,320 more: the condition's
    small network, which the table leaves out.

    Parameters
    ----------
    width
        Channels of the first level; the second has twice as many.
    blocks
        Residual blocks of each level on the way down; there is one more on the way up.
    condition
        Numbers in a condition.
    kernel_dims
        2, as in PrivDiffuser: a window (channels, length) is an image of one channel. 1, as in
        CLOAK: kernels go along the length, over all channels, and cost a third.
    patch_size
        So many neighbouring samples become channels of one place, as many as divide the length:
        for small networks on a CPU. Neither paper has it.
    adaptive
        Whether time and condition act as in equation (13) of PrivDiffuser. If not, both are added
        before the group normalisation, as in the authors' code.
    strided
        Whether the length is halved by a strided convolution, or by means of neighbours, as the
        authors' code does on WiFi-HAR.

    Examples
    --------
    >>> UNetSettings(width=7)
    Traceback (most recent call last):
    sensorveil.errors.Refusal: a U-Net's width must be even, not 7
    """

    width: int = 256
    blocks: int = 2
    condition: int = 60
    kernel_dims: int = 2
    patch_size: int = 1
    adaptive: bool = True
    strided: bool = True

    def __post_init__(self) -> None:
        if self.width % 2:
            raise Refusal(f"a U-Net's width must be even, not {self.width}")
        if self.kernel_dims not in (1, 2):
            raise Refusal(f"kernels have 1 or 2 dimensions, not {self.kernel_dims}")
        if self.patch_size < 1 or (self.patch_size > 1 and self.kernel_dims == 2):
            raise Refusal(
                f"patch_size is 1, or more for kernels of 1 dimension; here is {self.patch_size}"
            )

    @property
    def widths(self) -> tuple[int, int]:
        """Channels of each level."""
        return self.width, 2 * self.width

    @property
    def embedding(self) -> int:
        """Numbers in the embeddings of time and condition, as in guided-diffusion."""
        return 4 * self.width


class UNet(nn.Module):
    """Predicts the noise in (n, length), (n, channels, length) or (n, channels, height, width).

    The zero vector is the absent condition: it comes out of the condition's network as a learnt
    constant. (The authors set the 60 numbers to zero after their small network, with the same
    effect.) The output for a window depends on that window alone.

    Parameters
    ----------
    shape
        The shape of one window; lengths of any size are halved rounding up.
    settings
        Sizes, see `UNetSettings`.

    Examples
    --------
    >>> net = UNet((2, 30), UNetSettings(width=8))
    >>> net(torch.zeros(3, 2, 30), torch.tensor([0, 10, 999]), torch.zeros(3, 60)).shape
    torch.Size([3, 2, 30])
    """

    frequencies: torch.Tensor

    def __init__(self, shape: tuple[int, ...], settings: UNetSettings | None = None) -> None:
        super().__init__()
        self.settings = settings = settings or UNetSettings()
        self.patch_size = math.gcd(settings.patch_size, shape[-1])
        channels = self.patch_size * input_channels(shape, settings.kernel_dims)
        halves = torch.arange(settings.width // 2) / (settings.width // 2)
        self.register_buffer("frequencies", 10_000.0**-halves, persistent=False)
        self.time = _two_layers(settings.width, settings.embedding)
        self.condition = nn.Sequential(
            _two_layers(settings.condition, settings.condition),
            _two_layers(settings.condition, settings.embedding),
        )
        low, high = settings.widths
        self.down = nn.ModuleList(
            [
                _Down(_conv(channels, low, settings), low, low, settings),
                _Down(_halving(low, settings), low, high, settings),
            ]
        )
        self.middle = nn.ModuleList(
            [
                _Stage(high, high, settings),
                ResidualBlock(high, high, settings),
            ]
        )
        blocks = settings.blocks  # each level leaves its entry and its blocks for the way up
        self.up = nn.ModuleList(
            [
                _Up(_conv(high, high, settings), high, [*[high] * blocks, low], high, settings),
                _Up(_last(low, channels, settings), high, [low] * (blocks + 1), low, settings),
            ]
        )

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """The predicted noise, of the shape of x, at timesteps t (n,) given conditions (n, size)."""
        angles = t[:, None] * self.frequencies
        time = self.time(torch.cat([angles.cos(), angles.sin()], dim=1))
        embeddings = time, self.condition(condition)
        h = to_patches(as_image(x, self.settings.kernel_dims), self.patch_size)
        skipped: list[torch.Tensor] = []
        for level in self.down:
            skipped += level(h, *embeddings)
            h = skipped[-1]
        for stage in self.middle:
            h = stage(h, *embeddings)
        for level in self.up:
            h = level(h, skipped, *embeddings)
        return from_patches(h, self.patch_size).reshape(x.shape)


class ResidualBlock(nn.Module):
    """Two convolutions beside a skip; between them time and condition act.

    Equation (13) of PrivDiffuser, with h from the first convolution: AdaGN(h, y) = y_t GroupNorm(h)
    + y_zp, where y_t is linear in the embedding of the time and y_zp in that of the condition.

    Examples
    --------
    >>> block = ResidualBlock(4, 6, UNetSettings(width=4, kernel_dims=1))
    >>> block(torch.zeros(3, 4, 10), torch.zeros(3, 16), torch.zeros(3, 16)).shape
    torch.Size([3, 6, 10])
    """

    def __init__(self, inputs: int, outputs: int, settings: UNetSettings) -> None:
        super().__init__()
        self.adaptive = settings.adaptive
        self.first = nn.Sequential(_norm(inputs), nn.SiLU(), _conv(inputs, outputs, settings))
        self.of_time = nn.Linear(settings.embedding, outputs)
        self.of_condition = nn.Linear(settings.embedding, outputs)
        if self.adaptive:
            nn.init.ones_(self.of_time.bias)
        self.norm = _norm(outputs)
        self.second = nn.Sequential(
            nn.SiLU(), nn.Dropout(_DROPOUT), _zeroed(_conv(outputs, outputs, settings))
        )
        same = inputs == outputs
        self.skip = nn.Identity() if same else _conv(inputs, outputs, settings, kernel=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """From `inputs` channels to `outputs`, given the embeddings of time and condition."""
        h = self.first(x)
        places = (..., *[None] * (h.ndim - 2))  # one number for all places of a channel
        y_t, y_zp = self.of_time(silu(time))[places], self.of_condition(silu(condition))[places]
        # Equation (13), or what the authors' code does.
        h = y_t * self.norm(h) + y_zp if self.adaptive else self.norm(h + y_t + y_zp)
        return self.skip(x) + self.second(h)


class SelfAttention(nn.Module):
    """Every place attends to all others; at first it adds nothing.

    Examples
    --------
    >>> SelfAttention(8)(torch.ones(3, 8, 2, 5)).shape
    torch.Size([3, 8, 2, 5])
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = _norm(channels)
        self.query_key_value = nn.Linear(channels, 3 * channels)
        self.output = _zeroed(nn.Linear(channels, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        # Contiguous: else torch multiplies in another order where weights ask for a gradient, and a
        # trained network would differ in the last bit from the same one loaded.
        places = self.norm(x).flatten(2).transpose(1, 2).contiguous()
        query, key, value = self.query_key_value(places).unsqueeze(1).chunk(3, dim=-1)
        found = scaled_dot_product_attention(query, key, value).squeeze(1)
        return x + self.output(found).transpose(1, 2).view_as(x)


class _Stage(nn.Module):
    """A residual block followed by attention."""

    def __init__(self, inputs: int, outputs: int, settings: UNetSettings) -> None:
        super().__init__()
        self.block = ResidualBlock(inputs, outputs, settings)
        self.attention = SelfAttention(outputs)

    def forward(self, x: torch.Tensor, time: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        attended: torch.Tensor = self.attention(self.block(x, time, condition))
        return attended


class _Down(nn.Module):
    """One level on the way down; gives the output of each layer, for the way up."""

    def __init__(self, entry: nn.Module, inputs: int, width: int, settings: UNetSettings) -> None:
        super().__init__()
        self.entry = entry
        sizes = [inputs] + [width] * (settings.blocks - 1)
        self.stages = nn.ModuleList(_Stage(size, width, settings) for size in sizes)

    def forward(
        self, h: torch.Tensor, time: torch.Tensor, condition: torch.Tensor
    ) -> list[torch.Tensor]:
        outputs = [self.entry(h)]
        for stage in self.stages:
            outputs.append(stage(outputs[-1], time, condition))
        return outputs


class _Up(nn.Module):
    """One level on the way up; each block takes one output of the way down too."""

    def __init__(
        self, leave: nn.Module, inputs: int, skips: list[int], width: int, settings: UNetSettings
    ) -> None:
        super().__init__()
        self.leave = leave
        sizes = [inputs] + [width] * settings.blocks
        self.stages = nn.ModuleList(
            _Stage(size + skip, width, settings) for size, skip in zip(sizes, skips, strict=True)
        )

    def forward(
        self,
        h: torch.Tensor,
        skipped: list[torch.Tensor],
        time: torch.Tensor,
        condition: torch.Tensor,
    ) -> torch.Tensor:
        for stage in self.stages:
            h = stage(torch.cat([h, skipped.pop()], dim=1), time, condition)
        if skipped:  # all but the last level: as long as the level above
            h = interpolate(h, skipped[-1].shape[2:], mode="nearest")
        output: torch.Tensor = self.leave(h)
        return output


def as_image(signal: torch.Tensor, kernel_dims: int) -> torch.Tensor:
    """Windows with an axis of channels before the axes that kernels go along.

    >>> as_image(torch.zeros(5, 2, 128), kernel_dims=2).shape
    torch.Size([5, 1, 2, 128])
    """
    return signal.unsqueeze(1) if signal.ndim == kernel_dims + 1 else signal


def to_patches(signal: torch.Tensor, size: int) -> torch.Tensor:
    """Neighbours as channels of one place: (n, channels, length) gets shorter and wider.

    >>> to_patches(torch.arange(4.0).view(1, 1, 4), size=2)
    tensor([[[0., 2.],
             [1., 3.]]])
    """
    return signal if size == 1 else signal.unflatten(2, (-1, size)).movedim(3, 2).flatten(1, 2)


def from_patches(signal: torch.Tensor, size: int) -> torch.Tensor:
    """The inverse of `to_patches`."""
    return signal if size == 1 else signal.unflatten(1, (-1, size)).movedim(2, 3).flatten(2)


def input_channels(shape: tuple[int, ...], kernel_dims: int) -> int:
    """Channels of `as_image` for windows of a shape (without the first axis).

    >>> input_channels((2, 128), kernel_dims=1), input_channels((2, 128), kernel_dims=2)
    (2, 1)
    """
    if kernel_dims == 1 and len(shape) == 3:
        raise Refusal(f"images of shape {shape} need kernels of 2 dimensions, not 1")
    return 1 if kernel_dims == len(shape) else shape[0]


def _two_layers(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.SiLU(), nn.Linear(outputs, outputs))


def _conv(
    inputs: int, outputs: int, settings: UNetSettings, *, kernel: int = 3, stride: int = 1
) -> nn.Module:
    convolution = nn.Conv2d if settings.kernel_dims == 2 else nn.Conv1d
    return convolution(inputs, outputs, kernel, stride, padding=kernel // 2)


def _halving(channels: int, settings: UNetSettings) -> nn.Module:
    if settings.strided:
        return _conv(channels, channels, settings, stride=2)
    pool = nn.AvgPool2d if settings.kernel_dims == 2 else nn.AvgPool1d
    return pool(2, ceil_mode=True)


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(math.gcd(_GROUPS, channels // 2), channels)


def _last(channels: int, outputs: int, settings: UNetSettings) -> nn.Module:
    return nn.Sequential(_norm(channels), nn.SiLU(), _zeroed(_conv(channels, outputs, settings)))


def _zeroed(layer: nn.Module) -> nn.Module:
    """A layer that starts by giving zeros, as in guided-diffusion."""
    for weight in layer.parameters():
        nn.init.zeros_(weight)
    return layer
