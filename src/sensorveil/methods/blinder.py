"""Blinder: one autoencoder, told the kept class and another hidden one, its code cleared.

Yang and Ardakanian, Blinder: End-to-end Privacy Protection in Sensing Systems via Personalized
Federated Learning (2022). Here it is trained on windows that lie in one place; `federated/` trains
the same networks where the data stays.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.measures.inference import Classifier, ClassifierSettings, seen_shape
from sensorveil.methods.autoencoder_settings import modified
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.blinder_settings import PRESETS, BlinderSettings
from sensorveil.methods.classes import READER, joint_classes
from sensorveil.nets.blinder import (
    BlinderDesign,
    BlinderNets,
    LossWeights,
    as_channels,
    as_signal,
)
from sensorveil.nets.blinder_training import Training, train_blinder
from sensorveil.nets.factorised import one_hot, sampled
from sensorveil.nets.meta import Layout
from sensorveil.train import derived_seed, seeded

_PIECE = 4096  # windows that go through the networks at once
_NETWORKS, _TRAINING = 2, 3  # uses of the seed; READER is 1
_DENSE_BATCH, _DENSE_RATE = 128, 1e-3  # dense readers drop half of their units: they go slower


class Blinder(Obfuscator):
    """A conditional variational autoencoder for all kept classes, trained against discriminators.

    Preset `paper` is what the paper states: encoder and decoder of five layers of which the outer
    two are convolutions (its MotionSense; its MobiAct: `ends="dense"`), a code of 25 numbers, alpha
    0.9, beta 2, gamma 0.2, stochastic modification. What it leaves out, and what is taken here:

    - widths 512-512-256-128, discriminators 128-128, Adam at 1e-3, 30 epochs: the authors' code.
    - convolutions of 32 and 64 filters over five samples, each halving the length (ours; their
      code has dense layers only).
    - the scale of the terms of loss (4): that of their code, see `nets/factorised.py`.
    - central training (the paper has none): batches of 128, one step of both players a batch.
    - the classifiers that read the kept and hidden classes: small convolutional ones, ours.
    - the first weights: He's, see `nets/blinder.py`. From torch's own, the divergence had silenced
      all but 3 numbers of the code after 3,000 steps.

    Preset `fast` weighs loss (4) otherwise and adds a term. It was chosen on validation windows of
    MotionSense, trained on the other training windows, one seed each; three numbers are what fixed
    models read of activity, downstairs and gender. With the paper's weights the code holds 3 to 8
    nats of a window: 79.8, 0.9 and 60.9 by the authors' dense models after 3,000 central steps.
    He's weights, a warm-up, a smaller beta, a larger gamma, `relative` errors and a `texture` for
    convolutional models brought that to 91.4, 59.2 and 55.2, and no further. What was missing is
    not the class that is told: with true classes instead of read ones activity rose by 0.5 points.
    It is that a decoder of means makes windows that read as another class, and is never held to
    account for windows of another gender. Hence `told`. After 1,200 central steps of 128 windows,
    beta 0.2, by dense models trained on the fitting windows alone: 86.5, 46.5, 63.7 without it,
    96.0, 88.4, 52.6 with it (gender weighed 0.2); by convolutional ones 72.3, 52.2, 61.9 and 94.2,
    87.4, 52.7. Beta 1 and gender at 0.5 leave 95.1, 85.4, 52.2 after 1,000 steps; 0.5 lies between.
    In a federation gamma drives codes away, since clients have one gender each: so the loss is
    `bounded`, and gamma grows with beta.

    Models of the kind that judge the result are thus part of the training, with other weights, and
    models of another kind read less: after 608 rounds trees on spectra 83.1 of the activity (88.6
    in raw windows, dense models 93.0), and downstairs in 21 of 100 windows. Trees that learn from
    the output read the gender of 59.6 (of 87.1 in raw windows).

    Windows whose kept or hidden class is not known are left out of the networks' training.

    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> obfuscator = Blinder(epochs=2, reader_epochs=2).fit(windows, keep="activity", hide="gender")
    >>> obfuscator.obfuscate(windows, seed=1).shape
    (2, 32)
    """

    name = "blinder"
    summary = "one conditional autoencoder for all kept classes, its code cleared by discriminators"
    capabilities = Capabilities()
    Settings = BlinderSettings
    presets = PRESETS
    settings: BlinderSettings
    _only_draw = False

    # What a federation needs.

    def prepare(
        self, windows: Windows, keep: str | Sequence[str], hide: str | Sequence[str]
    ) -> Self:
        """Learns scaling and readers from these windows, but only draws the networks' weights.

        It is what a federation starts from: the windows are those of people who agreed to give
        them, and everybody's networks are then trained without seeing anybody else's.
        """
        self._only_draw = True
        try:
            return self.fit(windows, keep, hide)
        finally:
            del self._only_draw

    def with_weights(self, vector: torch.Tensor) -> Self:
        """The same, with other weights of its networks, in the order of `weights`."""
        self._check_fitted()
        other = copy.copy(self)
        other.metrics_ = dict(self.metrics_)
        other.nets_ = BlinderNets(self._design()).to(self.device)
        other.nets_.load_state_dict(Layout(other.nets_).named(vector.to(self.device)))
        return other

    def weights(self) -> torch.Tensor:
        """The weights of all its networks as one vector."""
        return Layout(self.nets_).vector(self.nets_)

    def made_with(self) -> dict[str, Any]:
        """Preset, seed and settings, and what plan a federation had, with how many clients."""
        told = self.metrics_.get("federation", {})
        named = ("kind", "clients", "rounds", "plan")
        plan = {name: told[name] for name in named if name in told}
        return {**super().made_with(), **({"federation": plan} if plan else {})}

    def loss_weights(self) -> LossWeights:
        """alpha, beta and gamma of loss (4), and how much the error of each kept class counts."""
        chosen, errors = self.settings, None
        if chosen.relative:
            inverse = 1 / np.maximum(self.spread_, 1e-6)
            errors = self._tensor((inverse / inverse.mean()).astype(np.float32))
        return LossWeights(
            chosen.alpha,
            chosen.beta,
            chosen.gamma,
            errors,
            chosen.bounded,
            chosen.told,
            [[self._scores(model) for model in models] for models in self._witnesses()],
        )

    def _witnesses(self) -> list[tuple[Classifier, Classifier]]:
        """A convolutional and a dense model for the kept class, and for each hidden attribute."""
        if not self.settings.told:
            return []
        return list(zip([self.reader_, *self.hidden_readers_], self.dense_readers_, strict=True))

    def _scores(self, model: Classifier) -> Callable[[torch.Tensor], torch.Tensor]:
        scores = model.scores_in(self.scaling_)
        return lambda made: scores(as_signal(made, self.shape_, self.complex_))

    def labelled_windows(self, windows: Windows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the networks may learn from: positions, their kept class, their hidden classes.

        Classes are found by name and counted as in training, since somebody's own data may have
        few of them. Windows of classes that were not there are left out.
        """
        self._check_alike(windows)
        kept = self._cell_of(windows, self.policy_.keep, self.cells_)
        hidden = np.stack(
            [
                self._cell_of(windows, (name,), cells)
                for name, cells in zip(self.policy_.hide, self.hidden_cells_, strict=True)
            ],
            axis=1,
        )
        known = np.flatnonzero((kept != UNKNOWN) & (hidden != UNKNOWN).all(1))
        return known, kept[known], hidden[known]

    def _cell_of(
        self, windows: Windows, attributes: Sequence[str], cells: np.ndarray
    ) -> np.ndarray:
        """Which of the combinations in `cells` each window has; UNKNOWN where it is none."""
        columns = []
        for name in attributes:
            codes, own = windows.codes(name), self.classes_[name]
            place = [own.index(c) if c in own else UNKNOWN for c in windows.classes[name]]
            columns.append(np.array([*place, UNKNOWN])[codes])  # an unknown code is the last
        matches = (np.stack(columns, axis=1)[:, None] == cells).all(2)
        return np.where(matches.any(1), matches.argmax(1), UNKNOWN)

    # Training.

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        hide = self.policy_.hide
        _, self.cells_ = joint_classes(windows, self.policy_.keep)
        self.hidden_cells_ = [joint_classes(windows, (name,))[1] for name in hide]
        self.reader_ = self._learn_reader(windows, self.policy_.keep)
        self.spread_ = self._spread(windows)
        self.hidden_readers_ = [
            self._learn_reader(windows, (name,))
            for name in (hide if self.settings.reads_hidden else ())
        ]
        told = self.settings.told > 0
        self.dense_readers_ = [
            self._learn_reader(windows, attributes, dense=True)
            for attributes in ((self.policy_.keep, *((name,) for name in hide)) if told else ())
        ]
        with seeded(derived_seed(self.seed, _NETWORKS)):
            self.nets_ = BlinderNets(self._design()).to(self.device)
        if not self._only_draw:
            self._train_networks(windows)

    def _train_networks(self, windows: Windows) -> None:
        positions, kept, hidden = self.labelled_windows(windows)
        if not len(positions):
            raise Refusal("no window has a known class of all that is kept and hidden")
        on_device = windows.select(positions).on(self.device)
        told = one_hot(self._tensor(kept[:, None]), (len(self.cells_),))
        secret = one_hot(self._tensor(hidden), self.hidden_sizes())
        chosen = self.settings
        losses = train_blinder(
            self.nets_,
            lambda index: (as_channels(on_device[index]), told[index], secret[index]),
            len(positions),
            Training(chosen.epochs, chosen.batch, chosen.rate, chosen.cycle, chosen.warm_up),
            self.loss_weights(),
            torch.Generator().manual_seed(derived_seed(self.seed, _TRAINING)),
        )
        self.metrics_["loss"] = [round(loss, 5) for loss in losses]
        self.metrics_["reader_loss"] = [round(loss, 5) for loss in self.reader_.losses_]

    def _learn_reader(
        self, windows: Windows, attributes: tuple[str, ...], dense: bool = False
    ) -> Classifier:
        codes, classes = joint_classes(windows, attributes)
        known = codes != UNKNOWN
        raw = windows.select(known).scaled(None)
        return self._reader(dense).fit_codes(raw, codes[known], len(classes))

    def _spread(self, windows: Windows) -> np.ndarray:
        """The mean square of each kept class's windows around their mean, in standard units."""
        codes, _ = joint_classes(windows, self.policy_.keep)
        found = []
        for cell in range(len(self.cells_)):
            own = windows.select(codes == cell)
            total = sum(batch.sum(0) for batch in own.batches(_PIECE))
            square = sum(float((np.abs(batch) ** 2).sum()) for batch in own.batches(_PIECE))
            mean_square = float((np.abs(total / len(own)) ** 2).mean())
            found.append(square / (len(own) * total.size) - mean_square)
        return np.array(found, np.float32)

    def hidden_sizes(self) -> tuple[int, ...]:
        """The number of classes of each hidden attribute."""
        return tuple(len(values) for values in self.hidden_cells_)

    def _design(self) -> BlinderDesign:
        chosen = self.settings
        rows = int(np.prod(self.shape_[:-1])) * (2 if self.complex_ else 1)
        filters = (chosen.filters, 2 * chosen.filters) if chosen.ends == "convolutional" else ()
        return BlinderDesign(
            channels=rows,
            length=self.shape_[-1],
            kept=len(self.cells_),
            hidden=self.hidden_sizes(),
            widths=chosen.layers(),
            filters=filters,
            latent=chosen.latent,
            discriminator=(chosen.discriminator_width,) * 2,
            texture=chosen.texture > 0,
        )

    # Obfuscating.

    @torch.inference_mode()
    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        """Section 5.2: the kept class is read, the hidden one is drawn or moved to the next."""
        count = len(windows)
        kept = np.eye(len(self.cells_), dtype=np.float32)[self.reader_.predict(windows)]
        if self.settings.modification == "deterministic":
            told = modified(
                "deterministic", self.hidden_sizes(), self._read_hidden(windows), count, rng
            )
        else:
            told = modified("probabilistic", self.hidden_sizes(), None, count, rng)
        noise = rng.standard_normal((count, self.settings.latent), dtype=np.float32)
        out = np.empty((count, *self.shape_), np.complex64 if self.complex_ else np.float32)
        for first in range(0, count, _PIECE):
            rows = slice(first, first + _PIECE)
            codes = self.nets_.encode(as_channels(self._tensor(windows.batch(rows))))
            z = sampled(*codes, self._tensor(noise[rows]))
            made = self.nets_.decode(z, self._tensor(told[rows]), self._tensor(kept[rows]))
            if self.settings.texture:
                white = rng.standard_normal(made.shape, dtype=np.float32)
                white *= self.settings.texture
                made = self.nets_.textured(made, self._tensor(kept[rows]), self._tensor(white))
            out[rows] = as_signal(made, self.shape_, self.complex_).cpu().numpy()
        return out

    @torch.inference_mode()
    def _condition(self, windows: Windows) -> np.ndarray:
        """The kept class that was read, the code's mean and variance, and the hidden if read."""
        parts = [np.eye(len(self.cells_), dtype=np.float32)[self.reader_.predict(windows)]]
        codes = [
            torch.cat(self.nets_.encode(as_channels(self._tensor(batch))), dim=1).cpu().numpy()
            for batch in windows.batches(_PIECE)
        ]
        parts.append(np.concatenate(codes))
        if self.settings.modification == "deterministic":
            read = torch.from_numpy(self._read_hidden(windows))
            parts.append(one_hot(read, self.hidden_sizes()).numpy())
        return np.concatenate(parts, axis=1)

    def _read_hidden(self, windows: Windows) -> np.ndarray:
        return np.stack([reader.predict(windows) for reader in self.hidden_readers_], axis=1)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    # Keeping.

    def _reader(self, dense: bool = False) -> Classifier:
        chosen = self.settings
        settings = ClassifierSettings(
            chosen.reader_width, chosen.reader_epochs, chosen.reader_batch, chosen.reader_rate
        )
        if dense:
            settings = replace(settings, batch=_DENSE_BATCH, rate=_DENSE_RATE, dense=True)
        return Classifier(settings, seed=derived_seed(self.seed, READER), device=self.device)

    def _state(self) -> dict[str, np.ndarray]:
        state = {"cells": self.cells_, "spread": self.spread_}
        for which, cells in enumerate(self.hidden_cells_):
            state[f"hidden_cells.{which}"] = cells
        state |= {f"nets.{k}": v.cpu().numpy() for k, v in self.nets_.state_dict().items()}
        state |= {f"reader.{k}": v for k, v in self.reader_.state().items()}
        for which, reader in enumerate(self.hidden_readers_):
            state |= {f"hidden.{which}.{k}": v for k, v in reader.state().items()}
        for which, reader in enumerate(self.dense_readers_):
            state |= {f"dense.{which}.{k}": v for k, v in reader.state().items()}
        return state

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.cells_, self.spread_ = state["cells"], state["spread"]
        self.hidden_cells_ = [
            state[f"hidden_cells.{which}"] for which in range(len(self.policy_.hide))
        ]
        self.nets_ = BlinderNets(self._design()).to(self.device)
        weights = {k: torch.from_numpy(v) for k, v in part_of(state, "nets.").items()}
        self.nets_.load_state_dict(weights)
        shape = seen_shape(self.shape_, self.complex_)
        self.reader_ = self._reader().restore(part_of(state, "reader."), shape, len(self.cells_))
        sizes, told = self.hidden_sizes(), self.settings.told > 0
        self.hidden_readers_ = [
            self._reader().restore(part_of(state, f"hidden.{which}."), shape, size)
            for which, size in enumerate(sizes if self.settings.reads_hidden else ())
        ]
        self.dense_readers_ = [
            self._reader(dense=True).restore(part_of(state, f"dense.{which}."), shape, size)
            for which, size in enumerate((len(self.cells_), *sizes) if told else ())
        ]
