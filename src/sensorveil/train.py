"""The training loop of every network here: epochs of shuffled batches, AdamW, one learning-rate cycle.

Several networks may be trained in turns (an adversary), with checkpoints, early stopping and averaged
weights. On a GPU each step is recorded as a CUDA graph, and losses are computed in bfloat16.

Everything random in an epoch follows from the seed and the epoch's number. So a training that was
stopped and resumed from a checkpoint ends with the same weights, to the bit.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import nn

from sensorveil.cuda_graphs import Step, capture_step
from sensorveil.errors import Refusal
from sensorveil.files import part_of, read_json, write_json, written_file
from sensorveil.progress import track

Gather = Callable[[torch.Tensor], torch.Tensor]
"""Gives the windows at some positions, (n, *shape) and real, on the device."""

Loss = Callable[[torch.Tensor], torch.Tensor]
"""The loss of the windows at some positions: one number."""


def derived_seed(seed: int, use: int) -> int:
    """A seed for another use, so that two networks of one seed do not start alike.

    >>> derived_seed(0, 1) != derived_seed(0, 2) != derived_seed(1, 1)
    True
    """
    return int(np.random.SeedSequence([seed, use]).generate_state(1)[0])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Everything that torch draws inside comes from `seed`; draws outside are not affected.

    >>> before = torch.get_rng_state()
    >>> with seeded(1):
    ...     first = torch.rand(1)
    >>> with seeded(1):
    ...     second = torch.rand(1)
    >>> bool(first == second), bool((before == torch.get_rng_state()).all())
    (True, True)
    """
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        torch.manual_seed(seed)
        yield


@dataclass(frozen=True)
class TrainConfig:
    """How long and how fast a network is trained.

    Parameters
    ----------
    epochs
        Passes over the training windows.
    batch_size
        Windows in a step; windows that do not fill a last batch are left to the next epoch.
    learning_rate
        Peak of the cycle, or the constant rate.
    weight_decay
        Of AdamW; with 0 it is Adam.
    max_grad_norm
        Gradients are clipped to this norm; None does not clip.
    schedule
        "one_cycle" raises the rate for 30% of the training and lets it fall to 0; "constant" keeps
        it.
    patience
        Training stops after this many epochs in which `validate` (see `train`) did not improve, and
        the best weights are restored; 0 trains to the end.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 1e-4
    max_grad_norm: float | None = 1.0
    schedule: Literal["one_cycle", "constant"] = "one_cycle"
    patience: int = 0

    @classmethod
    def adam(
        cls, epochs: int, batch_size: int, learning_rate: float, patience: int = 0
    ) -> TrainConfig:
        """Adam at a constant rate, without weight decay and without clipping."""
        return cls(epochs, batch_size, learning_rate, 0.0, None, "constant", patience)

    def with_max_steps(self, max_steps: int, count: int) -> TrainConfig:
        """The same, with so few epochs of `count` windows that there are at most `max_steps` steps.

        One epoch is the least; 0 means no limit.

        >>> config = TrainConfig(epochs=100, batch_size=64, learning_rate=1e-3)
        >>> config.with_max_steps(50, count=640).epochs
        5
        """
        if not max_steps:
            return self
        steps = max(1, count // min(self.batch_size, count))
        return replace(self, epochs=max(1, min(self.epochs, max_steps // steps)))

    def learning_rate_at(self, progress: float) -> float:
        """The learning rate after a share of the training."""
        return self.learning_rate * (one_cycle(progress) if self.schedule == "one_cycle" else 1.0)


def one_cycle(progress: float) -> float:
    """The learning rate after a share of the training, relative to its peak.

    >>> [round(one_cycle(progress), 3) for progress in (0.0, 0.15, 0.3, 0.65, 1.0)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    if progress < 0.3:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * progress / 0.3)) / 2
    return (1 + math.cos(math.pi * (progress - 0.3) / 0.7)) / 2


