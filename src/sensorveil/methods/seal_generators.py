"""Seal's generators: windows made from codes and fresh noise, and from nothing else.

A generator is trained on donors' windows. It generates from codes and a source of noise alone, so
its output tells no more about the wearer than the codes.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch.nn.functional import one_hot

from sensorveil.classifiers import Ensemble
from sensorveil.cuda_graphs import Inputs
from sensorveil.data.windows import Windows, to_real
from sensorveil.diffusion.batched import run_in_batches
from sensorveil.diffusion.latent import LatentDiffusion, small_latent_diffusion
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.methods.seal_code import Encoder, Movement, movement_features
from sensorveil.methods.settings import Settings
from sensorveil.progress import track
from sensorveil.train import Checkpoint, TrainConfig, derived_seed

POOL, DIFFUSION = "pool", "diffusion"
_MODEL, _STORE = 2, 3  # uses of the seed
_SURE = 0.05
"""A candidate's log-probability of its class counts down to the log of this."""
_EMA_DECAY = 0.998
_MIN_SHARE = 0.2
"""Donors that a code needs, as a share of those it would have if all codes had equally many."""
_AT_ONCE = 8192
"""Windows whose candidates' noise lies in memory at the same time."""


class GenerationSettings(Settings):
    """The generator of windows.

    Parameters
    ----------
    generator
        diffusion (windows that nobody recorded) or pool (donors' own windows).
    donors
        For the pool: why donors' windows may be emitted, in words that go into the run's card.
    num_candidates
        Windows that the diffusion makes for each one that it gives out; see `Diffusion`.
    windows_per_code
        Windows that are generated for each code after training. Obfuscation draws among them, which
        is fast; 0 generates each window anew, and only then settings of sampling act after training.
    guidance_scale
        w of classifier-free guidance, where 0 is no guidance.
    sampling_steps
        Steps of DPM-Solver++ for each candidate.
    latent_size, autoencoder_widths
        Numbers in the latents, and channels of the autoencoder's convolutions.
    denoiser_width, denoiser_blocks
        Of the denoiser, a residual multilayer perceptron.
    training_steps
        Of the denoiser; the autoencoder has a tenth of them.
    crossfade_seconds
        Windows that begin where another one ended fade from its last sample within this time. So
        they are made from two codes: bounds count pairs, and a window may spend epsilon twice.
    """

    generator: Literal["diffusion", "pool"] = "diffusion"
    donors: str = ""
    num_candidates: PositiveInt = 16
    windows_per_code: NonNegativeInt = 20
    guidance_scale: NonNegativeFloat = 1.0
    sampling_steps: Annotated[int, Field(gt=0, le=1000)] = 10
    latent_size: PositiveInt = 160
    autoencoder_widths: tuple[PositiveInt, ...] = (32, 64)
    denoiser_width: Annotated[int, Field(gt=1)] = 192
    denoiser_blocks: PositiveInt = 3
    training_steps: PositiveInt = 3000
    crossfade_seconds: NonNegativeFloat = 0.0

    def check(self) -> None:
        """Refuse an autoencoder without layers."""
        sizes = self.autoencoder_widths
        self.require(len(sizes) > 0, "autoencoder_widths", "one number or more")


