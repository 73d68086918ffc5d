"""The contract that every method fulfils: fit, obfuscate, capabilities, presets, strengths."""

from __future__ import annotations

import copy
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np

from sensorveil.data.windows import Scaling, Windows, to_complex
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.methods.guarantee import Guarantee
from sensorveil.methods.policy import Policy
from sensorveil.methods.settings import Settings
from sensorveil.train import Checkpoint

if TYPE_CHECKING:
    from sensorveil.audit.results import Audit
    from sensorveil.data.splits import Split
    from sensorveil.methods.seal_bound import Bound

Strength = Mapping[str, float | np.ndarray]
"""Strengths by name, each one number for all windows or an array with one number a window."""


FIXED_NOISE, RECONSTRUCTION = "denoising loss at fixed noise", "reconstruction error"
"""Scores of membership, see `Obfuscator.membership_scores`."""


@dataclass(frozen=True)
class Capabilities:
    """What a method can do; the conformance suite holds it to this record."""

    several_keeps: bool = True
    several_hides: bool = True
    strengths: Mapping[str, str] = field(default_factory=dict)
    """Numbers that obfuscation takes without training again, with what they mean."""
    strength_per_hidden: bool = False
    """Whether each hidden attribute's name is a strength too."""
    new_hide_without_generator: bool = False
    """Whether a new hidden attribute can be added without training the generator again."""
    needs_wearer: bool = False
    """Whether obfuscation must be given the wearer's true hidden labels."""
    random: bool = True
    """Whether two obfuscations of one window differ."""
    emits_donors: bool = False
    """Whether the output consists of training people's own windows."""
    learns: bool = True
    """Whether more than the units (mean and deviation of a channel) is learnt from windows."""
    looks_back: bool = False
    """Whether the output depends on earlier windows of the recording."""
    modalities: tuple[str, ...] = ("signal", "complex", "image")


@dataclass(frozen=True)
class ConditionProbe:
    """How well a probe predicts one attribute from what a method's output is made from.

    `source` names what the probe is given. `class_alone` is the accuracy that the kept class by
    itself allows; more is a leak. The windows are of people whom the probed networks were not
    trained on.
    """

    attribute: str
    source: str
    accuracy: float
    class_alone: float
    majority: float
    people: int
    windows: int