@dataclass(frozen=True, eq=False)
class TrainingTarget:
    """A network and the loss that it minimises.

    Parameters
    ----------
    network
        The network; only its parameters that require a gradient are trained.
    loss
        From positions of windows to one number.
    after_step
        Called after each step of this network.
    repeats
        Steps of this network for each batch.
    """

    network: nn.Module
    loss: Loss
    after_step: Callable[[], None] | None = None
    repeats: int = 1


def train(
    stage: str,
    targets: Sequence[TrainingTarget],
    count: int,
    config: TrainConfig,
    seed: int,
    device: str | torch.device = "cpu",
    checkpoint: Checkpoint | None = None,
    *,
    extra_state: nn.Module | None = None,
    on_epoch: Callable[[int], None] | None = None,
    on_step: Callable[[float], None] | None = None,
    validate: Callable[[], float] | None = None,
) -> list[list[float]]:
    """Train networks in turns on batches of `count` windows.

    Parameters
    ----------
    stage
        A name for the progress bar and for the checkpoint's file.
    targets
        The networks; in each step every one of them takes its turn, in this order.
    count
        Number of training windows. Losses are given positions below it.
    config
        Epochs, batches, learning rate.
    seed
        Everything random follows from it.
    device
        Where the networks and the windows are.
    checkpoint
        Where to keep the state of the training, and to resume it from. Trainings with `patience`
        are not kept.
    extra_state
        A module that changes along with the networks and has no loss of its own, such as averaged
        weights.
    on_epoch
        Called before each epoch with its number.
    on_step
        Called before each step with the share of the training that is done.
    validate
        Gives the validation loss after an epoch; needed where `config.patience` is set.

    Returns
    -------
    list of list of float
        The mean loss of each epoch, for each target.

    Examples
    --------
    >>> network, x = nn.Linear(1, 1), torch.ones(64, 1)
    >>> target = TrainingTarget(network, lambda index: (network(x[index]) - 3).square().mean())
    >>> config = TrainConfig(epochs=30, batch_size=16, learning_rate=0.1)
    >>> (losses,) = train("a line", [target], 64, config, seed=0)
    >>> losses[-1] < 0.1 < losses[0]
    True
    """
    loop = _Loop(targets, count, config, torch.device(device), extra_state, on_step)
    stopping = _EarlyStopping(loop.networks, config.patience) if config.patience else None
    checkpoint = None if stopping else checkpoint
    history = loop.restore(checkpoint.load(stage)) if checkpoint else []
    for epoch in track(range(config.epochs), stage):
        if epoch < len(history) or (stopping and stopping.is_over):
            continue  # the progress bar still reaches its end
        with seeded(derived_seed(seed, epoch)):
            if on_epoch:
                on_epoch(epoch)
            history.append(loop.run_epoch(epoch))
        if stopping and validate:
            loop.networks.eval()
            stopping.update(validate())
            loop.networks.train()
        if checkpoint:
            checkpoint.save(stage, loop.state(history), is_last=epoch + 1 == config.epochs)
    if stopping:
        stopping.restore_best()
    return [list(losses) for losses in zip(*history, strict=True)]


def train_network(
    stage: str,
    network: nn.Module,
    loss: Loss,
    count: int,
    config: TrainConfig,
    seed: int,
    device: str | torch.device = "cpu",
    checkpoint: Checkpoint | None = None,
    **options: Any,
) -> list[float]:
    """Train one network and leave it in evaluation mode; returns the mean loss of each epoch.

    The parameters are those of `train`.

    Examples
    --------
    >>> network, x = nn.Linear(1, 1), torch.ones(8, 1)
    >>> config = TrainConfig(epochs=2, batch_size=8, learning_rate=0.1)
    >>> loss = lambda index: network(x[index]).square().mean()
    >>> losses = train_network("a line", network, loss, 8, config, seed=0)
    >>> len(losses), network.training
    (2, False)
    """
    targets = [TrainingTarget(network, loss)]
    (losses,) = train(stage, targets, count, config, seed, device, checkpoint, **options)
    network.eval()
    return losses


