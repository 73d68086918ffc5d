"""How the Wi-Fi CSI generator is trained: plainly, by the paper's hybrid way, or privately."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from sensorveil.nets.csi import CsiTransformer, Repair
from sensorveil.nets.degradation import Degradation
from sensorveil.nets.private_training import (
    Canaries,
    PrivateCourse,
    PrivateSteps,
    Spent,
    train_privately,
)
from sensorveil.progress import track
from sensorveil.train import AveragedWeights, Checkpoint, TrainConfig, TrainingTarget, train

Gather = Callable[[torch.Tensor], torch.Tensor]
"""Gives the windows at some positions as pairs, (n, 2 channels, length), on the device."""


@dataclass(frozen=True, eq=False)
class Material:
    """What a generator learns from: windows, what it is told of each, and how they are degraded.

    `conditions` (n, size) lie on the device, and a part `dropped` of them is not told.
    """

    gather: Gather
    conditions: torch.Tensor
    degradation: Degradation
    dropped: float

    def restored(self, net: nn.Module, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Windows at some positions, and what the network restores of them, degraded at random."""
        clean = self.gather(index)
        t = torch.randint(len(self.degradation), (len(clean),), device=clean.device)
        told = torch.rand(len(clean), 1, device=clean.device) >= self.dropped
        x = self.degradation.noised(clean, torch.randn_like(clean), t)
        return clean, net(x, t, self.conditions[index] * told)

    def losses(self, net: nn.Module, index: torch.Tensor) -> torch.Tensor:
        """Equation (9), to which (16) comes down: the squared error of each window, (n,)."""
        return _errors(*self.restored(net, index))

    def both_losses(
        self, net: nn.Module, repair: Repair, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The losses of equation (18): of the generator, and of what is repaired, each (n,)."""
        clean, restored = self.restored(net, index)
        return _errors(clean, restored), _errors(clean, repair(restored))


def train_plainly(
    net: CsiTransformer,
    material: Material,
    course: TrainConfig,
    seed: int,
    averaged: AveragedWeights,
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Equation (6): ordinary training; the loss of each epoch."""
    player = TrainingTarget(
        net,
        lambda index: material.losses(net, index).mean(),
        after_step=lambda: averaged.update(net),
    )
    device = material.conditions.device
    (losses,) = train(
        "generator",
        [player],
        len(material.conditions),
        course,
        seed,
        device,
        checkpoint,
        extra_state=averaged,
    )
    return losses


def train_all_privately(
    net: CsiTransformer,
    material: Material,
    owners: torch.Tensor,
    course: PrivateCourse,
    generator: torch.Generator,
    averaged: AveragedWeights,
    canaries: Canaries | None = None,
) -> Spent:
    """DP-SGD on all of the generator: every step that sees a window is clipped and noised."""
    return train_privately(
        net,
        lambda index: material.losses(net, index),
        owners,
        course,
        generator,
        what="private generator",
        after=lambda: averaged.update(net),
        canaries=canaries,
    )


def train_parts_privately(
    net: CsiTransformer,
    repair: Repair,
    material: Material,
    owners: torch.Tensor,
    course: PrivateCourse,
    generator: torch.Generator,
    weight: float,
    canaries: Canaries | None = None,
) -> Spent:
    """Equation (18) by DP-SGD alone, on theta_att, theta_embed and phi together.

    In the paper's algorithm 1 lines 11, 14 and 15 look at the data without clipping or noise. Here
    one step does the work of all: the sum of both losses, of each unit, is clipped and noised.
    """

    def losses(index: torch.Tensor) -> torch.Tensor:
        diffusion, denoising = material.both_losses(net, repair, index)
        return diffusion + weight * denoising

    _only_private(net)
    try:
        return train_privately(
            nn.ModuleList([net, repair]),
            losses,
            owners,
            course,
            generator,
            what="private parts",
            canaries=canaries,
        )
    finally:
        net.requires_grad_(True)


def train_hybrid(
    net: CsiTransformer,
    repair: Repair,
    material: Material,
    owners: torch.Tensor,
    course: PrivateCourse,
    generator: torch.Generator,
    weight: float,
) -> None:
    """Lines 5 to 17 of the paper's algorithm 1, as they are published. Nothing of it is private.

    The noise that equation (18) adds to the loss is no function of any parameter, and changes no
    gradient; it is left out. Both losses are squared errors of one window in one unit, so that
    their ranges are alike already, and none is made so.
    """
    _only_private(net)
    private = PrivateSteps(
        net, lambda index: material.losses(net, index), owners, course, generator
    )
    theta = torch.optim.Adam(net.parameters(), lr=course.rate)
    phi = torch.optim.Adam(repair.parameters(), lr=course.rate)
    try:
        for _ in track(range(course.steps), "hybrid"):
            windows = private.draw()
            _only_private(net)
            private.take(windows)  # lines 7 to 9
            if not len(windows):
                continue
            net.requires_grad_(True)
            with private.paused():
                index = windows.flatten()
                _, denoising = material.both_losses(net, repair, index)
                _descend(denoising.mean(), phi)  # lines 10 and 11
                diffusion, denoising = material.both_losses(net, repair, index)
                total = diffusion.mean() + weight * denoising.mean()
                _descend(total, theta, phi)  # lines 12 to 15
    finally:
        private.close()
        net.requires_grad_(True)


def _descend(loss: torch.Tensor, *optimizers: torch.optim.Optimizer) -> None:
    """One ordinary step of those parameters, and of no others."""
    weights = [one for each in optimizers for one in each.param_groups[0]["params"]]
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = gradient
    for optimizer in optimizers:
        optimizer.step()


def _only_private(net: CsiTransformer) -> None:
    """Only theta_att and theta_embed may change."""
    net.requires_grad_(False)
    for module in net.private_modules():
        module.requires_grad_(True)


def _errors(clean: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (clean - other).square().mean((1, 2))
