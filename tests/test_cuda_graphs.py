"""Recorded steps and computations give what the plain ones give, and keep what they need."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch import nn

from sensorveil import cuda_graphs
from sensorveil.cuda_graphs import Inputs, Step, capture, capture_step

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="recording needs a GPU")


@on_gpu
def test_what_only_the_recorded_work_holds_lives_on() -> None:
    def made() -> Callable[[Inputs], torch.Tensor]:
        ones = torch.ones(1000, device="cuda")
        return capture(lambda given: given["x"] + ones, {"x": torch.zeros(1000, device="cuda")})

    work = made()
    others = [torch.full((1000,), 7.0, device="cuda") for _ in range(100)]  # would take its place
    x = torch.zeros(1000, device="cuda")
    assert work({"x": x}).unique().tolist() == [1.0]
    assert len(others) == 100


@on_gpu
def test_the_optimizer_of_a_recorded_step_lives_on() -> None:
    """Recorded steps end where plain ones do, whoever else asks for memory."""

    def trained(record: bool) -> torch.Tensor:
        torch.manual_seed(0)
        net = nn.Linear(64, 64, device="cuda")
        x = torch.randn(32, 64, device="cuda")

        def stepping() -> Step:
            optimizer = torch.optim.Adam(net.parameters(), lr=0.01, capturable=True)

            def step(index: torch.Tensor) -> None:
                optimizer.zero_grad(set_to_none=True)
                (net(x[index]) - x[index]).square().mean().backward()
                optimizer.step()

            first = torch.arange(16, device="cuda")
            return capture_step(step, first, net, optimizer) if record else step

        take = stepping()
        for number in range(50):
            taken = torch.full((64, 64), float(number), device="cuda")
            take(torch.arange(16, device="cuda") + number % 16)
            del taken
        return net.weight.detach()

    torch.testing.assert_close(trained(record=True), trained(record=False))


@on_gpu
def test_a_recording_outlives_those_before_it() -> None:
    """Large products need a workspace; that of a recording must not go with another one's."""
    chance = torch.Generator(device="cuda").manual_seed(0)
    wide, deep = (
        torch.randn(64, 32768, device="cuda", dtype=torch.bfloat16, generator=chance)
        for _ in range(2)
    )

    def product() -> Callable[[Inputs], torch.Tensor]:
        return capture(lambda given: given["x"] @ deep.T, {"x": wide})

    expected = wide @ deep.T
    first = product()
    second = product()
    assert torch.equal(first({"x": wide}), expected)
    del first
    gc.collect()
    torch.cuda.empty_cache()
    others = [torch.full((1 << 22,), 7.0, device="cuda") for _ in range(8)]
    for _ in range(20):
        assert torch.equal(second({"x": wide}), expected)
    assert all(bool((one == 7.0).all()) for one in others)


@on_gpu
def test_every_living_recording_has_a_stream_of_its_own() -> None:
    x = torch.zeros(4, device="cuda")
    before = set(cuda_graphs._STREAMS_IN_USE)
    living = []
    for _ in range(5):
        living.append(capture(lambda given: given["x"] + 1, {"x": x}))
        for _ in range(31):
            torch.cuda.Stream()  # the next one would be the last recording's
    assert len(cuda_graphs._STREAMS_IN_USE - before) == 5
    del living[1:]
    assert len(cuda_graphs._STREAMS_IN_USE - before) == 1


@on_gpu
def test_no_recording_is_destroyed_while_another_is_made() -> None:
    class Ring:
        """Garbage that only the collector finds."""

        def __init__(self, held: object) -> None:
            self.held, self.own = held, self

    x = torch.zeros(4, device="cuda")
    old = [capture(lambda given: given["x"] - 1, {"x": x})]

    def work(given: Inputs) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            Ring(old.pop())
            assert len([[] for _ in range(100_000)]) == 100_000  # enough to start a collection
        return given["x"] + 1

    assert capture(work, {"x": x})({"x": x}).tolist() == [1.0] * 4
    assert not old
    assert gc.isenabled()
