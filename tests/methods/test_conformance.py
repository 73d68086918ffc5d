"""Every registered method goes through every check; and the checks catch methods that cheat."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.errors import Refusal
from sensorveil.methods import conformance
from sensorveil.methods.base import Capabilities
from sensorveil.methods.baselines import NoObfuscation
from sensorveil.methods.registry import list_methods, method


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(list_methods()))
def test_method_conforms(name, check):
    check(method(name), conformance.example_windows())


class Leaky(NoObfuscation):
    """Uses the true label although it says it does not."""

    def _obfuscate(self, windows, strength, rng):
        gender = windows.labels["gender"].reshape(-1, *(1,) * len(windows.shape))
        return windows.signal * (1 + gender)


class Frozen(NoObfuscation):
    """Says that it is random and is not."""

    capabilities = Capabilities(random=True)


class Spilling(NoObfuscation):
    """Lets NaN out."""

    def _obfuscate(self, windows, strength, rng):
        return windows.signal * np.nan


class Unscaled(NoObfuscation):
    """Leaves units that depend on the input's."""

    def _obfuscate(self, windows, strength, rng):
        return windows.signal + 1 / self.scaling_.deviation


class Forgetful(NoObfuscation):
    """Learns something that its state leaves out."""

    def _fit(self, windows, rng):
        self.offset_ = 1.0

    def _obfuscate(self, windows, strength, rng):
        return windows.signal + getattr(self, "offset_", 0.0)


class Reseeded(NoObfuscation):
    """Does not keep the seed that it is given."""

    def __init__(self, preset="fast", seed=0, device="cpu", **settings):
        super().__init__(preset, seed + 1, device, **settings)


@pytest.mark.parametrize(
    ("made", "check"),
    [
        (Leaky, conformance.check_labels_are_not_used),
        (Frozen, conformance.check_seed_decides),
        (Spilling, conformance.check_output_fits_the_input),
        (Unscaled, conformance.check_units_are_kept),
        (Forgetful, conformance.check_round_trip),
        (Reseeded, conformance.check_parameters),
    ],
)
def test_checks_catch_cheats(made, check):
    with pytest.raises((AssertionError, Refusal)):
        check(made, conformance.example_windows())
