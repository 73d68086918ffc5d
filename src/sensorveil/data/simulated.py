"""Simulated gait, Wi-Fi and images of people, with the true values behind every window."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from itertools import product
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from sensorveil.data.corpus import Corpus, apply_protocol
from sensorveil.data.dataset import Dataset
from sensorveil.data.population import Attribute, Population, Truth
from sensorveil.data.protocol import Protocol
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.errors import Refusal

# The strongest effects keep every signal below half its rate, and every posterior computable.
_LIMITS = {"identity": (0.0, 3.0), "jitter": (0.01, 3.0), "noise": (0.0, 1.0)}
_EFFECT = (0.0, 10.0)
_SHARE = (0.0, 1.0)
_COUNTS = {"people": 2, "recordings": 1, "windows": 1, "seed": 0}
_DEFAULTS = {"recordings": 2, "jitter": 1.0, "noise": 0.02, "seed": 0}
Physical = Mapping[str, np.ndarray]
"""Each parameter in its own units, (recordings, windows)."""


class Simulation(Dataset):
    """What the simulated datasets share: options, the truth, and a protocol with the options.

    A recording is a sequence of segments of exactly one window, each drawn from its own values, so
    a window has one truth. `load("simulated", **options)` gives the windows, and
    `Simulated(**options).truth` the values behind them: same options and seed, same data.

    Parameters
    ----------
    people, recordings, windows : int
        How many people, recordings of each person and activity, windows of each recording.
    identity, jitter : float
        How much people, and windows of one person, differ (see `population`).
    noise : float, default 0.02
        The sensor's noise, in the signal's units.
    seed : int, default 0
        The seed.
    **options
        The strength of each attribute, by its name, and the share of people with the second class
        of one (`male`, `light`).

    Examples
    --------
    >>> simulation = Simulated(people=12, gender=3.0, windows=5)
    >>> simulation.truth.values.shape, simulation.truth.population.parameters[:2]
    ((480, 5), ('cadence', 'intensity'))
    """

    parameters: ClassVar[Mapping[str, tuple[float, float]]]
    """For each parameter the value of an average person, and how much one unit adds."""
    attributes: ClassVar[tuple[Attribute, ...]]
    shares: ClassVar[Mapping[str, str]] = {}
    """Options that are the share of people with the second class of an attribute."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.options = {name: self._checked(name, v) for name, v in self.options.items()}

    def _checked(self, name: str, value: Any) -> float:
        where = f"{self.name}: option '{name}' is {value!r}"
        if name in _COUNTS:
            if isinstance(value, bool) or not isinstance(value, Integral) or value < _COUNTS[name]:
                raise Refusal(f"{where}; it must be a whole number from {_COUNTS[name]} on")
            return int(value)
        low, high = _SHARE if name in self.shares else _LIMITS.get(name, _EFFECT)
        number = float(value) if isinstance(value, Real) else math.nan
        if isinstance(value, bool) or not low <= number <= high:
            raise Refusal(f"{where}; it must be a number from {low:g} to {high:g}")
        return number

    def locate(self, source: Path | None = None) -> Path:
        """There is no place: the data is made."""
        if source is not None:
            raise Refusal(f"{self.name} is made by a program and has no files; leave --from out")
        return Path()

    def corpus(self, source: Path | None = None) -> Corpus:
        """Its recordings by its protocol, made anew."""
        return apply_protocol(self.protocol(), self.read(self.locate(source)))

    def protocol(self) -> Protocol:
        """The packaged protocol; its digest differs where any option does."""
        return super().protocol().model_copy(update={"options": self.options})

    @cached_property
    def truth(self) -> Truth:
        """The people, and the values behind each window."""
        options, protocol = self.options, self.protocol()
        people, per_recording = options["people"], options.get("windows", 1)
        population = Population.draw(
            tuple(self.parameters),
            self.attributes,
            {attribute.name: options[attribute.name] for attribute in self.attributes},
            people=people,
            identity=options["identity"],
            jitter=options["jitter"],
            rng=self._rng(0),
            shares={attribute: options[name] for name, attribute in self.shares.items()},
        )
        shown = [a for a in self.attributes if not a.of_person]
        counts = (people, *(len(a.classes) for a in shown), options["recordings"])
        grid = np.indices((*counts, per_recording)).reshape(len(counts) + 1, -1)
        labels = {"subject": grid[0]}
        labels |= {name: codes[grid[0]] for name, codes in population.codes.items()}
        labels |= {a.name: codes for a, codes in zip(shown, grid[1:-2], strict=True)}
        jitter = self._rng(1).standard_normal((grid.shape[1], len(self.parameters)))
        effects = population.centres({n: codes for n, codes in labels.items() if n != "subject"})
        return Truth(
            population=population,
            recordings=_names(people, shown, options["recordings"]),
            per_recording=per_recording,
            length=protocol.window.length,
            digest=protocol.digest,
            values=effects + population.deviations[grid[0]] + options["jitter"] * jitter,
            labels=labels,
        )

    def read(self, source: Path) -> Recordings:
        """Makes all recordings; there is nothing at `source`."""
        truth, protocol = self.truth, super().protocol()
        values = truth.values.reshape(len(truth.recordings), truth.per_recording, -1)
        units = zip(self.parameters.items(), np.moveaxis(values, -1, 0), strict=True)
        physical = {name: base + unit * value for (name, (base, unit)), value in units}
        signals = self.render(physical, protocol, self._rng(2))
        signals += self.options["noise"] * _white(signals, self._rng(3))
        codes = {name: code[:: truth.per_recording] for name, code in truth.labels.items()}
        items = tuple(
            Recording(
                name,
                _person(codes["subject"][i], truth.population.size),
                signals[i],
                {a.name: a.classes[codes[a.name][i]] for a in self.attributes},
            )
            for i, name in enumerate(truth.recordings)
        )
        return Recordings(items, tuple(c.name for c in protocol.channels), protocol.sample_rate)

    @abstractmethod
    def render(self, physical: Physical, protocol: Protocol, rng: Generator) -> np.ndarray:
        """Signals (recordings, channels, ...) without noise, from parameters in physical units.

        Only phases and the like are drawn from `rng`.
        """

    def _rng(self, purpose: int) -> Generator:
        """One stream of random numbers a purpose, so that no option shifts the draws of another."""
        return np.random.default_rng([self.options["seed"], purpose])


