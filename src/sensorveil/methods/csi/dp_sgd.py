"""DP-SGD, equation (5) of the CSI paper, by Opacus: Poisson sampling, clipping, noise, accounting.

The unit of privacy is one window, or all windows of one person. At each step every unit is sampled
independently with the same probability; its gradient is clipped to one norm; Gaussian noise is
added to the sum. `compute_epsilon` accounts for all steps.

Anyone who knows the samples and the noise can subtract them. So the generator that they come from
must be secret wherever the guarantee is to hold (`secret_generator`).

References
----------
Abadi and others, Deep Learning with Differential Privacy (2016). Gopi, Lee and Wutschitz, Numerical
Composition of Differential Privacy (2021), for the PRV accountant.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import numpy as np
import torch
from pydantic import Field
from torch import nn

from sensorveil.errors import Refusal
from sensorveil.methods.settings import Settings
from sensorveil.progress import track
from sensorveil.train import one_cycle, set_learning_rate

Losses = Callable[[torch.Tensor], torch.Tensor]
"""From positions of windows to the loss of each, (n,)."""


class DpSgdSettings(Settings):
    """How long and how privately a network is trained.

    Parameters
    ----------
    steps
        Number of steps, of Adam with one cycle of the learning rate.
    expected_batch_size
        Units expected in a step; how many are sampled varies.
    samples_per_unit
        Windows taken of each sampled unit, with replacement; their gradients are averaged. The same
        window may be taken twice, at different noise levels.
    noise_multiplier
        sigma_DP of equation (5).
    max_grad_norm
        C of equation (5), the norm that a unit's gradient is clipped to.
    """

    steps: int = Field(default=1000, gt=0)
    expected_batch_size: int = Field(default=256, gt=0)
    samples_per_unit: int = Field(default=4, gt=0)
    noise_multiplier: float = Field(default=1.0, gt=0)
    max_grad_norm: float = Field(default=1.0, gt=0)


@dataclass(frozen=True)
class PrivacySpent:
    """What the accountant needs to know of a training."""

    noise_multiplier: float
    sampling_probability: float
    """Of each unit at each step."""
    steps: int


class Canaries(Protocol):
    """Gradients that an audit inserts among those of the data, and what it observes."""

    def insert(self, parameters: Sequence[nn.Parameter], sampling_probability: float) -> None:
        """Append rows to each `grad_sample` (n, *shape), each sampled with this probability."""

    def observe(self, parameters: Sequence[nn.Parameter]) -> None:
        """Look at each `grad`, clipped and noised, before the weights are updated."""


@dataclass(frozen=True, eq=False)
class PrivateTraining:
    """Everything about a private training but its network and loss.

    Parameters
    ----------
    settings
        Steps, sampling, clipping and noise.
    learning_rate
        Peak of the cycle.
    units
        The unit of privacy that each window belongs to, (n,).
    generator
        Where samples and noise come from; `secret_generator` for a guarantee.
    canaries
        Gradients that an audit inserts.
    """

    settings: DpSgdSettings
    learning_rate: float
    units: torch.Tensor
    generator: torch.Generator
    canaries: Canaries | None = None


def secret_generator(device: torch.device | str, seed: int | None = None) -> torch.Generator:
    """A generator seeded by the operating system; by a seed only if nothing is promised."""
    chosen = secrets.randbits(63) if seed is None else seed
    return torch.Generator(device=device).manual_seed(chosen)


def compute_epsilon(spent: Sequence[PrivacySpent], delta: float) -> float:
    """The epsilon of several trainings together, by the PRV accountant.

    >>> round(compute_epsilon([PrivacySpent(10.0, 1.0, steps=16)], delta=1e-5), 2)
    1.57
    """
    require_opacus()
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [
        (one.noise_multiplier, one.sampling_probability, one.steps) for one in spent if one.steps
    ]
    if not accountant.history:
        return 0.0
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("ignore")  # about a first coarse estimate, which it refines
        return float(accountant.get_epsilon(delta))


def require_opacus() -> None:
    """Refuse private training where Opacus is not installed."""
    if find_spec("opacus") is None:
        raise Refusal("private training needs Opacus: pip install 'sensorveil[dp]'")


class DpSgd:
    """DP-SGD on the parameters of a network that require a gradient.

    `losses` is asked for the sampled windows unit by unit, `samples_per_unit` of each.
    """

    def __init__(self, network: nn.Module, losses: Losses, training: PrivateTraining) -> None:
        require_opacus()
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        self.network, self.losses = network, losses
        self.settings, self.generator = training.settings, training.generator
        self.learning_rate, self.canaries = training.learning_rate, training.canaries
        _, unit, self.counts = training.units.unique(return_inverse=True, return_counts=True)
        self.order = unit.argsort(stable=True)  # windows unit by unit
        self.first = self.counts.cumsum(0) - self.counts
        self.probability = min(1.0, self.settings.expected_batch_size / len(self.counts))
        self.parameters = [one for one in network.parameters() if one.requires_grad]
        self.module = GradSampleModule(network, loss_reduction="sum")
        self.optimizer = DPOptimizer(  # clips, adds noise, divides by the expected number
            torch.optim.Adam(self.parameters, lr=self.learning_rate),
            noise_multiplier=self.settings.noise_multiplier,
            max_grad_norm=self.settings.max_grad_norm,
            expected_batch_size=self.probability * len(self.counts),
            generator=self.generator,
        )
        if self.canaries:
            observe = self.canaries.observe
            self.optimizer.attach_step_hook(lambda _: observe(self.parameters))
        self.taken = 0

    @property
    def spent(self) -> PrivacySpent:
        """What was spent so far."""
        return PrivacySpent(self.settings.noise_multiplier, self.probability, self.taken)

    def sample(self) -> torch.Tensor:
        """Poisson sampling: positions of windows (units, samples per unit), possibly none."""
        device = self.counts.device
        draws = torch.rand(len(self.counts), generator=self.generator, device=device)
        units = (draws < self.probability).nonzero().flatten()
        shape = (len(units), self.settings.samples_per_unit)
        part = torch.rand(shape, generator=self.generator, device=device)
        count = self.counts[units].unsqueeze(1)
        place = (part * count).long().minimum(count - 1)
        return self.order[self.first[units].unsqueeze(1) + place]

    def step(self, windows: torch.Tensor) -> None:
        """One step on sampled windows; lines 7 to 9 of algorithm 1."""
        progress = min(1.0, self.taken / self.settings.steps)
        set_learning_rate(self.optimizer, self.learning_rate * one_cycle(progress))
        self.optimizer.zero_grad(set_to_none=True)
        self.network.train()
        if len(windows):
            with _without_hook_warning():
                self.losses(windows.flatten()).sum().backward()
        for one in self.parameters:
            # The mean gradient of each unit's windows; without any unit noise alone is added.
            rows = one.grad_sample if len(windows) else one.new_zeros(0, *one.shape)  # type: ignore[attr-defined]
            one.grad_sample = rows.unflatten(0, windows.shape).mean(1)  # type: ignore[attr-defined]
        if self.canaries:
            self.canaries.insert(self.parameters, self.probability)
        self.optimizer.step()
        self.taken += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, the network is trained as usual, without gradients of single windows."""
        self.module.disable_hooks()
        try:
            with _without_hook_warning():
                yield
        finally:
            self.module.enable_hooks()

    def close(self) -> None:
        """Leave an ordinary network behind."""
        self.module.to_standard_module()
        for one in self.parameters:
            for name in ("grad_sample", "summed_grad"):
                if hasattr(one, name):
                    delattr(one, name)
            one.grad = None


