"""The autoencoder baselines of ObscureNet's tables 1 to 3 (Hajihassnai and others 2021, section 3).

`general-vae` and `attribute-vae` move the code from the mean of the hidden class that is read to
the mean of another, section 3.1. `attribute-cae` and `attribute-cvae` tell the decoder another
hidden class than the one read, section 3.2. None has discriminators, so nothing keeps the hidden
classes out of the code. All take `deterministic`, the modifier of the tables, by default.

The paper's general VAE has many more weights than one for a single class (24.5 million in all on
MotionSense, 8.7 million on MobiAct), and its layers are not stated; here it has the others' layers
unless `widths` says otherwise. The authors' CVAE weighs the divergence by 0.1, not 2; `beta` is a
setting, and 2 by default for all, so that they differ from ObscureNet in one thing at a time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sensorveil.methods.autoencoder_settings import (
    AutoencoderSettings,
    MeanSettings,
    VariationalSettings,
)
from sensorveil.methods.base import Capabilities
from sensorveil.methods.class_autoencoder import ClassAutoencoder, LabelledWindows


class AttributeVAE(ClassAutoencoder):
    """One variational autoencoder for each kept class; the code is moved from mean to mean.

    With several hidden attributes the code is moved once for each, by that attribute's own share.
    """

    name = "attribute-vae"
    summary = "a variational autoencoder per kept class, the code moved between hidden classes"
    capabilities = Capabilities()
    conditional = False
    Settings = MeanSettings
    settings: MeanSettings

    def _learn_more(self, labelled_windows: LabelledWindows) -> None:
        """What each hidden class adds to the mean code of a kept class: (cells, classes, latent).

        With one hidden attribute these are the means of section 3.1, counted from the kept class's
        own. With several, least squares gives each attribute its own share, even where two go
        together or a combination never occurs.
        """
        codes, _ = self._codes(labelled_windows.windows, self._network(labelled_windows.kept))
        classes = self._one_hot(labelled_windows.hidden)
        effects = []
        for cell in range(len(self.cells_)):
            own = labelled_windows.kept == cell
            centred = codes[own] - codes[own].mean(0)
            effects.append(np.linalg.lstsq(classes[own], centred, rcond=None)[0])
        self.effects_ = np.stack(effects).astype(np.float32)

    def _shift(self, kept: np.ndarray, read: np.ndarray | None, told: np.ndarray) -> np.ndarray:
        """From the mean code of the hidden classes read to that of the others, section 3.1."""
        assert read is not None  # `_uses_hidden` is always true here
        change = told - self._one_hot(read)
        shift = np.empty((len(kept), self.settings.latent), np.float32)
        for cell in np.unique(kept):
            shift[kept == cell] = change[kept == cell] @ self.effects_[cell]
        return shift

    def _state(self) -> dict[str, np.ndarray]:
        return {**super()._state(), "effects": self.effects_}

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        super()._restore(state)
        self.effects_ = state["effects"]


class GeneralVAE(AttributeVAE):
    """The same with one network for all; its means are those of pairs of kept and hidden class."""

    name = "general-vae"
    summary = "one variational autoencoder, the code moved between hidden classes"
    one_network = True


class AttributeCVAE(ClassAutoencoder):
    """One variational autoencoder for each kept class; the decoder is told another hidden class."""

    name = "attribute-cvae"
    summary = "a conditional variational autoencoder per kept class, told another hidden class"
    capabilities = Capabilities()
    Settings = VariationalSettings
    settings: VariationalSettings


class AttributeCAE(ClassAutoencoder):
    """One plain autoencoder for each kept class; the decoder is told another hidden class.

    Nothing in it is random unless the modifier is.
    """

    name = "attribute-cae"
    summary = "a conditional autoencoder per kept class, told another hidden class"
    capabilities = Capabilities(random=False)
    variational = False
    Settings = AutoencoderSettings
