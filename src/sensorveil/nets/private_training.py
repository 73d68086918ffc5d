"""DP-SGD, equation (5) of the CSI paper, by Opacus: clipped, noised, and accounted for.

What is private is a unit: one window, or all windows of one person. At each step every unit is
drawn with the same chance, by itself (Poisson); the gradient of each is clipped to one length;
noise is added to their sum. `epsilon` says what all steps together give away.

Who knows the draws and the noise can take them out again. So the generator that they come from
must be secret wherever the guarantee is to hold.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from sensorveil.errors import Refusal
from sensorveil.nets.training import one_cycle, set_rate
from sensorveil.progress import track

Losses = Callable[[torch.Tensor], torch.Tensor]
"""The loss of each of the windows at some positions: (n,)."""


@dataclass(frozen=True)
class PrivateCourse:
    """How a private training goes: steps of about `lot` units, Adam with one cycle of the rate.

    `noise` is the multiplier sigma_DP of equation (5) and `clip` its C. Of each unit that is drawn,
    `each` windows are looked at; one window may be so several times, with other noise to take out.
    """

    steps: int
    lot: int
    rate: float
    noise: float
    clip: float
    each: int = 1


@dataclass(frozen=True)
class Spent:
    """What a private training did, as its accountant needs it."""

    noise: float
    chance: float
    """With which each unit is drawn at a step."""
    steps: int


class Canaries(Protocol):
    """Gradients that an audit plants among those of the data, and what it sees afterwards."""

    def plant(self, parameters: Sequence[nn.Parameter], chance: float) -> None:
        """Adds rows of its own to each `grad_sample` (n, *shape), drawn by this chance each."""

    def observe(self, parameters: Sequence[nn.Parameter]) -> None:
        """Looks at each `grad`, clipped and noised, before the weights move."""


def secret_generator(device: torch.device | str, seed: int | None = None) -> torch.Generator:
    """Draws that nobody can repeat, from the operating system; or from a seed, for tests."""
    chosen = secrets.randbits(63) if seed is None else seed
    return torch.Generator(device=device).manual_seed(chosen)


def epsilon(spent: Sequence[Spent], delta: float) -> float:
    """The epsilon of all trainings together at this delta, by the PRV accountant.

    >>> round(epsilon([Spent(noise=10.0, chance=1.0, steps=16)], delta=1e-5), 2)
    1.57
    """
    require_opacus()
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(one.noise, one.chance, one.steps) for one in spent if one.steps]
    if not accountant.history:
        return 0.0
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("ignore")  # of a coarse first guess, which it refines
        return float(accountant.get_epsilon(delta))


def require_opacus() -> None:
    """Refuses private training where Opacus is not there."""
    if find_spec("opacus") is None:
        raise Refusal("private training needs Opacus: pip install 'sensorveil[dp]'")


class PrivateSteps:
    """Steps of DP-SGD on those parameters of a network that may change (`requires_grad`).

    `owners` (n,) tells the unit that each window belongs to. `losses` is asked for windows one unit
    after the other, `each` of them for every unit.
    """

    def __init__(
        self,
        net: nn.Module,
        losses: Losses,
        owners: torch.Tensor,
        course: PrivateCourse,
        generator: torch.Generator,
        canaries: Canaries | None = None,
    ) -> None:
        require_opacus()
        from opacus import GradSampleModule

        self.net, self.losses, self.course = net, losses, course
        self.generator, self.canaries = generator, canaries
        _, owned, counts = owners.unique(return_inverse=True, return_counts=True)
        self.order, self.counts = owned.argsort(stable=True), counts
        self.first = counts.cumsum(0) - counts
        self.chance = min(1.0, course.lot / len(counts))
        self.parameters = [one for one in net.parameters() if one.requires_grad]
        self.hooked = GradSampleModule(net, loss_reduction="sum")
        self.optimizer = private_optimizer(
            torch.optim.Adam(self.parameters, lr=course.rate),
            course,
            self.chance * len(counts),
            generator,
        )
        self.taken = 0

    @property
    def spent(self) -> Spent:
        """What was done so far."""
        return Spent(self.course.noise, self.chance, self.taken)

    def draw(self) -> torch.Tensor:
        """Windows of the units that were drawn, (units, each): perhaps of none at all."""
        where = self.counts.device
        dice = torch.rand(len(self.counts), generator=self.generator, device=where)
        units = (dice < self.chance).nonzero().flatten()
        shape = (len(units), self.course.each)
        part = torch.rand(shape, generator=self.generator, device=where)
        count = self.counts[units].unsqueeze(1)
        inside = (part * count).long().minimum(count - 1)
        return self.order[self.first[units].unsqueeze(1) + inside]

    def take(self, windows: torch.Tensor) -> None:
        """One step, lines 7 to 9 of the paper's algorithm 1, on what was drawn."""
        done = min(1.0, self.taken / self.course.steps)
        set_rate(self.optimizer, self.course.rate * one_cycle(done))
        self.optimizer.zero_grad(set_to_none=True)
        self.net.train()
        if len(windows):
            with _without_hook_warning():
                self.losses(windows.flatten()).sum().backward()
        for one in self.parameters:
            # Nobody drawn is a sum of nothing.
            rows = one.grad_sample if len(windows) else one.new_zeros(0, *one.shape)  # type: ignore[attr-defined]
            one.grad_sample = _of_units(rows, self.course.each)  # type: ignore[attr-defined]
        if self.canaries:
            self.canaries.plant(self.parameters, self.chance)
        self.optimizer.step()
        self.taken += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, gradients are those of ordinary training."""
        self.hooked.disable_hooks()
        try:
            with _without_hook_warning():
                yield
        finally:
            self.hooked.enable_hooks()

    def close(self) -> None:
        """Leaves the network as it was before, but for its weights."""
        self.hooked.to_standard_module()
        for one in self.parameters:
            for name in ("grad_sample", "summed_grad"):
                if hasattr(one, name):
                    delattr(one, name)
            one.grad = None


@contextmanager
def _without_hook_warning() -> Iterator[None]:
    """Torch warns where a layer's input needs no gradient, which the first layer's never does."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Full backward hook")
        yield


