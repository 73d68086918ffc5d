"""Re-identification as two papers measure it: a model trained on leaked obfuscated windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from sensorveil.audit.attackers import CNN, AttackDataset, Budget
from sensorveil.audit.results import Reidentification
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.measures.inference import ClassifierSettings
from sensorveil.progress import track

OBSCURENET, CLOAK = "ObscureNet", "CLOAK"


def obscurenet_reidentification(
    hidden_test: Windows,
    attribute: str,
    runs: int = 20,
    leaked: float = 0.2,
    settings: ClassifierSettings | None = None,
    device: str = "cpu",
    seed: int = 0,
    family: str = CNN,
) -> Reidentification:
    """A random fifth of the obfuscated windows leaks with labels; the rest is attacked.

    As in ObscureNet 6.1.3: independent runs, each with another fifth, of which mean and standard
    deviation are given. Single windows are drawn, as in the paper. Where windows overlap, and
    where the same people leak and are attacked, the model has seen near copies of what it is
    tested on: that is generous to the attacker, and more so than any other figure of the audit.
    """
    if not 0 < leaked < 1:
        raise Refusal(f"the part that leaks is {leaked}; it must be between 0 and 1")
    windows = _known(hidden_test, attribute)
    count = round(leaked * len(windows))
    if not 2 <= count < len(windows):
        raise Refusal(f"of {len(windows)} windows, {count} would leak: too few to learn from")

    def parts() -> Iterator[tuple[Windows, Windows]]:
        for run in track(range(runs), "re-identification"):
            order = np.random.default_rng([seed, run]).permutation(len(windows))
            yield windows.select(np.sort(order[:count])), windows.select(np.sort(order[count:]))

    accuracies = [
        _accuracy(train, test, attribute, family, settings, seed + run, device)
        for run, (train, test) in enumerate(parts())
    ]
    return _result(attribute, OBSCURENET, accuracies, windows)


def cloak_reidentification(
    hidden_train: Windows,
    hidden_test: Windows,
    attribute: str,
    runs: int = 5,
    settings: ClassifierSettings | None = None,
    device: str = "cpu",
    seed: int = 0,
    family: str = CNN,
) -> Reidentification:
    """Trained on obfuscated training windows with true labels, tested on the obfuscated test.

    As in CLOAK V-J: the division of training and test is that of the inference models, and the
    trials differ in the seed of the model.
    """
    train, test = _known(hidden_train, attribute), _known(hidden_test, attribute)
    if not np.isin(test.codes(attribute), train.codes(attribute)).any():
        raise Refusal(f"no class of '{attribute}' in the test windows occurs in training")
    accuracies = [
        _accuracy(train, test, attribute, family, settings, seed + run, device)
        for run in track(range(runs), "re-identification")
    ]
    return _result(attribute, CLOAK, accuracies, test)


def _known(windows: Windows, attribute: str) -> Windows:
    """The windows whose class is known; there must be two classes."""
    known = windows.select(windows.codes(attribute) != UNKNOWN)
    if len(np.unique(known.codes(attribute))) < 2:
        raise Refusal(f"attribute '{attribute}' has fewer than two classes in these windows")
    return known


def _accuracy(
    train: Windows,
    test: Windows,
    attribute: str,
    family: str,
    settings: ClassifierSettings | None,
    seed: int,
    device: str,
) -> float:
    budget = Budget(windows=len(train))
    if settings is not None:
        budget = replace(budget, network=settings)
    evidence = AttackDataset(train, {"rest": test}, budget, seed, device)
    codes, classes = train.codes(attribute), len(train.classes[attribute])
    read = evidence.attack(family, codes, classes)["rest"].argmax(1)
    return float((read == test.codes(attribute)).mean())


def _result(
    attribute: str, after: str, accuracies: list[float], tested: Windows
) -> Reidentification:
    if not accuracies:
        raise Refusal("re-identification needs at least one run")
    return Reidentification(
        attribute=attribute,
        protocol=after,
        runs=len(accuracies),
        mean=float(np.mean(accuracies)),
        spread=float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0,
        majority=float(np.bincount(tested.codes(attribute)).max() / len(tested)),
    )