class _Loop:
    """The networks and optimizers of one training."""

    def __init__(
        self,
        targets: Sequence[TrainingTarget],
        count: int,
        config: TrainConfig,
        device: torch.device,
        extra_state: nn.Module | None,
        on_step: Callable[[float], None] | None,
    ) -> None:
        self.targets, self.count, self.config, self.device = targets, count, config, device
        self.on_step = on_step
        self.batch_size = min(config.batch_size, count)
        self.steps = max(1, count // self.batch_size)
        self.on_gpu = device.type == "cuda"
        networks = [target.network for target in targets]
        self.networks = nn.ModuleList(networks + ([extra_state] if extra_state else []))
        self.parameters = [
            [weight for weight in network.parameters() if weight.requires_grad]
            for network in networks
        ]
        self.optimizers = [self._optimizer(parameters) for parameters in self.parameters]
        self.total = torch.zeros(len(targets), device=device)
        for network in networks:
            network.train()
        self.take_step: Step = self.step
        if self.on_gpu:
            example = torch.arange(self.batch_size, device=device)
            self.take_step = capture_step(self.step, example, self.networks, *self.optimizers)

    def _optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.AdamW:
        rate = self.config.learning_rate
        return torch.optim.AdamW(
            parameters,
            lr=torch.tensor(rate, device=self.device) if self.on_gpu else rate,
            weight_decay=self.config.weight_decay,
            capturable=self.on_gpu,
            fused=True,  # otherwise Adam takes a third of a small network's step on a CPU
        )

    def step(self, index: torch.Tensor) -> None:
        """One step of every network on the windows at these positions."""
        for number, target in enumerate(self.targets):
            for _ in range(target.repeats):
                loss = self._descend(target, number, index)
            self.total[number] += loss.detach()

    def _descend(self, target: TrainingTarget, number: int, index: torch.Tensor) -> torch.Tensor:
        parameters, optimizer = self.parameters[number], self.optimizers[number]
        with torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.on_gpu, cache_enabled=False
        ):
            loss = target.loss(index)
        optimizer.zero_grad(set_to_none=True)
        loss.backward(inputs=parameters)  # networks of other targets get no gradient
        if self.config.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.config.max_grad_norm, foreach=True)
        optimizer.step()
        if target.after_step:
            target.after_step()
        return loss

    def run_epoch(self, epoch: int) -> list[float]:
        """One epoch; returns the mean loss of each target."""
        order = torch.randperm(self.count)[: self.steps * self.batch_size].to(self.device)
        self.total.zero_()
        for number, index in enumerate(order.view(self.steps, self.batch_size)):
            progress = (epoch + number / self.steps) / self.config.epochs
            for optimizer in self.optimizers:
                set_learning_rate(optimizer, self.config.learning_rate_at(progress))
            if self.on_step:
                self.on_step(progress)
            self.take_step(index)
        return cast(list[float], (self.total / self.steps).tolist())

    def state(self, history: list[list[float]]) -> dict[str, torch.Tensor]:
        """Everything that is needed to resume."""
        kept = {f"networks.{name}": v for name, v in self.networks.state_dict().items()}
        for number, optimizer in enumerate(self.optimizers):
            for place, state in optimizer.state_dict()["state"].items():
                kept |= {f"optimizer.{number}.{place}.{name}": v for name, v in state.items()}
        return kept | {"history": torch.tensor(history, dtype=torch.float64)}

    def restore(self, kept: Mapping[str, torch.Tensor]) -> list[list[float]]:
        """Resume from what `state` gave; returns the losses so far."""
        if not kept:
            return []
        self.networks.load_state_dict(part_of(kept, "networks."))
        for number, optimizer in enumerate(self.optimizers):
            own = part_of(kept, f"optimizer.{number}.")
            for place, weight in enumerate(optimizer.param_groups[0]["params"]):
                for name, value in part_of(own, f"{place}.").items():
                    state = optimizer.state[weight]
                    if name in state:  # a recorded step reads this very memory
                        state[name].copy_(value)
                    else:
                        at = weight.device if name != "step" or self.on_gpu else "cpu"
                        state[name] = value.to(at)
        return cast(list[list[float]], kept["history"].tolist())


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step; recorded steps read it from a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class _EarlyStopping:
    """Remembers the weights of the epoch with the smallest validation loss."""

    def __init__(self, networks: nn.Module, patience: int) -> None:
        self.networks, self.patience = networks, patience
        self.best_loss, self.waited = math.inf, 0
        self.best_weights = copy.deepcopy(networks.state_dict())

    @property
    def is_over(self) -> bool:
        return self.waited >= self.patience

    def update(self, loss: float) -> None:
        self.waited += 1
        if loss < self.best_loss:
            self.best_loss, self.waited = loss, 0
            self.best_weights = copy.deepcopy(self.networks.state_dict())

    def restore_best(self) -> None:
        self.networks.load_state_dict(self.best_weights)


