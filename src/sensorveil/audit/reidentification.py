"""Re-identification as two papers measure it: a classifier trained on leaked obfuscated windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from sensorveil.audit.attack import attack_accuracy
from sensorveil.audit.attackers import CNN, Budget
from sensorveil.audit.results import Reidentification
from sensorveil.audit.threat_models import Output
from sensorveil.classifiers import ClassifierSettings
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
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
    attacker: str = CNN,
) -> Reidentification:
    """A random fifth of the obfuscated windows leaks with labels; the rest is attacked.

    This is ObscureNet, section 6.1.3. Single windows leak, as in the paper. Where windows overlap,
    the classifier has seen near copies of what it is tested on, which favours the attacker.

    Parameters
    ----------
    hidden_test
        Obfuscated test windows.
    attribute
        The attribute to predict.
    runs, leaked
        Independent runs, and the share that leaks in each.
    settings
        Of the network.
    device, seed
        Where and with which random numbers.
    attacker
        The name of a registered attacker.
    """
    if not 0 < leaked < 1:
        raise Refusal(f"the part that leaks is {leaked}; it must be between 0 and 1")
    windows = _known(hidden_test, attribute)
    count = round(leaked * len(windows))
    if not 2 <= count < len(windows):
        raise Refusal(f"of {len(windows)} windows, {count} would leak: too few to learn from")
    accuracies = []
    for run in track(range(runs), "re-identification"):
        order = np.random.default_rng([seed, run]).permutation(len(windows))
        train, test = (windows.select(np.sort(o)) for o in (order[:count], order[count:]))
        budget = _budget(train, settings)
        accuracies.append(
            attack_accuracy(train, test, attribute, attacker, budget, seed + run, device)
        )
    return _result(attribute, OBSCURENET, accuracies, windows)


def cloak_reidentification(
    hidden_train: Windows,
    hidden_test: Windows,
    attribute: str,
    runs: int = 5,
    settings: ClassifierSettings | None = None,
    device: str = "cpu",
    seed: int = 0,
    attacker: str = CNN,
) -> Reidentification:
    """Trained on obfuscated training windows with true labels, tested on the obfuscated test.

    This is CLOAK, section V-J: training and test are those of the inference models, and runs differ
    in the classifier's seed. The parameters are those of `obscurenet_reidentification`.
    """
    train, test = _known(hidden_train, attribute), _known(hidden_test, attribute)
    if not np.isin(test.codes(attribute), train.codes(attribute)).any():
        raise Refusal(f"no class of '{attribute}' in the test windows occurs in training")
    budget = _budget(train, settings)
    accuracies = [
        attack_accuracy(train, test, attribute, attacker, budget, seed + run, device)
        for run in track(range(runs), "re-identification")
    ]
    return _result(attribute, CLOAK, accuracies, test)


def reidentify(
    output: Output,
    hide: Sequence[str],
    runs: int,
    settings: ClassifierSettings | None = None,
    device: str = "cpu",
) -> tuple[tuple[Reidentification, ...], dict[str, str]]:
    """Every hidden attribute by both protocols, and why some could not be run.

    Parameters
    ----------
    output
        What leaks in part.
    hide
        The hidden attributes.
    runs
        How often each is repeated; 0 leaves all out.
    settings, device
        Size and training of the classifier, and where it works.
    """
    protocols: dict[str, Callable[[str], Reidentification]] = {
        OBSCURENET: partial(
            obscurenet_reidentification, output.test, runs=runs, settings=settings, device=device
        ),
        CLOAK: partial(
            cloak_reidentification,
            output.train,
            output.test,
            runs=runs,
            settings=settings,
            device=device,
        ),
    }
    found, left_out = [], dict[str, str]()
    for name in hide if runs else ():
        for protocol, again in protocols.items():
            try:
                found.append(again(name))
            except Refusal as refusal:  # people are disjoint, or one class only: the page says so
                left_out[f"re-identification of {name} as in {protocol}"] = str(refusal)
    return tuple(found), left_out


def _budget(train: Windows, settings: ClassifierSettings | None) -> Budget:
    budget = Budget(windows=len(train))
    return budget if settings is None else replace(budget, network=settings)


def _known(windows: Windows, attribute: str) -> Windows:
    """The windows whose class is known; there must be two classes."""
    known = windows.select(windows.codes(attribute) != UNKNOWN)
    if len(np.unique(known.codes(attribute))) < 2:
        raise Refusal(f"attribute '{attribute}' has fewer than two classes in these windows")
    return known


def _result(
    attribute: str, protocol: str, accuracies: list[float], tested: Windows
) -> Reidentification:
    if not accuracies:
        raise Refusal("re-identification needs at least one run")
    return Reidentification(
        attribute=attribute,
        protocol=protocol,
        runs=len(accuracies),
        mean=float(np.mean(accuracies)),
        spread=float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0,
        majority=float(np.bincount(tested.codes(attribute)).max() / len(tested)),
    )
