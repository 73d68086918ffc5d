"""The trade-off plot: a run, its variants and the plain methods, by one attacker."""

from __future__ import annotations

from copy import copy
from typing import Self

import numpy as np

from sensorveil.audit.attackers import CONVOLUTIONS, Budget
from sensorveil.audit.audit import AuditSettings, audit_run
from sensorveil.classifiers import ClassifierSettings
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.methods.baselines import Noise

SMALL = ClassifierSettings(width=4, epochs=1, batch_size=64, learning_rate=5e-3)


class Masked(Noise):
    """Noise on the channel that shows the gender: some in any case, and more by the strength."""

    floor, scale = 10.0, 1.0

    def variants(self) -> dict[str, Self]:
        found = {"without floor": copy(self), "without noise": copy(self)}
        found["without floor"].floor = found["without noise"].scale = 0.0
        return found

    def _obfuscate(self, windows, strength, rng):
        signal, spread = windows.signal, self.floor + 10 ** (-strength["snr"] / 20)
        noise = rng.normal(size=signal[:, 1].shape)
        signal[:, 1] += self.scale * np.reshape(spread, (-1, 1)) * noise
        return signal


def test_variants_and_plain_methods_stand_beside_the_run() -> None:
    """At a strength that hides the gender even without the floor."""
    rng = np.random.default_rng(0)
    activity, gender = np.arange(600) % 2, np.arange(600) // 2 % 2
    signal = 0.2 * rng.normal(size=(600, 2, 16))
    signal += (2 * np.stack([activity, gender], axis=1) - 1)[..., None]
    windows = Windows.from_signal(signal, {"activity": activity, "gender": gender})
    train, test = windows.select(slice(0, 300)), windows.select(slice(300, 600))
    obfuscator = Masked().fit(train, "activity", "gender")
    budget = Budget(network=SMALL, kernels=40, attackers=(CONVOLUTIONS,))
    settings = AuditSettings(budget, (0,), True, False, 0, 0, ("none",))
    found = audit_run(obfuscator, Split(train, test, train, test), settings, {"snr": -40.0})
    points = {one.name: one for one in found.main.trade_off}
    assert list(points) == ["noise", "without floor", "without noise", "none"]
    assert max(points[name].hidden for name in ("noise", "without floor")) < 0.65
    assert points["without noise"].hidden == points["none"].hidden > 0.9
    assert points["without noise"].kept == points["none"].kept > 0.9 > points["noise"].kept
