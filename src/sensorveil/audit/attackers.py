"""Three families of attackers, and the evidence they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.measures.features import RandomConvolutions, spectral_features
from sensorveil.measures.inference import Classifier, ClassifierSettings
from sensorveil.measures.linear import LinearReader

CNN, CONVOLUTIONS, TREES = "network", "random convolutions", "boosted trees"
FAMILIES = {
    CNN: "four convolutional and three dense layers, as in the papers",
    CONVOLUTIONS: "random convolutions with a linear head",
    TREES: "gradient-boosted trees on spectra and quantiles",
}


@dataclass(frozen=True)
class Budget:
    """How much the attackers may learn from and work; too little is found out by the control."""

    windows: int = 8_000
    network: ClassifierSettings = field(
        default_factory=lambda: ClassifierSettings(width=64, epochs=25, batch=512, rate=3e-3)
    )
    kernels: int = 500
    rounds: int = 100
    families: tuple[str, ...] = tuple(FAMILIES)

    @classmethod
    def quick(cls) -> Budget:
        """For two cores: minutes instead of hours."""
        network = ClassifierSettings(width=16, epochs=8, batch=64, rate=5e-3)
        return cls(windows=3_000, network=network, kernels=300, rounds=40)


class AttackDataset:
    """Training windows and several sets of test windows, with their features worked out once.

    A fully informed attacker is given codes (n, numbers) as well. The output is made from the code
    and noise, so its network and its linear head read the code alone, and its trees read both.
    """

    def __init__(
        self,
        train: Windows,
        tests: Mapping[str, Windows],
        budget: Budget,
        seed: int = 0,
        device: str = "cpu",
        train_code: np.ndarray | None = None,
        test_codes: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        chosen = np.random.default_rng(seed).permutation(len(train))[: budget.windows]
        self.chosen = np.sort(chosen)
        self.train = train.select(self.chosen)
        self.tests = dict(tests)
        self.budget, self.seed, self.device = budget, seed, device
        self._train_code = None if train_code is None else train_code[self.chosen]
        self._test_codes = dict(test_codes or {})

    def prepare(self, family: str) -> None:
        """Works out the features that a family needs, if it was not done before."""
        if family != CNN:
            _ = self._convolved if family == CONVOLUTIONS else self._spectral

    def attack(
        self, family: str, codes: np.ndarray, classes: int, known: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Log-probabilities (n, classes) on each test set by an attacker trained on `codes`.

        `codes` belong to the training windows as they were given; `known` marks the usable ones.
        """
        usable = np.ones(len(codes), bool) if known is None else known
        rows = np.flatnonzero(usable[self.chosen])
        labels = codes[self.chosen][rows]
        if len(np.unique(labels)) < 2:  # too few windows for two classes: nothing can be learnt
            return {n: np.zeros((len(part), classes)) for n, part in self.tests.items()}
        if family == CNN:
            seen, unseen, settings = self._seen()
            model = Classifier(settings, self.seed, self.device)
            model.fit_codes(seen.select(rows), labels, classes)
            return {name: model.log_probabilities(part) for name, part in unseen.items()}
        train, tests = self._convolved if family == CONVOLUTIONS else self._spectral
        read = _linear if family == CONVOLUTIONS else _trees
        return read(train[rows], labels, tests, classes, self)

    def _seen(self) -> tuple[Windows, dict[str, Windows], ClassifierSettings]:
        """What a network reads: windows, or codes by dense layers."""
        if self._train_code is None:
            return self.train, self.tests, self.budget.network
        # Numbers of a code differ in scale, and the windows of a network have one for them all.
        mean, deviation = self._train_code.mean(0), self._train_code.std(0)
        deviation = np.where(deviation > 1e-6, deviation, 1)

        def standard(code: np.ndarray) -> Windows:
            return Windows.from_signal(((code - mean) / deviation)[:, None].astype(np.float32))

        codes = {name: standard(code) for name, code in self._test_codes.items()}
        return standard(self._train_code), codes, replace(self.budget.network, dense=True)

    @cached_property
    def _convolved(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        if self._train_code is not None:
            return self._train_code, self._test_codes
        kernels = RandomConvolutions(self.budget.kernels, self.seed, self.device).fit(self.train)
        tests = {name: kernels.transform(part) for name, part in self.tests.items()}
        return kernels.transform(self.train), tests

    @cached_property
    def _spectral(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        train = spectral_features(self.train, self.device)
        tests = {name: spectral_features(part, self.device) for name, part in self.tests.items()}
        if self._train_code is None:
            return train, tests
        joined = {n: np.hstack([part, self._test_codes[n]]) for n, part in tests.items()}
        return np.hstack([train, self._train_code]), joined


def _linear(
    train: np.ndarray,
    codes: np.ndarray,
    tests: Mapping[str, np.ndarray],
    classes: int,
    like: AttackDataset,
) -> dict[str, np.ndarray]:
    """Softmax regression, with strong shrinkage: nearly as many features as windows."""
    reader = LinearReader(shrinkage=100 / len(codes), device=like.device)
    reader.fit(train, codes, classes)
    return {name: reader.log_probabilities(features) for name, features in tests.items()}


def _trees(
    train: np.ndarray,
    codes: np.ndarray,
    tests: Mapping[str, np.ndarray],
    classes: int,
    like: AttackDataset,
) -> dict[str, np.ndarray]:
    """Boosted trees; many classes get fewer rounds, since each round grows a tree for each."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    present = np.unique(codes)
    model = HistGradientBoostingClassifier(
        max_iter=max(10, int(like.budget.rounds * min(1.0, 4 / len(present)))),
        learning_rate=0.15,
        max_leaf_nodes=15,
        early_stopping=False,
        random_state=like.seed,
    ).fit(train, codes)
    found = {}
    for name, features in tests.items():
        # Classes that never occurred in training are nearly impossible.
        table = np.full((len(features), classes), 1e-9)
        table[:, present] = model.predict_proba(features)
        found[name] = np.log(np.maximum(table, 1e-9))
    return found
