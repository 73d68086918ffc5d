"""The CSI paper's generator, and four ways to train it, two of which protect its donors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from sensorveil.data.phases import with_phases
from sensorveil.data.windows import Scaling, Windows
from sensorveil.diffusion.guidance import classifier_free
from sensorveil.diffusion.samplers import SAMPLERS
from sensorveil.diffusion.schedule import drawn_noise
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.methods.base import Capabilities
from sensorveil.methods.csi.class_generator import ClassGenerator
from sensorveil.methods.csi.dp_sgd import (
    Canaries,
    DpSgdSettings,
    PrivacySpent,
    PrivateTraining,
    compute_epsilon,
    require_opacus,
    secret_generator,
    train_privately,
)
from sensorveil.methods.csi.model import (
    CsiTransformer,
    Degradation,
    DenoisingModel,
    RFDiffusionSampler,
)
from sensorveil.methods.csi.training import (
    TrainingData,
    finetune_dp,
    finetune_hybrid,
    pretrain,
    train_dp,
)
from sensorveil.methods.guarantee import Guarantee
from sensorveil.methods.settings import Settings
from sensorveil.train import AveragedWeights, TrainConfig, derived_seed, seeded

_GENERATOR_SEED, _DENOISER_SEED, _NOISE_SEED, _LEVEL_SEED = 21, 22, 23, 24

_ERROR_LEVELS = 8
"""Levels at which reconstruction errors are taken."""

_PLAIN = "every update saw the windows as they are, without clipping or noise"
_HYBRID = (
    "the first phase (lines 1 to 3 of algorithm 1) saw all windows without clipping or noise, and"
    " so did the joint updates (lines 11, 14 and 15); the noise of lines 7 to 9 takes none of that"
    " back"
)
_REPEATABLE = "the noise was drawn from the seed, and anybody who has the run can subtract it"


class NetworkSettings(Settings):
    """The transformer.

    Parameters
    ----------
    width
        Complex numbers of a token.
    blocks, heads
        Number of blocks, and heads of each attention.
    patch
        Samples of a window in a token.
    """

    width: int = Field(default=128, gt=0)
    blocks: int = Field(default=8, gt=0)
    heads: int = Field(default=8, gt=0)
    patch: int = Field(default=1, gt=0)

    def check(self) -> None:
        """Every head has the same width."""
        whole = self.width % self.heads == 0
        self.require(whole, "width", f"a multiple of {self.heads}, the heads")


class DegradationSettings(Settings):
    """The forward process, equations (11) to (13); see `Degradation.linear`."""

    levels: int = Field(default=200, gt=0)
    first_beta: float = Field(default=5e-4, gt=0)
    last_beta: float = Field(default=0.1, gt=0, lt=1)
    blur: float = Field(default=0.0, ge=0)
    noise_sum: Literal["variances", "amplitudes"] = "variances"

    def check(self) -> None:
        """The noise grows."""
        grows = self.first_beta <= self.last_beta
        self.require(grows, "first_beta", f"at most {self.last_beta}, last_beta")


class TrainingSettings(Settings):
    """Training without privacy: the first phase, and the classifier of the kept attributes.

    Parameters
    ----------
    epochs, batch_size, learning_rate
        As in `TrainConfig`; the learning rate is that of private training as well.
    ema_decay
        Decay of the averaged weights.
    classifier_epochs
        Epochs of the classifier.
    """

    epochs: int = Field(default=200, gt=0)
    batch_size: int = Field(default=256, gt=0)
    learning_rate: float = Field(default=1e-3, gt=0)
    ema_decay: float = Field(default=0.999, gt=0, lt=1)
    classifier_epochs: int = Field(default=40, gt=0)


class PrivacySettings(DpSgdSettings):
    """The second phase and DP-SGD; the other settings are those of `DpSgdSettings`.

    Parameters
    ----------
    delta
        Delta that the epsilon is stated at.
    unit
        What an epsilon protects: one window, or all windows of one person.
    denoiser_weight
        lambda of equation (18).
    public
        Names of the people, joined by "+", whose windows mode hybrid-dp may learn from without
        noise.
    scale
        What mode dp divides windows by, since it may not look at them for that.
    repeatable
        Draw the noise from the run's seed. Then nothing is promised.
    """

    delta: float = Field(default=1e-5, gt=0, lt=1)
    unit: Literal["window", "person"] = "window"
    denoiser_weight: float = Field(default=1.0, ge=0)
    public: str = ""
    scale: float = Field(default=1.0, gt=0)
    repeatable: bool = False


class CsiSettings(Settings):
    """Settings of `CsiGenerator`.

    Parameters
    ----------
    mode
        How it is trained: "plain" (equation 6), "hybrid" (algorithm 1, no epsilon), "hybrid-dp" (the
        first phase on public people, the rest by DP-SGD) or "dp" (DP-SGD from the start).
    phases
        "kept", or "aligned": without what a Wi-Fi card adds to the phases of each packet.
    sampler, sampling_steps
        A sampler of `sensorveil.diffusion`, or "rf-diffusion", and its steps.
    guidance_scale
        w of (1 + w) f(x, c) - w f(x); 0 is the conditional prediction. A strength as well.
    network, degradation, training, privacy
        Groups, see there.
    """

    mode: Literal["plain", "hybrid", "hybrid-dp", "dp"] = "plain"
    phases: Literal["kept", "aligned"] = "kept"
    sampler: Literal["ddim", "dpm-solver++", "rf-diffusion"] = "dpm-solver++"
    sampling_steps: int = Field(default=20, gt=0)
    guidance_scale: float = Field(default=0.0, ge=0)
    network: NetworkSettings = NetworkSettings()
    degradation: DegradationSettings = DegradationSettings()
    training: TrainingSettings = TrainingSettings()
    privacy: PrivacySettings = PrivacySettings()

    def check(self) -> None:
        """Refuse settings that exclude each other."""
        levels, blur = self.degradation.levels, self.degradation.blur
        self.require(
            self.sampling_steps <= levels, "sampling_steps", f"at most {levels}, the levels"
        )
        self.require(
            blur == 0 or self.sampler == "rf-diffusion",
            "sampler",
            "rf-diffusion, as there is a blur",
        )
        if bool(self.privacy.public) != (self.mode == "hybrid-dp"):
            raise Refusal(
                f"setting 'privacy.public' is '{self.privacy.public}'; it must name people in mode"
                " hybrid-dp and be empty in all others"
            )


class CsiGenerator(ClassGenerator):
    """A complex diffusion transformer that generates Wi-Fi CSI of the kept classes.

    Preset `paper` has the sizes of RF-Diffusion's code for Wi-Fi, on which the paper builds: 32
    blocks of width 128, and 100 levels whose noise adds up by amplitude. Its last level leaves 6.6%
    of a sample's power, so that sampling begins at noise unlike that of training. `sound` (for a
    GPU) and `fast` (for two cores) end in noise, and add up variances. Other differences:

    - Attention scores are Re(q conj(k)). RF-Diffusion's code takes softmaxes of both parts without
      conjugating, and drops half of the weights out.
    - The paper states no epochs, batches, learning rates, noise, clipping, lambda or denoising model.
    - The paper's updates are plain SGD; here they are Adam.
    - The paper restores degraded true windows (`restore`); here samples begin in noise.

    References
    ----------
    Wang, Zhao, Mao and Wang, Privacy-Preserving Wi-Fi Data Generation via Differential Privacy in
    Diffusion Models (2024).

    Examples
    --------
    >>> from sensorveil.methods.conformance import example_windows
    >>> method = CsiGenerator(epochs=1, classifier_epochs=1)
    >>> method = method.fit(example_windows("complex"), "activity", "gender")
    >>> method.generate({"activity": "1"}, count=3, seed=0).signal.shape
    (3, 2, 32)
    >>> print(method.guarantee())
    no epsilon: every update saw the windows as they are, without clipping or noise
    """

    name = "csi"
    summary = "complex diffusion from the predicted class, optional DP-SGD"
    capabilities = Capabilities(
        strengths={"guidance_scale": "classifier-free guidance towards the class"},
        modalities=("signal", "complex"),
    )
    Settings = CsiSettings
    adjustable = ("sampler", "sampling_steps", "guidance_scale")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "sampling_steps": 10,
            "guidance_scale": 1.0,
            "network": {"width": 48, "blocks": 2, "heads": 4, "patch": 4},
            "training": {
                "epochs": 25,
                "batch_size": 64,
                "learning_rate": 4e-3,
                "ema_decay": 0.99,
                "classifier_epochs": 12,
            },
            "privacy": {"steps": 300, "expected_batch_size": 128, "samples_per_unit": 1},
        },
        "paper": {
            "sampler": "rf-diffusion",
            "sampling_steps": 100,
            "network": {"blocks": 32},
            "degradation": {
                "levels": 100,
                "first_beta": 1e-4,
                "last_beta": 0.003,
                "blur": 1e-5,
                "noise_sum": "amplitudes",
            },
            "training": {"batch_size": 32},
        },
        "sound": {},
    }
    settings: CsiSettings

    canaries: Canaries | None = None
    """What an audit inserts among the generator's private gradients (`audit/donors/one_run.py`)."""

    # Training.

    def _train(self, windows: Windows) -> Guarantee:
        """Algorithm 1 up to line 15, or DP-SGD, by mode."""
        mode, settings = self.settings.mode, self.settings.training
        network, denoiser = self.network_, self.denoiser_
        weight = self.settings.privacy.denoiser_weight
        averaged = AveragedWeights(network, settings.ema_decay)
        if mode != "plain":
            require_opacus()
        public = private = windows
        if mode == "hybrid-dp":
            is_public = self._is_public(windows)
            public, private = windows.select(is_public), windows.select(~is_public)
        if mode != "dp":  # lines 1 to 3
            config = TrainConfig(settings.epochs, settings.batch_size, settings.learning_rate)
            self._train_classifier(public, replace(config, epochs=settings.classifier_epochs))
            self.metrics_["generator_loss"] = pretrain(
                network,
                self._training_data(public),
                config,
                derived_seed(self.seed, _GENERATOR_SEED),
                averaged,
                self.checkpoint,
            )
        data, training = self._training_data(private), self._private_training(private)
        spent: list[PrivacySpent] = []
        with seeded(derived_seed(self.seed, _LEVEL_SEED)):  # noise levels are no secret
            if mode == "hybrid":  # lines 4 to 15
                finetune_hybrid(network, denoiser, data, training, weight)
            elif mode == "hybrid-dp":
                spent = [finetune_dp(network, denoiser, data, training, weight)]
            elif mode == "dp":
                spent = [
                    train_privately(
                        "private classifier",
                        self.classifier_,
                        self._classifier_losses(private),
                        replace(training, canaries=None),
                    ),
                    train_dp(network, data, training, averaged),
                ]
        return self._guarantee_of(spent)

    def _training_data(self, windows: Windows) -> TrainingData:
        signals, length = windows.on(self.device), self.shape_[-1]
        return TrainingData(
            lambda index: signals[index],
            self._conditions(self._codes(windows)),
            self._degradation(length),
        )

    def _guarantee_of(self, spent: list[PrivacySpent]) -> Guarantee:
        """An epsilon only if every update with private windows was clipped and noised."""
        mode, privacy = self.settings.mode, self.settings.privacy
        if mode in ("plain", "hybrid"):
            return Guarantee.none(_PLAIN if mode == "plain" else _HYBRID)
        if privacy.repeatable:
            return Guarantee.none(_REPEATABLE)
        public = f"but for the people named public ({privacy.public}), " if privacy.public else ""
        return Guarantee(
            epsilon=compute_epsilon(spent, privacy.delta),
            delta=privacy.delta,
            unit="one window" if privacy.unit == "window" else "all windows of one person",
            why=f"{public}every update was clipped and noised (PRV accountant)",
        )

    # What private training may know of windows.

    def _make_scaling(self, windows: Windows) -> Scaling:
        """Statistics of all windows, of the public ones in hybrid-dp, or of none in dp."""
        if self.settings.mode == "dp":
            shape = (self.shape_[0], 1)
            mean = np.zeros(shape, np.complex64 if self.complex_ else np.float32)
            scale = self.settings.privacy.scale / self._parts
            return Scaling(mean, np.full(shape, scale, np.float32))
        windows = with_phases(windows, self.settings.phases)
        if self.settings.mode == "hybrid-dp":
            public = self._is_public(windows)
            if not public.any() or public.all():
                raise Refusal("hybrid-dp needs windows of people who are public, and of others")
            windows = windows.select(public)
        return super()._make_scaling(windows)

    def _standard(self, windows: Windows) -> Windows:
        return super()._standard(with_phases(windows, self.settings.phases))

    def _is_public(self, windows: Windows) -> np.ndarray:
        people, codes = self.classes_["subject"], []
        for name in self.settings.privacy.public.split("+"):
            if name not in people:
                raise refuse_unknown("public person", name, people)
            codes.append(people.index(name))
        return np.isin(windows.subject, codes)

    def _private_training(self, windows: Windows) -> PrivateTraining:
        privacy = self.settings.privacy
        units = np.arange(len(windows)) if privacy.unit == "window" else windows.subject
        promised = self.settings.mode != "hybrid" and not privacy.repeatable
        seed = None if promised else derived_seed(self.seed, _NOISE_SEED)
        return PrivateTraining(
            privacy,
            self.settings.training.learning_rate,
            torch.from_numpy(units.astype(np.int64)).to(self.device),
            secret_generator(self.device, seed),
            self.canaries,
        )

    # Sampling.

    def _sample(
        self,
        condition: torch.Tensor,
        guidance: torch.Tensor,
        noise: torch.Tensor,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """From noise to windows, and line 16 of algorithm 1."""
        name, steps = self.settings.sampler, self.settings.sampling_steps
        degradation = self._degradation(noise.shape[-1])
        sampler = (
            RFDiffusionSampler(degradation, steps, generator)
            if name == "rf-diffusion"
            else SAMPLERS[name](degradation.schedule, steps)
        )
        x = degradation.start(noise)
        for t, t_next in sampler:
            clean = classifier_free(self.network_, x, t, condition, guidance)  # predicts x_0
            x = sampler.step(x, clean, t, t_next)
        denoised: torch.Tensor = self.denoiser_(x)  # the identity if it was never trained
        return denoised

    def restore(self, windows: Windows, seed: int = 0) -> Windows:
        """Line 16 as published: true windows, degraded to the last level, restored and denoised.

        The published code releases these as generated. Each is made from a true window, so no
        epsilon covers it; they are for audits.
        """
        self._check_fitted()
        self._check_alike(windows)
        codes = self._kept_codes(windows)
        conditions = self._conditions(codes)
        generator = torch.Generator().manual_seed(seed)
        degradation = self._degradation(self.shape_[-1])
        last = len(degradation) - 1

        def restored(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            noisy = degradation.degraded(x, drawn_noise(x, generator), last)
            t = torch.full_like(index, last)
            denoised: torch.Tensor = self.denoiser_(self.network_(noisy, t, conditions[index]))
            return denoised

        return self._as_windows(self._by_batch(self._standard(windows), restored).numpy(), codes)

    def _losses(
        self, x: torch.Tensor, condition: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """Equation (9), averaged over levels."""
        degradation = self._degradation(x.shape[-1])
        losses = []
        for t in torch.linspace(0, len(degradation) - 1, _ERROR_LEVELS).round().long():
            noisy = degradation.degraded(x, drawn_noise(x, generator), int(t))
            restored = self.network_(noisy, t.to(x.device).expand(len(x)), condition)
            losses.append((self.denoiser_(restored) - x).square().mean((1, 2)))
        return torch.stack(losses).mean(0)

    def _degradation(self, length: int) -> Degradation:
        return Degradation.linear(length, **self.settings.degradation.as_dict()).to(self.device)

    def _build_networks(self) -> dict[str, nn.Module]:
        size = self.settings.network
        with seeded(derived_seed(self.seed, _GENERATOR_SEED)):
            self.network_ = CsiTransformer(
                self.shape_[0],
                self._class_counts(),
                **size.as_dict(),
                is_complex=self.complex_,
            )
        with seeded(derived_seed(self.seed, _DENOISER_SEED)):
            self.denoiser_ = DenoisingModel(self.hook_shape[0], max(1, size.width // 2))
        return {"generator": self.network_, "denoiser": self.denoiser_}
