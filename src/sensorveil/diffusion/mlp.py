"""Dense networks on latents: a small denoiser, and readers of hidden attributes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from sensorveil.diffusion.schedule import NoiseSchedule
from sensorveil.train import Checkpoint, Gather, TrainConfig, train_network


class ResidualDenoiser(nn.Module):
    """Predicts the noise in latents (n, size), told the time and a condition: a residual MLP.

    Each block adds to what came before, and inside it a layer normalisation is adapted: scaled and
    shifted by what is known of time and condition, (1 + scale) norm(h) + shift, as in the adaptive
    group normalisation of Dhariwal and Nichol that CLOAK takes (its reference 27). All blocks'
    scales and shifts come from one layer: a single window costs little but calls. The zero vector
    is the absent condition.

    What the layers give is v of Salimans and Ho (2022): the noise is noise_t x + signal_t v. With
    v = 0, where it starts, that is the best there is for latents that are independent and normal;
    all that it learns goes into how latents differ from those.

    >>> net = ResidualDenoiser(60, condition=8, width=16, blocks=2, levels=NoiseSchedule.linear())
    >>> net(torch.zeros(3, 60), torch.tensor([0, 10, 999]), torch.zeros(3, 8)).shape
    torch.Size([3, 60])
    """

    frequencies: torch.Tensor
    signal: torch.Tensor
    noise: torch.Tensor

    def __init__(
        self, size: int, condition: int, width: int, blocks: int, levels: NoiseSchedule
    ) -> None:
        super().__init__()
        self.register_buffer("signal", levels.signal.float(), persistent=False)
        self.register_buffer("noise", levels.noise.float(), persistent=False)
        self.blocks, self.width = blocks, width
        self._table: tuple[object, torch.Tensor] | None = None
        rates = 1e4 ** -(torch.arange(width // 2) / (width // 2))
        self.register_buffer("frequencies", rates, persistent=False)
        self.time = nn.Sequential(
            nn.Linear(2 * len(rates), width), nn.SiLU(), nn.Linear(width, width)
        )
        self.condition = nn.Sequential(
            nn.Linear(condition, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.adapt = nn.Linear(width, 2 * blocks * width)
        self.entry = nn.Linear(size, width)
        self.first = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.second = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.leave = nn.Linear(width, size)
        for layer in (self.adapt, *self.second, self.leave):
            # Blocks that add nothing, and no adaptation, before something is learnt.
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """The predicted noise, of the shape of x."""
        return self.denoised(x, t, self.condition(condition))

    def denoised(self, x: torch.Tensor, t: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        """The same where what `condition` makes of conditions is known: it is at all levels alike.

        There may be fewer times and conditions than rows of x: each serves as many that follow one
        another. All tries of a window are told the same, and what that comes to costs most.
        """
        told = nn.functional.silu(self._of_time(t) + known)
        scales, shifts = self.adapt(told).view(len(t), 2, self.blocks, 1, self.width).unbind(1)
        h = self.entry(x.reshape(len(t), -1, x.shape[1]))
        adapted = zip((1 + scales).unbind(1), shifts.unbind(1), strict=True)
        for first, second, (scale, shift) in zip(self.first, self.second, adapted, strict=True):
            inner = nn.functional.layer_norm(first(h), (self.width,))
            h = h + second(nn.functional.silu(torch.addcmul(shift, inner, scale)))
        v = self.leave(nn.functional.layer_norm(h, (self.width,)))
        noise, signal = self.noise[t].view(-1, 1, 1), self.signal[t].view(-1, 1, 1)
        return (noise * x.reshape(v.shape) + signal * v).view(x.shape)

    def _of_time(self, t: torch.Tensor) -> torch.Tensor:
        """What the denoiser is told of levels (n,): (n, width).

        Where a processor samples it is looked up: a window that comes alone would spend a twelfth
        of its time on it. Weights count their changes, so a table of other weights is seen as such.
        """
        if torch.is_grad_enabled() or t.is_cuda:
            return self._timed(t)
        weights = tuple(self.time.parameters())
        now = tuple((one.data_ptr(), one._version) for one in weights)
        if self._table is None or self._table[0] != now:
            self._table = now, self._timed(torch.arange(len(self.signal)))
        return self._table[1][t]

    def _timed(self, t: torch.Tensor) -> torch.Tensor:
        angles = t[:, None] * self.frequencies
        found: torch.Tensor = self.time(torch.cat([angles.cos(), angles.sin()], dim=1))
        return found


class LatentReader(nn.Module):
    """Reads a hidden attribute from latents, knowing z_U: CLOAK's auxiliary privacy model eta.

    Section V-C says five dense layers and not how wide they are. With the default sizes it has the
    0.89 MB (0.23 million parameters) of table VI for latents and z_U of 60 each and two classes.

    >>> LatentReader(size=60, known=60, classes=2)(torch.zeros(3, 60), torch.zeros(3, 60)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self, size: int, known: int, classes: int, sizes: Sequence[int] = (512, 256, 128, 60)
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise((size + known, *sizes)):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], classes))

    def forward(self, latents: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        """Scores before the softmax: (n, classes)."""
        scores: torch.Tensor = self.layers(torch.cat([latents.flatten(1), known], dim=1))
        return scores


def train_reader(
    net: LatentReader,
    gather: Gather,
    known: torch.Tensor,
    codes: torch.Tensor,
    course: TrainConfig,
    seed: int,
    *,
    stage: str,
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Cross-entropy on clean latents and what is known (n, size), as for universal guidance."""

    def loss(index: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(net(gather(index), known[index]), codes[index])

    return train_network(stage, net, loss, len(codes), course, seed, codes.device, checkpoint)
