"""No obfuscation: the level that every other method is compared with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.methods.base import Capabilities, Obfuscator


class NoObfuscation(Obfuscator):
    """Returns what it is given.

    >>> windows = Windows.from_signal(np.ones((2, 1, 4)), {"activity": [0, 1], "gender": [1, 0]})
    >>> obfuscator = NoObfuscation().fit(windows, keep="activity", hide="gender")
    >>> bool((obfuscator.obfuscate(windows).signal == windows.signal).all())
    True
    """

    name = "none"
    summary = "the data as it is"
    capabilities = Capabilities(random=False)

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        pass

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        return windows.signal
