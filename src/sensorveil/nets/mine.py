"""MINE: mutual information from below, by a network that tells true pairs from shuffled ones.

Belghazi and others, Mutual Information Neural Estimation (2018). All values are in nats.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import nn

from sensorveil.cuda_graphs import Step, capture_step
from sensorveil.errors import Refusal
from sensorveil.train import seeded

KEPT = 0.99
"""How much of the moving average of e^T stays from one batch to the next."""

_PARTS = (0.6, 0.2, 0.2)
"""Shares of the pairs to train on, to stop by, and to take the value from."""
_SCALES = tuple(0.1 * tenth for tenth in range(16))
"""What T may be multiplied by once it is trained."""
_FEWEST = 15


class MineNet(nn.Module):
    """T(x, z): both side by side through three hidden layers to one score.

    There is no ReLU on the output: T must be free to fall below zero.

    >>> MineNet(3, 2, width=16)(torch.zeros(5, 3), torch.zeros(5, 2)).shape
    torch.Size([5])
    """

    def __init__(self, x_size: int, z_size: int, width: int = 400) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(x_size + z_size, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """One score for each pair: (n,)."""
        scores: torch.Tensor = self.layers(torch.cat([x, z], dim=1))
        return scores.squeeze(1)


def log_mean_exp(scores: torch.Tensor) -> torch.Tensor:
    """log of the mean of e^T, without ever forming e^T.

    >>> float(log_mean_exp(torch.tensor([1000.0, 1000.0])))
    1000.0
    """
    return torch.logsumexp(scores, dim=0) - math.log(len(scores))


def lower_bound(joint: torch.Tensor, marginal: torch.Tensor) -> torch.Tensor:
    """E_joint[T] - log E_marginal[e^T], in nats: no T makes it larger than the information.

    That holds for expectations. On the pairs that T was trained on it can be anything, and even
    held out it is only as close as T is good: a low value may just be a weak T.
    """
    return joint.mean() - log_mean_exp(marginal)


def updated_average(log_average: torch.Tensor, marginal: torch.Tensor) -> torch.Tensor:
    """The log of the moving average of e^T after one more batch; minus infinity before the first.

    >>> start = updated_average(torch.tensor(-math.inf), torch.zeros(4))
    >>> round(float(updated_average(start, torch.full((4,), 2.0)).exp()), 4)  # 0.99 + 0.01 e^2
    1.0639
    """
    batch = log_mean_exp(marginal.detach())
    moved = torch.logaddexp(log_average + math.log(KEPT), batch + math.log(1 - KEPT))
    return torch.where(torch.isneginf(log_average), batch, moved)


def corrected_loss(
    joint: torch.Tensor, marginal: torch.Tensor, log_average: torch.Tensor
) -> torch.Tensor:
    """What to minimise: its gradient is -(E_joint[grad T] - E_marginal[e^T grad T] / m).

    m is the moving average, which must hold this batch already: then e^T / m is at most 100 on
    average, however large T is. In `lower_bound` the batch's own mean stands for m, and the mean
    of a ratio is not the ratio of means: its gradient is biased in small batches. The value of
    this loss means nothing; take `lower_bound` for that.
    """
    ratio = torch.exp(log_mean_exp(marginal) - log_average.detach())
    return ratio - joint.mean()


def estimate_mine(
    x: torch.Tensor,
    z: torch.Tensor,
    seed: int = 0,
    *,
    groups: torch.Tensor | None = None,
    width: int = 400,
    batch: int = 256,
    rate: float = 2e-4,
    steps: int = 4000,
    patience: int = 10,
    every: int = 40,
) -> float:
    """A held-out estimate of the information between rows of x and rows of z, in nats.

    Trains on three fifths of the pairs. Every `every` steps it looks at a fifth, keeps the best
    network and stops when `patience` looks brought nothing better. On that fifth it also chooses
    what to multiply T by: networks that are too sure of themselves are penalised most by the
    bound, and zero, which says nothing, is a choice too. The value is that of the best network
    on the last fifth, which nothing was chosen by, so pairs learnt by heart gain nothing; it can
    fall below zero. `groups` (one number per pair) keeps pairs of a group in the same part:
    windows of one recording are near copies of each other. Where x or z is a label, the truth is
    at most its entropy, and no bound from n pairs can be trusted above ln n.

    x and z are (n, size), in standard units, on the device that is to do the work.
    """
    if len(x) != len(z) or len(x) < _FEWEST:
        raise Refusal(f"MINE needs {_FEWEST} pairs or more; here are {len(x)} and {len(z)} rows")
    chance = torch.Generator().manual_seed(seed)
    parts = [part.to(x.device) for part in _divided(len(x), groups, chance)]
    train, stop, last = [(x[part].float(), z[part].float()) for part in parts]
    with seeded(seed):
        net = MineNet(x.shape[1], z.shape[1], width).to(x.device)
    take = _stepping(net, train, rate, min(batch, len(train[0])))
    best, waited = _Look.at(net, *stop, seed), 0
    for done in range(1, steps + 1):
        index = torch.randint(len(train[0]), (min(batch, len(train[0])),), generator=chance)
        take(index.to(x.device))
        if done % every:
            continue
        look = _Look.at(net, *stop, seed)
        waited += 1
        if look.value > best.value:
            best, waited = look, 0
        if waited == patience:
            break
    net.load_state_dict(best.weights)
    joint, marginal = _scores(net, *last, seed)
    return float(lower_bound(best.scale * joint, best.scale * marginal))


@dataclass(frozen=True)
class _Look:
    """A network in training, and how well it does on pairs that it is not trained on."""

    value: float
    scale: float
    weights: dict[str, torch.Tensor]

    @classmethod
    def at(cls, net: MineNet, x: torch.Tensor, z: torch.Tensor, seed: int) -> _Look:
        joint, marginal = _scores(net, x, z, seed)
        values = [float(lower_bound(scale * joint, scale * marginal)) for scale in _SCALES]
        best = max(range(len(values)), key=values.__getitem__)
        return cls(values[best], _SCALES[best], copy.deepcopy(net.state_dict()))


def _stepping(
    net: MineNet, pairs: tuple[torch.Tensor, torch.Tensor], rate: float, batch: int
) -> Step:
    """A function that takes one step on the pairs at some positions."""
    device = pairs[0].device
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, capturable=on_gpu)
    average = torch.tensor(-math.inf, device=device)

    def step(index: torch.Tensor) -> None:
        x, z = pairs[0][index], pairs[1][index]
        # The pairs were drawn at random, so moving z by one place shuffles it.
        joint, marginal = net(torch.cat([x, x]), torch.cat([z, z.roll(1, 0)])).chunk(2)
        average.copy_(updated_average(average, marginal))
        optimizer.zero_grad(set_to_none=True)
        corrected_loss(joint, marginal, average).backward()
        optimizer.step()

    if not on_gpu:
        return step
    recorded = capture_step(step, torch.arange(batch, device=device), net, optimizer)
    average.fill_(-math.inf)
    return recorded


@torch.no_grad()
def _scores(
    net: MineNet, x: torch.Tensor, z: torch.Tensor, seed: int, shuffles: int = 8
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of true pairs, and of several shuffles of z."""
    chance = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(z), generator=chance).to(z.device) for _ in range(shuffles)]
    return net(x, z), torch.cat([net(x, z[order]) for order in orders])


def _divided(
    count: int, groups: torch.Tensor | None, chance: torch.Generator
) -> list[torch.Tensor]:
    """Positions of the three parts, at random, with groups kept whole."""
    if groups is None:
        groups = torch.arange(count)
    _, group = torch.unique(groups.cpu(), return_inverse=True)
    place = torch.randperm(int(group.max()) + 1, generator=chance)[group]
    order = torch.argsort(place, stable=True)
    # A group belongs to the part that its middle falls into.
    size = torch.bincount(place)
    middle = (torch.cumsum(size, 0) - size / 2) / count
    part = torch.bucketize(middle, torch.tensor([_PARTS[0], _PARTS[0] + _PARTS[1]]))[place[order]]
    found = [order[part == which] for which in range(3)]
    if min(len(one) for one in found) < 3:
        raise Refusal("MINE needs more groups of pairs, so that parts can be held out")
    return found
