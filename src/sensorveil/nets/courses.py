"""Long trainings that can be stopped and go on: epochs of steps, kept in a folder on the way.

All that an epoch draws comes from the seed and the epoch's number. So a training that was stopped,
and goes on from the last epoch that it kept, ends as if nothing had happened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sensorveil.errors import Refusal
from sensorveil.files import part_of, read_json, write_json, written_file
from sensorveil.nets.graphs import Step, graphed
from sensorveil.nets.seeding import derived, seeded
from sensorveil.nets.training import one_cycle, set_rate
from sensorveil.progress import track

_PURPOSE = "purpose.json"

Gather = Callable[[torch.Tensor], torch.Tensor]
"""Gives the windows at some positions, (n, *shape) and real, on the device."""

Loss = Callable[[torch.Tensor], torch.Tensor]
"""The loss of the windows at some positions: one number."""


@dataclass(frozen=True)
class TrainConfig:
    """How a training goes: epochs of batches, AdamW with one cycle of the rate, gradients cut."""

    epochs: int
    batch: int
    rate: float
    weight_decay: float = 1e-4
    clip: float = 1.0
    """The largest norm that a gradient may have; the authors of PrivDiffuser cut at 1."""

    def within(self, limit: int, count: int) -> TrainConfig:
        """The same, but so few epochs of `count` windows that there are at most `limit` steps.

        One epoch is the least; a limit of 0 is none.

        >>> TrainConfig(epochs=100, batch=64, rate=1e-3).within(limit=50, count=640).epochs
        5
        """
        steps = max(1, count // min(self.batch, count))
        return replace(self, epochs=max(1, min(self.epochs, limit // steps))) if limit else self


@dataclass(frozen=True, eq=False)
class TrainingTarget:
    """A network, and the loss that it minimises at each step; `after` is called after its step."""

    net: nn.Module
    loss: Loss
    after: Callable[[], None] | None = None


class Checkpoint:
    """Keeps trainings that are under way in a folder, one safetensors file for each.

    What is kept is written at the end of an epoch, at most every `seconds`, and at the end.
    `purpose` says in plain values what is being trained; a folder of another purpose is refused.
    """

    def __init__(
        self, folder: Path | str, purpose: Mapping[str, Any] | None = None, seconds: float = 60.0
    ) -> None:
        self.folder, self.seconds = Path(folder), seconds
        self.purpose = json.loads(json.dumps(purpose or {}))
        self._written = time.monotonic()
        if self.folder.exists() and self._kept_purpose() != self.purpose:
            raise Refusal(
                f"{self.folder} holds another training that was not finished; remove it, or choose"
                " another place"
            )

    def remove(self) -> None:
        """Takes away what was kept, once the training is done; nobody else's files."""
        for own in [*self.folder.glob("*.safetensors"), self.folder / _PURPOSE]:
            own.unlink(missing_ok=True)
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def load(self, stage: str) -> dict[str, torch.Tensor]:
        """What was kept of a training, or nothing."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        place = self._place(stage)
        if not place.exists():
            return {}
        try:
            return load_file(place)
        except (SafetensorError, OSError) as error:
            raise Refusal(f"{place} is damaged ({error}); delete it to train anew") from None

    def save(self, stage: str, kept: Mapping[str, torch.Tensor], at_once: bool) -> None:
        """Writes what a training has, unless it is too soon for that."""
        from safetensors.torch import save_file

        if not at_once and time.monotonic() - self._written < self.seconds:
            return
        if not self.folder.exists():
            write_json(self.folder / _PURPOSE, self.purpose)
        with written_file(self._place(stage)) as place:
            save_file({name: one.detach().cpu().contiguous() for name, one in kept.items()}, place)
        self._written = time.monotonic()

    def _kept_purpose(self) -> Any:
        place = self.folder / _PURPOSE
        return read_json(place) if place.is_file() else None

    def _place(self, stage: str) -> Path:
        return self.folder / f"{stage}.safetensors"


def train(
    stage: str,
    players: Sequence[TrainingTarget],
    count: int,
    course: TrainConfig,
    seed: int,
    device: str | torch.device = "cpu",
    checkpoint: Checkpoint | None = None,
    beside: nn.Module | None = None,
) -> list[list[float]]:
    """Trains networks by turns on batches of `count` windows; returns each one's loss per epoch.

    `beside` is what changes along with them and has no loss of its own, such as an average.

    >>> net, x = nn.Linear(1, 1), torch.ones(64, 1)
    >>> player = TrainingTarget(net, lambda index: (net(x[index]) - 3).square().mean())
    >>> course = TrainConfig(epochs=30, batch=16, rate=0.1)
    >>> (losses,) = train("a line", [player], 64, course, seed=0)
    >>> losses[-1] < 0.1 < losses[0]
    True
    """
    training = _Training(players, count, course, torch.device(device), beside)
    history = training.restore(checkpoint.load(stage)) if checkpoint else []
    for epoch in track(range(course.epochs), stage):
        if epoch < len(history):
            continue
        with seeded(derived(seed, epoch)):
            history.append(training.epoch(epoch))
        if checkpoint:
            checkpoint.save(stage, training.kept(history), epoch + 1 == course.epochs)
    return [list(losses) for losses in zip(*history, strict=True)]


def train_network(
    stage: str,
    net: nn.Module,
    loss: Loss,
    count: int,
    course: TrainConfig,
    seed: int,
    device: str | torch.device = "cpu",
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Trains a single network, which is ready for use then; returns its loss per epoch.

    >>> net, x = nn.Linear(1, 1), torch.ones(8, 1)
    >>> course = TrainConfig(epochs=2, batch=8, rate=0.1)
    >>> losses = train_network("a line", net, lambda index: net(x[index]).square().mean(), 8, course, 0)
    >>> len(losses), net.training
    (2, False)
    """
    player = TrainingTarget(net, loss)
    (losses,) = train(stage, [player], count, course, seed, device, checkpoint)
    net.eval()
    return losses


