"""How PrivDiffuser's two kinds of classifiers are trained (Yang and Ardakanian 2025).

The surrogate utility model, whose features the denoiser is told (`diffusion/training.py`),
and for each hidden attribute an auxiliary privacy model, held back by mutual information.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sensorveil.diffusion.features import FeatureNet
from sensorveil.nets.mine import MineNet, corrected_loss, lower_bound, updated_average
from sensorveil.train import (
    Checkpoint,
    Gather,
    TrainConfig,
    TrainingTarget,
    derived_seed,
    seeded,
    train,
    train_network,
)

_MINES = 2**20
"""What a seed is for, beyond the numbers of all epochs."""


def train_surrogate(
    net: FeatureNet,
    gather: Gather,
    labels: torch.Tensor,
    course: TrainConfig,
    seed: int,
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Section 4.2 and 4.4: cross-entropies of all kept attributes (n, attributes), added up."""

    def loss(index: torch.Tensor) -> torch.Tensor:
        _, scores = net(gather(index))
        return _surprise(scores, labels[index])

    return train_network(
        "surrogate", net, loss, len(labels), course, seed, labels.device, checkpoint
    )


class Mines(nn.Module):
    """One MINE for each kept attribute: what a code says of its class, section 4.4.

    >>> mines = Mines([4, 3], code=60)
    >>> labels = torch.zeros(8, 2, dtype=torch.long)
    >>> mines.information(torch.zeros(8, 60), labels).shape
    torch.Size([2])
    """

    log_average: torch.Tensor

    def __init__(self, classes: Sequence[int], code: int) -> None:
        super().__init__()
        self.classes = tuple(classes)
        self.nets = nn.ModuleList(MineNet(count, code) for count in classes)
        self.register_buffer("log_average", torch.full((len(self.classes),), -math.inf))

    def scores(
        self, codes: torch.Tensor, labels: torch.Tensor
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """T of true pairs and of shuffled ones, for each attribute."""
        # Windows of a batch come in random order, so moving codes by one place shuffles them.
        paired, shuffled = torch.cat([codes, codes.roll(1, 0)]), []
        for which, (net, count) in enumerate(zip(self.nets, self.classes, strict=True)):
            told = nn.functional.one_hot(labels[:, which], count).to(codes.dtype)
            shuffled.append(tuple(net(torch.cat([told, told]), paired).chunk(2)))
        return [(joint, marginal) for joint, marginal in shuffled]

    def information(self, codes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The estimate for each attribute, in nats: (attributes,)."""
        return torch.stack([lower_bound(*pair) for pair in self.scores(codes, labels)])

    def loss(self, codes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """What to minimise so that the estimates are sharp; it moves the averages on."""
        losses = []
        for which, (joint, marginal) in enumerate(self.scores(codes, labels)):
            average = updated_average(self.log_average[which], marginal)
            self.log_average[which] = average
            losses.append(corrected_loss(joint, marginal, average))
        return torch.stack(losses).sum()


def regularised_loss(
    code: torch.Tensor,
    scores: torch.Tensor,
    hidden: torch.Tensor,
    kept: torch.Tensor,
    mines: Mines,
    weight: float,
) -> torch.Tensor:
    """Equations (18) and (24): CE + w3 sum_k MI(z_s, y_k).

    An estimate below zero says that T is lost, not that less is told, so nothing is gained by it;
    the paper does not cut there.
    """
    told = mines.information(code.float(), kept).clamp(min=0).sum()
    return cross_entropy(scores, hidden) + weight * told


def train_auxiliary(
    net: FeatureNet,
    gather: Gather,
    known: torch.Tensor,
    hidden: torch.Tensor,
    kept: torch.Tensor,
    classes: Sequence[int],
    weight: float,
    course: TrainConfig,
    seed: int,
    *,
    stage: str,
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Equations (18) and (24): CE + w3 sum_k MI(z_s, y_k), against MINEs trained in turns with it.

    `known` (n, size) are the surrogate's features, `hidden` (n,) the classes to read, and `kept`
    (n, attributes) those that z_s shall not tell, each of so many `classes`. Without weight there
    are no MINEs.
    """

    def read(index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        code, (scores,) = net(gather(index), known[index])
        return code, scores

    if not weight:
        players = [TrainingTarget(net, lambda index: cross_entropy(read(index)[1], hidden[index]))]
    else:
        with seeded(derived_seed(seed, _MINES)):
            mines = Mines(classes, code=known.shape[1]).to(hidden.device)

        def sharpen(index: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                code, _ = read(index)
            return mines.loss(code.float(), kept[index])

        def held_back(index: torch.Tensor) -> torch.Tensor:
            return regularised_loss(*read(index), hidden[index], kept[index], mines, weight)

        players = [TrainingTarget(mines, sharpen), TrainingTarget(net, held_back)]
    losses = train(stage, players, len(hidden), course, seed, hidden.device, checkpoint)
    return losses[-1]


def _surprise(scores: Sequence[torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
    return torch.stack(
        [cross_entropy(one, labels[:, which]) for which, one in enumerate(scores)]
    ).sum()