class AveragedWeights(nn.Module):
    """An exponential moving average of a network's weights, which diffusion models sample with.

    After n updates the average keeps the share min(decay, (1 + n) / (10 + n)), so that the first
    weights are soon forgotten. Buffers are copied. `torch.optim.swa_utils.AveragedModel` counts its
    updates on the host, which a recorded step cannot do; this one counts on the device.

    Examples
    --------
    >>> network = nn.Linear(1, 1, bias=False)
    >>> averaged = AveragedWeights(network, decay=0.5)
    >>> before = network.weight.item()
    >>> _ = nn.init.constant_(network.weight, before + 1)
    >>> averaged.update(network)
    >>> round(averaged.network.weight.item() - before, 4)  # a tenth is kept at first
    0.9
    """

    updates: torch.Tensor

    def __init__(self, network: nn.Module, decay: float = 0.999) -> None:
        super().__init__()
        self.decay = decay
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        device = next(network.parameters()).device
        self.register_buffer("updates", torch.zeros((), device=device))

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Move the average towards the network's weights."""
        kept = ((1 + self.updates) / (10 + self.updates)).clamp(max=self.decay)
        average: list[torch.Tensor] = [*self.network.parameters()]
        difference = list(torch._foreach_sub([*network.parameters()], average))
        torch._foreach_mul_(difference, 1 - kept)
        torch._foreach_add_(average, difference)
        for mine, its in zip(self.network.buffers(), network.buffers(), strict=True):
            mine.copy_(its)
        self.updates += 1


_PURPOSE = "purpose.json"


class Checkpoint:
    """A folder that keeps trainings while they run, one safetensors file for each stage.

    Parameters
    ----------
    folder
        Where to keep them.
    purpose
        What is being trained, as plain values. A folder with another purpose is refused.
    seconds
        At most every so many seconds something is written, always at the end of an epoch.
    """

    def __init__(
        self, folder: Path | str, purpose: Mapping[str, Any] | None = None, seconds: float = 60.0
    ) -> None:
        self.folder, self.seconds = Path(folder), seconds
        self.purpose = json.loads(json.dumps(purpose or {}))
        self._written = time.monotonic()
        stored = self.folder / _PURPOSE
        if self.folder.exists() and (not stored.is_file() or read_json(stored) != self.purpose):
            raise Refusal(
                f"{self.folder} holds another training that was not finished; remove it, or choose"
                " another place"
            )

    def remove(self) -> None:
        """Delete the files of this checkpoint, and the folder if nothing else is in it."""
        for own in [*self.folder.glob("*.safetensors"), self.folder / _PURPOSE]:
            own.unlink(missing_ok=True)
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def load(self, stage: str) -> dict[str, torch.Tensor]:
        """The state of a stage, or nothing."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self._path(stage)
        if not path.exists():
            return {}
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise Refusal(f"{path} is damaged ({error}); delete it to train anew") from None

    def save(self, stage: str, state: Mapping[str, torch.Tensor], is_last: bool) -> None:
        """Write the state of a stage, unless something was written a moment ago."""
        from safetensors.torch import save_file

        if not is_last and time.monotonic() - self._written < self.seconds:
            return
        if not self.folder.exists():
            write_json(self.folder / _PURPOSE, self.purpose)
        with written_file(self._path(stage)) as path:
            save_file({k: v.detach().cpu().contiguous() for k, v in state.items()}, path)
        self._written = time.monotonic()

    def _path(self, stage: str) -> Path:
        return self.folder / f"{stage}.safetensors"
