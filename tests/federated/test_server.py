"""The server: who is chosen, whose answer counts, and how weights move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sensorveil.federated.plan import Plan
from sensorveil.federated.server import Answer, Round, State, advanced, choose, combined, sift


def answers(*updates, windows=None) -> list[Answer]:
    counts = windows or [1] * len(updates)
    return [
        Answer(client, torch.tensor(update), count)
        for client, (update, count) in enumerate(zip(updates, counts, strict=True))
    ]


def test_two_of_five_are_chosen_and_all_equally_often():
    plan, counts = Plan(share=0.4), np.zeros(10)
    for epoch in range(500):
        chosen = choose(range(10), plan, np.random.default_rng([1, epoch]))
        assert len(set(chosen)) == 4
        counts[list(chosen)] += 1
    assert abs(counts / 500 - 0.4).max() < 0.08


def test_a_private_federation_draws_each_client_on_its_own():
    sizes = [
        len(choose(range(10), Plan(share=0.4, noise=1.0), np.random.default_rng(epoch)))
        for epoch in range(1000)
    ]
    assert np.mean(sizes) == pytest.approx(4, abs=0.2)
    assert np.var(sizes) == pytest.approx(10 * 0.4 * 0.6, rel=0.2)  # that of a binomial


def test_what_cannot_count_is_refused_by_name():
    given = answers(
        [1.0, 0.0], [float("nan"), 0.0], [1.0], [0.0, 1.0], [900.0, 0.0], [float("inf"), 1.0]
    )
    given.append(Answer(17, torch.tensor([1.0, 1.0]), 1))
    good, refused = sift(given, chosen=range(6), size=2, plan=Plan())
    assert [answer.client for answer in good] == [0, 3]
    assert refused == {
        1: "not finite",
        2: "wrong size",
        4: "outsized",
        5: "not finite",
        17: "nobody asked for it",
    }


def test_a_private_server_refuses_nobody_for_length():
    given = answers([1.0, 0.0], [0.0, 1.0], [900.0, 0.0])
    good, refused = sift(given, range(3), 2, Plan(noise=1.0))
    assert (len(good), refused) == (3, {})


def test_means_are_plain_or_weighted():
    given = answers([1.0, 0.0], [4.0, 3.0], windows=[10, 20])
    assert combined(given, Plan()).tolist() == [2.5, 1.5]
    assert combined(given, replace(Plan(), weighted=True)).tolist() == [3.0, 2.0]


def test_gradients_go_through_adam_and_changes_are_added():
    state = State.fresh(torch.tensor([1.0, 1.0]))
    happened = Round(asked=2, answered=2, refused=1, bytes_down=16, bytes_up=8)
    mean = torch.tensor([0.5, -0.25])
    stepped = advanced(state, mean, Plan(rate=0.1), happened, {4: "outsized"})
    torch.testing.assert_close(stepped.vector, torch.tensor([0.9, 1.1]))  # Adam's first step
    changed = advanced(state, mean, Plan(sends="changes", local_steps=2), happened, {})
    assert changed.vector.tolist() == [1.5, 0.75]
    assert (stepped.number, stepped.bytes_sent) == (1, 24)
    assert stepped.refusals == ((1, 4, 2),)
    assert state.number == 0  # nothing is changed in place


def test_the_rate_rises_and_falls_over_all_rounds():
    plan = Plan(rate=0.1, cycle=True, epochs=2, rounds=5)
    state, moved = State.fresh(torch.zeros(1)), []
    for _ in range(10):
        after = advanced(state, torch.ones(1), plan, Round(1, 1, 0, 4, 4), {})
        moved.append(float(state.vector - after.vector))  # Adam moves by the rate along a slope
        state = after
    assert moved[0] == pytest.approx(0.004, rel=1e-3)
    assert max(moved) == pytest.approx(0.1, rel=1e-3) == pytest.approx(moved[3], rel=1e-3)
    assert moved[3:] == sorted(moved[3:], reverse=True)
