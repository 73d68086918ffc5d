"""Seal: windows made from a small code and fresh noise, so that the code limits what they tell.

The output is a function of a discrete code and noise alone. By the data processing inequality it
tells no more about any attribute than the code. What the code tells can be counted on people held
out of training. With randomised response on its bins there is local differential privacy.

There is no paper. The code is in `seal_code`, the search for its size in `seal_search`, the
generators of windows in `seal_generators`, the counted bound in `seal_bound`, randomised response
in `seal_response`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from sensorveil.classifiers import Ensemble
from sensorveil.data.windows import UNKNOWN, Scaling, Windows, joint_classes
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.methods.base import FIXED_NOISE, Capabilities, Obfuscator
from sensorveil.methods.guarantee import Guarantee
from sensorveil.methods.seal_bound import Bound, bound_code, sequence_codes
from sensorveil.methods.seal_code import (
    NONE,
    PERSON,
    Encoder,
    Movement,
    donor_mask,
    feasible_bins,
    filter_classes,
    has_rhythm,
    rank_groups,
)
from sensorveil.methods.seal_generators import (
    GENERATORS,
    POOL,
    GenerationSettings,
    Generator,
    crossfade,
    previous_windows,
)
from sensorveil.methods.seal_response import (
    choose_bins,
    epsilon_per_hour,
    promise,
    respond,
    to_bins,
)
from sensorveil.methods.seal_search import choose_candidate, people_folds, try_bins
from sensorveil.methods.settings import ClassifierGroup, Settings
from sensorveil.progress import track
from sensorveil.train import derived_seed

_SIMULATED = "simulated"  # names of datasets that begin so have people who need not agree
_CLASSIFIER, _GENERATOR = 1, 31  # uses of derived seeds
_UNSEEN_FOLDS = 3
_MAX_CLASSIFIER_STEPS = 3000
"""Steps after which a classifier of many windows is as good as it gets."""

Bins = Annotated[int, Field(ge=1, le=99)]


class CodeSettings(Settings):
    """The code.

    Parameters
    ----------
    dwell_seconds
        Mean time that people stay in a class; 0 classifies every window by itself.
    rhythm_bins, energy_bins, sharpness_bins
        Numbers of bins; fewer where a class has too few windows for 10 donors a code. With one of
        each the code is the class alone.
    rank_reference
        Earlier windows to rank among: those of the recording, of the person (for single clips; it
        needs the person of each window), or none (absolute bins, which tell who somebody is).
    rank_memory
        Number of earlier windows of a class to rank among.
    max_advantage
        Above 0, the numbers of bins are the largest of a search: of the codes from which an
        attacker who counts gains at most this much, it takes the one that keeps most.
    """

    dwell_seconds: NonNegativeFloat = 3.0
    rhythm_bins: Bins = 9
    energy_bins: Bins = 5
    sharpness_bins: Bins = 3
    rank_reference: Literal["recording", "person", "none"] = "recording"
    rank_memory: PositiveInt = 600
    max_advantage: Annotated[float, Field(ge=0, le=1)] = 0.0


class PrivacySettings(Settings):
    """Randomised response, and the people who are counted for the bound.

    Parameters
    ----------
    epsilon
        Above 0, the bins are released by randomised response with this epsilon, and the class as it is.
    interval_seconds
        The response is drawn once in each interval of this length, and stands for all of it.
    budget
        Above 0, the largest sum of epsilons in a recording (with `rank_reference` person: of a
        person); after that the bins are random, and the class is still released.
    held_out
        Share of people who are not trained on but counted for the bound.
    """

    epsilon: NonNegativeFloat = 0.0
    interval_seconds: PositiveFloat = 60.0
    budget: NonNegativeFloat = 0.0
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def check(self) -> None:
        """Refuse a budget of nothing."""
        if self.budget and not self.epsilon:
            raise Refusal("setting 'budget' limits epsilon; set 'epsilon' too")


class SealSettings(Settings):
    """Settings of Seal, in groups.

    Parameters
    ----------
    ensemble_size
        Number of classifiers of the kept attributes. The mean of their probabilities predicts the
        class, and all of them choose among candidates.
    classifier
        Size and training of each; on many windows it has fewer epochs.
    code, generation, privacy
        The code, the generator of windows, and promises.
    """

    ensemble_size: PositiveInt = 3
    classifier: ClassifierGroup = ClassifierGroup()
    code: CodeSettings = CodeSettings()
    generation: GenerationSettings = GenerationSettings()
    privacy: PrivacySettings = PrivacySettings()


class Seal(Obfuscator):
    """Encodes the kept class and the rank of the wearer's movement; generates windows of that code.

    Parameters
    ----------
    preset
        "fast" (default) for two cores, or "large" for a GPU.
    seed, device
        As in every method.
    **settings
        See `SealSettings`.

    Examples
    --------
    >>> import sensorveil
    >>> windows = sensorveil.load("simulated", people=8, windows=10)
    >>> seal = Seal(epochs=1, training_steps=50, rhythm_bins=3, sharpness_bins=1)
    >>> seal = seal.fit(windows.train, keep="activity", hide="gender")
    >>> seal.encoder_.shape  # activities, bins of rhythm, energy and sharpness
    (4, 3, 2, 1)
    >>> seal.obfuscate(windows.test).shape == windows.test.shape
    True
    """

    name = "seal"
    summary = "windows made from a small code and noise"
    capabilities = Capabilities(
        strengths={
            "epsilon": "local epsilon of the bins released in an interval; lower hides more",
            "budget": "largest sum of epsilons in a recording; later windows release the class alone",
        },
        looks_back=True,
    )
    Settings = SealSettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {},
        "large": {
            "classifier": {"width": 64, "epochs": 20, "batch_size": 512, "learning_rate": 3e-3},
            "generation": {
                "num_candidates": 32,
                "windows_per_code": 50,
                "denoiser_width": 384,
                "training_steps": 24_000,
            },
        },
    }
    adjustable = tuple(
        f"generation.{name}"
        for name in ("num_candidates", "windows_per_code", "guidance_scale", "sampling_steps")
    )
    settings: SealSettings

    # Training.

    def _make_scaling(self, windows: Windows) -> Scaling:
        """Statistics without the people who are counted: not even the units depend on them."""
        return Scaling.of(windows.select(~self._held_out(windows)))

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        self._check_donors()
        held_out = self._held_out(windows)
        train = windows.select(~held_out)
        classes, self.kept_classes_ = joint_classes(train, self.policy_.keep)
        train, classes = train.select(classes != UNKNOWN), classes[classes != UNKNOWN]

        # The code: as many bins as donors allow, or as a search finds.
        movement = self._movement(train, classes)
        donors = donor_mask(train, movement)
        bins = self._choose_bins(train, movement, donors, rng)
        self.classifier_ = self._new_classifier(len(train))
        self.classifier_.fit_codes(train, classes, len(self.kept_classes_))

        # Donors are classified as what they are: an application would take others for another
        # class. A class of which no donor is classified right keeps all that it has.
        right = donors & (self.classifier_.predict(train) == classes)
        donors = right | (donors & ~np.isin(classes, classes[right]))
        self.encoder_ = Encoder(bins).fit(movement.select(donors), len(self.kept_classes_))
        generator = self._new_generator()
        self.generator_ = generator.fit(
            train.select(donors), movement.select(donors), self.checkpoint
        )

        bounds = self.bounds(windows.recorded.select(held_out)) if held_out.any() else ()
        self.metrics_ |= {
            "bins": list(bins),
            "donor_windows": int(donors.sum()),
            **generator.losses_,
            "bounds": [asdict(bound) for bound in bounds],
        }

    def _choose_bins(
        self, train: Windows, movement: Movement, donors: np.ndarray, rng: np.random.Generator
    ) -> tuple[int, ...]:
        """Numbers of bins of each feature; none for windows without features."""
        code, classes = self.settings.code, movement.classes
        wanted = (code.rhythm_bins, code.energy_bins, code.sharpness_bins)
        if not has_rhythm(train):
            max_bins: tuple[int, ...] = ()
        elif self._ranks_tell_nothing(train):
            max_bins = (1,) * len(wanted)
        else:
            max_bins = feasible_bins(wanted, int(np.bincount(classes[donors]).min()))
        if not code.max_advantage:
            return max_bins
        unseen = self._movement(train, self._predict_unseen_people(train, classes))
        num_classes, hide = len(self.kept_classes_), self.policy_.hide
        candidates = try_bins(train, movement, unseen, donors, num_classes, hide, max_bins, rng)
        best = choose_candidate(candidates, code.max_advantage)
        self.metrics_["search"] = [asdict(one) for one in candidates]
        return best.bins

    def _ranks_tell_nothing(self, windows: Windows) -> bool:
        """Whether no window has a past to rank in: all are alone in their recording."""
        reference = self.settings.code.rank_reference
        groups = rank_groups(windows, reference)
        return reference != NONE and len(np.unique(groups)) == len(windows)

    def _predict_unseen_people(self, train: Windows, classes: np.ndarray) -> np.ndarray:
        """The class of each window, predicted by classifiers of other people.

        A classifier errs on people it does not know, and the errors tell something about them:
        the search must see that.
        """
        fold = people_folds(train.subject, _UNSEEN_FOLDS)
        probabilities = np.empty((len(train), len(self.kept_classes_)))
        for one in track(np.unique(fold).tolist(), "classifiers of other people"):
            inside = fold == one
            if inside.all():
                raise Refusal("a search needs windows of two people or more, and there is one")
            classifier = self._new_classifier(int((~inside).sum()))
            classifier.fit_codes(train.select(~inside), classes[~inside], len(self.kept_classes_))
            probabilities[inside] = classifier.probabilities(train.select(inside))
        return self._filter(probabilities, train)

    def _held_out(self, windows: Windows) -> np.ndarray:
        """The windows of people who are counted for the bound and not trained on: a mask."""
        share = self.settings.privacy.held_out
        people = np.random.default_rng(self.seed).permutation(np.unique(windows.subject))
        count = round(share * len(people))
        if share and not 0 < count < len(people):
            raise Refusal(
                f"setting 'held_out' is {share}: of {len(people)} people that leaves"
                f" {len(people) - count} to train on and {count} to count"
            )
        return np.isin(windows.subject, people[:count])

    # Obfuscation.

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        # The code: the kept class over time, and where the movement ranks in the wearer's past.
        movement = self._movement_of_output(windows)
        epsilon, budget = self._privacy(windows, strength)
        if epsilon is None or not self.encoder_.bins:  # without bins the code is the class
            codes = self.encoder_.encode(movement)
        else:
            codes = self._randomised(windows, movement, epsilon, budget, rng)
        # Windows of these codes: made from noise, or donors' own.
        generator = self.generator_.with_settings(self.settings.generation)
        signal = generator.generate(codes, rng)
        if samples := self._crossfade_samples():
            previous = previous_windows(windows.recording, windows.start, windows.length)
            signal = crossfade(signal, previous, samples)
        return signal

    def _randomised(
        self,
        windows: Windows,
        movement: Movement,
        epsilon: np.ndarray,
        budget: np.ndarray,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Codes of the class as it is, and of bins that were released by randomised response.

        A response over few bins keeps more than one over many. Where in the released bin the rank lies
        is drawn at random.
        """
        ranks = movement.ranks
        if ranks is None:
            ranks = self.encoder_.donor_ranks(movement)
        few = choose_bins(float(epsilon.min()), self.encoder_.bins)
        released = respond(
            ranks,
            windows.recording,
            windows.start,
            rank_groups(windows, self.settings.code.rank_reference),
            epsilon,
            budget,
            max(1, round(self.settings.privacy.interval_seconds * self.sample_rate_)),
            few,
            rng,
        )
        drawn = (released + rng.random(released.shape)) / np.array(few)
        return self.encoder_.codes(movement.classes, to_bins(drawn, self.encoder_.bins))

    def _filter(self, probabilities: np.ndarray, windows: Windows) -> np.ndarray:
        dwell = self.settings.code.dwell_seconds * self.sample_rate_
        return filter_classes(
            probabilities, windows.recording, windows.start, windows.length, dwell
        )

    def _movement(self, windows: Windows, classes: np.ndarray) -> Movement:
        code = self.settings.code
        return Movement.of(windows, classes, code.rank_reference, code.rank_memory)

    def _movement_of_output(self, windows: Windows) -> Movement:
        """The movement that codes are made from, with predicted classes."""
        return self._movement(windows, self._predicted_classes(windows))

    def _predicted_classes(self, windows: Windows) -> np.ndarray:
        return self._filter(self.classifier_.probabilities(windows), windows)

    def _privacy(
        self, windows: Windows, strength: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Epsilon and budget of each window; no epsilon where the bins are released as they are."""
        for name, numbers in strength.items():
            if (numbers <= 0).any():
                raise Refusal(f"strength '{name}' must be above 0")
        privacy = self.settings.privacy
        epsilon = strength.get("epsilon", np.full(len(windows), privacy.epsilon))
        budget = strength.get("budget", np.full(len(windows), privacy.budget or math.inf))
        if epsilon.any():
            return epsilon, budget
        if np.isfinite(budget).any():
            raise Refusal("strength 'budget' limits epsilon; give 'epsilon' too")
        return None, budget

    def _crossfade_samples(self) -> int:
        return round(self.settings.generation.crossfade_seconds * self.sample_rate_)

    # What the output can tell.

    def encode(self, windows: Windows) -> np.ndarray:
        """The code of each window, (n,): all that a window made from it tells about the wearer.

        With an epsilon the output is made from less.
        """
        self._check_fitted()
        self._check_alike(windows)
        return self._codes_of_output(self._standard(windows))[:, 0]

    def bounds(self, windows: Windows | None = None, run: int = 1) -> tuple[Bound, ...]:
        """Upper bounds on what the code tells about each attribute that is not kept.

        Parameters
        ----------
        windows
            Windows of people who took no part in training; by default the people who were held
            out (`held_out`), if any.
        run
            Number of consecutive windows of a recording that an attacker sees at once. Nothing is
            assumed about how they depend on each other; above 1 it takes many people.
        """
        self._check_fitted()
        if windows is None:
            return tuple(Bound(**one) for one in self.metrics_["bounds"])
        self._check_alike(windows)
        codes = self._codes_of_output(self._standard(windows))
        codes = np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)
        codes, first = sequence_codes(codes, windows.recording, windows.start, run)
        counted = windows.select(first)
        return tuple(
            bound_code(codes, counted.codes(name), counted.subject, name, windows=run)
            for name in counted.attributes
            if name not in self.policy_.keep and (counted.codes(name) != UNKNOWN).any()
        )

    def guarantee(self) -> Guarantee | None:
        """Local differential privacy of an output window, where bins are randomised.

        The class is released as it is. A crossfaded window may hold the responses of two intervals. A
        recording spends each response once: it never exceeds the budget.
        """
        privacy = self.settings.privacy
        if not privacy.epsilon:
            return None
        epsilon, length = privacy.epsilon, privacy.interval_seconds
        several = (
            f"each interval of {length:g} s spends {epsilon:g}, an hour of a recording"
            f" {epsilon_per_hour(epsilon, length):g}"
        )
        if self._crossfade_samples():
            several += f"; a crossfaded window may hold two intervals and spend 2 x {epsilon:g}"
            epsilon *= 2
        if privacy.budget:
            epsilon = min(epsilon, privacy.budget)
            whole = "person" if self.settings.code.rank_reference == PERSON else "recording"
            several += f"; a {whole} spends at most {privacy.budget:g}"
        why = (
            "the class is released as it is, and the bins of the movement by randomised response;"
            f" {several}; from one window {promise(epsilon, 0.5)}"
        )
        return Guarantee(epsilon, 0.0, "one output window of the wearer (local)", why)

    @property
    def membership_score(self) -> str:  # type: ignore[override]
        """The diffusion has a score of membership, the pool has none."""
        return "" if self.settings.generation.generator == POOL else FIXED_NOISE

    def _membership_scores(self, windows: Windows) -> np.ndarray | None:
        return self.generator_.membership_scores(windows, self._predicted_classes(windows))

    def emits_donor_windows(self) -> bool:
        """Whether the generator is the pool."""
        return self.generator_.emits_donors

    def notices(self) -> tuple[str, ...]:
        """Lines for the run's card."""
        lines = []
        if not self.bounds():
            lines.append(
                "There is no bound, since nobody was held out of training: train with held_out"
                " above 0, or audit the run on people it never saw."
            )
        if self._crossfade_samples():
            lines.append(
                "Windows are crossfaded, so each holds a little of the one before: bounds count"
                " pairs of codes, and a window may spend the epsilon of two intervals."
            )
        return tuple(lines)

    def _codes_of_output(self, windows: Windows) -> np.ndarray:
        """All codes that each window is made from: (n, 1), or (n, 2) with crossfading.

        The second is that of the previous window, or the number of codes where there is none.
        """
        codes = self.encoder_.encode(self._movement_of_output(windows))
        if not self._crossfade_samples():
            return codes[:, None]
        previous = previous_windows(windows.recording, windows.start, windows.length)
        before = np.where(previous >= 0, codes[previous], self.encoder_.count)
        return np.stack([codes, before], axis=1)

    def _condition(self, windows: Windows) -> np.ndarray | None:
        """The codes, or None where the output is made from randomised ones."""
        if self.settings.privacy.epsilon:
            return None
        one_hot = np.eye(self.encoder_.count + 1, dtype=np.float32)
        return one_hot[self._codes_of_output(windows)].reshape(len(windows), -1)

    # On disk.

    def _state(self) -> dict[str, np.ndarray]:
        parts = {
            "classifier": self.classifier_.state(),
            "encoder": self.encoder_.state(),
            "generator": self.generator_.state(),
        }
        arrays = {f"{part}.{name}": one for part in parts for name, one in parts[part].items()}
        return arrays | {"kept_classes": self.kept_classes_}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.kept_classes_ = state["kept_classes"]
        shape, classes = self.hook_shape, len(self.kept_classes_)
        classifier = self._new_classifier(1)
        self.classifier_ = classifier.restore(part_of(state, "classifier."), shape, classes)
        self.encoder_ = Encoder.restored(part_of(state, "encoder."))
        self.generator_ = self._new_generator().restore(part_of(state, "generator."))

    def _new_classifier(self, count: int) -> Ensemble:
        """Classifiers, not trained, for so many training windows."""
        settings = self.settings.classifier.settings()
        each = -(-count // settings.batch_size)  # steps of an epoch
        settings = replace(
            settings, epochs=max(1, min(settings.epochs, _MAX_CLASSIFIER_STEPS // each))
        )
        seed = derived_seed(self.seed, _CLASSIFIER)
        return Ensemble(self.settings.ensemble_size, settings, seed, self.device)

    def _new_generator(self) -> Generator:
        chosen, seed = self.settings.generation, derived_seed(self.seed, _GENERATOR)
        make = GENERATORS[chosen.generator]
        return make(chosen, self.encoder_, self.classifier_, seed, self.device)

    def _check_donors(self) -> None:
        """Refuse the pool unless donors agreed to it or are simulated."""
        chosen, origin = self.settings.generation, self.origin_
        simulated = bool(origin and origin.dataset.startswith(_SIMULATED))
        if chosen.generator == POOL and not simulated and not chosen.donors.strip():
            raise Refusal(
                "generator 'pool' emits people's own windows, and nobody states that they agreed;"
                ' set donors="..." (such as "published under CC BY 4.0"), or generator=diffusion'
            )
