"""The U-Net that predicts the noise in a window, told the time and a condition.

PrivDiffuser (Yang and Ardakanian 2025) takes the layout of OpenAI's guided-diffusion: levels of
residual blocks on the way down and up, each level half as long as the one before and joined to its
counterpart on the other side. Its sizes on MotionSense are the defaults here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import interpolate, scaled_dot_product_attention

from sensorveil.errors import Refusal


@dataclass(frozen=True)
class UNetSettings:
    """The shape of a U-Net; the defaults are those of the paper on MotionSense.

    They give the 71.05 million parameters of CLOAK's table VI, and 7,320 more: the condition's
    small network, which the table leaves out as the authors' code keeps it apart.

    `multipliers` times `width` is the number of channels of each level, and `blocks` the residual
    blocks of each level on the way down; there is one more on the way up. `attention` names the
    levels that have it after every block, or None for all levels. `groups` is for group
    normalisation: fewer where a group would have less than two channels. `condition` is the size
    of the condition. With `kernels` of two dimensions, as in the paper, a window (channels,
    length) is seen as an image of one channel; with one dimension they go along the length, over
    all channels, and cost a third. `fold` makes so many neighbouring samples the channels of one
    place (as many as divide the length), which makes windows shorter and small networks several
    times faster; it is for one dimension, and the paper has none of it.

    The authors' code differs from their paper: time and condition are both added before the
    group normalisation (`adaptive=False`), not put to work as in equation (13). On WiFi-HAR it
    halves by means of neighbours (`strided=False`). It starts no layers at zero, and has one head;
    more heads cost no parameters.

    >>> UNetSettings(width=7)
    Traceback (most recent call last):
    sensorveil.errors.Refusal: a U-Net's width must be even, not 7: the time takes both halves
    """

    width: int = 256
    multipliers: tuple[int, ...] = (1, 2)
    blocks: int = 2
    attention: tuple[int, ...] | None = None
    heads: int = 1
    dropout: float = 0.1
    groups: int = 32
    condition: int = 60
    kernels: int = 2
    fold: int = 1
    adaptive: bool = True
    strided: bool = True

    def __post_init__(self) -> None:
        if self.width % 2:
            raise Refusal(
                f"a U-Net's width must be even, not {self.width}: the time takes both halves"
            )
        if any(width % self.heads for width in self.widths):
            raise Refusal(f"{self.heads} heads do not divide all of the widths {self.widths}")
        if self.kernels not in (1, 2):
            raise Refusal(f"kernels have 1 or 2 dimensions, not {self.kernels}")
        if self.fold < 1 or (self.fold > 1 and self.kernels == 2):
            raise Refusal(f"fold is 1, or more for kernels of 1 dimension; here is {self.fold}")

    @property
    def widths(self) -> tuple[int, ...]:
        """The channels of each level.

        >>> UNetSettings().widths
        (256, 512)
        """
        return tuple(self.width * multiplier for multiplier in self.multipliers)

    @property
    def embedding(self) -> int:
        """The size of what all blocks are told: four times the width, as in guided-diffusion."""
        return 4 * self.width

    def attends(self, level: int) -> bool:
        """Whether blocks of this level are followed by attention."""
        return self.attention is None or level in self.attention


class UNet(nn.Module):
    """Predicts the noise in (n, channels, length) or (n, channels, height, width).

    `t` (n,) is the step of each window, whole or not, and `condition` (n, size) what it is told.
    The zero vector is the absent condition. It goes the same way as any other, and as the layers
    have biases it comes out as a constant that is learnt, one shift for each channel of a block;
    so a network trained with zeros in some places predicts without a condition too. A condition
    of length 1, such as the features of `FeatureNet`, cannot be taken for it. (The authors set the
    60 numbers to zero after the small network, with the same effect.)

    Lengths of any size are halved rounding up, and brought back to what they were on the way up.
    2 x 128 is halved to 1 x 64; further levels would halve the length alone.

    Nothing depends on the data but by arithmetic, so that training and sampling can be recorded
    as CUDA graphs. Of a window only its own numbers matter, not the others of its batch.

    >>> small = UNetSettings(width=8)
    >>> net = UNet((2, 30), small)
    >>> net(torch.zeros(3, 2, 30), torch.tensor([0, 10, 999]), torch.zeros(3, 60)).shape
    torch.Size([3, 2, 30])
    """

    frequencies: torch.Tensor

    def __init__(self, shape: tuple[int, ...], settings: UNetSettings | None = None) -> None:
        super().__init__()
        self.settings = chosen = settings or UNetSettings()
        self.fold = math.gcd(chosen.fold, shape[-1])
        inputs = self.fold * input_channels(shape, chosen.kernels)
        halves = torch.arange(chosen.width // 2) / (chosen.width // 2)
        self.register_buffer("frequencies", 10_000.0**-halves, persistent=False)
        self.time = _two_layers(chosen.width, chosen.embedding)
        self.condition = nn.Sequential(
            _two_layers(chosen.condition, chosen.condition),
            _two_layers(chosen.condition, chosen.embedding),
        )
        now = chosen.width
        skipped: list[int] = []
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for level, width in enumerate(chosen.widths):
            entry = _halving(now, chosen) if level else _conv(inputs, now, chosen)
            self.down.append(_Down(entry, now, width, level, chosen))
            skipped += [now] + [width] * chosen.blocks
            now = width
        self.middle = nn.ModuleList(
            [_Stage(now, now, attends, chosen) for attends in (True, False)]
        )
        for level, width in reversed(list(enumerate(chosen.widths))):
            leave = _conv(width, width, chosen) if level else _last(width, inputs, chosen)
            joined = [skipped.pop() for _ in range(chosen.blocks + 1)]
            self.up.append(_Up(leave, now, joined, width, level, chosen))
            now = width

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """The predicted noise, of the shape of x."""
        told = self.time(self.encoded(t)), self.condition(condition)
        h = folded_places(as_image(x, self.settings.kernels), self.fold)
        skipped: list[torch.Tensor] = []
        for level in self.down:
            skipped += level(h, *told)
            h = skipped[-1]
        for stage in self.middle:
            h = stage(h, *told)
        for level in self.up:
            h = level(h, skipped, *told)
        return unfolded_places(h, self.fold).reshape(x.shape)

    def encoded(self, t: torch.Tensor) -> torch.Tensor:
        """The positional encoding of the time: cosines and sines of falling frequencies."""
        angles = t[:, None] * self.frequencies
        return torch.cat([angles.cos(), angles.sin()], dim=1)


class ResidualBlock(nn.Module):
    """Two convolutions beside a skip; between them the time scales and the condition shifts.

    Equation (13), with h from the first convolution: AdaGN(h, y) = y_t GroupNorm(h) + y_zp, where
    y_t is linear in what is known of the time and y_zp in what is known of the condition. OpenAI's
    scale-shift is (1 + scale) GroupNorm(h) + shift, where both come from one vector, the sum of
    the embeddings of time and class. So here the time cannot shift but through GroupNorm's own
    offset, and the condition cannot scale; and the 1 is no constant but where the bias of y_t
    starts.

    >>> block = ResidualBlock(4, 6, UNetSettings(width=4, kernels=1))
    >>> block(torch.zeros(3, 4, 10), torch.zeros(3, 16), torch.zeros(3, 16)).shape
    torch.Size([3, 6, 10])
    """

    def __init__(self, inputs: int, outputs: int, settings: UNetSettings) -> None:
        super().__init__()
        self.adaptive = settings.adaptive
        self.first = nn.Sequential(
            _norm(inputs, settings), nn.SiLU(), _conv(inputs, outputs, settings)
        )
        self.of_time = nn.Linear(settings.embedding, outputs)
        self.of_condition = nn.Linear(settings.embedding, outputs)
        if self.adaptive:
            nn.init.ones_(self.of_time.bias)
        self.norm = _norm(outputs, settings)
        self.second = nn.Sequential(
            nn.SiLU(),
            nn.Dropout(settings.dropout),
            _zeroed(_conv(outputs, outputs, settings)),
        )
        self.skip = (
            nn.Identity() if inputs == outputs else _conv(inputs, outputs, settings, kernel=1)
        )

    def forward(self, x: torch.Tensor, time: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """From `inputs` channels to `outputs`, told the embeddings of time and condition."""
        h = self.first(x)
        single = (..., *[None] * (h.ndim - 2))  # one number for all places of a channel
        y_t = self.of_time(nn.functional.silu(time))[single]
        y_zp = self.of_condition(nn.functional.silu(condition))[single]
        h = y_t * self.norm(h) + y_zp if self.adaptive else self.norm(h + y_t + y_zp)
        return self.skip(x) + self.second(h)


class SelfAttention(nn.Module):
    """Every place looks at all others and adds what it finds; it starts by adding nothing.

    >>> attention = SelfAttention(8, UNetSettings(width=8, heads=2))
    >>> attention(torch.ones(3, 8, 2, 5)).shape
    torch.Size([3, 8, 2, 5])
    """

    def __init__(self, channels: int, settings: UNetSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.norm = _norm(channels, settings)
        self.questions_keys_values = nn.Linear(channels, 3 * channels)
        self.answer = _zeroed(nn.Linear(channels, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        # In one piece: else torch multiplies in another order where weights ask for a gradient, and
        # a network that was trained would differ in the last bit from the same one loaded.
        places = self.norm(x).flatten(2).transpose(1, 2).contiguous()
        asked = self.questions_keys_values(places).unflatten(2, (3, self.heads, -1))
        question, key, value = asked.permute(2, 0, 3, 1, 4).unbind()
        found = scaled_dot_product_attention(question, key, value)
        return x + self.answer(found.transpose(1, 2).flatten(2)).transpose(1, 2).view_as(x)


class _Stage(nn.Module):
    """A residual block, and attention after it where there is some."""

    def __init__(self, inputs: int, outputs: int, attends: bool, settings: UNetSettings) -> None:
        super().__init__()
        self.block = ResidualBlock(inputs, outputs, settings)
        self.attention = SelfAttention(outputs, settings) if attends else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        attended: torch.Tensor = self.attention(self.block(x, time, condition))
        return attended


class _Down(nn.Module):
    """One level on the way down; it gives what each of its layers leaves for the way up."""

    def __init__(
        self, entry: nn.Module, before: int, width: int, level: int, settings: UNetSettings
    ) -> None:
        super().__init__()
        self.entry = entry
        sizes = [before] + [width] * (settings.blocks - 1)
        attends = settings.attends(level)
        self.stages = nn.ModuleList(_Stage(size, width, attends, settings) for size in sizes)

    def forward(
        self, h: torch.Tensor, time: torch.Tensor, condition: torch.Tensor
    ) -> list[torch.Tensor]:
        left = [self.entry(h)]
        for stage in self.stages:
            left.append(stage(left[-1], time, condition))
        return left


class _Up(nn.Module):
    """One level on the way up; each block takes what was left for it on the way down."""

    def __init__(
        self,
        leave: nn.Module,
        before: int,
        joined: list[int],
        width: int,
        level: int,
        settings: UNetSettings,
    ) -> None:
        super().__init__()
        self.leave = leave
        sizes = [before] + [width] * settings.blocks
        attends = settings.attends(level)
        self.stages = nn.ModuleList(
            _Stage(size + joining, width, attends, settings)
            for size, joining in zip(sizes, joined, strict=True)
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
        if skipped:  # all but the last level: as long as the level above was
            h = interpolate(h, skipped[-1].shape[2:], mode="nearest")
        left: torch.Tensor = self.leave(h)
        return left


def as_image(signal: torch.Tensor, kernels: int) -> torch.Tensor:
    """What kernels of so many dimensions go over: windows are images of one channel for two.

    >>> as_image(torch.zeros(5, 2, 128), kernels=2).shape
    torch.Size([5, 1, 2, 128])
    """
    return signal.unsqueeze(1) if signal.ndim == 3 and kernels == 2 else signal


def folded_places(signal: torch.Tensor, fold: int) -> torch.Tensor:
    """`fold` neighbours as channels of one place: (n, channels, length) gets shorter and wider.

    >>> folded_places(torch.arange(4.0).view(1, 1, 4), fold=2)
    tensor([[[0., 2.],
             [1., 3.]]])
    """
    if fold == 1:
        return signal
    return signal.unflatten(2, (-1, fold)).movedim(3, 2).flatten(1, 2)


def unfolded_places(signal: torch.Tensor, fold: int) -> torch.Tensor:
    """What `folded_places` was made from."""
    if fold == 1:
        return signal
    return signal.unflatten(1, (-1, fold)).movedim(2, 3).flatten(2)


def input_channels(shape: tuple[int, ...], kernels: int) -> int:
    """How many channels `as_image` has for windows of this shape (without the first axis).

    >>> input_channels((2, 128), kernels=1), input_channels((2, 128), kernels=2)
    (2, 1)
    """
    if kernels == 1 and len(shape) == 3:
        raise Refusal(f"images of shape {shape} need kernels of 2 dimensions, not 1")
    return 1 if kernels == 2 and len(shape) == 2 else shape[0]


def _two_layers(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.SiLU(), nn.Linear(outputs, outputs))


def _conv(
    inputs: int, outputs: int, settings: UNetSettings, *, kernel: int = 3, stride: int = 1
) -> nn.Module:
    convolution = nn.Conv2d if settings.kernels == 2 else nn.Conv1d
    return convolution(inputs, outputs, kernel, stride, padding=kernel // 2)


def _halving(channels: int, settings: UNetSettings) -> nn.Module:
    if settings.strided:
        return _conv(channels, channels, settings, stride=2)
    mean = nn.AvgPool2d if settings.kernels == 2 else nn.AvgPool1d
    return mean(2, ceil_mode=True)


def _norm(channels: int, settings: UNetSettings) -> nn.GroupNorm:
    return nn.GroupNorm(math.gcd(settings.groups, channels // 2), channels)


def _last(channels: int, outputs: int, settings: UNetSettings) -> nn.Module:
    return nn.Sequential(
        _norm(channels, settings), nn.SiLU(), _zeroed(_conv(channels, outputs, settings))
    )


def _zeroed(layer: nn.Module) -> nn.Module:
    """A layer that says nothing before it has learnt something."""
    for weight in layer.parameters():
        nn.init.zeros_(weight)
    return layer
