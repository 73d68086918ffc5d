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
than the values: the accuracies here bound every attacker from above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal, refuse_unknown

_CHUNK = 2_000_000  # numbers held at once while posteriors are computed


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


class _Mixture(NamedTuple):
    """The components of the mixture of all windows: their centres, weights and classes."""

    centres: np.ndarray
    weight: np.ndarray
    codes: dict[str, np.ndarray]

    def crossed(self, name: str, means: np.ndarray, share: np.ndarray) -> _Mixture:
        """Each component in every class of one more, independent attribute."""
        codes = {other: np.repeat(code, len(share)) for other, code in self.codes.items()}
        codes[name] = np.tile(np.arange(len(share)), len(self.weight))
        centres = (self.centres[:, None] + means).reshape(-1, means.shape[1])
        return _Mixture(centres, np.outer(self.weight, share).ravel(), codes)


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

    Notes
    -----
    `people` of the methods says which people the attacker was trained on. "unseen": others; the
    frequencies of classes and the spread of people are known, but not this person's deviation.
    "seen": these; each one's deviation is known too. For the attribute `subject`, the person,
    "unseen" means a list of the people and their attributes, but no window of theirs. With `known`
    the attacker knows the class of every window in the attributes of the recording (its activity).

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
        if attribute == "subject":
            return np.full(self.size, 1 / self.size)
        found = self._attribute(attribute)
        count = len(found.classes)
        if found.of_person:
            return np.bincount(self.codes[attribute], minlength=count) / self.size
        return np.full(count, 1 / count)

    def centres(self, labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """The sum of the effects of some attributes' classes, (n, parameters)."""
        return sum(
            (self.means(name)[codes] for name, codes in labels.items()),
            start=np.zeros((1, len(self.parameters))),
        )

    def best_accuracy(
        self,
        attribute: str,
        windows: int = 1,
        people: str = "unseen",
        *,
        known: bool = False,
        samples: int = 20_000,
        seed: int | np.random.Generator = 0,
    ) -> BestAccuracy:
        """The accuracy of the best attacker who sees some windows of one person at once.

        It is the mean of the largest posterior probability.

        Parameters
        ----------
        attribute : str
            The attribute, or `subject`.
        windows : int, default 1
            How many windows; they show one and the same activity, unless it is `known`.
        people : {"unseen", "seen"}, default "unseen"
            Whom the attacker was trained on (see Notes).
        known : bool, default False
            Whether the attacker knows the activity of every window.
        samples : int, default 20,000
            How many samples the Monte Carlo estimate takes.
        seed : int or Generator, default 0
            The seed of the estimate.
        """
        if windows < 1 or samples < 2:
            raise Refusal(f"{windows} windows, {samples} samples: at least 1 and 2 are needed")
        mixture = self._mixture(attribute, people, known)
        rng = np.random.default_rng(seed)
        drawn = rng.choice(len(mixture.weight), samples, p=mixture.weight)
        spread = np.sqrt(self._variance(windows, people))
        noise = rng.standard_normal((samples, len(self.parameters)))
        values = mixture.centres[drawn] + spread * noise
        top = self.posterior(attribute, values, windows, people, known=known).max(axis=1)
        return BestAccuracy(float(top.mean()), float(top.std(ddof=1) / np.sqrt(samples)))

    def posterior(
        self,
        attribute: str,
        values: np.ndarray,
        windows: int | np.ndarray = 1,
        people: str = "unseen",
        *,
        known: bool = False,
    ) -> np.ndarray:
        """The exact posterior probability of each class, (n, classes).

        Each row of `values` is the mean over so many `windows` of one person. With `known`, the
        effect of the attributes of the recording has been subtracted from it.
        """
        mixture = self._mixture(attribute, people, known)
        member = np.eye(len(self.share(attribute)))[mixture.codes[attribute]]
        variance = np.broadcast_to(self._variance(windows, people), len(values))
        step = max(1, _CHUNK // len(mixture.weight))
        parts = [
            _posterior(mixture, member, values[i : i + step], variance[i : i + step])
            for i in range(0, len(values), step)
        ]
        return np.concatenate(parts)

    def _mixture(self, attribute: str, people: str, known: bool) -> _Mixture:
        """The mixture that the attacker must consider."""
        if people not in ("seen", "unseen"):
            raise refuse_unknown("people", people, ["seen", "unseen"])
        if attribute != "subject" and known and not self._attribute(attribute).of_person:
            raise Refusal(
                f"'{attribute}' is among what 'known' gives the attacker; leave 'known' out"
            )
        if people == "seen" or attribute == "subject":
            centres = self.centres(self.codes) + np.zeros_like(self.deviations)
            if people == "seen":
                centres = centres + self.deviations
            codes = {**self.codes, "subject": np.arange(self.size)}
            mixture = _Mixture(centres, self.share("subject"), codes)
            crossing = [a for a in self.attributes if not a.of_person]
        else:
            mixture = _Mixture(np.zeros((1, len(self.parameters))), np.ones(1), {})
            crossing = list(self.attributes)
        for other in crossing:
            if other.of_person or not known:
                mixture = mixture.crossed(
                    other.name, self.means(other.name), self.share(other.name)
                )
        there = mixture.weight > 0
        codes = {name: code[there] for name, code in mixture.codes.items()}
        return _Mixture(mixture.centres[there], mixture.weight[there] / mixture.weight.sum(), codes)

    def _variance(self, windows: int | np.ndarray, people: str) -> Any:
        """Around a component's centre, along each parameter."""
        own = 0.0 if people == "seen" else self.identity**2
        return own + self.jitter**2 / windows

    def _attribute(self, name: str) -> Attribute:
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise refuse_unknown("attribute", name, [*(a.name for a in self.attributes), "subject"])


@dataclass(frozen=True, eq=False)
class Oracle:
    """The best attacker's answer for given windows, or for groups of them.

    Parameters
    ----------
    group : array of shape (n,)
        The numbers of the groups.
    labels : array of shape (n,)
        Their true classes.
    posterior : array of shape (n, classes)
        The posterior probabilities.
    """

    group: np.ndarray
    labels: np.ndarray
    posterior: np.ndarray

    @property
    def prediction(self) -> np.ndarray:
        """The most probable class of each group."""
        return self.posterior.argmax(axis=1)

    @property
    def accuracy(self) -> float:
        """How often the prediction is right on these windows."""
        return float(np.mean(self.prediction == self.labels))

    @property
    def expected(self) -> float:
        """The expected accuracy given the values: the mean of the largest posterior."""
        return float(self.posterior.max(axis=1).mean())


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

    def oracle(
        self,
        windows: Windows,
        attribute: str,
        people: str = "unseen",
        *,
        groups: np.ndarray | None = None,
        known: bool = False,
    ) -> Oracle:
        """The best attacker on these windows, one by one or by groups.

        Parameters
        ----------
        windows : Windows
            Windows of this simulated dataset.
        attribute : str
            The attribute, or `subject`.
        people : {"unseen", "seen"}, default "unseen"
            Whom the attacker was trained on.
        groups : array of shape (windows,), optional
            Windows of one number are seen together; they must be of one person and show one
            activity, unless that is `known`. Default: each window alone.
        known : bool, default False
            Whether the attacker knows the activity of every window.
        """
        rows = self.rows(windows)
        values = self.values[rows]
        shown = [a.name for a in self.population.attributes if not a.of_person]
        if known:
            values = values - self.population.centres({n: self.labels[n][rows] for n in shown})
        given = np.arange(len(rows)) if groups is None else np.asarray(groups)
        if given.shape != rows.shape:
            raise Refusal(f"{len(given)} group numbers are given for {len(rows)} windows")
        group, first, inverse = np.unique(given, return_index=True, return_inverse=True)
        for name in ["subject"] if known else ["subject", *shown]:
            if np.any(self.labels[name][rows] != self.labels[name][rows[first]][inverse]):
                hint = "" if name == "subject" else ", or call with known=True"
                raise Refusal(f"a group mixes windows of several {name} classes; part them{hint}")
        count = np.bincount(inverse)
        mean = np.zeros((len(group), values.shape[1]))
        np.add.at(mean, inverse, values / count[inverse, None])
        posterior = self.population.posterior(attribute, mean, count, people, known=known)
        return Oracle(group, self.labels[attribute][rows[first]], posterior)


def _posterior(
    mixture: _Mixture, member: np.ndarray, values: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """Bayes' rule; terms that all components share (|values|^2, normalisation) are left out."""
    score = values @ mixture.centres.T - 0.5 * np.sum(mixture.centres**2, axis=1)
    score = score / variance[:, None] + np.log(mixture.weight)
    weight = np.exp(score - score.max(axis=1, keepdims=True)) @ member
    return weight / weight.sum(axis=1, keepdims=True)


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