class Generator(ABC):
    """Generates windows in standard units from codes.

    Parameters
    ----------
    settings
        See `GenerationSettings`.
    encoder
        What the codes mean; fitted.
    classifiers
        They predict the kept class; fitted.
    seed, device
        As in every method.
    """

    emits_donors: ClassVar[bool] = False
    """Whether the output consists of donors' own windows."""

    def __init__(
        self,
        settings: GenerationSettings,
        encoder: Encoder,
        classifiers: Ensemble,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.settings, self.encoder, self.classifiers = settings, encoder, classifiers
        self.seed, self.device = seed, device
        self.losses_: dict[str, list[float]] = {}  # of each epoch, where networks are trained

    @abstractmethod
    def fit(
        self, donors: Windows, movement: Movement, checkpoint: Checkpoint | None = None
    ) -> Self:
        """Train on donors' windows in standard units, and their movement."""

    @abstractmethod
    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One window for each code: (n, channels, length)."""

    def with_settings(self, settings: GenerationSettings) -> Self:
        """The same generator with other settings, of those that need no training."""
        other = copy.copy(self)
        other.settings = settings
        return other

    @abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """All that was learnt."""

    @abstractmethod
    def restore(self, state: Mapping[str, np.ndarray]) -> Self:
        """The generator whose state this is."""

    def membership_scores(self, windows: Windows, classes: np.ndarray) -> np.ndarray | None:
        """How well the networks fit windows of known classes, (n,); None without networks."""
        return None


class Pool(Generator):
    """Emits a random donor's window of the code; where a code has no donor, the nearest one's.

    Examples
    --------
    >>> donors = Windows.from_signal(np.arange(6.0).reshape(3, 1, 2))
    >>> movement = Movement(np.zeros((3, 0)), None, np.array([0, 1, 1]))
    >>> encoder = Encoder(()).fit(movement, num_classes=2)
    >>> pool = Pool(GenerationSettings(), encoder, Ensemble(1)).fit(donors, movement)
    >>> pool.generate(np.array([0, 0]), np.random.default_rng(0)).tolist()
    [[[0.0, 1.0]], [[0.0, 1.0]]]
    """

    emits_donors = True

    def fit(
        self, donors: Windows, movement: Movement, checkpoint: Checkpoint | None = None
    ) -> Self:
        """Keep the donors' windows, sorted by code; overlapping ones share their samples."""
        codes = self.encoder.donor_codes(movement)
        kept = donors.select(np.argsort(codes, kind="stable")).compact()
        store = kept.store
        if kept.scaling is not None:
            store = to_real(kept.scaling.apply(store)[None])[0].astype(np.float32)
        self._arrays = {
            "store": store,
            "offset": kept.offset,
            "numbers": np.bincount(codes, minlength=self.encoder.count),
            "length": np.array([donors.length]),
        }
        return self

    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A donor for each code, all donors of a code with equal probability."""
        numbers = self._arrays["numbers"]
        codes = self.encoder.nearest(numbers > 0)[codes]
        first = np.cumsum(numbers) - numbers
        drawn = first[codes] + rng.integers(numbers[codes])
        # A view with one window from every sample on: (samples, channels, length).
        view = np.lib.stride_tricks.sliding_window_view(
            self._arrays["store"], int(self._arrays["length"][0]), axis=-1
        )
        return np.ascontiguousarray(np.moveaxis(view, -2, 0)[self._arrays["offset"][drawn]])

    def state(self) -> dict[str, np.ndarray]:
        """The donors' windows."""
        return self._arrays

    def restore(self, state: Mapping[str, np.ndarray]) -> Self:
        """The pool whose state this is."""
        self._arrays = dict(state)
        return self


class Diffusion(Generator):
    """Generates windows of a code by latent diffusion, and gives out the best of several.

    The latent diffusion is that of CLOAK, equations (3) to (5) and (7), conditioned on the class
    and on the ranks of the window's features among all donors of the class. A code tells a bin of
    ranks: where in the bin is drawn anew for each window, so that the output is spread as the
    donors are.

    Of `num_candidates` windows that are made for the same class and ranks, the one is given out
    that all classifiers are sure of, and whose features rank nearest to those asked for.

    Some codes hardly any donor has (a slow rhythm with much energy, say). For these the nearest code
    that enough donors have stands in: nothing is made that the networks never saw.

    With `windows_per_code` the chosen windows are generated once, after training, and kept as
    latents; obfuscation draws one of the code's. This is a random sample from the same
    distribution: it costs one pass through the decoder instead of hundreds through the denoiser,
    and everything that can ever leave lies in the run.

    Examples
    --------
    >>> from sensorveil.classifiers import ClassifierSettings
    >>> signal = np.random.default_rng(0).normal(size=(64, 2, 16)).astype("float32")
    >>> donors = Windows.from_signal(signal, sample_rate=16.0)
    >>> movement = Movement(np.zeros((64, 0)), None, np.arange(64) % 2)
    >>> encoder = Encoder(()).fit(movement, num_classes=2)
    >>> settings = GenerationSettings(training_steps=8, num_candidates=2)
    >>> small = ClassifierSettings(width=8, epochs=1, batch_size=16)
    >>> classifiers = Ensemble(1, small).fit_codes(donors, movement.classes, num_classes=2)
    >>> diffusion = Diffusion(settings, encoder, classifiers).fit(donors, movement)
    >>> diffusion.generate(np.array([0, 1, 1]), np.random.default_rng(0)).shape
    (3, 2, 16)
    """

    def fit(
        self, donors: Windows, movement: Movement, checkpoint: Checkpoint | None = None
    ) -> Self:
        """Train autoencoder and denoiser; generate the windows that are kept."""
        count, classes = len(donors), movement.classes.astype(np.int64)
        signals, seed = donors.on(self.device), derived_seed(self.seed, _MODEL)
        self._sample_rate, self._shape = donors.sample_rate, donors.shape
        self._pairs = donors.recorded.is_complex
        self._stand_in = self.encoder.nearest(self._enough_donors(movement))
        self._model = self._new_model()
        self.losses_ = {
            "autoencoder_loss": self._model.fit_autoencoder(
                signals.__getitem__,
                count,
                _config(max(1, self.settings.training_steps // 10), 64, 1e-3, count),
                seed,
                checkpoint=checkpoint,
            ),
            "denoiser_loss": self._model.fit_denoiser(
                signals.__getitem__,
                self._conditions(
                    torch.from_numpy(classes), torch.from_numpy(self.encoder.donor_ranks(movement))
                ),
                _config(self.settings.training_steps, 128, 2e-3, count),
                seed,
                ema_decay=_EMA_DECAY,
                checkpoint=checkpoint,
            ),
        }
        self._latents = np.zeros((0, *self._model.latent_shape), np.float16)
        if each := self.settings.windows_per_code:
            codes = np.repeat(np.arange(self.encoder.count), each)
            rng = np.random.default_rng(derived_seed(self.seed, _STORE))
            self._latents = self._chosen(codes, rng).astype(np.float16)
        return self

    def generate(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A window for each code, or for the nearest one that enough donors have."""
        codes = self._stand_in[codes]
        if wanted := self.settings.windows_per_code:
            each = len(self._latents) // self.encoder.count
            if wanted > each:
                raise Refusal(
                    f"setting 'windows_per_code' is {wanted}, and the run keeps {each}; without"
                    " training again it can be no larger"
                )
            latents = self._latents[codes * each + rng.integers(wanted, size=len(codes))]
        else:
            latents = self._chosen(codes, rng)
        inputs = {"latents": torch.from_numpy(latents.astype(np.float32))}
        return run_in_batches(self._decode, inputs, self.device)

    def _enough_donors(self, movement: Movement) -> np.ndarray:
        """The codes that enough donors have, a mask."""
        count = np.bincount(self.encoder.donor_codes(movement), minlength=self.encoder.count)
        by_class = count.reshape(self.encoder.num_classes_, -1)
        return (by_class >= _MIN_SHARE * by_class.mean(1, keepdims=True)).ravel()

    def _chosen(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The latents of the best of several candidates for each code."""
        parts = np.array_split(codes, max(1, -(-len(codes) // _AT_ONCE)))
        return np.concatenate([self._chosen_part(part, rng) for part in track(parts, "candidates")])

    def _chosen_part(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        classes, bins = self.encoder.parts(codes)
        within = rng.random(bins.shape, dtype=np.float32)  # where in its bin each rank lies
        ranks = (bins + within) / np.array(self.encoder.bins, np.float32)
        shape = (len(codes), self.settings.num_candidates, *self._model.latent_shape)
        inputs = {
            "classes": torch.from_numpy(classes.astype(np.int64)),
            "ranks": torch.from_numpy(ranks.astype(np.float32)),
            "noise": torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)),
        }
        return run_in_batches(self._best, inputs, self.device)

    @torch.no_grad()
    def _best(self, inputs: Inputs) -> torch.Tensor:
        """Samples candidates and chooses one: its latents, (n, latent)."""
        classes, ranks, noise = inputs["classes"], inputs["ranks"], inputs["noise"]
        latents = self._model.sample(
            self._conditions(classes, ranks),
            noise,
            self.settings.guidance_scale,
            steps=self.settings.sampling_steps,
        )
        count = noise.shape[1]
        if count == 1:
            return latents.squeeze(1)
        candidates = self._model.decode(latents.flatten(0, 1))
        asked = classes.repeat_interleave(count)
        score = self._class_score(candidates, asked) - self._rank_distance(
            candidates, asked, ranks.repeat_interleave(count, 0)
        )
        best = score.view(-1, count).argmax(1)
        return latents[torch.arange(len(best), device=best.device), best]

    def _class_score(self, candidates: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """From 0 (no classifier is sure of the class) to 1 (all are), by the least sure one."""
        scores = self.classifiers.scores(candidates).log_softmax(2)
        own = scores.gather(2, classes.view(1, -1, 1).expand(len(scores), -1, 1)).squeeze(2)
        floor = float(np.log(_SURE))
        return 1 - own.amin(0).clamp_min(floor) / floor

    def _rank_distance(
        self, candidates: torch.Tensor, classes: torch.Tensor, ranks: torch.Tensor
    ) -> torch.Tensor:
        """How far the candidates' features rank from where they should, added up."""
        if not ranks.shape[1]:
            return torch.zeros(len(candidates), device=candidates.device)
        if self._pairs:
            candidates = torch.hypot(candidates[:, ::2], candidates[:, 1::2])
        features = movement_features(candidates, self._sample_rate)
        return (self.encoder.class_ranks(features, classes) - ranks).abs().sum(1)

    @torch.no_grad()
    def _decode(self, inputs: Inputs) -> torch.Tensor:
        return self._model.decode(inputs["latents"])

    def membership_scores(self, windows: Windows, classes: np.ndarray) -> np.ndarray:
        """Minus the denoising loss at fixed noise, for windows of known classes."""
        movement = Movement.of(windows, classes, "none", 1)
        conditions = self._conditions(
            torch.from_numpy(classes.astype(np.int64)),
            torch.from_numpy(self.encoder.donor_ranks(movement)),
        )
        losses = self._model.fixed_noise_losses(windows.on(self.device).__getitem__, conditions)
        return -losses.cpu().numpy()

    def state(self) -> dict[str, np.ndarray]:
        """The networks, and the latents that are kept."""
        weights = {
            f"model.{name}": one.cpu().numpy() for name, one in self._model.state_dict().items()
        }
        about = np.array([self._sample_rate, float(self._pairs)])
        shape = np.array(self._shape)
        return weights | {
            "latents": self._latents,
            "stand_in": self._stand_in,
            "about": about,
            "shape": shape,
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> Self:
        """The generator whose state this is."""
        self._shape = tuple(state["shape"].tolist())
        self._sample_rate, self._pairs = float(state["about"][0]), bool(state["about"][1])
        self._latents, self._stand_in = state["latents"], state["stand_in"]
        self._model = self._new_model().eval()
        weights = part_of(state, "model.")
        self._model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
        return self

    def _conditions(self, classes: torch.Tensor, ranks: torch.Tensor) -> torch.Tensor:
        """The class, one-hot, and the ranks from -1 to 1: (n, classes + features)."""
        known = one_hot(classes.to(self.device), self.encoder.num_classes_).float()
        return torch.cat([known, 2 * ranks.to(known) - 1], 1)

    def _new_model(self) -> LatentDiffusion:
        chosen = self.settings
        return small_latent_diffusion(
            self._shape,
            self.encoder.num_classes_ + len(self.encoder.bins),
            latent=chosen.latent_size,
            widths=chosen.autoencoder_widths,
            width=chosen.denoiser_width,
            blocks=chosen.denoiser_blocks,
            seed=derived_seed(self.seed, _MODEL),
        ).to(self.device)


def _config(steps: int, batch_size: int, learning_rate: float, count: int) -> TrainConfig:
    """At least so many training steps, whatever the number of windows."""
    batch_size = min(batch_size, count)
    return TrainConfig(-(-steps // (count // batch_size)), batch_size, learning_rate)


GENERATORS: dict[str, type[Generator]] = {POOL: Pool, DIFFUSION: Diffusion}
"""All generators by name."""


def previous_windows(recording: np.ndarray, start: np.ndarray, length: int) -> np.ndarray:
    """For each window the row of the one of its recording that ends where it begins, or -1.

    >>> previous_windows(np.array([0, 0, 1]), np.array([10, 0, 10]), 10)
    array([ 1, -1, -1])
    """
    keys = list(zip(recording.tolist(), start.tolist(), strict=True))
    row = {key: number for number, key in enumerate(keys)}
    return np.array([row.get((one, begin - length), -1) for one, begin in keys])


def crossfade(signal: np.ndarray, previous: np.ndarray, samples: int) -> np.ndarray:
    """Windows (n, channels, length) that begin where the previous one ended, without a jump.

    Each starts from the last value of that one and fades to its own within so many samples, at
    most half of its length. So it holds a little of the previous one.

    >>> signal = np.array([[[0.0, 0.0, 0.0, 1.0]], [[5.0, 5.0, 5.0, 5.0]]])
    >>> crossfade(signal, np.array([-1, 0]), 2)[1].tolist()
    [[1.0, 3.0, 5.0, 5.0]]
    """
    samples = min(samples, signal.shape[-1] // 2)
    follows = np.flatnonzero(previous >= 0)
    jump = signal[previous[follows], ..., -1:] - signal[follows][..., :1]
    smooth = signal.copy()
    smooth[follows, ..., :samples] += jump * (1 - np.arange(samples) / samples)
    return smooth