def train_privately(
    stage: str,
    network: nn.Module,
    losses: Losses,
    training: PrivateTraining,
    after_step: Callable[[], None] | None = None,
) -> PrivacySpent:
    """Train a network by DP-SGD alone; returns what that spent.

    >>> network, x = nn.Linear(1, 1), torch.ones(64, 1)
    >>> settings = DpSgdSettings(
    ...     steps=60, expected_batch_size=32, samples_per_unit=1, noise_multiplier=0.5
    ... )
    >>> training = PrivateTraining(settings, 0.2, torch.arange(64), secret_generator("cpu", seed=0))
    >>> spent = train_privately(
    ...     "a line", network, lambda index: (network(x[index]) - 3).square().mean(1), training
    ... )
    >>> abs(network(x[:1]).item() - 3) < 0.3, spent.sampling_probability
    (True, 0.5)
    """
    dp_sgd = DpSgd(network, losses, training)
    try:
        for _ in track(range(training.settings.steps), stage):
            dp_sgd.step(dp_sgd.sample())
            if after_step:
                after_step()
    finally:
        dp_sgd.close()
    return dp_sgd.spent


@contextmanager
def _without_hook_warning() -> Iterator[None]:
    """Torch warns if a layer's input needs no gradient; that of the first layer never does."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Full backward hook")
        yield
