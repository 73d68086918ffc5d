"""Which of several samples leaves: who judges whether one is of the class that was told."""

from __future__ import annotations

from collections.abc import Callable

import torch

from sensorveil.cuda_graphs import Inputs
from sensorveil.data.windows import Scaling
from sensorveil.diffusion.guidance import Reader, Weight
from sensorveil.measures.inference import Ensemble

JUDGES = ("features", "panel")
"""By the features that the generator is told, or by the panel that read the wearer's class."""

Judge = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""From signals (n, ...) and what was told (n, features): how like it, and of its class or not."""


Readers = Callable[[Inputs], list[tuple[Reader, Weight]]]
"""For each attribute that is avoided: log p of the class to avoid, and its weight."""


def worth(
    judge: Judge, readers: Readers
) -> Callable[[torch.Tensor, torch.Tensor, Inputs], torch.Tensor]:
    """How good a try is, as made and as a signal: like what was told, and unlike what is avoided.

    A try that is of the class that was told is better than all that are not, and of these one is
    the better the less its reader finds the class to avoid in it.
    """

    def of(made: torch.Tensor, signal: torch.Tensor, piece: Inputs) -> torch.Tensor:
        like, right = judge(signal, piece["told"])
        unlike = torch.ones_like(like)
        for read, weight in readers(piece):
            unlike = unlike * (1 - (torch.as_tensor(weight) > 0) * read(made).exp())
        return like + right * (1 + unlike)

    return of


def by_features(encoded: Callable[[torch.Tensor], torch.Tensor], centres: torch.Tensor) -> Judge:
    """The class whose centre (classes, features) is nearest to what `encoded` makes of a signal.

    >>> judge = by_features(lambda signal: signal, torch.eye(2))
    >>> judge(torch.tensor([[0.8, 0.6]]), torch.tensor([[0.0, 1.0]]))
    (tensor([0.6000]), tensor([False]))
    """

    def judge(signal: torch.Tensor, told: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = encoded(signal)
        return (features * told).sum(1), _nearest(features, centres) == _nearest(told, centres)

    return judge


def by_panel(panel: Ensemble, scaling: Scaling, centres: torch.Tensor, is_complex: bool) -> Judge:
    """The class that the panel reads, from signals in the standard units of `scaling`.

    A complex channel comes as two real ones, and the panel wants it as it is.
    """
    readings = panel.readings_in(scaling)

    def judge(signal: torch.Tensor, told: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen = torch.complex(signal[:, ::2], signal[:, 1::2]) if is_complex else signal
        shares = readings(seen).softmax(2).mean(0)
        wanted = _nearest(told, centres)
        return shares.gather(1, wanted.unsqueeze(1)).squeeze(1), shares.argmax(1) == wanted

    return judge


def _nearest(features: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    return (features @ centres.T).argmax(1)
