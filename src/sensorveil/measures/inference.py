"""Inference models: what somebody else's classifier reads from windows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sensorveil.data.windows import UNKNOWN, Scaling, Windows
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.nets.cnn import CNN, MLP, abreast, as_real, folded
from sensorveil.nets.training import (
    Training,
    classifier_training,
    log_probabilities,
    log_probabilities_of,
    side_by_side,
)
from sensorveil.progress import track
from sensorveil.train import derived_seed, seeded

_PIECE = 2048
"""Windows that go through a network at once."""

_FEW = 64
"""Up to so many windows, networks abreast are faster than one after the other."""


@dataclass(frozen=True)
class ClassifierSettings:
    """Size and training of an inference model; the defaults are for a GPU and for results.

    `dense` takes dense layers alone, as ObscureNet's code does; they have sizes of their own, and
    `width` means nothing to them. The defaults were chosen on validation windows of MotionSense,
    of its paper split and of unseen people.
    """

    width: int = 128
    epochs: int = 40
    batch: int = 512
    rate: float = 2e-3
    dense: bool = False

    @classmethod
    def quick(cls) -> ClassifierSettings:
        """For two cores: a quarter of the width, fewer epochs."""
        return cls(width=24, epochs=12, batch=64, rate=4e-3)


class Classifier:
    """Reads one attribute, by a network on windows in the units of those it is trained on.

    It serves the application (kept attributes) and the intruder (hidden ones) alike.

    >>> signal = np.random.default_rng(0).normal(size=(64, 1, 32)).astype("float32")
    >>> signal[::2] += 3
    >>> windows = Windows.from_signal(signal, {"gender": [0, 1] * 32})
    >>> model = Classifier(ClassifierSettings(width=8, epochs=3, batch=16))
    >>> model.fit(windows, "gender").predict(windows).shape
    (64,)
    """

    def __init__(
        self, settings: ClassifierSettings | None = None, seed: int = 0, device: str = "cpu"
    ) -> None:
        self.settings = settings or ClassifierSettings()
        self.seed = seed
        self.device = device

    def fit(self, windows: Windows, attribute: str) -> Classifier:
        """Trains on all windows whose class is known."""
        return self.fit_codes(*labelled_windows(windows, attribute))

    def fit_codes(self, windows: Windows, codes: np.ndarray, classes: int) -> Classifier:
        """Trains on classes that are given, one per window."""
        with seeded(self.seed):
            self._start(windows, classes)
            self._learn(windows, codes, self.settings.epochs)
        return self

    def _start(self, windows: Windows, classes: int) -> None:
        """A network that has learnt nothing, for windows like these."""
        self.scaling_ = Scaling.of(windows)
        self.shape_ = input_shape(windows)
        self.classes_ = classes
        self.net_ = self._blank().to(self.device)

    def tuned(self, windows: Windows, attribute: str, epochs: int) -> Classifier:
        """This model after more training on other windows, in its own units; it stays as it is."""
        known = windows.select(windows.codes(attribute) != UNKNOWN)
        other = copy.copy(self)
        other.net_ = copy.deepcopy(self.net_)
        with seeded(self.seed):
            other._learn(known, known.codes(attribute), epochs)
        return other

    def _learn(self, windows: Windows, codes: np.ndarray, epochs: int) -> None:
        (losses,) = side_by_side([self._training(windows, codes, epochs)], self.device)
        self._finish(losses)

    def _finish(self, losses: list[float]) -> None:
        self.losses_ = losses
        self.reading = folded(self.net_)

    def _training(self, windows: Windows, codes: np.ndarray, epochs: int) -> Training:
        """Nothing of the windows is on the device before its first step, nor after its last."""
        gather = windows.scaled(self.scaling_).on(self.device)
        return (
            yield from classifier_training(
                self.net_,
                lambda index: as_real(gather[index]),
                torch.from_numpy(codes.astype(np.int64)).to(self.device),
                epochs=epochs,
                batch=self.settings.batch,
                rate=self.settings.rate,
                seed=self.seed,
                what="inference model",
            )
        )

    def scores_in(self, scaling: Scaling) -> Callable[[torch.Tensor], torch.Tensor]:
        """Scores before the softmax of windows in other standard units, to be differentiated."""
        return self.in_units(folded(self.net_), scaling)

    def readings_in(self, scaling: Scaling) -> Callable[[torch.Tensor], torch.Tensor]:
        """The same where nothing is differentiated: at once, with no copy of the network."""
        return self.in_units(self.reading, scaling)

    def in_units(
        self, net: Callable[[torch.Tensor], torch.Tensor], scaling: Scaling
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """A network that reads windows in this model's units, for windows in others."""
        own = self.scaling_
        factor, shift = (
            torch.from_numpy(part).to(self.device)
            for part in (
                scaling.deviation / own.deviation,
                (scaling.mean - own.mean) / own.deviation,
            )
        )

        def scores(signal: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = net(as_real(signal * factor + shift))
            return found

        return scores

    def log_probabilities(self, windows: Windows) -> np.ndarray:
        """Log-probability of each class for each window: (n, classes)."""
        own = windows.scaled(self.scaling_)
        if len(own) <= _PIECE:  # a stream asks for one window at a time: copy it, not its recording
            signal = torch.from_numpy(own.signal).to(self.device)
            return log_probabilities_of(self.reading, as_real(signal)).numpy()
        gather = own.on(self.device)
        return log_probabilities(
            self.reading, lambda index: as_real(gather[index]), len(own), batch=_PIECE
        ).numpy()

    def predict(self, windows: Windows) -> np.ndarray:
        """The most likely class of each window."""
        return self.log_probabilities(windows).argmax(1)

    def state(self) -> dict[str, np.ndarray]:
        """All that was learnt, as arrays."""
        arrays = {f"net.{k}": v.cpu().numpy() for k, v in self.net_.state_dict().items()}
        return arrays | {"mean": self.scaling_.mean, "deviation": self.scaling_.deviation}

    def restore(
        self, state: Mapping[str, np.ndarray], shape: tuple[int, ...], classes: int
    ) -> Classifier:
        """The model that `state` was taken from; `shape` is what its network sees."""
        self.scaling_ = Scaling(state["mean"], state["deviation"])
        self.shape_, self.classes_ = shape, classes
        self.net_ = self._blank()
        weights = {k: torch.from_numpy(v) for k, v in part_of(state, "net.").items()}
        self.net_.load_state_dict(weights)
        self.net_.to(self.device)
        self.reading = folded(self.net_)
        return self

    def _blank(self) -> CNN | MLP:
        if self.settings.dense:
            return MLP(self.shape_, self.classes_)
        return CNN(self.shape_, self.classes_, self.settings.width)


LabelledWindows = tuple[Windows, np.ndarray, int]
"""Windows to learn from, the class of each, and how many classes there are."""


def labelled_windows(windows: Windows, attribute: str) -> LabelledWindows:
    """All windows whose class of an attribute is known, or the refusal if there is one only.

    >>> windows = Windows.from_signal(np.zeros((3, 1, 8)), {"gender": [0, 1, 0]})
    >>> labelled_windows(windows, "gender")[1:]
    (array([0, 1, 0]), 2)
    """
    known = windows.select(windows.codes(attribute) != UNKNOWN)
    codes = known.codes(attribute)
    if len(np.unique(codes)) < 2:
        raise Refusal(f"attribute '{attribute}' has one class only in the training windows")
    return known, codes, len(windows.classes[attribute])


def fit_classifiers(models: Sequence[Classifier], lessons: Sequence[LabelledWindows]) -> None:
    """Trains each model on a labelled_windows of its own; on a GPU several at once.

    >>> signal = np.random.default_rng(0).normal(size=(64, 1, 32)).astype("float32")
    >>> windows = Windows.from_signal(signal, {"gender": [0, 1] * 32})
    >>> models = [Classifier(ClassifierSettings(width=8, epochs=2), seed) for seed in (0, 1)]
    >>> fit_classifiers(models, [labelled_windows(windows, "gender")] * 2)
    >>> [len(model.losses_) for model in models]
    [2, 2]
    """
    if not any(torch.device(model.device).type == "cuda" for model in models):
        for model, one in track([*zip(models, lessons, strict=True)], "models"):
            model.fit_codes(*one)
        return
    with seeded(models[0].seed):  # what all of them drop out comes from one source
        for model, (windows, _, classes) in zip(models, lessons, strict=True):
            with seeded(model.seed):
                model._start(windows, classes)
        trainings = [
            model._training(windows, codes, model.settings.epochs)
            for model, (windows, codes, _) in zip(models, lessons, strict=True)
        ]
        for model, losses in zip(models, side_by_side(trainings, models[0].device), strict=True):
            model._finish(losses)


class Ensemble:
    """Several inference models that differ in their seed alone; their readings are averaged.

    A panel of one is that model.

    >>> signal = np.random.default_rng(0).normal(size=(64, 1, 32)).astype("float32")
    >>> signal[::2] += 3
    >>> panel = Ensemble(2, ClassifierSettings(width=8, epochs=3, batch=16))
    >>> windows = Windows.from_signal(signal)
    >>> panel.fit_codes(windows, np.array([0, 1] * 32), classes=2).predict(windows).shape
    (64,)
    """

    def __init__(
        self,
        size: int,
        settings: ClassifierSettings | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        seeds = [seed, *(derived_seed(seed, which) for which in range(1, size))]
        self._abreast: Callable[[torch.Tensor], torch.Tensor] | None = None
        self.members = [Classifier(settings, one, device) for one in seeds]

    def fit_codes(self, windows: Windows, codes: np.ndarray, classes: int) -> Ensemble:
        """Trains every member on classes that are given, one per window."""
        fit_classifiers(self.members, [(windows, codes, classes)] * len(self.members))
        self.losses_ = [member.losses_ for member in self.members]
        self._abreast = None
        return self

    def probabilities(self, windows: Windows) -> np.ndarray:
        """How likely each class is for each window, by the mean of all members: (n, classes)."""
        shares = np.exp(self.members[0].log_probabilities(windows))
        for member in self.members[1:]:
            shares += np.exp(member.log_probabilities(windows))
        return shares / len(self.members)

    def readings_in(self, scaling: Scaling) -> Callable[[torch.Tensor], torch.Tensor]:
        """Scores of windows in other standard units, before the softmax: (members, n, classes)."""
        each = [member.readings_in(scaling) for member in self.members]
        together = self._together(scaling)

        def scores(signal: torch.Tensor) -> torch.Tensor:
            if together and len(signal) <= _FEW:
                return together(signal)
            return torch.stack([read(signal) for read in each])

        return scores

    def _together(self, scaling: Scaling) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """All members, who share their units, as one network: on a processor few windows gain."""
        first = self.members[0]
        if torch.device(first.device).type != "cpu" or first.settings.dense:
            return None
        if self._abreast is None:  # a stream asks for every window
            self._abreast = abreast([member.reading for member in self.members])
        return first.in_units(self._abreast, scaling)

    def predict(self, windows: Windows) -> np.ndarray:
        """The class of each window that the members together find most likely."""
        return self.probabilities(windows).argmax(1)

    def state(self) -> dict[str, np.ndarray]:
        """All that was learnt, as arrays."""
        return {
            f"{which}.{name}": array
            for which, member in enumerate(self.members)
            for name, array in member.state().items()
        }

    def restore(
        self, state: Mapping[str, np.ndarray], shape: tuple[int, ...], classes: int
    ) -> Ensemble:
        """The panel that `state` was taken from; `shape` is what its networks see."""
        for which, member in enumerate(self.members):
            member.restore(part_of(state, f"{which}."), shape, classes)
        self._abreast = None
        return self


def input_shape(windows: Windows) -> tuple[int, ...]:
    """The shape of one window as an inference network sees it."""
    return seen_shape(windows.shape, windows.is_complex)


def seen_shape(shape: tuple[int, ...], is_complex: bool) -> tuple[int, ...]:
    """The shape that an inference network sees: complex channels count threefold.

    >>> seen_shape((2, 128), is_complex=True)
    (6, 128)
    """
    return (shape[0] * (3 if is_complex else 1), *shape[1:])
