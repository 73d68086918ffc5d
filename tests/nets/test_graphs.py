"""A network as a compiled function; steps that are recorded on a GPU."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable

import pytest
import torch
from torch import nn

from sensorveil.nets import graphs
from sensorveil.nets.graphs import Inputs, Step, as_function, graphed, recorded


def test_not_compiled_it_is_the_network_itself() -> None:
    net = nn.Linear(2, 2)
    assert as_function(net, compiled=False) is net


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")
def test_compiled_it_keeps_the_weights_of_the_network() -> None:
    net, x = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 2)), torch.ones(5, 4)
    call = as_function(net, compiled=True)
    torch.testing.assert_close(call(x), net(x))
    call(x).sum().backward()
    learnt = net[0].weight.grad
    net[0].weight.grad = None
    net(x).sum().backward()
    torch.testing.assert_close(learnt, net[0].weight.grad)
    with torch.no_grad():
        net[2].bias.add_(1)
    torch.testing.assert_close(call(x), net(x))


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="recording needs a GPU")


@on_gpu
def test_what_only_the_recorded_work_holds_lives_on() -> None:
    def made() -> Callable[[Inputs], torch.Tensor]:
        ones = torch.ones(1000, device="cuda")
        return recorded(lambda given: given["x"] + ones, {"x": torch.zeros(1000, device="cuda")})

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
            return graphed(step, first, net, optimizer) if record else step

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
        return recorded(lambda given: given["x"] @ deep.T, {"x": wide})

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
    before = set(graphs._TAKEN)
    living = []
    for _ in range(5):
        living.append(recorded(lambda given: given["x"] + 1, {"x": x}))
        for _ in range(31):
            torch.cuda.Stream()  # the next one would be the last recording's
    assert len(graphs._TAKEN - before) == 5
    del living[1:]
    assert len(graphs._TAKEN - before) == 1


@on_gpu
def test_no_recording_is_destroyed_while_another_is_made() -> None:
    class Ring:
        """Garbage that only the collector finds."""

        def __init__(self, held: object) -> None:
            self.held, self.own = held, self

    x = torch.zeros(4, device="cuda")
    old = [recorded(lambda given: given["x"] - 1, {"x": x})]

    def work(given: Inputs) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            Ring(old.pop())
            assert len([[] for _ in range(100_000)]) == 100_000  # enough to start a collection
        return given["x"] + 1

    assert recorded(work, {"x": x})({"x": x}).tolist() == [1.0] * 4
    assert not old
    assert gc.isenabled()
