"""Which code keeps most of the movement and still tells no more than is allowed?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from sensorveil.data.signal_features import within_correlation
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.measures.counting import counted_advantage, half_folds, people_folds
from sensorveil.methods.seal_code import Encoder, Movement
from sensorveil.progress import track

_DONORS = 0.75  # the part of the people who are donors while the others are obfuscated


@dataclass(frozen=True)
class Candidate:
    """One code: what an attacker who counts reads of people not counted, and what is kept.

    `rhythm_kept` and `intensity_kept` are correlations within recordings of validation people, of
    frequency and of energy, between their windows and those that donors would give for them.
    """

    rhythm: int
    intensity: int
    advantages: dict[str, float]
    rhythm_kept: float
    intensity_kept: float

    @property
    def kept(self) -> float:
        """Both together, as one number."""
        return (self.rhythm_kept + self.intensity_kept) / 2

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def tried(
    windows: Windows,
    movement: Movement,
    seen: Movement,
    common: np.ndarray,
    classes: int,
    hide: Sequence[str],
    most: tuple[int, int],
    rng: np.random.Generator,
) -> list[Candidate]:
    """All codes of 1, 3, 5, ... levels up to `most`, smaller ones first.

    `movement` has the classes that windows are of, and `seen` those that a reader who does not know
    the people takes them for. A wearer may be somebody it knows, or not: what tells more counts.
    `common` are the windows that may be donors' (`offered`).
    """
    people = rng.permutation(np.unique(windows.subject))
    donor = np.isin(windows.subject, people[: max(1, round(_DONORS * len(people)))])
    pool, others = np.flatnonzero(donor & common), np.flatnonzero(~donor)
    sizes = sorted(
        product(range(1, most[0] + 1, 2), range(1, most[1] + 1, 2)), key=lambda s: (s[0] * s[1], s)
    )
    found = []
    for rhythm, intensity in track(sizes, "codes"):
        encoder = Encoder(rhythm, intensity).fit(movement.select(common), classes)
        codes = encoder.encode(seen)
        both = (encoder.encode(movement), codes)
        advantages = {name: max(_tells(one, windows, name) for one in both) for name in hide}
        kept = _kept(encoder, movement, codes, pool, others, windows.recording, rng)
        found.append(Candidate(rhythm, intensity, advantages, *kept))
    return found


def chosen(candidates: Sequence[Candidate], allowed: float) -> Candidate:
    """The code that keeps most of those that satisfy the allowance, or a refusal.

    Among codes that keep alike, the one with fewer levels.
    """
    good = [one for one in candidates if max(one.advantages.values()) <= allowed]
    if not good:
        least = min(candidates, key=lambda one: max(one.advantages.values()))
        name = max(least.advantages, key=lambda name: least.advantages[name])
        raise Refusal(
            f"no code tells at most {100 * allowed:.1f} points about what is to be hidden: the"
            f" safest, {least.rhythm} x {least.intensity} levels, tells"
            f" {100 * least.advantages[name]:.1f} about '{name}'; allow more with max_advantage,"
            " or set past=recording where it is not"
        )
    return max(good, key=lambda one: round(one.kept, 3))


def _tells(codes: np.ndarray, windows: Windows, name: str) -> float:
    return counted_advantage(codes, windows.codes(name), windows.subject, _folds(windows, name))


def _folds(windows: Windows, name: str) -> np.ndarray:
    """What an attacker has not counted: people, or where they are the classes, half of each.

    That is half of each recording, or of a person's clips where each is a recording of its own.
    """
    people = len(np.unique(windows.subject))
    if 2 * len(np.unique(windows.codes(name))) <= people:
        return people_folds(windows.subject)
    clips = len(np.unique(windows.recording)) == len(windows)
    return half_folds(windows.subject if clips else windows.recording, windows.start)


def _kept(
    encoder: Encoder,
    movement: Movement,
    codes: np.ndarray,
    pool: np.ndarray,
    others: np.ndarray,
    recording: np.ndarray,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Correlations of frequency and of energy, with donors drawn as the pool draws them."""
    given = encoder.donated(movement)[pool]
    pool = pool[np.argsort(given, kind="stable")]
    numbers = np.bincount(given, minlength=encoder.count)
    wanted = encoder.nearest(numbers > 0)[codes[others]]
    first = np.cumsum(numbers) - numbers
    drawn = pool[first[wanted] + rng.integers(numbers[wanted])]
    before, after = np.exp(movement.values[others]), np.exp(movement.values[drawn])
    found = [
        within_correlation(before[:, which], after[:, which], recording[others]) for which in (0, 1)
    ]
    return found[0] or 0.0, found[1] or 0.0
