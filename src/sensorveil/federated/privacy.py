"""Client-level differential privacy of a federation.

The unit of privacy is one client: two federations are neighbours if one has all the data of one
person and the other has none of it. Each client's update is cut to a length, and normal noise is
added to the sum. Nothing is promised for what was learnt before: scaling and readers come from
people who gave their data for that.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import lru_cache

import torch

from sensorveil.errors import Refusal
from sensorveil.federated.plan import Plan

_ORDERS = [*range(2, 64), 128, 256, 512]
"""Orders of Renyi divergence that are tried: whole ones, as others take 20 times as long."""


def clipped(update: torch.Tensor, longest: float) -> torch.Tensor:
    """The update, shortened if it is longer than that.

    >>> clipped(torch.tensor([3.0, 4.0]), 1.0)
    tensor([0.6000, 0.8000])
    """
    return update * min(1.0, longest / max(float(update.norm()), 1e-30))


def noisy_mean(
    updates: Sequence[torch.Tensor], plan: Plan, expected: float, noise: torch.Tensor
) -> torch.Tensor:
    """The sum of cut updates and of standard `noise`, brought to size, over the expected number.

    How many clients really answered depends on who takes part, so it must not be divided by. Where
    nobody was drawn noise alone is added, as nobody may learn that.
    """
    total = plan.noise * plan.clip * noise
    for update in updates:
        total = total + clipped(update, plan.clip)
    return total / expected


@lru_cache(maxsize=4096)
def epsilon(plan: Plan, rounds: int) -> float:
    """What so many rounds have cost, by Opacus' accountant of Renyi divergences.

    Clients are drawn once an epoch, each by chance `share`, and serve in all of its rounds. So an
    epoch's k rounds are one Gaussian mechanism of noise / sqrt(k) on one drawn group, and the
    groups of different epochs are drawn afresh.
    """
    if rounds == 0:
        return 0.0
    try:
        from opacus.accountants import RDPAccountant
    except ImportError:
        raise Refusal("a private federation needs Opacus: pip install 'sensorveil[dp]'") from None
    whole, rest = divmod(rounds, plan.rounds)
    accountant = RDPAccountant()
    for epochs, length in ((whole, plan.rounds), (1, rest)):
        if epochs and length:
            accountant.history.append((plan.noise / math.sqrt(length), plan.share, epochs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the best order lies at the end of its list
        return float(accountant.get_epsilon(plan.delta, alphas=_ORDERS))


def affordable(plan: Plan, rounds: int) -> bool:
    """Whether so many rounds stay within the budget; always where nothing is private."""
    return not plan.noise or epsilon(plan, rounds) <= plan.budget
