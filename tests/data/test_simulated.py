"""Simulated data: its signals carry the truth, the truth alone, and nothing beats the oracle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import sensorveil.data
from sensorveil.data import Windows
from sensorveil.data.simulated import Simulated, SimulatedCsi, SimulatedImages, Simulation
from sensorveil.errors import Refusal

ALL = (Simulated, SimulatedCsi, SimulatedImages)


def all_windows(simulation: Simulation) -> Windows:
    protocol = simulation.protocol()
    return simulation.corpus().windows(protocol.window.length, protocol.window.stride)


def gait_estimates(signal: np.ndarray, rate: float = 50.0) -> dict[str, np.ndarray]:
    """Parameters read off windows alone: the best fitting two harmonics on a constant."""
    time = np.arange(signal.shape[-1]) / rate

    def basis(frequency: np.ndarray) -> np.ndarray:
        angle = 2 * np.pi * frequency[:, None] * time
        parts = [np.ones_like(angle)]
        for harmonic in (1, 2):
            parts += [np.cos(harmonic * angle), np.sin(harmonic * angle)]
        return np.stack(parts, axis=-1)

    grid = np.linspace(0.8, 4.5, 260)
    across = np.linalg.qr(basis(grid))[0]
    scaled = signal / signal.std(axis=-1, keepdims=True)
    fit = np.stack([np.sum((scaled @ q) ** 2, axis=(1, 2)) for q in across], axis=1)
    top = fit.argmax(axis=1).clip(1, len(grid) - 2)
    low, middle, high = (fit[np.arange(len(fit)), top + step] for step in (-1, 0, 1))
    frequency = grid[top] + (grid[1] - grid[0]) * 0.5 * (low - high) / (low - 2 * middle + high)
    b = basis(frequency)
    weights = np.linalg.solve(b.mT @ b, b.mT @ signal.mT)  # (windows, 5, channels)
    first, second = (np.hypot(weights[:, i], weights[:, i + 1]) for i in (1, 3))
    intensity = np.log(np.hypot(first[:, 0], second[:, 0]) / math.sqrt(2))
    return {
        "cadence": np.log(frequency),
        "intensity": intensity,
        "harmonic": np.log(second[:, 0] / first[:, 0]),
        "tilt": np.arctan2(weights[:, 0, 1], weights[:, 0, 0]),
        "sway": np.log(first[:, 2] / math.sqrt(2)) - intensity,
    }


def test_signals_carry_their_values() -> None:
    simulation = Simulated(people=12, windows=4)
    windows = all_windows(simulation)
    estimates = gait_estimates(windows.signal)
    parameters = simulation.parameters.items()
    found = np.stack([(estimates[n] - base) / unit for n, (base, unit) in parameters], axis=1)
    truth = simulation.truth.values[simulation.truth.rows(windows)]
    error = np.sqrt(np.mean((found - truth) ** 2, axis=0))
    # One unit is the jitter of a window: what is lost on the way must be small beside it.
    assert np.all(error < 0.3), dict(zip(simulation.parameters, error.round(3), strict=True))


@pytest.mark.parametrize("made", ALL)
def test_labels_and_order_are_those_of_the_truth(made: type[Simulation]) -> None:
    simulation = made(people=6)
    windows, truth = all_windows(simulation), simulation.truth
    assert np.array_equal(truth.rows(windows), np.arange(len(truth.values)))
    for name, codes in truth.labels.items():
        assert np.array_equal(windows.codes(name), codes)
    for attribute in simulation.attributes:
        assert windows.classes[attribute.name] == attribute.classes
    assert windows.is_complex == (made is SimulatedCsi)
    # Its distance from the centre of its classes and person is the jitter alone.
    labels = {name: codes for name, codes in truth.labels.items() if name != "subject"}
    rest = truth.values - truth.population.centres(labels)
    rest = rest - truth.population.deviations[truth.labels["subject"]]
    assert rest.std() == pytest.approx(1.0, abs=4 / np.sqrt(2 * rest.size))


@pytest.mark.parametrize("made", ALL)
@pytest.mark.parametrize("split", ["subject", "recording"])
def test_splits_are_even_and_know_their_truth(made: type[Simulation], split: str) -> None:
    parts = sensorveil.data.load(made.name, split)
    truth = made().truth
    rows = np.concatenate([truth.rows(part) for part in (parts.train, parts.test)])
    assert np.array_equal(np.sort(rows), np.arange(len(truth.values)))
    shared = set(parts.train.subject) & set(parts.test.subject)
    assert bool(shared) == (split == "recording")
    per_person = len(parts.test) / len(np.unique(parts.test.subject))
    for attribute in made.attributes:
        count = np.bincount(parts.test.codes(attribute.name))
        # 40 people do not divide evenly by 4 folds x 2 genders x 3 weights.
        assert np.ptp(count) <= 2 * per_person


def test_nothing_but_its_strength_carries_gender() -> None:
    def signal(**options: float) -> np.ndarray:
        return all_windows(Simulated(people=8, windows=2, **options)).signal

    few, many = (Simulated(people=8, male=share).truth.labels["gender"] for share in (0.25, 0.75))
    assert not np.array_equal(few, many)
    assert np.array_equal(signal(gender=0.0, male=0.25), signal(gender=0.0, male=0.75))
    assert not np.array_equal(signal(gender=1.0, male=0.25), signal(gender=1.0, male=0.75))
    # Whose gender is the same in both has the same signal even so.
    same = np.repeat((few == many).reshape(-1, 20)[:, 0], 2)
    assert np.array_equal(signal(gender=1.0, male=0.25)[same], signal(gender=1.0, male=0.75)[same])


def person_error(right: np.ndarray, subject: np.ndarray) -> float:
    """The standard error of an accuracy where windows of one person are alike."""
    rates = np.array([right[subject == person].mean() for person in np.unique(subject)])
    return float(rates.std(ddof=1) / np.sqrt(len(rates)))


def test_truth_agrees_with_the_best_accuracy() -> None:
    # By many populations: in a single one (seed 0 is such) people's deviations may by chance
    # fall together with their gender, and the truth then tells more than it does on average.
    names = ("activity", "gender", "weight")
    scores = np.empty((12, len(names), 2))
    for seed in range(12):
        simulation = Simulated(people=120, recordings=1, windows=5, activity=3.0, seed=seed)
        windows = all_windows(simulation)
        for number, name in enumerate(names):
            posterior = simulation.truth.posterior(windows, name)
            is_right = posterior.argmax(1) == windows.codes(name)
            scores[seed, number] = is_right.mean(), posterior.max(1).mean()
    for name, found in zip(names, np.moveaxis(scores, 1, 0), strict=True):
        best = simulation.truth.population.best_accuracy(name, samples=20_000)
        error = np.hypot(found.std(0, ddof=1) / math.sqrt(12), best.error)
        assert np.all(np.abs(found.mean(0) - best.accuracy) < 4 * error), name
        assert np.all(error < 0.02)


def test_truth_of_other_options_is_refused() -> None:
    windows = sensorveil.data.load("simulated", people=8, gender=1.0).test
    Simulated(people=8, gender=1.0).truth.rows(windows)
    for other in ({"gender": 2.0}, {"seed": 1}, {"people": 9}):
        with pytest.raises(Refusal, match="other options"):
            Simulated(**({"people": 8, "gender": 1.0} | other)).truth.rows(windows)
    between = Simulated(people=2).corpus().windows(128, 64)
    with pytest.raises(Refusal, match="multiples of 128"):
        Simulated(people=2).truth.rows(between)


def attack(train: Windows, test: Windows, attribute: str) -> np.ndarray:
    """Gaussians around each activity, gender and weight, fitted to what the signals show."""
    known, asked = (
        np.stack(list(gait_estimates(part.signal).values()), axis=1) for part in (train, test)
    )
    names = ("activity", "gender", "weight")
    cells, cell = np.unique(
        np.stack([train.codes(name) for name in names]), axis=1, return_inverse=True
    )
    means = np.stack([known[cell == i].mean(axis=0) for i in range(cells.shape[1])])
    inverse = np.linalg.inv(np.cov((known - means[cell]).T))
    away = asked[:, None] - means
    score = np.exp(-0.5 * np.einsum("ncd,de,nce->nc", away, inverse, away))
    member = np.eye(cells.max() + 1)[cells[names.index(attribute)]]
    return (score @ member).argmax(axis=1)


def test_an_attacker_comes_close_to_the_best_accuracy_on_unseen_people_and_not_beyond() -> None:
    options: dict[str, Any] = {"people": 80, "recordings": 1, "windows": 5}
    for strength in (0.0, 4.0):
        parts = sensorveil.data.load("simulated", gender=strength, **options)
        truth = Simulated(gender=strength, **options).truth
        right = attack(parts.train, parts.test, "gender") == parts.test.codes("gender")
        best = truth.population.best_accuracy("gender").accuracy
        error = person_error(right, parts.test.subject)
        assert right.mean() < best + 3 * error
        by_truth = truth.posterior(parts.test, "gender").argmax(1) == parts.test.codes("gender")
        assert right.mean() < by_truth.mean() + 3 * error
        assert right.mean() > best - max(0.05, 3 * error)
    assert best > 0.9


def test_digest_depends_on_every_option() -> None:
    digest = Simulated().protocol().digest
    assert Simulated(people=40, gender=2).protocol().digest == digest
    changed = {name: 3 if name in ("people", "windows") else 1 for name in Simulated.defaults}
    changed |= {"recordings": 1, "jitter": 2, "seed": 7, "noise": 0.5}
    digests = {Simulated(**{name: value}).protocol().digest for name, value in changed.items()}
    assert len(digests | {digest}) == len(changed) + 1
    parts = sensorveil.data.load("simulated", people=8)
    assert parts.test.origin is not None
    assert parts.test.origin.protocol == Simulated(people=8).protocol().digest


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        (Simulated, {"gendr": 1.0}, "option of simulated 'gendr' is unknown; known: activity, g"),
        (SimulatedImages, {"windows": 3}, "'windows' is unknown; known: identity, jitter, light"),
        (Simulated, {"gender": -0.1}, "'gender' is -0.1; it must be a number from 0 to 10"),
        (Simulated, {"weight": float("inf")}, "'weight' is inf; it must be a number"),
        (Simulated, {"activity": "strong"}, "'activity' is 'strong'; it must be a number"),
        (Simulated, {"jitter": 0.0}, "'jitter' is 0.0; it must be a number from 0.01 to 3"),
        (Simulated, {"male": 1.5}, "'male' is 1.5; it must be a number from 0 to 1"),
        (Simulated, {"people": 1}, "'people' is 1; it must be a whole number from 2 on"),
    ],
)
def test_wrong_options_are_refused(
    made: type[Simulation], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refusal, match=message):
        made(**options)
