"""What all class autoencoders share: a reader chooses a network, a modifier changes the hidden.

ObscureNet (Hajihassnai and others 2021) is one of them (`obscurenet.py`), and so are four of the
baselines in its tables 1 to 3 (`autoencoder.py`). Windows are encoded and decoded by the network of
the kept class that a classifier reads; on the way the hidden classes are changed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.measures.inference import Classifier, ClassifierSettings, seen_shape
from sensorveil.measures.timing import median_seconds
from sensorveil.methods.autoencoder_settings import (
    PRESETS,
    AutoencoderSettings,
    VariationalSettings,
    modified,
)
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.classes import READER, joint_classes
from sensorveil.nets.factorised import (
    Design,
    FactorisedNets,
    NetworkSpec,
    Schedule,
    as_numbers,
    one_hot,
    sampled,
    train_factorised,
)
from sensorveil.train import derived_seed

_PIECE = 8192  # windows that go through a network at once


@dataclass(frozen=True)
class Adversary:
    """The discriminators of a method that has some: weight, hidden layers, steps a batch."""

    alpha: float
    widths: tuple[int, ...]
    steps: int


@dataclass(frozen=True, eq=False)
class LabelledWindows:
    """What the networks are trained on: windows, their kept class, their hidden classes."""

    windows: Windows
    kept: np.ndarray
    hidden: np.ndarray
    specs: Sequence[NetworkSpec]


SharedReaders = dict[tuple[int, ClassifierSettings, tuple[str, ...]], Classifier]
"""Readers by seed, settings and attributes: the same for all that are fitted together."""


class ClassAutoencoder(Obfuscator):
    """What all class autoencoders do; a subclass sets the flags.

    Windows whose kept or hidden class is not known are left out of the networks' training.
    """

    conditional: ClassVar[bool] = True
    """Whether the decoder is told the hidden classes; else the code is moved between means."""
    variational: ClassVar[bool] = True
    one_network: ClassVar[bool] = False
    """Whether one network serves all kept classes."""
    Settings = AutoencoderSettings
    presets = PRESETS
    settings: AutoencoderSettings
    shared_readers: SharedReaders | None = None
    """Set while several are fitted together: readers are shared, networks trained later."""

    def with_modifier(self, name: str) -> Self:
        """The same trained networks with another modifier; nothing is trained or copied."""
        self._check_fitted()
        other = copy.copy(self)
        other.settings = self.settings.with_changes(dict(modifier=name))
        if other._uses_hidden() and not self.hidden_readers_:
            raise Refusal(
                f"modifier '{name}' needs readers of {', '.join(self.policy_.hide)}, which this"
                " run lacks; train it with read_hidden=true"
            )
        return other

    def stage_seconds(self, windows: Windows, repeats: int = 5) -> dict[str, float]:
        """Seconds a window for each stage of table 5, the median of some repeats."""
        self._check_fitted()
        windows = windows.scaled(self.scaling_)
        told = torch.zeros(len(windows), sum(self.hidden_sizes_), device=self.device)
        with torch.inference_mode():
            inputs = [
                (group, self._numbers(windows, rows), told[rows])
                for group, rows in _pieces(self._network(self.reader_.predict(windows)))
            ]
            codes = [self.nets_.encode(x, group)[0] for group, x, _ in inputs]
            stages: dict[str, Callable[[], object]] = {
                "desired inference": lambda: self.reader_.predict(windows),
                "sensitive inference": lambda: self._read_hidden(windows),
                "encoder": lambda: [self.nets_.encode(x, group)[0].cpu() for group, x, _ in inputs],
                "decoder": lambda: [
                    self.nets_.decode(z, own, group).cpu()
                    for z, (group, _, own) in zip(codes, inputs, strict=True)
                ],
            }
            if not self._uses_hidden():
                del stages["sensitive inference"]
            return {
                name: median_seconds(stage, repeats, warm=False) / len(windows)
                for name, stage in stages.items()
            }

    # Training.

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        hide = self.policy_.hide
        kept, self.cells_ = joint_classes(windows, self.policy_.keep)
        found = [joint_classes(windows, [name]) for name in hide]
        hidden = np.stack([codes for codes, _ in found], axis=1)
        self.hidden_sizes_ = tuple(len(values) for _, values in found)
        self._lesson = self._make_lesson(windows, kept, hidden)
        self.reader_ = self._learn_reader(windows, self.policy_.keep)
        reads_hidden = self._uses_hidden() or self.settings.read_hidden
        self.hidden_readers_ = [
            self._learn_reader(windows, (name,)) for name in (hide if reads_hidden else ())
        ]
        if self.shared_readers is None:
            train_networks([self])

    def _learn_reader(self, windows: Windows, attributes: tuple[str, ...]) -> Classifier:
        readers = {} if self.shared_readers is None else self.shared_readers
        which = (self.seed, self._reader().settings, attributes)
        if which not in readers:
            codes, classes = joint_classes(windows, attributes)
            known = codes != UNKNOWN
            readers[which] = self._reader().fit_codes(
                windows.select(known).scaled(None), codes[known], len(classes)
            )
        return readers[which]

    def _make_lesson(
        self, windows: Windows, kept: np.ndarray, hidden: np.ndarray
    ) -> LabelledWindows:
        known = (kept != UNKNOWN) & (hidden != UNKNOWN).all(1)
        if len(np.unique(kept[known])) < len(self.cells_):
            raise Refusal(
                f"a class of {', '.join(self.policy_.keep)} has no window whose"
                f" {', '.join(self.policy_.hide)} is known; leave that class out"
            )
        windows, kept, hidden = windows.select(known), kept[known], hidden[known]
        network, specs = self._network(kept), []
        for which in np.unique(network):
            positions = np.flatnonzero(network == which)
            specs.append(self._spec(int(which), positions, hidden[positions]))
        return LabelledWindows(windows, kept, hidden, specs)

    def _spec(self, which: int, positions: np.ndarray, hidden: np.ndarray) -> NetworkSpec:
        adversary = self._adversary()
        return NetworkSpec(
            torch.from_numpy(positions),
            torch.from_numpy(hidden),
            seed=int(np.random.SeedSequence([self.seed, which]).generate_state(1, np.uint64)[0]),
            alpha=adversary.alpha if adversary else 0.0,
            beta=self.settings.beta if isinstance(self.settings, VariationalSettings) else 0.0,
        )

    def _schedule(self) -> Schedule:
        chosen, adversary = self.settings, self._adversary()
        steps = max(-(-len(spec.positions) // chosen.batch) for spec in self._lesson.specs)
        judged = adversary.steps if adversary else 0
        return Schedule(chosen.epochs, steps, chosen.batch, chosen.rate, judged)

    def _design(self) -> Design:
        adversary = self._adversary()
        return Design(
            numbers=int(np.prod(self.shape_)) * (2 if self.complex_ else 1),
            hidden=self.hidden_sizes_,
            widths=self.settings.layers(),
            latent=self.settings.latent,
            conditional=self.conditional,
            variational=self.variational,
            discriminator=adversary.widths if adversary else None,
        )

    def _adversary(self) -> Adversary | None:
        """The discriminators; the baselines have none."""
        return None

    def _take(self, nets: FactorisedNets, history: torch.Tensor) -> None:
        """Takes the trained networks over, with what their last epoch was like."""
        self.nets_ = nets.to(self.device)
        labelled_windows = self._lesson
        del self._lesson
        self.metrics_["windows_by_network"] = [
            len(spec.positions) for spec in labelled_windows.specs
        ]
        for name, values in zip(("error", "divergence", "surprise"), history[-1], strict=True):
            self.metrics_[name] = [round(value, 5) for value in values.tolist()]
        self.metrics_["reader_loss"] = [round(loss, 5) for loss in self.reader_.losses_]
        self._learn_more(labelled_windows)

    def _learn_more(self, labelled_windows: LabelledWindows) -> None:
        """What a subclass learns once the networks are trained."""

    # Obfuscating.

    @torch.inference_mode()
    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        """Algorithm 2."""
        count = len(windows)
        kept = self.reader_.predict(windows)
        read = self._read_hidden(windows) if self._uses_hidden() else None
        told = modified(self.settings.modifier, self.hidden_sizes_, read, count, rng)
        noise = rng.standard_normal((count, self.settings.latent), dtype=np.float32)
        shift = self._shift(kept, read, told)
        out = np.empty((count, *self.shape_), np.complex64 if self.complex_ else np.float32)
        for group, rows in _pieces(self._network(kept)):
            mu, logvar = self.nets_.encode(self._numbers(windows, rows), group)
            z = sampled(mu, logvar, self._tensor(noise[rows])) + self._tensor(shift[rows])
            made = self.nets_.decode(z, self._tensor(told[rows]), group)
            out[rows] = made.cpu().numpy().view(out.dtype).reshape(-1, *self.shape_)
        return out

    def _shift(self, kept: np.ndarray, read: np.ndarray | None, told: np.ndarray) -> np.ndarray:
        """What is added to the codes, (n, latent) or (n, 1): nothing, by default."""
        return np.zeros((len(kept), 1), np.float32)

    def _condition(self, windows: Windows) -> np.ndarray:
        """The kept class that was read, the code's mean and variance, and the hidden if read."""
        kept = self.reader_.predict(windows)
        parts = [np.eye(len(self.cells_), dtype=np.float32)[kept]]
        parts += [part for part in self._codes(windows, self._network(kept)) if part is not None]
        if self._uses_hidden():
            parts.append(self._one_hot(self._read_hidden(windows)))
        return np.concatenate(parts, axis=1)

    @torch.inference_mode()
    def _codes(self, windows: Windows, network: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """mu and, where there is one, log-variance of all windows: (n, latent) each."""
        found = np.empty((2, len(windows), self.settings.latent), np.float32)
        for group, rows in _pieces(network):
            mu, logvar = self.nets_.encode(self._numbers(windows, rows), group)
            found[0, rows] = mu.cpu().numpy()
            found[1, rows] = 0.0 if logvar is None else logvar.cpu().numpy()
        return found[0], found[1] if self.variational else None

    def _one_hot(self, hidden: np.ndarray) -> np.ndarray:
        return one_hot(torch.from_numpy(hidden), self.hidden_sizes_).numpy()

    def _numbers(self, windows: Windows, rows: np.ndarray | slice) -> torch.Tensor:
        return as_numbers(self._tensor(windows.batch(rows)))

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def _network(self, kept: np.ndarray) -> np.ndarray:
        """The network of each kept class."""
        return np.zeros_like(kept) if self.one_network else kept

    def _uses_hidden(self) -> bool:
        """Whether obfuscation reads the hidden attributes."""
        return not self.conditional or self.settings.modifier == "deterministic"

    def _read_hidden(self, windows: Windows) -> np.ndarray:
        return np.stack([reader.predict(windows) for reader in self.hidden_readers_], axis=1)

    # Keeping.

    def _reader(self) -> Classifier:
        chosen = self.settings
        settings = ClassifierSettings(
            chosen.reader_width, chosen.reader_epochs, chosen.reader_batch, chosen.reader_rate
        )
        return Classifier(settings, seed=derived_seed(self.seed, READER), device=self.device)

    def _state(self) -> dict[str, np.ndarray]:
        state = {"cells": self.cells_, "hidden_sizes": np.array(self.hidden_sizes_)}
        state |= {f"nets.{k}": v.cpu().numpy() for k, v in self.nets_.coder_state().items()}
        state |= {f"reader.{k}": v for k, v in self.reader_.state().items()}
        for which, reader in enumerate(self.hidden_readers_):
            state |= {f"hidden.{which}.{k}": v for k, v in reader.state().items()}
        return state

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.cells_ = state["cells"]
        self.hidden_sizes_ = tuple(int(size) for size in state["hidden_sizes"])
        weights = {k: torch.from_numpy(v) for k, v in part_of(state, "nets.").items()}
        self.nets_ = FactorisedNets.from_state(self._design(), weights).to(self.device)
        shape = seen_shape(self.shape_, self.complex_)
        self.reader_ = self._reader().restore(part_of(state, "reader."), shape, len(self.cells_))
        self.hidden_readers_ = []
        if self._uses_hidden() or part_of(state, "hidden."):
            self.hidden_readers_ = [
                self._reader().restore(part_of(state, f"hidden.{which}."), shape, size)
                for which, size in enumerate(self.hidden_sizes_)
            ]


def train_networks(obfuscators: Sequence[ClassAutoencoder]) -> None:
    """Trains the networks of several methods of one design in one pass, and hands each its own."""
    first = obfuscators[0]
    gather = first._lesson.windows.on(first.device)
    design = first._design()
    nets, history = train_factorised(
        design,
        [spec for obfuscator in obfuscators for spec in obfuscator._lesson.specs],
        lambda index: as_numbers(gather[index]),
        first._schedule(),
        first.device,
        what=first.name,
    )
    start = 0
    for obfuscator in obfuscators:
        own = slice(start, start + len(obfuscator._lesson.specs))
        state = {name: weights[own] for name, weights in nets.coder_state().items()}
        obfuscator._take(FactorisedNets.from_state(design, state), history[..., own])
        start = own.stop


def _pieces(network: np.ndarray) -> Iterator[tuple[int, np.ndarray | slice]]:
    """Each network that is needed, with the rows it is needed for, some thousand at a time."""
    if len(network) == 1:  # a stream's window: a slice spares it some copies
        yield int(network[0]), slice(None)
        return
    for group in np.unique(network):
        rows = np.flatnonzero(network == group)
        for first in range(0, len(rows), _PIECE):
            yield int(group), rows[first : first + _PIECE]
