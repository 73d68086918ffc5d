"""What PrivDiffuser and CLOAK share: strengths, and the hidden classes to guide samples away from.

Equation (20) of PrivDiffuser is (12) of CLOAK, by the same authors. Networks, training and sampling
are in each paper's own file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import nn

from sensorveil.cuda_graphs import Inputs
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.diffusion.batched import applied
from sensorveil.diffusion.guidance import Gradient
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.methods.base import Capabilities, Obfuscator, Strength
from sensorveil.methods.settings import Settings
from sensorveil.train import Gather, seeded

NegativeTarget = Literal["wearer", "predicted", "random", "none"]
NEGATIVE_TARGETS: tuple[NegativeTarget, ...] = ("wearer", "predicted", "random", "none")


class GuidanceSettings(Settings):
    """How samples are guided.

    Parameters
    ----------
    guidance_scale
        w_1 of PrivDiffuser, w_U of CLOAK, where 0 is no guidance: the prediction is (1 + w) with
        the condition minus w without. The authors' code, and other libraries, count from 1.
    negative_scale
        w_2 of PrivDiffuser, w_S of CLOAK, for every hidden attribute.
    negative_target
        The hidden class that samples are guided away from: the "wearer"'s true class, as in both
        papers, which needs true labels and shows them to an attacker who trains on the output; the one that
        is "predicted"; a "random" one; or "none".
    gradient
        See `negative_guidance`: "clean" as in the authors' code, "full" as the equations are
        written.
    """

    guidance_scale: float = Field(default=4.5, ge=0)
    negative_scale: float = Field(default=0.008, ge=0)
    negative_target: NegativeTarget = "random"
    gradient: Gradient = "clean"


class SamplingSettings(Settings):
    """The sampler, how often it asks the denoiser, and the timesteps of the noise schedule."""

    sampler: Literal["ddim", "dpm-solver++"] = "ddim"
    sampling_steps: int = Field(default=50, gt=0)
    timesteps: int = Field(default=1000, gt=0)

    def check(self) -> None:
        """Refuse more steps than there are timesteps."""
        limit = f"at most {self.timesteps}, the timesteps"
        self.require(self.sampling_steps <= self.timesteps, "sampling_steps", limit)


class NegativelyGuided(Obfuscator):
    """A diffusion model guided towards the kept attributes and away from hidden classes.

    A subclass fills `networks_`, and says what its networks are and what a hidden attribute's
    classifier predicts.
    """

    capabilities = Capabilities(
        strengths={"guidance_scale": "how strongly samples are guided to the kept attributes"},
        strength_per_hidden=True,
        new_hide_without_generator=True,
    )
    adjustable: ClassVar[tuple[str, ...]] = (
        "guidance.guidance_scale",
        "guidance.negative_scale",
        "guidance.negative_target",
        "guidance.gradient",
        "sampling.sampler",
        "sampling.sampling_steps",
    )
    settings: Any
    networks_: dict[str, nn.Module]

    def needs_wearer(self) -> bool:
        """Whether obfuscation needs the wearer's true hidden classes."""
        return bool(self.settings.guidance.negative_target == "wearer")

    def strength_names(self) -> tuple[str, ...]:
        """The guidance scale, and each hidden attribute whose negative scale can act."""
        if self.settings.guidance.negative_target == "none":
            self._check_fitted()
            return tuple(self.capabilities.strengths)
        return super().strength_names()

    def variants(self) -> dict[str, Self]:
        """The same with other negative targets, where there is a negative scale."""
        guidance = self.settings.guidance
        if not guidance.negative_scale or guidance.negative_target == "none":
            return {}
        return {
            f"{self.name}, negative_target={target}": self.with_settings(negative_target=target)
            for target in NEGATIVE_TARGETS
            if target not in (guidance.negative_target, "none")
        }

    # What a subclass writes.

    @abstractmethod
    def _network_names(self) -> tuple[str, ...]:
        """All networks of a fitted method."""

    @abstractmethod
    def _build_network(self, which: str) -> nn.Module:
        """A network with initial weights."""

    @abstractmethod
    def _fit_auxiliary(self, windows: Windows, attribute: str) -> None:
        """Train the auxiliary model, which predicts a hidden attribute, and put it in `networks_`."""

    @abstractmethod
    def _make_condition(self, signal: torch.Tensor) -> torch.Tensor:
        """What the denoiser is conditioned on, for windows in standard units: (n, d)."""

    @abstractmethod
    def _hidden_log_probs(
        self, attribute: str, clean: torch.Tensor, condition: torch.Tensor
    ) -> torch.Tensor:
        """Log-probabilities of a hidden attribute, (n, classes), from what is denoised."""

    @abstractmethod
    def _to_denoised(self, signal: torch.Tensor) -> torch.Tensor:
        """Windows in standard units in the space that is denoised."""

    # Shared.

    def _make_conditions(self, windows: Windows) -> torch.Tensor:
        """The conditions of all windows, (n, d)."""
        return self._applied(self._make_condition, windows)

    def _applied(self, network: Gather, windows: Windows) -> torch.Tensor:
        return applied(network, windows.on(self.device).__getitem__, len(windows), self.device)

    def _new_network(self, which: str, seed: int) -> nn.Module:
        """A network with initial weights of a seed, on the device."""
        with seeded(seed):
            return self._build_network(which).to(self.device)

    def _negative_inputs(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> dict[str, torch.Tensor]:
        """For each hidden attribute, the scale of each window and the class to guide it away from.

        An attribute whose scale is 0 for all windows is left out.
        """
        inputs = {}
        for name, codes in self._negative_classes(windows, rng).items():
            scale = strength.get(name, self.settings.guidance.negative_scale) * (codes != UNKNOWN)
            if scale.any():
                inputs[_scale_of(name)] = per_window(scale, len(windows))
                inputs[_class_of(name)] = torch.from_numpy(codes.clip(min=0).astype(np.int64))
        return inputs

    def _negative_classes(
        self, windows: Windows, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """The class of each hidden attribute that each window is guided away from."""
        target = self.settings.guidance.negative_target
        found: dict[str, np.ndarray] = {}
        for name in self.policy_.hide if target != "none" else ():
            if target == "random":
                found[name] = rng.integers(len(self.classes_[name]), size=len(windows))
            elif target == "predicted":
                found[name] = self._predict_hidden(windows, name)
            elif name in windows.attributes:
                found[name] = windows.codes(name)
            else:
                raise Refusal(f"negative_target 'wearer' needs the true '{name}' of every window")
        return found

    def _predict_hidden(self, windows: Windows, attribute: str) -> np.ndarray:
        """The most likely class of a hidden attribute for each window."""

        def predict(signal: torch.Tensor) -> torch.Tensor:
            clean, condition = self._to_denoised(signal), self._make_condition(signal)
            return self._hidden_log_probs(attribute, clean, condition).argmax(1)

        return self._applied(predict, windows).cpu().numpy()

    def _log_likelihood(
        self, batch: Inputs, condition: torch.Tensor, clean: torch.Tensor
    ) -> torch.Tensor:
        """sum_k w_k log p(y_k | z, x_0) of each window, for the hidden classes y_k to avoid: (n,)."""
        total = torch.zeros(len(clean), device=clean.device)
        for name in self.policy_.hide:
            if _scale_of(name) in batch:
                log_probs = self._hidden_log_probs(name, clean, condition)
                code = batch[_class_of(name)].unsqueeze(1)
                total = total + batch[_scale_of(name)] * log_probs.gather(1, code).squeeze(1)
        return total

    def _condition(self, windows: Windows) -> np.ndarray:
        """The condition, and the hidden classes where they are predicted.

        With `negative_target` "wearer" the true classes shape the output too; they are not here.
        """
        parts = [self._make_conditions(windows).cpu().numpy()]
        if self.settings.guidance.negative_target == "predicted":
            for name in self.policy_.hide:
                one_hot = np.eye(len(self.classes_[name]), dtype=np.float32)
                parts.append(one_hot[self._predict_hidden(windows, name)])
        return np.concatenate(parts, axis=1)

    def _add_hidden(self, windows: Windows, attribute: str) -> None:
        guidance = self.settings.guidance
        if guidance.negative_target == "none" or not guidance.negative_scale:
            raise Refusal(
                f"nothing would act on '{attribute}': set negative_target and a negative_scale above 0"
            )
        self._fit_auxiliary(windows, attribute)

    def _strength_arrays(self, strength: Strength, count: int) -> dict[str, np.ndarray]:
        idle = sorted(set(strength) & set(self.policy_.hide) - set(self.strength_names()))
        if idle:
            raise Refusal(f"strength '{idle[0]}' cannot act: negative_target is none")
        return super()._strength_arrays(strength, count)

    def _kept_codes(self, windows: Windows) -> np.ndarray:
        """The kept classes, (n, attributes)."""
        return np.stack([windows.codes(name) for name in self.policy_.keep], axis=1)

    def _tensor(self, codes: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(codes.astype(np.int64)).to(self.device)

    def _state(self) -> dict[str, np.ndarray]:
        return {
            f"{which}:{name}": value.cpu().numpy()
            for which, network in self.networks_.items()
            for name, value in network.state_dict().items()
        }

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.networks_ = {}
        for which in self._network_names():
            network = self._build_network(which)
            own = part_of(state, f"{which}:")
            network.load_state_dict({name: torch.from_numpy(one) for name, one in own.items()})
            self.networks_[which] = network.eval().to(self.device)


def auxiliary_of(attribute: str) -> str:
    """The name of a hidden attribute's auxiliary model."""
    return f"auxiliary of {attribute}"


def per_window(value: float | np.ndarray, count: int) -> torch.Tensor:
    """One number for each window, (count,)."""
    return torch.from_numpy(np.broadcast_to(value, count).astype(np.float32))


def _scale_of(attribute: str) -> str:
    return f"negative scale of {attribute}"


def _class_of(attribute: str) -> str:
    return f"negative class of {attribute}"
