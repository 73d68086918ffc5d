"""The linear classifier: ridge regression as scikit-learn has it, and probabilities that hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss

from sensorveil.audit.linear import LinearClassifier
from sensorveil.data.windows import UNKNOWN


def made(count: int, seed: int, noise: float = 1.0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Features of two attributes on scales of their own; the last one is constant."""
    rng = np.random.default_rng(seed)
    gender, age = rng.integers(2, size=count), rng.integers(3, size=count)
    directions = np.random.default_rng(99).normal(size=(5, 8))
    hot = np.hstack([np.eye(2)[gender], np.eye(3)[age]])
    features = hot @ directions + noise * rng.normal(size=(count, 8))
    return np.hstack([features * 10.0 ** np.arange(-4, 4), np.full((count, 1), 7.0)]), {
        "gender": gender,
        "age": age,
    }


CLASSES = {"gender": 2, "age": 3}


def ridge_scores(features: np.ndarray, codes: np.ndarray, test: np.ndarray, shrinkage: float):
    """scikit-learn's ridge regression on standard units of what varies."""
    mean, deviation = features.mean(0), features.std(0)
    varies = deviation > 0
    x, z = (((f - mean) / np.where(varies, deviation, 1))[:, varies] for f in (features, test))
    hot = np.eye(codes.max() + 1)[codes]
    return Ridge(alpha=shrinkage).fit(x, hot).predict(z) - hot.mean(0)


def test_scores_are_those_of_scikit_learns_ridge() -> None:
    """With one of the shrinkages tried; log-odds are proportional to the scores."""
    features, labels = made(400, 0)
    test, _ = made(100, 1)
    model = LinearClassifier().fit(features, labels, CLASSES, np.arange(400))
    for name, log_proba in model.predict_log_proba(test).items():
        codes = labels[name]
        prior = np.bincount(codes) / len(codes)
        own = log_proba - np.log(prior)
        own -= own.mean(1, keepdims=True)
        size = len(features) * 8 / 9  # the mean eigenvalue: one feature of nine is constant
        fits = []
        for shrinkage in np.logspace(-3, 3, 13):
            wanted = ridge_scores(features, codes, test, shrinkage * size)
            wanted -= wanted.mean(1, keepdims=True)
            scale = (wanted * own).sum() / (wanted**2).sum()
            fits.append(np.abs(own - scale * wanted).max() / np.abs(own).max())
        assert min(fits) < 1e-3, name


def test_probabilities_are_calibrated() -> None:
    """The right class has the probability that it is said to have, on windows not seen."""
    features, labels = made(3000, 2, noise=2.0)
    test, truth = made(6000, 3, noise=2.0)
    model = LinearClassifier().fit(features, labels, CLASSES, np.arange(3000))
    for name, log_proba in model.predict_log_proba(test).items():
        shares = np.exp(log_proba)
        np.testing.assert_allclose(shares.sum(1), 1, atol=1e-9)
        best = shares.max(1)
        right = shares.argmax(1) == truth[name]
        for low, high in ((0.4, 0.6), (0.6, 0.8), (0.8, 1.0)):
            here = (best > low) & (best <= high)
            if here.sum() > 200:
                assert right[here].mean() == pytest.approx(best[here].mean(), abs=0.06)
        constant = np.tile(np.bincount(labels[name]) / 3000, (6000, 1))
        assert log_loss(truth[name], shares) < log_loss(truth[name], constant)


def test_groups_are_left_out_together() -> None:
    """Windows of one recording are alike: left out one by one, noise would look like knowledge."""
    rng = np.random.default_rng(4)
    recording = np.repeat(np.arange(40), 20)
    codes = (np.arange(40) % 2)[recording]
    features = rng.normal(size=(40, 60))[recording] + 0.1 * rng.normal(size=(800, 60))

    def surest(groups: np.ndarray) -> float:
        model = LinearClassifier().fit(features, {"gender": codes}, {"gender": 2}, groups)
        fresh = rng.normal(size=(500, 60))
        return float(np.exp(model.predict_log_proba(fresh)["gender"]).max(1).mean())

    assert surest(recording) < 0.6 < surest(np.arange(800))


def test_unknown_classes_are_left_out() -> None:
    features, labels = made(600, 5)
    test, truth = made(300, 6)
    shown = labels["age"].copy()
    shown[200:] = UNKNOWN
    model = LinearClassifier().fit(features, {"age": shown}, {"age": 3}, np.arange(600))
    assert (model.predict_log_proba(test)["age"].argmax(1) == truth["age"]).mean() > 0.6
    absent = np.where(labels["age"] == 1, UNKNOWN, labels["age"])
    model = LinearClassifier().fit(features, {"age": absent}, {"age": 3}, np.arange(600))
    assert model.predict_log_proba(test)["age"][:, 1].max() < -15


def test_tensors_and_arrays_give_the_same_and_one_group_will_do() -> None:
    features, labels = made(200, 7)
    one_group = np.zeros(200, int)
    first = LinearClassifier().fit(features, labels, CLASSES, one_group)
    tensor = torch.from_numpy(features)
    second = LinearClassifier().fit(tensor, labels, CLASSES, one_group)
    for name, found in first.predict_log_proba(features).items():
        np.testing.assert_allclose(found, second.predict_log_proba(tensor)[name], atol=1e-6)
        assert (found.argmax(1) == labels[name]).mean() > 0.6
