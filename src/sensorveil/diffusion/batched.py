"""Many windows through a network, batch by batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from sensorveil.cuda_graphs import Inputs, capture
from sensorveil.data.windows import batches
from sensorveil.progress import track
from sensorveil.train import Gather


@torch.no_grad()
def applied(network: Gather, windows: Gather, count: int, device: str) -> torch.Tensor:
    """What a network gives for each of `count` windows, on the device.

    >>> applied(lambda x: 2 * x, torch.ones(300).__getitem__, 300, "cpu").shape
    torch.Size([300])
    """
    index = torch.arange(count, device=device)
    return torch.cat([network(windows(index[rows])) for rows in batches(count, device)])


def run_in_batches(
    compute: Callable[[Inputs], torch.Tensor], inputs: Inputs, device: str
) -> np.ndarray:
    """The output for all rows; on a GPU the first of several batches is captured and replayed.

    Parameters
    ----------
    compute
        From the inputs of a batch to its output, on the device; see `capture`.
    inputs
        Tensors by name, with one row for each window.
    device
        Where to compute.

    Examples
    --------
    >>> run_in_batches(lambda batch: 2 * batch["x"], {"x": torch.ones(300)}, "cpu").shape
    (300,)
    """
    parts = [*batches(len(next(iter(inputs.values()))), device)]
    outputs = []
    for rows in track(parts, "windows"):
        batch = {name: value[rows].to(device) for name, value in inputs.items()}
        if rows.start == 0 and len(parts) > 1:
            compute = capture(compute, batch)
        outputs.append(compute(batch).cpu().numpy())
    return np.concatenate(outputs)
