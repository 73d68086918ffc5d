"""Simulated people whose truth is known, and the best accuracy that any attacker can reach.

A simulated window is drawn from a short vector of named parameters (cadence, intensity, ...),

    values = effect of each attribute's class + the person's own deviation + the window's jitter,

in units in which deviation and jitter are Gaussian with the same spread along every parameter:
N(0, identity^2) and N(0, jitter^2). At strength 1, neighbouring classes of an attribute lie one
unit apart, so at jitter 1 a strength reads as the d' of one window, the distance of two classes in
standard deviations. The mean of k windows of a person is a sufficient statistic, and its spread is
sqrt(identity^2 + jitter^2 / k): for two equally frequent classes and no other effect,
d' = strength / spread, and the best accuracy is Phi(d' / 2).

A signal is made from the values, a random phase and noise alone, so it holds no more information
than the values: the accuracies here bound every attacker from above who was trained on other people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal, refuse_unknown


@dataclass(frozen=True)
class Attribute:
    """An attribute of simulated data.

    Parameters
    ----------
    name : str
        Its name.
    places : mapping
        The effect of each class on the parameters, at strength 1.
    of_person : bool, default True
        Whether it belongs to the person (gender) or to the recording (activity).
    """

    name: str
    places: Mapping[str, Mapping[str, float]]
    of_person: bool = True

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their codes."""
        return tuple(self.places)


class BestAccuracy(NamedTuple):
    """The best possible accuracy, by Monte Carlo, and its standard error."""

    accuracy: float
    error: float


