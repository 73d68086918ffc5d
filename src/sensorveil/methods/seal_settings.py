"""Settings of Seal."""

from __future__ import annotations

from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.methods.resample import ResampleSettings
from sensorveil.methods.seal_code import PASTS, RECORDING
from sensorveil.methods.seal_generators import GAUSSIAN, GENERATORS, POOL

AUTO = "auto"


UNSAID = "nothing was said"
"""What is known of donors' consent, unless somebody says more."""


class SealSettings(ResampleSettings):
    """The reader of what is kept (as in `resample`), the code, and what makes windows of it.

    `rhythm` and `intensity` are numbers of levels, `memory` how many windows of a class are its
    past, and `past` whose it is: the recording's, the person's (for single clips, in their
    order) or none (levels among everybody, which tell who it is). With `max_advantage` above 0
    the numbers of levels are the most that a search may take: it picks those that keep most
    while an attacker who counts codes is at most so much better than guessing.

    `generator` is pool, gaussian, diffusion, or auto: the pool where it may be used, and gaussian
    elsewhere. The pool gives out donors' own windows, so `donors` must say why that is right, in
    words that go into the run; people who were simulated need not agree. The diffusion is trained
    for so many `steps`. `join` smooths the first seconds of a window that begins where another
    ended.

    `epsilon` above 0 is that of randomised response, for each window, and `budget` above 0 the most
    that one recording may spend; after that its windows say nothing. `held_out` is the part of the
    people who are not trained on, but counted for the bound.

    `steady` is, in seconds, how long people go on with a class; with 0 every window is read by
    itself.

    The defaults were chosen on MotionSense, on validation recordings of its paper split and on
    validation people of folds 0 to 2. Recordings there have one activity each, so a long `steady`
    would do best. Where pieces of one person's recordings are put together so that the activity
    changes every 10 seconds, 3 is as good as any of 1, 2, 5, 10 and 30: panels of one to four
    readers read 95.4% right, and 94.2% with 0. Of recordings as they are one reader reads 98.5%
    (97.4 with 0) and, of validation people, 93.5% in the mean (91.2). Correlations of frequency
    and energy with validation people's own (folds 0 to 3, in the units of those people) are, by
    levels of rhythm and intensity, 0.55 and 0.63 (3 x 3), 0.63 and 0.70 (5 x 5), 0.68 and 0.69
    (9 x 5), 0.70 and 0.68 (15 x 5), 0.70 and 0.68 (21 x 5): beyond 9 x 5 more levels add less than
    a hundredth to their mean. Where windows are few, there are fewer levels, so that each code has
    donors.

    With the person's `past` instead of the recording's they are 0.72 and 0.72: a recording begins
    with a past already. It is not the default because people must be told apart: levels among the
    windows of several people tell who they are.
    """

    steady: float = 3.0
    rhythm: int = 9
    intensity: int = 5
    memory: int = 600
    past: str = RECORDING
    max_advantage: float = 0.0
    generator: str = AUTO
    donors: str = UNSAID
    steps: int = 4000
    join: float = 0.0
    epsilon: float = 0.0
    budget: float = 0.0
    held_out: float = 0.0

    def check(self) -> None:
        """Refuses what is unknown or makes no sense."""
        for name in ("readers", "width", "epochs", "batch", "rate", "memory", "steps"):
            self.require(getattr(self, name) > 0, name, "above 0")
        for name in ("rhythm", "intensity"):
            self.require(1 <= getattr(self, name) <= 99, name, "from 1 to 99")
        for name in ("steady", "join", "epsilon", "budget"):
            self.require(getattr(self, name) >= 0, name, "0 or above")
        for name in ("max_advantage", "held_out"):
            self.require(0 <= getattr(self, name) < 1, name, "from 0 to below 1")
        if self.past not in PASTS:
            raise refuse_unknown("past", self.past, list(PASTS))
        if self.generator not in (AUTO, *GENERATORS):
            raise refuse_unknown("generator", self.generator, [AUTO, *GENERATORS])
        if self.budget and not self.epsilon:
            raise Refusal("setting 'budget' limits epsilon; set 'epsilon' too")

    def generator_for(self, simulated: bool) -> str:
        """The generator that may be used with donors who were simulated or are real people."""
        agreed = simulated or self.donors.strip() not in ("", UNSAID)
        if self.generator == POOL and not agreed:
            raise Refusal(
                "generator 'pool' gives out people's own windows, and nobody says that they agreed;"
                ' state it with donors="..." (such as "published under CC BY 4.0"), or take'
                " generator=gaussian"
            )
        if self.generator == AUTO:
            return POOL if agreed else GAUSSIAN
        return self.generator
