"""The autoencoder baselines of ObscureNet's tables 1 to 3 (section 3 of the paper).

None has discriminators, so nothing keeps the hidden classes out of the code. Their default modifier
is "deterministic", as in the tables.

Reference
---------
O. Hajihassnai, O. Ardakanian, H. Khazaei: ObscureNet: Learning Attribute-invariant Latent
Representation for Anonymizing Sensor Data. IoTDI 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.methods.base import Capabilities
from sensorveil.methods.obscurenet import (
    PRESETS,
    AutoencoderSettings,
    ObscureNet,
    VariationalSettings,
)

# Section 3.1: the code is moved from the mean of the predicted hidden class to that of another one.


class MeanSettings(VariationalSettings):
    """Settings of these; "randomized" names no class to move to."""

    modifier: Literal["deterministic", "probabilistic"] = "deterministic"


def mean_effects(codes: np.ndarray, kept: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """What each hidden class adds to the mean code of a kept class, (kept, hidden, latent).

    With one hidden attribute these are the means of section 3.1, counted from the kept class's own.
    With several, least squares gives each attribute its share, even where two go together or a
    combination never occurs. `codes` are (n, latent), `kept` (n,), and `hidden` one-hot (n, hidden).
    """
    effects = []
    for kept_class in range(int(kept.max()) + 1):
        own = kept == kept_class
        centred = codes[own] - codes[own].mean(0)
        effects.append(np.linalg.lstsq(hidden[own], centred, rcond=None)[0])
    return np.stack(effects).astype(np.float32)


class AttributeVAE(ObscureNet):
    """A variational autoencoder for each kept class; the code is moved between means.

    With several hidden attributes the code is moved once for each of them; see `mean_effects`.
    """

    name = "attribute-vae"
    summary = "a VAE per kept class, its code moved between hidden classes"
    Settings = MeanSettings
    presets = PRESETS
    code_moves = True

    def _fit_moves(self, windows: Windows) -> None:
        rows, kept, hidden = self._known_classes(windows)
        codes = self._codes(windows.select(rows), kept)[:, : self.settings.latent_size]
        self.effects_ = mean_effects(codes, kept, self._one_hot(hidden))

    def _moves(self, kept: np.ndarray, hidden: np.ndarray, condition: np.ndarray) -> np.ndarray:
        change = condition - self._one_hot(hidden)
        return np.einsum("nc,ncl->nl", change, self.effects_[kept])

    def _state(self) -> dict[str, np.ndarray]:
        return {**super()._state(), "effects": self.effects_}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        super()._restore(state)
        self.effects_ = state["effects"]


class GeneralVAE(AttributeVAE):
    """One variational autoencoder for all; its means are those of a kept and a hidden class.

    The paper's network has 24.5 million weights on MotionSense and 8.7 million on MobiAct, in
    layers that it does not state; here it has those of the others.
    """

    name = "general-vae"
    summary = "one VAE, its code moved between hidden classes"
    one_network = True


# Section 3.2: the decoder is given another hidden class than the predicted one.


class AttributeCAE(ObscureNet):
    """An autoencoder for each kept class; the decoder is given another hidden class.

    Nothing in it is random unless the modifier is.
    """

    name = "attribute-cae"
    summary = "a conditional autoencoder per kept class"
    capabilities = Capabilities(random=False)
    Settings = AutoencoderSettings
    presets = PRESETS
    variational = False


class AttributeCVAE(ObscureNet):
    """A variational autoencoder for each kept class; the decoder is given another hidden class."""

    name = "attribute-cvae"
    summary = "a conditional VAE per kept class"
    Settings = VariationalSettings
    presets = PRESETS
