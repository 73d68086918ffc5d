"""Seeds: inside a block all chance comes from the seed, outside nothing changes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sensorveil.nets.seeding import seeded


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31))
def test_inside_only_the_seed_counts(seed: int, outside: int) -> None:
    torch.manual_seed(outside)
    with seeded(seed):
        first = torch.rand(3)
    torch.manual_seed(outside + 1)
    with seeded(seed):
        second = torch.rand(3)
    assert (first == second).all()


def test_other_seeds_draw_otherwise() -> None:
    draws = []
    for seed in range(20):
        with seeded(seed):
            draws.append(float(torch.rand(1)))
    assert len(set(draws)) == 20


def test_outside_is_untouched_even_after_an_error() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with pytest.raises(ZeroDivisionError), seeded(1):
        torch.rand(int(1 / 0))
    assert (torch.rand(2) == expected).all()


def test_blocks_may_be_nested() -> None:
    with seeded(1):
        alone = torch.rand(2)
    with seeded(1):
        before = torch.rand(1)
        with seeded(2):
            torch.rand(7)
        after = torch.rand(1)
    assert torch.cat([before, after]).tolist() == alone.tolist()


def test_weights_and_dropout_follow() -> None:
    def run() -> torch.Tensor:
        with seeded(3):
            return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))(torch.ones(2, 4))

    assert (run() == run()).all()
