"""Adapting a trained Blinder to one new person, on that person's own device (section 7.8)."""

from __future__ import annotations

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.federated.client import ClientDataset, draw, gather, known_classes, select
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.meta_learning import adapt
from sensorveil.methods.blinder import Blinder
from sensorveil.progress import track

STEPS, SHARE, LEARNING_RATE = 80, 0.05, 1e-4
"""80 steps on less than 5% of the person's windows; the learning rate is the authors' code's."""

MIN_WINDOWS = 2
"""Each step takes one window to learn from and leaves one out."""


def adaptation_set(windows: Windows, share: float, seed: int) -> Windows:
    """A random part of one person's windows, smaller than `share`.

    >>> windows = Windows.from_signal(np.zeros((100, 1, 4)))
    >>> len(adaptation_set(windows, 0.05, seed=0))
    4
    """
    if len(np.unique(windows.subject)) > 1:
        raise Refusal("these windows are of several people; a run is adapted to one of them")
    count = int(np.ceil(share * len(windows))) - 1
    if count < MIN_WINDOWS:
        larger = ", or take a larger share (--share)" if len(windows) > MIN_WINDOWS else ""
        raise Refusal(
            f"{len(windows)} windows are too few: less than {share:.0%} of them are taken, and at"
            f" least {MIN_WINDOWS} are needed, so there must be {int(MIN_WINDOWS / share) + 1};"
            f" record more{larger}"
        )
    chosen = np.random.default_rng(seed).choice(len(windows), count, replace=False)
    return windows.select(np.sort(chosen))


def personalise(
    run: Blinder,
    windows: Windows,
    steps: int = STEPS,
    learning_rate: float = LEARNING_RATE,
    seed: int = 0,
) -> Blinder:
    """The run after local steps on these windows: algorithm 1, lines 15 to 20, repeated.

    Parameters
    ----------
    run
        A trained Blinder.
    windows
        One person's windows, see `adaptation_set`.
    steps, learning_rate
        Local steps of gradient descent; from 2e-3 on they can diverge.
    seed
        Of the batches and shadow samples, which each step draws anew.
    """
    known = len(known_classes(run, windows)[0])
    if known < MIN_WINDOWS:
        named = ", ".join((*run.policy_.keep, *run.policy_.hide))
        raise Refusal(
            f"{known} of {len(windows)} windows have classes of {named} that the run knows, and"
            f" adapting takes at least {MIN_WINDOWS}; label more, or take a larger share (--share)"
        )
    support = max(1, min(15, known - 1))
    config = FederationConfig(
        rounds=steps, support_size=support, query_size=1, balance=0, seed=seed
    )
    loss, data = run.loss(), ClientDataset.of(run, windows, config, client=0)
    weights = loss.network.unflatten(run.weights())
    for number in track(range(steps), "adapting"):
        drawn = draw(len(data), loss.network, config, client=0, number=number)
        batch = select(gather(data, drawn, loss.network, config), 0)
        weights = adapt(loss, *weights, batch, steps=1, learning_rate=learning_rate)
    adapted = run.with_weights(loss.network.flatten({**weights[0], **weights[1]}).detach())
    adapted.metrics_["personalised"] = {
        "windows": len(windows),
        "steps": steps,
        "learning_rate": learning_rate,
    }
    return adapted
