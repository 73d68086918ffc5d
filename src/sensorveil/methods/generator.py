"""What all generators share: windows made from a class and noise, and from nothing else.

As an obfuscator, a generator reads the kept classes from a window and makes another window of
these classes. As a source of data, it makes as many windows of a class as are asked for.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.diffusion.features import FeatureNet, FeatureSettings, train_surrogate
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.files import part_of
from sensorveil.measures.inference import seen_shape
from sensorveil.methods.base import Obfuscator, Strength
from sensorveil.methods.classes import READER
from sensorveil.methods.guarantee import Guarantee
from sensorveil.nets.cnn import as_real
from sensorveil.nets.csi import as_pairs, from_pairs
from sensorveil.progress import track
from sensorveil.train import TrainConfig, derived_seed, seeded

_PIECE = 512  # windows that go through a network at once
_READER = FeatureSettings(channels=(16, 32), hidden_sizes=(64,), kernel_dims=1)

Ask = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(windows as pairs, conditions) to something of each window."""


class ClassGenerator(Obfuscator):
    """A generator told the kept classes; a subclass trains it (`_learn`) and samples (`_make`).

    Networks see windows as pairs (n, 2 channels, length), complex or not.
    """

    # What users call, beside the contract.

    def generate(
        self,
        classes: Mapping[str, str],
        count: int,
        strength: Strength | None = None,
        seed: int | None = None,
        length: int | None = None,
    ) -> Windows:
        """New windows of one class of each kept attribute, in the units of the training windows.

        Without a seed the noise comes from the operating system. The length may be another than
        that of the training windows.
        """
        self._check_fitted()
        if count < 1 or (length is not None and length < 1):
            raise Refusal("at least one window of at least one sample must be asked for")
        codes = np.tile([self._code(name, classes) for name in self.policy_.keep], (count, 1))
        for name in classes:
            if name not in self.policy_.keep:
                raise refuse_unknown("kept attribute", name, self.policy_.keep)
        return self._generated(codes, strength, seed, length or self.shape_[-1])

    def imitate(
        self, windows: Windows, strength: Strength | None = None, seed: int | None = None
    ) -> Windows:
        """New windows of the classes that these have: as many of each, in the same order.

        Only the labels of the windows are used. What `obfuscate` makes follows the classes that
        the reader finds, which may be others; for data to learn from, the label must be true.
        """
        self._check_fitted()
        self._check_alike(windows)
        return self._generated(self._all_kept(windows), strength, seed, self.shape_[-1])

    def errors(self, windows: Windows, seed: int = 0) -> np.ndarray:
        """How badly it knows each window, told its classes: (n,), low for those it learnt from.

        What an attacker on membership asks a generator for. The same seed asks all generators in
        the same way.
        """
        self._check_fitted()
        self._check_alike(windows)
        chance = torch.Generator().manual_seed(seed)
        found = self._in_pieces(windows, lambda x, told: self._errors(x, told, chance))
        return found.double().numpy()

    def guarantee(self) -> Guarantee:
        """What it promises to those whose windows it learnt from."""
        self._check_fitted()
        return Guarantee.of(self.metrics_["privacy"])

    # What a generator writes.

    @abstractmethod
    def _learn(self, windows: Windows) -> Guarantee:
        """Learns from windows in standard units, whose kept classes are all known."""

    @abstractmethod
    def _make(
        self, condition: torch.Tensor, weight: torch.Tensor, start: torch.Tensor, seed: int
    ) -> torch.Tensor:
        """Windows as pairs, of `start` (n, 2 channels, length), standard normal noise."""

    @abstractmethod
    def _errors(
        self, x: torch.Tensor, condition: torch.Tensor, chance: torch.Generator
    ) -> torch.Tensor:
        """How badly it knows each of the windows x, given as pairs: (n,)."""

    @abstractmethod
    def _nets(self) -> dict[str, nn.Module]:
        """All networks by name, blank where nothing was learnt yet."""

    @abstractmethod
    def _reader_course(self) -> TrainConfig:
        """How the reader is trained."""

    # The contract.

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        known = self._prepared(windows.select(self._kept(windows).min(1) != UNKNOWN))
        self.nets_ = self._blank_nets()
        self.metrics_["privacy"] = self._learn(known).as_dict()
        for net in self.nets_.values():
            net.eval()

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        read = self._read(self._prepared(windows))
        return self._made(read, strength, rng, self.shape_[-1])

    def _condition(self, windows: Windows) -> np.ndarray:
        return self._read(self._prepared(windows)).cpu().numpy()

    def _state(self) -> dict[str, np.ndarray]:
        return {
            f"{which}.{name}": value.cpu().numpy()
            for which, net in self.nets_.items()
            for name, value in net.state_dict().items()
        }

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.nets_ = self._blank_nets()
        for which, net in self.nets_.items():
            own = part_of(state, f"{which}.")
            net.load_state_dict({name: torch.from_numpy(array) for name, array in own.items()})
            net.eval()

    # Parts.

    @torch.no_grad()
    def _in_pieces(self, windows: Windows, ask: Ask) -> torch.Tensor:
        """What is asked of each window, told its classes; on the processor."""
        windows = self._prepared(windows)
        gather, conditions = self._gather(windows), self._one_hot(self._all_kept(windows))
        parts = []
        for first in range(0, len(windows), _PIECE):
            index = torch.arange(first, min(first + _PIECE, len(windows)), device=self.device)
            parts.append(ask(gather(index), conditions[index]).cpu())
        return torch.cat(parts)

    def _generated(
        self, codes: np.ndarray, strength: Strength | None, seed: int | None, length: int
    ) -> Windows:
        """One window for each row of kept classes (n, attributes)."""
        if seed is not None and seed < 0:
            raise Refusal(f"the seed is {seed}; it must be 0 or more")
        chance = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
        knobs = self._knobs(strength or {}, len(codes))
        made = self._made(self._one_hot(codes), knobs, chance, length)
        if not np.isfinite(made).all():
            raise Refusal(f"the output of {self.name} is not finite; use a milder strength")
        return self._as_windows(made, codes)

    def _prepared(self, windows: Windows) -> Windows:
        """Windows in the units recorded, as its networks see them."""
        return windows.scaled(self.scaling_)

    def _blank_nets(self) -> dict[str, nn.Module]:
        with seeded(derived_seed(self.seed, READER)):
            shape = seen_shape(self.shape_, self.complex_)
            reader = FeatureNet(shape, self._sizes(), _READER)
        return {
            name: net.to(self.device) for name, net in {"reader": reader, **self._nets()}.items()
        }

    def _train_reader(self, windows: Windows) -> None:
        self.metrics_["reader_loss"] = train_surrogate(
            cast(FeatureNet, self.nets_["reader"]),
            self._gather_real(windows),
            self._tensor(self._kept(windows)),
            self._reader_course(),
            derived_seed(self.seed, READER),
            self.checkpoint,
        )

    @torch.no_grad()
    def _read(self, windows: Windows) -> torch.Tensor:
        """The kept classes that the reader finds, as a condition (n, sum of classes)."""
        gather, found = self._gather_real(windows), []
        for first in range(0, len(windows), _PIECE):
            places = torch.arange(first, min(first + _PIECE, len(windows)), device=self.device)
            _, scores = self.nets_["reader"](gather(places))
            found.append(torch.stack([one.argmax(1) for one in scores], dim=1))
        return self._one_hot(torch.cat(found).cpu().numpy())

    @torch.no_grad()
    def _made(
        self,
        condition: torch.Tensor,
        strength: Mapping[str, np.ndarray],
        rng: np.random.Generator,
        length: int,
    ) -> np.ndarray:
        """New windows in standard units, as many as conditions."""
        count = len(condition)
        given = strength.get("keep", np.full(count, getattr(self.settings, "keep", 0.0)))
        with np.errstate(over="ignore"):  # what is not finite is refused at the end
            weight = torch.from_numpy(np.array(given, np.float32)).to(self.device)
        shape = (2 * self.shape_[0], length)
        parts = []
        for first in track(range(0, count, _PIECE), "windows"):
            rows = slice(first, min(first + _PIECE, count))
            noise = rng.standard_normal((rows.stop - first, *shape), dtype=np.float32)
            start = torch.from_numpy(noise).to(self.device)
            seed = int(rng.integers(2**63))
            parts.append(self._make(condition[rows], weight[rows], start, seed).cpu())
        return from_pairs(torch.cat(parts), self.complex_).numpy()

    def _conditions(self, windows: Windows) -> torch.Tensor:
        return self._one_hot(self._kept(windows))

    def _one_hot(self, codes: np.ndarray) -> torch.Tensor:
        """Classes (n, attributes) as (n, sum of classes)."""
        parts = [
            np.eye(size, dtype=np.float32)[codes[:, i]] for i, size in enumerate(self._sizes())
        ]
        return torch.from_numpy(np.concatenate(parts, axis=1)).to(self.device)

    def _sizes(self) -> tuple[int, ...]:
        return tuple(len(self.classes_[name]) for name in self.policy_.keep)

    def _kept(self, windows: Windows) -> np.ndarray:
        return np.stack([windows.codes(name) for name in self.policy_.keep], axis=1)

    def _all_kept(self, windows: Windows) -> np.ndarray:
        """The kept classes of windows that all have some."""
        codes = self._kept(windows)
        if (codes == UNKNOWN).any():
            raise Refusal(f"some windows have no class of {', '.join(self.policy_.keep)}")
        return codes

    def _code(self, name: str, classes: Mapping[str, str]) -> int:
        if name not in classes:
            raise Refusal(f"a class of '{name}' must be named: {', '.join(self.classes_[name])}")
        if classes[name] not in self.classes_[name]:
            raise refuse_unknown(f"class of '{name}'", classes[name], self.classes_[name])
        return self.classes_[name].index(classes[name])

    def _gather(self, windows: Windows) -> Any:
        gather = windows.on(self.device)
        return lambda index: as_pairs(gather[index])

    def _gather_real(self, windows: Windows) -> Any:
        gather = windows.on(self.device)
        return lambda index: as_real(gather[index])

    def _tensor(self, codes: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(codes.astype(np.int64)).to(self.device)

    def _as_windows(self, made: np.ndarray, codes: np.ndarray) -> Windows:
        """Windows of nobody out of standard units and kept classes, named as in training."""
        labels = {name: codes[:, which] for which, name in enumerate(self.policy_.keep)}
        found = Windows.from_signal(self.scaling_.undo(made), labels, self.sample_rate_)
        named = {"subject": ("generated",), **{name: self.classes_[name] for name in labels}}
        return replace(found, classes=named, channels=self.channels_)


def to_learn_from(obfuscator: Obfuscator, windows: Windows, seed: int) -> Windows:
    """What a method makes of labelled windows for others to learn from, with the same labels.

    A generator is told the label itself; other methods see the windows, and what they make keeps
    the label as well as they do.
    """
    if isinstance(obfuscator, ClassGenerator):
        return obfuscator.imitate(windows, seed=seed)
    return obfuscator.obfuscate(windows, seed=seed)
