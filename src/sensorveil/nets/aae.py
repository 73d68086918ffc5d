"""The Anonymization Autoencoder: its network, its two losses, and training that stops in time.

Malekzadeh and others, Mobile Sensor Data Anonymization (2019).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import nn

from sensorveil.cuda_graphs import Step, capture_step
from sensorveil.progress import track

Objective = Callable[[torch.Tensor], torch.Tensor]
"""The mean loss of the windows at some positions."""

SHRINK = 4
"""How many samples become one number of the latent code, per channel."""


class AnonymizingAutoencoder(nn.Module):
    """Windows to a quarter of their numbers and back: three convolutions and one each way.

    Kernels reach over all channels, as those of the published network do with its two. A length
    that is no multiple of four is drawn out with its last sample, and cut again at the end.

    >>> net = AnonymizingAutoencoder(channels=2, width=8)
    >>> net.encode(torch.zeros(3, 2, 30)).shape, net(torch.zeros(3, 2, 30)).shape
    (torch.Size([3, 2, 8]), torch.Size([3, 2, 30]))
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *_block(channels, width),
            *_block(width, width),
            nn.MaxPool1d(2),
            *_block(width, width),
            nn.MaxPool1d(2),
            nn.Conv1d(width, channels, 5, padding=2, bias=False),
            nn.BatchNorm1d(channels),
        )
        self.decoder = nn.Sequential(
            *_block(channels, width),
            *_doubling_block(width),
            *_doubling_block(width),
            nn.Conv1d(width, channels, 5, padding=2),
        )

    def encode(self, signal: torch.Tensor) -> torch.Tensor:
        """The latent code: (n, channels, length / 4), rounded up."""
        lacking = -signal.shape[-1] % SHRINK
        if lacking:
            signal = torch.cat([signal, signal[..., -1:].expand(-1, -1, lacking)], dim=-1)
        latent: torch.Tensor = self.encoder(signal)
        return latent

    def decode(self, latent: torch.Tensor, length: int) -> torch.Tensor:
        """Windows of that length out of latent codes."""
        signal: torch.Tensor = self.decoder(latent)
        return signal[..., :length]

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """The anonymised windows, of the same shape."""
        return self.decode(self.encode(signal), signal.shape[-1])


# No bias before a batch norm: it cancels there, its gradient is rounding error, and Adam makes
# steps of full size out of that.
def _block(inputs: int, width: int) -> tuple[nn.Module, ...]:
    return nn.Conv1d(inputs, width, 5, padding=2, bias=False), nn.BatchNorm1d(width), nn.ReLU()


def _doubling_block(width: int) -> tuple[nn.Module, ...]:
    doubling = nn.ConvTranspose1d(width, width, 5, 2, padding=2, output_padding=1, bias=False)
    return doubling, nn.BatchNorm1d(width), nn.ReLU()


def uniform_loss(scores: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of a reader's output against equal chances for all classes.

    For two classes it is the binary cross-entropy against 0.5. It is smallest, at the logarithm
    of the number of classes, where the reader cannot decide.

    >>> round(float(uniform_loss(torch.zeros(5, 3)).exp()), 4)
    3.0
    """
    return -scores.log_softmax(1).mean()


def not_the_one_loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """-sum_k y_k log(1 - p_k) - log(1 - max_k p_k): neither the true class nor any other is sure.

    A label below 0 is unknown; the first term is left out for it. The authors clip p; here
    log(1 - p) is formed from the scores, so that a reader who is very sure has a gradient too.

    >>> half = torch.tensor([[0.0, 0.0]])
    >>> round(float(not_the_one_loss(half, torch.tensor([0])).exp()), 4)  # 1 / 0.5 twice
    4.0
    """
    true = _log_of_others(scores, labels.clamp(min=0)) * (labels >= 0)
    surest = _log_of_others(scores, scores.argmax(1))
    return -(true + surest).mean()


def _log_of_others(scores: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """log(1 - p) of the chosen class of each row."""
    others = scores.scatter(1, chosen.unsqueeze(1), -math.inf)
    return others.logsumexp(1) - scores.logsumexp(1)


def train_until_patience(
    net: nn.Module,
    objective: Objective,
    fitting: torch.Tensor,
    held: torch.Tensor,
    *,
    epochs: int,
    patience: int,
    batch: int,
    rate: float,
    seed: int,
    what: str = "training",
) -> list[float]:
    """Adam on the positions in `fitting`; returns the loss on those in `held` after each epoch.

    It stops once `patience` epochs brought nothing better, and goes back to the best weights.
    """
    chance = torch.Generator().manual_seed(seed)
    batch = min(batch, len(fitting))
    steps = len(fitting) // batch
    net.train()
    take = _training_step(net, objective, fitting[:batch], rate)
    best, best_loss, waited = copy.deepcopy(net.state_dict()), math.inf, 0
    losses: list[float] = []
    for _ in track(range(epochs), what):
        if waited == patience:
            continue  # whoever listens still hears of the end
        net.train()
        order = fitting[torch.randperm(len(fitting), generator=chance).to(fitting.device)]
        for index in order[: steps * batch].view(steps, batch):
            take(index)
        net.eval()
        losses.append(mean_objective(objective, held))
        waited += 1
        if losses[-1] < best_loss:
            best, best_loss, waited = copy.deepcopy(net.state_dict()), losses[-1], 0
    net.load_state_dict(best)
    net.eval()
    return losses


def _training_step(
    net: nn.Module, objective: Objective, example: torch.Tensor, rate: float
) -> Step:
    """One step of Adam on the windows at some positions; on a GPU it is recorded."""
    on_gpu = example.is_cuda
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, capturable=on_gpu)

    def step(index: torch.Tensor) -> None:
        with torch.autocast(index.device.type, torch.bfloat16, on_gpu, cache_enabled=False):
            loss = objective(index)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return capture_step(step, example, net, optimizer) if on_gpu else step


@torch.no_grad()
def mean_objective(objective: Objective, positions: torch.Tensor, batch: int = 2048) -> float:
    """The mean loss of all windows at these positions.

    >>> mean_objective(lambda index: index.float().mean(), torch.arange(5), batch=2)
    2.0
    """
    total = torch.zeros((), device=positions.device)
    for index in positions.split(batch):
        total += objective(index) * len(index)
    return float(total / len(positions))
