"""How the CSI generator is trained: algorithm 1 of the paper, and DP-SGD with a guarantee.

| function           | lines    | sees windows without clipping and noise |
|--------------------|----------|------------------------------------------|
| `pretrain`         | 1 to 3   | yes                                      |
| `finetune_hybrid`  | 4 to 17  | yes, in lines 11, 14 and 15              |
| `finetune_dp`      | 4 to 17  | no: one private step does all their work |
| `train_dp`         | -        | no: DP-SGD from the start                |
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from sensorveil.methods.csi.dp_sgd import DpSgd, PrivacySpent, PrivateTraining, train_privately
from sensorveil.methods.csi.model import CsiTransformer, Degradation, DenoisingModel
from sensorveil.progress import track
from sensorveil.train import (
    AveragedWeights,
    Checkpoint,
    Gather,
    TrainConfig,
    TrainingTarget,
    train,
)

CONDITION_DROPOUT = 0.1
"""The share of windows whose condition is null in training, as classifier-free guidance needs it."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What a generator learns from.

    Parameters
    ----------
    windows
        Gives the windows at some positions, (n, channels, length).
    conditions
        The one-hot kept classes of all windows, (n, sum of classes).
    degradation
        The forward process.
    """

    windows: Gather
    conditions: torch.Tensor
    degradation: Degradation

    def restored(
        self, network: nn.Module, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Windows at some positions, and f_theta's restoration of them at random levels."""
        clean = self.windows(index)
        t = torch.randint(len(self.degradation), (len(clean),), device=clean.device)
        conditioned = torch.rand(len(clean), 1, device=clean.device) >= CONDITION_DROPOUT
        x = self.degradation.degraded(clean, torch.randn_like(clean), t)
        return clean, network(x, t, self.conditions[index] * conditioned)

    def losses(self, network: nn.Module, index: torch.Tensor) -> torch.Tensor:
        """Equation (9), to which (16) reduces: the squared error of each window, (n,)."""
        return _squared_errors(*self.restored(network, index))

    def joint_losses(
        self, network: nn.Module, denoiser: DenoisingModel, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """L_diffusion and L_denoising of equation (18), each (n,), of the same restorations."""
        clean, restored = self.restored(network, index)
        return _squared_errors(clean, restored), _squared_errors(clean, denoiser(restored))


def _squared_errors(clean: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (clean - other).square().mean((1, 2))


def pretrain(
    network: CsiTransformer,
    data: TrainingData,
    config: TrainConfig,
    seed: int,
    averaged: AveragedWeights,
    checkpoint: Checkpoint | None = None,
) -> list[float]:
    """Lines 1 to 3, equation (6): ordinary training; returns the loss of each epoch.

    The network is left with its averaged weights.
    """
    target = TrainingTarget(
        network,
        lambda index: data.losses(network, index).mean(),
        after_step=lambda: averaged.update(network),
    )
    count, device = len(data.conditions), data.conditions.device
    (losses,) = train(
        "generator", [target], count, config, seed, device, checkpoint, extra_state=averaged
    )
    network.load_state_dict(averaged.network.state_dict())
    return losses


def finetune_hybrid(
    network: CsiTransformer,
    denoiser: DenoisingModel,
    data: TrainingData,
    training: PrivateTraining,
    denoiser_weight: float,
) -> None:
    """Lines 4 to 17 as published; nothing of it is private.

    The noise that equation (18) adds to the loss depends on no parameter, so it is left out. The
    paper normalises both losses to the same range; here both are squared errors of the same windows
    in the same units.
    """
    require_gradient_of_private_modules(network)
    dp_sgd = DpSgd(network, lambda index: data.losses(network, index), training)
    theta = torch.optim.Adam(network.parameters(), lr=training.learning_rate)
    phi = torch.optim.Adam(denoiser.parameters(), lr=training.learning_rate)
    try:
        for _ in track(range(training.settings.steps), "hybrid"):  # line 5
            batch = dp_sgd.sample()  # line 6
            require_gradient_of_private_modules(network)
            dp_sgd.step(batch)  # lines 7 to 9: theta_att and theta_embed
            if not len(batch):
                continue
            network.requires_grad_(True)
            with dp_sgd.paused():
                index = batch.flatten()
                _, denoising = data.joint_losses(network, denoiser, index)  # line 10
                _descend(denoising.mean(), phi)  # line 11
                diffusion, denoising = data.joint_losses(network, denoiser, index)  # line 12
                total = diffusion.mean() + denoiser_weight * denoising.mean()  # line 13
                _descend(total, theta, phi)  # lines 14 and 15
    finally:
        dp_sgd.close()
        network.requires_grad_(True)


def finetune_dp(
    network: CsiTransformer,
    denoiser: DenoisingModel,
    data: TrainingData,
    training: PrivateTraining,
    denoiser_weight: float,
) -> PrivacySpent:
    """Lines 4 to 17 by DP-SGD alone, on theta_att, theta_embed and phi together.

    Lines 11, 14 and 15 look at windows without clipping or noise. Here one step replaces all
    updates: the gradient of equation (18) is clipped for each unit, and noised.
    """

    def losses(index: torch.Tensor) -> torch.Tensor:
        diffusion, denoising = data.joint_losses(network, denoiser, index)
        return diffusion + denoiser_weight * denoising

    require_gradient_of_private_modules(network)
    try:
        return train_privately(
            "private fine-tuning", nn.ModuleList([network, denoiser]), losses, training
        )
    finally:
        network.requires_grad_(True)


def train_dp(
    network: CsiTransformer,
    data: TrainingData,
    training: PrivateTraining,
    averaged: AveragedWeights,
) -> PrivacySpent:
    """DP-SGD on all parameters from the start (the paper's "RF-Diffusion + DP-SGD")."""
    spent = train_privately(
        "private generator",
        network,
        lambda index: data.losses(network, index),
        training,
        after_step=lambda: averaged.update(network),
    )
    network.load_state_dict(averaged.network.state_dict())
    return spent


def require_gradient_of_private_modules(network: CsiTransformer) -> None:
    """Only theta_att and theta_embed are trained."""
    network.requires_grad_(False)
    for module in network.private_modules():
        module.requires_grad_(True)


def _descend(loss: torch.Tensor, *optimizers: torch.optim.Optimizer) -> None:
    """One step of these optimizers' parameters, without a gradient to any others."""
    weights = [one for each in optimizers for one in each.param_groups[0]["params"]]
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = gradient
    for optimizer in optimizers:
        optimizer.step()