@dataclass(frozen=True, eq=False)
class Population:
    """Simulated people with attributes.

    Parameters
    ----------
    parameters : tuple of str
        The names of the parameters of a window.
    attributes : tuple of Attribute
        The attributes.
    strengths : mapping of str to float
        How strong the effect of each attribute is.
    identity, jitter : float
        The standard deviations of people and of windows along every parameter.
    codes : mapping of str to array of shape (people,)
        Each person's class of each attribute of the person.
    deviations : array of shape (people, parameters)
        How each person differs from others of the same classes.

    Examples
    --------
    >>> gender = Attribute("gender", {"female": {"cadence": 0.5}, "male": {"cadence": -0.5}})
    >>> people = Population.draw(
    ...     ("cadence",), (gender,), {"gender": 2.0}, people=40, identity=0.0, jitter=1.0,
    ...     rng=np.random.default_rng(0),
    ... )
    >>> round(people.best_accuracy("gender").accuracy, 2)  # Phi(2 / 2) = 0.841
    0.84
    """

    parameters: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    strengths: Mapping[str, float]
    identity: float
    jitter: float
    codes: Mapping[str, np.ndarray]
    deviations: np.ndarray

    @classmethod
    def draw(
        cls,
        parameters: tuple[str, ...],
        attributes: tuple[Attribute, ...],
        strengths: Mapping[str, float],
        *,
        people: int,
        identity: float,
        jitter: float,
        rng: np.random.Generator,
        shares: Mapping[str, float] | None = None,
    ) -> Population:
        """People as evenly spread over the classes as their number allows.

        `shares` is, for an attribute with two classes, the share of people who have the second.
        """
        deviations = identity * rng.standard_normal((people, len(parameters)))
        codes = _spread_evenly(people, [a for a in attributes if a.of_person], shares or {})
        return cls(parameters, attributes, strengths, identity, jitter, codes, deviations)

    @property
    def size(self) -> int:
        """How many people there are."""
        return len(self.deviations)

    def means(self, attribute: str) -> np.ndarray:
        """The effect of each class, (classes, parameters)."""
        places = self._attribute(attribute).places.values()
        table = [[place.get(name, 0.0) for name in self.parameters] for place in places]
        return self.strengths[attribute] * np.array(table)

    def share(self, attribute: str) -> np.ndarray:
        """How often each class occurs; the largest is the accuracy of the majority baseline."""
        count = len(self._attribute(attribute).classes)
        if attribute in self.codes:
            return np.bincount(self.codes[attribute], minlength=count) / self.size
        return np.full(count, 1 / count)

    def centres(self, labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """The sum of the effects of some attributes' classes, (n, parameters)."""
        return sum(
            (self.means(name)[codes] for name, codes in labels.items()),
            start=np.zeros((1, len(self.parameters))),
        )

    def best_accuracy(
        self, attribute: str, windows: int = 1, *, samples: int = 20_000, seed: int = 0
    ) -> BestAccuracy:
        """The accuracy of the best attacker who sees some windows of one unseen person at once.

        It is the mean of the largest posterior probability.

        Parameters
        ----------
        attribute : str
            The attribute.
        windows : int, default 1
            How many windows; they show one and the same activity.
        samples : int, default 20,000
            How many samples the Monte Carlo estimate takes.
        seed : int, default 0
            The seed of the estimate.
        """
        if windows < 1 or samples < 2:
            raise Refusal(f"{windows} windows, {samples} samples: at least 1 and 2 are needed")
        _, centres, weight = self._mixture()
        rng = np.random.default_rng(seed)
        drawn = centres[rng.choice(len(weight), samples, p=weight)]
        values = drawn + np.sqrt(self._variance(windows)) * rng.standard_normal(drawn.shape)
        top = self.posterior(attribute, values, windows).max(axis=1)
        return BestAccuracy(float(top.mean()), float(top.std(ddof=1) / np.sqrt(samples)))

    def posterior(self, attribute: str, values: np.ndarray, windows: int = 1) -> np.ndarray:
        """The exact posterior probability of each class, (n, classes).

        Each row of `values` is the mean over so many `windows` of one unseen person.
        """
        from scipy.special import softmax

        member = np.eye(len(self._attribute(attribute).classes))
        codes, centres, weight = self._mixture()
        # Bayes' rule; terms that all components share (|values|^2, normalisation) are left out.
        score = values @ centres.T - 0.5 * np.sum(centres**2, axis=1)
        likely = softmax(score / self._variance(windows) + np.log(weight), axis=1)
        return np.asarray(likely @ member[codes[attribute]])

    def _mixture(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """The components of the mixture of all windows: their classes, centres and weights."""
        names = [attribute.name for attribute in self.attributes]
        grid = np.indices([len(attribute.classes) for attribute in self.attributes])
        codes = dict(zip(names, grid.reshape(len(names), -1), strict=True))
        weight = np.prod([self.share(name)[code] for name, code in codes.items()], axis=0)
        codes = {name: code[weight > 0] for name, code in codes.items()}
        return codes, self.centres(codes), weight[weight > 0]

    def _variance(self, windows: int) -> float:
        """Around a component's centre, along each parameter."""
        return self.identity**2 + self.jitter**2 / windows

    def _attribute(self, name: str) -> Attribute:
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise refuse_unknown("attribute", name, [a.name for a in self.attributes])


@dataclass(frozen=True, eq=False)
class Truth:
    """The values behind every window of simulated data.

    Parameters
    ----------
    population : Population
        The people.
    recordings : tuple of str
        The names of the recordings, each with `per_recording` windows of `length` samples.
    per_recording, length : int
        See there.
    digest : str
        That of the protocol, which differs where any option does.
    values : array of shape (windows, parameters)
        The values, recording after recording.
    labels : mapping of str to array of shape (windows,)
        The classes, the person among them as `subject`.
    """

    population: Population
    recordings: tuple[str, ...]
    per_recording: int
    length: int
    digest: str
    values: np.ndarray
    labels: Mapping[str, np.ndarray]

    def rows(self, windows: Windows) -> np.ndarray:
        """The row in `values` of each window, or of the window that it was obfuscated from."""
        digest = self.digest if windows.origin is None else windows.origin.protocol
        here = (self.recordings, self.length, self.digest)
        if (windows.recordings, windows.length, digest) != here:
            raise Refusal("these windows were made with other options than this truth; use theirs")
        if np.any(windows.start % self.length):
            raise Refusal(f"windows must start at multiples of {self.length} to have one truth")
        return windows.recording * self.per_recording + windows.start // self.length

    def posterior(self, windows: Windows, attribute: str) -> np.ndarray:
        """What the best attacker concludes from each window alone, (windows, classes)."""
        return self.population.posterior(attribute, self.values[self.rows(windows)])


def _spread_evenly(
    people: int, attributes: list[Attribute], shares: Mapping[str, float]
) -> dict[str, np.ndarray]:
    """Each attribute's classes dealt evenly among those who share the attributes before it.

    Those with a share come last, so that changing it leaves the others as they were.
    """
    codes: dict[str, np.ndarray] = {}
    for attribute in sorted(attributes, key=lambda a: a.name in shares):
        order = np.lexsort([np.arange(people), *codes.values()])
        dealt = np.empty(people, int)
        if attribute.name in shares:
            second = round(shares[attribute.name] * people)
            dealt[order] = np.diff(np.arange(people + 1) * second // people)
        else:
            dealt[order] = np.arange(people) % len(attribute.classes)
        codes[attribute.name] = dealt
    return codes
