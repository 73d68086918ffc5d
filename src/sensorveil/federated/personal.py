"""Adapting a trained Blinder to one new person, on that person's own device, section 7.8."""

from __future__ import annotations

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.federated.client import ClientData, Trainee, draw_task
from sensorveil.federated.plan import Plan
from sensorveil.methods.blinder import Blinder
from sensorveil.nets.meta import Adapting, adapted
from sensorveil.progress import track

STEPS, SHARE, RATE = 80, 0.05, 1e-4
"""The paper's 80 iterations, on less than 5% of the person's windows; it states no rate.

Ours is that of the clients' local steps in the authors' code. From 2e-3 on such steps can diverge.
"""


BATCH = 2
"""The fewest windows to adapt to: each step takes one to learn from and leaves one out."""


def adaptation_set(windows: Windows, share: float, seed: int) -> Windows:
    """A random part of one person's windows, smaller than `share`.

    >>> windows = Windows.from_signal(np.zeros((100, 1, 4)))
    >>> len(adaptation_set(windows, 0.05, seed=0))
    4
    """
    if len(np.unique(windows.subject)) > 1:
        raise Refusal("these windows are of several people; a run is adapted to one of them")
    count = int(np.ceil(share * len(windows))) - 1
    if count < BATCH:
        larger = ", or take a larger share (--share)" if len(windows) > BATCH else ""
        raise Refusal(
            f"{len(windows)} windows are too few: less than {share:.0%} of them are taken, and at"
            f" least {BATCH} are needed, so there must be {int(BATCH / share) + 1}; record"
            f" more{larger}"
        )
    chosen = np.random.default_rng(seed).choice(len(windows), count, replace=False)
    return windows.select(np.sort(chosen))


def personalised(
    obfuscator: Blinder, windows: Windows, steps: int = STEPS, rate: float = RATE, seed: int = 0
) -> Blinder:
    """The run after so many local steps on these windows: lines 15 to 20 of algorithm 1, repeated.

    Each step draws a batch and its shadow samples anew.
    """
    known = len(obfuscator.labelled_windows(windows)[0])
    if known < BATCH:
        named = ", ".join((*obfuscator.policy_.keep, *obfuscator.policy_.hide))
        raise Refusal(
            f"{known} of {len(windows)} windows have classes of {named} that the run knows, and"
            f" adapting takes at least {BATCH}; label more, or take a larger share (--share)"
        )
    plan = Plan(
        rounds=steps, support=max(1, min(15, known - 1)), query=1, balance=0, seed=seed, rate=rate
    )
    data, trainee = ClientData.of(obfuscator, windows, plan, client=0), Trainee.of(obfuscator)
    how = Adapting(steps=1, rate=rate, reader_steps=plan.reader_steps, shadows=True)
    weights = trainee.layout.by_player(obfuscator.weights())
    for number in track(range(steps), "adapting"):
        task = draw_task(data, trainee, plan, client=0, number=number)
        weights = adapted(trainee.nets, *weights, task, how, trainee.scale)
    trained = obfuscator.with_weights(trainee.layout.joined(*weights).detach())
    trained.metrics_["personalised"] = {"windows": len(windows), "steps": steps, "rate": rate}
    return trained
