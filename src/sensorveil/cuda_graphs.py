"""CUDA graphs: a computation is recorded once and replayed with new inputs.

Small networks on a GPU wait for kernel launches. A replayed graph launches all kernels at once.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

Step = Callable[[torch.Tensor], None]
"""One training step on the windows at some positions."""

Inputs = Mapping[str, torch.Tensor]
"""Tensors by name, with one row for each window."""


def capture_step(
    step: Step, example: torch.Tensor, network: nn.Module, *optimizers: torch.optim.Optimizer
) -> Step:
    """Record a training step as a CUDA graph.

    Recording needs a few real steps first. What they change in the network and in the optimizers
    is undone.

    Parameters
    ----------
    step
        The step. It must do all its work on the device.
    example
        An input of the shape that every replay will have.
    network
        Everything that the step changes, buffers and averages too.
    *optimizers
        Optimizers that the step uses; they must be `capturable`.

    Returns
    -------
    Step
        A function that copies its input into the graph's memory and replays the graph.
    """
    memory = example.clone()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    graph, side = _graph_and_stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(memory)
    torch.cuda.current_stream().wait_stream(side)
    network.load_state_dict(before)
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()
        optimizer.zero_grad(set_to_none=True)
    with _recording(graph, side):
        step(memory)

    # The graph reads the tensors that `step` holds: they must live as long as it can be replayed,
    # or other tensors come to lie in their place.
    def replay(batch: torch.Tensor, _alive: Step = step) -> None:
        memory.copy_(batch)
        graph.replay()

    return replay


def capture(
    compute: Callable[[Inputs], torch.Tensor], example: Inputs
) -> Callable[[Inputs], torch.Tensor]:
    """Record a computation as a CUDA graph; on a CPU return it unchanged.

    Parameters
    ----------
    compute
        The computation. It must do all its work on the device, and each row of its output must
        depend on the same row of its inputs alone: a replay with fewer rows computes the others
        too.
    example
        Inputs with as many rows as a replay will have at most.

    Returns
    -------
    Callable
        `compute`, for inputs with at most as many rows as the example.

    Examples
    --------
    >>> twice = capture(lambda inputs: 2 * inputs["x"], {"x": torch.zeros(4)})
    >>> twice({"x": torch.ones(3)})
    tensor([2., 2., 2.])
    """
    if not next(iter(example.values())).is_cuda:
        return compute
    memory = {name: value.clone() for name, value in example.items()}
    graph, side = _graph_and_stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        compute(memory)
    torch.cuda.current_stream().wait_stream(side)
    with _recording(graph, side):
        output = compute(memory)

    # As above: the tensors that `compute` holds must live on.
    def replay(inputs: Inputs, _alive: Callable[[Inputs], torch.Tensor] = compute) -> torch.Tensor:
        rows = len(next(iter(inputs.values())))
        for name, value in inputs.items():
            memory[name][:rows].copy_(value)
        graph.replay()
        return output[:rows].clone()

    return replay


_NUM_STREAMS = 32
"""Torch hands out this many streams, one after the other, and then the first again."""

_STREAMS_IN_USE: set[int] = set()
"""Streams of graphs that are alive."""


def _graph_and_stream() -> tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]:
    """A graph, and a stream that no other living graph was recorded on.

    All graphs of one stream share one cuBLAS workspace, and the first of them to be destroyed frees
    it (pytorch issue 193402): the others would then write to memory that is not theirs.
    """
    graph = torch.cuda.CUDAGraph()
    for _ in range(_NUM_STREAMS):
        stream = torch.cuda.Stream()
        if stream.cuda_stream not in _STREAMS_IN_USE:
            _STREAMS_IN_USE.add(stream.cuda_stream)
            weakref.finalize(graph, _STREAMS_IN_USE.discard, stream.cuda_stream).atexit = False
            return graph, stream
    raise RuntimeError(f"{_NUM_STREAMS} graphs are alive, and each needs a stream of its own")


@contextmanager
def _recording(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Iterator[None]:
    """Record what is done inside, with garbage collection off.

    No other graph may be destroyed while one is recorded.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, stream=stream):
            yield
    finally:
        if enabled:
            gc.enable()
