"""What the CSI paper's generators share: windows made from the kept classes and noise alone.

As an obfuscator, a generator predicts the kept classes of a window and releases a new window of
these classes. As a source of data, it makes as many windows of a class as are asked for.
"""

from __future__ import annotations

import math
import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from sensorveil.data.windows import UNKNOWN, Scaling, Windows, batches, to_complex
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.methods.base import RECONSTRUCTION, Obfuscator, Strength
from sensorveil.methods.csi.model import KeptClassifier
from sensorveil.methods.guarantee import Guarantee
from sensorveil.progress import track
from sensorveil.train import TrainConfig, derived_seed, seeded, train_network
from sensorveil.vae import one_hot

_CLASSIFIER_SEED = 1000


class ClassGenerator(Obfuscator):
    """A generator conditioned on the kept classes; a subclass trains it and samples from it."""

    membership_score = RECONSTRUCTION

    def generate(
        self,
        classes: Mapping[str, str],
        count: int,
        strength: Strength | None = None,
        seed: int | None = None,
        length: int | None = None,
    ) -> Windows:
        """Generate windows of one class of each kept attribute.

        Parameters
        ----------
        classes
            A class of each kept attribute.
        count
            Number of windows.
        strength
            As in `obfuscate`.
        seed
            Seed of the noise; without one it comes from the operating system.
        length
            Samples of a window; that of the training windows by default.

        Returns
        -------
        Windows
            In the units of the training windows, of a person named "generated".
        """
        self._check_fitted()
        if count < 1 or (length is not None and length < 1):
            raise Refusal("at least one window of at least one sample must be asked for")
        codes = np.tile([self._code(name, classes) for name in self.policy_.keep], (count, 1))
        for name in classes:
            if name not in self.policy_.keep:
                raise refuse_unknown("kept attribute", name, self.policy_.keep)
        return self._generate(codes, strength, seed, length or self.shape_[-1])

    def generate_like(
        self, windows: Windows, strength: Strength | None = None, seed: int | None = None
    ) -> Windows:
        """Generate windows with the kept labels of these windows, in the same order.

        Only the labels of `windows` are used. `obfuscate` uses predicted classes instead; data to
        train on needs the true ones.
        """
        self._check_fitted()
        self._check_alike(windows)
        return self._generate(self._kept_codes(windows), strength, seed, self.shape_[-1])

    def reconstruction_errors(self, windows: Windows, seed: int = 0) -> np.ndarray:
        """The generator's loss on each window and its true classes, (n,).

        It is low on training windows that the generator memorised, which membership inference looks
        for. The same seed draws the same noise for all generators.
        """
        self._check_fitted()
        self._check_alike(windows)
        return self._errors(self._standard(windows), seed)

    def _errors(self, windows: Windows, seed: int) -> np.ndarray:
        generator = torch.Generator().manual_seed(seed)
        conditions = self._conditions(self._kept_codes(windows))
        errors = self._by_batch(
            windows, lambda x, index: self._losses(x, conditions[index], generator)
        )
        return errors.double().numpy()

    def guarantee(self) -> Guarantee:
        """The promise to those whose windows it was trained on."""
        self._check_fitted()
        return Guarantee.of(self.metrics_["privacy"])

    # What a generator implements.

    @abstractmethod
    def _train(self, windows: Windows) -> Guarantee:
        """Train all networks on windows in standard units whose kept classes are known."""

    @abstractmethod
    def _sample(
        self,
        condition: torch.Tensor,
        guidance: torch.Tensor,
        noise: torch.Tensor,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Windows (n, channels, length) from standard normal noise of that shape."""

    @abstractmethod
    def _losses(
        self, x: torch.Tensor, condition: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """The loss of each window, (n,)."""

    @abstractmethod
    def _build_networks(self) -> dict[str, nn.Module]:
        """All untrained networks but the classifier."""

    # The contract of an obfuscator.

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        self._build()
        known = windows.select(self._codes(windows).min(1) != UNKNOWN)
        self.metrics_["privacy"] = self._train(known).as_dict()
        self.networks_.eval()

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        return self._sample_all(self._predict(windows), strength, rng, self.shape_[-1])

    def _condition(self, windows: Windows) -> np.ndarray:
        return self._predict(windows).cpu().numpy()

    def _membership_scores(self, windows: Windows) -> np.ndarray:
        return -np.log(np.maximum(self._errors(windows, seed=0), 1e-30))

    def _make_scaling(self, windows: Windows) -> Scaling:
        """Unit variance of each channel; of a complex one, of each of its two parts."""
        scaling = Scaling.of(windows)
        return replace(scaling, deviation=scaling.deviation / self._parts)

    def _state(self) -> dict[str, np.ndarray]:
        return {name: value.cpu().numpy() for name, value in self.networks_.state_dict().items()}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._build()
        self.networks_.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        self.networks_.eval()

    def _build(self) -> None:
        """All untrained networks."""
        with seeded(derived_seed(self.seed, _CLASSIFIER_SEED)):
            self.classifier_ = KeptClassifier(self.hook_shape, self._class_counts(), self.complex_)
        networks = {"classifier": self.classifier_, **self._build_networks()}
        self.networks_ = nn.ModuleDict(networks).to(self.device)

    # The classifier of the kept attributes.

    def _train_classifier(self, windows: Windows, config: TrainConfig) -> None:
        losses = self._classifier_losses(windows)
        self.metrics_["classifier_loss"] = train_network(
            "classifier",
            self.classifier_,
            lambda index: losses(index).mean(),
            len(windows),
            config,
            derived_seed(self.seed, _CLASSIFIER_SEED),
            self.device,
            self.checkpoint,
        )

    def _classifier_losses(self, windows: Windows) -> Callable[[torch.Tensor], torch.Tensor]:
        """Gives the classifier's loss of each window at some positions."""
        signals = windows.on(self.device)
        labels = torch.from_numpy(self._codes(windows)).to(self.device)
        return lambda index: self.classifier_.losses(signals[index], labels[index])

    def _predict(self, windows: Windows) -> torch.Tensor:
        """The predicted kept classes as conditions, (n, sum of classes)."""

        def predicted(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return torch.stack([logits.argmax(1) for logits in self.classifier_(x)], dim=1)

        return self._conditions(self._by_batch(windows, predicted).numpy())

    # Sampling.

    def _generate(
        self, codes: np.ndarray, strength: Strength | None, seed: int | None, length: int
    ) -> Windows:
        """One window for each row of kept classes (n, attributes)."""
        if seed is not None and seed < 0:
            raise Refusal(f"the seed is {seed}; it must be 0 or more")
        rng = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
        strengths = self._strength_arrays(strength or {}, len(codes))
        made = self._sample_all(self._conditions(codes), strengths, rng, length)
        if not np.isfinite(made).all():
            raise Refusal(f"the output of {self.name} is not finite; use a milder strength")
        return self._as_windows(made, codes)

    @torch.no_grad()
    def _sample_all(
        self,
        condition: torch.Tensor,
        strength: Mapping[str, np.ndarray],
        rng: np.random.Generator,
        length: int,
    ) -> np.ndarray:
        """A window in standard units for each condition."""
        default = np.full(len(condition), getattr(self.settings, "guidance_scale", 0.0))
        with np.errstate(over="ignore"):  # what is not finite is refused at the end
            scale = np.array(strength.get("guidance_scale", default), np.float32)
        guidance = torch.from_numpy(scale).to(self.device)
        made = []
        for rows in track(list(batches(len(condition), self.device)), "windows"):
            shape = (rows.stop - rows.start, self.hook_shape[0], length)
            noise = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(self.device)
            generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
            made.append(self._sample(condition[rows], guidance[rows], noise, generator).cpu())
        return torch.cat(made).numpy()

    @torch.no_grad()
    def _by_batch(
        self, windows: Windows, compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """A function of windows in standard units and their positions, batch by batch."""
        signals = windows.on(self.device)
        index = torch.arange(len(windows), device=self.device)
        parts = [index[rows] for rows in batches(len(windows), self.device)]
        return torch.cat([compute(signals[part], part).cpu() for part in parts])

    def _as_windows(self, made: np.ndarray, codes: np.ndarray) -> Windows:
        """Windows of nobody, from a signal in standard units and kept classes."""
        signal = self.scaling_.undo(to_complex(made) if self.complex_ else made)
        labels = {name: codes[:, number] for number, name in enumerate(self.policy_.keep)}
        windows = Windows.from_signal(signal, labels, self.sample_rate_)
        classes = {"subject": ("generated",), **{name: self.classes_[name] for name in labels}}
        return replace(windows, classes=classes, channels=self.channels_)

    # Classes.

    @property
    def _parts(self) -> float:
        """How much smaller the standard deviation of a channel's parts is than its own."""
        return math.sqrt(2) if self.complex_ else 1.0

    def _class_counts(self) -> tuple[int, ...]:
        return tuple(len(self.classes_[name]) for name in self.policy_.keep)

    def _codes(self, windows: Windows) -> np.ndarray:
        return np.stack([windows.codes(n) for n in self.policy_.keep], axis=1).astype(np.int64)

    def _kept_codes(self, windows: Windows) -> np.ndarray:
        """The kept classes (n, attributes) of windows that all have them."""
        codes = self._codes(windows)
        if (codes == UNKNOWN).any():
            raise Refusal(f"some windows have no class of {', '.join(self.policy_.keep)}")
        return codes

    def _conditions(self, codes: np.ndarray) -> torch.Tensor:
        """Classes (n, attributes) as one-hot conditions (n, sum of classes)."""
        return one_hot(torch.from_numpy(codes).to(self.device), self._class_counts())

    def _code(self, name: str, classes: Mapping[str, str]) -> int:
        if name not in classes:
            raise Refusal(f"a class of '{name}' must be named: {', '.join(self.classes_[name])}")
        if classes[name] not in self.classes_[name]:
            raise refuse_unknown(f"class of '{name}'", classes[name], self.classes_[name])
        return self.classes_[name].index(classes[name])


def released_for_training(obfuscator: Obfuscator, windows: Windows, seed: int) -> Windows:
    """What a method releases for others to train on, with the labels of `windows`.

    A generator is conditioned on the true label. Any other method obfuscates the windows, and its
    output carries the label as well as the method keeps it.
    """
    if isinstance(obfuscator, ClassGenerator):
        return obfuscator.generate_like(windows, seed=seed)
    return obfuscator.obfuscate(windows, seed=seed)