class Obfuscator(ABC):
    """A method: learns from windows under a policy, then turns windows into safer ones.

    A subclass has a name, a summary, capabilities, `Settings`, presets, and the four hooks
    `_fit`, `_obfuscate`, `_state` and `_restore`. The hooks see windows in standard units (mean 0
    and deviation 1 per channel over the training windows); the output goes back to the units of
    the input, so that an unchanged application can read it.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    Settings: ClassVar[type[Settings]] = Settings
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fast": {}}
    adjustable: ClassVar[tuple[str, ...]] = ()
    """Settings that can be changed without training again (`with_settings`)."""
    membership_score: ClassVar[str] = ""
    """What `_membership_scores` measures, in words; empty where there is no such score."""
    checkpoint: Checkpoint | None = None
    """Where `_fit` may keep the state of its trainings."""

    def __init__(
        self, preset: str = "fast", seed: int = 0, device: str = "cpu", **settings: Any
    ) -> None:
        if preset not in self.presets:
            raise refuse_unknown(f"preset of {self.name}", preset, list(self.presets))
        _check_seed(seed)
        self.preset = preset
        self.seed = seed
        self.device = device
        changed = self.Settings().with_changes(self.presets[preset], self.name)
        self.settings = changed.with_changes(settings, self.name)

    # What users call.

    @final
    def fit(
        self,
        windows: Windows,
        keep: str | Sequence[str],
        hide: str | Sequence[str],
        checkpoint: Checkpoint | None = None,
    ) -> Self:
        """Learns to keep some attributes and hide others; returns itself.

        Methods that train for long keep what they have in the checkpoint, and go on from there.
        """
        started = time.perf_counter()
        standard = self._begin(windows, keep, hide)
        self.checkpoint = checkpoint
        try:
            self._fit(standard, np.random.default_rng(self.seed))
        finally:
            self.checkpoint = None
        self.metrics_["seconds"] = round(time.perf_counter() - started, 3)
        return self

    @final
    def obfuscate(
        self, windows: Windows, strength: Strength | None = None, seed: int | None = None
    ) -> Windows:
        """Safer windows of the same number, order, shape, rate and scale.

        Without a seed the noise comes from the operating system, as it should wherever data are
        released: an attacker who knows the seed can repeat the noise and subtract it.
        """
        self._check_fitted()
        self._check_alike(windows)
        if seed is not None:
            _check_seed(seed)
        given = self._strength_arrays(strength or {}, len(windows))
        rng = np.random.default_rng(_fresh() if seed is None else seed)
        signal = self._obfuscate(self._standard(windows), given, rng)
        if self.complex_:
            signal = to_complex(signal)
        with np.errstate(over="ignore"):
            hidden = windows.replaced(self.scaling_.undo(signal))
        if not np.isfinite(hidden.store).all():  # nothing leaves rather than something broken
            named = ", ".join(f"'{name}'" for name in given) or "settings"
            raise Refusal(f"the output of {self.name} is not finite; use milder {named}")
        return hidden

    @final
    def add_hidden(self, windows: Windows, attribute: str) -> Self:
        """Another one that hides one attribute more, where the method can do that by itself.

        `windows` are those it was trained on; what it learnt from them already stays as it is.
        """
        self._check_fitted()
        if not self.capabilities.new_hide_without_generator:
            raise Refusal(f"{self.name} must be trained anew to hide one more attribute")
        self._check_alike(windows)
        more = copy.copy(self)
        more.policy_ = Policy.of(self.policy_.keep, (*self.policy_.hide, attribute))
        more.policy_.check(windows)
        self._check_abilities(more.policy_)
        for name in (*more.policy_.keep, attribute):
            if tuple(windows.classes[name]) != self.classes_.get(name):
                raise Refusal(f"attribute '{name}' has other classes than in this run's training")
        more.metrics_ = dict(self.metrics_)
        more._add_hidden(self._standard(windows), attribute)
        return more

    @final
    def condition(self, windows: Windows) -> np.ndarray | None:
        """What the method makes its output from, (n, numbers), where it has such a bottleneck.

        No attacker learns more from the output than from this, so a fully informed one is given it.
        """
        self._check_fitted()
        return self._condition(self._standard(windows))

    @final
    def membership_scores(self, windows: Windows) -> np.ndarray | None:
        """How well the trained networks fit each window with its labels, (n,).

        It is higher for windows of the training than for others where these were memorised, which
        membership inference looks for. None where the method has no such score.
        """
        self._check_fitted()
        self._check_alike(windows)
        return self._membership_scores(self._standard(windows))

    def strength_names(self) -> tuple[str, ...]:
        """The names of the strengths that this fitted method takes."""
        self._check_fitted()
        hidden = self.policy_.hide if self.capabilities.strength_per_hidden else ()
        return (*self.capabilities.strengths, *hidden)

    def needs_wearer(self) -> bool:
        """Whether obfuscation must be given the wearer's true hidden labels."""
        return self.capabilities.needs_wearer

    def with_settings(self, **settings: Any) -> Self:
        """The same trained method with other settings, of those that need no training."""
        self._check_fitted()
        full = {self.Settings.full_name(name, self.name): value for name, value in settings.items()}
        for name in full:
            if name not in self.adjustable:
                raise Refusal(f"setting '{name}' cannot change without training again")
        other = copy.copy(self)
        other.settings = self.settings.with_changes(full, self.name)
        return other

    def condition_probe(self, windows: Windows) -> tuple[ConditionProbe, ...]:
        """Probes of what the output is made from, trained on the training windows given here."""
        return ()

    def bounds(self) -> tuple[Bound, ...]:
        """Upper bounds on how often an attacker is right, where the method has a code to count."""
        return ()

    def guarantee(self) -> Guarantee | None:
        """Differential privacy of the training people, or of the wearer (local), or None."""
        return None

    def emits_donor_windows(self) -> bool:
        """Whether this run's output consists of training people's own windows."""
        return self.capabilities.emits_donors

    # Everyday conveniences.

    def save(self, path: Path | str) -> Path:
        """Write a run folder; `sensorveil.load_run` reads it."""
        from sensorveil.methods.run import save_run

        return save_run(self, path)

    def audit(self, split: Split, quick: bool = True, strength: Strength | None = None) -> Audit:
        """Attack the output on a split, as `sensorveil audit` does.

        Parameters
        ----------
        split
            The split whose training windows this method was fitted on.
        quick
            One seed and small attackers, for two cores: the default, unlike the command's.
        strength
            The strengths to obfuscate with.
        """
        from sensorveil.audit.audit import AuditSettings, audit_run

        self._check_fitted()
        if isinstance(split, Windows):
            raise Refusal("an audit needs a whole split, as `sensorveil.load` gives it")
        settings = AuditSettings.for_two_cores() if quick else AuditSettings()
        return audit_run(self, split, settings, strength, self.device)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Preset, seed, device and all settings by full name, as in scikit-learn."""
        about = {"preset": self.preset, "seed": self.seed, "device": self.device}
        return about | self.settings.flat()

    def set_params(self, **params: Any) -> Self:
        """Other parameters; a preset brings its settings. The method has to be fitted again."""
        kept = {} if "preset" in params else self.settings.flat()
        about = {"preset": self.preset, "seed": self.seed, "device": self.device}
        changed = type(self)(**{**about, **kept, **params})
        self.__dict__ = changed.__dict__  # nothing is changed where one of them is refused
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params())

    def __repr__(self) -> str:
        text = f"{type(self).__name__}(preset={self.preset!r}, seed={self.seed})"
        if not hasattr(self, "policy_"):
            return f"{text}, not fitted"
        keep, hide = ", ".join(self.policy_.keep), ", ".join(self.policy_.hide)
        return f"{text}, fitted to keep {keep} and hide {hide}"

    def variants(self) -> dict[str, Self]:
        """The same trained method with other settings that the audit's page compares it with."""
        return {}

    def notices(self) -> tuple[str, ...]:
        """Warnings for the run's card, beyond those of every method."""
        return ()

    def about(self) -> dict[str, Any]:
        """Settings as plain values, for config.json."""
        return self.settings.as_dict()

    def made_with(self) -> dict[str, Any]:
        """What it was trained with, for config.json and for results."""
        return {"preset": self.preset, "seed": self.seed, "settings": self.about()}

    # What a method writes.

    @abstractmethod
    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        """Learns from windows in standard units; what is learnt ends in `_`."""

    @abstractmethod
    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        """New signal (n, channels, length) in standard units; a strength not given is absent."""

    def _begin(
        self, windows: Windows, keep: str | Sequence[str], hide: str | Sequence[str]
    ) -> Windows:
        """All of `fit` but `_fit`: check, learn what every method learns, standardise."""
        policy = Policy.of(keep, hide)
        self._check_windows(windows)
        policy.check(windows)
        self._check_abilities(policy)
        self.policy_ = policy
        self.origin_ = windows.origin
        self.shape_, self.complex_ = windows.shape, windows.is_complex
        self.sample_rate_, self.channels_ = windows.sample_rate, windows.channels
        self.classes_ = {name: tuple(windows.classes[name]) for name in windows.attributes}
        self.scaling_ = self._make_scaling(windows)
        self.metrics_: dict[str, Any] = {"windows": len(windows)}
        self.made_: dict[str, Any] = {}  # the conditions of training, once it is a run
        return self._standard(windows)

    @property
    def hook_shape(self) -> tuple[int, ...]:
        """The shape of one window as hooks see it: a complex channel is two real ones."""
        pairs = 2 if self.complex_ else 1
        return (self.shape_[0] * pairs, *self.shape_[1:])

    def _make_scaling(self, windows: Windows) -> Scaling:
        """The statistics of standard units; per channel over the training windows."""
        return Scaling.of(windows)

    def _standard(self, windows: Windows) -> Windows:
        """Windows as hooks see them."""
        return windows.standardized(self.scaling_)

    def _add_hidden(self, windows: Windows, attribute: str) -> None:
        """Learns to hide one attribute more, in a copy that shares all else with the old one."""
        raise NotImplementedError

    def _condition(self, windows: Windows) -> np.ndarray | None:
        """The method's own condition or code, or None where it has none."""
        return None

    def _membership_scores(self, windows: Windows) -> np.ndarray | None:
        """Minus the logarithm of each window's loss, with the same noise for every seed, or None."""
        return None

    def _state(self) -> dict[str, np.ndarray]:
        """What was learnt beyond the base's own, as arrays for model.safetensors."""
        return {}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes back what `_state` gave; the base's own is there already."""
        if state:
            raise Refusal(f"{self.name} has no learnt arrays, but the file holds {min(state)}")

    # Checks.

    def _check_fitted(self) -> None:
        if not hasattr(self, "policy_"):
            raise Refusal(f"{self.name} has learnt nothing yet; call fit first")

    def _check_windows(self, windows: Windows) -> None:
        if not isinstance(windows, Windows):
            raise Refusal(
                f"{self.name} takes Windows, such as `.train` or `.test` of a split,"
                f" not {type(windows).__name__}"
            )
        if len(windows) == 0:
            raise Refusal("there are no windows")
        if modality(windows) not in self.capabilities.modalities:
            raise Refusal(
                f"{self.name} cannot take {modality(windows)} windows;"
                f" it takes {', '.join(self.capabilities.modalities)}"
            )
        if not np.isfinite(windows.store).all():
            raise Refusal("the windows hold NaN or infinite values; repair or leave them out")

    def _check_alike(self, windows: Windows) -> None:
        self._check_windows(windows)
        own = (self.shape_, self.complex_, self.sample_rate_, self.channels_)
        if (windows.shape, windows.is_complex, windows.sample_rate, windows.channels) != own:
            raise Refusal(
                f"windows of shape {windows.shape} at {windows.sample_rate:g} Hz"
                f" ({', '.join(windows.channels)}) do not fit a run trained on {self.shape_} at"
                f" {self.sample_rate_:g} Hz ({', '.join(self.channels_)})"
            )

    def _check_abilities(self, policy: Policy) -> None:
        able = self.capabilities
        clash = set(policy.hide) & set(able.strengths)
        if clash:
            raise Refusal(f"attribute '{min(clash)}' has the name of a strength; rename it")
        for names, several, what in (
            (policy.keep, able.several_keeps, "keeps"),
            (policy.hide, able.several_hides, "hides"),
        ):
            if len(names) > 1 and not several:
                raise Refusal(f"{self.name} {what} one attribute; {', '.join(names)} were named")

    def _strength_arrays(self, strength: Strength, count: int) -> dict[str, np.ndarray]:
        """Each strength as an array with one finite number a window."""
        given = {}
        for name, value in strength.items():
            if name not in self.strength_names():
                raise refuse_unknown(f"strength of {self.name}", name, self.strength_names())
            numbers = np.asarray(value, dtype=np.float64)
            if not np.isfinite(numbers).all() or numbers.shape not in ((), (count,)):
                raise Refusal(f"strength '{name}' must be one finite number, or one a window")
            given[name] = np.broadcast_to(numbers, (count,))
        return given


def reconstruction_scores(windows: Windows, made: np.ndarray) -> np.ndarray:
    """Minus the logarithm of the mean squared error of each window that was made again, (n,).

    >>> windows = Windows.from_signal(np.zeros((2, 1, 4)))
    >>> reconstruction_scores(windows, np.full((2, 1, 4), np.exp(-1.0))).round(4).tolist()
    [2.0, 2.0]
    """
    rest = tuple(range(1, made.ndim))
    errors = np.square(made - windows.signal, dtype=np.float64).mean(rest)
    return np.asarray(-np.log(np.maximum(errors, 1e-30)))


def _fresh() -> np.ndarray:
    """128 bits of the operating system, laid out as numpy takes them fastest."""
    return np.frombuffer(secrets.token_bytes(16), np.uint32)


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise Refusal(f"the seed is {seed}; it must be 0 or more")


def modality(windows: Windows) -> str:
    """signal, complex or image."""
    if windows.is_complex:
        return "complex"
    return "image" if len(windows.shape) == 3 else "signal"