def _of_units(rows: torch.Tensor, each: int) -> torch.Tensor:
    """A unit's gradient: the mean over its windows. One window's is there already, uncopied."""
    return rows if each == 1 else rows.unflatten(0, (len(rows) // each, each)).mean(1)


def private_optimizer(
    optimizer: torch.optim.Optimizer,
    course: PrivateCourse,
    expected: float,
    generator: torch.Generator,
) -> Any:
    """Opacus' optimizer: clips each unit's gradient, adds noise, divides by the expected number."""
    from opacus.optimizers import DPOptimizer

    return DPOptimizer(
        optimizer,
        noise_multiplier=course.noise,
        max_grad_norm=course.clip,
        expected_batch_size=expected,
        generator=generator,
    )


def train_privately(
    net: nn.Module,
    losses: Losses,
    owners: torch.Tensor,
    course: PrivateCourse,
    generator: torch.Generator,
    *,
    what: str,
    after: Callable[[], None] | None = None,
    canaries: Canaries | None = None,
) -> Spent:
    """Trains by DP-SGD alone, and says what that spent; `after` is called after each step.

    >>> net, x = nn.Linear(1, 1), torch.ones(64, 1)
    >>> course = PrivateCourse(steps=60, lot=32, rate=0.2, noise=0.5, clip=1.0)
    >>> spent = train_privately(
    ...     net, lambda index: (net(x[index]) - 3).square().mean(1), torch.arange(64), course,
    ...     secret_generator("cpu", seed=0), what="a line",
    ... )
    >>> abs(net(x[:1]).item() - 3) < 0.3, spent.chance
    (True, 0.5)
    """
    steps = PrivateSteps(net, losses, owners, course, generator, canaries)
    if canaries:
        steps.optimizer.attach_step_hook(lambda _: canaries.observe(steps.parameters))
    try:
        for _ in track(range(course.steps), what):
            steps.take(steps.draw())
            if after:
                after()
    finally:
        steps.close()
    return steps.spent
