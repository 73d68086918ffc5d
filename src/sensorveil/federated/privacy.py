"""Differential privacy of a federation for each client.

The unit of privacy is one client: two federations are neighbours if one has all data of one person
and the other has none of it. Each client's update is clipped, and normal noise is added to the sum.
Nothing is promised for the run that the federation starts from.
"""

from __future__ import annotations

import math
import secrets
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

import torch

from sensorveil.errors import Refusal
from sensorveil.federated.config import FederationConfig

_ORDERS = [*range(2, 64), 128, 256, 512]
"""Orders of the Renyi divergence: whole numbers, since others take 20 times as long."""


def clip(update: torch.Tensor, max_norm: float) -> torch.Tensor:
    """The update, shortened to `max_norm` if it is longer.

    >>> clip(torch.tensor([3.0, 4.0]), 1.0)
    tensor([0.6000, 0.8000])
    """
    return update * min(1.0, max_norm / max(float(update.norm()), 1e-30))


def noisy_mean(
    updates: Sequence[torch.Tensor],
    config: FederationConfig,
    expected: float,
    noise: torch.Tensor,
) -> torch.Tensor:
    """The sum of clipped updates and noise, divided by the expected number of clients.

    How many clients really answered depends on who takes part, so it is not divided by. Where
    nobody was sampled there is noise alone, as nobody may learn that.
    """
    total = config.privacy.noise_multiplier * config.privacy.clip_norm * noise
    for update in updates:
        total = total + clip(update, config.privacy.clip_norm)
    return total / expected


def fresh_noise(like: torch.Tensor) -> torch.Tensor:
    """Standard normal noise of that shape, which no seed can repeat and so nobody can take out."""
    generator = torch.Generator().manual_seed(secrets.randbits(63))
    return torch.randn(like.shape, generator=generator).to(like.device)


@lru_cache(maxsize=4096)
def epsilon(config: FederationConfig, rounds: int) -> float:
    """What so many rounds have cost, by Opacus' accountant of Renyi divergences.

    Each client is sampled once an epoch with probability `client_fraction` and serves in all of its
    rounds. So an epoch's k rounds are one Gaussian mechanism with noise / sqrt(k) on one sample.
    """
    if rounds == 0:
        return 0.0
    try:
        from opacus.accountants import RDPAccountant
    except ImportError:
        raise Refusal("a private federation needs Opacus: pip install 'sensorveil[dp]'") from None
    whole, rest = divmod(rounds, config.rounds)
    accountant = RDPAccountant()
    for epochs, length in ((whole, config.rounds), (1, rest)):
        if epochs and length:
            noise = config.privacy.noise_multiplier / math.sqrt(length)
            accountant.history.append((noise, config.client_fraction, epochs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the best order lies at the end of its list
        return float(accountant.get_epsilon(config.privacy.delta, alphas=_ORDERS))


@lru_cache(maxsize=64)
def affordable_rounds(config: FederationConfig) -> int:
    """How many of the configured rounds stay within `max_epsilon`; all where nothing is private."""
    if not config.is_private:
        return config.total_rounds
    rounds = range(1, config.total_rounds + 1)
    return bisect_right(rounds, config.privacy.max_epsilon, key=lambda n: epsilon(config, n))
