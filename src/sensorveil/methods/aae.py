"""AAE: an autoencoder that is taught by frozen readers what to keep and what to lose.

Malekzadeh and others, Mobile Sensor Data Anonymization (2019); ObscureNet's tables have it as
baseline. The readers, there called regularisers, are classifiers of the kept and the hidden
attributes. They are trained first. Then the autoencoder is trained to rebuild its input so that
those of the kept attributes still read them, and those of the hidden ones can no longer decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch.nn.functional import cross_entropy, mse_loss

from sensorveil.data.windows import UNKNOWN, DeviceWindows, Windows
from sensorveil.errors import refuse_unknown
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.policy import Policy
from sensorveil.methods.settings import Settings
from sensorveil.nets.aae import (
    SHRINK,
    AnonymizingAutoencoder,
    not_the_one_loss,
    train_until_patience,
    uniform_loss,
)
from sensorveil.nets.cnn import CNN
from sensorveil.nets.training import Gather, train_classifier
from sensorveil.train import seeded

LOSSES = ("uniform", "not-the-one")


class AAESettings(Settings):
    """Sizes, the loss and its weights, and training.

    `loss` is what the hidden attributes' readers are to say: "uniform", equal chances for all
    classes, or "not-the-one", anything but the true class and nothing for sure.
    `latent_regulariser` adds readers of the hidden attributes from the latent code; for the first
    codes the autoencoder is trained to copy for `warm_up` epochs. In each of `rounds` rounds the
    readers learn from the latest output (in the first, from raw windows), then the autoencoder
    learns from them. The autoencoder stops when `patience` epochs brought nothing better on
    `held_out`, a share of the training windows in whole recordings.
    """

    width: int = 64
    regulariser_width: int = 32
    loss: str = "uniform"
    latent_regulariser: bool = False
    signal_weight: float = 1.0
    hidden_weight: float = 1.0
    kept_weight: float = 2.0
    rounds: int = 1
    warm_up: int = 32
    regulariser_epochs: int = 50
    regulariser_rate: float = 2e-3
    epochs: int = 100
    patience: int = 15
    batch: int = 512
    rate: float = 2e-3
    held_out: float = 0.1

    def check(self) -> None:
        """Refuses an unknown loss, and numbers without sense."""
        if self.loss not in LOSSES:
            raise refuse_unknown("loss of aae", self.loss, LOSSES)
        for name, value in vars(self).items():
            if name.endswith("_weight"):
                self.require(value >= 0, name, "0 or more")
            elif isinstance(value, int | float) and not isinstance(value, bool):
                self.require(value > 0, name, "above 0")
        self.require(self.held_out < 1, "held_out", "below 1")


class AAE(Obfuscator):
    """Rebuilds windows so that the hidden attributes' readers cannot decide.

    The same window always gives the same output, so an attacker who has the run can train on its
    output: ObscureNet shows that such attackers read the hidden attribute again.

    >>> signal = np.random.default_rng(0).normal(size=(40, 1, 30))
    >>> windows = Windows.from_signal(signal, {"activity": [0, 1] * 20, "gender": [1, 0] * 20})
    >>> obfuscator = AAE(width=4, epochs=2, regulariser_epochs=1).fit(windows, "activity", "gender")
    >>> obfuscator.obfuscate(windows).shape, obfuscator.condition(windows).shape
    ((1, 30), (40, 8))
    """

    name = "aae"
    summary = "an autoencoder trained against frozen readers of the hidden attributes"
    capabilities = Capabilities(random=False, modalities=("signal",))
    Settings = AAESettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {
            "width": 24,
            "regulariser_width": 24,
            "regulariser_epochs": 20,
            "regulariser_rate": 4e-3,
            "warm_up": 5,
            "epochs": 30,
            "patience": 6,
            "batch": 64,
        },
        "paper": {"regulariser_epochs": 10, "rate": 5e-4, "patience": 30},
        "identity": {
            "width": 100,
            "loss": "not-the-one",
            "latent_regulariser": True,
            "signal_weight": 0.01,
            "rounds": 8,
            "regulariser_epochs": 24,
            "epochs": 24,
            "patience": 6,
        },
    }
    """`paper` is the authors' gender variant, `identity` the form that the paper is named for.

    From the authors' code: 64 (100) filters, weights [1, 1, 2] ([0.01, 1, 2]) of signal, hidden
    and kept, 1 (8) rounds, epochs, patience, Adam, and warm-up. What differs from it, or is open:

    - batch 512, for a GPU; theirs is 128.
    - Of `paper`, 10 epochs of the readers, rate 5e-4 and patience 30 were chosen on validation
      windows of MotionSense: with their 50 epochs and 15, readers grow so sure that the activity
      is lost. Those of `fast` were chosen on simulated people, their test windows among them.
    - Readers are the house's `CNN` with their 32 filters: four convolutions for their
      five. They are trained without class weights, by one cycle of the rate in place of patience.
    - Kernels of five samples and ReLU in both forms; the identity form has three and SELU, one
      more convolution each way, and an L2 penalty, which is left out here.
    - Where the gender variant pools is open: twice, as in the identity form, after the second and
      the third convolution.
    - The share held out is open: a tenth. What it is scored by is open: the whole loss, and the
      best weights stay. The identity form gives no patience for the autoencoder: 6, as its readers.
    - The first codes come from the autoencoder itself, trained to copy; theirs from another one.
    - The input is raw in every round; in their code it is the last output from the second round
      on, although a device only ever has the raw window.
    - Terms of several kept or several hidden attributes are summed.
    """
    settings: AAESettings

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        chosen, policy = self.settings, self.policy_
        held = held_out(windows, (*policy.keep, *policy.hide), chosen.held_out, rng)
        with seeded(self.seed):
            self.net_ = self._new_net()
            labelled_windows = _Lesson(self.net_, windows, held, policy, chosen, self.seed)
            if chosen.latent_regulariser:
                self.metrics_["warm_up_loss"] = labelled_windows.warm_up()
            for turn in range(1, chosen.rounds + 1):
                self.metrics_[f"readers_loss_{turn}"] = labelled_windows.teach_readers(turn)
                self.metrics_[f"held_out_loss_{turn}"] = labelled_windows.teach_autoencoder(turn)
        self.metrics_["held_out_windows"] = int(held.sum())

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        return _applied(self.net_, windows.on(self.device)).cpu().numpy()

    def _condition(self, windows: Windows) -> np.ndarray:
        return _applied(self.net_.encode, windows.on(self.device)).flatten(1).cpu().numpy()

    def _new_net(self) -> AnonymizingAutoencoder:
        return AnonymizingAutoencoder(self.shape_[0], self.settings.width).to(self.device)

    def _state(self) -> dict[str, np.ndarray]:
        return {f"net.{k}": v.cpu().numpy() for k, v in self.net_.state_dict().items()}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.net_ = self._new_net()
        weights = {k.removeprefix("net."): torch.from_numpy(v) for k, v in state.items()}
        self.net_.load_state_dict(weights)
        self.net_.eval()


class _Lesson:
    """The autoencoder, its readers, and the windows on the device that both learn from."""

    def __init__(
        self,
        net: AnonymizingAutoencoder,
        windows: Windows,
        held: np.ndarray,
        policy: Policy,
        settings: AAESettings,
        seed: int,
    ) -> None:
        self.net, self.policy, self.settings, self.seed = net, policy, settings, seed
        device = next(net.parameters()).device
        self.raw = windows.on(device)
        self.labels = {
            name: torch.from_numpy(windows.codes(name).astype(np.int64)).to(device)
            for name in (*policy.keep, *policy.hide)
        }
        self.fitting = torch.from_numpy(np.flatnonzero(~held)).to(device)
        self.held = torch.from_numpy(np.flatnonzero(held)).to(device)
        if len(self.held) == 0:  # no recording can be spared: training itself says when to stop
            self.held = self.fitting
        channels, length = windows.shape
        self.readers = {
            name: self._new_reader((channels, length), len(windows.classes[name]))
            for name in (*policy.keep, *policy.hide)
        }
        code = (channels, -(-length // SHRINK))
        self.latent_readers = {
            name: self._new_reader(code, len(windows.classes[name]))
            for name in policy.hide
            if settings.latent_regulariser
        }

    def _new_reader(self, shape: tuple[int, ...], classes: int) -> CNN:
        return CNN(shape, classes, self.settings.regulariser_width).to(self.raw.device)

    def warm_up(self) -> list[float]:
        """Trains the autoencoder to copy; returns the loss on what was held out."""
        return self._train(self._copy_loss, self.settings.warm_up, "aae: learning to copy")

    def teach_readers(self, turn: int) -> list[float]:
        """Trains all readers on the latest output and codes; returns the last loss of each."""
        output: Gather = (
            self.raw.__getitem__ if turn == 1 else _applied(self.net, self.raw).__getitem__
        )
        losses = [self._teach(reader, output, name) for name, reader in self.readers.items()]
        if self.latent_readers:
            codes = _applied(self.net.encode, self.raw)
            losses += [
                self._teach(reader, codes.__getitem__, name)
                for name, reader in self.latent_readers.items()
            ]
        return losses

    def teach_autoencoder(self, turn: int) -> list[float]:
        """Trains the autoencoder against the frozen readers; the loss on what was held out."""
        what = f"aae: autoencoder, round {turn} of {self.settings.rounds}"
        return self._train(self.loss, self.settings.epochs, what)

    def loss(self, index: torch.Tensor) -> torch.Tensor:
        """The weighted sum of all terms, over the windows at these positions."""
        signal = self.raw[index]
        code = self.net.encode(signal)
        output = self.net.decode(code, signal.shape[-1])
        weights = self.settings
        total = weights.signal_weight * mse_loss(output.float(), signal)
        for name in self.policy.hide:
            total = total + weights.hidden_weight * self._undecided(
                self.readers[name](output), name, index
            )
        for name, reader in self.latent_readers.items():
            total = total + weights.hidden_weight * self._undecided(reader(code), name, index)
        for name in self.policy.keep:
            scores = self.readers[name](output).float()
            wrong = cross_entropy(
                scores, self.labels[name][index], ignore_index=UNKNOWN, reduction="sum"
            )
            total = total + weights.kept_weight * wrong / len(index)
        return total

    def _undecided(self, scores: torch.Tensor, name: str, index: torch.Tensor) -> torch.Tensor:
        if self.settings.loss == "uniform":
            return uniform_loss(scores.float())
        return not_the_one_loss(scores.float(), self.labels[name][index])

    def _copy_loss(self, index: torch.Tensor) -> torch.Tensor:
        signal = self.raw[index]
        return mse_loss(self.net(signal).float(), signal)

    def _teach(self, reader: CNN, source: Gather, name: str) -> float:
        """Trains one reader on the windows whose class is known, and freezes it again."""
        chosen = self.settings
        known = self.fitting[self.labels[name][self.fitting] != UNKNOWN]
        reader.requires_grad_(True)
        losses = train_classifier(
            reader,
            lambda index: source(known[index]),
            self.labels[name][known],
            epochs=chosen.regulariser_epochs,
            batch=chosen.batch,
            rate=chosen.regulariser_rate,
            seed=self.seed,
            what=f"aae: reader of {name}",
        )
        reader.eval().requires_grad_(False)
        return round(losses[-1], 5)

    def _train(
        self, objective: Callable[[torch.Tensor], torch.Tensor], epochs: int, what: str
    ) -> list[float]:
        chosen = self.settings
        losses = train_until_patience(
            self.net,
            objective,
            self.fitting,
            self.held,
            epochs=epochs,
            patience=chosen.patience,
            batch=chosen.batch,
            rate=chosen.rate,
            seed=self.seed,
            what=what,
        )
        return [round(loss, 5) for loss in losses]


@torch.no_grad()
def _applied(
    part: Callable[[torch.Tensor], torch.Tensor], windows: DeviceWindows, batch: int = 2048
) -> torch.Tensor:
    """What the network, or its encoder, makes of all windows, on the device."""
    positions = torch.arange(len(windows), device=windows.device)
    return torch.cat([part(windows[index]) for index in positions.split(batch)])


def held_out(
    windows: Windows, attributes: Sequence[str], share: float, rng: np.random.Generator
) -> np.ndarray:
    """A mask of about that share of the windows: whole recordings, at random.

    A recording that alone holds a class of one of the attributes is not taken.
    """
    recordings, unit = np.unique(windows.recording, return_inverse=True)
    parts = []
    for name in attributes:
        codes = windows.codes(name)
        count = np.zeros((len(recordings), int(codes.max()) + 1), int)
        np.add.at(count, (unit[codes != UNKNOWN], codes[codes != UNKNOWN]), 1)
        parts.append(count[:, count.any(0)])
    counts = np.concatenate(parts, axis=1)
    left, size = counts.sum(0), np.bincount(unit)
    held = np.zeros(len(recordings), bool)
    for one in rng.permutation(len(recordings)):
        if size[held].sum() >= share * len(windows):
            break
        if (left > counts[one]).all():
            held[one] = True
            left = left - counts[one]
    return held[unit]