class Simulated(Simulation):
    """Gait: acceleration up and forward (g) and angular velocity (rad/s) of a phone in a pocket."""

    name = "simulated"
    parameters: ClassVar[Mapping[str, tuple[float, float]]] = {
        "cadence": (math.log(1.9), 0.05),  # log of cycles a second
        "intensity": (math.log(0.3), 0.12),  # log of the root mean square up, in g
        "harmonic": (math.log(0.6), 0.12),  # log of the second harmonic's part of the first
        "tilt": (0.6, 0.06),  # radians between up and gravity
        "sway": (math.log(3.0), 0.12),  # log of rad/s turned per g
    }
    attributes = (
        Attribute(
            "activity",
            {
                "downstairs": {"cadence": -0.5, "intensity": 0.5},
                "upstairs": {"cadence": -0.5, "intensity": -0.5},
                "walking": {"cadence": 0.5, "intensity": -0.5},
                "jogging": {"cadence": 0.5, "intensity": 0.5},
            },
            of_person=False,
        ),
        Attribute(
            "gender",
            {
                "female": {"cadence": 0.3, "harmonic": 0.4},
                "male": {"cadence": -0.3, "harmonic": -0.4},
            },
        ),
        Attribute(
            "weight",
            {
                "light": {"intensity": -0.6, "tilt": -0.8},
                "medium": {},
                "heavy": {"intensity": 0.6, "tilt": 0.8},
            },
        ),
    )
    shares: ClassVar[Mapping[str, str]] = {"male": "gender"}
    defaults: ClassVar[Mapping[str, float]] = {
        **_DEFAULTS,
        "people": 40,
        "windows": 20,
        "activity": 6.0,
        "gender": 2.0,
        "weight": 1.5,
        "identity": 0.7,
        "male": 0.5,
    }

    def render(self, physical: Physical, protocol: Protocol, rng: Generator) -> np.ndarray:
        """Two harmonics whose phase runs on through the whole recording, on top of gravity."""
        each = {name: value[..., None] for name, value in physical.items()}
        phase = _phase(np.exp(physical["cadence"]), protocol, rng)
        ratio = np.exp(each["harmonic"])
        # Divided so that the intensity is the root mean square whatever the harmonic.
        level = np.exp(each["intensity"]) / np.sqrt((1 + ratio**2) / 2)
        up = np.cos(each["tilt"]) + level * (np.sin(phase) + ratio * np.sin(2 * phase + 0.8))
        forward = np.sin(each["tilt"]) + 0.5 * level * (
            np.cos(phase + 0.4) + ratio * np.cos(2 * phase)
        )
        turn = np.exp(each["sway"] + each["intensity"]) * np.sqrt(2) * np.sin(phase + 1.0)
        return np.stack([up, forward, turn], axis=1).reshape(len(up), 3, -1)


