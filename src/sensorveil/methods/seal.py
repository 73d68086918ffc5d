"""Seal: windows made from a small code and fresh noise, with a bound that no attacker can beat.

The output is a function of a discrete code and of noise alone. So nobody learns more about any
attribute from it than from the code (the data processing inequality), and what a code tells can be
counted on people held out of training: `measures.bounds`. With randomised response on the code
there is a local epsilon as well, for any attribute at all.

The code is in `seal_code`, what makes windows of it in `seal_generators`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sensorveil.data.windows import UNKNOWN, Scaling, Windows
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.measures.bounds import Bound, bound_code, sequence_codes
from sensorveil.measures.counting import people_folds
from sensorveil.measures.inference import ClassifierSettings, Ensemble, seen_shape
from sensorveil.measures.response import randomised, within_budget
from sensorveil.measures.timing import median_seconds
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.classes import READER, joint_classes
from sensorveil.methods.resample import Resample
from sensorveil.methods.seal_code import Encoder, Movement, afforded, offered, whose
from sensorveil.methods.seal_generators import GENERATORS, Generator, adjoining, joined
from sensorveil.methods.seal_reading import followed
from sensorveil.methods.seal_search import chosen, tried
from sensorveil.methods.seal_settings import SealSettings
from sensorveil.progress import track
from sensorveil.train import derived_seed

SIMULATED = "simulated"
"""How the names of datasets begin whose people nobody has to ask."""
_MAKER = 31  # what the seed of the generator is for
_STRANGERS = 3  # groups of people; each is read by readers of the others


class Seal(Obfuscator):
    """Encodes what is kept and how the wearer moves against their past; makes a window of that.

    >>> import sensorveil
    >>> windows = sensorveil.load("simulated", people=8, windows=10)
    >>> obfuscator = Seal(epochs=1, rhythm=3).fit(windows.train, keep="activity", hide="gender")
    >>> obfuscator.metrics_["generator"], obfuscator.encoder_.count  # 4 activities x 3 x 3 levels
    ('pool', 36)
    """

    name = "seal"
    summary = "a window made from a small code and noise, with a bound on what the code tells"
    capabilities = Capabilities(
        strengths={
            "epsilon": "local epsilon of one window, by randomised response; lower hides more",
            "budget": "the most epsilon that one recording may spend; then windows say nothing",
        },
        emits_donors=True,
        looks_back=True,
    )
    Settings = SealSettings
    presets = {  # noqa: RUF012 (a constant of the class)
        "fast": {},
        # There is no paper: readers of the size of the papers' inference models, for a GPU.
        "paper": Resample.presets["paper"],
    }
    settings: SealSettings

    def encode(self, windows: Windows) -> np.ndarray:
        """The code of each window, in the order of time within a recording.

        It is all that a window made from it can tell of the wearer.
        """
        self._check_fitted()
        self._check_alike(windows)
        return self._encode(windows.scaled(self.scaling_))

    def count_bounds(self, windows: Windows, run: int = 1) -> tuple[Bound, ...]:
        """What the code can tell anybody about each attribute that is not kept.

        The windows must be of people who took no part in training. With a `run` above 1 it is
        about whoever sees so many consecutive windows of a recording at once, and assumes nothing
        about how these depend on each other; it takes many people before that says anything.
        """
        self._check_fitted()
        self._check_alike(windows)
        codes = self._codes_behind(windows.scaled(self.scaling_))
        codes = np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)
        codes, first = sequence_codes(codes, windows.recording, windows.start, run)
        seen = windows.select(first)
        return tuple(
            bound_code(codes, seen.codes(name), seen.subject, name)
            for name in seen.attributes
            if name not in self.policy_.keep and (seen.codes(name) != UNKNOWN).any()
        )

    def window_seconds(self, windows: Windows, most: int = 1000) -> float:
        """Median time from a window to its output, of so many that come alone, without a past."""
        singles = [windows.select([place]).compact() for place in range(min(most, len(windows)))]
        if not singles:
            raise Refusal("there are no windows to take the time of")
        coming = iter([singles[0], *singles])  # one more, which pays for starting up
        return median_seconds(lambda: self.obfuscate(next(coming)), len(singles))

    # Training.

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        made = self._generator_name()
        held = self._held_out(windows, rng)
        learnt = windows.select(~held)
        if held.any():  # whoever is counted must not even be in the units
            self.scaling_ = Scaling.of(learnt.scaled(None))
            learnt = learnt.scaled(self.scaling_)
        codes, self.cells_ = joint_classes(learnt, self.policy_.keep)
        learnt, codes = learnt.select(codes != UNKNOWN), codes[codes != UNKNOWN]
        movement = self._movement(learnt, codes)
        common = offered(learnt, movement)
        levels = self._levels(learnt, codes, movement, common, rng)
        self.reader_ = self._reader().fit_codes(learnt.scaled(None), codes, len(self.cells_))
        clear = self._clear(learnt, codes, common)
        movement = movement.select(clear)
        self.encoder_ = Encoder(*levels).fit(movement, len(self.cells_))
        self._fit_generator(made, learnt.select(clear), self.encoder_.donated(movement))
        found = self.count_bounds(windows.select(held)) if held.any() else ()
        self.metrics_ |= {
            "levels": list(levels),
            "codes": self.encoder_.count,
            "donors": self.settings.donors,
            "epsilon": self.settings.epsilon,
            "budget": self.settings.budget,
            "bounds": [bound.as_dict() for bound in found],
        }

    def _levels(
        self,
        learnt: Windows,
        codes: np.ndarray,
        movement: Movement,
        common: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[int, int]:
        """How many levels of each: those that are set, or found where a search is asked for."""
        fewest = int(np.bincount(movement.read[common]).min())
        most = afforded(self.settings.rhythm, self.settings.intensity, fewest)
        if not self.settings.max_advantage:
            return most
        seen = self._movement(learnt, self._read_by_strangers(learnt, codes))
        hide = self.policy_.hide
        candidates = tried(learnt, movement, seen, common, len(self.cells_), hide, most, rng)
        best = chosen(candidates, self.settings.max_advantage)
        self.metrics_["search"] = [one.as_dict() for one in candidates]
        return best.rhythm, best.intensity

    def _read_by_strangers(self, learnt: Windows, codes: np.ndarray) -> np.ndarray:
        """The class of each window, read by readers who learnt from other people.

        Whom a reader does not know it reads wrong at times, and what it takes them for tells
        something of them too: the search must see that.
        """
        fold = people_folds(learnt.subject, _STRANGERS)
        shares = np.empty((len(learnt), len(self.cells_)))
        for one in track(np.unique(fold).tolist(), "readers of strangers"):
            own, others = learnt.select(fold == one), learnt.select(fold != one)
            if not len(others):
                raise Refusal("a search needs windows of two people or more, and there is one")
            reader = self._reader().fit_codes(
                others.scaled(None), codes[fold != one], len(self.cells_)
            )
            shares[fold == one] = reader.probabilities(own)
        return self._followed(shares, learnt)

    def _clear(self, learnt: Windows, codes: np.ndarray, common: np.ndarray) -> np.ndarray:
        """Which of the common windows may be donors': those that are read as what they are.

        Recordings begin and end with something else, and an application that is given such a
        window reads it wrong. A class of which none is read right keeps all that it has.
        """
        right = common & (self.reader_.predict(learnt) == codes)
        return right | (common & ~np.isin(codes, codes[right]))

    def _fit_generator(self, made: str, donors: Windows, codes: np.ndarray) -> None:
        """The generator learns codes that donors have; those without are served by the nearest."""
        there, numbered = np.unique(codes, return_inverse=True)
        mask = np.isin(np.arange(self.encoder_.count), there)
        self.served_ = np.searchsorted(there, self.encoder_.nearest(mask))
        self.generator_ = self._generator(made).fit(donors, numbered, len(there))
        self.metrics_ |= {
            "generator": made,
            "emits_donors": self.generator_.emits_donors,
            "donor_windows": len(donors),
            "windows_by_code": np.bincount(codes, minlength=self.encoder_.count).tolist(),
        }

    def _held_out(self, windows: Windows, rng: np.random.Generator) -> np.ndarray:
        """Which windows are of people who are counted for the bound, and not learnt from."""
        people = rng.permutation(np.unique(windows.subject))
        count = round(self.settings.held_out * len(people))
        if self.settings.held_out and not 0 < count < len(people):
            raise Refusal(
                f"setting 'held_out' is {self.settings.held_out}: of {len(people)} people that"
                f" leaves {len(people) - count} to learn from and {count} to count"
            )
        return np.isin(windows.subject, people[:count])

    def _generator_name(self) -> str:
        origin = self.origin_
        return self.settings.generator_for(bool(origin and origin.dataset.startswith(SIMULATED)))

    def _generator(self, name: str) -> Generator:
        return GENERATORS[name](derived_seed(self.seed, _MAKER), self.device, self.settings.steps)

    def _reader(self) -> Ensemble:
        one = self.settings
        settings = ClassifierSettings(one.width, one.epochs, one.batch, one.rate)
        return Ensemble(one.readers, settings, derived_seed(self.seed, READER), self.device)

    # Obfuscation.

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        codes = self._told(self._encode(windows), windows, strength, rng)
        signal = self.generator_.make(self.served_[codes], rng)
        samples = round(self.settings.join * self.sample_rate_)
        return joined(signal, self._before(windows), samples) if samples else signal

    def _told(
        self,
        codes: np.ndarray,
        windows: Windows,
        strength: Mapping[str, np.ndarray],
        rng: np.random.Generator,
    ) -> np.ndarray:
        """The codes that windows are made from: as they are, or by randomised response."""
        if not strength and not self.settings.epsilon:
            return codes
        for name, numbers in strength.items():
            if (numbers <= 0).any():
                raise Refusal(f"strength '{name}' must be above 0")
        epsilon = strength.get("epsilon", np.full(len(codes), self.settings.epsilon))
        budget = strength.get("budget", np.full(len(codes), self.settings.budget))
        if not epsilon.any():
            if budget.any():
                raise Refusal("strength 'budget' limits epsilon; give 'epsilon' too")
            return codes
        if budget.any():
            owner = whose(windows, self.settings.past)
            epsilon = within_budget(epsilon, budget, owner, windows.start)
        return randomised(codes, self.encoder_.count, epsilon, rng)

    def _encode(self, windows: Windows) -> np.ndarray:
        return self.encoder_.encode(self._movement(windows, self._read(windows)))

    def _read(self, windows: Windows) -> np.ndarray:
        """The class of each window, as it follows from those before."""
        return self._followed(self.reader_.probabilities(windows), windows)

    def _followed(self, shares: np.ndarray, windows: Windows) -> np.ndarray:
        steady = self.settings.steady * self.sample_rate_
        return followed(shares, windows.recording, windows.start, windows.length, steady)

    def _movement(self, windows: Windows, read: np.ndarray) -> Movement:
        return Movement.of(windows, read, self.settings.past, self.settings.memory)

    def _before(self, windows: Windows) -> np.ndarray:
        return adjoining(windows.recording, windows.start, windows.length)

    def _codes_behind(self, windows: Windows) -> np.ndarray:
        """All codes that each window is made from, (n, 1) or, with joins, (n, 2).

        The second is that of the window before, or one more than there are where there is none.
        """
        codes = self._encode(windows)
        if not self.settings.join:
            return codes[:, None]
        before = self._before(windows)
        return np.stack([codes, np.where(before >= 0, codes[before], self.encoder_.count)], axis=1)

    def _condition(self, windows: Windows) -> np.ndarray | None:
        """The codes, or nothing where what is told are not the codes but drawn from them."""
        if self.settings.epsilon:
            return None
        one_hot = np.eye(self.encoder_.count + 1, dtype=np.float32)[self._codes_behind(windows)]
        return one_hot.reshape(len(windows), -1)

    # On disk.

    def _state(self) -> dict[str, np.ndarray]:
        parts = {
            "reader": self.reader_.state(),
            "encoder": self.encoder_.state(),
            "generator": self.generator_.state(),
        }
        flat = {f"{part}.{k}": v for part, arrays in parts.items() for k, v in arrays.items()}
        return flat | {"cells": self.cells_, "served": self.served_}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.cells_, self.served_ = state["cells"], state["served"]
        shape = seen_shape(self.shape_, self.complex_)
        self.reader_ = self._reader().restore(part_of(state, "reader."), shape, len(self.cells_))
        self.encoder_ = Encoder.restored(part_of(state, "encoder."))
        generator = self._generator(self._generator_name())
        self.generator_ = generator.restore(part_of(state, "generator."), self.shape_[-1])