class _Training:
    """Networks and optimisers of one training, and how an epoch goes."""

    def __init__(
        self,
        players: Sequence[TrainingTarget],
        count: int,
        course: TrainConfig,
        device: torch.device,
        beside: nn.Module | None,
    ) -> None:
        self.players, self.count, self.course, self.device = players, count, course, device
        self.batch = min(course.batch, count)
        self.steps = max(1, count // self.batch)
        self.on_gpu = device.type == "cuda"
        nets = [player.net for player in players]
        self.nets = nn.ModuleList(nets if beside is None else [*nets, beside])
        self.optimizers = [self._adam(net) for net in nets]
        self.total = torch.zeros(len(players), device=device)
        for net in nets:
            net.train()
        self.take: Step = self.step
        if self.on_gpu:
            first = torch.arange(self.batch, device=device)
            self.take = graphed(self.step, first, self.nets, *self.optimizers)

    def _adam(self, net: nn.Module) -> torch.optim.AdamW:
        rate = self.course.rate
        return torch.optim.AdamW(
            net.parameters(),
            lr=torch.tensor(rate, device=self.device) if self.on_gpu else rate,
            weight_decay=self.course.weight_decay,
            capturable=self.on_gpu,
            fused=True,  # small networks on a processor: else a third of a step is Adam's
        )

    def step(self, index: torch.Tensor) -> None:
        for which, (player, optimizer) in enumerate(
            zip(self.players, self.optimizers, strict=True)
        ):
            with torch.autocast(
                self.device.type, torch.bfloat16, enabled=self.on_gpu, cache_enabled=False
            ):
                loss = player.loss(index)
            optimizer.zero_grad(set_to_none=True)
            loss.backward(inputs=list(player.net.parameters()))
            nn.utils.clip_grad_norm_(player.net.parameters(), self.course.clip, foreach=True)
            optimizer.step()
            if player.after:
                player.after()
            self.total[which] += loss.detach()

    def epoch(self, number: int) -> list[float]:
        """One epoch; the loss of each player, mean over its steps."""
        order = torch.randperm(self.count)[: self.steps * self.batch].to(self.device)
        self.total.zero_()
        for place, index in enumerate(order.view(self.steps, self.batch)):
            done = (number * self.steps + place) / (self.course.epochs * self.steps)
            for optimizer in self.optimizers:
                set_rate(optimizer, self.course.rate * one_cycle(done))
            self.take(index)
        losses: list[float] = (self.total / self.steps).tolist()
        return losses

    def kept(self, history: list[list[float]]) -> dict[str, torch.Tensor]:
        """All that it takes to go on."""
        kept = {f"nets.{name}": value for name, value in self.nets.state_dict().items()}
        for which, optimizer in enumerate(self.optimizers):
            for place, state in optimizer.state_dict()["state"].items():
                kept |= {f"optimizer.{which}.{place}.{name}": v for name, v in state.items()}
        return kept | {"history": torch.tensor(history, dtype=torch.float64)}

    def restore(self, kept: Mapping[str, torch.Tensor]) -> list[list[float]]:
        """Takes over what `kept` gave, and returns its history."""
        if not kept:
            return []
        self.nets.load_state_dict(part_of(kept, "nets."))
        for which, optimizer in enumerate(self.optimizers):
            own = part_of(kept, f"optimizer.{which}.")
            for place, weight in enumerate(optimizer.param_groups[0]["params"]):
                for name, value in part_of(own, f"{place}.").items():
                    state = optimizer.state[weight]
                    if name in state:  # a recorded step reads this very memory
                        state[name].copy_(value)
                    else:
                        at = weight.device if name != "step" or self.on_gpu else "cpu"
                        state[name] = value.to(at)
        history: list[list[float]] = kept["history"].tolist()
        return history
