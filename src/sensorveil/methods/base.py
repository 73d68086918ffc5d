"""The contract that every method fulfils: fit, obfuscate, capabilities, presets, strengths."""

from __future__ import annotations

import copy
import math
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Self, final

import numpy as np

from sensorveil.data.windows import Scaling, Windows
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.methods.policy import Policy
from sensorveil.nets.courses import Checkpoint

Strength = Mapping[str, float | np.ndarray]
"""Knobs by name, each one number for all windows or an array with one number a window."""


@dataclass(frozen=True)
class Capabilities:
    """What a method can do; the conformance suite holds it to this record."""

    several_keeps: bool = True
    several_hides: bool = True
    strengths: Mapping[str, str] = field(default_factory=dict)
    """Knobs that obfuscation takes without training again, with what they mean."""
    strength_per_hidden: bool = False
    """Whether each hidden attribute's name is a knob too."""
    new_hide_without_generator: bool = False
    """Whether a new hidden attribute can be added without training the generator again."""
    needs_wearer: bool = False
    """Whether obfuscation must be given the wearer's true hidden labels."""
    random: bool = True
    """Whether two obfuscations of one window differ."""
    emits_donors: bool = False
    """Whether the output consists of training people's own windows."""
    looks_back: bool = False
    """Whether earlier windows of a recording have their part in the output of later ones."""
    modalities: tuple[str, ...] = ("signal", "complex", "image")
    streams: bool = True
    exports: bool = False


@dataclass(frozen=True)
class Settings:
    """Parameters of a method; each method adds its own, with defaults and limits (`check`)."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise Refusal(f"setting '{name}' is {value}; it must be a finite number")
        self.check()

    def check(self) -> None:
        """Refuses values that make no sense."""

    def require(self, holds: bool, name: str, limit: str) -> None:
        """Refuses the setting `name` unless its limit holds."""
        if not holds:
            raise Refusal(f"setting '{name}' is {getattr(self, name)}; it must be {limit}")


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
    checkpoint: Checkpoint | None = None
    """Where `_fit` may keep what it has while it is under way."""

    def __init__(
        self, preset: str = "fast", seed: int = 0, device: str = "cpu", **settings: Any
    ) -> None:
        if preset not in self.presets:
            raise refuse_unknown(f"preset of {self.name}", preset, list(self.presets))
        known = {entry.name for entry in fields(self.Settings)}
        for given in settings:
            if given not in known:
                raise refuse_unknown(f"setting of {self.name}", given, sorted(known))
        _check_seed(seed)
        self.preset = preset
        self.seed = seed
        self.device = device
        self.settings = self.Settings(**{**self.presets[preset], **settings})

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
        policy = Policy.of(keep, hide)
        self._check_windows(windows)
        policy.check(windows)
        self._check_abilities(policy)
        started = time.perf_counter()
        self.policy_ = policy
        self.origin_ = windows.origin
        self.shape_, self.complex_ = windows.shape, windows.is_complex
        self.sample_rate_, self.channels_ = windows.sample_rate, windows.channels
        self.classes_ = {name: tuple(windows.classes[name]) for name in windows.attributes}
        self.scaling_ = Scaling.of(windows)
        self.metrics_: dict[str, Any] = {"windows": len(windows)}
        self.made_: dict[str, Any] = {}  # the conditions of training, once it is a run
        self.checkpoint = checkpoint
        try:
            self._fit(windows.scaled(self.scaling_), np.random.default_rng(self.seed))
        finally:
            self.checkpoint = None
        self.metrics_["seconds"] = round(time.perf_counter() - started, 3)
        return self

    @final
    def obfuscate(
        self, windows: Windows, strength: Strength | None = None, seed: int | None = None
    ) -> Windows:
        """Safer windows of the same number, order, shape, rate and scale.

        Without a seed the noise comes from the operating system, as it should wherever data is
        released: who knows the seed can repeat the noise and take it out again.
        """
        self._check_fitted()
        self._check_alike(windows)
        if seed is not None:
            _check_seed(seed)
        knobs = self._knobs(strength or {}, len(windows))
        generator = np.random.default_rng(_fresh() if seed is None else seed)
        signal = self._obfuscate(windows.scaled(self.scaling_), knobs, generator)
        with np.errstate(over="ignore"):
            hidden = windows.replaced(self.scaling_.undo(signal))
        if not np.isfinite(hidden.store).all():  # nothing leaves rather than something broken
            named = ", ".join(f"'{name}'" for name in knobs) or "settings"
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
        for name in (*more.policy_.keep, attribute):
            if tuple(windows.classes[name]) != self.classes_.get(name):
                raise Refusal(f"attribute '{name}' has other classes than in this run's training")
        more.metrics_ = dict(self.metrics_)
        more._add_hidden(windows.scaled(self.scaling_), attribute)
        return more

    @final
    def condition(self, windows: Windows) -> np.ndarray | None:
        """What the method makes its output from, (n, numbers), where it has such a bottleneck.

        Nobody learns more from the output than from this and fresh noise, so an attacker who is
        fully informed is given it.
        """
        self._check_fitted()
        return self._condition(windows.scaled(self.scaling_))

    def strength_names(self) -> tuple[str, ...]:
        """The knobs that this fitted method takes."""
        self._check_fitted()
        hidden = self.policy_.hide if self.capabilities.strength_per_hidden else ()
        return (*self.capabilities.strengths, *hidden)

    def needs_wearer(self) -> bool:
        """Whether obfuscation must be given the wearer's true hidden labels."""
        return self.capabilities.needs_wearer

    def variants(self) -> dict[str, Self]:
        """The same trained method with other settings that belong beside it on the audit's page."""
        return {}

    def notices(self) -> tuple[str, ...]:
        """What the run's card must say beside what it says of every method."""
        return ()

    def about(self) -> dict[str, Any]:
        """Settings as plain values, for config.json."""
        return asdict(self.settings)

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
        """New signal (n, channels, length) in standard units; a knob not given is absent."""

    def _add_hidden(self, windows: Windows, attribute: str) -> None:
        """Learns to hide one attribute more, in a copy that shares all else with the old one."""
        raise NotImplementedError

    def _condition(self, windows: Windows) -> np.ndarray | None:
        """The method's own condition or code, or None where it has none."""
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
        for names, several, what in (
            (policy.keep, able.several_keeps, "keeps"),
            (policy.hide, able.several_hides, "hides"),
        ):
            if len(names) > 1 and not several:
                raise Refusal(f"{self.name} {what} one attribute; {', '.join(names)} were named")

    def _knobs(self, strength: Strength, count: int) -> dict[str, np.ndarray]:
        """Each knob as an array with one finite number a window."""
        knobs = {}
        for name, value in strength.items():
            if name not in self.strength_names():
                raise refuse_unknown(f"strength of {self.name}", name, self.strength_names())
            numbers = np.asarray(value, dtype=np.float64)
            if not np.isfinite(numbers).all() or numbers.shape not in ((), (count,)):
                raise Refusal(f"strength '{name}' must be one finite number, or one a window")
            knobs[name] = np.broadcast_to(numbers, (count,))
        return knobs


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