class SimulatedCsi(Simulation):
    """WiFi channel state: 3 antennas by 10 subcarriers, a wall's echo and one moving body."""

    name = "simulated-csi"
    parameters: ClassVar[Mapping[str, tuple[float, float]]] = {
        "doppler": (math.log(1.5), 0.06),  # log of turns of the moving path's phase a second
        "reach": (math.log(0.3), 0.12),  # log of the moving path's amplitude; the direct one has 1
        "delay": (1.2, 0.08),  # radians that it lags from subcarrier to subcarrier
        "angle": (0.8, 0.08),  # radians that it lags from antenna to antenna
        "echo": (math.log(0.4), 0.12),  # log of the echo's amplitude
    }
    attributes = (
        Attribute(
            "activity",
            {
                "breathing": {"doppler": -0.5, "reach": -0.5},
                "waving": {"doppler": 0.5, "reach": -0.5},
                "bending": {"doppler": -0.5, "reach": 0.5},
                "walking": {"doppler": 0.5, "reach": 0.5},
            },
            of_person=False,
        ),
        Attribute(
            "room",
            {"office": {"echo": 0.4, "delay": 0.3}, "corridor": {"echo": -0.4, "delay": -0.3}},
            of_person=False,
        ),
    )
    defaults: ClassVar[Mapping[str, float]] = {
        **_DEFAULTS,
        "people": 20,
        "windows": 10,
        "activity": 6.0,
        "room": 2.0,
        "identity": 1.5,
    }

    def render(self, physical: Physical, protocol: Protocol, rng: Generator) -> np.ndarray:
        """Direct path, echo and moving path added, as the antennas and subcarriers see them."""
        antenna, carrier = np.indices((3, 10)).reshape(2, 30)
        each = {name: value[..., None] for name, value in physical.items()}
        moving = np.exp(1j * _phase(np.exp(physical["doppler"]), protocol, rng))
        lag = each["delay"] * carrier + each["angle"] * antenna
        gain = np.exp(each["reach"] - 1j * lag).astype(np.complex64)
        still = (1 + np.exp(each["echo"] - 0.5j * carrier)).astype(np.complex64)
        # (recordings, windows, channels, samples of one window), then the middle two swapped.
        parts = moving[:, :, None].astype(np.complex64) * gain[..., None] + still[..., None]
        return np.moveaxis(parts, 2, 1).reshape(len(parts), 30, -1)


class SimulatedImages(Simulation):
    """Small images of one blob: `shape` is what it shows, `tone` is the person's."""

    name = "simulated-images"
    parameters: ClassVar[Mapping[str, tuple[float, float]]] = {
        "aspect": (0.0, 0.12),  # log of width to height
        "size": (math.log(2.5), 0.06),  # log of the blob's spread in pixels
        "brightness": (0.0, 0.1),  # log of the blob's peak
        "backdrop": (0.3, 0.03),  # what lies behind it
    }
    attributes = (
        Attribute(
            "shape",
            {"tall": {"aspect": -1.0}, "round": {}, "wide": {"aspect": 1.0}},
            of_person=False,
        ),
        Attribute(
            "tone",
            {
                "dark": {"brightness": -0.4, "size": -0.3},
                "light": {"brightness": 0.4, "size": 0.3},
            },
        ),
    )
    shares: ClassVar[Mapping[str, str]] = {"light": "tone"}
    defaults: ClassVar[Mapping[str, float]] = {
        **_DEFAULTS,
        "people": 100,
        "recordings": 4,
        "shape": 4.0,
        "tone": 3.0,
        "identity": 0.7,
        "light": 0.5,
    }

    def render(self, physical: Physical, protocol: Protocol, rng: Generator) -> np.ndarray:
        """A Gaussian blob near the middle, on an even backdrop."""
        value = {name: v[:, 0, None, None] for name, v in physical.items()}
        length = protocol.window.length
        row, column = np.indices((length, length))
        across, down = rng.uniform(-1.5, 1.5, (2, len(value["size"]), 1, 1)) + length / 2
        wide = np.exp(value["size"] + value["aspect"] / 2)
        high = np.exp(value["size"] - value["aspect"] / 2)
        distance = ((column - across) / wide) ** 2 + ((row - down) / high) ** 2
        image = value["backdrop"] + np.exp(value["brightness"] - distance / 2)
        return image[:, None]


def _phase(turns: np.ndarray, protocol: Protocol, rng: Generator) -> np.ndarray:
    """A phase that starts anywhere and runs on through the windows at so many turns a second.

    Turns are (recordings, windows), the phase is (recordings, windows, samples).
    """
    start = rng.uniform(0, 2 * np.pi, (len(turns), 1))
    steps = np.repeat(turns, protocol.window.length, axis=1) * (2 * np.pi / protocol.sample_rate)
    return (start + np.cumsum(steps, axis=1)).reshape(*turns.shape, protocol.window.length)


def _white(like: np.ndarray, rng: Generator) -> np.ndarray:
    """White noise of spread 1, in both parts where the signal is complex."""
    noise = rng.standard_normal(like.shape, np.float32)
    if np.iscomplexobj(like):
        return noise + 1j * rng.standard_normal(like.shape, np.float32)
    return noise


def _person(index: int, people: int) -> str:
    return f"{index + 1:0{len(str(people))}d}"


def _names(people: int, shown: list[Attribute], recordings: int) -> tuple[str, ...]:
    """One name a recording, in the order of the truth."""
    persons = [_person(index, people) for index in range(people)]
    numbers = [str(number + 1) for number in range(recordings)]
    shows = [attribute.classes for attribute in shown]
    return tuple("-".join(parts) for parts in product(persons, *shows, numbers))
