"""Small networks on a GPU wait for kernel launches; a recorded step launches them all at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

Step = Callable[[torch.Tensor], None]


def graphed(
    step: Step, example: torch.Tensor, net: nn.Module, *optimizers: torch.optim.Optimizer
) -> Step:
    """A training step as a CUDA graph, replayed with new inputs of the example's shape.

    `step` must do everything on the device, and the optimizers must be `capturable`. Recording
    needs a few real steps first; what they change in the network and the optimizers is undone.
    """
    given = example.clone()
    kept = {name: value.clone() for name, value in net.state_dict().items()}
    side = torch.cuda.Stream()
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
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(given)

    def replay(batch: torch.Tensor) -> None:
        given.copy_(batch)
        graph.replay()

    return replay
