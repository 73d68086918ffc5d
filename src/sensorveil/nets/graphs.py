"""Small networks on a GPU wait for kernel launches; a recorded step launches them all at once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

Step = Callable[[torch.Tensor], None]

Inputs = Mapping[str, torch.Tensor]
"""Tensors by name, with one row for each window."""


def graphed(
    step: Step, example: torch.Tensor, net: nn.Module, *optimizers: torch.optim.Optimizer
) -> Step:
    """A training step as a CUDA graph, replayed with new inputs of the example's shape.

    `step` must do everything on the device, and the optimizers must be `capturable`. Recording
    needs a few real steps first; what they change in the network and the optimizers is undone.
    """
    given = example.clone()
    kept = {name: value.clone() for name, value in net.state_dict().items()}
    graph, side = _blank()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(given)
    torch.cuda.current_stream().wait_stream(side)
    net.load_state_dict(kept)
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()
        optimizer.zero_grad(set_to_none=True)
    with _recording(graph, side):
        step(given)

    # What was recorded reads the tensors that `step` holds: they must live as long as it can be
    # replayed, or other tensors come to lie in their place.
    def replay(batch: torch.Tensor, _held: Step = step) -> None:
        given.copy_(batch)
        graph.replay()

    return replay


def as_function(net: Callable[..., torch.Tensor], compiled: bool) -> Callable[..., torch.Tensor]:
    """The network as it is called; `compiled` fuses its small steps, for one shape of its inputs.

    It keeps the weights of the network, and is recorded like any other. Compiling takes a minute
    for a large network, and needs a C compiler.
    """
    return torch.compile(net, dynamic=False) if compiled else net


def recorded(
    work: Callable[[Inputs], torch.Tensor], example: Inputs
) -> Callable[[Inputs], torch.Tensor]:
    """A computation as a CUDA graph, replayed with as many rows as the example has, or fewer.

    `work` must do everything on the device, and what it makes of a row must depend on that row
    alone: rows that are not given are there all the same. Off a GPU it is `work` itself.

    >>> twice = recorded(lambda given: 2 * given["x"], {"x": torch.zeros(4)})
    >>> twice({"x": torch.ones(3)})
    tensor([2., 2., 2.])
    """
    if not next(iter(example.values())).is_cuda:
        return work
    held = {name: one.clone() for name, one in example.items()}
    graph, side = _blank()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work(held)
    torch.cuda.current_stream().wait_stream(side)
    with _recording(graph, side):
        made = work(held)

    # As above: the tensors that `work` holds must live on.
    def replay(given: Inputs, _held: Callable[[Inputs], torch.Tensor] = work) -> torch.Tensor:
        rows = len(next(iter(given.values())))
        for name, one in given.items():
            held[name][:rows].copy_(one)
        graph.replay()
        return made[:rows].clone()

    return replay


_POOL = 32
"""Streams that torch hands out, one after the other and then the first again."""

_TAKEN: set[int] = set()
"""Those of recordings that live."""


def _blank() -> tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]:
    """A graph, and a stream that no other recording has for as long as this one lives.

    All that are recorded on one stream share one workspace of cuBLAS, and the first of them to be
    destroyed takes it away (pytorch issue 193402): the others would then write to memory that is
    not theirs.
    """
    graph = torch.cuda.CUDAGraph()
    for _ in range(_POOL):
        stream = torch.cuda.Stream()
        if stream.cuda_stream not in _TAKEN:
            _TAKEN.add(stream.cuda_stream)
            weakref.finalize(graph, _TAKEN.discard, stream.cuda_stream).atexit = False
            return graph, stream
    raise RuntimeError(f"{_POOL} recordings live already, and each needs a stream of its own")


@contextmanager
def _recording(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Iterator[None]:
    """Records what is done within; no other recording may be destroyed then, so garbage waits."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, stream=stream):
            yield
    finally:
        if collects:
            gc.enable()
